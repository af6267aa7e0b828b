"""Go durations, as ``refreshInterval`` holds them: ``30s``, ``1h30m``, ``0.5m``.

The grammar and the limits are those of Go's ``time.ParseDuration``, because the CRD's own rule and the
documentation use it: decimal numbers with a unit, no days, no blanks, at most 2**63-1 nanoseconds.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_UNIT_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, micro sign
    "μs": 1_000,  # U+03BC, Greek letter mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_TERM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_LIMIT = 2**63 - 1


@lru_cache(maxsize=256)  # a cluster uses a handful of intervals, and every visit asks
def parse_duration(text: str) -> float:
    """Seconds of a Go duration. Raises ValueError, without quoting ``text``, for anything else."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    total = Fraction(0)
    position = 0
    while position < len(rest):
        term = _TERM.match(rest, position)
        if term is None:
            raise ValueError("not a Go duration")
        number, unit = term.groups()
        total += int(_decimal(number) * _UNIT_NANOSECONDS[unit])
        position = term.end()
    if position == 0:
        raise ValueError("not a Go duration")
    if total > _LIMIT:
        raise ValueError("duration too long")
    return sign * float(total / 1_000_000_000)


def _decimal(number: str) -> Fraction:
    whole, _, fraction = number.partition(".")
    return Fraction(int(whole + fraction or "0"), 10 ** len(fraction))
