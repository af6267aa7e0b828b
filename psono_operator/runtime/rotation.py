"""Items in groups that take turns: first in, first out within a group, one item of each group after the
other.

A group with thousands of items delays the next item of another by one turn and no more (E5, fairness). Every
operation is of constant time but ``pop`` with a condition, which looks at one group after the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)
Group = TypeVar("Group", bound=Hashable)


class Rotation(Generic[Group, Item]):
    """See the module. An item is in it at most once, always under the same group."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Group, OrderedDict[Item, None]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, group: Group, item: Item) -> None:
        """At the end of its group; a group that was empty has its turn last."""
        items = self._groups.setdefault(group, OrderedDict())
        if item not in items:
            items[item] = None
            self._size += 1

    def discard(self, group: Group, item: Item) -> None:
        """Take it out, if it is in."""
        items = self._groups.get(group)
        if items is None or item not in items:
            return
        del items[item]
        self._size -= 1
        if not items:
            del self._groups[group]

    def pop(self, allowed: Callable[[Group], bool] | None = None) -> Item | None:
        """The first item of the first group that is ``allowed``, whose turn is last then; None if there is
        none.
        """
        group = next((each for each in self._groups if allowed is None or allowed(each)), None)
        if group is None:
            return None
        items = self._groups[group]
        item, _ = items.popitem(last=False)
        self._size -= 1
        if items:
            self._groups.move_to_end(group)
        else:
            del self._groups[group]
        return item

    def clear(self) -> None:
        """Forget everything."""
        self._groups.clear()
        self._size = 0
