"""Deleting: preconditions, finalizers, propagation, namespaces (rule Q8, rules G5, H1, H4, H6, I4)."""

from __future__ import annotations

import pytest

from tests.conformance.rawapi import Api, owner, psono, secret

pytestmark = pytest.mark.asyncio
FINALIZER = "example.com/finalizer"


async def test_a_delete_without_finalizers_removes_at_once(api: Api) -> None:
    created = await api.new_psono("a")
    answer = await api.delete(f"{api.psono}/a")
    assert answer.status == 200
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {
            "name": "a",
            "group": "secrets.psono.com",
            "kind": "psonosecrets",
            "uid": created.uid,
        },
    }
    assert (await api.delete(f"{api.psono}/a")).status == 404


async def test_preconditions_guard_a_delete(api: Api) -> None:
    created = await api.new_secret("a")
    answer = await api.delete(f"{api.secrets}/a", {"preconditions": {"uid": "other"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "the UID in the precondition (other) does not match the UID in record" in answer.message
    answer = await api.delete(f"{api.secrets}/a", {"preconditions": {"resourceVersion": "1"}})
    assert answer.status == 409
    assert "the ResourceVersion in the precondition (1) does not match" in answer.message
    good = {"uid": created.uid, "resourceVersion": created.version}
    assert (await api.delete(f"{api.secrets}/a", {"preconditions": good})).status == 200


async def test_a_finalizer_turns_a_delete_into_an_update(api: Api) -> None:
    await api.new_psono("a", metadata={"finalizers": [FINALIZER]})
    answer = await api.delete(f"{api.psono}/a")
    assert answer.status == 200
    assert answer.body["metadata"]["deletionTimestamp"]
    assert answer.generation == 2, "deletionTimestamp bumps the generation"
    again = await api.delete(f"{api.psono}/a")
    assert (again.status, again.version) == (200, answer.version)
    last = await api.patch(f"{api.psono}/a", {"metadata": {"finalizers": None}})
    assert last.status == 200
    assert await api.gone(f"{api.psono}/a")


async def test_no_new_finalizer_while_deleting(api: Api) -> None:
    await api.new_psono("a", metadata={"finalizers": [FINALIZER]})
    await api.delete(f"{api.psono}/a")
    body = {"metadata": {"finalizers": [FINALIZER, "example.com/new"]}}
    answer = await api.patch(f"{api.psono}/a", body)
    assert (answer.status, answer.causes[0]["reason"]) == (422, "FieldValueForbidden")
    assert "no new finalizers can be added if the object is being deleted" in answer.message
    labelled = await api.patch(f"{api.psono}/a", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.status == 200
    await api.patch(f"{api.psono}/a", {"metadata": {"finalizers": []}})
    assert await api.gone(f"{api.psono}/a")


async def test_the_name_is_taken_while_deleting(api: Api) -> None:
    await api.new_psono("a", metadata={"finalizers": [FINALIZER]})
    await api.delete(f"{api.psono}/a")
    answer = await api.create(api.psono, psono("a"))
    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    await api.patch(f"{api.psono}/a", {"metadata": {"finalizers": None}})


async def test_deletion_time_cannot_be_set_or_taken_back(api: Api) -> None:
    await api.new_psono("a", metadata={"finalizers": [FINALIZER]})
    body = {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}}
    await api.patch(f"{api.psono}/a", body)
    assert "deletionTimestamp" not in (await api.get(f"{api.psono}/a")).body["metadata"]
    await api.delete(f"{api.psono}/a")
    await api.patch(f"{api.psono}/a", {"metadata": {"deletionTimestamp": None, "labels": {"a": "b"}}})
    assert (await api.get(f"{api.psono}/a")).body["metadata"]["deletionTimestamp"]
    await api.patch(f"{api.psono}/a", {"metadata": {"finalizers": None}})


async def test_background_deletion_takes_the_dependents_afterwards(api: Api) -> None:
    parent = await api.new_psono("a")
    await api.new_secret("child", metadata={"ownerReferences": [owner(parent, controller=True)]})
    await api.new_secret("bystander")
    answer = await api.delete(f"{api.psono}/a", {"propagationPolicy": "Background"})
    assert answer.body["status"] == "Success"
    await api.eventually(lambda: api.gone(f"{api.secrets}/child"))
    assert await api.present(f"{api.secrets}/bystander")


async def test_background_deletion_waits_for_our_finalizer_first(api: Api) -> None:
    parent = await api.new_psono("a", metadata={"finalizers": [FINALIZER]})
    await api.new_secret("child", metadata={"ownerReferences": [owner(parent, controller=True)]})
    await api.delete(f"{api.psono}/a", propagationPolicy="Background")
    assert await api.present(f"{api.secrets}/child")
    await api.patch(f"{api.psono}/a", {"metadata": {"finalizers": None}})
    await api.eventually(lambda: api.gone(f"{api.secrets}/child"))


async def test_orphaning_keeps_the_dependents_without_their_owner(api: Api) -> None:
    parent = await api.new_psono("a")
    reference = owner(parent, controller=True, blockOwnerDeletion=True)
    await api.new_secret("child", metadata={"ownerReferences": [reference]})
    answer = await api.delete(f"{api.psono}/a", {"propagationPolicy": "Orphan"})
    assert "orphan" in answer.body["metadata"]["finalizers"]
    await api.eventually(lambda: api.gone(f"{api.psono}/a"))
    child = (await api.get(f"{api.secrets}/child")).body
    assert not child["metadata"].get("ownerReferences")


async def test_foreground_deletion_takes_the_dependents_first(api: Api) -> None:
    parent = await api.new_psono("a", metadata={"finalizers": [FINALIZER]})
    reference = owner(parent, controller=True, blockOwnerDeletion=True)
    await api.new_secret("child", metadata={"ownerReferences": [reference]})
    answer = await api.delete(f"{api.psono}/a", {"propagationPolicy": "Foreground"})
    assert set(answer.body["metadata"]["finalizers"]) == {FINALIZER, "foregroundDeletion"}
    await api.eventually(lambda: api.gone(f"{api.secrets}/child"))

    async def only_ours_is_left() -> bool:
        finalizers: list[str] = (await api.get(f"{api.psono}/a")).body["metadata"]["finalizers"]
        return finalizers == [FINALIZER]

    await api.eventually(only_ours_is_left)
    await api.patch(f"{api.psono}/a", {"metadata": {"finalizers": None}})
    assert await api.gone(f"{api.psono}/a")


async def test_a_dependent_of_an_absent_owner_is_collected(api: Api) -> None:
    parent = await api.new_psono("a")
    ghost = {**owner(parent), "uid": "00000000-0000-4000-8000-000000000000"}
    await api.new_secret("child", metadata={"ownerReferences": [ghost]})
    await api.eventually(lambda: api.gone(f"{api.secrets}/child"))


async def test_a_dependent_with_another_owner_only_loses_the_reference(api: Api) -> None:
    first, second = await api.new_psono("a"), await api.new_psono("b")
    await api.new_secret("child", metadata={"ownerReferences": [owner(first), owner(second)]})
    await api.delete(f"{api.psono}/a")

    async def one_left() -> bool:
        child = await api.get(f"{api.secrets}/child")
        return [each["name"] for each in child.body["metadata"]["ownerReferences"]] == ["b"]

    await api.eventually(one_left)


async def test_an_unknown_propagation_policy_is_422(api: Api) -> None:
    await api.new_secret("a")
    answer = await api.delete(f"{api.secrets}/a", {"propagationPolicy": "Bogus"})
    assert (answer.status, answer.causes[0]["field"]) == (422, "propagationPolicy")


async def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    await api.new_secret("a", metadata={"labels": {"app": "x"}})
    await api.new_secret("b", metadata={"labels": {"app": "y"}})
    answer = await api.delete(api.secrets, labelSelector="app=x")
    assert (answer.status, answer.body["kind"], answer.names()) == (200, "SecretList", ["a"])
    assert (await api.get(api.secrets)).names() == ["b"]


async def test_an_ending_namespace_refuses_content_and_loses_what_it_has(api: Api) -> None:
    await api.new_secret("plain")
    await api.new_psono("held", metadata={"finalizers": [FINALIZER]})
    path = f"/api/v1/namespaces/{api.namespace}"
    answer = await api.delete(path)
    assert answer.body["status"]["phase"] == "Terminating"
    assert answer.body["metadata"]["deletionTimestamp"]
    refused = await api.create(api.secrets, secret("late"))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.causes == [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {api.namespace} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    event = {
        "metadata": {"name": "e", "namespace": api.namespace},
        "involvedObject": {"namespace": api.namespace, "kind": "PsonoSecret", "name": "held"},
    }
    assert (await api.create(f"{path}/events", event)).status == 403
    await api.eventually(lambda: api.gone(f"{api.secrets}/plain"))

    async def marked() -> bool:
        return "deletionTimestamp" in (await api.get(f"{api.psono}/held")).body["metadata"]

    await api.eventually(marked)
    updated = await api.patch(f"{api.psono}/held/status", {"status": {"observedGeneration": 1}})
    assert updated.status == 200, "updates still work"
    await api.patch(f"{api.psono}/held", {"metadata": {"finalizers": None}})
    await api.eventually(lambda: api.gone(path))
