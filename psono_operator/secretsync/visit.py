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
from psono_operator.secretsync.failures import NotSupported
from psono_operator.secretsync.indexes import BY_OWNER
from psono_operator.secretsync.memory import Inputs, revision
from psono_operator.secretsync.need import FORCE_SYNC_LIMIT


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

    @property
    def key(self) -> ObjectKey:
        """The PsonoSecret's key."""
        return key_of(self.obj)

    @property
    def target_version(self) -> str:
        """The cached target's resourceVersion; empty when there is none."""
        return version_of(self.cached_target) if self.cached_target else ""

    @property
    def known_target(self) -> bool:
        """Whether the target was ours at the last good synchronization."""
        return self.status.target is not None and self.status.target.name == self.target_key.name


def look(obj: KubeObject, secrets: StoreView) -> Visit:
    """Parse the object and find its target in the cache. Raises InvalidSpec and NotSupported."""
    spec, status = parse_spec(obj), parse_status(obj)
    target_key = ObjectKey(key_of(obj).namespace, spec.target.name)
    _refuse_unsupported(obj, spec, status, secrets)
    return Visit(obj, inputs_of(obj, spec, secrets), spec, status, target_key, secrets.get(target_key))


def inputs_of(obj: KubeObject, spec: PsonoSecretSpec | None, secrets: StoreView) -> Inputs:
    """The identities of everything an attempt on ``obj`` depends on; ``spec`` is None when it is invalid."""
    namespace = key_of(obj).namespace
    auth = spec.authentication.secret_ref.name if spec else ""
    target = spec.target.name if spec else ""
    return Inputs(
        uid=uid_of(obj),
        generation=generation_of(obj),
        force_sync=annotations_of(obj).get(names.FORCE_SYNC_ANNOTATION, "")[:FORCE_SYNC_LIMIT],
        credentials=revision(secrets.get(ObjectKey(namespace, auth))),
        target=revision(secrets.get(ObjectKey(namespace, target))),
    )


def _refuse_unsupported(
    obj: KubeObject, spec: PsonoSecretSpec, status: PsonoSecretStatus, secrets: StoreView
) -> None:
    if spec.target.creation_policy == "Merge":
        raise NotSupported("spec.target.creationPolicy Merge is not supported by this version: use Owner")
    known = status.target.name if status.target else None
    if known not in {None, spec.target.name}:
        raise NotSupported(
            f'changing spec.target.name is not supported by this version: set it back to "{known}", '
            "or delete this PsonoSecret and create it anew"
        )
    owned = secrets.by_index(BY_OWNER, uid_of(obj)) - {ObjectKey(key_of(obj).namespace, spec.target.name)}
    if owned:
        raise NotSupported(
            f'Secret "{min(owned).name}" was a target of this PsonoSecret too, '
            "and this version does not clean up previous targets: delete that Secret"
        )
