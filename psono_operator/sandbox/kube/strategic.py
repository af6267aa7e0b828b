"""Strategic merge patch for built-in kinds, as far as kubectl sends it (rule Q5).

Maps merge; the lists of a short table merge by key or as sets; other lists are replaced. Of the
directives, ``$patch``, ``$deleteFromPrimitiveList``, ``$setElementOrder`` and ``$retainKeys`` are known.
"""

from __future__ import annotations

from typing import Any

from psono_operator.sandbox.kube.objects import clone
from psono_operator.sandbox.kube.status import bad_request

_MERGE_KEYS = {
    "ownerReferences": "uid",
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "secrets": "name",
    "ports": "containerPort",
    "tolerations": "",
}
_SETS = frozenset(("finalizers",))
_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def strategic_merge(target: Any, patch: Any) -> Any:
    """``target`` with ``patch`` applied; a new value, the input stays as it is."""
    if not isinstance(patch, dict):
        return clone(patch)
    base = dict(target) if isinstance(target, dict) else {}
    directive = patch.get("$patch")
    if directive == "replace":
        return {name: clone(value) for name, value in patch.items() if name != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type found: {directive}")
    if "$retainKeys" in patch:
        base = {name: value for name, value in base.items() if name in patch["$retainKeys"]}
    for name, value in patch.items():
        if name.startswith(_DELETE):
            field = name.removeprefix(_DELETE)
            base[field] = [item for item in base.get(field) or [] if item not in value]
        elif name.startswith("$"):
            continue
        elif value is None:
            base.pop(name, None)
        elif isinstance(value, list):
            base[name] = _merge_list(name, base.get(name) or [], value)
        else:
            base[name] = strategic_merge(base.get(name), value)
    _reorder(base, patch)
    return base


def _merge_list(name: str, old: list[Any], patch: list[Any]) -> list[Any]:
    if name in _SETS:
        return old + [item for item in patch if item not in old]
    key = _MERGE_KEYS.get(name)
    if not key:
        return [clone(item) for item in patch]
    merged = list(old)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            if item == {"$patch": "replace"}:
                merged = []
                continue
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        place = next((index for index, each in enumerate(merged) if each.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            merged = [each for each in merged if each.get(key) != item[key]]
        elif place is None:
            merged.append(strategic_merge({}, item))
        else:
            merged[place] = strategic_merge(merged[place], item)
    return merged


def _reorder(base: dict[str, Any], patch: dict[str, Any]) -> None:
    for name, order in patch.items():
        field = name.removeprefix(_ORDER)
        if not name.startswith(_ORDER) or not isinstance(base.get(field), list):
            continue
        key = _MERGE_KEYS.get(field)
        wanted = [item.get(key) if key and isinstance(item, dict) else item for item in order]

        def rank(item: Any, key: str | None = key, wanted: list[Any] = wanted) -> int:
            value = item.get(key) if key and isinstance(item, dict) else item
            return wanted.index(value) if value in wanted else len(wanted)

        base[field] = sorted(base[field], key=rank)
