"""What a DELETE does to one object: preconditions, finalizers, propagation (rule Q8, rules G5, H4).

Pure: given an object and the options, answer what is to be stored. The garbage collector, which acts on
dependents later, is another module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psono_operator.sandbox.kube.objects import Obj, clone, metadata
from psono_operator.sandbox.kube.status import (
    Cause,
    Named,
    bad_options,
    bad_request,
    conflict,
    unsupported,
)

BACKGROUND, FOREGROUND, ORPHAN = "Background", "Foreground", "Orphan"
FOREGROUND_FINALIZER, ORPHAN_FINALIZER = "foregroundDeletion", "orphan"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """``metav1.DeleteOptions``, as far as anything here depends on it."""

    uid: str | None = None
    resource_version: str | None = None
    propagation: str | None = None
    dry_run: bool = False

    @classmethod
    def read(cls, body: Any, query: dict[str, str]) -> DeleteOptions:
        """The options of a request, from its body if there is one, else from the query; 400 and 422."""
        if body is not None and not isinstance(body, dict):
            raise bad_request(
                "couldn't get version/kind; json parse error: cannot unmarshal into DeleteOptions"
            )
        given = body if body else query
        preconditions = (body or {}).get("preconditions") or {}
        propagation = given.get("propagationPolicy")
        if given.get("orphanDependents") in (True, "true"):
            propagation = ORPHAN
        if propagation not in (None, BACKGROUND, FOREGROUND, ORPHAN):
            quoted = unsupported("", propagation, [FOREGROUND, BACKGROUND, ORPHAN, "nil"]).message
            raise bad_options("DeleteOptions", Cause("FieldValueNotSupported", quoted, "propagationPolicy"))
        dry_run = bool((body or {}).get("dryRun")) or query.get("dryRun") == "All"
        return cls(preconditions.get("uid"), preconditions.get("resourceVersion"), propagation, dry_run)


def check_preconditions(obj: Obj, options: DeleteOptions, what: Named) -> None:
    """409 unless the object is the one that was meant."""
    meta = metadata(obj)
    if options.uid is not None and options.uid != meta["uid"]:
        detail = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']})."
            " The object might have been deleted and then recreated"
        )
        raise conflict(what, meta["name"], detail, by_kind=True)
    if options.resource_version is not None and options.resource_version != meta["resourceVersion"]:
        detail = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the"
            f" ResourceVersion in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise conflict(what, meta["name"], detail, by_kind=True)


def marked(obj: Obj, options: DeleteOptions, now: str) -> Obj | None:
    """The object as it stays while finalizers hold it, or None when it can go at once.

    The result equals the input when a second DELETE changes nothing. Setting deletionTimestamp bumps the
    generation of types that have one (rule I4).
    """
    meta = metadata(obj)
    finalizers = [
        f for f in meta.get("finalizers") or () if f not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)
    ]
    before = set(meta.get("finalizers") or ())
    if options.propagation == FOREGROUND or (options.propagation is None and FOREGROUND_FINALIZER in before):
        finalizers.append(FOREGROUND_FINALIZER)
    if options.propagation == ORPHAN or (options.propagation is None and ORPHAN_FINALIZER in before):
        finalizers.append(ORPHAN_FINALIZER)
    if not finalizers:
        return None
    result: Obj = clone(obj)
    if set(finalizers) != before:
        result["metadata"]["finalizers"] = finalizers
    if "deletionTimestamp" not in meta:
        result["metadata"] |= {"deletionTimestamp": now, "deletionGracePeriodSeconds": 0}
        if meta.get("generation"):
            result["metadata"]["generation"] += 1
    return result


def can_go(obj: Obj) -> bool:
    """Whether a deleted object's last finalizer is gone."""
    meta = metadata(obj)
    return bool(meta.get("deletionTimestamp")) and not meta.get("finalizers")
