"""Sends the one request that a target plan asks for, and resolves races by planning again.

A target that the metadata cache does not know is created at once, without a read before; if it exists after
all, AlreadyExists leads through the ownership gate (rule F5). A lost race is planned anew from fresh state,
twice at most, then left to the queue (F3). The body is never sent again unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from psono_operator.api.names import OPERATOR
from psono_operator.runtime.client import KubeClient, PatchKind
from psono_operator.runtime.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Throttled,
    Unauthorized,
)
from psono_operator.runtime.resources import KubeObject, ObjectKey, metadata_of
from psono_operator.secretsync.merge_policy import plan_merge
from psono_operator.secretsync.owner_policy import plan_owner
from psono_operator.secretsync.resources import SECRETS
from psono_operator.secretsync.target import Create, Leave, Patch, Refuse, Replace, Surroundings, Wanted

_TRIES = 3


class TargetRefused(Exception):
    """The target must not or cannot be written as it is; the message names it and the next step."""


class TargetWriteFailed(Exception):
    """The API server refused the write of the target."""


class NamespaceTerminating(Exception):
    """The namespace is being deleted: nothing can be created in it (rule H6)."""


class Written(StrEnum):
    """What was done to the target."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The target as it is now, metadata only, and what was done."""

    kind: Written
    target: KubeObject
    dropped: tuple[str, ...] = ()
    """Keys of others that went when an unowned Secret was taken over."""
    taken: tuple[str, ...] = ()
    """Keys that nobody managed and whose value was replaced."""
    managers: tuple[str, ...] = ()
    """Other field managers that had written the target before we did."""


class TargetWriter:
    """Writes targets; the only place that sends values to Kubernetes."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def read(self, key: ObjectKey) -> KubeObject | None:
        """The Secret as it is now, with its values; None when there is none."""
        try:
            return await self._client.get(SECRETS, key)
        except NotFound:
            return None

    async def apply(
        self, wanted: Wanted, around: Surroundings, *, believed_absent: bool, read: KubeObject | None = None
    ) -> WriteResult:
        """Make the target what is wanted; ``read`` is the Secret if it was read just now.

        Raises TargetRefused, TargetWriteFailed and NamespaceTerminating, which are for the user to mend, and
        Conflict, AlreadyExists, Throttled, Unauthorized and Unreachable, which are not.
        """
        try:
            return await self._apply(wanted, around, believed_absent, read)
        except (Conflict, AlreadyExists, Throttled, Unauthorized):
            raise
        except ApiError as error:
            raise _explained(error, wanted.key.name) from None

    async def _apply(
        self, wanted: Wanted, around: Surroundings, believed_absent: bool, read: KubeObject | None
    ) -> WriteResult:
        make_plan = plan_merge if wanted.policy == "Merge" else plan_owner
        live = read
        if live is None and not believed_absent:
            live = await self.read(wanted.key)
        for attempt in range(_TRIES):
            plan = make_plan(wanted, live, around)
            try:
                match plan:
                    case Create(body):
                        return _result(Written.CREATED, live, await self._client.create(SECRETS, body))
                    case Replace(body, dropped):
                        replaced = await self._client.replace(SECRETS, body)
                        return _result(Written.UPDATED, live, replaced, dropped)
                    case Patch(body, taken):
                        patched = await self._client.patch(SECRETS, wanted.key, body, PatchKind.MERGE)
                        return _result(Written.UPDATED, live, patched, taken=taken)
                    case Leave():
                        return _result(Written.UNCHANGED, live, live or {})
                    case Refuse(message):
                        raise TargetRefused(message)
            except (AlreadyExists, Conflict, NotFound) as error:
                # NotFound also says that the namespace is gone; a create that meets it is no race.
                if attempt == _TRIES - 1 or (isinstance(plan, Create) and isinstance(error, NotFound)):
                    raise
                live = await self.read(wanted.key)
        raise AssertionError("unreachable")


def _result(
    kind: Written,
    before: KubeObject | None,
    after: KubeObject,
    dropped: tuple[str, ...] = (),
    taken: tuple[str, ...] = (),
) -> WriteResult:
    fields = metadata_of(before or {}).get("managedFields") or ()
    others = tuple(sorted({str(each.get("manager", "")) for each in fields} - {"", OPERATOR}))
    return WriteResult(kind, {"metadata": metadata_of(after)}, dropped, taken, others)


def _explained(error: ApiError, name: str) -> Exception:
    if error.namespace_terminating:
        return NamespaceTerminating(f'Secret "{name}" cannot be written: its namespace is being deleted')
    if isinstance(error, Forbidden):
        hint = "check the operator's RBAC rights, quotas and admission policies in this namespace"
        return TargetWriteFailed(f'the API server does not allow writing Secret "{name}" (403): {hint}')
    if isinstance(error, Invalid):
        # The server's own message quotes the whole object, values included (rule R2): the fields must do.
        fields = ", ".join(dict.fromkeys(cause.field for cause in error.causes if cause.field))
        return TargetWriteFailed(
            f'the API server refuses Secret "{name}" as invalid (422, {fields or "no field named"}): '
            "check spec.target.type and the keys it requires"
        )
    answer = f"{error.code} {error.reason}".rstrip()
    return TargetWriteFailed(f'writing Secret "{name}" failed: the API server answered {answer}')
