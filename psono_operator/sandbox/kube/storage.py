"""All objects, one global revision counter, and the history that watches replay (rule Q1, Q3).

Like etcd, the storage knows tables, keys and revisions and refuses to know what an object means. Objects
are never changed after they were put. Old states are rebuilt by undoing history, which is how a list is
continued over a snapshot; what was compacted cannot be rebuilt.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from psono_operator.sandbox.kube.objects import Obj

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class Key(NamedTuple):
    """Where an object is in its table; sorts the way a list is sorted."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Change:
    """One write. ``object`` is the state after it (for DELETED: the last state, stamped anew)."""

    revision: int
    type: str
    key: Key
    object: Obj
    previous: Obj | None


class CompactedError(Exception):
    """The asked revision is older than the retained history."""


@dataclass(slots=True, eq=False)
class Subscription:
    """What one watch has still to look at. Owned by that watch; the storage only appends."""

    pending: deque[Change] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    bookmark: bool = False
    closed: bool = False

    def ask_bookmark(self) -> None:
        """Let the watch send a bookmark as soon as it has sent what is pending."""
        self.bookmark = True
        self.wake.set()

    def close(self) -> None:
        """Let the watch end as if its time were over."""
        self.closed = True
        self.wake.set()


class Storage:
    """Tables of objects. Keeps the last ``history_limit`` changes, all tables together."""

    def __init__(self, *, first_revision: int = 1, history_limit: int = 50_000) -> None:
        self.revision = first_revision
        self.compacted = 0
        self._limit = history_limit
        self._tables: dict[str, dict[Key, Obj]] = {}
        self._history: dict[str, deque[Change]] = {}
        self._order: deque[tuple[int, str]] = deque()
        self._subscriptions: dict[str, set[Subscription]] = {}

    def get(self, table: str, key: Key) -> Obj | None:
        """The object as it is now."""
        return self._tables.get(table, {}).get(key)

    def objects(self, table: str) -> Mapping[Key, Obj]:
        """The whole table as it is now."""
        return self._tables.get(table, {})

    def put(self, table: str, key: Key, obj: Obj) -> Obj:
        """Store ``obj`` under a new revision, which becomes its resourceVersion; it belongs to us now."""
        rows = self._tables.setdefault(table, {})
        previous = rows.get(key)
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        rows[key] = obj
        self._publish(table, Change(self.revision, MODIFIED if previous else ADDED, key, obj, previous))
        return obj

    def remove(self, table: str, key: Key) -> Obj:
        """Remove the object; the result carries the revision of the removal, like its DELETED event (B9)."""
        previous = self._tables[table].pop(key)
        self.revision += 1
        last = dict(previous)
        last["metadata"] = dict(previous["metadata"], resourceVersion=str(self.revision))
        self._publish(table, Change(self.revision, DELETED, key, last, previous))
        return last

    def at(self, table: str, revision: int) -> dict[Key, Obj]:
        """The table as it was at ``revision``; raises CompactedError."""
        if revision < self.compacted:
            raise CompactedError
        rows = dict(self._tables.get(table, {}))
        for change in reversed(self._history.get(table, ())):
            if change.revision <= revision:
                break
            if change.previous is None:
                rows.pop(change.key, None)
            else:
                rows[change.key] = change.previous
        return rows

    def since(self, table: str, revision: int) -> list[Change]:
        """The changes after ``revision``, oldest first; raises CompactedError."""
        if revision < self.compacted:
            raise CompactedError
        found: list[Change] = []
        for change in reversed(self._history.get(table, ())):
            if change.revision <= revision:
                break
            found.append(change)
        found.reverse()
        return found

    def compact(self, revision: int | None = None) -> int:
        """Forget the history up to ``revision`` (None: all of it); answers the compacted revision."""
        self.compacted = max(self.compacted, self.revision if revision is None else revision)
        while self._order and self._order[0][0] <= self.compacted:
            self._history[self._order.popleft()[1]].popleft()
        return self.compacted

    @contextmanager
    def subscribed(self, table: str) -> Iterator[Subscription]:
        """A subscription to the changes of ``table`` from now on."""
        subscription = Subscription()
        watchers = self._subscriptions.setdefault(table, set())
        watchers.add(subscription)
        try:
            yield subscription
        finally:
            watchers.discard(subscription)

    def subscriptions(self, table: str | None = None) -> list[Subscription]:
        """The open subscriptions, of one table or of all."""
        tables = self._subscriptions.values() if table is None else [self._subscriptions.get(table, set())]
        return [subscription for watchers in tables for subscription in watchers]

    def _publish(self, table: str, change: Change) -> None:
        self._history.setdefault(table, deque()).append(change)
        self._order.append((change.revision, table))
        if len(self._order) > self._limit:
            self.compact(self._order[0][0])
        for subscription in self._subscriptions.get(table, ()):
            subscription.pending.append(change)
            subscription.wake.set()
