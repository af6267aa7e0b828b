"""What every object's metadata must be: decoding, validation, and what a client cannot change.

Follows apimachinery's ``ObjectMeta`` and ``ValidateObjectMeta(Update)``. It refuses to know any kind.
"""

from __future__ import annotations

import random
import re
from typing import Any

from psono_operator.sandbox.kube.objects import Obj, json_type, metadata
from psono_operator.sandbox.kube.status import (
    Cause,
    DecodeError,
    forbidden_field,
    invalid,
    required,
    too_long,
)

_SUBDOMAIN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN_HINT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must"
    f" start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    f" '{_SUBDOMAIN}')"
)
_LABEL_HINT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and"
    " end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    f" '{_LABEL}')"
)
_QUALIFIED_HINT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an"
    " alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    f" '{_QUALIFIED}')"
)
_VALUE_HINT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must"
    " start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used"
    f" for validation is '({_QUALIFIED})?')"
)
_ANNOTATIONS_LIMIT = 256 * 1024
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"

_STRING, _STRINGS, _OBJECTS, _INTEGER = "string", "strings", "objects", "integer"
_MAP = "map"
_FIELDS = {
    "name": _STRING,
    "generateName": _STRING,
    "namespace": _STRING,
    "selfLink": _STRING,
    "uid": _STRING,
    "resourceVersion": _STRING,
    "generation": _INTEGER,
    "creationTimestamp": _STRING,
    "deletionTimestamp": _STRING,
    "deletionGracePeriodSeconds": _INTEGER,
    "labels": _MAP,
    "annotations": _MAP,
    "ownerReferences": _OBJECTS,
    "finalizers": _STRINGS,
    "managedFields": _OBJECTS,
}


def decode_metadata(obj: Obj) -> list[str]:
    """Bring ``obj["metadata"]`` into shape in place: drop what ObjectMeta does not have, nulls and empties.

    Returns the paths of the dropped fields; raises DecodeError for a field of the wrong type.
    """
    found = obj.get("metadata")
    if found is None:
        found = {}
    if not isinstance(found, dict):
        raise DecodeError(_cannot(found, "", "v1.ObjectMeta"))
    unknown = [f"metadata.{name}" for name in found if name not in _FIELDS]
    kept: Obj = {}
    for name, value in found.items():
        if name in _FIELDS and value is not None:
            _check_type(name, value)
            if value not in ("", {}, []):
                kept[name] = value
    obj["metadata"] = kept
    return unknown


def _check_type(name: str, value: Any) -> None:
    shape = _FIELDS[name]
    if shape == _STRING and not isinstance(value, str):
        raise DecodeError(_cannot(value, name, "string"))
    if shape == _INTEGER and json_type(value) != "integer":
        raise DecodeError(_cannot(value, name, "int64"))
    if shape == _MAP:
        if not isinstance(value, dict):
            raise DecodeError(_cannot(value, name, "map[string]string"))
        for item in value.values():
            if not isinstance(item, str):
                raise DecodeError(_cannot(item, name, "string"))
    if shape in (_STRINGS, _OBJECTS):
        wanted = str if shape == _STRINGS else dict
        if not isinstance(value, list) or not all(isinstance(item, wanted) for item in value):
            raise DecodeError(_cannot(value, name, f"[]{'string' if shape == _STRINGS else 'struct'}"))


def _cannot(value: Any, name: str, wanted: str) -> str:
    word = {"integer": "number", "boolean": "bool"}.get(json_type(value), json_type(value))
    place = f"metadata.{name}" if name else "metadata"
    return f"json: cannot unmarshal {word} into Go struct field ObjectMeta.{place} of type {wanted}"


def generate_name(prefix: str, rng: random.Random) -> str:
    """A name for ``generateName``: the prefix, cut to fit, and five characters without vowels."""
    return prefix[: 63 - 5] + "".join(rng.choice(_SUFFIX_ALPHABET) for _ in range(5))


def validate_metadata(obj: Obj, *, label_name: bool) -> list[Cause]:
    """What is wrong with the metadata of a new or changed object."""
    meta = metadata(obj)
    causes = _validate_name(meta, label_name=label_name)
    for key, value in (meta.get("labels") or {}).items():
        causes += _validate_key(key, "metadata.labels")
        if len(value) > 63 or re.fullmatch(f"({_QUALIFIED})?", value) is None:
            causes.append(invalid("metadata.labels", value, _VALUE_HINT))
    annotations = meta.get("annotations") or {}
    for key in annotations:
        causes += _validate_key(key.lower(), "metadata.annotations")
    if sum(len(key) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        causes.append(too_long("metadata.annotations", _ANNOTATIONS_LIMIT))
    return causes + _validate_owners(meta.get("ownerReferences") or [])


def _validate_name(meta: Obj, *, label_name: bool) -> list[Cause]:
    name = meta.get("name", "")
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    pattern, hint, limit = (_LABEL, _LABEL_HINT, 63) if label_name else (_SUBDOMAIN, _SUBDOMAIN_HINT, 253)
    if len(name) > limit:
        return [invalid("metadata.name", name, f"must be no more than {limit} characters")]
    return [] if re.fullmatch(pattern, name) else [invalid("metadata.name", name, hint)]


def _validate_key(key: str, field: str) -> list[Cause]:
    prefix, slash, name = key.rpartition("/")
    if not name:
        return [invalid(field, key, "name part must be non-empty")]
    if len(name) > 63 or re.fullmatch(_QUALIFIED, name) is None:
        return [invalid(field, key, _QUALIFIED_HINT)]
    if slash and re.fullmatch(_SUBDOMAIN, prefix) is None:
        return [invalid(field, key, f"prefix part {_SUBDOMAIN_HINT}")]
    return []


def _validate_owners(owners: list[Obj]) -> list[Cause]:
    causes: list[Cause] = []
    for index, owner in enumerate(owners):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                path = f"metadata.ownerReferences[{index}].{name}"
                causes.append(
                    invalid(path, "", f"{'version' if name == 'apiVersion' else name} must not be empty")
                )
    if sum(owner.get("controller") is True for owner in owners) > 1:
        detail = "Only one reference can have Controller set to true. Found more than one"
        causes.append(invalid("metadata.ownerReferences", owners, detail))
    return causes


def carry_over(new: Obj, old: Obj) -> None:
    """Copy into ``new`` what a client may leave out and cannot change: times, generation, uid."""
    meta, before = new["metadata"], old["metadata"]
    for name in ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        meta.pop(name, None)
        if name in before:
            meta[name] = before[name]
    meta.setdefault("uid", before["uid"])


def validate_metadata_update(new: Obj, old: Obj) -> list[Cause]:
    """What an update may not do to metadata, uid and new finalizers (rule H1) among it."""
    meta, before = metadata(new), metadata(old)
    causes = [
        invalid(f"metadata.{name}", meta.get(name), "field is immutable")
        for name in ("name", "namespace", "uid")
        if meta.get(name) != before.get(name)
    ]
    if before.get("deletionTimestamp"):
        added = sorted(set(meta.get("finalizers") or ()) - set(before.get("finalizers") or ()))
        if added:
            quoted = ", ".join(f'"{name}"' for name in added)
            detail = (
                "no new finalizers can be added if the object is being deleted, found new finalizers"
                f" []string{{{quoted}}}"
            )
            causes.append(forbidden_field("metadata.finalizers", detail))
    return causes
