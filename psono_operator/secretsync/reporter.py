"""Says what happened: in the status, and in an event when the condition changes.

An outcome that could not be written is remembered and written at the next visit, so that trouble with the
status never costs a second read from Psono, and never keeps new values from the target.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Protocol

from psono_operator.api.conditions import Reason
from psono_operator.api.status import Condition
from psono_operator.runtime.errors import KubeError
from psono_operator.runtime.resources import KubeObject, key_of, uid_of
from psono_operator.secretsync.memory import Memory, Seen
from psono_operator.secretsync.outcome import Failed, Outcome
from psono_operator.secretsync.status import StatusWriter


class EventSink(Protocol):
    """Where events about objects go; ``runtime.recorder`` fulfils it."""

    def event(self, regarding: KubeObject, type: str, reason: str, action: str, note: str) -> None:
        """Best effort, never raises, never waits."""


class Reporter:
    """The only one who writes statuses and transition events."""

    def __init__(self, status: StatusWriter, memory: Memory, events: EventSink) -> None:
        self._status = status
        self._memory = memory
        self._events = events

    async def report(self, obj: KubeObject, seen: Seen, outcome: Outcome) -> None:
        """Remember the attempt and write its outcome. Raises what the client raises."""
        await self._report(obj, seen, outcome, self._status.now())

    async def catch_up(self, obj: KubeObject) -> tuple[KubeObject, KubeError | None]:
        """Write the outcome of the last attempt if that failed: the newest object, and why it fails still."""
        seen = self._memory.get(key_of(obj), uid_of(obj))
        if seen is None or seen.unreported is None:
            return obj, None
        try:
            return await self._report(obj, replace(seen, unreported=None), *seen.unreported), None
        except KubeError as error:
            return obj, error

    def warn(self, obj: KubeObject, reason: str, note: str) -> None:
        """A Warning event about something done that its owner should know."""
        self._events.event(obj, "Warning", reason, "Synchronize", note)

    async def _report(self, obj: KubeObject, seen: Seen, outcome: Outcome, found: datetime) -> KubeObject:
        key = key_of(obj)
        self._memory.put(key, replace(seen, unreported=(outcome, found)))
        written = await self._status.write(obj, outcome, found)
        self._memory.put(key, seen)
        if written is None:
            return obj
        self._announce(written.obj, written.before, outcome)
        return written.obj

    def _announce(self, obj: KubeObject, before: Condition | None, outcome: Outcome) -> None:
        if isinstance(outcome, Failed) and outcome.quiet:
            return
        reason = outcome.reason
        if reason is Reason.SECRET_SYNCHRONIZED:
            # A plain first success needs no event; a good one after a failure is news.
            if before is not None and before.status == "False":
                self._events.event(obj, "Normal", reason.value, "Synchronize", outcome.message)
        elif before is None or before.reason != reason.value:
            message = outcome.message if isinstance(outcome, Failed) else outcome.leftover
            self._events.event(obj, "Warning", reason.value, "Synchronize", message)
