"""One index of a store: from a value to the keys of the objects that have it (D3).

It is kept with the old object in hand, so that what it says always agrees with the objects. It knows no
objects; the function that reads their values is given to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from psono_operator.runtime.resources import KubeObject, ObjectKey
from psono_operator.runtime.tracebacks import one_line

_log = logging.getLogger(__name__)

IndexFunction = Callable[[KubeObject], Iterable[str]]
"""Pure: an object's values under one index."""


class Index:
    """See the module.

    Most values belong to one object, so a lone key is kept as itself; a set of one would be 216 bytes.
    """

    def __init__(self, name: str, function: IndexFunction) -> None:
        self._name = name
        self._function = function
        self._keys: dict[str, ObjectKey | set[ObjectKey]] = {}

    def keys(self, value: str) -> frozenset[ObjectKey]:
        """The keys that have ``value``."""
        held = self._keys.get(value)
        if held is None:
            return frozenset()
        return frozenset((held,)) if isinstance(held, ObjectKey) else frozenset(held)

    def move(self, key: ObjectKey, old: KubeObject | None, new: KubeObject | None) -> None:
        """The object of ``key`` was ``old`` and is ``new``; None: it was, or is, not there."""
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
