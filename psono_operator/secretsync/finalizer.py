"""Our own entry in a PsonoSecret's finalizers, and nobody else's (rules H1, H2).

Patches carry the whole list and the resourceVersion it was read with: a list in a merge patch replaces the
stored one, and without the guard it would swallow an entry another controller has just added. The decisions
are pure; two functions send them.
"""

from __future__ import annotations

from typing import Any

from psono_operator.api.names import FINALIZER
from psono_operator.runtime.client import KubeClient, PatchKind
from psono_operator.runtime.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from psono_operator.runtime.resources import KubeObject, is_deleting, key_of, metadata_of, uid_of, version_of
from psono_operator.secretsync.resources import PSONO_SECRETS

_TRIES = 3


class Vanished(Exception):
    """The PsonoSecret is gone, is being deleted, or was replaced: there is nothing to do for it."""


class FinalizerRefused(Exception):
    """Our finalizer may not be set or removed; the message says what to do."""


def has_finalizer(obj: KubeObject) -> bool:
    """Whether our finalizer is set."""
    return FINALIZER in (metadata_of(obj).get("finalizers") or ())


def finalizer_patch(obj: KubeObject, *, present: bool) -> dict[str, Any]:
    """The merge patch that adds our finalizer, or removes it; other entries keep their order."""
    others = [each for each in metadata_of(obj).get("finalizers") or () if each != FINALIZER]
    wanted = [*others, FINALIZER] if present else others
    return {"metadata": {"finalizers": wanted, "resourceVersion": version_of(obj)}}


async def add_finalizer(client: KubeClient, obj: KubeObject) -> KubeObject:
    """The object with our finalizer, as the server has it now.

    Raises Vanished when the object is no longer there to be synchronized, FinalizerRefused, and Conflict
    after three lost races.
    """
    uid = uid_of(obj)
    for attempt in range(_TRIES):
        if is_deleting(obj) or uid_of(obj) != uid:
            raise Vanished  # a new finalizer on an object being deleted is refused (H1)
        if has_finalizer(obj):
            return obj
        try:
            return await client.patch(
                PSONO_SECRETS, key_of(obj), finalizer_patch(obj, present=True), PatchKind.MERGE
            )
        except NotFound:
            raise Vanished from None
        except (Forbidden, Invalid) as error:
            raise FinalizerRefused(_explained(error)) from None
        except Conflict:
            if attempt == _TRIES - 1:
                raise
            obj = await live(client, obj)
    raise AssertionError("unreachable")


async def remove_finalizer(client: KubeClient, obj: KubeObject) -> None:
    """Let the object go. An object that is gone already is fine (F4).

    Raises FinalizerRefused, and Conflict after three lost races.
    """
    uid = uid_of(obj)
    for attempt in range(_TRIES):
        if uid_of(obj) != uid or not has_finalizer(obj):
            return
        try:
            await client.patch(
                PSONO_SECRETS, key_of(obj), finalizer_patch(obj, present=False), PatchKind.MERGE
            )
        except NotFound:
            return
        except (Forbidden, Invalid) as error:
            raise FinalizerRefused(_explained(error)) from None
        except Conflict:
            if attempt == _TRIES - 1:
                raise
            try:
                obj = await live(client, obj)
            except Vanished:
                return
        else:
            return


async def live(client: KubeClient, obj: KubeObject) -> KubeObject:
    """The object as the API server has it now. Raises Vanished when it is not there."""
    try:
        return await client.get(PSONO_SECRETS, key_of(obj))
    except NotFound:
        raise Vanished from None


def _explained(error: ApiError) -> str:
    if isinstance(error, Forbidden):
        return (
            "the API server does not let the operator change the finalizers of this PsonoSecret (403): "
            "check the operator's RBAC rights on psonosecrets and admission policies"
        )
    return (
        "the API server refuses to change the finalizers of this PsonoSecret as invalid (422): "
        "the object breaks a rule of its CustomResourceDefinition; compare both, and apply the object again"
    )
