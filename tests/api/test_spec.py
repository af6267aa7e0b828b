"""The models judge the same table of cases as the API server does (tests/conformance)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.api.spec import InvalidSpec, parse_spec
from tests.controlplane.cluster import ROOT

TABLE = yaml.safe_load((ROOT / "tests" / "data" / "crd_cases.yaml").read_text())
# Cases about unknown fields are the API server's alone: the models ignore what they do not know.
JUDGED = [case for case in TABLE["cases"] if not case.get("strict")]


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


def at(spec: Any, path: str) -> Any:
    for part in path.removeprefix("spec.").split("."):
        spec = spec.get(part) if isinstance(spec, dict) else None
    return spec


@pytest.mark.parametrize("case", JUDGED, ids=lambda case: case["name"])
def test_the_models_judge_as_the_api_server_does(case: dict[str, Any]) -> None:
    obj = merged(copy.deepcopy(TABLE["base"]), case["patch"])
    if "reject" in case:
        with pytest.raises(InvalidSpec):
            parse_spec(obj)
        return
    rendered = parse_spec(obj).model_dump(by_alias=True)
    for path, wanted in case.get("want", {}).items():
        if path.startswith("spec."):
            assert at(rendered, path) == wanted, path


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (
            {"spec": {"refreshInterval": "29s"}},
            "spec.refreshInterval must be a Go duration such as 30s, 5m or 1h, and at least 30s",
        ),
        (
            {"spec": {"target": {"name": "psono-operator-credentials"}}},
            "spec.target.name must differ from spec.authentication.secretRef.name",
        ),
        (
            {"spec": {"data": [{"secretKey": "A", "remoteRef": {"secretId": "a"}}]}},
            "spec.data[0].remoteRef must have exactly one of field and environmentVariable",
        ),
        ({"spec": {"target": None}}, "spec.target is required"),
        ({"spec": {"data": []}}, "spec.data must have at least 1 item"),
    ],
)
def test_a_message_names_the_field_and_the_rule(patch: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(merged(TABLE["base"], patch))
    assert str(caught.value) == message


def test_only_a_wrong_interval_is_told_apart() -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(merged(TABLE["base"], {"spec": {"refreshInterval": "1d"}}))
    assert caught.value.only_interval
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(merged(TABLE["base"], {"spec": {"refreshInterval": "1d", "target": {"name": "X"}}}))
    assert not caught.value.only_interval


def test_entries_to_read_are_distinct_and_in_order() -> None:
    def mapping(key: str, entry: str) -> dict[str, Any]:
        return {"secretKey": key, "remoteRef": {"secretId": entry, "field": "f"}}

    spec = parse_spec(
        merged(TABLE["base"], {"spec": {"data": [mapping("A", "2"), mapping("B", "1"), mapping("C", "2")]}})
    )
    assert spec.secret_ids == ("2", "1")


CANARY = "canary-4f1c"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.just(CANARY) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["refreshInterval", "authentication", "secretRef", "name", "target", "creationPolicy", "type", "data",
             "secretKey", "remoteRef", "secretId", "field", "environmentVariable", "apiKeyIdKey"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=15,
)  # fmt: skip


@given(json_values)
def test_any_spec_is_read_or_refused_without_quoting_it(spec: Any) -> None:
    """F8: people paste secrets into the wrong field."""
    try:
        parse_spec({"spec": spec})
    except InvalidSpec as error:
        assert CANARY not in str(error)
        assert CANARY not in repr(error.__context__)
