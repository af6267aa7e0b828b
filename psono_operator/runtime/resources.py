"""What the runtime needs to know about a resource type, and how to read an object's metadata.

Objects are plain dictionaries as the API server sent them. This module turns a resource and a key into
a URL path and reads the few metadata fields that every kind has; it refuses to know any kind by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

KubeObject = dict[str, Any]
"""An object of the Kubernetes API: JSON, parsed, otherwise untouched."""


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """Namespace and name of an object; the namespace is empty for cluster-scoped resources."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource type. ``sensitive`` marks bodies that may hold secret values (rule F8)."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    sensitive: bool = False

    @property
    def api_version(self) -> str:
        """The value of ``apiVersion`` in objects of this type."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def collection_path(self, namespace: str | None = None) -> str:
        """The path of the collection: of one namespace, or of all when ``namespace`` is None."""
        prefix = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace is None or not self.namespaced:
            return f"{prefix}/{self.plural}"
        return f"{prefix}/namespaces/{quote(namespace, safe='')}/{self.plural}"

    def object_path(self, key: ObjectKey, subresource: str | None = None) -> str:
        """The path of one object or of one of its subresources."""
        path = f"{self.collection_path(key.namespace)}/{quote(key.name, safe='')}"
        return f"{path}/{subresource}" if subresource else path


def metadata_of(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object's metadata, or an empty mapping."""
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}  # a check against Mapping costs six times as much


def key_of(obj: Mapping[str, Any]) -> ObjectKey:
    """The key of an object. Objects without a name (a bookmark has none) give an empty name."""
    metadata = metadata_of(obj)
    return ObjectKey(metadata.get("namespace") or "", metadata.get("name") or "")


def uid_of(obj: Mapping[str, Any]) -> str:
    """The object's uid, its only true identity (rule C3)."""
    return metadata_of(obj).get("uid") or ""


def version_of(obj: Mapping[str, Any]) -> str:
    """The object's resourceVersion: opaque, equal or not equal (rule A4)."""
    return metadata_of(obj).get("resourceVersion") or ""


def generation_of(obj: Mapping[str, Any]) -> int:
    """The object's generation; 0 where the type has none."""
    generation = metadata_of(obj).get("generation")
    return generation if isinstance(generation, int) else 0


def is_deleting(obj: Mapping[str, Any]) -> bool:
    """Whether deletion has begun."""
    return bool(metadata_of(obj).get("deletionTimestamp"))


def annotations_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """The object's annotations, or an empty mapping."""
    return metadata_of(obj).get("annotations") or {}


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference that is the object's controller, if any."""
    for reference in metadata_of(obj).get("ownerReferences") or ():
        if isinstance(reference, dict) and reference.get("controller") is True:
            return reference
    return None


def compare_versions(left: str, right: str) -> int | None:
    """Order two resourceVersions: negative, zero or positive, or None for "unknown" (rule A4).

    Only strings of digits without a leading zero can be ordered: by length, then character by character.
    """
    if left == right:
        return 0 if left else None
    for version in (left, right):
        if not version.isascii() or not version.isdigit() or version.startswith("0"):
            return None
    return -1 if (len(left), left) < (len(right), right) else 1
