"""Stand-ins for what the domain is given: a client with a script, a cache, events that are noted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from psono_operator.runtime.errors import NotFound
from psono_operator.runtime.resources import KubeObject, ObjectKey, key_of


class Cache:
    """A store view over a dict."""

    def __init__(self, *objects: KubeObject) -> None:
        self.objects: dict[ObjectKey, KubeObject] = {}
        for each in objects:
            self.put(each)

    def put(self, obj: KubeObject) -> None:
        self.objects[key_of(obj)] = obj

    def get(self, key: ObjectKey) -> KubeObject | None:
        return self.objects.get(key)


class Api:
    """A client over a dict of objects. ``fail`` holds errors to raise, by verb, first ones first."""

    def __init__(self, *objects: KubeObject, delay: float = 0.0) -> None:
        self.cache = Cache(*objects)
        self.delay = delay
        self.fail: dict[str, list[Exception]] = {}
        self.calls: list[tuple[str, Any]] = []

    async def get(self, resource: Any, key: ObjectKey, **options: Any) -> KubeObject:
        await self._call("get", key)
        found = self.cache.get(key)
        if found is None:
            raise NotFound(f"GET {key}", 404)
        return found

    async def patch(self, resource: Any, key: ObjectKey, body: Any, kind: Any, **options: Any) -> KubeObject:
        await self._call("patch", body)
        found = self.cache.get(key)
        if found is None:
            raise NotFound(f"PATCH {key}", 404)
        version = str(int(found["metadata"]["resourceVersion"]) + 1)
        changed = {**found, "metadata": {**found["metadata"], **body["metadata"], "resourceVersion": version}}
        if "status" in body:
            changed["status"] = {**found.get("status", {}), **body["status"]}
        self.cache.put(changed)
        return changed

    async def _call(self, verb: str, what: Any) -> None:
        self.calls.append((verb, what))
        if self.delay:
            await asyncio.sleep(self.delay)
        errors = self.fail.get(verb)
        if errors:
            raise errors.pop(0)

    def count(self, verb: str) -> int:
        return sum(each == verb for each, _ in self.calls)


class Events:
    """Events as they were noted: (type, reason, note)."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []

    def event(self, regarding: Mapping[str, Any], type: str, reason: str, action: str, note: str) -> None:
        self.seen.append((type, reason, note))
