"""Paths, metadata accessors, and the order of versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.runtime.resources import (
    ObjectKey,
    Resource,
    annotations_of,
    compare_versions,
    controller_of,
    generation_of,
    is_deleting,
    key_of,
    metadata_of,
    uid_of,
    version_of,
)

SECRETS = Resource("", "v1", "secrets", "Secret")
THINGS = Resource("example.com", "v1", "things", "Thing")
CLUSTER_THINGS = Resource("example.com", "v1", "clusterthings", "ClusterThing", namespaced=False)


@pytest.mark.parametrize(
    ("resource", "namespace", "path"),
    [
        (SECRETS, None, "/api/v1/secrets"),
        (SECRETS, "a", "/api/v1/namespaces/a/secrets"),
        (THINGS, None, "/apis/example.com/v1/things"),
        (THINGS, "a", "/apis/example.com/v1/namespaces/a/things"),
        (CLUSTER_THINGS, "a", "/apis/example.com/v1/clusterthings"),
    ],
)
def test_the_path_of_a_collection(resource: Resource, namespace: str | None, path: str) -> None:
    assert resource.collection_path(namespace) == path


def test_the_path_of_an_object_and_of_its_subresource() -> None:
    key = ObjectKey("a", "b")
    assert SECRETS.object_path(key) == "/api/v1/namespaces/a/secrets/b"
    assert THINGS.object_path(key, "status") == "/apis/example.com/v1/namespaces/a/things/b/status"
    assert CLUSTER_THINGS.object_path(ObjectKey("", "b")) == "/apis/example.com/v1/clusterthings/b"


def test_a_name_cannot_leave_its_path() -> None:
    assert SECRETS.object_path(ObjectKey("a", "../b?x")) == "/api/v1/namespaces/a/secrets/..%2Fb%3Fx"


def test_api_version_and_key_as_text() -> None:
    assert (SECRETS.api_version, THINGS.api_version) == ("v1", "example.com/v1")
    assert (str(ObjectKey("a", "b")), str(ObjectKey("", "b"))) == ("a/b", "b")
    assert ObjectKey("a", "z") < ObjectKey("b", "a")


def test_the_fields_of_an_objects_metadata() -> None:
    reference = {"kind": "Thing", "uid": "u0", "controller": True}
    obj = {
        "metadata": {
            "namespace": "a",
            "name": "b",
            "uid": "u",
            "resourceVersion": "7",
            "generation": 3,
            "deletionTimestamp": "2026-12-01T00:00:00Z",
            "annotations": {"x": "y"},
            "ownerReferences": [{"uid": "other"}, reference],
        }
    }
    assert (key_of(obj), uid_of(obj), version_of(obj)) == (ObjectKey("a", "b"), "u", "7")
    assert (generation_of(obj), is_deleting(obj)) == (3, True)
    assert (annotations_of(obj), controller_of(obj)) == ({"x": "y"}, reference)


@pytest.mark.parametrize(
    "obj", [{}, {"metadata": None}, {"metadata": []}, {"metadata": {"annotations": None}}]
)
def test_an_object_without_metadata_answers_with_nothing(obj: dict[str, object]) -> None:
    assert not metadata_of(obj).get("name")
    assert (key_of(obj), uid_of(obj), version_of(obj)) == (ObjectKey("", ""), "", "")
    assert (generation_of(obj), is_deleting(obj), controller_of(obj)) == (0, False, None)
    assert annotations_of(obj) == {}


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("9", "10", -1),
        ("10", "9", 1),
        ("10", "10", 0),
        ("0x", "5", None),
        ("5", "0x", None),
        ("07", "8", None),
        ("", "", None),
        ("", "1", None),
        ("١", "2", None),
        ("same-opaque", "same-opaque", 0),
    ],
)
def test_versions_are_ordered_only_when_both_are_plain_numbers(
    left: str, right: str, expected: int | None
) -> None:
    """A4."""
    assert compare_versions(left, right) == expected


@given(st.integers(1, 10**30), st.integers(1, 10**30))
def test_plain_numbers_are_ordered_as_numbers(left: int, right: int) -> None:
    """A4."""
    assert compare_versions(str(left), str(right)) == (left > right) - (left < right)
