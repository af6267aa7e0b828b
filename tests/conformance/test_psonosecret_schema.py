"""The CRD's table of cases, judged by the server; tests/api has the models judge the same table (Q11)."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.rawapi import Api, psono

pytestmark = pytest.mark.asyncio

TABLE = yaml.safe_load((Path(__file__).parents[1] / "data" / "crd_cases.yaml").read_text())


def merged(base: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(base) if isinstance(base, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def at(obj: Any, path: str) -> Any:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


async def test_every_case_of_the_table(api: Api) -> None:
    """One namespace for all of them; each case is a dry run, so none disturbs the next."""
    wrong: list[str] = []
    base = copy.deepcopy(TABLE["base"])
    base["metadata"]["namespace"] = api.namespace
    stored = merged(base, {"metadata": {"name": "stored"}})
    assert (await api.create(api.psono, stored)).status == 201
    for case in TABLE["cases"]:
        query = {"dryRun": "All"} | ({"fieldValidation": "Strict"} if case.get("strict") else {})
        if case.get("update"):
            answer = await api.patch(f"{api.psono}/stored", case["patch"], **query)
        else:
            answer = await api.create(api.psono, merged(base, case["patch"]), **query)
        if "reject" in case:
            if answer.status not in (400, 422) or case["reject"] not in answer.message:
                wrong.append(f"{case['name']}: {answer.status} {answer.message}")
            continue
        if answer.status not in (200, 201):
            wrong.append(f"{case['name']}: {answer.status} {answer.message}")
            continue
        for path, wanted in case.get("want", {}).items():
            if at(answer.body, path) != wanted:
                wrong.append(f"{case['name']}: {path} is {at(answer.body, path)!r}")
    assert not wrong, "\n".join(wrong)


MESSAGES = [
    (
        {"spec": {"refreshInterval": "1d"}},
        'spec.refreshInterval: Invalid value: "1d": spec.refreshInterval in body should match \'',
    ),
    (
        {"spec": {"refreshInterval": "29s"}},
        'spec.refreshInterval: Invalid value: "29s": refreshInterval must be a Go duration of at least 30s',
    ),
    (
        {"spec": {"target": {"name": "credentials"}}},
        "spec.target.name: Invalid value: spec.target.name must differ from"
        " spec.authentication.secretRef.name",
    ),
    (
        {"spec": {"data": [{"secretKey": "A", "remoteRef": {"secretId": "a"}}]}},
        "spec.data[0].remoteRef: Invalid value: exactly one of field and environmentVariable must be set",
    ),
    (
        {"spec": {"data": [{"secretKey": "..", "remoteRef": {"secretId": "a", "field": "f"}}]}},
        "spec.data[0].secretKey: Invalid value: \"..\": secretKey must not be '.' and must not start with",
    ),
    (
        {"spec": {"data": None}},
        "spec.data: Required value",
    ),
    (
        {"spec": {"target": {"type": 3}}},
        'spec.target.type: Invalid value: "integer": spec.target.type in body must be of type string: "integer"',
    ),
    (
        {"spec": {"target": {"creationPolicy": "Never"}}},
        'spec.target.creationPolicy: Unsupported value: "Never": supported values: "Owner", "Merge"',
    ),
    (
        {"spec": {"target": {"name": "a" * 254}}},
        "spec.target.name: Too long: may not be more than 253 bytes",
    ),
    (
        {"spec": {"authentication": {"secretRef": {"caBundleKey": ""}}}},
        'spec.authentication.secretRef.caBundleKey: Invalid value: "": '
        "spec.authentication.secretRef.caBundleKey in body should be at least 1 chars long",
    ),
]


@pytest.mark.parametrize(("patch", "text"), MESSAGES)
async def test_the_messages_are_the_servers_own(api: Api, patch: dict[str, Any], text: str) -> None:
    answer = await api.create(api.psono, merged(psono("a"), patch))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert text in answer.message


async def test_a_rule_about_two_fields_is_checked_when_either_changes(api: Api) -> None:
    await api.new_psono("a")
    body = {"spec": {"authentication": {"secretRef": {"name": "target"}}}}
    answer = await api.patch(f"{api.psono}/a", body)
    assert (answer.status, answer.causes[0]["field"]) == (422, "spec.target.name")


async def test_rules_are_not_checked_when_the_shape_is_wrong(api: Api) -> None:
    body = merged(psono("a"), {"spec": {"refreshInterval": "1s", "target": {"creationPolicy": "x"}}})
    answer = await api.create(api.psono, body)
    assert "some validation rules were not checked" in answer.message
    assert "at least 30s" not in answer.message


async def test_a_duplicate_key_is_named_with_its_index(api: Api) -> None:
    item = {"secretKey": "A", "remoteRef": {"secretId": "a", "field": "f"}}
    answer = await api.create(api.psono, merged(psono("a"), {"spec": {"data": [item, item]}}))
    assert 'spec.data[1]: Duplicate value: {"secretKey":"A"}' in answer.message


async def test_unknown_fields_are_pruned_at_every_depth(api: Api) -> None:
    body = psono("a", spec={"odd": 1})
    body["spec"]["target"]["odd"] = {"x": 1}
    body["spec"]["data"][0]["remoteRef"]["odd"] = []
    body["metadata"]["odd"] = 1
    answer = await api.create(api.psono, body)
    assert answer.status == 201
    assert "odd" not in str(answer.body)
    assert set(answer.warnings) == {
        f'299 - "unknown field \\"{path}\\""'
        for path in ("spec.odd", "spec.target.odd", "spec.data[0].remoteRef.odd", "metadata.odd")
    }


async def test_a_null_where_a_default_exists_becomes_the_default(api: Api) -> None:
    answer = await api.create(api.psono, psono("a", spec={"refreshInterval": None}))
    assert answer.body["spec"]["refreshInterval"] == "5m"


async def test_a_removed_field_is_defaulted_again_on_update(api: Api) -> None:
    await api.new_psono("a", spec={"refreshInterval": "1h"})
    answer = await api.patch(f"{api.psono}/a", {"spec": {"refreshInterval": None}})
    assert answer.body["spec"]["refreshInterval"] == "5m"
    assert answer.generation == 2
