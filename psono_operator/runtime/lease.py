"""A Lease record: what an elector reads and writes. Pure.

Times in it are informational (rule K7): nobody's wall clock decides anything, expiry is judged by how long
the record has not changed, on the observer's own clock (K1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from psono_operator.runtime.resources import KubeObject, ObjectKey, Resource

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")


@dataclass(frozen=True, slots=True)
class Record:
    """The spec of a Lease, as far as an elector cares."""

    holder: str
    duration: float
    """Seconds, as written by the holder."""
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """A record and when it was first seen like this, in monotonic seconds."""

    record: Record
    since: float
    obj: KubeObject


def observe(before: Observation | None, obj: KubeObject, now: float) -> Observation:
    """What is known after reading ``obj``: an unchanged record keeps its age."""
    record = record_of(obj)
    since = before.since if before is not None and before.record == record else now
    return Observation(record, since, obj)


def is_free(seen: Observation, now: float) -> bool:
    """Whether the lease may be taken: nobody holds it, or its record has not changed for its own duration."""
    return not seen.record.holder or now >= seen.since + seen.record.duration


def record_of(obj: KubeObject) -> Record:
    """The record of a Lease object; what is missing or odd counts as held by nobody."""
    spec = obj.get("spec") or {}
    seconds = spec.get("leaseDurationSeconds")
    transitions = spec.get("leaseTransitions")
    return Record(
        holder=str(spec.get("holderIdentity") or ""),
        duration=float(seconds) if isinstance(seconds, int) else 0.0,
        acquired=str(spec.get("acquireTime") or ""),
        renewed=str(spec.get("renewTime") or ""),
        transitions=transitions if isinstance(transitions, int) else 0,
    )


def taken(before: Record | None, holder: str, duration: int, now: datetime) -> Record:
    """The record of a new holder; the count of transitions goes up when the holder changes (K3)."""
    stamp = micro_time(now)
    if before is None:
        return Record(holder, duration, stamp, stamp, 0)
    transitions = before.transitions + (before.holder != holder)
    return Record(holder, duration, stamp, stamp, transitions)


def renewed(record: Record, now: datetime) -> Record:
    """The holder's record, renewed."""
    return replace(record, renewed=micro_time(now))


def released(record: Record, now: datetime) -> Record:
    """Nobody's record, to be taken after a second (K5)."""
    return replace(record, holder="", duration=1.0, renewed=micro_time(now))


def lease_body(key: ObjectKey, record: Record, base: KubeObject | None) -> KubeObject:
    """The object to write: ``base`` as read, with the record; or a new one."""
    metadata: dict[str, Any] = (
        dict(base["metadata"]) if base else {"name": key.name, "namespace": key.namespace}
    )
    spec = {
        **((base or {}).get("spec") or {}),
        "holderIdentity": record.holder,
        "leaseDurationSeconds": int(record.duration),
        "acquireTime": record.acquired or None,
        "renewTime": record.renewed or None,
        "leaseTransitions": record.transitions,
    }
    return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}


def micro_time(moment: datetime) -> str:
    """``metav1.MicroTime``: UTC with six digits (K7)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
