"""The ownership gate and the one request, as a table (G1, G2, G4)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.runtime.resources import ObjectKey
from psono_operator.secretsync.target import (
    Create,
    Leave,
    Owner,
    Refuse,
    Replace,
    TargetPlan,
    Wanted,
    decoded,
    plan_target,
)
from tests.secretsync.objects import secret

OWNER = Owner("db", "uid-1")
OURS = OWNER.reference()
THEIRS = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-2", "controller": True}
ONLOOKER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "note", "uid": "uid-3"}


def wanted(data: dict[str, bytes] | None = None, type: str = "Opaque") -> Wanted:
    return Wanted(ObjectKey("shop", "db"), type, OWNER, data if data is not None else {"A": b"1"})


def plan(live: Any, data: dict[str, bytes] | None = None, **options: Any) -> TargetPlan:
    settings = {"known": False, "holds_credentials": False, **options}
    before = copy.deepcopy(live)
    result = plan_target(wanted(data), live, **settings)
    assert live == before, "the live object is only read (C5)"
    return result


def test_an_absent_target_is_created_with_everything_we_put_on_it() -> None:
    made = plan(None)
    assert isinstance(made, Create)
    assert made.body == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "db",
            "namespace": "shop",
            "labels": {"app.kubernetes.io/managed-by": "psono-kubernetes-operator"},
            "ownerReferences": [OURS],
        },
        "type": "Opaque",
        "data": {"A": "MQ=="},
    }
    assert OURS["controller"] is True
    assert OURS["blockOwnerDeletion"] is True


@pytest.mark.parametrize(
    ("live", "outcome"),
    [
        (secret(data={"A": b"1"}, ownerReferences=[OURS]), Leave),
        (secret(data={"A": b"2"}, ownerReferences=[OURS]), Replace),
        (secret(data={"A": b"1", "B": b"2"}, ownerReferences=[OURS]), Replace),
        (secret(data={"A": b"1"}), Replace),
        (secret(data={"A": b"1"}, ownerReferences=[ONLOOKER]), Replace),
        (secret(data={"A": b"1"}, ownerReferences=[THEIRS]), Refuse),
        (secret(data={"A": b"1"}, ownerReferences=[{**OURS, "uid": "uid-of-an-earlier-one"}]), Refuse),
        (secret(data={"A": b"1"}, ownerReferences=[OURS], type="kubernetes.io/tls"), Refuse),
        (secret(data={"A": b"1"}, ownerReferences=[OURS], deletionTimestamp="2026-12-01T00:00:00Z"), Refuse),
        ({**secret(data={"A": b"2"}, ownerReferences=[OURS]), "immutable": True}, Refuse),
        ({**secret(data={"A": b"1"}, ownerReferences=[OURS]), "immutable": True}, Leave),
        ({**secret(data={"A": b"1"}), "immutable": True}, Replace),
    ],
    ids=[
        "ours and equal", "ours, other value", "ours, one key too many", "unowned and equal",
        "owned by somebody who is no controller (Q2)", "another controller", "our predecessor of the same name",
        "other type", "being deleted", "immutable and different", "immutable and equal (C13)",
        "immutable, equal, only the owner reference is missing (R6)",
    ],
)  # fmt: skip
def test_the_gate(live: Any, outcome: type[TargetPlan]) -> None:
    assert isinstance(plan(live), outcome)


@pytest.mark.parametrize(
    ("live", "words"),
    [
        (secret(ownerReferences=[THEIRS]), ['"db"', 'Deployment "web"', "spec.target.name"]),
        (secret(type="kubernetes.io/tls"), ['"db"', "kubernetes.io/tls", "Opaque", "delete the Secret"]),
        ({**secret(), "immutable": True}, ['"db"', "immutable", "delete it"]),
    ],
)
def test_a_refusal_names_the_object_and_the_next_step(live: Any, words: list[str]) -> None:
    refused = plan(live)
    assert isinstance(refused, Refuse)
    for word in words:
        assert word in refused.message


@pytest.mark.parametrize(
    ("live", "known", "refused"),
    [
        (None, False, True),
        (None, True, False),
        (secret(data={"apiSecretKey": b"k"}), False, True),
        (secret(data={"apiSecretKey": b"k"}), True, True),
        (secret(data={"A": b"0"}, ownerReferences=[OURS]), True, False),
    ],
    ids=["absent", "absent, was ours", "somebody's credentials", "credentials put where ours was", "ours"],
)
def test_credentials_are_never_overwritten(live: Any, known: bool, refused: bool) -> None:
    """Q10: also when the Secret that holds them is not ours any more."""
    assert isinstance(plan(live, holds_credentials=True, known=known), Refuse) is refused


def test_a_takeover_names_the_keys_it_drops() -> None:
    """A1."""
    taken = plan(secret(data={"A": b"0", "Z": b"z", "B": b"b"}))
    assert isinstance(taken, Replace)
    assert taken.dropped == ("B", "Z")
    ours = plan(secret(data={"A": b"0", "B": b"b"}, ownerReferences=[OURS]))
    assert isinstance(ours, Replace)
    assert ours.dropped == ()


def test_what_others_put_on_the_secret_stays() -> None:
    """A10: labels, annotations, finalizers, other owners, and the version that was read (F2)."""
    live = secret(
        data={"A": b"0"},
        version="77",
        labels={"team": "a"},
        annotations={"note": "b"},
        finalizers=["example.com/keep"],
        ownerReferences=[ONLOOKER],
    )
    replaced = plan(live)
    assert isinstance(replaced, Replace)
    metadata = replaced.body["metadata"]
    assert {
        name: metadata[name] for name in ("labels", "annotations", "finalizers", "resourceVersion", "uid")
    } == {
        name: live["metadata"][name]
        for name in ("labels", "annotations", "finalizers", "resourceVersion", "uid")
    }
    assert metadata["ownerReferences"] == [ONLOOKER, OURS]
    assert replaced.body["data"] == {"A": "MQ=="}


def test_a_weakened_owner_reference_is_mended() -> None:
    replaced = plan(secret(data={"A": b"1"}, ownerReferences=[{**OURS, "controller": False}, ONLOOKER]))
    assert isinstance(replaced, Replace)
    assert replaced.body["metadata"]["ownerReferences"] == [ONLOOKER, OURS]


def test_the_empty_type_is_opaque() -> None:
    """C16."""
    live = secret(data={"A": b"1"}, ownerReferences=[OURS])
    del live["type"]
    assert isinstance(plan(live), Leave)


values = st.dictionaries(st.text("ABC", min_size=1, max_size=2), st.binary(max_size=20), max_size=4)


@given(values, values)
def test_one_write_is_enough(first: dict[str, bytes], second: dict[str, bytes]) -> None:
    """G4: after any write the plan is to leave it; the bytes are what was wanted (B4)."""
    written = plan(secret(data=first, ownerReferences=[OURS]), second)
    if isinstance(written, Leave):
        assert first == second
        return
    assert isinstance(written, Replace)
    assert decoded(written.body) == second
    assert isinstance(plan(written.body, second), Leave)


def test_values_are_in_no_repr() -> None:
    """F8."""
    made = plan(None, {"A": b"canary"})
    for text in (repr(made), repr(wanted({"A": b"canary"})), repr(plan(secret(), {"A": b"canary"}))):
        assert "canary" not in text
        assert "Y2FuYXJ5" not in text
