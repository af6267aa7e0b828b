"""Stand-ins for the CEL rules of CRDs: rule text to Python function (rule Q11).

There is no CEL here. A rule whose text is not in the table makes installing its CRD fail, so a changed
rule is noticed at once; the conformance suite holds the stand-ins against the real thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Rule = Callable[[Any], bool]
"""True when the value passes. Raises :class:`RuleError` where CEL itself would fail."""

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9}
_UNITS["h"] = 3600 * 10**9
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_INT64 = 2**63


class RuleError(Exception):
    """CEL could not evaluate the rule; the text is CEL's."""


def go_duration(text: str) -> int:
    """Nanoseconds of a Go duration; RuleError for text that ``time.ParseDuration`` refuses."""
    failure = RuleError("type conversion error from 'string' to 'google.protobuf.Duration'")
    body, sign = (text[1:], -1 if text[0] == "-" else 1) if text[:1] in ("+", "-") else (text, 1)
    if body == "0":
        return 0
    position, total = 0, 0
    while position < len(body):
        match = _DURATION.match(body, position)
        if match is None:
            raise failure
        whole, _, fraction = match[1].partition(".")
        unit = _UNITS[match[2]]
        total += int(whole or "0") * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
        if total >= _INT64:
            raise failure
        position = match.end()
    if not body:
        raise failure
    return sign * total


_GUARD = re.compile(r"^\+?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+\Z", re.ASCII)
_GUARDED = r"!self.matches('^\\+?((\\d+(\\.\\d*)?|\\.\\d+)(ns|us|µs|μs|ms|s|m|h))+$') || "

RULES: dict[str, Rule] = {
    "self.target.name != self.authentication.secretRef.name": lambda spec: (
        spec["target"]["name"] != spec["authentication"]["secretRef"]["name"]
    ),
    _GUARDED + "duration(self) >= duration('30s')": lambda text: (
        _GUARD.search(text) is None or go_duration(text) >= go_duration("30s")
    ),
    "self != 'kubernetes.io/service-account-token'": lambda text: (
        text != "kubernetes.io/service-account-token"
    ),
    "self != '.' && !self.startsWith('..')": lambda text: text != "." and not text.startswith(".."),
    "has(self.field) != has(self.environmentVariable)": lambda ref: (
        ("field" in ref) != ("environmentVariable" in ref)
    ),
}
