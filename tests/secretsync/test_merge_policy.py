"""Policy Merge: some keys are ours, and no byte of the others is in anything we send (G1 to G4)."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from psono_operator.api.names import MANAGED_KEYS_ANNOTATION
from psono_operator.secretsync.merge_policy import TooManyManagedKeys, plan_merge
from psono_operator.secretsync.target import Claimant, Create, Leave, Patch, Refuse, TargetPlan, decoded
from tests.secretsync.objects import secret
from tests.secretsync.targets import (
    DELETED,
    DEPLOYMENT,
    LIVING,
    ONLOOKER,
    OURS,
    PREDECESSOR,
    RIVAL,
    after,
    annotation,
    around,
    fields,
    managed,
    wanted,
)

ME = ("db", "uid-1")
RIVAL_ID = ("rival", "uid-9")


def plan(
    live: Any,
    data: dict[str, bytes] | None = None,
    *,
    type: str = "Opaque",
    claimant: Claimant | None = None,
    **options: bool,
) -> TargetPlan:
    before = copy.deepcopy(live)
    goal = wanted(data, policy="Merge", type=type, claimant=claimant or Claimant(*ME))
    result = plan_merge(goal, live, around(**options))
    assert live == before, "the live object is only read (C5)"
    return result


def patch_of(live: Any, data: dict[str, bytes] | None = None, **options: Any) -> dict[str, Any]:
    result = plan(live, data, **options)
    assert isinstance(result, Patch), result
    return result.body


def refused(live: Any, data: dict[str, bytes] | None = None, **options: Any) -> str:
    result = plan(live, data, **options)
    assert isinstance(result, Refuse), result
    return result.message


def test_a_missing_target_is_created_without_an_owner() -> None:
    """A16."""
    made = plan(None)
    assert isinstance(made, Create)
    assert made.body == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "db",
            "namespace": "shop",
            "labels": {"app.kubernetes.io/managed-by": "psono-kubernetes-operator"},
            "annotations": managed({ME: ["A"]}),
        },
        "type": "Opaque",
        "data": {"A": "MQ=="},
    }


MINE, RIVALS = managed({ME: ["A"]}), managed({RIVAL_ID: ["B"]})


@pytest.mark.parametrize(
    ("live", "outcome"),
    [
        (secret(data={"A": b"1", "X": b"x"}, annotations=MINE), Leave),
        (secret(data={"A": b"2", "X": b"x"}, annotations=MINE), Patch),
        (secret(data={"X": b"x"}), Patch),
        (secret(data={"A": b"1"}), Patch),
        (secret(data={"A": b"1"}, ownerReferences=[OURS]), Patch),
        (secret(data={"X": b"x"}, ownerReferences=[ONLOOKER]), Patch),
        (secret(data={"X": b"x"}, ownerReferences=[DEPLOYMENT]), Patch),
        (secret(data={"X": b"x"}, ownerReferences=[RIVAL]), Refuse),
        (secret(data={"X": b"x"}, ownerReferences=[PREDECESSOR]), Refuse),
        (secret(data={"A": b"1"}, annotations=MINE, type="kubernetes.io/tls"), Refuse),
        (secret(data={"A": b"1"}, annotations=MINE, deletionTimestamp=DELETED), Refuse),
        ({**secret(data={"A": b"2"}, annotations=MINE), "immutable": True}, Refuse),
        ({**secret(data={"A": b"1"}, annotations=MINE), "immutable": True}, Leave),
        ({**secret(data={"A": b"1"}), "immutable": True}, Patch),
        (secret(data={"B": b"b"}, annotations=RIVALS), Patch),
        (secret(data={"A": b"b"}, annotations=managed({RIVAL_ID: ["A"]})), Refuse),
        (secret(data={"A": b"b"}, annotations=managed({("rival", "an-earlier-one"): ["A"]})), Patch),
        (secret(data={"A": b"b"}, annotations=managed({("gone", "uid-7"): ["A"]})), Patch),
        (secret(data={"A": b"1"}, annotations={MANAGED_KEYS_ANNOTATION: "nonsense"}), Refuse),
    ],
    ids=[
        "ours and equal", "ours, other value", "foreign keys only", "equal, but not marked",
        "ours by policy Owner until now", "owned by somebody who is no controller", "another controller",
        "another PsonoSecret's", "our predecessor's (C3)", "other type", "being deleted",
        "immutable and different", "immutable and equal (C13)", "immutable, only the mark is missing (R6)",
        "another PsonoSecret manages another key", "another PsonoSecret manages this key",
        "its predecessor managed this key", "somebody who is gone managed this key", "corrupt annotation",
    ],
)  # fmt: skip
def test_the_gate(live: Any, outcome: type[TargetPlan]) -> None:
    assert isinstance(plan(live), outcome)


@pytest.mark.parametrize(
    ("live", "words"),
    [
        (secret(data={"A": b"canary"}, annotations=managed({RIVAL_ID: ["A"]})), ['"A"', '"db"', '"rival"']),
        (secret(ownerReferences=[RIVAL]), ['PsonoSecret "rival"', "spec.target.name"]),
        (
            secret(annotations={MANAGED_KEYS_ANNOTATION: "["}),
            [MANAGED_KEYS_ANNOTATION, "remove the annotation"],
        ),
    ],
)
def test_a_refusal_names_the_key_the_holder_and_the_next_step(live: Any, words: list[str]) -> None:
    message = refused(live)
    for word in words:
        assert word in message
    assert "canary" not in message


@pytest.mark.parametrize(
    ("live", "known", "is_refused"),
    [
        (None, False, True),
        (None, True, False),
        (secret(data={"apiSecretKey": b"k"}), False, True),
        (secret(data={"apiSecretKey": b"k"}), True, True),
        (secret(data={"A": b"0"}, annotations=MINE), False, False),
        (secret(data={"A": b"0"}, ownerReferences=[OURS]), False, False),
    ],
)
def test_nothing_is_merged_into_credentials(live: Any, known: bool, is_refused: bool) -> None:
    """Q10."""
    assert isinstance(plan(live, holds_credentials=True, known=known), Refuse) is is_refused


def test_one_request_holds_values_removals_and_the_list() -> None:
    """G3, golden: with the version that was read (F2), and nothing else."""
    live = secret(
        data={"A": b"old", "OLD": b"o", "B": b"b", "X": b"foreign-canary", "SAME": b"s"},
        version="77",
        annotations={"note": "n", **managed({ME: ["A", "OLD", "SAME"], RIVAL_ID: ["B"]})},
        labels={"team": "a"},
        finalizers=["example.com/keep"],
    )
    assert patch_of(live, {"A": b"1", "SAME": b"s", "NEW": b"n"}) == {
        "metadata": {
            "resourceVersion": "77",
            "annotations": managed({ME: ["A", "NEW", "SAME"], RIVAL_ID: ["B"]}),
        },
        "data": {"A": "MQ==", "NEW": "bg==", "OLD": None},
    }


def test_a_value_of_nobody_is_taken_over_and_named() -> None:
    taken = plan(secret(data={"A": b"0", "B": b"1", "X": b"x"}), {"A": b"1", "B": b"1"})
    assert isinstance(taken, Patch)
    assert taken.taken == ("A",), "B is equal already: nothing of anybody's is lost"
    ours = plan(secret(data={"A": b"0"}, annotations=MINE))
    assert isinstance(ours, Patch)
    assert ours.taken == ()


def test_from_owner_to_merge_everything_we_owned_stays_ours() -> None:
    """The reference goes, foreign owners stay, and keys that are mapped no more go, all in one request."""
    live = secret(
        data={"A": b"1", "OLD": b"o"},
        ownerReferences=[ONLOOKER, OURS],
        managedFields=[fields("psono-kubernetes-operator", keys=["A", "OLD"])],
    )
    assert patch_of(live) == {
        "metadata": {
            "resourceVersion": "7",
            "annotations": managed({ME: ["A"]}),
            "ownerReferences": [ONLOOKER],
        },
        "data": {"OLD": None},
    }


def test_from_owner_to_merge_a_key_that_somebody_added_meanwhile_stays() -> None:
    """It may have come after the user asked for Merge."""
    live = secret(
        data={"A": b"1", "OLD": b"o", "X": b"x"},
        ownerReferences=[OURS],
        managedFields=[fields("psono-kubernetes-operator", keys=["A", "OLD"]), fields("kubectl", keys=["X"])],
    )
    assert patch_of(live)["data"] == {"OLD": None}


def test_a_list_edited_by_hand_costs_nobody_a_key() -> None:
    """Somebody wrote X into our share of the list; X is on record as theirs, OLD as ours."""
    edited = secret(
        data={"A": b"1", "OLD": b"o", "X": b"x"},
        annotations=managed({ME: ["A", "OLD", "X"]}),
        managedFields=[
            fields("psono-kubernetes-operator", keys=["A", "OLD"]),
            fields("kubectl-edit", keys=["X"], list_of_keys=True),
        ],
    )
    assert patch_of(edited) == {
        "metadata": {"resourceVersion": "7", "annotations": managed({ME: ["A"]})},
        "data": {"OLD": None},
    }


def test_our_own_list_is_believed_even_where_the_value_was_edited() -> None:
    """A17: a key that was ours goes with its mapping, whoever wrote its last value."""
    live = secret(
        data={"A": b"1", "OLD": b"edited"},
        annotations=managed({ME: ["A", "OLD"]}),
        managedFields=[
            fields("psono-kubernetes-operator", keys=["A"], list_of_keys=True),
            fields("kubectl-edit", keys=["OLD"]),
        ],
    )
    assert patch_of(live)["data"] == {"OLD": None}


def test_a_key_in_two_shares_is_not_removed_by_one_of_them() -> None:
    """Only an edit by hand can bring that about."""
    live = secret(data={"A": b"1", "B": b"b"}, annotations=managed({ME: ["A", "B"], RIVAL_ID: ["B"]}))
    assert patch_of(live) == {
        "metadata": {"resourceVersion": "7", "annotations": managed({ME: ["A"], RIVAL_ID: ["B"]})}
    }


def test_a_successor_of_the_same_name_is_a_new_manager() -> None:
    """C3: it takes the list over, and keys that only its predecessor had stay as nobody's."""
    live = secret(data={"A": b"1", "OLD": b"o"}, annotations=managed({("db", "uid-0"): ["A", "OLD"]}))
    assert patch_of(live) == {"metadata": {"resourceVersion": "7", "annotations": managed({ME: ["A"]})}}


@pytest.mark.parametrize("present", [{"tls.crt": b"c", "tls.key": b"k"}, {"tls.crt": b"c"}])
def test_a_type_whose_needs_would_go_unmet_is_refused_before_the_call(present: dict[str, bytes]) -> None:
    """A foreign key may meet a need; a removal may not take it away."""
    live = secret(data=present, type="kubernetes.io/tls", annotations=managed({ME: ["tls.crt"]}))
    new = {"tls.crt": b"new"}
    if "tls.key" in present:
        assert patch_of(live, new, type="kubernetes.io/tls")["data"] == {"tls.crt": "bmV3"}
    else:
        assert '"tls.key"' in refused(live, new, type="kubernetes.io/tls")
    whole = secret(
        data={"tls.crt": b"c", "tls.key": b"k"},
        type="kubernetes.io/tls",
        annotations=managed({ME: ["tls.crt", "tls.key"]}),
    )
    assert '"tls.key"' in refused(whole, {"tls.crt": b"c"}, type="kubernetes.io/tls")


def test_more_than_a_secret_holds_is_refused_before_the_call() -> None:
    """G6: counted together with the keys of others, and without those that go."""
    live = secret(data={"X": b"x" * 1_000_000, "OLD": b"o" * 48_000}, annotations=managed({ME: ["OLD"]}))
    assert patch_of(live, {"A": b"a" * 48_576})
    message = refused(live, {"A": b"a" * 48_577})
    assert "1048577 bytes, 48577 of them ours" in message


@pytest.mark.parametrize("live", [None, secret(data={"X": b"x"})])
def test_a_list_of_more_than_200_kib_is_refused(live: Any) -> None:
    """The API server takes 256 KiB of annotations; the message says what to do."""
    longest = {f"{number:03}".ljust(253, "x"): b"" for number in range(1000)}
    with pytest.raises(TooManyManagedKeys, match="map fewer keys"):
        plan(live, longest)
    fitting = dict(list(longest.items())[:700])
    assert isinstance(plan(live, fitting), Create | Patch)


keys = st.text("ABCD", min_size=1, max_size=1)
values = st.dictionaries(keys, st.binary(max_size=8), max_size=4)
shares = st.dictionaries(
    st.sampled_from([ME, RIVAL_ID, ("other", "uid-8"), ("gone", "uid-7"), ("rival-2", "uid-0")]),
    st.sets(keys, max_size=3),
    max_size=4,
)
owners = st.sampled_from([[], [ONLOOKER], [DEPLOYMENT]])


@given(values, values, shares, owners)
def test_keys_of_others_are_never_touched_and_one_write_is_enough(
    found: dict[str, bytes], data: dict[str, bytes], split: dict[tuple[str, str], set[str]], held: list[Any]
) -> None:
    """G2 to G4: their bytes are in no body, they are as they were afterwards, and so is the metadata."""
    assume(not set(data) & set().union(*(k for who, k in split.items() if who in LIVING and who != ME), ()))
    foreign = {key: b"foreign" + value for key, value in found.items()}
    notes = {"note": "n", **(managed(split) if split else {})}
    live = secret(data=foreign, annotations=notes, labels={"l": "1"}, ownerReferences=held)
    result = plan(live, data)
    others = {who: kept for who, kept in split.items() if who in LIVING and who != ME}
    if isinstance(result, Patch):
        sent = json.dumps(result.body)
        for value in foreign.values():
            assert base64.b64encode(value).decode() not in sent
        assert result.body["metadata"]["resourceVersion"] == "7"
    stored = after(live, result)
    mine = split.get(ME, set()) - set().union(*others.values(), ())
    assert decoded(stored) == {**{k: v for k, v in foreign.items() if k not in mine}, **data}
    assert stored["metadata"]["labels"] == {"l": "1"}
    assert stored["metadata"]["ownerReferences"] == held
    assert stored["metadata"]["annotations"] == {"note": "n", **managed({**others, ME: list(data)})}
    assert isinstance(plan(stored, data), Leave)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
odd_shares = st.dictionaries(
    st.sampled_from(["db", "rival", "x"]),
    st.fixed_dictionaries({}, optional={"uid": json_values | st.just("uid-1"), "keys": json_values}),
)
texts = st.text(max_size=40) | json_values.map(json.dumps) | odd_shares.map(json.dumps)


@given(texts, values)
def test_whatever_the_annotation_says_foreign_keys_survive(text: str, data: dict[str, bytes]) -> None:
    """A corrupt one is refused, a readable one gives a plan, and no plan touches FOREIGN."""
    live = secret(
        data={"A": b"a", "FOREIGN": b"f"},
        annotations={MANAGED_KEYS_ANNOTATION: text},
        managedFields=[fields("somebody", keys=["A", "FOREIGN"], list_of_keys=True)],
    )
    result = plan(live, data)
    if not isinstance(result, Refuse):
        assert decoded(after(live, result))["FOREIGN"] == b"f"


def test_two_claimants_share_a_secret_without_a_word() -> None:
    """A15: the list keeps both, and neither sees a reason to write again."""
    rival = Claimant(*RIVAL_ID)
    first = after(None, plan(None, {"A": b"1"}))
    second = after(first, plan(first, {"B": b"2"}, claimant=rival))
    assert decoded(second) == {"A": b"1", "B": b"2"}
    assert second["metadata"]["annotations"][MANAGED_KEYS_ANNOTATION] == annotation(
        {ME: ["A"], RIVAL_ID: ["B"]}
    )
    assert isinstance(plan(second, {"A": b"1"}), Leave)
    assert isinstance(plan(second, {"B": b"2"}, claimant=rival), Leave)


def test_values_are_in_no_repr() -> None:
    """F8."""
    for live in (None, secret(data={"A": b"0"})):
        text = repr(plan(live, {"A": b"canary"}))
        assert "canary" not in text
        assert "Y2FuYXJ5" not in text
