"""JSON as RFC 8259 has it, from bytes that nobody vouches for.

Python's parser takes NaN, guesses encodings, keeps the whole text in its errors, gives up on deep nesting
with a RecursionError and on long integers with a ValueError. This one does none of these; its errors hold
nothing (rule F8, F9 of the public fault log). It refuses to know what the document is about.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

_NOTHING = object()
MOST_PARTS = 100_000
"""Members and items that a document may have. A megabyte of brackets becomes a hundred of objects, and a
second in which nothing else runs (rule N6)."""
_SMALL = 64 * 1024
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or the rest of the text if it has no end; no text makes it go back."""


class NotUtf8(ValueError):
    """The bytes are no UTF-8 text."""


class NotJson(ValueError):
    """The text is no JSON, starts with a byte order mark, or is nested too deeply to be read."""


def parse_json(document: bytes, *, most_parts: int = MOST_PARTS) -> object:
    """The value of ``document``. Every number becomes a float; of equal keys the last one counts.

    :raises NotUtf8: for bytes that are no UTF-8, encoded surrogates included.
    :raises NotJson: for anything else that cannot be read, and for more than ``most_parts`` members.
    """
    if len(document) > _SMALL and _parts(document) > most_parts:
        raise NotJson
    try:
        text: str | None = document.decode("utf-8")
    except UnicodeDecodeError:
        text = None  # raised below, outside: the decoder's error carries the document
    if text is None:
        raise NotUtf8
    try:
        # int() refuses more than 4 300 digits; a float takes any number of them
        value: object = json.loads(text, parse_int=float, parse_constant=_refuse)
    except (ValueError, RecursionError):
        value = _NOTHING
    if value is _NOTHING:
        raise NotJson
    return value


def _parts(document: bytes) -> int:
    """How many members and items there are, counted without building any."""
    bare = _STRING.sub(b"", document)
    return bare.count(b",") + bare.count(b"[") + bare.count(b"{")


def _refuse(constant: str) -> NoReturn:
    raise NotJson
