"""The part of a store that one reflector feeds: its objects, their indexes, and the check for mutations.

A partition is written object by object; which changes follow from a snapshot is the store's business.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from psono_operator.runtime.index import Index, IndexFunction
from psono_operator.runtime.resources import KubeObject, ObjectKey


class MutatedObject(AssertionError):
    """Someone changed an object of the cache (rule C5). Raised in mutation detection mode only."""

    value_free = True


class Partition:
    """See the module. ``detect_mutations`` costs a serialisation per write."""

    def __init__(self, indexes: Mapping[str, IndexFunction], *, detect_mutations: bool) -> None:
        # Namespace first: a listing of one namespace touches nothing else, and a lookup builds no key.
        self.namespaces: dict[str, dict[str, KubeObject]] = {}
        self.indexes = {name: Index(name, function) for name, function in indexes.items()}
        self.size = 0
        self._digests: dict[ObjectKey, bytes] | None = {} if detect_mutations else None

    def get(self, namespace: str, name: str) -> KubeObject | None:
        """The object, or None."""
        objects = self.namespaces.get(namespace)
        return objects.get(name) if objects is not None else None

    def places(self) -> Iterator[tuple[str, str]]:
        """Namespace and name of every object."""
        for namespace, objects in self.namespaces.items():
            for name in objects:
                yield namespace, name

    def put(self, namespace: str, name: str, obj: KubeObject) -> None:
        """Add or replace one object."""
        key = ObjectKey(namespace, name)
        objects = self.namespaces.setdefault(namespace, {})
        held = objects.get(name)
        if held is None:
            self.size += 1
        else:
            self._check(key, held)
        objects[name] = obj
        for index in self.indexes.values():
            index.move(key, held, obj)
        if self._digests is not None:
            self._digests[key] = _digest(obj)

    def remove(self, namespace: str, name: str) -> KubeObject:
        """Take one object out. KeyError if it is not there."""
        objects = self.namespaces[namespace]
        held = objects.pop(name)
        if not objects:
            del self.namespaces[namespace]
        self.size -= 1
        key = ObjectKey(namespace, name)
        self._check(key, held)
        for index in self.indexes.values():
            index.move(key, held, None)
        if self._digests is not None:
            del self._digests[key]
        return held

    def verify(self) -> None:
        """Raise MutatedObject if an object was changed since it was stored (detection mode only)."""
        for key in self._digests or ():
            held = self.get(key.namespace, key.name)
            if held is not None:
                self._check(key, held)

    def _check(self, key: ObjectKey, held: KubeObject) -> None:
        if self._digests is not None and self._digests[key] != _digest(held):
            raise MutatedObject(f"the cached object {key} was changed in place")


def _digest(obj: KubeObject) -> bytes:
    return hashlib.sha256(json.dumps(obj, sort_keys=True).encode()).digest()
