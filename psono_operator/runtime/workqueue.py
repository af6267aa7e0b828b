"""A keyed queue: each key at most once, one due time, never two workers on one key.

Rules E1 to E7. The queue holds keys and nothing else; what is to be done is read from the cache when the
key is taken.
"""

from __future__ import annotations

from enum import IntEnum

from psono_operator.runtime.resources import ObjectKey


class Priority(IntEnum):
    """HIGH: someone waits for it (spec change, deletion, drift). LOW: first list, periodic refresh."""

    LOW = 0
    HIGH = 1


class WorkQueue:
    """See the module."""

    def add(self, key: ObjectKey, priority: Priority = Priority.HIGH) -> None:
        """Due now. Cancels a pending later time (E2)."""
        raise NotImplementedError

    def add_after(self, key: ObjectKey, seconds: float, priority: Priority = Priority.LOW) -> None:
        """Due in ``seconds``, or earlier if it already is due earlier (E2)."""
        raise NotImplementedError

    def retry(self, key: ObjectKey, *, first: float | None = None, cap: float | None = None) -> float:
        """Due after the key's next backoff step, doubled from ``first`` to ``cap`` seconds, with jitter.

        Returns the delay in seconds (E4). The key keeps its priority (E5).
        """
        raise NotImplementedError

    def forget(self, key: ObjectKey) -> None:
        """The key's next failure is its first again."""
        raise NotImplementedError

    def failures(self, key: ObjectKey) -> int:
        """How many times in a row the key was retried."""
        raise NotImplementedError

    async def get(self) -> ObjectKey:
        """The next due key, marked as being processed; waits for one. Raises ShutDown when it is over."""
        raise NotImplementedError

    def done(self, key: ObjectKey) -> None:
        """The key's processing has ended; what was added meanwhile becomes takeable."""
        raise NotImplementedError

    def shut_down(self) -> None:
        """Refuse adds, drop what is pending, wake every waiting ``get``."""
        raise NotImplementedError

    async def drain(self, deadline: float) -> bool:
        """Wait up to ``deadline`` seconds until nothing is processed; whether that was reached."""
        raise NotImplementedError
