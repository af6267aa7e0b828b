"""Creating, naming, replacing: revisions, generations and the errors about them (rule Q1, Q5 to Q7)."""

from __future__ import annotations

import re

import pytest

from tests.conformance.rawapi import GROUP, JSON_PATCH, MERGE, STRATEGIC, Api, psono, secret

pytestmark = pytest.mark.asyncio


async def test_a_new_object_gets_identity_time_version_and_generation_1(api: Api) -> None:
    answer = await api.new_psono("a", metadata={"generation": 7, "deletionTimestamp": "2020-01-01T00:00:00Z"})
    meta = answer.body["metadata"]
    assert answer.generation == 1
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", meta["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert int(meta["resourceVersion"]) > 0
    assert "deletionTimestamp" not in meta
    assert meta["namespace"] == api.namespace


async def test_a_secret_has_no_generation(api: Api) -> None:
    assert "generation" not in (await api.new_secret("a")).body["metadata"]


async def test_every_write_of_any_kind_takes_the_next_revision(api: Api) -> None:
    first = await api.new_secret("a")
    second = await api.new_psono("a")
    third = await api.patch(f"{api.secrets}/a", {"stringData": {"k": "v"}})
    assert int(first.version) < int(second.version) < int(third.version)


async def test_an_existing_name_is_a_conflict_with_its_own_reason(api: Api) -> None:
    await api.new_psono("a")
    answer = await api.create(api.psono, psono("a"))
    assert answer.status == 409
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'psonosecrets.secrets.psono.com "a" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "a", "group": "secrets.psono.com", "kind": "psonosecrets"},
        "code": 409,
    }


async def test_a_missing_object_is_named_in_a_status(api: Api) -> None:
    answer = await api.get(f"{api.secrets}/nope")
    assert answer.status == 404
    assert answer.body["details"] == {"name": "nope", "kind": "secrets"}
    assert (answer.reason, answer.message) == ("NotFound", 'secrets "nope" not found')
    assert (await api.get(f"{api.psono}/nope")).message == 'psonosecrets.secrets.psono.com "nope" not found'


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "dot.", "a" * 254])
async def test_names_are_validated(api: Api, name: str) -> None:
    answer = await api.create(api.psono, psono(name))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes[0]["field"] == "metadata.name"
    assert answer.causes[0]["reason"] == "FieldValueInvalid"


async def test_a_name_or_generate_name_is_required(api: Api) -> None:
    answer = await api.create(api.secrets, {"metadata": {}})
    assert answer.status == 422
    assert "metadata.name: Required value: name or generateName is required" in answer.message


async def test_generate_name_appends_five_characters(api: Api) -> None:
    names = set()
    for _ in range(3):
        answer = await api.create(api.secrets, {"metadata": {"generateName": "gen-"}})
        assert answer.status == 201
        names.add(answer.body["metadata"]["name"])
    assert len(names) == 3
    assert all(re.fullmatch(r"gen-[a-z0-9]{5}", name) for name in names)


async def test_labels_are_validated(api: Api) -> None:
    answer = await api.create(api.secrets, secret("a", metadata={"labels": {"b ad": "x y"}}))
    assert answer.status == 422
    assert {cause["field"] for cause in answer.causes} == {"metadata.labels"}


async def test_only_one_owner_may_be_the_controller(api: Api) -> None:
    owners = [{"apiVersion": "v1", "kind": "X", "name": n, "uid": n, "controller": True} for n in ("a", "b")]
    answer = await api.create(api.secrets, secret("a", metadata={"ownerReferences": owners}))
    assert answer.status == 422
    assert "Only one reference can have Controller set to true" in answer.message


async def test_the_namespace_must_exist_and_match(api: Api) -> None:
    answer = await api.create("/api/v1/namespaces/there-is-none/secrets", secret("a"))
    assert (answer.status, answer.message) == (404, 'namespaces "there-is-none" not found')
    answer = await api.create(api.secrets, secret("a", metadata={"namespace": "other"}))
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_a_custom_resource_must_say_what_it_is(api: Api) -> None:
    body = psono("a")
    del body["kind"]
    assert (await api.create(api.psono, body)).status == 400
    assert (await api.create(api.psono, {**psono("a"), "kind": "Foo"})).status == 422
    assert (await api.create(api.psono, {**psono("a"), "apiVersion": "v1"})).status == 400


async def test_a_resource_version_on_create_is_refused(api: Api) -> None:
    answer = await api.create(api.secrets, secret("a", metadata={"resourceVersion": "5"}))
    assert answer.status == 500
    assert answer.message == "resourceVersion should not be set on objects to be created"


async def test_put_of_a_custom_resource_needs_the_version(api: Api) -> None:
    await api.new_psono("a")
    answer = await api.put(f"{api.psono}/a", psono("a"))
    assert answer.status == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in answer.message


async def test_put_of_a_secret_without_a_version_wins(api: Api) -> None:
    await api.new_secret("a", stringData={"k": "v", "gone": "x"})
    answer = await api.put(f"{api.secrets}/a", secret("a", stringData={"k": "w"}))
    assert answer.status == 200
    assert answer.body["data"] == {"k": "dw=="}


async def test_put_with_a_stale_version_is_a_conflict(api: Api) -> None:
    old = await api.new_psono("a")
    await api.patch(f"{api.psono}/a", {"spec": {"refreshInterval": "10m"}})
    answer = await api.put(f"{api.psono}/a", old.body)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on psonosecrets.secrets.psono.com "a": the object has been modified;'
        " please apply your changes to the latest version and try again"
    )


async def test_put_with_a_foreign_uid_is_a_conflict(api: Api) -> None:
    old = await api.new_psono("a")
    body = {**old.body, "metadata": {**old.body["metadata"], "uid": "another"}}
    assert (await api.put(f"{api.psono}/a", body)).status == 409
    assert (await api.put(f"{api.psono}/a/status", body)).status == 409


async def test_put_of_a_missing_object_is_404(api: Api) -> None:
    assert (await api.put(f"{api.psono}/a", psono("a"))).status == 404
    assert (await api.put(f"{api.secrets}/a", secret("a"))).status == 404


async def test_put_under_another_name_is_400(api: Api) -> None:
    await api.new_secret("a")
    answer = await api.put(f"{api.secrets}/a", secret("b"))
    assert (answer.status, answer.message) == (
        400,
        "the name of the object (b) does not match the name on the URL (a)",
    )


async def test_only_a_changed_spec_bumps_the_generation(api: Api) -> None:
    await api.new_psono("a")
    labelled = await api.patch(f"{api.psono}/a", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.generation == 1
    changed = await api.patch(f"{api.psono}/a", {"spec": {"refreshInterval": "10m"}})
    assert changed.generation == 2
    own = await api.patch(f"{api.psono}/a", {"metadata": {"generation": 40}})
    assert own.generation == 2


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (MERGE, {"metadata": {"labels": {"a": "b"}}}),
        (STRATEGIC, {"metadata": {"labels": {"a": "b"}}}),
        (JSON_PATCH, [{"op": "add", "path": "/metadata/labels/a", "value": "b"}]),
    ],
)
async def test_a_patch_that_changes_nothing_keeps_the_version(
    api: Api, content_type: str, body: object
) -> None:
    created = await api.new_secret("a", metadata={"labels": {"a": "b"}})
    answer = await api.patch(f"{api.secrets}/a", body, content_type)
    assert answer.status == 200
    assert answer.version == created.version


async def test_a_put_that_changes_nothing_keeps_the_version(api: Api) -> None:
    created = await api.new_psono("a")
    answer = await api.put(f"{api.psono}/a", created.body)
    assert (answer.status, answer.version) == (200, created.version)


async def test_dry_run_answers_as_if_and_stores_nothing(api: Api) -> None:
    answer = await api.create(api.psono, psono("a"), dryRun="All")
    assert answer.status == 201
    assert answer.body["spec"]["refreshInterval"] == "5m"
    assert (await api.get(f"{api.psono}/a")).status == 404
    created = await api.new_psono("a")
    answer = await api.patch(f"{api.psono}/a", {"spec": {"refreshInterval": "1h"}}, dryRun="All")
    assert answer.body["spec"]["refreshInterval"] == "1h"
    await api.delete(f"{api.psono}/a", dryRun="All")
    assert (await api.get(f"{api.psono}/a")).version == created.version
    assert (await api.create(api.psono, psono("b"), dryRun="Some")).status == 422


async def test_field_validation_strict_warn_and_ignore(api: Api) -> None:
    body = {**psono("a"), "extra": 1}
    strict = await api.create(api.psono, body, fieldValidation="Strict")
    assert strict.status == 400
    assert 'strict decoding error: unknown field "extra"' in strict.message
    warned = await api.create(api.psono, body, fieldValidation="Warn")
    assert (warned.status, warned.warnings) == (201, ['299 - "unknown field \\"extra\\""'])
    ignored = await api.create(api.psono, {**body, "metadata": {"name": "b"}}, fieldValidation="Ignore")
    assert (ignored.status, ignored.warnings) == (201, [])
    assert "extra" not in ignored.body
    by_default = await api.create(api.secrets, {**secret("s"), "extra": 1})
    assert by_default.warnings == ['299 - "unknown field \\"extra\\""']
    assert (await api.create(api.psono, psono("c"), fieldValidation="Bogus")).status == 422


async def test_a_body_that_is_no_json_is_400(api: Api) -> None:
    answer = await api.call("POST", api.psono, b"{bad")
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_an_unknown_content_type_is_415(api: Api) -> None:
    answer = await api.call("POST", api.psono, psono("a"), content_type="text/plain")
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")
    await api.new_psono("a")
    for content_type in ("application/json", STRATEGIC):
        answer = await api.patch(f"{api.psono}/a", {}, content_type)
        assert answer.status == 415
        assert "application/merge-patch+json" in answer.message


async def test_an_unknown_accept_is_406(api: Api) -> None:
    answer = await api.call("GET", api.secrets, accept="text/html")
    assert (answer.status, answer.reason) == (406, "NotAcceptable")


async def test_methods_that_are_not_there(api: Api) -> None:
    assert (await api.create("/api/v1/secrets", secret("a"))).status == 405
    assert (await api.create(f"{api.secrets}/a", secret("a"))).status == 405
    assert (await api.delete("/api/v1/namespaces")).status == 405
    assert (await api.delete(f"{GROUP}/psonosecrets")).status == 404


async def test_paths_that_are_not_there(api: Api) -> None:
    unknown = await api.get("/api/v1/nothings")
    assert (unknown.status, unknown.reason, unknown.body["details"]) == (404, "NotFound", {})
    for path in ("/nothing", "/apis/nothing.example.com/v1/x", f"{GROUP}/nothings"):
        answer = await api.get(path)
        assert (answer.status, answer.body.strip()) == (404, "404 page not found")
    assert (await api.get(f"{api.secrets}/a/status")).status == 404
