"""Lets go of Secrets: sends the one request that a release plan asks for.

Works on metadata alone, so no value is read to give one up. A lost race is planned anew, twice at most (F3);
what is gone already counts as released (H3).
"""

from __future__ import annotations

from psono_operator.runtime.client import KubeClient, PatchKind
from psono_operator.runtime.errors import ApiError, Conflict, Forbidden, KubeError, NotFound
from psono_operator.runtime.resources import KubeObject, ObjectKey
from psono_operator.secretsync.release import Delete, Nothing, Owned, Unmark, plan_release
from psono_operator.secretsync.resources import SECRETS
from psono_operator.secretsync.target import Claimant

_TRIES = 3


class ReleaseFailed(Exception):
    """A Secret could not be let go of; the message names it and the next step."""


class Releaser:
    """Releases former targets."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def release(self, key: ObjectKey, claimant: Claimant, owned: Owned) -> None:
        """Let go of one Secret. Raises ReleaseFailed."""
        try:
            await self._release(key, claimant, owned)
        except KubeError as error:
            raise ReleaseFailed(_explained(error, key.name)) from None

    async def _release(self, key: ObjectKey, claimant: Claimant, owned: Owned) -> None:
        for attempt in range(_TRIES):
            try:
                plan = plan_release(claimant, await self._read(key), owned)
                match plan:
                    case Delete(uid, version):
                        await self._client.delete(SECRETS, key, uid=uid, resource_version=version)
                    case Unmark(body):
                        await self._client.patch(SECRETS, key, body, PatchKind.MERGE)
                    case Nothing():
                        pass
            except NotFound:
                return
            except Conflict:
                if attempt == _TRIES - 1:
                    raise
            else:
                return

    async def _read(self, key: ObjectKey) -> KubeObject:
        return await self._client.get(SECRETS, key, metadata_only=True)


def _explained(error: KubeError, name: str) -> str:
    if isinstance(error, Forbidden):
        what, hint = (
            "the API server does not allow it (403)",
            "check the operator's RBAC rights and admission policies",
        )
    elif isinstance(error, ApiError):
        what, hint = f"the API server answered {error.code} {error.reason}".rstrip(), "it is tried again"
    else:
        what, hint = "the API server cannot be reached", "it is tried again"
    return f'the previous target Secret "{name}" could not be released: {what}; {hint}'
