"""May this Secret be written, and with which single request: the plan for a target. Pure.

Rules G1 (ownership gate), G2 (PUT with the resourceVersion for Owner), G4 (write only on difference). What
others put on the Secret, labels, annotations, finalizers and further owner references, stays.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psono_operator.api import names
from psono_operator.runtime.resources import (
    KubeObject,
    ObjectKey,
    controller_of,
    is_deleting,
    metadata_of,
)


@dataclass(frozen=True, slots=True)
class Owner:
    """The PsonoSecret a target belongs to."""

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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the target should be. No repr: it holds values."""

    key: ObjectKey
    type: str
    owner: Owner
    data: Mapping[str, bytes]

    def __repr__(self) -> str:
        return f"Wanted({self.key}, {len(self.data)} keys)"


@dataclass(frozen=True, slots=True, repr=False)
class Create:
    """POST ``body``."""

    body: KubeObject


@dataclass(frozen=True, slots=True, repr=False)
class Replace:
    """PUT ``body``. ``dropped``: keys of others that go, when an unowned Secret is taken over."""

    body: KubeObject
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leave:
    """It is as it should be."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """It must not be written, or cannot be; the message says what to do."""

    message: str


TargetPlan = Create | Replace | Leave | Refuse


def plan_target(
    wanted: Wanted, live: KubeObject | None, *, known: bool, holds_credentials: bool
) -> TargetPlan:
    """The plan for a target of policy Owner.

    ``live`` is the Secret as read just now, or None. ``known``: it was our target before. And
    ``holds_credentials``: some PsonoSecret of the namespace uses a Secret of this name for authentication;
    that protects a Secret which is not ours already.
    """
    if live is None:
        if holds_credentials and not known:
            return Refuse(_CREDENTIALS.format(wanted.key.name))
        return Create(_new(wanted))
    ours = _controls(live, wanted.owner.uid)
    refusal = _refusal(wanted, live, ours=ours, holds_credentials=holds_credentials)
    if refusal:
        return Refuse(refusal)
    body = _replacement(wanted, live)
    same_data = decoded(live) == wanted.data
    if same_data and body.get("metadata") == live.get("metadata"):
        return Leave()
    if live.get("immutable") is True and not same_data:
        return Refuse(
            f'Secret "{wanted.key.name}" is immutable and its values have changed: '
            "delete it, and it is made anew"
        )
    dropped = () if ours else tuple(sorted(set(live.get("data") or {}) - set(wanted.data)))
    return Replace(body, dropped)


_CREDENTIALS = (
    'Secret "{}" is the authentication Secret of a PsonoSecret and would be overwritten: '
    "choose another spec.target.name"
)


def decoded(secret: KubeObject) -> dict[str, bytes]:
    """The values of a Secret as sent by the API server; what is no base64 is left out."""
    data: dict[str, bytes] = {}
    for name, value in (secret.get("data") or {}).items():
        with contextlib.suppress(binascii.Error, TypeError, ValueError):
            data[name] = base64.b64decode(value or "", validate=True)
    return data


def _refusal(wanted: Wanted, live: KubeObject, *, ours: bool, holds_credentials: bool) -> str | None:
    name = wanted.key.name
    controller = controller_of(live)
    if controller is not None and not ours:
        return (
            f'Secret "{name}" is controlled by '
            f'{controller.get("kind", "?")} "{controller.get("name", "?")}": '
            "choose another spec.target.name, or remove that owner reference"
        )
    if holds_credentials and not ours:
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


def _controls(live: KubeObject, uid: str) -> bool:
    controller = controller_of(live)
    return controller is not None and controller.get("uid") == uid


def _new(wanted: Wanted) -> KubeObject:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": wanted.key.name,
            "namespace": wanted.key.namespace,
            "labels": {names.MANAGED_BY_LABEL: names.OPERATOR},
            "ownerReferences": [wanted.owner.reference()],
        },
        "type": wanted.type,
        "data": _encoded(wanted.data),
    }


def _replacement(wanted: Wanted, live: KubeObject) -> KubeObject:
    references = list(metadata_of(live).get("ownerReferences") or ())
    reference = wanted.owner.reference()
    if [each for each in references if each.get("uid") == wanted.owner.uid] != [reference]:
        references = [*(each for each in references if each.get("uid") != wanted.owner.uid), reference]
    body = {name: value for name, value in live.items() if name not in {"data", "stringData"}}
    body["metadata"] = {**metadata_of(live), "ownerReferences": references}
    body["data"] = _encoded(wanted.data)
    return body


def _encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(value).decode("ascii") for name, value in data.items()}
