"""Whether a PsonoSecret needs anything now. Pure.

Keys are woken for many reasons, and the queue carries none of them: what is to be done follows from the
inputs as they are, compared with the inputs of the last attempt, or, in a new process, with the status.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from psono_operator.api.spec import PsonoSecretSpec
from psono_operator.api.status import PsonoSecretStatus
from psono_operator.secretsync.memory import Inputs, Seen
from psono_operator.secretsync.schedule import SOON, contested_until, next_due


class Cause(StrEnum):
    """Why a synchronization is made; appears in the log."""

    FIRST = "first"
    SPEC = "spec"
    FORCED = "forced"
    CREDENTIALS = "credentials"
    RIVALS = "rivals"
    DRIFT = "drift"
    DUE = "due"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do for ``seconds``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CheckTarget:
    """The target was touched since we wrote it: look whether it still holds our values."""


@dataclass(frozen=True, slots=True)
class Synchronize:
    """Read, decrypt, extract, write."""

    cause: Cause


Need = Wait | CheckTarget | Synchronize

FORCE_SYNC_LIMIT = 1024
"""Characters of the force-sync annotation that count; the status holds no more."""


def need_after(inputs: Inputs, seen: Seen, monotonic: float) -> Need:
    """What the object needs, given the last attempt of this process."""
    if inputs.generation != seen.inputs.generation:
        return Synchronize(Cause.SPEC)
    if inputs.force_sync != seen.inputs.force_sync:
        return Synchronize(Cause.FORCED)
    if inputs.credentials != seen.inputs.credentials:
        return Synchronize(Cause.CREDENTIALS)
    if monotonic > seen.next_at - SOON:
        return Synchronize(Cause.DUE if seen.good else Cause.RETRY)
    if not seen.good and inputs.rivals != seen.inputs.rivals:
        return Synchronize(Cause.RIVALS)
    touched = inputs.gate != seen.inputs.gate if seen.refused else inputs.target != seen.inputs.target
    if touched:
        # Somebody who keeps changing it back gets an answer, but not a fight (fault C3).
        truce = contested_until(seen.repairs, seen.repaired_at) - monotonic
        if truce > SOON:
            return Wait(min(truce, seen.next_at - monotonic))
        return CheckTarget() if seen.good else Synchronize(Cause.DRIFT)
    return Wait(seen.next_at - monotonic)


def need_from_status(
    inputs: Inputs, spec: PsonoSecretSpec, status: PsonoSecretStatus, target_version: str, now: datetime
) -> Need:
    """What the object needs in a process that has not visited it yet (rule J1).

    ``target_version`` is the resourceVersion of the cached target, empty when there is none.
    """
    ready = status.ready
    if status.synced_at is None:
        return Synchronize(Cause.FIRST)
    if inputs.generation != status.observed_generation:
        return Synchronize(Cause.SPEC)
    if inputs.force_sync != (status.last_handled_force_sync or ""):
        return Synchronize(Cause.FORCED)
    if ready is None or ready.status != "True":
        return Synchronize(Cause.RETRY)
    synced = status.target
    untouched = (
        synced is not None
        and synced.name == spec.target.name
        and synced.creation_policy == spec.target.creation_policy
        and synced.resource_version == target_version != ""
    )
    if not untouched:
        return Synchronize(Cause.DRIFT)
    left = next_due(status.synced_at, spec.interval, inputs.uid, now)
    return Wait(left) if left > SOON else Synchronize(Cause.DUE)
