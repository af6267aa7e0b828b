"""One PsonoSecret as it is looked at now, with everything the caches know about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from psono_operator.api import names
from psono_operator.api.spec import PsonoSecretSpec, parse_spec
from psono_operator.api.status import PsonoSecretStatus, parse_status
from psono_operator.runtime.resources import (
    KubeObject,
    ObjectKey,
    annotations_of,
    generation_of,
    key_of,
    uid_of,
    version_of,
)
from psono_operator.runtime.store import StoreView
from psono_operator.secretsync.indexes import BY_AUTH_SECRET, BY_CLAIMANT, BY_TARGET
from psono_operator.secretsync.memory import Inputs, gate, revision
from psono_operator.secretsync.need import FORCE_SYNC_LIMIT
from psono_operator.secretsync.target import Claimant, Surroundings


@dataclass(slots=True)
class Visit:
    """What one reconcile works on."""

    obj: KubeObject
    """The newest state known: from the cache, later from our own writes."""
    inputs: Inputs
    spec: PsonoSecretSpec
    status: PsonoSecretStatus
    target_key: ObjectKey
    cached_target: KubeObject | None
    around: Surroundings
    leftovers: tuple[ObjectKey, ...]
    """Secrets with our marks that are not the target any more, in order."""
    source: int = 0
    """Which credentials are used, see ``sources``; 0 until that is known."""

    @property
    def key(self) -> ObjectKey:
        """The PsonoSecret's key."""
        return key_of(self.obj)

    @property
    def claimant(self) -> Claimant:
        """The PsonoSecret as its targets know it."""
        return Claimant(self.key.name, self.inputs.uid)

    @property
    def target_version(self) -> str:
        """The cached target's resourceVersion; empty when there is none."""
        return version_of(self.cached_target) if self.cached_target else ""


def look(obj: KubeObject, psono_secrets: StoreView, secrets: StoreView) -> Visit:
    """Parse the object and gather what the caches know. Raises InvalidSpec."""
    spec, status = parse_spec(obj), parse_status(obj)
    namespace = key_of(obj).namespace
    target_key = ObjectKey(namespace, spec.target.name)

    def exists(name: str, uid: str) -> bool:
        found = psono_secrets.get(ObjectKey(namespace, name))
        return found is not None and uid_of(found) == uid

    around = Surroundings(
        known=status.target is not None and status.target.name == target_key.name,
        holds_credentials=bool(psono_secrets.by_index(BY_AUTH_SECRET, str(target_key))),
        exists=exists,
    )
    leftovers = tuple(sorted(set(marked_secrets(obj, secrets)) - {target_key}))
    inputs = inputs_of(obj, spec, psono_secrets, secrets)
    return Visit(obj, inputs, spec, status, target_key, secrets.get(target_key), around, leftovers)


def marked_secrets(obj: KubeObject, secrets: StoreView) -> list[ObjectKey]:
    """The Secrets of the object's namespace that carry its marks: its targets of now and before."""
    namespace = key_of(obj).namespace
    return sorted(key for key in secrets.by_index(BY_CLAIMANT, uid_of(obj)) if key.namespace == namespace)


def inputs_of(
    obj: KubeObject, spec: PsonoSecretSpec | None, psono_secrets: StoreView, secrets: StoreView
) -> Inputs:
    """The identities of everything an attempt on ``obj`` depends on; ``spec`` is None when it is invalid."""
    namespace = key_of(obj).namespace
    target = ObjectKey(namespace, spec.target.name if spec else "")
    cached = secrets.get(target)
    users = psono_secrets.by_index(BY_TARGET, str(target)) | psono_secrets.by_index(
        BY_AUTH_SECRET, str(target)
    )
    rivals = (psono_secrets.get(key) for key in users)
    return Inputs(
        uid=uid_of(obj),
        generation=generation_of(obj),
        force_sync=annotations_of(obj).get(names.FORCE_SYNC_ANNOTATION, "")[:FORCE_SYNC_LIMIT],
        credentials=revision(
            secrets.get(ObjectKey(namespace, spec.authentication.secret_ref.name if spec else ""))
        ),
        target=revision(cached),
        rivals=tuple(sorted({uid_of(each) for each in rivals if each is not None} - {uid_of(obj)})),
        gate=gate(cached),
    )
