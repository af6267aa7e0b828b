"""Leader election on a Lease, and the write gate that follows from it.

    standby ─ the lease is free ─► leading ─ not renewed in time, or somebody else holds it ─► lost (the end)

Guarantee: at any instant at most one process with the same lease finds its gate open, as long as their
clocks run equally fast to within the margin. The holder counts from the moment a renewal was *sent*, the
others from the moment they *saw* the record change, which is later; so the gate closes first (K4).
Losing the lease is the end of the process, since only a restart gives a clean one: no draining, exit code 1.

Rules: K1 (local observation), K2 (timing), K3 (races are decided by the resourceVersion), K4 (fencing), K5
(released after the work has stopped), K7. It knows nothing of what is led.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

from psono_operator.runtime import lease
from psono_operator.runtime.client import KubeClient
from psono_operator.runtime.clock import Clock
from psono_operator.runtime.errors import AlreadyExists, Conflict, KubeError, NotFound
from psono_operator.runtime.gate import NotLeader
from psono_operator.runtime.lease import LEASES, Observation, Record
from psono_operator.runtime.resources import KubeObject, ObjectKey

_log = logging.getLogger(__name__)

_INSTANT = 0.001
"""Seconds too short for a request; below that a deadline has passed."""
JITTER = 1.2
"""A wait lasts up to this many retry periods."""


class LostLease(Exception):
    """The lease is somebody else's, or could not be renewed in time."""

    value_free = True


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. ``margin`` is how much earlier than the lease the gate closes."""

    lease_duration: int = 15
    renew_deadline: float = 10.0
    """How long a renewal may be tried, from its first attempt."""
    retry_period: float = 2.0
    margin: float = 2.0

    def __post_init__(self) -> None:
        """Raises ValueError unless a renewal that is given up was given up before the gate closed (K2)."""
        pause = self.retry_period * JITTER
        if not self.lease_duration - self.margin >= self.renew_deadline + pause > 2 * pause > 0:
            raise ValueError("lease duration, renew deadline and retry period must be in falling order")


class LeaseGate:
    """The write gate of a process that takes part in an election (K4)."""

    def __init__(self, clock: Clock, timing: Timing) -> None:
        self._clock = clock
        self._valid_for = timing.lease_duration - timing.margin
        self._sent: float | None = None

    def remaining(self) -> float:
        """Seconds until the lease, counted from the last renewal sent, could run out. Raises NotLeader."""
        left = -1.0 if self._sent is None else self._sent + self._valid_for - self._clock.monotonic()
        if left <= 0:
            raise NotLeader("this process does not hold the lease")
        return left

    @property
    def is_open(self) -> bool:
        """Whether writing is allowed now."""
        return self._sent is not None and self._sent + self._valid_for > self._clock.monotonic()

    def renewed(self, sent: float) -> None:
        """A renewal that was sent at ``sent`` (monotonic) has been accepted."""
        self._sent = sent

    def close(self) -> None:
        """No more writes."""
        self._sent = None


class LeaderElector:
    """A service: waits for the lease, then renews it; raises LostLease when it is gone."""

    name = "leader-election"

    def __init__(
        self,
        client: KubeClient,
        key: ObjectKey,
        identity: str,
        *,
        clock: Clock,
        rng: random.Random,
        timing: Timing | None = None,
        on_change: Callable[[bool], None] | None = None,
    ) -> None:
        """``client`` must not pass through our own gate; ``identity`` is unique to this process."""
        self._client = client
        self._key = key
        self._identity = identity
        self._clock = clock
        self._rng = rng
        self._timing = timing or Timing()
        self._on_change = on_change or (lambda leads: None)
        self.gate = LeaseGate(clock, self._timing)
        self._seen: Observation | None = None
        self._mine: KubeObject | None = None
        self._leading = asyncio.Event()
        self._released = False
        self._lock = asyncio.Lock()
        """Owns ``_seen`` and ``_mine`` across a request: renewing and releasing never overlap."""
        self._last_renewal = clock.monotonic()

    @property
    def leads(self) -> bool:
        """Whether this process believes to hold the lease."""
        return self._leading.is_set()

    async def wait_leading(self) -> None:
        """Return once this process leads."""
        await self._leading.wait()

    def problem(self) -> str | None:
        """For liveness: leading in name, but not renewed for longer than the lease lasts (N3)."""
        if self.leads and self._clock.monotonic() - self._last_renewal > 2 * self._timing.lease_duration:
            return "leads, but has not renewed its lease"
        return None

    async def run(self) -> None:
        """Stand by, then lead. Raises LostLease; never returns before ``release``."""
        while not self._released and not await self._try_to_acquire():
            await self._pause()
        if self._released:
            return
        _log.info("this process leads now, as %s", self._identity)
        self._on_change(True)
        self._leading.set()
        try:
            while not self._released:
                since = self._clock.monotonic() - self._last_renewal
                await self._pause(
                    at_most=self._timing.retry_period * JITTER - since
                )  # a slow answer is time gone by
                await self._renew_in_time()
        finally:
            if not self._released:
                self.gate.close()
                self._on_change(False)

    async def release(self) -> None:
        """Give the lease up; call when no write is under way any more (K5). A failure is only logged."""
        self._released = True
        self.gate.close()
        async with self._lock:
            if self._mine is None:
                return
            record = lease.released(lease.record_of(self._mine), self._clock.now())
            try:
                await self._write(record, self._mine, self._timing.retry_period)
                _log.info("lease %s released", self._key)
            except KubeError as error:
                _log.warning("lease %s could not be released: %s", self._key, error)
            self._mine = None
            self._leading.clear()
            self._on_change(False)

    # -- standing by ----------------------------------------------------------------------------------

    async def _try_to_acquire(self) -> bool:
        """One look at the lease; whether it is ours now."""
        async with self._lock:
            try:
                return await self._look_and_take()
            except (Conflict, AlreadyExists):
                return False  # somebody was faster (K3)
            except KubeError as error:
                _log.warning("the lease %s cannot be had: %s", self._key, error)
                return False

    async def _look_and_take(self) -> bool:
        timeout = self._timing.retry_period
        try:
            found = await self._client.get(LEASES, self._key, timeout=timeout)
        except NotFound:
            record = lease.taken(None, self._identity, self._timing.lease_duration, self._clock.now())
            return await self._take(record, None)
        now = self._clock.monotonic()
        known = self._seen.record.holder if self._seen else ""
        self._seen = lease.observe(self._seen, found, now)
        before = self._seen.record
        if before.holder not in {"", known, self._identity}:
            _log.info("standing by: lease %s is held by %s", self._key, before.holder)
        # Our own name can only come from a write of ours whose answer was lost.
        if before.holder != self._identity and not lease.is_free(self._seen, now):
            return False
        record = lease.taken(before, self._identity, self._timing.lease_duration, self._clock.now())
        return await self._take(record, found)

    async def _take(self, record: Record, base: KubeObject | None) -> bool:
        sent = self._clock.monotonic()
        self._mine = await self._write(record, base, self._timing.retry_period)
        self._renewed(sent)
        return True

    # -- leading --------------------------------------------------------------------------------------

    async def _renew_in_time(self) -> None:
        """Renew, as often as it takes, before the deadline. Raises LostLease."""
        deadline = self._clock.monotonic() + self._timing.renew_deadline
        while not self._released:
            left = deadline - self._clock.monotonic()
            if left <= _INSTANT:
                raise LostLease(f"lease {self._key} was not renewed within {self._timing.renew_deadline:g} s")
            try:
                async with self._lock:
                    # None may outlive the deadline (K2), and one that hangs leaves time for another.
                    await self._renew(left * 0.85)
                return
            except KubeError as error:
                _log.warning("lease %s not renewed: %s", self._key, error)
            await self._pause(at_most=deadline - self._clock.monotonic())

    async def _renew(self, timeout: float) -> None:
        if self._mine is None:
            return  # released while we waited for the lock
        sent = self._clock.monotonic()
        record = lease.renewed(lease.record_of(self._mine), self._clock.now())
        try:
            self._mine = await self._write(record, self._mine, timeout)
        except (Conflict, NotFound):
            await self._look_again(timeout)
            return
        self._renewed(sent)

    async def _look_again(self, timeout: float) -> None:
        """The lease is not as we left it: gone, touched, or taken. The next attempt is with what is there."""
        try:
            found = await self._client.get(LEASES, self._key, timeout=timeout)
        except NotFound:
            raise LostLease(f"lease {self._key} was deleted") from None
        if lease.record_of(found).holder != self._identity:
            raise LostLease(f"lease {self._key} is held by somebody else")
        self._mine = found
        sent = self._clock.monotonic()
        record = lease.renewed(lease.record_of(found), self._clock.now())
        self._mine = await self._write(record, found, timeout)
        self._renewed(sent)

    # -- both -----------------------------------------------------------------------------------------

    async def _write(self, record: Record, base: KubeObject | None, timeout: float) -> KubeObject:
        body = lease.lease_body(self._key, record, base)
        if base is None:
            return await self._client.create(LEASES, body, timeout=timeout)
        return await self._client.replace(LEASES, body, timeout=timeout)

    def _renewed(self, sent: float) -> None:
        self._last_renewal = sent
        if not self._released:
            self.gate.renewed(sent)

    async def _pause(self, at_most: float = float("inf")) -> None:
        wait = self._timing.retry_period * self._rng.uniform(1.0, JITTER)
        await self._clock.sleep(max(0.0, min(wait, at_most)))
