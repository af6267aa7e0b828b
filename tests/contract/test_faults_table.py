"""Every test that docs/faults.md names exists, and every row says something."""

from __future__ import annotations

import re

from tests.contract.test_requirements import defined_tests
from tests.controlplane.cluster import ROOT

TEXT = (ROOT / "docs" / "faults.md").read_text()


def test_every_named_test_exists() -> None:
    existing = {each.partition("::")[2] for each in defined_tests()}
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert named - existing == set()
    assert len(named) > 40


def test_every_row_has_a_test_or_a_reason() -> None:
    for line in TEXT.splitlines():
        if re.match(r"\| [A-K]\d", line):
            fault, _, here = (cell.strip() for cell in line.strip("|").split("|"))
            assert "`test_" in here or re.search(r"not offered|limit of the platform", here), fault
