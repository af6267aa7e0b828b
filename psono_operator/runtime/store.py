"""The current objects of one resource, by key, with indexes.

Only the informer writes (``replace``, ``apply_upsert``, ``apply_delete``); everyone else holds a
:class:`StoreView`. Each write is one synchronous step: readers see the state before or the state after, and
an index always agrees with the objects. The store knows uids and resourceVersions and nothing else of an
object. Objects handed out are shared and must not be changed (rule C5).

Rules: C1 (replace is a diff), C2 (upserts are judged by what is held, not by the event's type), C3 (another
uid is another object), C4 (no news, no notification), D3 (indexes are maintained with the old object).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Protocol

from psono_operator.runtime.index import IndexFunction
from psono_operator.runtime.notifications import Added, Deleted, Notification, Updated
from psono_operator.runtime.partition import MutatedObject, Partition
from psono_operator.runtime.resources import KubeObject, ObjectKey, metadata_of

__all__ = ["IndexFunction", "MutatedObject", "Notifications", "Store", "StoreView"]

SLICE = 250
"""Objects that are worked on before other tasks get a turn (rule N6)."""

Notifications = list[Notification]

Place = tuple[str, str]
"""Namespace and name."""

Places = list[Place]


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


class Store:
    """The writing side. ``indexes`` maps names to pure functions.

    ``detect_mutations`` keeps a digest of every object and checks it whenever the object is replaced,
    removed or :meth:`verify` is called; it is for tests, as it costs a serialisation per write.
    """

    def __init__(
        self, indexes: Mapping[str, IndexFunction] | None = None, *, detect_mutations: bool = False
    ) -> None:
        self._functions = dict(indexes or {})
        self._detect = detect_mutations
        self._whole = self._new_partition()
        self._named: dict[str, Partition] = {}
        """Those of reflectors that read one namespace, by namespace."""

    # -- reading ------------------------------------------------------------------------------------

    def get(self, key: ObjectKey) -> KubeObject | None:
        """The object, or None."""
        return self._partition(key.namespace).get(key.namespace, key.name)

    def list(self, namespace: str | None = None) -> Iterator[KubeObject]:
        """All objects, or those of one namespace; what is listed is the state at the time of the call."""
        if namespace is not None:
            return iter(tuple(self._partition(namespace).namespaces.get(namespace, {}).values()))
        return iter(
            [obj for each in self._partitions() for held in each.namespaces.values() for obj in held.values()]
        )

    def by_index(self, index: str, value: str) -> frozenset[ObjectKey]:
        """Keys of the objects that have ``value`` under ``index``; KeyError for an unknown index."""
        found = self._whole.indexes[index].keys(value)
        for each in self._named.values():
            found |= each.indexes[index].keys(value)
        return found

    def __len__(self) -> int:
        return sum(each.size for each in self._partitions())

    # -- writing ------------------------------------------------------------------------------------

    def replace(
        self, items: Iterable[KubeObject], *, namespace: str | None = None, initial: bool = False
    ) -> Notifications:
        """Make ``items`` the content (of ``namespace``, when given) and say what that changed.

        Objects that vanished come first, as Deleted with ``final_state_unknown``; ``initial`` marks the
        Added ones as the informer's first list. Items without a name or outside ``namespace`` are left out.
        """
        steps = self.replacing(items, namespace=namespace, initial=initial)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                changes: Notifications = end.value
                return changes

    def replacing(
        self, items: Iterable[KubeObject], *, namespace: str | None = None, initial: bool = False
    ) -> Generator[None, None, Notifications]:
        """The same in slices: it yields where other tasks may have a turn, and returns what changed (N6).

        Readers see the old content until the last step, which publishes all at once (C1): many changes are
        made beside the old content, which is then swapped; few are applied in one go. Nobody else may write
        what this reflector feeds in between.
        """
        self._own(namespace)
        fresh = yield from _collected(items, namespace)
        vanished = [
            place for each in self._affected(namespace) for place in each.places() if place not in fresh
        ]
        yield
        changes: Notifications = [
            Deleted(held, final_state_unknown=True) for place in vanished if (held := self._at(place))
        ]
        news = yield from self._compare(fresh, changes, initial)
        if len(news) + len(vanished) <= SLICE:
            for space, name in vanished:
                self._partition(space).remove(space, name)
            for place in news:
                self._store(place, fresh[place])
        else:
            yield from self._swap(fresh, namespace)
        return changes

    def apply_upsert(self, obj: KubeObject) -> Notifications:
        """The object as it now is: Added, Updated, Deleted and Added (another uid), or nothing new."""
        namespace, name = _place(obj)
        if not name:
            return []
        changes = _difference(self._partition(namespace).get(namespace, name), obj)
        if changes:
            self._store((namespace, name), obj)
        return changes

    def apply_delete(self, obj: KubeObject) -> Notifications:
        """The object is gone; nothing happens for one that is unknown or of another uid (recreated since)."""
        namespace, name = _place(obj)
        partition = self._partition(namespace)
        held = partition.get(namespace, name)
        if held is None:
            return []
        uid, held_uid = metadata_of(obj).get("uid"), metadata_of(held).get("uid")
        if uid and held_uid and uid != held_uid:
            return []
        return [Deleted(partition.remove(namespace, name))]

    def verify(self) -> None:
        """Raise MutatedObject if an object was changed since it was stored (detection mode only)."""
        for each in self._partitions():
            each.verify()

    # -- inside -------------------------------------------------------------------------------------

    def _compare(
        self, fresh: dict[Place, KubeObject], changes: Notifications, initial: bool
    ) -> Generator[None, None, Places]:
        """Add to ``changes`` what is new in ``fresh``, and say where; what is not stays the object held."""
        news: Places = []
        for count, (place, obj) in enumerate(fresh.items(), 1):
            held = self._at(place)
            found = _difference(held, obj, initial=initial, seen=False)
            if found:
                changes += found
                news.append(place)
            elif held is not None:
                fresh[place] = held
            if count % SLICE == 0:
                yield
        return news

    def _swap(self, fresh: dict[Place, KubeObject], namespace: str | None) -> Generator[None, None, None]:
        """Make a new partition of ``fresh`` and put it in the place of those it is about."""
        successor = self._new_partition()
        for count, (place, obj) in enumerate(fresh.items(), 1):
            successor.put(*place, obj)
            if count % SLICE == 0:
                yield
        for each in self._affected(namespace):
            each.verify()
        if namespace is None:
            self._whole, self._named = successor, {}
        else:
            self._named[namespace] = successor

    def _at(self, place: Place) -> KubeObject | None:
        return self._partition(place[0]).get(*place)

    def _store(self, place: Place, obj: KubeObject) -> None:
        namespace, name = place
        partition = self._partition(namespace)
        held = partition.get(namespace, name)
        if held is not None and metadata_of(held).get("uid") != metadata_of(obj).get("uid"):
            partition.remove(namespace, name)
        partition.put(namespace, name, obj)

    def _new_partition(self) -> Partition:
        return Partition(self._functions, detect_mutations=self._detect)

    def _partitions(self) -> tuple[Partition, ...]:
        return (self._whole, *self._named.values())

    def _partition(self, namespace: str) -> Partition:
        return self._named.get(namespace, self._whole) if self._named else self._whole

    def _affected(self, namespace: str | None) -> tuple[Partition, ...]:
        return self._partitions() if namespace is None else (self._named[namespace],)

    def _own(self, namespace: str | None) -> None:
        """Give ``namespace`` a partition of its own, with what the store holds of it already."""
        if namespace is None or namespace in self._named:
            return
        own = self._new_partition()
        for name in tuple(self._whole.namespaces.get(namespace, ())):
            own.put(namespace, name, self._whole.remove(namespace, name))
        self._named[namespace] = own


def _collected(
    items: Iterable[KubeObject], namespace: str | None
) -> Generator[None, None, dict[Place, KubeObject]]:
    fresh: dict[Place, KubeObject] = {}
    for count, obj in enumerate(items, 1):
        space, name = _place(obj)
        if name and (namespace is None or space == namespace):
            fresh[space, name] = obj
        if count % SLICE == 0:
            yield
    return fresh


def _difference(
    held: KubeObject | None, obj: KubeObject, *, initial: bool = False, seen: bool = True
) -> Notifications:
    """What it means that ``held`` is now ``obj``; ``seen``: a deletion in between was told by the server."""
    if held is None:
        return [Added(obj, initial=initial)]
    old, new = metadata_of(held), metadata_of(obj)
    if old.get("uid") != new.get("uid"):
        return [Deleted(held, final_state_unknown=not seen), Added(obj, initial=initial)]
    if (version := new.get("resourceVersion")) and version == old.get("resourceVersion"):
        return []
    return [Updated(held, obj)]


def _place(obj: KubeObject) -> Place:
    metadata = metadata_of(obj)
    return metadata.get("namespace") or "", metadata.get("name") or ""
