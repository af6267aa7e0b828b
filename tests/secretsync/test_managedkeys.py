"""The list of managed keys: what is written, what is understood, and what is not guessed at (G3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.api.names import MANAGED_KEYS_ANNOTATION
from psono_operator.secretsync.managedkeys import (
    NOBODY,
    CorruptAnnotation,
    ManagedKeys,
    Manager,
    managed_keys,
    manager_uids,
)
from psono_operator.secretsync.provenance import written_by_others

TWO = ManagedKeys({"a": Manager("uid-a", frozenset({"K", "B"})), "b": Manager("uid-b", frozenset({"C"}))})


def read(text: str) -> ManagedKeys:
    return managed_keys({MANAGED_KEYS_ANNOTATION: text})


def test_the_annotation_is_json_from_name_to_uid_and_sorted_keys() -> None:
    """The documented form, byte for byte."""
    assert TWO.render() == '{"a":{"keys":["B","K"],"uid":"uid-a"},"b":{"keys":["C"],"uid":"uid-b"}}'
    assert NOBODY.render() is None
    assert managed_keys({}) == NOBODY


def test_shares_are_told_by_uid() -> None:
    """C3."""
    assert TWO.keys_of("a", "uid-a") == {"K", "B"}
    assert TWO.keys_of("a", "an-earlier-one") == frozenset()
    assert TWO.holder_of("K", besides="uid-b") == "a"
    assert TWO.holder_of("K", besides="uid-a") is None
    assert TWO.others("uid-a") == ["b"]
    assert TWO.without("uid-a") == ManagedKeys({"b": TWO.managers["b"]})
    assert TWO.only(lambda name, uid: (name, uid) == ("b", "uid-b")) == TWO.without("uid-a")


def test_a_share_replaces_what_its_name_or_its_uid_had() -> None:
    successor = TWO.with_share("a", "uid-new", ["X"])
    assert successor.managers["a"] == Manager("uid-new", frozenset({"X"}))
    moved = TWO.with_share("c", "uid-a", ["X"])
    assert sorted(moved.managers) == ["b", "c"]


CORRUPT = [
    "", " ", "{", "nonsense", "null", "[]", "1", '"text"', '{"a":null}', '{"a":[]}', '{"a":{"keys":[]}}',
    '{"a":{"uid":"u"}}', '{"a":{"uid":1,"keys":[]}}', '{"a":{"uid":"","keys":[]}}',
    '{"a":{"uid":"u","keys":"K"}}', '{"a":{"uid":"u","keys":[1]}}', '{"a":{"uid":"u","keys":{"K":1}}}',
    '{"a":{"uid":"u","keys":["K"]},"b":7}', "[" * 100_000, '{"a":{"uid":"u","keys":["K"]}} trailing',
    '{"a":{"uid":"u","keys":["K"]}}'[:-1], "1" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("text", CORRUPT, ids=range(len(CORRUPT)))
def test_what_cannot_be_understood_is_refused_as_a_whole(text: str) -> None:
    """Guessing could cost somebody's keys; the index, which decides nothing, reads it as nobody's."""
    with pytest.raises(CorruptAnnotation):
        read(text)
    assert manager_uids({MANAGED_KEYS_ANNOTATION: text}) == []


def test_what_a_newer_version_may_add_to_a_share_is_no_corruption() -> None:
    assert read('{"a":{"uid":"u","keys":["K","K"],"since":"2026"}}').keys_of("a", "u") == {"K"}


names = st.text(min_size=1, max_size=10)
lists = st.dictionaries(
    names, st.builds(Manager, st.text(min_size=1, max_size=8), st.frozensets(names, max_size=4))
)


@given(lists.map(ManagedKeys))
def test_what_is_written_is_read_back(shares: ManagedKeys) -> None:
    text = shares.render()
    assert (NOBODY if text is None else read(text)) == shares
    if text is not None:
        assert read(text).render() == text, "and writing it again changes nothing (G4)"
        assert text.isascii()


@given(st.text())
def test_no_text_is_more_than_corrupt(text: str) -> None:
    try:
        read(text)
    except CorruptAnnotation as error:
        assert error.__cause__ is None, "the cause would quote the text"
        assert str(error) == ""


RECORD: dict[str, Any] = {"f:data": {".": {}, "f:A": {}}, "f:metadata": {"f:annotations": {"f:note": {}}}}


@pytest.mark.parametrize(
    ("managers", "path", "theirs"),
    [
        ([], ("data", "A"), False),
        (["kubectl"], ("data", "A"), True),
        (["psono-kubernetes-operator"], ("data", "A"), False),
        (["kubectl", "psono-kubernetes-operator"], ("data", "A"), False),
        (["kubectl"], ("data", "B"), False),
        (["kubectl"], ("metadata", "annotations", "note"), True),
        (["kubectl"], ("metadata", "annotations", "other"), False),
        (["kubectl"], ("data", "A", "deeper"), False),
    ],
)
def test_a_field_is_somebody_elses_work_only_on_record(
    managers: list[str], path: tuple[str, ...], theirs: bool
) -> None:
    items = [{"manager": each, "operation": "Update", "fieldsV1": RECORD} for each in managers]
    assert written_by_others({"metadata": {"managedFields": items}}, *path) is theirs


@pytest.mark.parametrize("odd", [None, [], [None], ["x"], [{}], [{"fieldsV1": None}], [{"fieldsV1": []}]])
def test_an_odd_record_puts_nothing_in_doubt(odd: Any) -> None:
    assert not written_by_others({"metadata": {"managedFields": odd}}, "data", "A")


def test_the_list_survives_any_json_writer() -> None:
    """Tools that edit Secrets write JSON in their own style."""
    text = TWO.render()
    assert text is not None
    assert read(json.dumps(json.loads(text), indent=2, sort_keys=False)) == TWO
