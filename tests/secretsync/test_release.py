"""How a Secret is let go of: our marks go, everything else stays, and nothing newer is hit (G5, H4)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.api.names import MANAGED_KEYS_ANNOTATION
from psono_operator.runtime.resources import ObjectKey
from psono_operator.secretsync.cleanup import last_wishes
from psono_operator.secretsync.release import Delete, Nothing, Owned, ReleasePlan, Unmark, plan_release
from tests.secretsync.objects import psono_secret, secret
from tests.secretsync.targets import CLAIMANT, DELETED, DEPLOYMENT, ONLOOKER, OURS, RIVAL, managed, merged

ME, RIVAL_ID = ("db", "uid-1"), ("rival", "uid-9")


def metadata_only(**metadata: Any) -> dict[str, Any]:
    """As the API server sends it when only metadata is asked for."""
    full = secret(version="77", **metadata)
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": full["metadata"]}


def plan(live: Any, owned: Owned = Owned.DELETE) -> ReleasePlan:
    before = copy.deepcopy(live)
    result = plan_release(CLAIMANT, live, owned)
    assert live == before, "the live object is only read (C5)"
    return result


def unmarked(**metadata: Any) -> Unmark:
    return Unmark({"metadata": {**metadata, "resourceVersion": "77"}})


DELETE = Delete("uid-of-db", "77")
BOTH = managed({ME: ["A"], RIVAL_ID: ["B"]})
ONLY_RIVAL = managed({RIVAL_ID: ["B"]})
NO_LIST = {MANAGED_KEYS_ANNOTATION: None}


@pytest.mark.parametrize(
    ("live", "renamed", "kept", "left"),
    [
        (None, Nothing(), Nothing(), Nothing()),
        (metadata_only(), Nothing(), Nothing(), Nothing()),
        (metadata_only(ownerReferences=[DEPLOYMENT]), Nothing(), Nothing(), Nothing()),
        (metadata_only(ownerReferences=[RIVAL], annotations=ONLY_RIVAL), Nothing(), Nothing(), Nothing()),
        (metadata_only(ownerReferences=[OURS]), DELETE, unmarked(ownerReferences=[]), Nothing()),
        (
            metadata_only(ownerReferences=[ONLOOKER, OURS]),
            DELETE,
            unmarked(ownerReferences=[ONLOOKER]),
            Nothing(),
        ),
        (
            metadata_only(annotations=managed({ME: ["A"]})),
            *[unmarked(annotations=NO_LIST)] * 3,
        ),
        (metadata_only(annotations=BOTH), *[unmarked(annotations=ONLY_RIVAL)] * 3),
        (
            metadata_only(ownerReferences=[OURS], annotations=BOTH),
            unmarked(annotations=ONLY_RIVAL, ownerReferences=[]),
            unmarked(annotations=ONLY_RIVAL, ownerReferences=[]),
            unmarked(annotations=ONLY_RIVAL),
        ),
        (
            metadata_only(ownerReferences=[OURS], deletionTimestamp=DELETED),
            Nothing(),
            unmarked(ownerReferences=[]),
            Nothing(),
        ),
        (
            metadata_only(ownerReferences=[OURS], annotations={MANAGED_KEYS_ANNOTATION: "nonsense"}),
            DELETE,
            unmarked(ownerReferences=[]),
            Nothing(),
        ),
        (metadata_only(annotations={MANAGED_KEYS_ANNOTATION: "nonsense"}), *[Nothing()] * 3),
        (metadata_only(annotations=managed({("db", "uid-0"): ["A"]})), *[Nothing()] * 3),
        (metadata_only(ownerReferences=[{**OURS, "controller": False}]), *[Nothing()] * 3),
    ],
    ids=[
        "gone", "nobody's", "another controller's", "another PsonoSecret's", "ours", "ours, and others own it",
        "merged", "merged with others", "ours, and others manage keys in it", "on its way out already",
        "ours, corrupt list", "corrupt list", "our predecessor's share (C3)", "owned, not controlled",
    ],
)  # fmt: skip
def test_the_table(live: Any, renamed: ReleasePlan, kept: ReleasePlan, left: ReleasePlan) -> None:
    """After a rename, when its values are to stay, and when the garbage collector decides (H4)."""
    assert plan(live, Owned.DELETE) == renamed
    assert plan(live, Owned.KEEP) == kept
    assert plan(live, Owned.LEAVE) == left


people = st.sampled_from([ME, RIVAL_ID, ("other", "uid-8")])
splits = st.dictionaries(people, st.sets(st.sampled_from("ABC")), max_size=3)


@given(splits, st.sampled_from([[], [OURS], [ONLOOKER], [OURS, ONLOOKER]]), st.sampled_from(Owned))
def test_a_release_is_over_after_one_request_and_takes_nothing_of_others(
    split: dict[tuple[str, str], set[str]], owners: list[Any], owned: Owned
) -> None:
    """Q3, G3: other shares, references and metadata are as they were; asked again, nothing is left to do."""
    notes = {"note": "n", **(managed(split) if split else {})}
    live = metadata_only(annotations=notes, ownerReferences=owners, labels={"l": "1"}, finalizers=["f/x"])
    result = plan(live, owned)
    if isinstance(result, Delete):
        assert set(split) <= {ME}, "what others manage keys in is not deleted"
        return
    stored = merged(live, result.body) if isinstance(result, Unmark) else live
    assert plan(stored, owned) == Nothing()
    rest = {who: keys for who, keys in split.items() if who != ME}
    assert stored["metadata"]["annotations"] == {"note": "n", **(managed(rest) if rest else {})}
    assert [each for each in stored["metadata"]["ownerReferences"] if each != OURS] == [
        each for each in owners if each != OURS
    ]
    assert (stored["metadata"]["labels"], stored["metadata"]["finalizers"]) == ({"l": "1"}, ["f/x"])


NEW, OLD = ObjectKey("shop", "new"), ObjectKey("shop", "old")


OWNED_OLD = {"target": {"name": "old", "creationPolicy": "Owner"}}
OWNED_NEW = {"target": {"name": "new", "creationPolicy": "Owner"}}
MERGED_OLD = {"target": {"name": "old", "creationPolicy": "Merge"}}
MERGED_NEW = {"target": {"name": "new", "creationPolicy": "Merge"}}


@pytest.mark.parametrize(
    ("policy", "status", "marked", "wishes"),
    [
        ("Owner", {}, [], {}),
        ("Owner", OWNED_NEW, [NEW], {NEW: Owned.LEAVE}),
        ("Owner", OWNED_NEW, [NEW, OLD], {NEW: Owned.LEAVE, OLD: Owned.LEAVE}),
        ("Owner", OWNED_OLD, [OLD], {OLD: Owned.LEAVE}),
        ("Merge", {}, [], {NEW: Owned.KEEP}),
        ("Merge", MERGED_NEW, [NEW], {NEW: Owned.KEEP}),
        ("Merge", MERGED_NEW, [NEW, OLD], {NEW: Owned.KEEP, OLD: Owned.LEAVE}),
        ("Merge", MERGED_NEW, [OLD], {NEW: Owned.KEEP, OLD: Owned.LEAVE}),
        ("Merge", OWNED_NEW, [NEW], {NEW: Owned.KEEP}),
        ("Merge", OWNED_NEW, [NEW, OLD], {NEW: Owned.KEEP, OLD: Owned.KEEP}),
        ("Merge", OWNED_OLD, [OLD], {NEW: Owned.KEEP, OLD: Owned.KEEP}),
        ("Merge", MERGED_OLD, [OLD], {NEW: Owned.KEEP, OLD: Owned.KEEP}),
        ("Merge", {}, [OLD], {NEW: Owned.KEEP, OLD: Owned.KEEP}),
    ],
)
def test_what_a_deleted_psono_secret_leaves(
    policy: str, status: dict[str, Any], marked: list[ObjectKey], wishes: dict[ObjectKey, Owned]
) -> None:
    """Q4, Q14: Merge keeps values, also those of the Secret it was to be switched away from."""
    obj = psono_secret(target="new", status=status)
    obj["spec"]["target"]["creationPolicy"] = policy
    assert last_wishes(obj, marked) == wishes


@pytest.mark.parametrize("spec", [None, [], {}, {"target": None}, {"target": "db"}, {"target": {"name": 7}}])
def test_an_unreadable_spec_is_no_reason_to_stay(spec: Any) -> None:
    """H3: the object may be older than the rules."""
    obj = psono_secret()
    obj["spec"] = spec
    assert last_wishes(obj, [OLD]) == {OLD: Owned.LEAVE}
