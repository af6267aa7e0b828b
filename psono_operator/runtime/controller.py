"""Workers between a queue and a reconciler.

The controller knows no resource by name: predicates and mappers, given from outside, turn notifications
into keys; workers take keys and call ``reconcile`` under a deadline; the result says when to come back.

Rules: C7 (no work before every cache is synced), C8 (a key is all that is handed on), E4 and F7 (what
each kind of ending means for the key), F3 (a conflict is no error), F6 (one deadline around it all), F8 and
N8 (what is logged), N1 (an exception is one key's problem, a dead worker is the process's), N2 (the end).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from psono_operator.runtime.clock import Clock
from psono_operator.runtime.errors import Conflict, KubeError, Throttled
from psono_operator.runtime.gate import NotLeader
from psono_operator.runtime.informer import Informer
from psono_operator.runtime.notifications import Notification
from psono_operator.runtime.resources import ObjectKey
from psono_operator.runtime.tracebacks import one_line
from psono_operator.runtime.workqueue import Priority, ShutDown, WorkQueue

_log = logging.getLogger(__name__)

LONGEST_WAIT = 180.0
"""Seconds; what a server or a proxy asks for beyond that is not believed (M1)."""

Predicate = Callable[[Notification], bool]
"""Pure: whether a notification is worth a reconcile."""

Mapper = Callable[[Notification], Iterable[ObjectKey]]
"""Pure: which keys a notification concerns."""

Prioritizer = Callable[[Notification], Priority]
"""Pure: how urgent it is."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a reconcile ended: well, and due again after ``requeue_after`` seconds, or only on a change."""

    requeue_after: float | None = None


class TerminalError(Exception):
    """The input is wrong: no retry until it changes, or until ``requeue_after`` seconds have passed.

    The message is logged, so it must hold no value.
    """

    value_free = True

    def __init__(self, message: str, *, requeue_after: float | None = None) -> None:
        self.requeue_after = requeue_after
        super().__init__(message)


class RetryError(Exception):
    """Try again with backoff, doubled from ``first`` to ``cap`` seconds (None: the queue's own).

    ``at_least`` seconds are kept in any case, whatever the jitter.

    The message is logged, so it must hold no value.
    """

    value_free = True

    def __init__(
        self, message: str, *, first: float | None = None, cap: float | None = None, at_least: float = 0.0
    ) -> None:
        self.first = first
        self.cap = cap
        self.at_least = at_least
        super().__init__(message)


class Reconciler(Protocol):
    """The domain's side of the contract."""

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring the world in line with the object ``key``.

        Raises TerminalError (wait for new input), RetryError, or anything else (retry with backoff).
        """


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """Which reconcile the running code belongs to; read it through ``current_reconcile``."""

    controller: str
    key: ObjectKey
    reconcile_id: str


current_reconcile: ContextVar[ReconcileContext | None] = ContextVar("current_reconcile", default=None)
"""Set while a reconcile runs, in the tasks it starts too."""


class ReconcileLogFilter(logging.Filter):
    """Gives every record ``controller``, ``key`` and ``reconcile_id`` (empty outside a reconcile) (N8).

    For handlers: filters of loggers do not see the records of their children.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true."""
        context = current_reconcile.get()
        record.controller = context.controller if context else ""
        record.key = str(context.key) if context else ""
        record.reconcile_id = context.reconcile_id if context else ""
        return True


class ControllerObserver(Protocol):
    """What metrics want to hear (rule E8). Calls must be cheap and must not raise."""

    def started(self) -> None:
        """A worker took a key."""

    def ended(self, result: str, seconds: float) -> None:
        """It let go of it. ``result`` is ``success``, ``error``, ``requeue_after`` or ``canceled``."""

    def failed(self, kind: str) -> None:
        """Besides ``ended``: ``conflict``, ``terminal``, ``timeout``, ``unexpected`` or ``error``."""


class NoControllerObserver:
    """Hears nothing."""

    def started(self) -> None: ...

    def ended(self, result: str, seconds: float) -> None: ...

    def failed(self, kind: str) -> None: ...


class Controller:
    """A service. ``workers`` reconciles run at once, each for at most ``reconcile_timeout`` seconds.

    ``spare`` more workers help where the queue's limit lets them: for namespaces of which none is worked on.

    ``informers`` are awaited before the first reconcile, as are those given to ``watch``; every
    ``sync_timeout`` seconds of waiting are worth an error line, but never a start without them (C7).
    """

    def __init__(
        self,
        name: str,
        queue: WorkQueue,
        reconciler: Reconciler,
        *,
        clock: Clock,
        informers: Sequence[Informer] = (),
        workers: int = 32,
        spare: int = 0,
        reconcile_timeout: float = 60.0,
        sync_timeout: float = 120.0,
        observer: ControllerObserver | None = None,
        rng: random.Random | None = None,
        permission: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``permission`` is awaited once the caches are filled: a standby waits there to lead (K6)."""
        self.name = name
        self.workers = workers
        self._spare = spare
        self._queue = queue
        self._reconciler = reconciler
        self._clock = clock
        self._informers = list(informers)
        self._reconcile_timeout = reconcile_timeout
        self._sync_timeout = sync_timeout
        self._observer = observer or NoControllerObserver()
        self._rng = rng or random.SystemRandom()
        self._permission = permission
        self._running: dict[ObjectKey, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False

    def watch(
        self,
        informer: Informer,
        mapper: Mapper,
        predicate: Predicate,
        priority: Prioritizer,
        *,
        new_input: Predicate | None = None,
    ) -> None:
        """Queue the keys that ``mapper`` finds for each notification that ``predicate`` lets through.

        ``new_input`` names the notifications that make earlier failures meaningless (a changed spec or
        credential, another uid): the keys' backoff starts over (E4, C3). Call before the informer runs.
        """
        queue = self._queue

        def handle(notification: Notification) -> None:
            if not predicate(notification):
                return
            level = priority(notification)
            forget = new_input is not None and new_input(notification)
            for key in mapper(notification):
                if forget:
                    queue.forget(key)
                queue.add(key, level)

        informer.add_handler(handle)
        if informer not in self._informers:
            self._informers.append(informer)

    async def run(self) -> None:
        """Wait for the caches, then work until the queue is shut down. NotLeader if the gate closed."""
        if self._stopped:
            return
        async with asyncio.TaskGroup() as group:
            self._tasks.append(group.create_task(self._start(group)))

    def oldest_reconcile_age(self) -> float:
        """Seconds for which the longest running reconcile has run; 0 when none runs (N3)."""
        return self._clock.monotonic() - min(self._running.values()) if self._running else 0.0

    # -- the end (N2, E7) -----------------------------------------------------------------------------

    def shut_down(self) -> None:
        """Start no further reconcile."""
        self._stopped = True
        self._queue.shut_down()
        if self._tasks and len(self._tasks) == 1:  # still waiting for the caches
            self._tasks[0].cancel()

    async def drain(self, budget: float) -> bool:
        """Wait up to ``budget`` seconds for running reconciles; whether all have ended."""
        return await self._queue.drain(budget)

    async def cancel_rest(self) -> None:
        """Cancel what still runs and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- inside ---------------------------------------------------------------------------------------

    async def _start(self, group: asyncio.TaskGroup) -> None:
        for informer in self._informers:
            while not informer.synced:
                try:
                    async with asyncio.timeout(self._sync_timeout):
                        await informer.wait_synced()
                except TimeoutError:
                    _log.error(
                        "controller %s still waits for the cache %s: %s",
                        self.name,
                        informer.name,
                        informer.problem or "no answer yet",
                    )
        if self._permission is not None:
            await self._permission()
        if not self._stopped:
            self._tasks += [group.create_task(self._work()) for _ in range(self.workers + self._spare)]
            _log.info("controller %s started %d workers", self.name, self.workers)

    async def _work(self) -> None:
        while True:
            try:
                key = await self._queue.get()
            except ShutDown:
                return
            try:
                await self._process(key)
            finally:
                self._queue.done(key)

    async def _process(self, key: ObjectKey) -> None:
        token = current_reconcile.set(ReconcileContext(self.name, key, f"{self._rng.getrandbits(32):08x}"))
        started = self._running[key] = self._clock.monotonic()
        self._observer.started()
        result = "canceled"
        try:
            result = await self._attempt(key)
        finally:
            del self._running[key]
            self._observer.ended(result, self._clock.monotonic() - started)
            current_reconcile.reset(token)

    async def _attempt(self, key: ObjectKey) -> str:
        """One reconcile and what follows from its ending; the result for metrics."""
        deadline = asyncio.timeout(self._reconcile_timeout)
        try:
            async with deadline:
                result = await self._reconciler.reconcile(key)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Nobody cancelled this worker: something inside was cancelled and leaked. Were it to travel on,
            # the worker would be gone without a sound (N1).
            return self._unexpected(key, error)
        except NotLeader:
            raise
        except TerminalError as error:
            return self._terminal(key, error)
        except TimeoutError as error:
            if not deadline.expired():
                return self._unexpected(key, error)
            return self._timed_out(key)
        except Exception as error:  # noqa: BLE001 - anything else is this key's problem only (N1)
            return self._failed(key, error)
        self._queue.forget(key)  # before the next time is set (E4)
        if result.requeue_after is None:
            _log.debug("%s reconciled", key)
            return "success"
        self._queue.add_after(key, result.requeue_after, Priority.LOW)
        _log.debug("%s reconciled, due again in %.1f s", key, result.requeue_after)
        return "requeue_after"

    def _terminal(self, key: ObjectKey, error: TerminalError) -> str:
        self._queue.forget(key)
        if error.requeue_after is not None:
            self._queue.add_after(key, error.requeue_after, Priority.LOW)
        self._observer.failed("terminal")
        if error.requeue_after is None:
            _log.warning("%s waits for new input: %s", key, error)
        else:
            _log.warning("%s waits for new input, at most %.0f s: %s", key, error.requeue_after, error)
        return "error"

    def _timed_out(self, key: ObjectKey) -> str:
        delay = self._queue.retry(key)
        self._observer.failed("timeout")
        _log.warning(
            "%s took longer than %g s and was cut off; again in %.1f s", key, self._reconcile_timeout, delay
        )
        return "error"

    def _failed(self, key: ObjectKey, error: Exception) -> str:
        match error:
            case Conflict():  # what was read is out of date; the news is on its way (F3)
                delay = self._queue.retry(key)
                self._observer.failed("conflict")
                _log.debug("%s met a conflict; again in %.1f s", key, delay)
                return "requeue_after"
            case RetryError():
                delay = self._queue.retry(key, first=error.first, cap=error.cap, at_least=error.at_least)
            case Throttled():
                # With jitter, or all that were put off together come back together (M1).
                floor = min(error.retry_after or 0.0, LONGEST_WAIT) * self._rng.uniform(1.0, 1.25)
                delay = self._queue.retry(key, at_least=floor)
            case KubeError():
                delay = self._queue.retry(key)
            case _:
                return self._unexpected(key, error)
        self._observer.failed("error")
        _log.warning("%s failed: %s; again in %.1f s", key, error, delay)
        return "error"

    def _unexpected(self, key: ObjectKey, error: BaseException) -> str:
        delay = self._queue.retry(key)
        self._observer.failed("unexpected")
        _log.error("%s failed unexpectedly: %s; again in %.1f s", key, one_line(error), delay)
        return "error"
