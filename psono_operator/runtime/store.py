"""The current objects of one resource, by key, with indexes.

Only the informer writes (``replace``, ``apply_upsert``, ``apply_delete``); everyone else holds a
:class:`StoreView`. Each write is one synchronous step: readers see the state before or the state after, and
an index always agrees with the objects. The store knows uids and resourceVersions and nothing else of an
object. Objects handed out are shared and must not be changed (rule C5).

Rules: C1 (replace is a diff), C2 (upserts are judged by what is held, not by the event's type), C3 (another
uid is another object), C4 (no news, no notification), D3 (indexes are maintained with the old object).
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol

from psono_operator.runtime.notifications import Added, Deleted, Notification, Updated
from psono_operator.runtime.resources import KubeObject, ObjectKey, metadata_of
from psono_operator.runtime.tracebacks import one_line

_log = logging.getLogger(__name__)

IndexFunction = Callable[[KubeObject], Iterable[str]]
"""Pure: an object's values under one index."""

Notifications = list[Notification]


class StoreView(Protocol):
    """The read side of a store."""

    def get(self, key: ObjectKey) -> KubeObject | None:
        """The object, or None."""

    def list(self, namespace: str | None = None) -> Iterator[KubeObject]:
        """All objects, or those of one namespace, in no particular order."""

    def by_index(self, index: str, value: str) -> frozenset[ObjectKey]:
        """Keys of the objects that have ``value`` under ``index``; KeyError for an unknown index."""

    def __len__(self) -> int:
        """How many objects there are."""


class MutatedObject(AssertionError):
    """Someone changed an object of the cache (rule C5). Raised in mutation detection mode only."""

    value_free = True


class Store:
    """The writing side. ``indexes`` maps names to pure functions.

    ``detect_mutations`` keeps a digest of every object and checks it whenever the object is replaced,
    removed or :meth:`verify` is called; it is for tests, as it costs a serialisation per write.
    """

    def __init__(
        self, indexes: Mapping[str, IndexFunction] | None = None, *, detect_mutations: bool = False
    ) -> None:
        # Namespace first: a listing of one namespace touches nothing else, and a lookup builds no key.
        self._namespaces: dict[str, dict[str, KubeObject]] = {}
        self._indexes = {name: _Index(name, function) for name, function in (indexes or {}).items()}
        self._digests: dict[ObjectKey, bytes] | None = {} if detect_mutations else None
        self._size = 0

    # -- reading ------------------------------------------------------------------------------------

    def get(self, key: ObjectKey) -> KubeObject | None:
        """The object, or None."""
        objects = self._namespaces.get(key.namespace)
        return objects.get(key.name) if objects is not None else None

    def list(self, namespace: str | None = None) -> Iterator[KubeObject]:
        """All objects, or those of one namespace; what is listed is the state at the time of the call."""
        if namespace is not None:
            return iter(tuple(self._namespaces.get(namespace, {}).values()))
        return iter([obj for objects in self._namespaces.values() for obj in objects.values()])

    def by_index(self, index: str, value: str) -> frozenset[ObjectKey]:
        """Keys of the objects that have ``value`` under ``index``; KeyError for an unknown index."""
        return self._indexes[index].keys(value)

    def __len__(self) -> int:
        return self._size

    # -- writing ------------------------------------------------------------------------------------

    def replace(
        self, items: Iterable[KubeObject], *, namespace: str | None = None, initial: bool = False
    ) -> Notifications:
        """Make ``items`` the content (of ``namespace``, when given) and say what that changed.

        Objects that vanished come first, as Deleted with ``final_state_unknown``; ``initial`` marks the
        Added ones as the informer's first list. Items without a name or outside ``namespace`` are left out.
        """
        fresh: dict[str, dict[str, KubeObject]] = {}
        for obj in items:
            space, name = _place(obj)
            if name and (namespace is None or space == namespace):
                fresh.setdefault(space, {})[name] = obj

        changes: Notifications = []
        for space in tuple(self._namespaces) if namespace is None else (namespace,):
            kept = fresh.get(space, {})
            for name in [name for name in self._namespaces.get(space, {}) if name not in kept]:
                changes.append(Deleted(self._remove(space, name), final_state_unknown=True))
        for space, objects in fresh.items():
            for name, obj in objects.items():
                self._put(space, name, obj, changes, initial=initial, seen=False)
        return changes

    def apply_upsert(self, obj: KubeObject) -> Notifications:
        """The object as it now is: Added, Updated, Deleted and Added (another uid), or nothing new."""
        changes: Notifications = []
        namespace, name = _place(obj)
        if name:
            self._put(namespace, name, obj, changes)
        return changes

    def apply_delete(self, obj: KubeObject) -> Notifications:
        """The object is gone; nothing happens for one that is unknown or of another uid (recreated since)."""
        namespace, name = _place(obj)
        held = self._namespaces.get(namespace, {}).get(name)
        if held is None:
            return []
        uid, held_uid = metadata_of(obj).get("uid"), metadata_of(held).get("uid")
        if uid and held_uid and uid != held_uid:
            return []
        return [Deleted(self._remove(namespace, name))]

    def verify(self) -> None:
        """Raise MutatedObject if an object was changed since it was stored (detection mode only)."""
        for key in self._digests or ():
            held = self.get(key)
            if held is not None:
                self._check(key, held)

    # -- one object ---------------------------------------------------------------------------------

    def _put(
        self,
        namespace: str,
        name: str,
        obj: KubeObject,
        changes: Notifications,
        *,
        initial: bool = False,
        seen: bool = True,
    ) -> None:
        """Store one object; ``seen`` says whether a deletion in between was told by the server."""
        held = self._namespaces.get(namespace, {}).get(name)
        if held is not None:
            old, new = metadata_of(held), metadata_of(obj)
            if old.get("uid") != new.get("uid"):
                changes.append(Deleted(self._remove(namespace, name), final_state_unknown=not seen))
                held = None
            elif (version := new.get("resourceVersion")) and version == old.get("resourceVersion"):
                return
        key = ObjectKey(namespace, name)
        if held is None:
            changes.append(Added(obj, initial=initial))
            self._size += 1
        else:
            self._check(key, held)
            changes.append(Updated(held, obj))
        self._namespaces.setdefault(namespace, {})[name] = obj
        for index in self._indexes.values():
            index.move(key, held, obj)
        if self._digests is not None:
            self._digests[key] = _digest(obj)

    def _remove(self, namespace: str, name: str) -> KubeObject:
        objects = self._namespaces[namespace]
        held = objects.pop(name)
        if not objects:
            del self._namespaces[namespace]
        self._size -= 1
        key = ObjectKey(namespace, name)
        self._check(key, held)
        for index in self._indexes.values():
            index.move(key, held, None)
        if self._digests is not None:
            del self._digests[key]
        return held

    def _check(self, key: ObjectKey, held: KubeObject) -> None:
        if self._digests is not None and self._digests[key] != _digest(held):
            raise MutatedObject(f"the cached object {key} was changed in place")


class _Index:
    """From a value to the keys of the objects that have it.

    Most values belong to one object, so a lone key is kept as itself; a set of one would be 216 bytes.
    """

    def __init__(self, name: str, function: IndexFunction) -> None:
        self._name = name
        self._function = function
        self._keys: dict[str, ObjectKey | set[ObjectKey]] = {}

    def keys(self, value: str) -> frozenset[ObjectKey]:
        held = self._keys.get(value)
        if held is None:
            return frozenset()
        return frozenset((held,)) if isinstance(held, ObjectKey) else frozenset(held)

    def move(self, key: ObjectKey, old: KubeObject | None, new: KubeObject | None) -> None:
        before = self._values(key, old) if old is not None else ()
        after = self._values(key, new) if new is not None else ()
        if before == after:
            return
        for value in before:
            if value not in after:
                self._discard(value, key)
        for value in after:
            if value not in before:
                self._insert(value, key)

    def _insert(self, value: str, key: ObjectKey) -> None:
        held = self._keys.get(value)
        if held is None:
            self._keys[value] = key
        elif isinstance(held, ObjectKey):
            if held != key:
                self._keys[value] = {held, key}
        else:
            held.add(key)

    def _discard(self, value: str, key: ObjectKey) -> None:
        held = self._keys.get(value)
        if isinstance(held, set):
            held.discard(key)
            if len(held) == 1:
                (self._keys[value],) = held
        elif held == key:
            del self._keys[value]

    def _values(self, key: ObjectKey, obj: KubeObject) -> Collection[str]:
        """The object's values; none if the function cannot read this object, which is one object's loss.

        The function is pure, so it fails alike when the object is taken out again.
        """
        try:
            # Few values compare faster than a set of them is built; a repeated one does no harm below.
            values = tuple(self._function(obj))
            return values if len(values) < 8 else frozenset(values)
        except Exception as error:  # noqa: BLE001 - one odd object must not stop the cache (rule N1)
            _log.error("index %s cannot read %s: %s", self._name, key, one_line(error))
            return ()


def _place(obj: KubeObject) -> tuple[str, str]:
    metadata = metadata_of(obj)
    return metadata.get("namespace") or "", metadata.get("name") or ""


def _digest(obj: KubeObject) -> bytes:
    return hashlib.sha256(json.dumps(obj, sort_keys=True).encode()).digest()
