"""Cells of Table answers: a small JSONPath, human ages, and the columns of built-in kinds (rule Q9).

The JSONPath is what printer columns use: fields, indexes, ``[*]`` and one filter of the form
``[?(@.field=="value")]``. Anything else is refused when the column is read.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from psono_operator.sandbox.kube.objects import Obj, parse_timestamp
from psono_operator.sandbox.kube.registry import Column

_STEP = re.compile(
    r"\.(?P<field>[\w\-/]+(?:\\\.[\w\-/]+)*)"
    r"|\[(?P<index>\d+)\]"
    r"|\[\?\(@\.(?P<key>[\w.]+)\s*==\s*[\"'](?P<value>[^\"']*)[\"']\)\]"
    r"|(?P<all>\[\*\])"
)


def lookup(obj: Any, path: str) -> list[Any]:
    """Every value at a JSONPath; ValueError for a path this module does not understand."""
    values = [obj]
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise ValueError(f"unsupported JSONPath {path!r}")
        values = [found for value in values for found in _step(value, match)]
        position = match.end()
    return values


def _step(value: Any, match: re.Match[str]) -> list[Any]:
    if match["field"] is not None:
        name = match["field"].replace("\\.", ".")
        return [value[name]] if isinstance(value, dict) and name in value else []
    if not isinstance(value, list):
        return []
    if match["index"] is not None:
        return value[int(match["index"]) :][:1]
    if match["all"] is not None:
        return value
    return [item for item in value if match["value"] in map(str, lookup(item, f".{match['key']}"))]


def cell(obj: Obj, column: Column, now: datetime) -> Any:
    """One cell. A date is shown as an age, as the server does; a missing value is null."""
    if column.path.startswith("len("):
        found = lookup(obj, column.path[4:-1])
        return len(found[0]) if found else 0
    if column.path.startswith("lower("):
        first, _, second = column.path[6:].partition(")/")
        parts = [*lookup(obj, first), *lookup(obj, second)]
        return "/".join([str(parts[0]).lower(), *map(str, parts[1:])]) if parts else ""
    found = lookup(obj, column.path)
    if column.format == "age" or (column.type == "date" and column.format != "plain"):
        moment = parse_timestamp(found[0]) if found else None
        if moment is not None:
            return human_duration((now - moment).total_seconds())
        return "<unknown>" if column.format == "age" else None
    if not found or found[0] is None:
        return None
    return _typed(found[0], column.type)


def _typed(value: Any, kind: str) -> Any:
    if kind in ("integer", "number", "boolean"):
        return value
    return value if isinstance(value, str) else str(value)


def human_duration(seconds: float) -> str:
    """``duration.HumanDuration`` of apimachinery: 90s, 5m30s, 3h5m, 2d4h, 400d."""
    if seconds < -1:
        return "<invalid>"
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, rest = divmod(minutes, 60)
    if hours < 8:
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days, rest = divmod(hours, 24)
    if days < 8:
        return f"{days}d{rest}h" if rest else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y{rest}d" if rest and years < 8 else f"{years}y"
