"""Whether a body is an object of the kind, name and namespace its URL is about."""

from __future__ import annotations

from typing import Any

from psono_operator.sandbox.kube.objects import Obj, compact_json, dig
from psono_operator.sandbox.kube.registry import ResourceType
from psono_operator.sandbox.kube.status import bad_request, invalid, unprocessable


def _check_kind(resource: ResourceType, body: Any) -> Obj:
    """A shallow copy of ``body`` with apiVersion and kind; 400 and 422 for another kind of thing.

    Built-in kinds may leave both out, custom resources may not.
    """
    if not isinstance(body, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind})")
    new: Obj = dict(body)
    kind, version = new.get("kind"), new.get("apiVersion")
    if resource.custom:
        if not kind or not version:
            lacking = "Kind" if not kind else "apiVersion"
            text = compact_json(body)
            raise bad_request(
                f"the object provided is unrecognized (must be of type {resource.kind}):"
                f" Object '{lacking}' is missing in '{text[:200]}'"
            )
        if version != resource.api_version:
            raise bad_request(
                f"the API version in the data ({version}) does not match the expected API version"
                f" ({resource.api_version})"
            )
        if kind != resource.kind:
            name = str(dig(body, ("metadata", "name")) or "")
            wrong = type(resource.named)(resource.group, resource.plural, str(kind))
            raise unprocessable(wrong, name, [invalid("kind", kind, f"must be {resource.kind}")])
    elif kind not in (None, "", resource.kind) or version not in (None, "", resource.api_version):
        raise bad_request(
            f'{kind} in version "{str(version).rpartition("/")[2]}" cannot be handled as a {resource.kind}:'
            f' no kind "{kind}" is registered for version "{version}"'
        )
    return (
        {"kind": resource.kind, "apiVersion": resource.api_version}
        | new
        | {"kind": resource.kind, "apiVersion": resource.api_version}
    )


def read_object(resource: ResourceType, namespace: str, name: str, body: Any) -> Obj:
    """The object in a body, named as its URL says (``name`` is empty on create); 400 and 422.

    Only the outermost two levels are copied; the rest is the body's.
    """
    new = _check_kind(resource, body)
    found = new.get("metadata")
    if found is not None and not isinstance(found, dict):
        return new  # decoding the metadata will say what is wrong with it
    meta = new["metadata"] = dict(found or {})
    if not resource.namespaced:
        meta.pop("namespace", None)
    elif meta.get("namespace") in (None, "", namespace):
        meta["namespace"] = namespace
    else:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if name:
        if meta.get("name") not in (None, "", name):
            raise bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )
        meta["name"] = name
    return new
