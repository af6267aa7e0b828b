"""Objects and a reflector for the runtime's tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from psono_operator.runtime.reflector import Change, ChangeKind, Snapshot
from psono_operator.runtime.resources import KubeObject, ObjectKey


def make_object(
    name: str, version: int | str = 1, *, uid: str | None = None, namespace: str = "a", **more: Any
) -> KubeObject:
    """An object of no particular kind; ``more`` are further fields of the metadata, ``spec`` is the spec."""
    spec = more.pop("spec", {})
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{namespace}-{name}",
        "resourceVersion": str(version),
        **more,
    }
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata, "spec": spec}


def key(name: str, namespace: str = "a") -> ObjectKey:
    """The key of ``make_object(name)``."""
    return ObjectKey(namespace, name)


class ScriptedReflector:
    """Fulfils ``informer.EventSource``: yields what the test puts in; ``end`` ends the stream."""

    def __init__(self, namespace: str | None = None) -> None:
        self.namespace = namespace
        self.last_progress = 0.0
        self.last_error: str | None = None
        self.closed = False
        self._queue: asyncio.Queue[Snapshot | Change | Exception | None] = asyncio.Queue()

    def snapshot(self, *items: KubeObject, scheduled: bool = False) -> None:
        self._queue.put_nowait(Snapshot(list(items), "1", scheduled))

    def change(self, kind: ChangeKind, obj: KubeObject) -> None:
        self._queue.put_nowait(Change(kind, obj))

    def fail(self, error: Exception) -> None:
        self._queue.put_nowait(error)

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def events(self) -> AsyncIterator[Snapshot | Change]:
        try:
            while (event := await self._queue.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.closed = True
