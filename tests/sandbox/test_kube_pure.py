"""The sandbox's pure parts: patches, field sets, selectors, columns, durations, protobuf."""

from __future__ import annotations

import base64
import contextlib
import random
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.sandbox.kube import KubeSandbox, fieldsets
from psono_operator.sandbox.kube.columns import human_duration, lookup
from psono_operator.sandbox.kube.crds import resource_types
from psono_operator.sandbox.kube.deletion import DeleteOptions
from psono_operator.sandbox.kube.patch import APPLY, MERGE, STRATEGIC, json_patch, merge
from psono_operator.sandbox.kube.patch import JSON as JSON_PATCH
from psono_operator.sandbox.kube.protobuf import decode
from psono_operator.sandbox.kube.rules import RuleError, go_duration
from psono_operator.sandbox.kube.selectors import label_selector
from psono_operator.sandbox.kube.status import ApiError
from psono_operator.sandbox.kube.storage import CompactedError, Key, Storage
from psono_operator.sandbox.kube.writing import WriteOptions
from tests.controlplane_fixture import CRD_FILE

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab/~", max_size=3)
NAMES = st.text("ab/~", min_size=1, max_size=2)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, JSON, max_size=4)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return value


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_is_idempotent_and_leaves_its_input_alone(target: Any, patch: Any) -> None:
    before = repr(target)
    once = merge(target, patch)
    assert merge(once, patch) == once
    assert repr(target) == before


@given(OBJECTS)
def test_a_merge_patch_onto_nothing_is_the_patch_without_nulls(patch: Any) -> None:
    assert merge({}, patch) == without_nulls(patch)


@given(OBJECTS, NAMES, JSON)
def test_add_then_test_then_remove_of_a_json_patch(target: Any, name: str, value: Any) -> None:
    path = "/" + name.replace("~", "~0").replace("/", "~1")
    added = json_patch(target, [{"op": "add", "path": path, "value": value}])
    assert added == {**target, name: value}
    operations = [{"op": "test", "path": path, "value": value}, {"op": "remove", "path": path}]
    assert json_patch(added, operations) == {k: v for k, v in target.items() if k != name}


def test_true_is_not_one_in_a_json_patch_test() -> None:
    with pytest.raises(ApiError) as caught:
        json_patch({"a": True}, [{"op": "test", "path": "/a", "value": 1}])
    assert caught.value.code == 422


@given(st.frozensets(st.lists(st.sampled_from(["f:a", "f:b", "k:{}"]), min_size=1, max_size=3).map(tuple)))
def test_field_sets_survive_their_encoding(fields: fieldsets.Fields) -> None:
    assert fieldsets.decode(fieldsets.encode(fields)) == fields


@pytest.mark.parametrize(
    ("text", "selected"),
    [("", "abc"), ("app=x", "a"), ("app in (x,y),tier", "b"), ("app notin (x)", "bc"), ("!app", "c")],
)
def test_label_selectors_select(text: str, selected: str) -> None:
    objects = {"a": {"app": "x"}, "b": {"app": "y", "tier": "1"}, "c": {}}
    selector = label_selector(text)
    found = [
        name
        for name, labels in objects.items()
        if selector is None or selector({"metadata": {"labels": labels}})
    ]
    assert "".join(found) == selected


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.name", ["n"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[0].type", ["Other"]),
        (".status.conditions[*].type", ["Other", "Ready"]),
        (".status.nothing.at.all", []),
        (".metadata.annotations.example\\.com/a", ["v"]),
    ],
)
def test_the_jsonpath_of_printer_columns(path: str, found: list[str]) -> None:
    conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
    obj = {
        "metadata": {"annotations": {"example.com/a": "v"}},
        "spec": {"name": "n"},
        "status": {"conditions": conditions},
    }
    assert lookup(obj, path) == found


def test_an_unknown_jsonpath_is_refused() -> None:
    with pytest.raises(ValueError, match="unsupported JSONPath"):
        lookup({}, ".a..b")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 300, "3h5m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (50 * 3600, "2d2h"),
        (9 * 86400, "9d"),
        (800 * 86400, "2y70d"),
        (-1, "0s"),
        (-60, "<invalid>"),
    ],
)
def test_ages_are_written_as_kubectl_shows_them(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("30s", 30 * 10**9),
        ("1h30m", 5400 * 10**9),
        ("0.5m", 30 * 10**9),
        (".5h", 1800 * 10**9),
        ("-1s", -(10**9)),
    ],
)
def test_go_durations(text: str, nanoseconds: int) -> None:
    assert go_duration(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "+", "1d", "5", "9999999999h", "s", "1m x"])
def test_text_that_is_no_go_duration(text: str) -> None:
    with pytest.raises(RuleError):
        go_duration(text)


def test_a_protobuf_secret_is_read() -> None:
    """A body as kubectl 1.36 sends it."""
    metadata = b"\x0a\x01s"
    data = b"\x0a\x01k\x12\x01v"
    secret = b"\x0a" + bytes([len(metadata)]) + metadata + b"\x12" + bytes([len(data)]) + data + b"\x28\x01"
    kind = b"\x0a\x02v1\x12\x06Secret"
    raw = b"k8s\x00\x0a" + bytes([len(kind)]) + kind + b"\x12" + bytes([len(secret)]) + secret
    assert decode(raw) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "data": {"k": base64.b64encode(b"v").decode()},
        "immutable": True,
    }
    for broken in (b"", b"k8s\x00", raw[:-5], raw.replace(b"Secret", b"Sacred")):
        with pytest.raises((ValueError, KeyError)):
            decode(broken)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=20), st.integers(0, 20))
def test_old_states_are_rebuilt_from_history(steps: list[tuple[str, bool]], pick: int) -> None:
    """A page continued later shows what was there at its revision (Q2)."""
    storage = Storage()
    states: dict[int, dict[Key, Any]] = {storage.revision: {}}
    for name, keep in steps:
        key = Key("", name)
        if keep:
            storage.put("t", key, {"metadata": {"name": name}, "n": storage.revision})
        elif storage.get("t", key) is not None:
            storage.remove("t", key)
        states[storage.revision] = dict(storage.objects("t"))
    revision = sorted(states)[pick % len(states)]
    assert storage.at("t", revision) == states[revision]
    storage.compact(revision)
    assert storage.at("t", revision) == states[revision]
    with pytest.raises(CompactedError):
        storage.at("t", revision - 1)


class FixedClock:
    """A clock that stands still and needs no loop."""

    def monotonic(self) -> float:
        return 0.0

    def now(self) -> datetime:
        return datetime(2026, 12, 1, tzinfo=UTC)

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


PATCH_KINDS = (MERGE, STRATEGIC, JSON_PATCH)
CUSTOM = resource_types(yaml.safe_load(CRD_FILE.read_text()))[0]
GOOD_SPEC = {
    "authentication": {"secretRef": {"name": "credentials"}},
    "target": {"name": "target"},
    "data": [{"secretKey": "A", "remoteRef": {"secretId": "id", "field": "f"}}],
}
PLACE = {"namespace": "default", "kind": "Secret", "name": "a"}
EXTRA: dict[str, dict[str, Any]] = {
    "events": {
        "eventTime": "2026-12-01T12:00:00.000000Z",
        "action": "a",
        "reason": "r",
        "type": "Normal",
        "reportingController": "c",
        "reportingInstance": "i",
        "regarding": PLACE,
        "involvedObject": PLACE,
    }
}
FIELDS = st.sampled_from(
    [
        "apiVersion",
        "kind",
        "metadata",
        "spec",
        "status",
        "data",
        "stringData",
        "type",
        "immutable",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "name",
        "uid",
        "target",
        "authentication",
        "secretRef",
        "secretKey",
        "remoteRef",
        "series",
        "count",
        "regarding",
        "eventTime",
        "conditions",
        "resourceVersion",
        "managedFields",
        "$patch",
    ]
)
BODIES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=12,
)
KINDS = (
    ("", "v1", "secrets"),
    ("", "v1", "configmaps"),
    ("", "v1", "events"),
    ("events.k8s.io", "v1", "events"),
    ("coordination.k8s.io", "v1", "leases"),
    ("secrets.psono.com", "v1alpha1", "psonosecrets"),
    ("apps", "v1", "deployments"),
)


@given(st.sampled_from(KINDS), st.dictionaries(FIELDS, BODIES, max_size=6), st.sampled_from(PATCH_KINDS))
def test_no_body_whatever_breaks_the_server(kind: tuple[str, str, str], body: Any, how: str) -> None:
    """Bad input is an ApiError, never a crash."""
    kube = KubeSandbox(FixedClock(), random.Random(1))
    kube.create_namespace("default")
    resource = kube.registry.find(*kind) or CUSTOM
    key, options = Key("default", "a"), WriteOptions("m")
    seed = {"metadata": {"name": "a"}, "apiVersion": resource.api_version, "kind": resource.kind}
    good = {"spec": GOOD_SPEC} if resource is CUSTOM else EXTRA.get(resource.plural, {})
    kube.writer.create(resource, "default", seed | good, options)
    for attempt in (
        lambda: kube.writer.create(resource, "default", seed | body, options),
        lambda: kube.writer.replace(resource, key, seed | body, options),
        lambda: kube.writer.patch(resource, key, how, body, options=options),
        lambda: kube.writer.patch(resource, key, APPLY, seed | body, options=options),
        lambda: kube.writer.delete(resource, key, DeleteOptions.read(body, {})),
    ):
        with contextlib.suppress(ApiError):
            attempt()
