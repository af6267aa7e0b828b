"""C9, D1, D2: what is cut off before an object is stored."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.runtime.transforms import LAST_APPLIED, metadata_allowlist, strip_noise

CANARY = "Y2FuYXJ5LXZhbHVl"


def secret() -> dict[str, object]:
    """As ``kubectl apply`` leaves it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "data": {"password": CANARY},
        "stringData": {"password": CANARY},
        "metadata": {
            "namespace": "team-a",
            "name": "b",
            "uid": "u",
            "resourceVersion": "7",
            "generation": 2,
            "creationTimestamp": "2026-12-01T00:00:00Z",
            "deletionTimestamp": "2026-12-02T00:00:00Z",
            "finalizers": ["example.com/f"],
            "labels": {"app": CANARY},
            "annotations": {
                LAST_APPLIED: json.dumps({"data": {"password": CANARY}}),
                "example.com/ours": "kept",
                "example.common/theirs": CANARY,
            },
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Thing",
                    "name": "t",
                    "uid": "u1",
                    "controller": True,
                    "odd": CANARY,
                }
            ],
            "managedFields": [{"manager": "x", "fieldsV1": {"f:data": {}}}],
        },
    }


def test_the_allowlist_keeps_identity_ownership_deletion_and_our_annotations() -> None:
    assert metadata_allowlist(["example.com/"])(secret()) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": "team-a",
            "name": "b",
            "uid": "u",
            "resourceVersion": "7",
            "generation": 2,
            "deletionTimestamp": "2026-12-02T00:00:00Z",
            "finalizers": ["example.com/f"],
            "annotations": {"example.com/ours": "kept"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Thing", "name": "t", "uid": "u1", "controller": True}
            ],
        },
    }


def test_no_byte_of_a_value_survives_the_allowlist() -> None:
    """D1 (the Accept header was ignored) and D2 (last-applied-configuration)."""
    assert CANARY.encode() not in pickle.dumps(metadata_allowlist(["example.com/"])(secret()))


def test_noise_is_stripped_and_the_rest_stays() -> None:
    """C9."""
    before = secret()
    untouched = copy.deepcopy(before)
    after = strip_noise(before)
    assert before == untouched, "transforms are pure"
    expected = copy.deepcopy(before)
    metadata = expected["metadata"]
    assert isinstance(metadata, dict)
    del metadata["managedFields"], metadata["annotations"][LAST_APPLIED]
    assert after == expected


def test_strings_that_repeat_are_shared() -> None:
    """Ten thousand objects hold one copy of their namespace and kind."""
    keep = metadata_allowlist(["example.com/"])
    first, second = (keep(json.loads(json.dumps(secret()))) for _ in range(2))
    assert first["metadata"]["namespace"] is second["metadata"]["namespace"]
    assert first["kind"] is second["kind"]
    references = [obj["metadata"]["ownerReferences"][0] for obj in (first, second)]
    assert references[0]["kind"] is references[1]["kind"]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
FIELDS = ("namespace", "name", "annotations", "ownerReferences", "managedFields", "labels")


@given(st.dictionaries(st.sampled_from(["apiVersion", "kind", "data"]), JSON_VALUES), st.data())
def test_odd_objects_are_no_reason_to_fall_over(obj: dict[str, object], data: st.DataObject) -> None:
    """N1: one odd object must not end the informer."""
    shape = st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES) | JSON_VALUES
    obj = {**obj, "metadata": data.draw(shape)}
    strip_noise(obj)
    slim = metadata_allowlist(["a"])(obj)
    assert set(slim) <= {"apiVersion", "kind", "metadata"}


@pytest.mark.parametrize("transform", [strip_noise, metadata_allowlist(["x/"])])
def test_an_object_without_metadata_passes(transform: object) -> None:
    assert callable(transform)
    assert transform({"kind": "Thing"})["kind"] == "Thing"
