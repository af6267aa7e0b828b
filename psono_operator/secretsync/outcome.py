"""What one reconcile found: the only thing a status is made from."""

from __future__ import annotations

from dataclasses import dataclass

from psono_operator.api.conditions import Reason
from psono_operator.api.spec import PsonoSecretSpec
from psono_operator.api.status import SyncedEntry, SyncedTarget


@dataclass(frozen=True, slots=True)
class _Good:
    """The target holds the values."""

    generation: int
    force_sync: str
    message: str
    leftover: str = ""
    """Why a previous target could not be released; empty when there is nothing left of it."""

    @property
    def reason(self) -> Reason:
        """The condition's reason."""
        return Reason.PREVIOUS_TARGET_CLEANUP_FAILED if self.leftover else Reason.SECRET_SYNCHRONIZED


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced(_Good):
    """The values were read just now."""

    target: SyncedTarget
    entries: tuple[SyncedEntry, ...]


@dataclass(frozen=True, slots=True)
class CleanedUp(_Good):
    """The target was good already; a previous one was released now, or still could not be."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed; the target keeps its last good state."""

    generation: int
    force_sync: str
    reason: Reason
    message: str
    quiet: bool = False
    """No event: nobody can act on it, or nothing can be written where it would appear."""


Outcome = Synced | CleanedUp | Failed


def good_message(spec: PsonoSecretSpec) -> str:
    """The condition message of a good target; the same for the same spec (rule I5)."""
    values, entries = len(spec.data), len(spec.secret_ids)
    return (
        f'Secret "{spec.target.name}" holds {values} value{"" if values == 1 else "s"} '
        f"of {entries} Psono {'entry' if entries == 1 else 'entries'}."
    )
