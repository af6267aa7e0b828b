"""Selecting one value: quirks Q5 to Q9 of the fault log, and F9, that nothing untyped or unclean comes out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from psono_operator.psono.entry import Entry, EnvironmentVariable, FieldPath, Selector
from psono_operator.psono.errors import DecryptionError, ExtractionError, Found, Stage
from psono_operator.psono.secretbytes import SecretBytes
from tests.psono.recorded import assert_value_free

CANARY = "cAnArY-5f1d"


def entry(content: object) -> Entry:
    return Entry.parse(json.dumps(content).encode())


def variables(*pairs: object) -> Entry:
    return entry({"environment_variables_variables": list(pairs)})


def pair(key: str, value: object) -> dict[str, object]:
    return {"key": key, "value": value}


def found(subject: Entry, selector: Selector) -> Found:
    with pytest.raises(ExtractionError) as caught:
        subject.select(selector)
    assert caught.value.selector == str(selector)
    return caught.value.found


def test_the_first_of_equal_keys_counts_even_when_empty() -> None:
    """Q5."""
    subject = variables(pair("A", ""), pair("A", "second"))
    assert subject.select(EnvironmentVariable("A")).reveal() == b""


def test_the_first_of_equal_keys_counts_even_when_no_text() -> None:
    """Q5, Q8: the later text is not silently taken instead."""
    assert found(variables(pair("A", 1), pair("A", "second")), EnvironmentVariable("A")) is Found.NUMBER
    assert found(variables({"key": "A"}, pair("A", "x")), EnvironmentVariable("A")) is Found.MISSING


def test_a_selector_is_trimmed_and_an_entry_key_is_not() -> None:
    """Q6."""
    subject = variables(pair(" PADDED ", "no"), pair("DB", "yes"))
    assert subject.select(EnvironmentVariable(" DB\t")).reveal() == b"yes"
    assert found(subject, EnvironmentVariable("PADDED")) is Found.MISSING
    assert found(subject, EnvironmentVariable(" PADDED ")) is Found.MISSING


def test_keys_are_exact_in_case() -> None:
    """Q7."""
    assert found(variables(pair("DB_HOST", "x")), EnvironmentVariable("DB_Host")) is Found.MISSING


def test_odd_list_elements_are_passed_over() -> None:
    subject = variables(None, 1, "A", ["A"], {}, {"key": None}, {"key": ["A"]}, pair("A", "found"))
    assert subject.select(EnvironmentVariable("A")).reveal() == b"found"


@pytest.mark.parametrize(
    "content",
    [{}, {"environment_variables_variables": None}, {"environment_variables_variables": {"A": "b"}}],
)
def test_an_entry_of_another_type_is_said_to_be_one(content: object) -> None:
    assert found(entry(content), EnvironmentVariable("A")) is Found.NO_ENVIRONMENT_VARIABLES


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, Found.NULL),
        (True, Found.BOOLEAN),
        (0, Found.NUMBER),
        (1.5, Found.NUMBER),
        ([], Found.LIST),
        ({}, Found.OBJECT),
        ("\ud800", Found.NOT_UTF8),
    ],
)
def test_only_text_can_be_selected(value: object, kind: Found) -> None:
    """Q8."""
    assert found(entry({"a": {"b": value}}), FieldPath("a.b")) is kind
    assert found(variables(pair("A", value)), EnvironmentVariable("A")) is kind


@pytest.mark.parametrize(
    "path", ["a.0", "a.0.b", "a.length", "s.0", "s.x", "n.x", "", ".", "a.", ".a", "o..p", "o.p."]
)
def test_a_path_walks_objects_only(path: str) -> None:
    """Q8: no array index, no look into text or numbers, no empty steps."""
    subject = entry({"a": [{"b": "x"}], "s": "text", "n": 1, "o": {"p": "x"}})
    assert found(subject, FieldPath(path)) is Found.MISSING


def test_a_key_with_a_dot_cannot_be_reached() -> None:
    """Q9: a dot always separates."""
    assert entry({"a.b": "x", "a": {"b": "y"}}).select(FieldPath("a.b")).reveal() == b"y"
    assert found(entry({"a.b": "x"}), FieldPath("a.b")) is Found.MISSING


@pytest.mark.parametrize(
    "value", ["", " padded ", "tail\n", "\r\n", "\x00", "😀", "é", "aGVsbG8=", "x" * 200_000]
)
def test_values_come_out_byte_for_byte(value: str) -> None:
    """B4 and B5 of the fault log: nothing is trimmed, decoded or normalised."""
    assert entry({"v": value}).select(FieldPath("v")).reveal() == value.encode()


@pytest.mark.parametrize(
    ("plaintext", "stage"),
    [
        (b"\xff", Stage.PLAINTEXT_NOT_UTF8),
        (b'{"a": "\xed\xa0\x80"}', Stage.PLAINTEXT_NOT_UTF8),
        ('{"a": "b"}'.encode("utf-16"), Stage.PLAINTEXT_NOT_UTF8),
        (b"", Stage.PLAINTEXT_NOT_JSON),
        (b'\xef\xbb\xbf{"a": "b"}', Stage.PLAINTEXT_NOT_JSON),
        (b'{"a": NaN}', Stage.PLAINTEXT_NOT_JSON),
        (b'{"a": -Infinity}', Stage.PLAINTEXT_NOT_JSON),
        (b'{"a": "b"} {}', Stage.PLAINTEXT_NOT_JSON),
        (b'{"a": "line\nbreak"}', Stage.PLAINTEXT_NOT_JSON),
        (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, Stage.PLAINTEXT_NOT_JSON),
        (b"[" * 1_000_000, Stage.PLAINTEXT_NOT_JSON),
        (b"null", Stage.PLAINTEXT_NOT_OBJECT),
        (b"[]", Stage.PLAINTEXT_NOT_OBJECT),
        (b'"text"', Stage.PLAINTEXT_NOT_OBJECT),
        (b"1", Stage.PLAINTEXT_NOT_OBJECT),
    ],
)
def test_what_is_no_json_object_is_a_decryption_error_with_its_stage(plaintext: bytes, stage: Stage) -> None:
    with pytest.raises(DecryptionError) as caught:
        Entry.parse(plaintext)
    assert caught.value.stage is stage


def test_of_equal_members_the_last_one_counts() -> None:
    assert Entry.parse(b'{"a": "first", "a": "last"}').select(FieldPath("a")).reveal() == b"last"


def test_a_number_of_many_digits_harms_nobody() -> None:
    subject = Entry.parse(b'{"n": ' + b"9" * 100_000 + b', "m": -1e999, "t": "text"}')
    assert subject.select(FieldPath("t")).reveal() == b"text"
    assert found(subject, FieldPath("n")) is Found.NUMBER
    assert found(subject, FieldPath("m")) is Found.NUMBER


def test_entries_print_nothing() -> None:
    assert CANARY not in repr(entry({CANARY: CANARY}))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.just(CANARY),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | st.just(CANARY), inner, max_size=4)
    ),
    max_leaves=12,
)
names = st.sampled_from(["a", "b", "A", "", "0"])
entries = st.fixed_dictionaries(
    {},
    optional={
        "a": json_values,
        "environment_variables_variables": json_values
        | st.lists(
            st.fixed_dictionaries({}, optional={"key": names | json_values, "value": json_values}), max_size=4
        ),
    },
)
selectors = st.builds(EnvironmentVariable, names | st.text()) | st.builds(
    FieldPath, st.lists(names | st.text(max_size=3), max_size=4).map(".".join)
)


@given(entries, selectors)
@example({"a": "\ud800" + CANARY}, FieldPath("a"))
@example({"a": [CANARY]}, FieldPath("a"))
def test_any_entry_and_any_selector_give_a_value_or_a_clean_refusal(
    content: dict[str, Any], selector: Selector
) -> None:
    try:
        subject = Entry.parse(json.dumps(content).encode())
    except DecryptionError as error:  # NaN
        assert_value_free(error, CANARY)
        return
    try:
        value = subject.select(selector)
    except ExtractionError as error:
        assert_value_free(error, CANARY)
        assert error.__context__ is None
    else:
        assert isinstance(value, SecretBytes)


@given(
    st.binary()
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.tuples(st.binary(max_size=3), st.just(CANARY.encode()), st.binary(max_size=3)).map(b"".join)
)
@example(b'{"a": "' + CANARY.encode() + b"\xff")
@example(b'{"a": ' + CANARY.encode() + b"}")
@example(b'{"' + CANARY.encode() + b'":' * 100_000)
def test_any_plaintext_gives_an_entry_or_a_clean_refusal(plaintext: bytes) -> None:
    """F9 of the fault log."""
    try:
        Entry.parse(plaintext)
    except DecryptionError as error:
        assert_value_free(error, CANARY)
