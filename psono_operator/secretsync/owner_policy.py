"""The plan for a target of policy Owner: the whole Secret is ours. Pure.

A full PUT with the version that was read (rule G2). An unowned Secret is taken over, its other keys go and
are named; one that another controller owns, or in which other PsonoSecrets manage keys, is refused.
"""

from __future__ import annotations

from psono_operator.api.names import MANAGED_KEYS_ANNOTATION
from psono_operator.runtime.resources import KubeObject, annotations_of, controller_of, metadata_of
from psono_operator.secretsync.target import (
    Create,
    Leave,
    Refuse,
    Replace,
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


def plan_owner(wanted: Wanted, live: KubeObject | None, around: Surroundings) -> TargetPlan:
    """The plan; ``live`` is the Secret as read just now, or None."""
    controller = controller_of(live) if live is not None else None
    if controller is not None and controller.get("uid") != wanted.claimant.uid:
        return Refuse(controlled_by_another(wanted, controller))
    managed = shares(wanted, live, around)
    if managed is None:
        return Refuse(corrupt_annotation(wanted.key.name))
    share = managed.keys_of(wanted.claimant.name, wanted.claimant.uid)
    message = refusal(wanted, live, around, ours=bool(controller or share)) or unfit(wanted, wanted.data)
    if message:
        return Refuse(message)
    if live is None:
        body = new_secret(wanted)
        body["metadata"]["ownerReferences"] = [wanted.claimant.reference()]
        return Create(body)
    others = managed.others(wanted.claimant.uid)
    if others:
        return Refuse(
            f'PsonoSecret "{others[0]}" manages keys of Secret "{wanted.key.name}" with policy Merge: '
            "choose another spec.target.name, or use policy Merge here too"
        )
    body = _replacement(wanted, live)
    same_data = decoded(live) == wanted.data
    if same_data and body.get("metadata") == live.get("metadata"):
        return Leave()
    if live.get("immutable") is True and not same_data:
        return Refuse(immutable(wanted))
    present = set(live.get("data") or {})
    dropped = () if controller else tuple(sorted(present - set(wanted.data) - share))
    return Replace(body, dropped)


def _replacement(wanted: Wanted, live: KubeObject) -> KubeObject:
    references = references_of(live)
    reference = wanted.claimant.reference()
    if [each for each in references if each.get("uid") == wanted.claimant.uid] != [reference]:
        references = [*(each for each in references if each.get("uid") != wanted.claimant.uid), reference]
    body = {name: value for name, value in live.items() if name not in {"data", "stringData"}}
    metadata = {**metadata_of(live), "ownerReferences": references}
    if MANAGED_KEYS_ANNOTATION in annotations_of(live):
        annotations = dict(annotations_of(live))
        del annotations[MANAGED_KEYS_ANNOTATION]
        metadata["annotations"] = annotations
    body["metadata"] = metadata
    body["data"] = encoded(wanted.data)
    return body
