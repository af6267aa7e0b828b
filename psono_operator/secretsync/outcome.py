"""What one reconcile found: the only thing a status is made from."""

from __future__ import annotations

from dataclasses import dataclass

from psono_operator.api.conditions import Reason
from psono_operator.api.status import SyncedEntry, SyncedTarget


@dataclass(frozen=True, slots=True)
class Synced:
    """The target holds the values."""

    generation: int
    force_sync: str
    target: SyncedTarget
    entries: tuple[SyncedEntry, ...]
    keys: int

    @property
    def message(self) -> str:
        """For the condition; the same for the same configuration (rule I5)."""
        values = f"{self.keys} value{'s' if self.keys != 1 else ''}"
        entries = f"{len(self.entries)} Psono {'entries' if len(self.entries) != 1 else 'entry'}"
        return f'Secret "{self.target.name}" holds {values} of {entries}.'


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed; the target keeps its last good state."""

    generation: int
    force_sync: str
    reason: Reason
    message: str


Outcome = Synced | Failed
