"""The current objects of one resource, by key, with indexes.

Only the informer's reflector writes (``replace``, ``apply``); everyone else holds a :class:`StoreView`.
Objects handed out are shared and must not be changed (rule C5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from psono_operator.runtime.resources import KubeObject, ObjectKey

IndexFunction = Callable[[KubeObject], Iterable[str]]
"""Pure: an object's values under one index."""


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
