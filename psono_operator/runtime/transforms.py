"""What is cut off an object before it is stored. Pure functions.

``strip_noise`` is for objects we read (rule C9). ``metadata_allowlist`` is for types that are watched as
metadata only (rules D1 and D2): it keeps what ownership and routing need and nothing that could hold a
value, whatever the server sent: neither ``data``, should an intermediary have ignored the Accept header,
nor the last-applied-configuration annotation, which quotes ``data`` whole.

The store holds thousands of these objects, so strings that repeat are shared between them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from psono_operator.runtime.resources import KubeObject

Transform = Callable[[KubeObject], KubeObject]
"""Pure: an object as received to the object to keep. It may share parts with its input."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_KEPT = ("name", "uid", "resourceVersion", "generation", "deletionTimestamp", "finalizers")
_REFERENCE_FIELDS = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_REPEATING = frozenset({"apiVersion", "kind"})


def strip_noise(obj: KubeObject) -> KubeObject:
    """The object without ``managedFields`` and without the last-applied-configuration annotation."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return obj
    slim = {name: value for name, value in metadata.items() if name != "managedFields"}
    annotations = slim.get("annotations")
    if isinstance(annotations, dict) and LAST_APPLIED in annotations:
        slim["annotations"] = {name: value for name, value in annotations.items() if name != LAST_APPLIED}
    return {**obj, "metadata": slim}


def metadata_allowlist(annotation_prefixes: Sequence[str]) -> Transform:
    """A transform keeping identity, ownership, deletion and the annotations that begin with a prefix.

    Kept are ``apiVersion``, ``kind`` and, of the metadata, namespace, name, uid, resourceVersion,
    generation, deletionTimestamp, finalizers, ownerReferences and annotations; labels are not.
    """
    prefixes = tuple(annotation_prefixes)

    def keep(obj: KubeObject) -> KubeObject:
        slim: KubeObject = {}
        for name in ("apiVersion", "kind"):
            value = obj.get(name)
            if isinstance(value, str):
                slim[name] = sys.intern(value)
        metadata = obj.get("metadata")
        slim["metadata"] = _metadata(metadata, prefixes) if isinstance(metadata, Mapping) else {}
        return slim

    return keep


def _metadata(metadata: Mapping[str, Any], prefixes: tuple[str, ...]) -> dict[str, Any]:
    slim = {name: metadata[name] for name in _KEPT if metadata.get(name)}
    namespace = metadata.get("namespace")
    if isinstance(namespace, str):
        slim["namespace"] = sys.intern(namespace)
    references = metadata.get("ownerReferences")
    if isinstance(references, list) and references:
        slim["ownerReferences"] = [_reference(ref) for ref in references if isinstance(ref, Mapping)]
    annotations = metadata.get("annotations")
    if isinstance(annotations, Mapping):
        ours = {sys.intern(name): value for name, value in annotations.items() if name.startswith(prefixes)}
        if ours:
            slim["annotations"] = ours
    return slim


def _reference(reference: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: sys.intern(value) if name in _REPEATING and isinstance(value, str) else value
        for name in _REFERENCE_FIELDS
        if (value := reference.get(name)) is not None
    }
