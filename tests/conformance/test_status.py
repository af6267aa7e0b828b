"""The status subresource (rule Q6, Q11, rule I1)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.rawapi import Api, psono

pytestmark = pytest.mark.asyncio

FULL_STATUS: dict[str, Any] = {
    "observedGeneration": 3,
    "lastSyncTime": "2026-11-30T10:00:00Z",
    "target": {"name": "target", "creationPolicy": "Owner", "resourceVersion": "123"},
    "entries": [
        {"secretId": "25070c66-8950-4264-9b39-11e6d83312e3", "writeDate": "2026-11-30T09:00:00.123456Z"},
        {"secretId": "57c616ac-7c46-4a52-8936-670a607f2755"},
    ],
    "lastHandledForceSync": "now",
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "observedGeneration": 3,
            "lastTransitionTime": "2026-11-30T10:00:00Z",
            "reason": "SecretSynchronized",
            "message": "Secret target holds 1 key",
        }
    ],
}


async def test_a_full_status_comes_back_as_it_was_written(api: Api) -> None:
    await api.new_psono("a")
    answer = await api.patch(f"{api.psono}/a/status", {"status": FULL_STATUS}, fieldValidation="Strict")
    assert (answer.status, answer.warnings) == (200, [])
    assert answer.body["status"] == FULL_STATUS
    assert (await api.get(f"{api.psono}/a")).body["status"] == FULL_STATUS
    assert (await api.get(f"{api.psono}/a/status")).body["status"] == FULL_STATUS


async def test_unknown_status_fields_are_pruned_with_a_warning(api: Api) -> None:
    await api.new_psono("a")
    body = {"status": {"observedGeneration": 1, "bogus": 1, "target": {"name": "t", "odd": True}}}
    answer = await api.patch(f"{api.psono}/a/status", body)
    assert answer.status == 200
    assert answer.body["status"] == {"observedGeneration": 1, "target": {"name": "t"}}
    assert set(answer.warnings) == {
        '299 - "unknown field \\"status.bogus\\""',
        '299 - "unknown field \\"status.target.odd\\""',
    }


async def test_a_status_write_bumps_the_version_and_not_the_generation(api: Api) -> None:
    created = await api.new_psono("a")
    answer = await api.patch(f"{api.psono}/a/status", {"status": {"observedGeneration": 1}})
    assert answer.generation == 1
    assert int(answer.version) > int(created.version)


async def test_an_equal_status_is_no_write(api: Api) -> None:
    await api.new_psono("a")
    first = await api.patch(f"{api.psono}/a/status", {"status": FULL_STATUS})
    again = await api.patch(f"{api.psono}/a/status", {"status": FULL_STATUS})
    assert again.version == first.version


async def test_the_status_endpoint_changes_nothing_else(api: Api) -> None:
    created = await api.new_psono("a", metadata={"labels": {"keep": "me"}})
    body = {
        "spec": {"refreshInterval": "10m"},
        "metadata": {
            "labels": {"a": "b"},
            "annotations": {"c": "d"},
            "finalizers": ["example.com/f"],
        },
        "status": {"observedGeneration": 5},
    }
    answer = await api.patch(f"{api.psono}/a/status", body)
    assert answer.status == 200
    assert answer.body["status"] == {"observedGeneration": 5}
    assert answer.body["spec"] == created.body["spec"]
    assert answer.body["metadata"]["labels"] == {"keep": "me"}
    assert not {"annotations", "finalizers"} & answer.body["metadata"].keys()


async def test_the_main_endpoint_ignores_the_status(api: Api) -> None:
    created = await api.new_psono("a", status={"observedGeneration": 9})
    assert "status" not in created.body
    await api.patch(f"{api.psono}/a/status", {"status": {"observedGeneration": 1}})
    answer = await api.patch(
        f"{api.psono}/a", {"status": {"observedGeneration": 2}, "spec": {"refreshInterval": "1h"}}
    )
    assert answer.body["status"] == {"observedGeneration": 1}
    live = (await api.get(f"{api.psono}/a")).body
    live["status"] = {"observedGeneration": 3}
    assert (await api.put(f"{api.psono}/a", live)).body["status"] == {"observedGeneration": 1}


async def test_a_null_status_removes_it(api: Api) -> None:
    await api.new_psono("a")
    await api.patch(f"{api.psono}/a/status", {"status": FULL_STATUS})
    answer = await api.patch(f"{api.psono}/a/status", {"status": None})
    assert not answer.body.get("status")


async def test_a_bad_status_is_422_with_every_cause(api: Api) -> None:
    await api.new_psono("a")
    body = {
        "status": {
            "observedGeneration": -1,
            "lastSyncTime": "yesterday",
            "conditions": [{"type": "Ready", "status": "Maybe"}],
        }
    }
    answer = await api.patch(f"{api.psono}/a/status", body)
    assert (answer.status, answer.reason) == (422, "Invalid")
    causes = {cause["field"]: cause["reason"] for cause in answer.causes}
    assert causes["status.observedGeneration"] == "FieldValueInvalid"
    assert causes["status.lastSyncTime"] == "FieldValueTypeInvalid"
    assert causes["status.conditions[0].status"] == "FieldValueNotSupported"
    assert causes["status.conditions[0].lastTransitionTime"] == "FieldValueRequired"
    assert 'Unsupported value: "Maybe": supported values: "True", "False", "Unknown"' in answer.message


async def test_two_conditions_of_one_type_are_refused(api: Api) -> None:
    await api.new_psono("a")
    condition = FULL_STATUS["conditions"][0]
    answer = await api.patch(f"{api.psono}/a/status", {"status": {"conditions": [condition, condition]}})
    assert answer.status == 422
    assert 'status.conditions[1]: Duplicate value: {"type":"Ready"}' in answer.message


async def test_put_of_the_status_needs_the_version(api: Api) -> None:
    created = await api.new_psono("a")
    assert (await api.put(f"{api.psono}/a/status", psono("a"))).status == 422
    answer = await api.put(f"{api.psono}/a/status", {**created.body, "status": {"observedGeneration": 1}})
    assert (answer.status, answer.body["status"]) == (200, {"observedGeneration": 1})
    assert (await api.put(f"{api.psono}/a/status", created.body)).status == 409


async def test_the_status_can_be_written_while_deleting(api: Api) -> None:
    await api.new_psono("a", metadata={"finalizers": ["example.com/f"]})
    await api.delete(f"{api.psono}/a")
    answer = await api.patch(f"{api.psono}/a/status", {"status": {"observedGeneration": 2}})
    assert (answer.status, answer.body["status"]) == (200, {"observedGeneration": 2})
    await api.patch(f"{api.psono}/a", {"metadata": {"finalizers": None}})
