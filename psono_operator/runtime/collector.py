"""Keeps full garbage collections out of the time in which caches are filled (N6).

A full collection looks at every container there is: 90 ms with ten thousand objects in the cache, in the
middle of the loop, and several times while they arrive. They hold no cycles, so nothing is lost by waiting.
While any reflector lists, full collections are put off; when it is through, what is in the cache then is
moved to the permanent generation, which none looks at. What leaves the cache is freed by its reference count
as ever.

It changes the whole process, so only a process that is an operator and nothing else should have one.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

from psono_operator.runtime.reflector import State

_NEVER = 1_000_000


class Collector:
    """The garbage collector of this process; ``close`` gives it back as it was found."""

    def __init__(self) -> None:
        self._found = gc.get_threshold()
        self._listing: set[str] = set()

    def heed(self, name: str) -> Callable[[State], None]:
        """What the reflector ``name`` calls with every change of its state."""

        def on_state(state: State) -> None:
            if state is State.LISTING:
                self._listing.add(name)
                gc.set_threshold(*self._found[:2], _NEVER)
                return
            if state is State.WATCHING and name in self._listing:
                gc.freeze()
            self._listing.discard(name)
            if not self._listing:
                gc.set_threshold(*self._found)

        return on_state

    def close(self) -> None:
        """Full collections as before; what is permanent stays so."""
        self._listing.clear()
        gc.set_threshold(*self._found)
