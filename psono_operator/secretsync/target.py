"""May this Secret be written, and with which single request: what both policies share. Pure.

Rules G1 (ownership gate), G2 (which verb), G4 (write only on difference). ``owner_policy`` and
``merge_policy`` make the plans; this module holds their words and the refusals they have in common. What
others put on a Secret, labels, annotations, finalizers and further owner references, always stays.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from psono_operator.api import names
from psono_operator.api.spec import CreationPolicy
from psono_operator.runtime.resources import (
    KubeObject,
    ObjectKey,
    annotations_of,
    controller_of,
    is_deleting,
    metadata_of,
)
from psono_operator.secretsync.managedkeys import NOBODY, CorruptAnnotation, ManagedKeys, managed_keys
from psono_operator.secretsync.secrettypes import unmet_need


@dataclass(frozen=True, slots=True)
class Claimant:
    """The PsonoSecret a target is written for."""

    name: str
    uid: str

    def reference(self) -> dict[str, Any]:
        """The controller reference; ``blockOwnerDeletion`` lets a foreground deletion wait for the target."""
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def controls(self, secret: KubeObject) -> bool:
        """Whether the Secret's controller is this PsonoSecret, by uid."""
        controller = controller_of(secret)
        return controller is not None and controller.get("uid") == self.uid


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the target should be."""

    key: ObjectKey
    type: str
    policy: CreationPolicy
    claimant: Claimant
    data: Mapping[str, bytes]

    def __repr__(self) -> str:  # it holds values (rule F8)
        return f"Wanted({self.key}, {self.policy}, {len(self.data)} keys)"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the caches say about the target's neighbourhood."""

    known: bool
    """It was this PsonoSecret's target at the last good synchronization."""
    holds_credentials: bool
    """Some PsonoSecret of the namespace uses a Secret of this name for authentication."""
    exists: Callable[[str, str], bool]
    """Whether a PsonoSecret with this name and uid is in the namespace."""


@dataclass(frozen=True, slots=True, repr=False)
class Create:
    """POST ``body``."""

    body: KubeObject


@dataclass(frozen=True, slots=True, repr=False)
class Replace:
    """PUT ``body``. ``dropped``: keys of others that go when the Secret is taken over."""

    body: KubeObject
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Patch:
    """Merge patch ``body``. ``taken``: keys of others whose value is replaced."""

    body: KubeObject
    taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leave:
    """It is as it should be."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """It must not be written, or cannot be; the message says what to do."""

    message: str


TargetPlan = Create | Replace | Patch | Leave | Refuse


def shares(wanted: Wanted, live: KubeObject | None, around: Surroundings) -> ManagedKeys | None:
    """Who manages keys of the Secret, without those who are gone; None when that cannot be told.

    A corrupt annotation on a Secret that the claimant controls is no doubt: nobody else can have keys there.
    """
    try:
        return managed_keys(annotations_of(live or {})).only(around.exists)
    except CorruptAnnotation:
        return NOBODY if wanted.claimant.controls(live or {}) else None


def refusal(wanted: Wanted, live: KubeObject | None, around: Surroundings, *, ours: bool) -> str | None:
    """Why neither policy may write the target, or None. ``ours``: it carries our marks already."""
    name = wanted.key.name
    if live is None:
        return _CREDENTIALS.format(name) if around.holds_credentials and not around.known else None
    if around.holds_credentials and not ours:
        return _CREDENTIALS.format(name)
    if is_deleting(live):
        return f'Secret "{name}" is being deleted and waits for its finalizers; it is made anew after that'
    found = live.get("type") or "Opaque"
    if found != wanted.type:
        return (
            f'Secret "{name}" has type {found}, which cannot be changed to {wanted.type}: '
            "delete the Secret, and it is made anew, or set spec.target.type to the type it has"
        )
    return None


def unfit(wanted: Wanted, data: Mapping[str, bytes]) -> str | None:
    """Why the API server would refuse ``data`` as the whole content of the target, or None (rule G6)."""
    need = unmet_need(wanted.type, data)
    if need:
        return f"a Secret of type {wanted.type} needs {need}: map what is missing, or change spec.target.type"
    size = sum(map(len, data.values()))
    if size > names.SECRET_SIZE_LIMIT:
        return (
            f'Secret "{wanted.key.name}" would hold {size} bytes, {sum(map(len, wanted.data.values()))} of '
            f"them ours, and a Secret holds at most {names.SECRET_SIZE_LIMIT}: map fewer or smaller values, "
            "or choose another spec.target.name"
        )
    return None


def controlled_by_another(wanted: Wanted, controller: Mapping[str, Any]) -> str:
    """The refusal of a target that somebody else controls."""
    if controller.get("kind") == names.KIND and controller.get("name") == wanted.claimant.name:
        return (
            f'Secret "{wanted.key.name}" still belongs to an earlier PsonoSecret "{wanted.claimant.name}": '
            "the garbage collector deletes it, and it is made anew; to keep it, remove that owner reference"
        )
    return (
        f'Secret "{wanted.key.name}" is controlled by '
        f'{controller.get("kind", "?")} "{controller.get("name", "?")}": '
        "choose another spec.target.name, or remove that owner reference"
    )


def immutable(wanted: Wanted) -> str:
    """The refusal of a change to an immutable Secret."""
    return (
        f'Secret "{wanted.key.name}" is immutable and its values have changed: delete it, and it is made anew'
    )


def corrupt_annotation(name: str) -> str:
    """The refusal of a target whose managed-keys annotation cannot be understood."""
    return (
        f'annotation {names.MANAGED_KEYS_ANNOTATION} of Secret "{name}" is not what the operator wrote: '
        "remove the annotation, and every PsonoSecret with policy Merge writes its part again"
    )


_CREDENTIALS = (
    'Secret "{}" is the authentication Secret of a PsonoSecret and would be overwritten: '
    "choose another spec.target.name"
)


def new_secret(wanted: Wanted) -> KubeObject:
    """The body of a Secret we create, without what the policies add."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": wanted.key.name,
            "namespace": wanted.key.namespace,
            "labels": {names.MANAGED_BY_LABEL: names.OPERATOR},
        },
        "type": wanted.type,
        "data": encoded(wanted.data),
    }


def references_of(obj: KubeObject) -> list[dict[str, Any]]:
    """The owner references, as a new list."""
    return list(metadata_of(obj).get("ownerReferences") or ())


def encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    """Values as a Secret's ``data`` has them."""
    return {name: base64.b64encode(value).decode("ascii") for name, value in data.items()}


def decoded(secret: KubeObject) -> dict[str, bytes]:
    """The values of a Secret as sent by the API server; what is no base64 is left out."""
    data: dict[str, bytes] = {}
    for name, value in (secret.get("data") or {}).items():
        with contextlib.suppress(binascii.Error, TypeError, ValueError):
            data[name] = base64.b64decode(value or "", validate=True)
    return data
