"""Reflectors feeding one store, and the listeners that hear what changed.

The informer takes snapshots and changes, writes them into the store and hands the resulting notifications
to its handlers, in order per object. It knows neither HTTP nor queues nor the resource it is about. Several
reflectors, each of one namespace, may feed one store; they never touch the same object.

Rules: C1 (a snapshot is published in one step before anyone hears of it), C7 (``synced`` once every
reflector's first list has been handed to all handlers), C8, N1. A handler that raises is one object's
problem: it is logged and counted and the stream goes on; redelivery (B9) would only fail again, since
handlers are pure. A store that raises ends the informer, and with it the process, whose restart lists anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from psono_operator.runtime.notifications import Notification
from psono_operator.runtime.reflector import Change, ChangeKind, Snapshot
from psono_operator.runtime.store import Notifications, Store, StoreView
from psono_operator.runtime.tracebacks import one_line

_log = logging.getLogger(__name__)

Handler = Callable[[Notification], None]
"""Hears of one change: synchronous and cheap (map to keys, add to a queue)."""

BATCH = 250
"""Notifications handed out before other tasks get a turn (rule N6)."""


class EventSource(Protocol):
    """What the informer wants of a reflector."""

    @property
    def namespace(self) -> str | None:
        """The one namespace it reads, or None for all."""

    @property
    def last_progress(self) -> float:
        """Monotonic seconds of its last event, timeout or attempt."""

    @property
    def last_error(self) -> str | None:
        """What is wrong at the moment, or None."""

    def events(self) -> AsyncIterator[Snapshot | Change]:
        """A snapshot first, then changes and more snapshots; never ends by itself."""


class SourceEnded(Exception):
    """A reflector's stream ended, which it must never do."""

    value_free = True


class Informer:
    """A service. Handlers are added before ``run``; ``store`` is written by nobody else."""

    def __init__(self, name: str, reflectors: Sequence[EventSource], store: Store) -> None:
        if not reflectors:
            raise ValueError("an informer needs at least one reflector")
        self.name = name
        self.handler_errors = 0
        """How many times a handler raised."""
        self.healed = 0
        """How many differences a safety relist found though nothing seemed wrong (C6)."""
        self._reflectors = tuple(reflectors)
        self._store = store
        self._handlers: list[Handler] = []
        self._unsynced = set(range(len(self._reflectors)))
        self._synced = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False

    @property
    def view(self) -> StoreView:
        """The read side of the store."""
        return self._store

    def add_handler(self, handler: Handler) -> None:
        """Call ``handler`` for each change from now on; before ``run``, or it misses the first list."""
        self._handlers.append(handler)

    @property
    def synced(self) -> bool:
        """Whether every reflector's first list is in the store and was handed to the handlers."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return once ``synced``."""
        await self._synced.wait()

    @property
    def last_progress(self) -> float:
        """Monotonic seconds of the last step of the reflector that has not stepped for longest (N3)."""
        return min(reflector.last_progress for reflector in self._reflectors)

    @property
    def problem(self) -> str | None:
        """Why the cache may be out of date, or None."""
        for reflector in self._reflectors:
            error = reflector.last_error
            if error is not None:
                return f"namespace {reflector.namespace}: {error}" if reflector.namespace else error
        if self._unsynced:
            waiting = [self._reflectors[index].namespace or "all namespaces" for index in self._unsynced]
            more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
            return f"waiting for the first list of {', '.join(sorted(waiting)[:3])}{more}"
        return None

    async def run(self) -> None:
        """Feed the store until ``stop`` or cancellation. SourceEnded if a reflector ends by itself."""
        if self._stopped:
            return
        async with asyncio.TaskGroup() as group:
            for index, reflector in enumerate(self._reflectors):
                self._tasks.append(group.create_task(self._feed(index, reflector)))

    async def stop(self) -> None:
        """End ``run`` and wait until its streams are closed."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _feed(self, index: int, reflector: EventSource) -> None:
        stream = reflector.events()
        try:
            async for event in stream:
                if isinstance(event, Snapshot):
                    first = index in self._unsynced
                    found = await self._publish(event, reflector.namespace, first)
                    if event.scheduled and found:
                        self.healed += len(found)
                        _log.info("informer %s: a safety relist found %d differences", self.name, len(found))
                    await self._hand_out(found)
                    if first:
                        self._mark_synced(index)
                elif event.kind is ChangeKind.DELETED:
                    await self._hand_out(self._store.apply_delete(event.object))
                else:
                    await self._hand_out(self._store.apply_upsert(event.object))
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        raise SourceEnded(f"the reflector of {self.name} ended")

    async def _publish(self, snapshot: Snapshot, namespace: str | None, first: bool) -> Notifications:
        """Put a snapshot into the store, in slices for the loop and in one step for readers (C1, N6)."""
        steps = self._store.replacing(snapshot.items, namespace=namespace, initial=first)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                changes: Notifications = end.value
                return changes
            await asyncio.sleep(0)

    def _mark_synced(self, index: int) -> None:
        self._unsynced.discard(index)
        if not self._unsynced:
            self._synced.set()

    async def _hand_out(self, notifications: Sequence[Notification]) -> None:
        for count, notification in enumerate(notifications, 1):
            for handler in self._handlers:
                try:
                    handler(notification)
                except Exception as error:  # noqa: BLE001 - one odd object is one object's problem (N1)
                    self.handler_errors += 1
                    _log.error(
                        "informer %s: a handler failed for %s: %s",
                        self.name,
                        notification.key,
                        one_line(error),
                    )
            if count % BATCH == 0:
                await asyncio.sleep(0)
