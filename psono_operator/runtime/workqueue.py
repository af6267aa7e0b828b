"""A keyed queue: each key at most once, one due time, never two workers on one key.

Rules E1 to E7. The queue holds keys and nothing else; what is to be done is read from the cache when the
key is taken. It belongs to one event loop and knows neither reconcilers nor what a key stands for.

Fairness: keys come in groups, by default their namespaces. Within a level the groups take turns; each has
its own share of the bucket of retries; and with a ``limit``, workers beyond it only serve groups of which
nothing is being processed. So a group with thousands of keys that fail slowly delays the first key of
another by nothing.

A key is in one of four places: nowhere; waiting for its due time (the heap); ready (one of two levels); or
being processed. What is added during processing is kept in the key's entry and takes effect at ``done``.
There is one heap and at most one timer, armed only while someone waits in ``get`` (E3); no task is ever
started here. A waiter that was woken owns nothing until it runs, so cancelling it loses nothing (E6).
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress

from psono_operator.runtime.clock import Clock
from psono_operator.runtime.levels import Levels, Priority
from psono_operator.runtime.queueobserver import NoQueueObserver, QueueObserver
from psono_operator.runtime.resources import ObjectKey
from psono_operator.runtime.retries import RetryDelays

__all__ = ["NoQueueObserver", "Priority", "QueueObserver", "ShutDown", "WorkQueue"]

EARLY = 0.001
"""Seconds by which a key may be handed out early, so that a timer that fires a rounding error too soon
need not be set again."""


class ShutDown(Exception):
    """The queue is shut down: there is nothing more to get."""


class _Entry:
    """What the queue knows of one key while it is anywhere in the queue."""

    __slots__ = ("due", "group", "key", "level", "priority", "started", "ticket")

    def __init__(self, key: ObjectKey, group: str) -> None:
        self.key = key
        self.group = group
        self.due: float | None = None  # pending due time; None: nothing is pending
        self.priority = Priority.LOW  # of what is pending
        self.level = Priority.LOW  # with which it was taken
        self.ticket = 0  # the heap item that counts; 0: none
        self.started: float | None = None  # since when it is processed; None: it is not


def _namespace(key: ObjectKey) -> str:
    return key.namespace


class WorkQueue:
    """See the module.

    ``first`` and ``cap`` bound a key's backoff in seconds. ``bucket_rate`` (per second) and ``bucket_burst``
    bound the retries of all keys together (E4). At least every ``low_share``-th key taken is a LOW one if
    any is ready (E5). ``limit`` keys are processed at once, and more only of groups that have none; None: no
    limit. ``group`` says to which a key belongs.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: random.Random,
        *,
        first: float = 1.0,
        cap: float = 300.0,
        bucket_rate: float = 10.0,
        bucket_burst: int = 100,
        low_share: int = 10,
        limit: int | None = None,
        group: Callable[[ObjectKey], str] = _namespace,
        observer: QueueObserver | None = None,
    ) -> None:
        self.name = name
        self._clock = clock
        self._first = first
        self._cap = cap
        self._delays = RetryDelays(rng, bucket_rate, bucket_burst)
        self._limit = limit
        self._group = group
        self._observer = observer or NoQueueObserver()
        self._entries: dict[ObjectKey, _Entry] = {}
        self._heap: list[tuple[float, int, _Entry]] = []
        self._tickets = 0
        self._stale = 0  # heap items that no longer count
        self._ready: Levels[str, _Entry] = Levels(low_share)
        self._due_since = 0.0  # when a key became ready first, or was taken last
        self._failures: dict[ObjectKey, int] = {}
        self._processing: set[_Entry] = set()
        self._busy: Counter[str] = Counter()  # how many keys of a group are being processed
        self._idle = asyncio.Event()
        self._idle.set()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._closed = False

    # -- adding -------------------------------------------------------------------------------------

    def add(self, key: ObjectKey, priority: Priority = Priority.HIGH) -> None:
        """Due now. Cancels a pending later time (E2)."""
        now = self._clock.monotonic()
        self._schedule(key, now, now, priority)

    def add_after(self, key: ObjectKey, seconds: float, priority: Priority = Priority.LOW) -> None:
        """Due in ``seconds``, or earlier if it already is due earlier (E2)."""
        now = self._clock.monotonic()
        self._schedule(key, now, now + max(0.0, seconds), priority)

    def retry(
        self, key: ObjectKey, *, first: float | None = None, cap: float | None = None, at_least: float = 0.0
    ) -> float:
        """Due after the key's next backoff step, doubled from ``first`` to ``cap`` seconds, with jitter.

        Returns the delay in seconds: the largest of that step, the turn in the bucket of all retries and
        ``at_least`` (a server's Retry-After) (E4). The key keeps its priority (E5). A time that is already
        pending and earlier stays.
        """
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        now = self._clock.monotonic()
        step = self._delays.step(
            failures, self._first if first is None else first, self._cap if cap is None else cap
        )
        delay = max(step, self._delays.turn(now, self._group(key)), at_least)
        entry = self._entries.get(key)
        level = entry.level if entry is not None and entry.started is not None else Priority.LOW
        self._observer.retried()
        self._schedule(key, now, now + delay, level)
        return delay

    def forget(self, key: ObjectKey) -> None:
        """The key's next failure is its first again."""
        self._failures.pop(key, None)

    def failures(self, key: ObjectKey) -> int:
        """How many times in a row the key was retried."""
        return self._failures.get(key, 0)

    # -- taking -------------------------------------------------------------------------------------

    async def get(self) -> ObjectKey:
        """The next due key, marked as being processed; waits for one. Raises ShutDown when it is over."""
        while True:
            if self._closed:
                raise ShutDown(self.name)
            now = self._clock.monotonic()
            self._promote(now)
            entry = self._pop()
            if entry is not None:
                return self._take(entry, now)
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._arm(now)
            try:
                await waiter
            except BaseException:
                with suppress(ValueError):
                    self._waiters.remove(waiter)
                if waiter.done() and not waiter.cancelled():
                    self._wake(1)  # it was woken for a key and cannot take it
                raise

    def done(self, key: ObjectKey) -> None:
        """The key's processing has ended; what was added meanwhile becomes takeable.

        ValueError for a key that is not being processed.
        """
        entry = self._entries.get(key)
        if entry is None or entry.started is None:
            raise ValueError(f"{key} is not being processed")
        now = self._clock.monotonic()
        self._observer.worked(now - entry.started)
        entry.started = None
        self._processing.discard(entry)
        self._busy[entry.group] -= 1
        if not self._busy[entry.group]:
            del self._busy[entry.group]
        if not self._processing:
            self._idle.set()
        if entry.due is None:
            del self._entries[key]
        else:
            self._place(entry, now)
        if self._waiters and self._ready:
            self._wake(1)  # the limit may have kept them from what is ready

    # -- the end ------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """Refuse adds, drop what is pending, wake every waiting ``get`` (E7)."""
        self._closed = True
        self._disarm()
        self._heap.clear()
        self._ready.clear()
        self._failures.clear()
        for entry in self._processing:
            entry.due = None
        self._entries = {entry.key: entry for entry in self._processing}
        self._wake(len(self._waiters))

    async def drain(self, deadline: float) -> bool:
        """Wait up to ``deadline`` seconds until nothing is processed; whether that was reached."""
        try:
            async with asyncio.timeout(max(0.0, deadline)):
                await self._idle.wait()
        except TimeoutError:
            return not self._processing
        return True

    # -- looking (for metrics; constant tasks, at most one step per worker) ---------------------------

    @property
    def depth(self) -> int:
        """How many keys are due and not taken."""
        if not self._closed:
            self._promote(self._clock.monotonic())
        return len(self._ready)

    @property
    def scheduled(self) -> int:
        """How many keys wait for a later time."""
        return len(self._heap) - self._stale

    def unfinished_seconds(self) -> float:
        """Seconds of work in progress, summed over the keys being processed."""
        now = self._clock.monotonic()
        return sum(now - entry.started for entry in self._processing if entry.started is not None)

    def longest_running_seconds(self) -> float:
        """Seconds for which the oldest key is being processed; 0 when none is."""
        now = self._clock.monotonic()
        return max((now - e.started for e in self._processing if e.started is not None), default=0.0)

    def overlooked_seconds(self) -> float:
        """Seconds for which a key has been due while a worker waited for one; 0 in good health (N3)."""
        if not self._waiters:
            return 0.0
        now = self._clock.monotonic()
        if self._ready and (self._limit is None or len(self._processing) < self._limit):
            return now - self._due_since
        first = next((due for due, ticket, entry in self._heap[:1] if entry.ticket == ticket), now)
        return max(0.0, now - first)

    # -- inside -------------------------------------------------------------------------------------

    def _schedule(self, key: ObjectKey, now: float, due: float, priority: Priority) -> None:
        """The earliest due time and the highest priority of all pending adds count (E2, E5)."""
        if self._closed:
            return
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(key, self._group(key))
        if entry.due is None:
            entry.priority = priority
            entry.due = due
        else:
            raised = priority > entry.priority
            if raised:
                entry.priority = priority
            if entry.started is None and entry.ticket == 0:  # ready already
                if raised:
                    self._ready.discard(entry.group, entry, Priority.LOW)
                    self._ready.add(entry.group, entry, Priority.HIGH)
                return
            if due >= entry.due:
                return
            entry.due = due
        if entry.started is None:
            self._place(entry, now)

    def _place(self, entry: _Entry, now: float) -> None:
        """Put a pending entry that is not being processed where it belongs."""
        due = entry.due
        assert due is not None  # noqa: S101 - only called for pending entries
        if entry.ticket:
            entry.ticket = 0
            self._stale += 1
            self._compact()
        if due <= now + EARLY:
            self._make_ready(entry)
            self._wake(1)
            return
        self._tickets += 1
        entry.ticket = self._tickets
        heapq.heappush(self._heap, (due, entry.ticket, entry))
        if self._waiters:
            self._arm(now)

    def _make_ready(self, entry: _Entry) -> None:
        if not self._ready:
            self._due_since = self._clock.monotonic()
        self._ready.add(entry.group, entry, entry.priority)
        self._observer.added()

    def _promote(self, now: float) -> None:
        """Move what has become due from the heap to its level, and wake as many waiters.

        Whoever promotes must wake: the timer finds nothing left to do then.
        """
        moved = 0
        heap = self._heap
        while heap and (heap[0][0] <= now + EARLY or heap[0][2].ticket != heap[0][1]):
            _, ticket, entry = heapq.heappop(heap)
            if entry.ticket == ticket:
                entry.ticket = 0
                self._make_ready(entry)
                moved += 1
            else:
                self._stale -= 1
        self._wake(moved)

    def _compact(self) -> None:
        """Rebuild the heap once most of it no longer counts: constant cost per add, bounded memory."""
        if self._stale > 64 and self._stale * 2 > len(self._heap):
            self._heap = [item for item in self._heap if item[2].ticket == item[1]]
            heapq.heapify(self._heap)
            self._stale = 0

    def _pop(self) -> _Entry | None:
        full = self._limit is not None and len(self._processing) >= self._limit
        return self._ready.pop(self._is_idle if full else None)

    def _is_idle(self, group: str) -> bool:
        return group not in self._busy

    def _take(self, entry: _Entry, now: float) -> ObjectKey:
        if entry.due is not None:
            self._observer.waited(max(0.0, now - entry.due))
        entry.level = entry.priority
        entry.due = None
        entry.started = now
        self._processing.add(entry)
        self._busy[entry.group] += 1
        self._due_since = now
        self._idle.clear()
        return entry.key

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def _arm(self, now: float) -> None:
        """Set the one timer to the earliest due time, unless it already fires by then (E3)."""
        if not self._heap:
            return
        due = self._heap[0][0]
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        self._promote(now)
        if self._waiters:
            self._arm(now)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
