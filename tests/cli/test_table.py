"""Tables as kubectl prints them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from psono_operator.cli.table import rendered_table

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def test_columns_are_aligned_and_wide_ones_left_out() -> None:
    table = {
        "columnDefinitions": [
            {"name": "Name", "type": "string"}, {"name": "Ready", "type": "string"},
            {"name": "Reason", "type": "string", "priority": 1}, {"name": "Age", "type": "date"},
        ],
        "rows": [
            {"cells": ["a-long-name", "True", "x", "2026-12-01T11:59:50Z"]},
            {"cells": ["b", None, "y", "2026-11-30T11:00:00Z"]},
        ],
    }  # fmt: skip
    assert rendered_table(table, NOW).splitlines() == [
        "NAME          READY   AGE",
        "a-long-name   True    10s",
        "b                     1d",
    ]


def test_a_table_without_rows_is_its_head() -> None:
    assert rendered_table({"columnDefinitions": [{"name": "Name"}], "rows": None}, NOW) == "NAME"


@pytest.mark.parametrize(
    ("since", "age"),
    [("2026-12-01T12:00:01Z", "0s"), ("2026-12-01T11:58:01Z", "119s"), ("2026-12-01T11:58:00Z", "2m"),
     ("2026-12-01T09:00:00Z", "3h"), ("<unknown>", "<unknown>")],
)  # fmt: skip
def test_ages(since: str, age: str) -> None:
    table = {"columnDefinitions": [{"name": "Age", "type": "date"}], "rows": [{"cells": [since]}]}
    assert rendered_table(table, NOW).splitlines()[1] == age
