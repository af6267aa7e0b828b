"""OpenAPI v3, as little as kubectl needs to validate, explain and patch (rule Q12).

Custom resources show their own schema; built-in kinds show one that admits anything, but Secrets,
ConfigMaps and Namespaces name their fields. There is no OpenAPI v2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psono_operator.sandbox.kube.objects import Obj, clone
from psono_operator.sandbox.kube.registry import Registry, ResourceType

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_FREE: Obj = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_OBJECT_META: Obj = {
    "type": "object",
    "description": "ObjectMeta is metadata that all persisted resources must have.",
    "properties": {
        "name": {"type": "string"},
        "generateName": {"type": "string"},
        "namespace": {"type": "string"},
        "uid": {"type": "string"},
        "resourceVersion": {"type": "string"},
        "generation": {"type": "integer", "format": "int64"},
        "creationTimestamp": {"type": "string", "format": "date-time"},
        "deletionTimestamp": {"type": "string", "format": "date-time"},
        "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
        "labels": _STRINGS,
        "annotations": _STRINGS,
        "finalizers": {
            "type": "array",
            "items": {"type": "string"},
            "x-kubernetes-list-type": "set",
            "x-kubernetes-patch-strategy": "merge",
        },
        "ownerReferences": {
            "type": "array",
            "items": _FREE,
            "x-kubernetes-patch-merge-key": "uid",
            "x-kubernetes-patch-strategy": "merge",
        },
        "managedFields": {"type": "array", "items": _FREE},
    },
}
_KNOWN: Mapping[str, Obj] = {
    "Secret": {
        "data": {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}},
        "stringData": _STRINGS,
        "type": {"type": "string"},
        "immutable": {"type": "boolean"},
    },
    "ConfigMap": {
        "data": _STRINGS,
        "binaryData": {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}},
        "immutable": {"type": "boolean"},
    },
    "Namespace": {"spec": _FREE, "status": _FREE},
}


def index(registry: Registry) -> Obj:
    """``/openapi/v3``: where the document of each group and version is."""
    paths = {}
    for group, versions in registry.versions().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={registry.edition}"}
    return {"paths": paths}


def document(registry: Registry, group: str, version: str) -> Obj | None:
    """The document of one group and version, None when there is none."""
    types = [each for each in registry.all() if (each.group, each.version) == (group, version)]
    if not types:
        return None
    schemas: Obj = {_META: _OBJECT_META}
    paths: Obj = {}
    for each in types:
        schemas[_schema_name(each)] = _schema(each)
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        scope = f"{base}/namespaces/{{namespace}}" if each.namespaced else base
        paths[f"{scope}/{each.plural}"] = {
            "get": _operation(each, "list"),
            "post": _operation(each, "post"),
        }
        paths[f"{scope}/{each.plural}/{{name}}"] = {
            "get": _operation(each, "get"),
            "put": _operation(each, "put"),
            "patch": _operation(each, "patch"),
            "delete": _operation(each, "delete"),
        }
    info = {"title": "Kubernetes sandbox", "version": "v1.36.3"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _schema_name(resource: ResourceType) -> str:
    prefix = ".".join(reversed(resource.group.split("."))) if resource.group else "io.k8s.api.core"
    return f"{prefix}.{resource.version}.{resource.kind}"


def _kind(resource: ResourceType) -> Obj:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _schema(resource: ResourceType) -> Obj:
    if resource.raw_schema is not None:
        schema: Obj = clone(dict(resource.raw_schema))
        schema["properties"] = {**schema.get("properties", {}), **_type_meta()}
    elif not resource.group and resource.kind in _KNOWN:
        schema = {"type": "object", "properties": {**_KNOWN[resource.kind], **_type_meta()}}
    else:
        schema = {**_FREE, "properties": _type_meta()}
    schema["x-kubernetes-group-version-kind"] = [_kind(resource)]
    return schema


def _type_meta() -> Obj:
    reference = {"allOf": [{"$ref": f"#/components/schemas/{_META}"}], "default": {}}
    return {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": reference}


def _operation(resource: ResourceType, action: str) -> Obj:
    names = {"post": ["dryRun", "fieldManager", "fieldValidation"]}
    names["put"] = names["patch"] = names["post"]
    parameters: list[Any] = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in names.get(action, [])
    ]
    reference = {"$ref": f"#/components/schemas/{_schema_name(resource)}"}
    answer = {"description": "OK", "content": {"application/json": {"schema": reference}}}
    return {
        "operationId": f"{action}{resource.kind}{resource.version}",
        "parameters": parameters,
        "responses": {"200": answer},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _kind(resource),
    }
