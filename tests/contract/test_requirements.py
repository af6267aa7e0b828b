"""docs/requirements.md: every promise of the product names a test that exists."""

from __future__ import annotations

import ast
import re

from tests.controlplane.cluster import ROOT

DOCUMENT = (ROOT / "docs" / "requirements.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in DOCUMENT.splitlines()
    if re.match(r"\| REQ-[A-Z]+\d+ \|", line)
]


def defined_tests() -> set[str]:
    """``path::name`` of every test function in the tree."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found.add(f"{path.relative_to(ROOT / 'tests')}::{node.name}")
    return found


def test_every_promise_names_tests_that_exist() -> None:
    existing = defined_tests()
    for number, promise, shown in ROWS:
        named = re.findall(r"`([^`]+)`", shown)
        later = shown.startswith("later: ")
        assert named or later, f"{number} ({promise}) names no test"
        for each in named:
            assert later or each in existing, f"{number}: {each} does not exist"


def test_numbers_are_complete_and_unique() -> None:
    seen: dict[str, int] = {}
    for number, *_ in ROWS:
        letters, digits = re.fullmatch(r"REQ-([A-Z]+)(\d+)", number).groups()  # type: ignore[union-attr]
        assert int(digits) == seen.get(letters, 0) + 1, number
        seen[letters] = int(digits)
    assert set(seen) == {"P", "S", "Y", "T", "M", "R"}, "a whole section is missing"
