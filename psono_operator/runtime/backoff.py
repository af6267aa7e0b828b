"""How long to wait before the next attempt (rule B8).

One :class:`Backoff` belongs to one reflector and is shared by its lists and watches. It computes delays and
sleeps for none of them. A success alone does not reset it: a server that flaps would then be asked at the
first step's rate for ever.
"""

from __future__ import annotations

import random

from psono_operator.runtime.clock import Clock


class Backoff:
    """Delays doubling from ``first`` to half of ``cap`` seconds, each with up to its own length on top as
    jitter.

    So none is longer than ``cap``, unless a server wishes it: whoever comes back is found again within that
    time. The numbers are those of client-go's reflector. After ``reset_after`` seconds of unbroken health
    the next failure is the first again.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        first: float = 0.8,
        factor: float = 2.0,
        cap: float = 30.0,
        reset_after: float = 120.0,
    ) -> None:
        if not 0 < first <= cap / 2 or factor < 1:
            raise ValueError("a backoff needs 0 < first <= cap / 2 and a factor of at least 1")
        self._clock = clock
        self._rng = rng
        self._first = first
        self._factor = factor
        self._cap = cap
        self._reset_after = reset_after
        self._base = first
        self._healthy_since: float | None = None
        self._failures = 0

    @property
    def failures(self) -> int:
        """Failures since the last reset."""
        return self._failures

    def healthy(self) -> None:
        """Things work now. Repeated calls are one healthy period; the next failure ends it."""
        if self._healthy_since is None:
            self._healthy_since = self._clock.monotonic()

    def next(self, floor: float = 0.0) -> float:
        """Count a failure; the seconds to wait, at least the ``floor`` that the server asked for."""
        since, self._healthy_since = self._healthy_since, None
        if since is not None and self._clock.monotonic() - since >= self._reset_after:
            self._base = self._first
            self._failures = 0
        base = self._base
        self._base = min(self._cap / 2, base * self._factor)
        self._failures += 1
        # The jitter comes on top of the server's wish too, or all replicas return in the same instant.
        return max(base, floor) + self._rng.uniform(0.0, base)
