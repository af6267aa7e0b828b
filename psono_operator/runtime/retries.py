"""How long a failed key waits: its own doubling backoff, and a turn in the bucket of all retries (E4).

Computes delays and sleeps for none; knows no key. The work queue schedules.
"""

from __future__ import annotations

import random

JITTER = 0.1
"""The share by which a step may be longer or shorter, so that keys that failed together part ways."""


class RetryDelays:
    """``rate`` retries a second over all keys, after ``burst`` that are free."""

    def __init__(self, rng: random.Random, rate: float, burst: int) -> None:
        self._rng = rng
        self._interval = 1.0 / rate
        self._burst = burst * self._interval
        self._next = float("-inf")  # when the next token would be there if tokens could not be saved up

    def step(self, failures: int, first: float, cap: float) -> float:
        """Seconds after the ``failures``-th failure in a row: ``first``, doubled up to ``cap``, ± JITTER."""
        delay = min(cap, first * 2.0 ** min(failures - 1, 60))
        return delay * self._rng.uniform(1.0 - JITTER, 1.0 + JITTER)

    def turn(self, now: float) -> float:
        """Take a token of the bucket; the seconds until it is there."""
        self._next = max(self._next, now) + self._interval
        return max(0.0, self._next - now - self._burst)
