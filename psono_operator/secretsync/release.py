"""What happens to a Secret that is a target no longer. Pure.

A former Owner target is deleted, with preconditions so that nothing newer of the same name is hit (rule G5),
unless its values are on record as the work of others alone: then it is a copy, and only our mark goes.
A former Merge target keeps its values and loses only our share in the annotation. Metadata is all this needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from psono_operator.api.names import MANAGED_KEYS_ANNOTATION
from psono_operator.runtime.resources import KubeObject, annotations_of, is_deleting, uid_of, version_of
from psono_operator.secretsync.managedkeys import CorruptAnnotation, managed_keys
from psono_operator.secretsync.provenance import written_by_others
from psono_operator.secretsync.target import Claimant, references_of


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE with both preconditions."""

    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Unmark:
    """Merge patch ``body``: our marks go, everything else stays."""

    body: KubeObject


@dataclass(frozen=True, slots=True)
class Nothing:
    """It has nothing of ours, or is on its way out already."""


ReleasePlan = Delete | Unmark | Nothing


class Owned(Enum):
    """What becomes of a Secret that the claimant controls."""

    DELETE = "delete"
    """It was a target before a rename."""
    KEEP = "keep"
    """Its values stay; only the owner reference goes."""
    LEAVE = "leave"
    """The garbage collector decides (rule H4)."""


def plan_release(claimant: Claimant, secret: KubeObject | None, owned: Owned) -> ReleasePlan:
    """How ``claimant`` lets go of ``secret`` (its metadata is enough; None: it is gone)."""
    if secret is None:
        return Nothing()
    try:
        managed = managed_keys(annotations_of(secret))
    except CorruptAnnotation:
        managed = None  # nothing in it can be told to be ours
    others = managed.others(claimant.uid) if managed else []
    controls = claimant.controls(secret)
    copied = written_by_others(secret, "data")  # somebody's backup, owner reference and all
    if controls and not others and not copied and owned is Owned.DELETE:
        # Somebody's finalizer may hold it for long; to ask again would change nothing.
        return Nothing() if is_deleting(secret) else Delete(uid_of(secret), version_of(secret))
    metadata: dict[str, Any] = {}
    if managed is not None and any(each.uid == claimant.uid for each in managed.managers.values()):
        metadata["annotations"] = {MANAGED_KEYS_ANNOTATION: managed.without(claimant.uid).render()}
    if controls and owned is not Owned.LEAVE:
        rest = [each for each in references_of(secret) if each.get("uid") != claimant.uid]
        metadata["ownerReferences"] = rest
    if not metadata:
        return Nothing()
    return Unmark({"metadata": {**metadata, "resourceVersion": version_of(secret)}})
