"""Time for tests: the loop's own, made virtual by looptime, with a wall clock that follows it.

Mark a test with ``@pytest.mark.looptime`` and give components a :class:`VirtualClock`: then sleeping an
hour takes no time, and ``asyncio.timeout`` and aiohttp's deadlines agree with the component's clock.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

EPOCH = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


class VirtualClock:
    """Fulfils ``runtime.clock.Clock``; ``skew`` is how far the wall clock has been set off, in seconds."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self._start = start
        self.skew = 0.0

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.monotonic() + self.skew)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
