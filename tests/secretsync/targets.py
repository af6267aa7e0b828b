"""Words shared by the tests of the target rooms: who claims, what is wanted, what the API server would make of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

from psono_operator.api.names import MANAGED_KEYS_ANNOTATION
from psono_operator.api.spec import CreationPolicy
from psono_operator.runtime.resources import ObjectKey
from psono_operator.secretsync.target import Claimant, Create, Leave, Patch, Replace, Surroundings, Wanted

CLAIMANT = Claimant("db", "uid-1")
OURS = CLAIMANT.reference()
DEPLOYMENT = {
    "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-2", "controller": True,
}  # fmt: skip
RIVAL = Claimant("rival", "uid-9").reference()
PREDECESSOR = Claimant("db", "uid-0").reference()
ONLOOKER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "note", "uid": "uid-3"}
DELETED = "2026-12-01T00:00:00Z"
LIVING = {("db", "uid-1"), ("rival", "uid-9"), ("other", "uid-8")}
"""The PsonoSecrets of the namespace."""


def wanted(
    data: Mapping[str, bytes] | None = None,
    *,
    policy: CreationPolicy = "Owner",
    type: str = "Opaque",
    claimant: Claimant = CLAIMANT,
) -> Wanted:
    return Wanted(ObjectKey("shop", "db"), type, policy, claimant, {"A": b"1"} if data is None else data)


def around(*, known: bool = False, holds_credentials: bool = False) -> Surroundings:
    return Surroundings(known, holds_credentials, lambda name, uid: (name, uid) in LIVING)


def annotation(shares: Mapping[tuple[str, str], Iterable[str]]) -> str:
    """The managed-keys annotation that gives each (name, uid) its keys."""
    listed = {name: {"uid": uid, "keys": sorted(keys)} for (name, uid), keys in shares.items()}
    return json.dumps(listed, sort_keys=True, separators=(",", ":"))


def managed(shares: Mapping[tuple[str, str], Iterable[str]]) -> dict[str, str]:
    return {MANAGED_KEYS_ANNOTATION: annotation(shares)}


def fields(manager: str, *, keys: Iterable[str] = (), list_of_keys: bool = False) -> dict[str, Any]:
    """One item of ``managedFields``: ``manager`` wrote these keys last, and perhaps the annotation."""
    written: dict[str, Any] = {"f:data": {".": {}, **{f"f:{key}": {} for key in keys}}}
    if list_of_keys:
        written["f:metadata"] = {"f:annotations": {".": {}, f"f:{MANAGED_KEYS_ANNOTATION}": {}}}
    return {"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": written}


def after(live: dict[str, Any] | None, plan: Any) -> dict[str, Any]:
    """The Secret after the plan's request, as an API server would store it."""
    match plan:
        case Create(body):
            return {
                **copy.deepcopy(body),
                "metadata": {**body["metadata"], "uid": "new", "resourceVersion": "1"},
            }
        case Replace(body):
            return copy.deepcopy(body)
        case Patch(body):
            assert live is not None
            return merged(live, body)
        case Leave():
            assert live is not None
            return live
    raise AssertionError(f"nothing is written: {plan}")


def merged(live: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """RFC 7386."""
    result = copy.deepcopy(dict(live))
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            result[name] = merged(result.get(name) or {}, value)
        else:
            result[name] = copy.deepcopy(value)
    return result
