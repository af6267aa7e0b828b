"""PsonoSecrets and Secrets for tests, as the API server would hand them out."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

UID = "0b4f6a54-1111-4222-8333-444455556666"
ENTRY = "25070c66-8950-4264-9b39-11e6d83312e3"


def mapping(
    key: str, *, entry: str = ENTRY, variable: str | None = None, path: str | None = None
) -> dict[str, Any]:
    ref: dict[str, Any] = {"secretId": entry}
    if path is not None:
        ref["field"] = path
    else:
        ref["environmentVariable"] = variable or key
    return {"secretKey": key, "remoteRef": ref}


def psono_secret(
    name: str = "db", *, namespace: str = "shop", target: str = "db", **changes: Any
) -> dict[str, Any]:
    """A complete object; ``changes`` replace top-level parts of ``spec``, or ``metadata`` and ``status``."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": UID,
        "generation": 1,
        "resourceVersion": "100",
        "finalizers": ["secrets.psono.com/finalizer"],
        **changes.pop("metadata", {}),
    }
    obj: dict[str, Any] = {
        "apiVersion": "secrets.psono.com/v1alpha1",
        "kind": "PsonoSecret",
        "metadata": metadata,
    }
    status = changes.pop("status", None)
    if status is not None:
        obj["status"] = status
    obj["spec"] = {
        "refreshInterval": "5m",
        "authentication": {"secretRef": {"name": "psono-credentials"}},
        "target": {"name": target, "creationPolicy": "Owner", "type": "Opaque"},
        "data": [mapping("DB_HOST")],
        **changes,
    }
    return obj


def secret(
    name: str = "db",
    data: Mapping[str, bytes] | None = None,
    *,
    namespace: str = "shop",
    type: str = "Opaque",
    version: str = "7",
    **metadata: Any,
) -> dict[str, Any]:
    """A Secret with its values, base64-encoded as on the wire."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-of-{name}",
            "resourceVersion": version,
            **metadata,
        },
        "type": type,
        "data": {key: base64.b64encode(value).decode() for key, value in (data or {}).items()},
    }
