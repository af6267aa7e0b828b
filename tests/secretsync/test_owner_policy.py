"""The ownership gate and the one request under policy Owner, as a table (G1, G2, G4)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.api.names import MANAGED_KEYS_ANNOTATION
from psono_operator.secretsync.owner_policy import plan_owner
from psono_operator.secretsync.target import Create, Leave, Refuse, Replace, TargetPlan, decoded
from tests.secretsync.objects import secret
from tests.secretsync.targets import (
    CLAIMANT,
    DELETED,
    DEPLOYMENT,
    ONLOOKER,
    OURS,
    PREDECESSOR,
    RIVAL,
    after,
    around,
    managed,
    wanted,
)


def plan(
    live: Any, data: dict[str, bytes] | None = None, *, type: str = "Opaque", **options: bool
) -> TargetPlan:
    before = copy.deepcopy(live)
    result = plan_owner(wanted(data, type=type), live, around(**options))
    assert live == before, "the live object is only read (C5)"
    return result


def refused(live: Any, data: dict[str, bytes] | None = None, **options: Any) -> str:
    result = plan(live, data, **options)
    assert isinstance(result, Refuse), result
    return result.message


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


SHARED = managed({("rival", "uid-9"): ["B"]})
OWN_SHARE = managed({("db", "uid-1"): ["A"]})


@pytest.mark.parametrize(
    ("live", "outcome"),
    [
        (secret(data={"A": b"1"}, ownerReferences=[OURS]), Leave),
        (secret(data={"A": b"2"}, ownerReferences=[OURS]), Replace),
        (secret(data={"A": b"1", "B": b"2"}, ownerReferences=[OURS]), Replace),
        (secret(data={"A": b"1"}), Replace),
        (secret(data={"A": b"1"}, ownerReferences=[ONLOOKER]), Replace),
        (secret(data={"A": b"1"}, ownerReferences=[DEPLOYMENT]), Refuse),
        (secret(data={"A": b"1"}, ownerReferences=[RIVAL]), Refuse),
        (secret(data={"A": b"1"}, ownerReferences=[PREDECESSOR]), Refuse),
        (secret(data={"A": b"1"}, ownerReferences=[OURS], type="kubernetes.io/tls"), Refuse),
        (secret(data={"A": b"1"}, ownerReferences=[OURS], deletionTimestamp=DELETED), Refuse),
        ({**secret(data={"A": b"2"}, ownerReferences=[OURS]), "immutable": True}, Refuse),
        ({**secret(data={"A": b"1"}, ownerReferences=[OURS]), "immutable": True}, Leave),
        ({**secret(data={"A": b"1"}), "immutable": True}, Replace),
        (secret(data={"A": b"1", "B": b"2"}, annotations=SHARED), Refuse),
        (secret(data={"A": b"1"}, annotations=managed({("rival", "gone"): ["A"]})), Replace),
        (secret(data={"A": b"1", "X": b"x"}, annotations=OWN_SHARE), Replace),
    ],
    ids=[
        "ours and equal", "ours, other value", "ours, one key too many", "unowned and equal",
        "owned by somebody who is no controller (Q2)", "another controller", "another PsonoSecret",
        "our predecessor of the same name (C3)", "other type", "being deleted", "immutable and different",
        "immutable and equal (C13)", "immutable, equal, only the owner reference is missing (R6)",
        "another PsonoSecret manages keys in it (A15)", "somebody who is gone managed keys in it",
        "ours by policy Merge until now",
    ],
)  # fmt: skip
def test_the_gate(live: Any, outcome: type[TargetPlan]) -> None:
    assert isinstance(plan(live), outcome)


@pytest.mark.parametrize(
    ("live", "words"),
    [
        (secret(ownerReferences=[DEPLOYMENT]), ['"db"', 'Deployment "web"', "spec.target.name"]),
        (secret(ownerReferences=[RIVAL]), ['"db"', 'PsonoSecret "rival"', "spec.target.name"]),
        (secret(ownerReferences=[PREDECESSOR]), ['earlier PsonoSecret "db"', "garbage collector"]),
        (secret(type="kubernetes.io/tls"), ['"db"', "kubernetes.io/tls", "Opaque", "delete the Secret"]),
        (secret(deletionTimestamp=DELETED), ['"db"', "being deleted", "made anew"]),
        ({**secret(), "immutable": True}, ['"db"', "immutable", "delete it"]),
        (secret(annotations=SHARED), ['PsonoSecret "rival"', '"db"', "policy Merge"]),
        (
            secret(annotations={MANAGED_KEYS_ANNOTATION: "{"}),
            [MANAGED_KEYS_ANNOTATION, "remove the annotation"],
        ),
    ],
)
def test_a_refusal_names_the_object_and_the_next_step(live: Any, words: list[str]) -> None:
    message = refused(live)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("live", "known", "is_refused"),
    [
        (None, False, True),
        (None, True, False),
        (secret(data={"apiSecretKey": b"k"}), False, True),
        (secret(data={"apiSecretKey": b"k"}), True, True),
        (secret(data={"A": b"0"}, ownerReferences=[OURS]), True, False),
        (secret(data={"A": b"0"}, annotations=OWN_SHARE), False, False),
    ],
    ids=[
        "absent",
        "absent, was ours",
        "somebody's credentials",
        "credentials put where ours was",
        "ours",
        "merged",
    ],
)
def test_credentials_are_never_overwritten(live: Any, known: bool, is_refused: bool) -> None:
    """Q10: also when the Secret that holds them is not ours any more."""
    assert isinstance(plan(live, holds_credentials=True, known=known), Refuse) is is_refused


@pytest.mark.parametrize(
    ("type", "data", "word"),
    [
        ("kubernetes.io/tls", {"tls.crt": b"c"}, '"tls.key"'),
        ("kubernetes.io/dockerconfigjson", {".dockerconfigjson": b"canary"}, "JSON object"),
        ("Opaque", {"A": b"x" * 1_048_577}, "1048576"),
    ],
)
@pytest.mark.parametrize("absent", [True, False])
def test_what_the_api_server_would_refuse_is_refused_before_the_call(
    type: str, data: dict[str, bytes], word: str, absent: bool
) -> None:
    """G6, B9: and the message says what is missing without a value."""
    message = refused(None if absent else secret(type=type, ownerReferences=[OURS]), data, type=type)
    assert word in message
    assert "canary" not in message


def test_a_full_secret_fits_to_the_byte() -> None:
    """R5: key names do not count."""
    assert isinstance(plan(None, {"A": b"x" * 1_048_575, "B": b"x"}), Create)


def test_a_takeover_names_the_keys_it_drops() -> None:
    """A1; and keys that were ours by policy Merge are no loss."""
    taken = plan(secret(data={"A": b"0", "Z": b"z", "B": b"b"}))
    assert isinstance(taken, Replace)
    assert taken.dropped == ("B", "Z")
    ours = plan(secret(data={"A": b"0", "B": b"b"}, ownerReferences=[OURS]))
    assert isinstance(ours, Replace)
    assert ours.dropped == ()
    was_merged = plan(
        secret(data={"A": b"1", "B": b"b", "X": b"x"}, annotations=managed({("db", "uid-1"): ["A", "B"]}))
    )
    assert isinstance(was_merged, Replace)
    assert was_merged.dropped == ("X",)


def test_what_others_put_on_the_secret_stays() -> None:
    """A10: labels, annotations, finalizers, other owners, and the version that was read (F2)."""
    live = secret(
        data={"A": b"0"},
        version="77",
        labels={"team": "a"},
        annotations={"note": "b", **OWN_SHARE},
        finalizers=["example.com/keep"],
        ownerReferences=[ONLOOKER],
    )
    replaced = plan(live)
    assert isinstance(replaced, Replace)
    kept = ("labels", "finalizers", "resourceVersion", "uid")
    metadata = replaced.body["metadata"]
    assert {name: metadata[name] for name in kept} == {name: live["metadata"][name] for name in kept}
    assert metadata["annotations"] == {"note": "b"}, "the list of managed keys is for policy Merge"
    assert metadata["ownerReferences"] == [ONLOOKER, OURS]
    assert replaced.body["data"] == {"A": "MQ=="}


def test_a_weakened_owner_reference_is_mended() -> None:
    replaced = plan(secret(data={"A": b"1"}, ownerReferences=[{**OURS, "controller": False}, ONLOOKER]))
    assert isinstance(replaced, Replace)
    assert replaced.body["metadata"]["ownerReferences"] == [ONLOOKER, OURS]


def test_a_corrupt_list_on_a_secret_we_own_is_removed() -> None:
    """Nobody else can have keys in it, so there is nothing to lose."""
    live = secret(data={"A": b"1"}, ownerReferences=[OURS], annotations={MANAGED_KEYS_ANNOTATION: "[]"})
    assert MANAGED_KEYS_ANNOTATION not in after(live, plan(live))["metadata"]["annotations"]


def test_the_empty_type_is_opaque() -> None:
    """C16."""
    live = secret(data={"A": b"1"}, ownerReferences=[OURS])
    del live["type"]
    assert isinstance(plan(live), Leave)


values = st.dictionaries(st.text("ABC", min_size=1, max_size=2), st.binary(max_size=20), max_size=4)
references = st.sampled_from([[], [OURS], [ONLOOKER], [OURS, ONLOOKER]])
notes_found = st.sampled_from([{}, {"note": "n"}, OWN_SHARE, managed({("db", "gone"): ["B"]})])


@given(values, values, references, notes_found)
def test_one_write_is_enough(
    found: dict[str, bytes], data: dict[str, bytes], owners: list[Any], notes: dict[str, str]
) -> None:
    """G4: after any write the plan is to leave it; the Secret then equals the mapping exactly (B4)."""
    live = secret(data=found, ownerReferences=owners, annotations=notes)
    stored = after(live, plan(live, data))
    assert decoded(stored) == data
    assert CLAIMANT.controls(stored)
    assert isinstance(plan(stored, data), Leave)


def test_values_are_in_no_repr() -> None:
    """F8."""
    made = plan(None, {"A": b"canary"})
    for text in (repr(made), repr(wanted({"A": b"canary"})), repr(plan(secret(), {"A": b"canary"}))):
        assert "canary" not in text
        assert "Y2FuYXJ5" not in text
