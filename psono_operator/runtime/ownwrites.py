"""Our own writes, recognised when they come back through the watch.

Per key the uid and resourceVersion of our last write. Two questions are answered: is this cached object
exactly what we wrote (an echo, nothing to do, rule D5), and is it older than what we wrote (the cache has
not caught up, rule F1). Ask when the key is taken from the queue, not when the event arrives: the event can
overtake the answer to the write. Nothing is written back into the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psono_operator.runtime.clock import Clock
from psono_operator.runtime.resources import ObjectKey, compare_versions, key_of, uid_of, version_of

TRUST = 300.0
"""Seconds for which a write can make the cache look old.

Longer than the longest silence of a watch. Without a limit an API server restored from a backup, whose
versions start again at a lower number, would make an object look old for ever.
"""


@dataclass(frozen=True, slots=True)
class _Write:
    uid: str
    version: str
    at: float


class OwnWrites:
    """One instance per resource. Call ``forget`` when the object is gone, so that it stays bounded."""

    def __init__(self, clock: Clock, *, trust: float = TRUST) -> None:
        self._clock = clock
        self._trust = trust
        self._writes: dict[ObjectKey, _Write] = {}

    def record(self, obj: Mapping[str, Any]) -> None:
        """Remember the object as the API server returned it from our write.

        Of two answers that overtook each other the newer version stays.
        """
        uid, version = uid_of(obj), version_of(obj)
        if not uid or not version:
            return
        key = key_of(obj)
        known = self._writes.get(key)
        if known is not None and known.uid == uid:
            order = compare_versions(version, known.version)
            if order is not None and order < 0 and not self._is_over(known):
                return
        self._writes[key] = _Write(uid, version, self._clock.monotonic())

    def is_echo(self, obj: Mapping[str, Any]) -> bool:
        """Whether ``obj`` (its metadata is enough) is exactly the state our last write left."""
        write = self._writes.get(key_of(obj))
        return write is not None and (write.uid, write.version) == (uid_of(obj), version_of(obj))

    def is_stale(self, cached: Mapping[str, Any]) -> bool:
        """Whether ``cached`` is older than our last write. What cannot be ordered is not called stale."""
        write = self._writes.get(key_of(cached))
        if write is None or write.uid != uid_of(cached) or self._is_over(write):
            return False
        order = compare_versions(version_of(cached), write.version)
        return order is not None and order < 0

    def forget(self, key: ObjectKey) -> None:
        """The object is gone, or is another one now."""
        self._writes.pop(key, None)

    def __len__(self) -> int:
        return len(self._writes)

    def _is_over(self, write: _Write) -> bool:
        return self._clock.monotonic() - write.at > self._trust
