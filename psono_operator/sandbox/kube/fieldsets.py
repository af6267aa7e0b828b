"""Sets of fields: which fields a value has, what changed between two values, and FieldsV1 (rule Q5).

A path is a tuple of FieldsV1 elements (``f:name``, ``k:{...}`` for an item of a list map, ``v:...`` for an
item of a set). What kind of list a field is comes from the type's structural schema, and for metadata
from a small table; every other list is one field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from psono_operator.sandbox.kube.objects import Obj, compact_json
from psono_operator.sandbox.kube.schema import Schema

Path = tuple[str, ...]
Fields = frozenset[Path]

_STRING = Schema("string")
_METADATA = Schema(
    "object",
    properties={
        "finalizers": Schema("array", items=_STRING, list_type="set"),
        "ownerReferences": Schema(
            "array",
            items=Schema("object", preserve=True, atomic_map=True),
            list_type="map",
            list_keys=("uid",),
        ),
        "labels": Schema("object", additional=_STRING),
        "annotations": Schema("object", additional=_STRING),
    },
    preserve=True,
)
_UNTRACKED_METADATA = frozenset(
    (
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "generation",
        "managedFields",
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    )
)


def tracked(obj: Obj) -> Obj:
    """The part of an object whose fields have managers."""
    kept = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata")}
    meta = {k: v for k, v in (obj.get("metadata") or {}).items() if k not in _UNTRACKED_METADATA}
    if meta:
        kept["metadata"] = meta
    return kept


def child_schema(schema: Schema | None, name: str, *, root: bool) -> Schema | None:
    """The schema of a field; None where the type says nothing about it."""
    if root and name == "metadata":
        return _METADATA
    if schema is None:
        return None
    return schema.properties.get(name) or schema.additional


def list_elements(values: list[Any], schema: Schema | None) -> dict[str, Any] | None:
    """The items of a list map or set by their path element; None for an atomic list."""
    if schema is None or schema.list_type not in ("map", "set"):
        return None
    if schema.list_type == "set":
        return {f"v:{compact_json(item)}": item for item in values}
    found = {}
    for item in values:
        if not isinstance(item, dict):
            return None
        key = {name: item.get(name) for name in sorted(schema.list_keys)}
        found[f"k:{compact_json(key)}"] = item
    return found


def walk(value: Any, schema: Schema | None, *, parents: bool, prefix: Path = ()) -> dict[Path, Any]:
    """Every field of ``value`` with its value (parents: True).

    ``parents`` says whether maps count as fields of their own when they have content: they do when two
    states are compared, and they do not in what an applier claims.
    """
    found: dict[Path, Any] = {}
    children: Mapping[str, tuple[Any, Schema | None]] | None = None
    if isinstance(value, dict) and not (schema is not None and schema.atomic_map):
        children = {f"f:{k}": (v, child_schema(schema, k, root=not prefix)) for k, v in value.items()}
    elif isinstance(value, list):
        elements = list_elements(value, schema)
        if elements is not None:
            item = schema.items if schema is not None else None
            children = {element: (each, item) for element, each in elements.items()}
    if children is None or (not children and prefix):
        return {prefix: value} if prefix else {}
    if prefix and (parents or prefix[-1][:2] == "k:") and prefix != ("f:metadata",):
        found[prefix] = True
    for element, (each, child) in children.items():
        found.update(walk(each, child, parents=parents, prefix=(*prefix, element)))
    return found


def claimed(obj: Obj, schema: Schema | None) -> Fields:
    """The fields an applied configuration claims."""
    return frozenset(walk(tracked(obj), schema, parents=False))


def compare(old: Obj, new: Obj, schema: Schema | None) -> tuple[Fields, Fields]:
    """The fields (added or changed, removed) between two states of an object."""
    before = walk(tracked(old), schema, parents=True)
    after = walk(tracked(new), schema, parents=True)
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    return frozenset(changed), frozenset(before.keys() - after.keys())


def encode(fields: Fields) -> Obj:
    """FieldsV1 of a set: nested objects, ``.`` marking a member that has children."""
    tree: Obj = {}
    for path in sorted(fields):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return _trim(tree)


def _trim(node: Obj) -> Obj:
    if list(node) == ["."]:
        return {}
    return {name: _trim(child) if name != "." else {} for name, child in sorted(node.items())}


def decode(tree: Obj) -> Fields:
    """The set that FieldsV1 describes."""
    found: set[Path] = set()

    def visit(node: Obj, path: Path) -> None:
        if path and (not node or "." in node):
            found.add(path)
        for name, child in node.items():
            if name != ".":
                visit(child, (*path, name))

    visit(tree, ())
    return frozenset(found)


def spell(path: Path) -> str:
    """A path the way conflict messages write it: ``.spec.data[secretKey="A"].remoteRef``."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            pairs = json.loads(rest).items()
            text += "[" + ",".join(f"{name}={compact_json(value)}" for name, value in pairs) + "]"
        else:
            text += f"[={rest}]"
    return text
