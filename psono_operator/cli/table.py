"""Prints a Kubernetes Table answer the way kubectl does: the server chose the columns, this aligns them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def rendered_table(table: Mapping[str, Any], now: datetime) -> str:
    """The table's default columns as aligned text; columns of type date become ages."""
    columns = [
        (index, column)
        for index, column in enumerate(table["columnDefinitions"])
        if not column.get("priority")
    ]
    rows = [[column["name"].upper() for _, column in columns]]
    rows += [
        [_cell(row["cells"][index], column.get("type"), now) for index, column in columns]
        for row in table.get("rows") or ()
    ]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return "\n".join("   ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _cell(value: object, kind: object, now: datetime) -> str:
    if value is None:
        return ""
    if kind == "date":
        try:
            return _age((now - datetime.fromisoformat(str(value)).astimezone(UTC)).total_seconds())
        except ValueError:
            return str(value)
    return str(value)


def _age(seconds: float) -> str:
    whole = max(0, int(seconds))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 120)):
        if whole >= size:
            return f"{whole // (60 if unit == 'm' else size)}{unit}"
    return f"{whole}s"
