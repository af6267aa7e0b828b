"""The plan for a target of policy Merge: some keys are ours, the rest is not touched. Pure.

A merge patch with the version that was read (rule G2), which holds our differing keys, nulls for keys that
were ours and are not any more, and the managed-keys annotation: bytes of foreign keys are in no body we
send, and a key and its bookkeeping change together (G3).
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from psono_operator.api.names import GROUP, KIND, MANAGED_KEYS_ANNOTATION
from psono_operator.runtime.resources import KubeObject, annotations_of, controller_of, version_of
from psono_operator.secretsync.managedkeys import NOBODY, SIZE_LIMIT, ManagedKeys
from psono_operator.secretsync.provenance import written_by_others
from psono_operator.secretsync.target import (
    Create,
    Leave,
    Patch,
    Refuse,
    Surroundings,
    TargetPlan,
    Wanted,
    controlled_by_another,
    corrupt_annotation,
    decoded,
    encoded,
    immutable,
    new_secret,
    references_of,
    refusal,
    shares,
    unfit,
)


class TooManyManagedKeys(Exception):
    """The annotation would be larger than the API server takes."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f'the list of managed keys of Secret "{name}" would exceed {SIZE_LIMIT // 1024} KiB: '
            "map fewer keys, or spread them over several targets"
        )


def plan_merge(wanted: Wanted, live: KubeObject | None, around: Surroundings) -> TargetPlan:
    """The plan; ``live`` is the Secret as read just now, or None. Raises TooManyManagedKeys."""
    claimant = wanted.claimant
    controller = controller_of(live) if live is not None else None
    if controller is not None and not claimant.controls(live or {}) and _is_psono_secret(controller):
        return Refuse(controlled_by_another(wanted, controller))
    managed = shares(wanted, live, around)
    if managed is None:
        return Refuse(corrupt_annotation(wanted.key.name))
    share = managed.keys_of(claimant.name, claimant.uid)
    message = refusal(wanted, live, around, ours=claimant.controls(live or {}) or bool(share))
    if live is None and not message:
        message = unfit(wanted, wanted.data)
    if message:
        return Refuse(message)
    if live is None:
        body = new_secret(wanted)
        body["metadata"]["annotations"] = {MANAGED_KEYS_ANNOTATION: _annotation(wanted, NOBODY)}
        return Create(body)
    for key in sorted(wanted.data):
        holder = managed.holder_of(key, besides=claimant.uid)
        if holder is not None:
            return Refuse(
                f'key "{key}" of Secret "{wanted.key.name}" is managed by PsonoSecret "{holder}": '
                "remove the mapping from one of the two"
            )
    return _patch(wanted, live, managed)


def _patch(wanted: Wanted, live: KubeObject, managed: ManagedKeys) -> TargetPlan:
    claimant = wanted.claimant
    stored, present = decoded(live), set(live.get("data") or {})
    # What we controlled as its owner was ours altogether; it becomes ours key by key.
    ours = present if claimant.controls(live) else managed.keys_of(claimant.name, claimant.uid)
    stale = _stale(wanted, live, managed, ours & present)
    data: dict[str, Any] = {
        key: value for key, value in encoded(wanted.data).items() if stored.get(key) != wanted.data[key]
    }
    taken = tuple(sorted(key for key in data if key in present and key not in ours))
    data.update(dict.fromkeys(sorted(stale)))
    metadata: dict[str, Any] = {}
    annotation = _annotation(wanted, managed)
    if annotations_of(live).get(MANAGED_KEYS_ANNOTATION) != annotation:
        metadata["annotations"] = {MANAGED_KEYS_ANNOTATION: annotation}
    references = references_of(live)
    others = [each for each in references if each.get("uid") != claimant.uid]
    if others != references:
        metadata["ownerReferences"] = others
    if not data and not metadata:
        return Leave()
    if data and live.get("immutable") is True:
        return Refuse(immutable(wanted))
    left = {key: value for key, value in stored.items() if key not in stale}
    message = unfit(wanted, {**left, **wanted.data}) if data else None
    if message:
        return Refuse(message)
    body: KubeObject = {"metadata": {**metadata, "resourceVersion": version_of(live)}}
    if data:
        body["data"] = data
    return Patch(body, taken)


def _stale(wanted: Wanted, live: KubeObject, managed: ManagedKeys, ours: Set[str]) -> set[str]:
    """The keys to remove: those that were ours and are not wanted any more.

    Never one that another PsonoSecret manages. And where the list is not our own word, because somebody
    edited the annotation or because we owned the Secret and kept no list, never one that is on record as
    somebody else's work: it may have come between the edit, or the change of policy, and now.
    """
    stale = {
        key for key in ours - set(wanted.data) if not managed.holder_of(key, besides=wanted.claimant.uid)
    }
    edited = written_by_others(live, "metadata", "annotations", MANAGED_KEYS_ANNOTATION)
    if edited or wanted.claimant.controls(live):
        stale = {key for key in stale if not written_by_others(live, "data", key)}
    return stale


def _annotation(wanted: Wanted, managed: ManagedKeys) -> str:
    text = managed.with_share(wanted.claimant.name, wanted.claimant.uid, wanted.data).render() or ""
    if len(text.encode()) > SIZE_LIMIT:
        raise TooManyManagedKeys(wanted.key.name)
    return text


def _is_psono_secret(controller: Any) -> bool:
    return controller.get("kind") == KIND and str(controller.get("apiVersion", "")).startswith(f"{GROUP}/")
