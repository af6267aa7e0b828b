"""Names that the cluster and its users rely on; none may change silently (docs/architecture.md)."""

from __future__ import annotations

from typing import Final

GROUP: Final = "secrets.psono.com"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "PsonoSecret"
PLURAL: Final = "psonosecrets"
CRD_NAME: Final = f"{PLURAL}.{GROUP}"

FINALIZER: Final = f"{GROUP}/finalizer"
MANAGED_KEYS_ANNOTATION: Final = f"{GROUP}/managed-keys"
"""On a Merge target: which PsonoSecret manages which keys."""
FORCE_SYNC_ANNOTATION: Final = f"{GROUP}/force-sync"
"""On a PsonoSecret: any new value asks for a synchronization now."""
ANNOTATION_PREFIX: Final = f"{GROUP}/"

OPERATOR: Final = "psono-kubernetes-operator"
"""The field manager, the event source and the Lease."""
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"

SECRET_SIZE_LIMIT: Final = 1024 * 1024
"""Bytes all values of a Secret may have together (rules G6, R5)."""
