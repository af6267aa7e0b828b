"""How long a failed key waits: its own doubling backoff, and a turn in the bucket of all retries (E4).

Computes delays and sleeps for none; knows no key. The work queue schedules.
"""

from __future__ import annotations

import random

JITTER = 0.1
"""The share by which a step may be longer or shorter, so that keys that failed together part ways."""


class RetryDelays:
    """``rate`` retries a second over all keys, after ``burst`` that are free.

    The bucket is shared fairly: groups that have used up what they saved share the rate alike, and one that
    joins them waits for none of the others.
    """

    def __init__(self, rng: random.Random, rate: float, burst: int) -> None:
        self._rng = rng
        self._interval = 1.0 / rate
        self._burst = burst * self._interval
        self._next: dict[str, float] = {}
        """When a group's next token would be there if tokens could not be saved up; absent: now."""
        self._pruned = float("-inf")

    def step(self, failures: int, first: float, cap: float) -> float:
        """Seconds after the ``failures``-th failure in a row: ``first``, doubled up to ``cap``, ± JITTER."""
        delay = min(cap, first * 2.0 ** min(failures - 1, 60))
        return delay * self._rng.uniform(1.0 - JITTER, 1.0 + JITTER)

    def turn(self, now: float, group: str = "") -> float:
        """Take a token of the bucket for ``group``; the seconds until it is there."""
        if now - self._pruned >= 1.0:
            self._pruned = now
            self._next = {name: due for name, due in self._next.items() if due > now}
        before = max(self._next.get(group, now), now)
        self._next[group] = before + self._interval * (len(self._next) + (group not in self._next))
        return max(0.0, self._next[group] - now - self._burst)
