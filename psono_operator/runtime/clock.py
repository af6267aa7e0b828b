"""The only door to time.

Every component takes a :class:`Clock` through its constructor, so tests run on virtual time and never
sleep (rule N7). Two readings that must not be mixed: ``monotonic`` orders things within this process,
``now`` is the wall clock and may jump; only persisted timestamps come from it (rule J3).
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What a component may ask about time."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""

    def now(self) -> datetime:
        """The wall clock, as an aware UTC datetime."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``; at once (but not before other tasks ran) for zero and less."""


class LoopClock:
    """The clock of the running event loop.

    ``monotonic`` is the loop's own time, so it agrees with ``asyncio.timeout`` and with a test loop
    whose time is virtual.
    """

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
