"""From outcome to status, and from status to one patch. The decisions are pure; one class sends the patch.

A status is written only when it differs (rule I1), for the generation that was really looked at (I3), and
guarded by the resourceVersion, because a uid in a patch of /status is ignored by the server (R3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psono_operator.api.conditions import format_time
from psono_operator.api.status import Condition, PsonoSecretStatus, parse_status, ready_condition
from psono_operator.runtime.client import KubeClient, PatchKind
from psono_operator.runtime.clock import Clock
from psono_operator.runtime.errors import Conflict, NotFound
from psono_operator.runtime.ownwrites import OwnWrites
from psono_operator.runtime.resources import KubeObject, key_of, uid_of, version_of
from psono_operator.secretsync.outcome import Failed, Outcome, Synced
from psono_operator.secretsync.resources import PSONO_SECRETS

_TRIES = 3


def next_status(previous: PsonoSecretStatus, outcome: Outcome, now: datetime) -> PsonoSecretStatus:
    """The status after ``outcome``. A failure keeps what the last good synchronization left."""
    condition = ready_condition(
        previous.ready,
        reason=outcome.reason,
        message=outcome.message if isinstance(outcome, Failed) else outcome.leftover or outcome.message,
        generation=outcome.generation,
        now=now,
    )
    others = tuple(each for each in previous.conditions if each.type != condition.type)
    synced = outcome if isinstance(outcome, Synced) else None
    return PsonoSecretStatus(
        observed_generation=outcome.generation,
        last_sync_time=format_time(now) if synced else previous.last_sync_time,
        target=synced.target if synced else previous.target,
        entries=synced.entries if synced else previous.entries,
        last_handled_force_sync=outcome.force_sync or None,
        conditions=(condition, *others),
    )


def status_patch(stored: object, wanted: PsonoSecretStatus) -> dict[str, Any] | None:
    """The merge patch from the ``stored`` raw status to the wanted one; None when they are equal."""
    target = wanted.to_object()
    changes = _difference(stored if isinstance(stored, Mapping) else {}, target)
    return {"status": changes} if changes else None


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, Mapping):
            inner = _difference(before, value)
            if inner:
                changes[name] = inner
        elif value != before:
            changes[name] = value
    return changes


@dataclass(frozen=True, slots=True)
class Reported:
    """The object whose status says the outcome now, and the Ready condition it had before."""

    obj: KubeObject
    before: Condition | None


class StatusWriter:
    """Sends the status of one object; a conflict is resolved here and never costs a second read."""

    def __init__(self, client: KubeClient, clock: Clock, own_writes: OwnWrites) -> None:
        self._client = client
        self._clock = clock
        self._own_writes = own_writes

    def now(self) -> datetime:
        """The time that goes into statuses."""
        return self._clock.now()

    async def write(
        self, obj: KubeObject, outcome: Outcome, found: datetime | None = None
    ) -> Reported | None:
        """Bring the object's status in line with ``outcome``, which was ``found`` then (None: now).

        ``obj`` is the newest state known. An object that is gone, or replaced under its name, needs no
        status (rule F4): None. Raises Conflict after three lost races, and what the client raises.
        """
        key, uid, now = key_of(obj), uid_of(obj), found or self._clock.now()
        for attempt in range(_TRIES):
            before = parse_status(obj)
            patch = status_patch(obj.get("status"), next_status(before, outcome, now))
            if patch is None:
                return Reported(obj, before.ready)
            patch["metadata"] = {"resourceVersion": version_of(obj)}
            try:
                written = await self._client.patch(
                    PSONO_SECRETS, key, patch, PatchKind.MERGE, subresource="status"
                )
            except NotFound:
                return None
            except Conflict:
                if attempt == _TRIES - 1:
                    raise
                try:
                    obj = await self._client.get(PSONO_SECRETS, key)
                except NotFound:
                    return None
                if uid_of(obj) != uid:
                    return None
            else:
                self._own_writes.record(written)
                return Reported(written, before.ready)
        raise AssertionError("unreachable")
