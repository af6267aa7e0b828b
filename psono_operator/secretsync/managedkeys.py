"""Which PsonoSecret manages which keys of a Merge target: the annotation ``secrets.psono.com/managed-keys``.

Pure. The annotation is JSON, PsonoSecret name → uid and sorted keys, and changes in the same request as the
data (rule G3). It is the authority for conflicts. Anybody with the right to can have edited it: what cannot
be understood is refused as a whole, because guessing could cost somebody's keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from psono_operator.api.names import MANAGED_KEYS_ANNOTATION

SIZE_LIMIT = 200 * 1024
"""Bytes of the annotation; the API server allows 256 KiB for all annotations together."""


class CorruptAnnotation(Exception):
    """The annotation is not what this operator writes."""


@dataclass(frozen=True, slots=True)
class Manager:
    """One PsonoSecret's share: its uid, and the keys that are its own."""

    uid: str
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class ManagedKeys:
    """The whole annotation, by PsonoSecret name."""

    managers: Mapping[str, Manager]

    def keys_of(self, name: str, uid: str) -> frozenset[str]:
        """The keys this very PsonoSecret manages; a predecessor of the same name is another one (C3)."""
        manager = self.managers.get(name)
        return manager.keys if manager is not None and manager.uid == uid else frozenset()

    def holder_of(self, key: str, *, besides: str) -> str | None:
        """The uid's competitor for a key: the name of another PsonoSecret that manages it."""
        return next(
            (
                name
                for name, each in sorted(self.managers.items())
                if each.uid != besides and key in each.keys
            ),
            None,
        )

    def others(self, uid: str) -> list[str]:
        """Names of the PsonoSecrets besides ``uid``."""
        return sorted(name for name, each in self.managers.items() if each.uid != uid)

    def with_share(self, name: str, uid: str, keys: Iterable[str]) -> ManagedKeys:
        """With this share in place of any the name or the uid had."""
        rest = {other: each for other, each in self.managers.items() if each.uid != uid and other != name}
        return ManagedKeys({**rest, name: Manager(uid, frozenset(keys))})

    def without(self, uid: str) -> ManagedKeys:
        """Without the share of ``uid``."""
        return ManagedKeys({name: each for name, each in self.managers.items() if each.uid != uid})

    def only(self, exists: Callable[[str, str], bool]) -> ManagedKeys:
        """Without the shares of PsonoSecrets that are gone; ``exists`` is asked for name and uid."""
        return ManagedKeys({name: each for name, each in self.managers.items() if exists(name, each.uid)})

    def render(self) -> str | None:
        """The annotation's value; None when nobody manages anything."""
        if not self.managers:
            return None
        shares = {name: {"uid": each.uid, "keys": sorted(each.keys)} for name, each in self.managers.items()}
        return json.dumps(shares, sort_keys=True, separators=(",", ":"))


NOBODY = ManagedKeys({})


def managed_keys(annotations: Mapping[str, str]) -> ManagedKeys:
    """The shares in an object's annotations. Raises CorruptAnnotation."""
    text = annotations.get(MANAGED_KEYS_ANNOTATION)
    if text is None:
        return NOBODY
    try:
        shares = json.loads(text)
        return ManagedKeys({name: _manager(share) for name, share in shares.items()})
    except (ValueError, AttributeError, RecursionError):
        raise CorruptAnnotation from None


def manager_uids(annotations: Mapping[str, str]) -> list[str]:
    """The uids in the annotation, for an index; none when it is corrupt."""
    try:
        return [each.uid for each in managed_keys(annotations).managers.values()]
    except CorruptAnnotation:
        return []


def _manager(share: object) -> Manager:
    match share:
        case {"uid": str() as uid, "keys": list() as keys} if uid and all(
            isinstance(key, str) for key in keys
        ):
            return Manager(uid, frozenset(keys))
    raise ValueError("no share")
