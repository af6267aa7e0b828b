"""Watches: replay, live events, bookmarks, expiry (rule Q3, Q10, rules B1 to B3, R4).

A watch is an async iterator of (type, object); sending them is HTTP's business. ``sendInitialEvents`` is
supported and can be refused like a server without the feature would.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from psono_operator.sandbox.kube.clock import Clock
from psono_operator.sandbox.kube.listing import Scope, number, parse_version
from psono_operator.sandbox.kube.objects import Obj
from psono_operator.sandbox.kube.status import bad_options, failure, forbidden_field
from psono_operator.sandbox.kube.storage import (
    ADDED,
    DELETED,
    MODIFIED,
    Change,
    CompactedError,
    Storage,
    Subscription,
)

BOOKMARK, ERROR = "BOOKMARK", "ERROR"
_END_ANNOTATION = "k8s.io/initial-events-end"
_RESOLUTION = 0.001
"""Seconds; a clock coarser than the difference of two of its values would never reach a time nearer by."""
_LAST_BOOKMARK = 2.0
Event = tuple[str, Obj]


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What the query of a watch says, with the server's defaults filled in; seconds."""

    revision: int
    timeout: float
    bookmarks: bool
    initial: bool
    mark_end: bool

    @classmethod
    def read(cls, query: Mapping[str, str], rng: random.Random, *, initial_events: bool) -> WatchOptions:
        """From a query; 422 and 500 for what a server refuses."""
        version = query.get("resourceVersion", "")
        send = query.get("sendInitialEvents")
        match = query.get("resourceVersionMatch", "")
        if send is not None and not initial_events:
            detail = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            raise bad_options("ListOptions", forbidden_field("sendInitialEvents", detail))
        if send is not None and match != "NotOlderThan":
            detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise bad_options("ListOptions", forbidden_field("resourceVersionMatch", detail))
        if send is None and match:
            detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise bad_options("ListOptions", forbidden_field("resourceVersionMatch", detail))
        asked = parse_version(version, watch=True) if version else 0
        bookmarks = flag(query, "allowWatchBookmarks")
        return cls(
            revision=asked,
            timeout=float(number(query, "timeoutSeconds") or rng.uniform(1800, 3600)),
            bookmarks=bookmarks,
            initial=send == "true" or (send is None and asked == 0),
            mark_end=bookmarks and (send == "true" or version == "0"),
        )


def flag(query: Mapping[str, str], name: str) -> bool:
    """A boolean parameter: present and neither ``0`` nor ``false``."""
    return query.get(name, "false").lower() not in ("0", "false")


class Watch:
    """One watch of ``scope``, with a bookmark every ``bookmark_interval`` seconds if it asked for them."""

    def __init__(
        self, storage: Storage, clock: Clock, scope: Scope, options: WatchOptions, *, bookmark_interval: float
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._scope = scope
        self._options = options
        self._interval = bookmark_interval
        self._sent = 0

    async def events(self) -> AsyncIterator[Event]:
        """The events until the watch times out, is closed, or cannot go on (its last event is an ERROR)."""
        table, options = self._scope.resource.storage, self._options
        with self._storage.subscribed(table) as subscription:
            try:
                backlog = self._backlog(table)
            except CompactedError:
                current = self._storage.compacted
                message = f"too old resource version: {options.revision} ({current})"
                yield ERROR, failure(410, "Expired", message)
                return
            for event in backlog:
                yield event
            async for event in self._live(subscription):
                yield event

    def _backlog(self, table: str) -> list[Event]:
        options = self._options
        if options.initial:
            rows = sorted(self._storage.objects(table).items())
            self._sent = self._storage.revision
            events: list[Event] = [(ADDED, obj) for key, obj in rows if self._scope.covers(key, obj)]
            if options.mark_end:
                events.append(self._bookmark({_END_ANNOTATION: "true"}))
            return events
        self._sent = options.revision or self._storage.revision
        return list(filter(None, map(self._seen, self._storage.since(table, self._sent))))

    def _seen(self, change: Change) -> Event | None:
        """What a change looks like through the selector."""
        if change.revision <= self._sent:
            return None
        self._sent = change.revision
        now = change.type != DELETED and self._scope.covers(change.key, change.object)
        before = change.previous is not None and self._scope.covers(change.key, change.previous)
        if now:
            return (MODIFIED if before else ADDED), change.object
        if not before or change.previous is None:
            return None
        last = dict(change.previous)
        last["metadata"] = dict(last["metadata"], resourceVersion=str(change.revision))
        return DELETED, last

    def _bookmark(self, annotations: Mapping[str, str] | None = None) -> Event:
        resource = self._scope.resource
        self._sent = max(self._sent, self._storage.revision)
        metadata: Obj = {"resourceVersion": str(self._sent)}
        if annotations:
            metadata["annotations"] = dict(annotations)
        return BOOKMARK, {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}

    async def _live(self, subscription: Subscription) -> AsyncIterator[Event]:
        start = self._clock.monotonic()
        end = start + self._options.timeout
        next_bookmark = min(start + self._interval, max(start, end - _LAST_BOOKMARK))
        while not subscription.closed:
            subscription.wake.clear()
            while subscription.pending:
                event = self._seen(subscription.pending.popleft())
                if event is not None:
                    yield event
            now = self._clock.monotonic()
            if self._options.bookmarks and (subscription.bookmark or now >= next_bookmark):
                yield self._bookmark()
                if now >= next_bookmark:
                    following = now + self._interval
                    last = end - _LAST_BOOKMARK
                    next_bookmark = last if now < last < following else following
            subscription.bookmark = False
            if now >= end:
                return
            if not subscription.wake.is_set():
                wait = min(end, next_bookmark if self._options.bookmarks else end) - now
                await _wait(subscription.wake, max(wait, _RESOLUTION))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
