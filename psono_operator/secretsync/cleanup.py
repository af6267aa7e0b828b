"""Lets go of Secrets that are targets no longer, and of the PsonoSecret itself when it is deleted.

Leftovers are found in the cache, not remembered: any Secret with our marks that is not the target. So any
number of renames, policy changes and crashes converges (DESIGN section 3). Deletion needs neither Psono nor
the authentication Secret nor the target (rule H3).
"""

from __future__ import annotations

from collections.abc import Iterable

from psono_operator.api.spec import CreationPolicy
from psono_operator.runtime.client import KubeClient
from psono_operator.runtime.resources import KubeObject, ObjectKey, key_of, uid_of
from psono_operator.runtime.store import StoreView
from psono_operator.secretsync.finalizer import has_finalizer, remove_finalizer
from psono_operator.secretsync.release import Owned
from psono_operator.secretsync.releaser import ReleaseFailed, Releaser
from psono_operator.secretsync.target import Claimant
from psono_operator.secretsync.visit import marked_secrets


class Cleanup:
    """Releases, in order, everything that can be released; a failure stops only its own Secret."""

    def __init__(self, client: KubeClient, releaser: Releaser, secrets: StoreView) -> None:
        self._client = client
        self._releaser = releaser
        self._secrets = secrets

    async def release_leftovers(self, keys: Iterable[ObjectKey], claimant: Claimant) -> str:
        """Release former targets; the first failure in words, or an empty string."""
        return await self._release(keys, claimant, Owned.DELETE)

    async def finalize(self, obj: KubeObject) -> None:
        """The PsonoSecret is being deleted: remove our marks, then our finalizer. Raises ReleaseFailed.

        A target of policy Owner is left to the garbage collector, so that every propagation policy works
        (rule H4); one that the spec wants merged keeps its values even if that was never carried out.
        """
        if not has_finalizer(obj):
            return
        keys = set(marked_secrets(obj, self._secrets))
        merged = _policy(obj) == "Merge"
        if merged:
            keys |= _target(obj)  # our own last write may not have reached the cache
        claimant = Claimant(key_of(obj).name, uid_of(obj))
        failed = await self._release(sorted(keys), claimant, Owned.KEEP if merged else Owned.LEAVE)
        if failed:
            raise ReleaseFailed(failed)
        await remove_finalizer(self._client, obj)

    async def _release(self, keys: Iterable[ObjectKey], claimant: Claimant, owned: Owned) -> str:
        failed = ""
        for key in keys:
            try:
                await self._releaser.release(key, claimant, owned)
            except ReleaseFailed as error:
                failed = failed or str(error)
        return failed


def _policy(obj: KubeObject) -> CreationPolicy:
    target = (obj.get("spec") or {}).get("target") or {}
    return "Merge" if isinstance(target, dict) and target.get("creationPolicy") == "Merge" else "Owner"


def _target(obj: KubeObject) -> set[ObjectKey]:
    name = ((obj.get("spec") or {}).get("target") or {}).get("name")
    return {ObjectKey(key_of(obj).namespace, name)} if isinstance(name, str) and name else set()
