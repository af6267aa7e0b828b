"""The JSON reader: what it takes, what it refuses, and that a refusal carries nothing along (rule F8)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.psono.strictjson import NotJson, NotUtf8, parse_json
from tests.psono.recorded import assert_value_free

CANARY = "cAnArY-3b"


@pytest.mark.parametrize(
    "document",
    [
        b"",
        CANARY.encode(),
        b'{"a": "' + CANARY.encode() + b'"',
        b'["' + CANARY.encode() + b'", NaN]',
        b'["' + CANARY.encode() + b'", -Infinity]',
        b"\xef\xbb\xbf[]",
        b"[" * 500_000 + CANARY.encode(),
    ],
)
def test_what_is_no_json_is_refused_without_the_parsers_own_error(document: bytes) -> None:
    with pytest.raises(NotJson) as caught:
        parse_json(document)
    assert caught.value.__context__ is None
    assert_value_free(caught.value, CANARY)


def test_what_is_no_utf8_is_refused_without_the_decoders_own_error() -> None:
    with pytest.raises(NotUtf8) as caught:
        parse_json(CANARY.encode() + b"\xed\xa0\x80")
    assert caught.value.__context__ is None
    assert_value_free(caught.value, CANARY)


trees = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(trees)
def test_what_is_json_is_read(tree: object) -> None:
    assert parse_json(json.dumps(tree, ensure_ascii=True).encode()) == tree


@pytest.mark.parametrize(
    "document",
    [
        b"{" + b",".join(b'"%x":[]' % number for number in range(200_000)) + b"}",
        b"[" + b",".join([b"{}"] * 200_000) + b"]",
        b"[" * 200_000,
    ],
)
def test_a_document_of_too_many_parts_is_refused_before_anything_is_built(document: bytes) -> None:
    """N6: a megabyte of brackets becomes a hundred of objects."""
    with pytest.raises(NotJson):
        parse_json(document)


@pytest.mark.parametrize("filler", [b"[{,", b'\\"[,', b"\\\\"])
def test_what_stands_in_a_text_is_no_part(filler: bytes) -> None:
    document = b'{"a": "' + filler * 200_000 + b'"}'
    assert parse_json(document) == json.loads(document)


@pytest.mark.parametrize("filler", [b'\\"', b'"', b'"\\'])
def test_a_text_without_an_end_is_refused_at_once(filler: bytes) -> None:
    """Nothing in the counting goes back over what it has read."""
    with pytest.raises(NotJson):
        parse_json(b'{"a": "' + filler * 1_000_001)
