"""Lets go of Secrets that are targets no longer, and of the PsonoSecret itself when it is deleted.

Leftovers are found in the cache, not remembered: any Secret with our marks that is not the target. So any
number of renames, policy changes and crashes converges. Deletion needs neither Psono nor
the authentication Secret nor the target (rule H3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from psono_operator.api.spec import CreationPolicy
from psono_operator.api.status import parse_status
from psono_operator.runtime.client import KubeClient
from psono_operator.runtime.resources import KubeObject, ObjectKey, key_of, uid_of
from psono_operator.runtime.store import StoreView
from psono_operator.secretsync.finalizer import has_finalizer, remove_finalizer
from psono_operator.secretsync.indexes import value_at
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
        return await self._release(dict.fromkeys(keys, Owned.DELETE), claimant)

    async def finalize(self, obj: KubeObject) -> None:
        """The PsonoSecret is being deleted: remove our marks, then our finalizer. Raises ReleaseFailed.

        A target of policy Owner is left to the garbage collector, so that every propagation policy works
        (rule H4).
        """
        if not has_finalizer(obj):
            return
        claimant = Claimant(key_of(obj).name, uid_of(obj))
        failed = await self._release(last_wishes(obj, marked_secrets(obj, self._secrets)), claimant)
        if failed:
            raise ReleaseFailed(failed)
        await remove_finalizer(self._client, obj)

    async def _release(self, keys: Mapping[ObjectKey, Owned], claimant: Claimant) -> str:
        failed = ""
        for key, owned in keys.items():
            try:
                await self._releaser.release(key, claimant, owned)
            except ReleaseFailed as error:
                failed = failed or str(error)
        return failed


def last_wishes(obj: KubeObject, marked: Collection[ObjectKey]) -> dict[ObjectKey, Owned]:
    """What to do with each Secret of a PsonoSecret that is being deleted; ``marked`` carry its marks. Pure.

    What the spec wants merged keeps its values, also when the change to policy Merge was never carried out:
    then a Secret that it owned before may hold the only copy, so that one is kept, too. Whether it was is
    what the status says, which does not change while we work; the marks do.
    """
    if _policy(obj) == "Owner":
        return dict.fromkeys(sorted(marked), Owned.LEAVE)
    targets, synced = _target(obj), parse_status(obj).target
    carried_out = (
        synced is not None
        and synced.creation_policy == "Merge"
        and ObjectKey(key_of(obj).namespace, synced.name or "") in targets
    )
    former = Owned.LEAVE if carried_out else Owned.KEEP
    # The target is there even if it is not marked: our own last write may not have reached the cache.
    return {key: Owned.KEEP if key in targets else former for key in sorted({*marked, *targets})}


def _policy(obj: KubeObject) -> CreationPolicy:
    return "Merge" if value_at(obj, "spec", "target", "creationPolicy") == "Merge" else "Owner"


def _target(obj: KubeObject) -> set[ObjectKey]:
    name = value_at(obj, "spec", "target", "name")
    return {ObjectKey(key_of(obj).namespace, name)} if isinstance(name, str) and name else set()
