"""Workers between a queue and a reconciler.

The controller knows no resource by name: predicates and mappers, given from outside, turn notifications
into keys; workers take keys and call ``reconcile`` under a deadline; the result says when to come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from psono_operator.runtime.notifications import Notification
from psono_operator.runtime.resources import ObjectKey

Predicate = Callable[[Notification], bool]
"""Pure: whether a notification is worth a reconcile."""

Mapper = Callable[[Notification], Iterable[ObjectKey]]
"""Pure: which keys a notification concerns."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a reconcile ended: well, and due again after ``requeue_after`` seconds, or only on a change."""

    requeue_after: float | None = None


class TerminalError(Exception):
    """The input is wrong: no retry until it changes, or until ``requeue_after`` seconds have passed."""

    def __init__(self, message: str, *, requeue_after: float | None = None) -> None:
        self.requeue_after = requeue_after
        super().__init__(message)


class RetryError(Exception):
    """Try again with backoff, doubled from ``first`` to ``cap`` seconds (None: the queue's own)."""

    def __init__(self, message: str, *, first: float | None = None, cap: float | None = None) -> None:
        self.first = first
        self.cap = cap
        super().__init__(message)


class Reconciler(Protocol):
    """The domain's side of the contract."""

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring the world in line with the object ``key``.

        Raises TerminalError (wait for new input), RetryError, or anything else (retry with backoff).
        """
