"""Patches of every kind (rule Q5, R3, rules F2, G2, H2)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.rawapi import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, owner, psono, secret

pytestmark = pytest.mark.asyncio


async def test_merge_patch_adds_changes_and_removes_by_null(api: Api) -> None:
    await api.new_secret("a", stringData={"keep": "1", "drop": "2", "change": "3"})
    answer = await api.patch(f"{api.secrets}/a", {"data": {"drop": None, "change": "NA==", "new": "NQ=="}})
    assert answer.body["data"] == {"keep": "MQ==", "change": "NA==", "new": "NQ=="}


async def test_merge_patch_replaces_lists_whole(api: Api) -> None:
    """Why finalizers need a guard (rule H2)."""
    await api.new_psono("a", metadata={"finalizers": ["example.com/theirs"]})
    answer = await api.patch(f"{api.psono}/a", {"metadata": {"finalizers": ["example.com/ours"]}})
    assert answer.body["metadata"]["finalizers"] == ["example.com/ours"]
    await api.patch(f"{api.psono}/a", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_a_stale_version_in_a_merge_patch_is_a_conflict(api: Api, subresource: str) -> None:
    created = await api.new_psono("a")
    await api.patch(f"{api.psono}/a", {"metadata": {"labels": {"a": "b"}}})
    body = {"metadata": {"resourceVersion": created.version}, "status": {"observedGeneration": 1}}
    answer = await api.patch(f"{api.psono}/a{subresource}", body)
    assert (answer.status, answer.reason) == (409, "Conflict")
    current = (await api.get(f"{api.psono}/a")).version
    body["metadata"] = {"resourceVersion": current}
    assert (await api.patch(f"{api.psono}/a{subresource}", body)).status == 200


async def test_a_uid_in_a_merge_patch_is_422_on_main_and_ignored_on_status(api: Api) -> None:
    await api.new_psono("a")
    answer = await api.patch(f"{api.psono}/a", {"metadata": {"uid": "another"}})
    assert (answer.status, answer.causes[0]["field"]) == (422, "metadata.uid")
    answer = await api.patch(f"{api.psono}/a/status", {"metadata": {"uid": "another"}})
    assert answer.status == 200


async def test_a_failed_test_of_a_json_patch_is_422(api: Api) -> None:
    await api.new_psono("a")
    operations = [
        {"op": "test", "path": "/metadata/name", "value": "b"},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
    ]
    answer = await api.patch(f"{api.psono}/a", operations, JSON_PATCH)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "labels" not in (await api.get(f"{api.psono}/a")).body["metadata"]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/spec/nothing"},
        {"op": "replace", "path": "/spec/data/7", "value": 1},
        {"op": "add", "path": "/spec/nothing/deeper", "value": 1},
        {"op": "test", "path": "/spec/nothing", "value": 1},
        {"op": "add", "path": "/spec/data/7", "value": {}},
    ],
)
async def test_a_json_patch_that_does_not_fit_is_422(api: Api, operation: dict[str, Any]) -> None:
    await api.new_psono("a")
    assert (await api.patch(f"{api.psono}/a", [operation], JSON_PATCH)).status == 422


async def test_a_replace_of_an_absent_member_adds_it(api: Api) -> None:
    await api.new_secret("a", stringData={"k": "v"})
    answer = await api.patch(
        f"{api.secrets}/a", [{"op": "replace", "path": "/data/new", "value": "dg=="}], JSON_PATCH
    )
    assert (answer.status, answer.body["data"]["new"]) == (200, "dg==")


async def test_json_patch_operations(api: Api) -> None:
    await api.new_psono("a", metadata={"labels": {"a": "1", "b": "2"}, "annotations": {"x.io/y": "1"}})
    operations = [
        {"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/c"},
        {"op": "copy", "from": "/metadata/labels/b", "path": "/metadata/labels/d"},
        {"op": "replace", "path": "/metadata/annotations/x.io~1y", "value": "2"},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/a"]},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/b"},
        {"op": "add", "path": "/metadata/finalizers/0", "value": "example.com/c"},
    ]
    answer = await api.patch(f"{api.psono}/a", operations, JSON_PATCH)
    meta = answer.body["metadata"]
    assert meta["labels"] == {"b": "2", "c": "1", "d": "2"}
    assert meta["annotations"] == {"x.io/y": "2"}
    assert meta["finalizers"] == ["example.com/c", "example.com/a", "example.com/b"]
    await api.patch(f"{api.psono}/a", {"metadata": {"finalizers": None}})


async def test_a_json_patch_must_be_a_list_of_operations(api: Api) -> None:
    await api.new_psono("a")
    answer = await api.patch(f"{api.psono}/a", {"a": "b"}, JSON_PATCH)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    answer = await api.call("PATCH", f"{api.psono}/a", b"[1", content_type=MERGE)
    assert answer.status == 400


async def test_a_strategic_patch_merges_finalizers_and_owners_of_secrets(api: Api) -> None:
    one, two = await api.new_secret("one"), await api.new_secret("two")
    await api.new_secret("a", metadata={"finalizers": ["example.com/a"], "ownerReferences": [owner(one)]})
    body: dict[str, Any] = {"metadata": {"finalizers": ["example.com/b"], "ownerReferences": [owner(two)]}}
    answer = await api.patch(f"{api.secrets}/a", body, STRATEGIC)
    assert set(answer.body["metadata"]["finalizers"]) == {"example.com/a", "example.com/b"}
    assert {each["name"] for each in answer.body["metadata"]["ownerReferences"]} == {"one", "two"}
    body = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a", "example.com/b"]}}
    body["metadata"]["ownerReferences"] = [{"uid": one.uid, "$patch": "delete"}]
    answer = await api.patch(f"{api.secrets}/a", body, STRATEGIC)
    assert not answer.body["metadata"].get("finalizers")
    assert [each["name"] for each in answer.body["metadata"]["ownerReferences"]] == ["two"]


async def test_a_patch_of_a_missing_object_is_404(api: Api) -> None:
    assert (await api.patch(f"{api.psono}/nope", {})).status == 404
    assert (await api.patch(f"{api.psono}/nope/status", {})).status == 404


async def test_a_patched_secret_with_bad_base64_is_422_and_quotes_the_object(api: Api) -> None:
    """What makes messages about Secrets dangerous (rule F8, R2)."""
    await api.new_secret("a", stringData={"other": "canary"})
    answer = await api.patch(f"{api.secrets}/a", {"data": {"k": "%"}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "illegal base64 data at input byte 0" in answer.message
    assert "Y2FuYXJ5" in answer.message


async def test_apply_creates_and_claims_only_what_it_sends(api: Api) -> None:
    answer = await api.patch(f"{api.psono}/a", psono("a"), APPLY, fieldManager="m1")
    assert answer.status == 201
    (entry,) = answer.body["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("m1", "Apply")
    assert entry["fieldsV1"]["f:spec"] == {
        "f:authentication": {"f:secretRef": {"f:name": {}}},
        "f:data": {
            'k:{"secretKey":"A"}': {
                ".": {},
                "f:remoteRef": {"f:field": {}, "f:secretId": {}},
                "f:secretKey": {},
            }
        },
        "f:target": {"f:name": {}},
    }


async def test_apply_needs_a_manager_and_force_needs_apply(api: Api) -> None:
    answer = await api.patch(f"{api.secrets}/a", secret("a"), APPLY)
    assert (answer.status, answer.causes[0]["field"]) == (422, "fieldManager")
    await api.new_secret("b")
    answer = await api.patch(f"{api.secrets}/b", {}, MERGE, force="true")
    assert (answer.status, answer.causes[0]["field"]) == (422, "force")


async def test_apply_twice_changes_nothing(api: Api) -> None:
    first = await api.patch(f"{api.psono}/a", psono("a"), APPLY, fieldManager="m1")
    second = await api.patch(f"{api.psono}/a", psono("a"), APPLY, fieldManager="m1")
    assert (second.status, second.version) == (200, first.version)


async def test_apply_of_a_field_of_another_manager_is_a_conflict_unless_forced(api: Api) -> None:
    await api.patch(
        f"{api.secrets}/a", secret("a", data={"k": "MQ==", "x": "MQ=="}), APPLY, fieldManager="m1"
    )
    wish = secret("a", data={"k": "Mg=="})
    refused = await api.patch(f"{api.secrets}/a", wish, APPLY, fieldManager="m2")
    assert (refused.status, refused.reason) == (409, "Conflict")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "m1": .data.k'
    assert refused.causes == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "m1"', "field": ".data.k"}
    ]
    forced = await api.patch(f"{api.secrets}/a", wish, APPLY, fieldManager="m2", force="true")
    assert forced.body["data"] == {"k": "Mg==", "x": "MQ=="}
    held = {e["manager"]: e["fieldsV1"] for e in forced.body["metadata"]["managedFields"]}
    assert held == {"m1": {"f:data": {"f:x": {}}}, "m2": {"f:data": {"f:k": {}}}}


async def test_apply_of_the_same_value_shares_the_field(api: Api) -> None:
    wish = secret("a", data={"k": "MQ=="})
    await api.patch(f"{api.secrets}/a", wish, APPLY, fieldManager="m1")
    shared = await api.patch(f"{api.secrets}/a", wish, APPLY, fieldManager="m2")
    assert shared.status == 200
    left = await api.patch(f"{api.secrets}/a", secret("a", data={}), APPLY, fieldManager="m1")
    assert left.body["data"] == {"k": "MQ=="}
    last = await api.patch(f"{api.secrets}/a", secret("a", data={}), APPLY, fieldManager="m2")
    assert not last.body.get("data")


async def test_an_ordinary_write_takes_fields_over_and_apply_then_conflicts(api: Api) -> None:
    await api.patch(f"{api.secrets}/a", secret("a", data={"k": "MQ=="}), APPLY, fieldManager="m1")
    await api.patch(f"{api.secrets}/a", {"data": {"k": "Mg=="}}, MERGE, fieldManager="m3")
    answer = await api.patch(f"{api.secrets}/a", secret("a", data={"k": "MQ=="}), APPLY, fieldManager="m1")
    assert answer.status == 409
    assert answer.message == 'Apply failed with 1 conflict: conflict with "m3" using v1: .data.k'


async def test_a_second_applier_adds_list_items_and_removes_only_its_own(api: Api) -> None:
    """R7: items of a list map belong to whoever applied them."""
    await api.patch(f"{api.psono}/a", psono("a"), APPLY, fieldManager="m1")

    def wish(key: str) -> dict[str, Any]:
        data = [{"secretKey": key, "remoteRef": {"secretId": "id", "field": "g"}}]
        return {**psono("a"), "spec": {"data": data}}

    for key in ("B", "C"):
        answer = await api.patch(f"{api.psono}/a", wish(key), APPLY, fieldManager="m2")
        assert answer.status == 200, answer.body
        assert [item["secretKey"] for item in answer.body["spec"]["data"]] == ["A", key]
    body = {**psono("a"), "spec": {"data": [{"secretKey": "A", "remoteRef": {"secretId": "other"}}]}}
    answer = await api.patch(f"{api.psono}/a", body, APPLY, fieldManager="m2")
    assert answer.status == 409
    assert answer.causes[0]["field"] == '.spec.data[secretKey="A"].remoteRef.secretId'


async def test_apply_of_a_uid_creates_nothing(api: Api) -> None:
    body = secret("a", metadata={"uid": "some"})
    assert (await api.patch(f"{api.secrets}/a", body, APPLY, fieldManager="m1")).status == 409


async def test_apply_with_managed_fields_or_without_a_kind_is_400(api: Api) -> None:
    body = secret("a", metadata={"managedFields": [{"manager": "x"}]})
    assert (await api.patch(f"{api.secrets}/a", body, APPLY, fieldManager="m1")).status == 400
    body = {"metadata": {"name": "a"}}
    assert (await api.patch(f"{api.secrets}/a", body, APPLY, fieldManager="m1")).status == 400


async def test_apply_of_the_status_is_its_own_claim(api: Api) -> None:
    await api.new_psono("a")
    body = {
        "apiVersion": "secrets.psono.com/v1alpha1",
        "kind": "PsonoSecret",
        "metadata": {"name": "a"},
        "status": {"observedGeneration": 1},
    }
    answer = await api.patch(f"{api.psono}/a/status", body, APPLY, fieldManager="m1")
    assert answer.body["status"] == {"observedGeneration": 1}
    entry = next(e for e in answer.body["metadata"]["managedFields"] if e["manager"] == "m1")
    assert entry["subresource"] == "status"
    body["metadata"] = {"name": "nope"}
    answer = await api.patch(f"{api.psono}/nope/status", body, APPLY, fieldManager="m1")
    assert answer.status == 404


async def test_apply_takes_yaml(api: Api) -> None:
    text = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: a, namespace: {api.namespace}}}\nstringData: {{k: v}}\n"
    answer = await api.call(
        "PATCH", f"{api.secrets}/a", text.encode(), content_type=APPLY, query={"fieldManager": "m"}
    )
    assert (answer.status, answer.body["data"]) == (201, {"k": "dg=="})
