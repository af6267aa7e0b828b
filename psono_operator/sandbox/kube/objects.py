"""JSON objects as the sandbox handles them: copies, paths and Go's way of writing them down.

Stored objects are never changed in place; whoever wants to change one clones it first. This module
refuses to know any resource type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

Obj = dict[str, Any]
"""An object of the API: parsed JSON."""


def clone(value: Any) -> Any:
    """A deep copy of parsed JSON (several times faster than ``copy.deepcopy``)."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def dig(value: Any, path: Sequence[str]) -> Any:
    """The value at ``path`` through mappings, or None."""
    for step in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value


def metadata(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The object's metadata; an empty dictionary (not stored in ``obj``) when it has none."""
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def compact_json(value: Any) -> str:
    """JSON as Go's encoder writes it: no blanks, ``<``, ``>`` and ``&`` escaped, other text as it is."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def json_type(value: Any) -> str:
    """The OpenAPI name of a value's type, ``null`` included."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def timestamp(moment: datetime) -> str:
    """``metav1.Time``: RFC 3339 in UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: Any) -> datetime | None:
    """An RFC 3339 time as an aware datetime, or None."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None
