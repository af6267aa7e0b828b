"""The garbage collector and the namespace controller, as one pure step (rule Q8, rules H4, H6).

:func:`plan` looks at all objects and answers what is to be done now; doing it and asking again until
nothing is left is the sandbox's. So a test can stop the world between two steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psono_operator.sandbox.kube.deletion import (
    BACKGROUND,
    FOREGROUND,
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
)
from psono_operator.sandbox.kube.objects import Obj, clone, metadata
from psono_operator.sandbox.kube.registry import Registry, ResourceType
from psono_operator.sandbox.kube.storage import Key


@dataclass(frozen=True, slots=True)
class Item:
    """An object and where it is."""

    resource: ResourceType
    key: Key
    object: Obj


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object, as a client would."""

    item: Item
    propagation: str = BACKGROUND


@dataclass(frozen=True, slots=True)
class Update:
    """Store ``object`` in place of the item's."""

    item: Item
    object: Obj


@dataclass(frozen=True, slots=True)
class EndNamespace:
    """Remove a namespace whose content is gone."""

    item: Item


Action = Delete | Update | EndNamespace


def plan(items: Sequence[Item], registry: Registry) -> list[Action]:
    """One round of work; empty when there is nothing to do."""
    dependents: dict[str, list[Item]] = {}
    by_uid: dict[str, Item] = {}
    for item in items:
        by_uid[item.object["metadata"]["uid"]] = item
        for owner in _owners(item.object):
            dependents.setdefault(owner.get("uid", ""), []).append(item)
    actions: list[Action] = []
    for item in items:
        actions += _finish_deletion(item, dependents)
    touched = {id(action.item.object) for action in actions}
    for item in items:
        if id(item.object) not in touched and _owners(item.object):
            actions += _collect(item, by_uid, registry)
    return actions + _end_namespaces(items, touched)


def _owners(obj: Obj) -> list[Obj]:
    return metadata(obj).get("ownerReferences") or []


def _without_finalizer(obj: Obj, finalizer: str) -> Obj:
    result: Obj = clone(obj)
    result["metadata"]["finalizers"] = [f for f in result["metadata"]["finalizers"] if f != finalizer]
    return result


def _without_owners(obj: Obj, uids: Iterable[str]) -> Obj:
    result: Obj = clone(obj)
    left = [owner for owner in _owners(result) if owner.get("uid") not in set(uids)]
    if left:
        result["metadata"]["ownerReferences"] = left
    else:
        result["metadata"].pop("ownerReferences", None)
    return result


def _finish_deletion(item: Item, owned: Mapping[str, list[Item]]) -> list[Action]:
    """The work that the finalizers ``orphan`` and ``foregroundDeletion`` ask for."""
    meta = metadata(item.object)
    dependents = owned.get(meta["uid"], [])
    finalizers = meta.get("finalizers") or ()
    if not meta.get("deletionTimestamp"):
        return []
    if ORPHAN_FINALIZER in finalizers:
        released: list[Action] = [
            Update(each, _without_owners(each.object, [meta["uid"]])) for each in dependents
        ]
        return [*released, Update(item, _without_finalizer(item.object, ORPHAN_FINALIZER))]
    if FOREGROUND_FINALIZER in finalizers:
        if not any(_blocks(each.object, meta["uid"]) for each in dependents):
            return [Update(item, _without_finalizer(item.object, FOREGROUND_FINALIZER))]
        return [
            Delete(each, FOREGROUND if each.object["metadata"]["uid"] in owned else BACKGROUND)
            for each in dependents
            if not metadata(each.object).get("deletionTimestamp")
        ]
    return []


def _blocks(obj: Obj, uid: str) -> bool:
    return any(owner.get("uid") == uid and owner.get("blockOwnerDeletion") is True for owner in _owners(obj))


def _collect(item: Item, by_uid: Mapping[str, Item], registry: Registry) -> list[Action]:
    """Delete what has lost its last owner; drop references to lost owners from what has others."""
    if metadata(item.object).get("deletionTimestamp"):
        return []
    solid: list[Obj] = []
    dangling: list[Obj] = []
    for owner in _owners(item.object):
        (solid if _exists(owner, item, by_uid, registry) else dangling).append(owner)
    if not dangling:
        return []
    if not solid:
        return [Delete(item)]
    return [Update(item, _without_owners(item.object, [owner.get("uid", "") for owner in dangling]))]


def _exists(owner: Mapping[str, Any], item: Item, by_uid: Mapping[str, Item], registry: Registry) -> bool:
    resource = registry.by_kind(owner.get("apiVersion", ""), owner.get("kind", ""))
    if resource is None:
        return True  # an unknown kind is no proof of absence: the real collector waits, too
    found = by_uid.get(owner.get("uid", ""))
    if found is None or found.resource.storage != resource.storage or found.key.name != owner.get("name"):
        return False
    return not resource.namespaced or found.key.namespace == item.key.namespace


def _end_namespaces(items: Sequence[Item], touched: set[int]) -> list[Action]:
    ending = {
        item.key.name: item
        for item in items
        if item.resource.plural == "namespaces"
        and not item.resource.group
        and metadata(item.object).get("deletionTimestamp")
    }
    if not ending:
        return []
    actions: list[Action] = []
    filled: set[str] = set()
    for item in items:
        if item.key.namespace in ending:
            filled.add(item.key.namespace)
            if id(item.object) not in touched and not metadata(item.object).get("deletionTimestamp"):
                actions.append(Delete(item))
    return actions + [EndNamespace(item) for name, item in ending.items() if name not in filled]
