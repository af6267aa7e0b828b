"""What this process remembers of each PsonoSecret between two visits.

It can all be lost: after a restart the status says what is needed. No value is kept; to tell whether a
touched target still holds what we wrote, each value's MAC under a random key of this process is. That key
and the MACs never leave memory.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from psono_operator.api.names import MANAGED_KEYS_ANNOTATION
from psono_operator.runtime.resources import (
    KubeObject,
    ObjectKey,
    annotations_of,
    controller_of,
    is_deleting,
    uid_of,
    version_of,
)
from psono_operator.secretsync.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything from outside that an attempt depends on, by identity. Equal inputs: nothing new."""

    uid: str
    generation: int
    force_sync: str
    credentials: str
    """The authentication Secret's revision, empty when there is none."""
    target: str
    """The target's revision, empty when there is none."""
    rivals: tuple[str, ...] = ()
    """The uids of the other PsonoSecrets that use the target, as their target or for authentication."""
    gate: str = ""
    """What decides whether the target may be written, see ``gate``; its values are not part of it."""

    def asks_the_same(self, other: Inputs) -> bool:
        """Whether both hold the same request of a user: spec, force-sync and credentials."""
        return (self.uid, self.generation, self.force_sync, self.credentials) == (
            other.uid,
            other.generation,
            other.force_sync,
            other.credentials,
        )


@dataclass(slots=True)
class Seen:
    """The last attempt on one PsonoSecret."""

    inputs: Inputs
    good: bool
    next_at: float
    """Monotonic seconds before which equal inputs need no new attempt."""
    source: int = 0
    """Which credentials were used, see ``sources``; 0 when there were none."""
    failures: int = 0
    """Failed attempts in a row on the same request."""
    refused: bool = False
    """The target could not be written: only what ``Inputs.gate`` stands for can change that."""
    marks: Mapping[str, bytes] = field(default_factory=dict)
    """Key of the target → MAC of the value we wrote."""
    repairs: int = 0
    """Attempts in a row to mend a touched target, each soon after the one before."""
    repaired_at: float = 0.0
    """Monotonic seconds of the last of them."""
    cleanup_failures: int = 0
    """Failed attempts in a row to release a previous target."""
    cleanup_at: float = 0.0
    """Monotonic seconds before which no further attempt at that is made."""
    unreported: tuple[Outcome, datetime] | None = None
    """What the status does not say yet, because writing it failed, and when it was found."""


def revision(obj: KubeObject | None) -> str:
    """An object's uid and version; empty for None."""
    return f"{uid_of(obj)}/{version_of(obj)}" if obj is not None else ""


def gate(target: KubeObject | None) -> str:
    """Identity of what the ownership gate looks at in a Secret's metadata; empty for None.

    Type and immutability are not in the metadata, and neither can be undone without a new uid.
    """
    if target is None:
        return ""
    controller = controller_of(target) or {}
    managed = annotations_of(target).get(MANAGED_KEYS_ANNOTATION, "")
    digest = hashlib.blake2b(managed.encode(), digest_size=8).hexdigest()  # names and uids, no value
    return f"{uid_of(target)}/{is_deleting(target)}/{controller.get('uid', '')}/{digest}"


class Memory:
    """The last attempts, by key. Owned by the reconciler; one worker at a time touches a key."""

    def __init__(self, mac_key: bytes) -> None:
        """``mac_key``: 32 random bytes made at start."""
        self._mac_key = mac_key
        self._seen: dict[ObjectKey, Seen] = {}

    def get(self, key: ObjectKey, uid: str) -> Seen | None:
        """The last attempt, unless it was on an object of the same name that is gone (rule C3)."""
        seen = self._seen.get(key)
        return seen if seen is not None and seen.inputs.uid == uid else None

    def put(self, key: ObjectKey, seen: Seen) -> None:
        """Remember an attempt in place of the one before."""
        self._seen[key] = seen

    def forget(self, key: ObjectKey) -> None:
        """The object is gone."""
        self._seen.pop(key, None)

    def marks(self, data: Mapping[str, bytes]) -> dict[str, bytes]:
        """The MAC of each value."""
        return {
            name: hashlib.blake2b(value, key=self._mac_key, digest_size=16, person=b"target-value").digest()
            for name, value in data.items()
        }

    def matches(self, marks: Mapping[str, bytes], data: Mapping[str, bytes]) -> bool:
        """Whether ``data`` has exactly the keys and values that were marked."""
        if not marks or marks.keys() != data.keys():
            return False
        found = self.marks(data)
        return all(hmac.compare_digest(found[name], mark) for name, mark in marks.items())

    def __len__(self) -> int:
        return len(self._seen)
