"""What a store tells its listeners: added, updated, deleted.

A notification says what changed between two states of the local cache, not what the API server sent:
a relist of unchanged objects produces none (rule C4), and a deletion missed while disconnected arrives
as :class:`Deleted` with ``final_state_unknown`` (rule C1).
"""

from __future__ import annotations

from dataclasses import dataclass

from psono_operator.runtime.resources import KubeObject, ObjectKey, key_of


@dataclass(frozen=True, slots=True)
class Added:
    """An object the store did not hold. ``initial`` is set for those of the informer's first list."""

    new: KubeObject
    initial: bool = False

    @property
    def key(self) -> ObjectKey:
        return key_of(self.new)


@dataclass(frozen=True, slots=True)
class Updated:
    """An object that changed: equal uid, different resourceVersion."""

    old: KubeObject
    new: KubeObject

    @property
    def key(self) -> ObjectKey:
        return key_of(self.new)


@dataclass(frozen=True, slots=True)
class Deleted:
    """An object that is gone; ``last`` is what the store held of it."""

    last: KubeObject
    final_state_unknown: bool = False

    @property
    def key(self) -> ObjectKey:
        return key_of(self.last)


Notification = Added | Updated | Deleted
