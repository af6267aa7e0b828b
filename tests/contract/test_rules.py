"""Every rule that the code cites stands in docs/rules.md."""

from __future__ import annotations

import re

from tests.controlplane.cluster import ROOT


def known_rules() -> set[str]:
    """The ids of the table; a range counts as all between its ends."""
    found: set[str] = set()
    for line in (ROOT / "docs" / "rules.md").read_text().splitlines():
        cell = re.match(r"\| ([A-R]\d[^|]*) \|", line)
        for part in cell[1].split(",") if cell else ():
            ends = re.findall(r"([A-R])(\d+)", part)
            letter = ends[0][0]
            found |= {f"{letter}{number}" for number in range(int(ends[0][1]), int(ends[-1][1]) + 1)}
    return found


def test_every_cited_rule_is_explained() -> None:
    known = known_rules()
    for path in (ROOT / "psono_operator").rglob("*.py"):
        for cited in re.findall(r"\brules? ([A-R]\d+)\b", path.read_text()):
            assert cited in known, f"{path.relative_to(ROOT)} cites {cited}"
