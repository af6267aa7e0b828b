"""Indexes over the cached objects, and lookups in them (rule D3).

Index functions are pure and forgiving: an object that the CRD would refuse today is indexed by what can be
read of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from psono_operator.api import names
from psono_operator.runtime.resources import (
    KubeObject,
    ObjectKey,
    annotations_of,
    controller_of,
    metadata_of,
    uid_of,
)
from psono_operator.runtime.store import IndexFunction
from psono_operator.secretsync.managedkeys import manager_uids

BY_AUTH_SECRET = "authentication-secret"
BY_TARGET = "target"
BY_UID = "uid"
BY_CLAIMANT = "claimant"


def value_at(obj: Mapping[str, Any], *path: str) -> object:
    """What is at ``path``, or None: for objects that nobody has validated."""
    value: object = obj
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _secret_name(obj: KubeObject, *path: str) -> Iterable[str]:
    name = value_at(obj, "spec", *path)
    if isinstance(name, str) and name:
        yield str(ObjectKey(metadata_of(obj).get("namespace", ""), name))


def auth_secret(obj: KubeObject) -> Iterable[str]:
    """The authentication Secret of a PsonoSecret, as ``namespace/name``."""
    return _secret_name(obj, "authentication", "secretRef", "name")


def target(obj: KubeObject) -> Iterable[str]:
    """The target of a PsonoSecret, as ``namespace/name``."""
    return _secret_name(obj, "target", "name")


def uid(obj: KubeObject) -> Iterable[str]:
    """The object's uid."""
    return (uid_of(obj),)


def claimants(obj: KubeObject) -> Iterable[str]:
    """The uids of the PsonoSecrets whose marks a Secret carries: its controller, and who manages keys."""
    reference = controller_of(obj)
    if reference and reference.get("kind") == names.KIND and _group(reference) == names.GROUP:
        yield str(reference.get("uid", ""))
    yield from manager_uids(annotations_of(obj))


def _group(reference: Mapping[str, Any]) -> str:
    return str(reference.get("apiVersion", "")).partition("/")[0]


PSONO_SECRET_INDEXES: Mapping[str, IndexFunction] = {
    BY_AUTH_SECRET: auth_secret,
    BY_TARGET: target,
    BY_UID: uid,
}
SECRET_INDEXES: Mapping[str, IndexFunction] = {BY_CLAIMANT: claimants}
