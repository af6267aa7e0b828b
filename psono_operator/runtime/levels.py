"""What is ready in a work queue: two levels of urgency, within each of them groups that take turns (E5).

HIGH goes first, but a LOW item is served at least every so often, and no group waits for another's thousands.
It knows neither keys nor times.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import Generic, TypeVar

from psono_operator.runtime.rotation import Rotation

Item = TypeVar("Item", bound=Hashable)
Group = TypeVar("Group", bound=Hashable)


class Priority(IntEnum):
    """HIGH: someone waits for it (spec change, deletion, drift). LOW: first list, periodic refresh."""

    LOW = 0
    HIGH = 1


class Levels(Generic[Group, Item]):
    """See the module. At least every ``low_share``-th item taken is a LOW one if any is ready."""

    def __init__(self, low_share: int) -> None:
        self._low_share = low_share
        self._high: Rotation[Group, Item] = Rotation()
        self._low: Rotation[Group, Item] = Rotation()
        self._streak = 0  # HIGH items taken in a row while a LOW one was ready

    def __len__(self) -> int:
        return len(self._high) + len(self._low)

    def add(self, group: Group, item: Item, level: Priority) -> None:
        """At the end of its group."""
        self._of(level).add(group, item)

    def discard(self, group: Group, item: Item, level: Priority) -> None:
        """Take it out, if it is in."""
        self._of(level).discard(group, item)

    def pop(self, allowed: Callable[[Group], bool] | None = None) -> Item | None:
        """The next item of a group that is ``allowed``; None if there is none."""
        high, low = self._high, self._low
        low_is_due = bool(low) and self._streak + 1 >= self._low_share
        item = None if low_is_due else high.pop(allowed)
        if item is not None:
            self._streak = self._streak + 1 if low else 0
            return item
        item = low.pop(allowed)
        if item is not None:
            self._streak = 0
            return item
        return high.pop(allowed) if low_is_due else None

    def clear(self) -> None:
        """Forget everything."""
        self._high.clear()
        self._low.clear()

    def _of(self, level: Priority) -> Rotation[Group, Item]:
        return self._high if level is Priority.HIGH else self._low
