"""Which notification wakes whom (D3, D4, I4)."""

from __future__ import annotations

from typing import Any

import pytest

from psono_operator.api.names import FINALIZER, FORCE_SYNC_ANNOTATION, MANAGED_KEYS_ANNOTATION
from psono_operator.runtime.notifications import Added, Deleted, Notification, Updated
from psono_operator.runtime.resources import ObjectKey
from psono_operator.runtime.store import Store
from psono_operator.runtime.workqueue import Priority
from psono_operator.secretsync.indexes import PSONO_SECRET_INDEXES, claimants
from psono_operator.secretsync.triggers import (
    after_the_first_list,
    concerned_by_psono_secret,
    concerned_by_secret,
    priority_of,
    worth_a_look,
)
from tests.secretsync.objects import psono_secret, secret


def keys(*names: str) -> set[ObjectKey]:
    return {ObjectKey("shop", name) for name in names}


def cached(*objects: dict[str, Any]) -> Any:
    store = Store(PSONO_SECRET_INDEXES)
    store.replace(list(objects))
    return store


def numbered(name: str, number: int, **changes: Any) -> dict[str, Any]:
    return psono_secret(name, metadata={"uid": f"uid-{number}"}, **changes)


BEFORE = psono_secret()


@pytest.mark.parametrize(
    ("changes", "woken"),
    [
        ({"resourceVersion": "101"}, False),
        ({"labels": {"a": "b"}}, False),
        ({"annotations": {"note": "b"}}, False),
        ({"generation": 2}, True),
        ({"deletionTimestamp": "2026-12-01T12:00:00Z"}, True),
        ({"annotations": {FORCE_SYNC_ANNOTATION: "now"}}, True),
        ({"finalizers": []}, True),
        ({"finalizers": [FINALIZER, "example.com/other"]}, False),
        ({"finalizers": [], "deletionTimestamp": "2026-12-01T12:00:00Z", "generation": 2}, True),
    ],
)
def test_a_psono_secret_wakes_itself_on_what_a_user_changes(changes: dict[str, Any], woken: bool) -> None:
    """I4: our own status is none of it."""
    after = {**BEFORE, "metadata": {**BEFORE["metadata"], **changes}, "status": {"observedGeneration": 1}}
    assert worth_a_look(Updated(BEFORE, after)) is woken


def test_what_appears_or_goes_is_worth_a_look() -> None:
    assert worth_a_look(Added(BEFORE, initial=True))
    assert worth_a_look(Deleted(BEFORE, final_state_unknown=True))


def test_whoever_leaves_a_target_wakes_those_who_want_it() -> None:
    """The holder of a conflicting key is gone, or goes elsewhere."""
    mine, theirs = numbered("mine", 1, target="shared"), numbered("theirs", 2, target="shared")
    mapper = concerned_by_psono_secret(cached(mine, theirs))
    assert set(mapper(Deleted(theirs, final_state_unknown=False))) == keys("mine", "theirs")
    moved = {**theirs, "spec": {**theirs["spec"], "target": {"name": "elsewhere"}}}
    assert set(mapper(Updated(theirs, moved))) == keys("mine", "theirs")
    assert set(mapper(Updated(theirs, theirs))) == keys("theirs")
    assert set(mapper(Added(theirs, initial=False))) == keys("theirs")


def test_whoever_keeps_credentials_elsewhere_wakes_those_who_want_to_write_there() -> None:
    mine = numbered("mine", 1, target="credentials")
    theirs = numbered("theirs", 2, authentication={"secretRef": {"name": "credentials"}})
    mapper = concerned_by_psono_secret(cached(mine, theirs))
    moved = {**theirs, "spec": {**theirs["spec"], "authentication": {"secretRef": {"name": "other"}}}}
    assert set(mapper(Updated(theirs, moved))) == keys("mine", "theirs")


def controlled_by(uid: str) -> dict[str, Any]:
    reference = {"apiVersion": "secrets.psono.com/v1alpha1", "kind": "PsonoSecret", "uid": uid, "name": "x"}
    return {"ownerReferences": [{**reference, "controller": True}]}


@pytest.mark.parametrize(
    ("changed", "woken"),
    [
        (secret("psono-credentials"), keys("a", "b")),
        (secret("db-a"), keys("a")),
        (secret("left", **controlled_by("uid-2")), keys("b")),
        (
            secret("left", annotations={MANAGED_KEYS_ANNOTATION: '{"a":{"uid":"uid-1","keys":["K"]}}'}),
            keys("a"),
        ),
        (secret("left", annotations={MANAGED_KEYS_ANNOTATION: "nonsense"}), keys()),
        (secret("db-a", namespace="elsewhere"), keys()),
        (secret("unrelated"), keys()),
    ],
    ids=["credentials", "target", "owned leftover", "merged leftover", "corrupt", "elsewhere", "unrelated"],
)
@pytest.mark.parametrize("how", ["added", "updated", "deleted"])
def test_a_secret_wakes_those_who_use_it(changed: dict[str, Any], woken: set[ObjectKey], how: str) -> None:
    """D4: five routes."""
    mapper = concerned_by_secret(cached(numbered("a", 1, target="db-a"), numbered("b", 2, target="db-b")))
    notifications: dict[str, Notification] = {
        "added": Added(changed, initial=False),
        "updated": Updated(changed, changed),
        "deleted": Deleted(changed, final_state_unknown=True),
    }
    assert set(mapper(notifications[how])) == woken


def test_whose_mark_was_taken_off_is_woken_too() -> None:
    """The state before counts: somebody removed our owner reference."""
    mapper = concerned_by_secret(cached(numbered("a", 1, target="db-a")))
    before = secret("left", **controlled_by("uid-1"))
    assert set(mapper(Updated(before, secret("left")))) == keys("a")


def test_an_owner_of_another_kind_is_nobody_of_ours() -> None:
    """Group, kind and uid count, not the name."""
    foreign = {"apiVersion": "apps/v1", "kind": "PsonoSecret", "uid": "uid-1", "controller": True}
    assert list(claimants(secret(ownerReferences=[foreign]))) == []


def test_the_first_list_of_secrets_concerns_nobody_and_that_of_psono_secrets_is_no_hurry() -> None:
    """E5, C7."""
    assert not after_the_first_list(Added(secret(), initial=True))
    assert after_the_first_list(Added(secret(), initial=False))
    assert after_the_first_list(Deleted(secret(), final_state_unknown=True))
    assert priority_of(Added(BEFORE, initial=True)) is Priority.LOW
    assert priority_of(Added(BEFORE, initial=False)) is Priority.HIGH
    assert priority_of(Updated(BEFORE, BEFORE)) is Priority.HIGH
