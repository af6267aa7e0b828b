"""Fixtures for every room."""

from __future__ import annotations

import asyncio

import pytest

from tests.controlplane_fixture import _control_plane
from tests.prerequisites import lacking

__all__ = ["_control_plane"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One closing line for each thing this machine lacks, instead of one for each skipped test."""
    if terminalreporter.stats.get("skipped"):
        for line in lacking():
            terminalreporter.write_line(f"note: {line}")


# On Python 3.11 to 3.13 the asyncio plugin asks for the current loop before it sets its own, which makes one
# that nobody closes; its ResourceWarning then fails whatever test the garbage collector runs in. With the
# current loop set to none there is none to make.
asyncio.set_event_loop(None)
