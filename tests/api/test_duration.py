"""Go durations, judged by values that Go's own parser gave (Q11)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.api.duration import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30), ("29s", 29), ("5m", 300), ("1h30m", 5400), ("90000ms", 90), ("0.5m", 30), (".5h", 1800),
        ("1.h", 3600), ("+1m", 60), ("-1m", -60), ("0", 0), ("1us", 1e-6), ("1µs", 1e-6), ("1μs", 1e-6),
        ("2562047h47m16.854775807s", 9223372036.854775807), ("1h1h", 7200), ("0.0000000001s", 0),
    ],
)  # fmt: skip
def test_what_go_accepts(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "5", "5 m", " 5m", "5m ", "1d", "2w", "five minutes", ".s", "1.2.3s", "--1m", "5M", "５m", "1e3s",
     "9999999999h", "2562047h47m16.854775808s", "s", "+", "1m\n"],
)  # fmt: skip
def test_what_go_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(not a Go duration|duration too long)$"):
        parse_duration(text)


@given(st.text(max_size=40))
def test_any_text_gives_a_number_or_a_value_error_that_does_not_quote_it(text: str) -> None:
    try:
        parse_duration(text)
    except ValueError as error:
        assert str(error) in {"not a Go duration", "duration too long"}
