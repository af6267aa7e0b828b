"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902), as the API server applies them (rule Q5).

Both answer a new value and leave their input alone. A JSON patch that does not fit, a failed ``test``
included, is 422 and not 409 (rule F2).
"""

from __future__ import annotations

from typing import Any

from psono_operator.sandbox.kube.objects import clone
from psono_operator.sandbox.kube.status import ApiError, bad_request

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")


def merge(target: Any, patch: Any) -> Any:
    """``target`` with a merge patch applied: null removes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return clone(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """``target`` with a JSON patch applied; 400 for a malformed patch, 422 for one that does not fit."""
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        kind = "object" if isinstance(operations, dict) else "value"
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {kind} into Go value of type"
            " []handlers.jsonPatchOp"
        )
    document = {"": clone(target)}
    for operation in operations:
        if operation.get("op") not in _OPERATIONS or not isinstance(operation.get("path"), str):
            raise _rejected()
        _apply_operation(document, operation)
    return document[""]


def _rejected() -> ApiError:
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def _apply_operation(document: Any, operation: dict[str, Any]) -> None:
    op, path = operation["op"], _parse(operation["path"])
    if op in ("add", "replace", "test") and "value" not in operation:
        raise _rejected()
    if op == "test":
        if not _same(_get(document, path), operation["value"]):
            raise _rejected()
    elif op == "add":
        _add(document, path, clone(operation["value"]))
    elif op == "remove":
        _remove(document, path)
    elif op == "replace":
        _replace(document, path, clone(operation["value"]))
    else:
        source = _parse(operation.get("from"))
        value = clone(_get(document, source))
        if op == "move":
            _remove(document, source)
        _add(document, path, value)


def _parse(pointer: Any) -> list[str]:
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise _rejected()
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]


def _get(document: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(document, step)]
        else:
            raise _rejected()
    return document


def _index(values: list[Any], step: str, *, past_end: bool = False) -> int:
    if step == "-" and past_end:
        return len(values)
    if not step.isascii() or not step.isdigit() or (len(step) > 1 and step[0] == "0"):
        raise _rejected()
    if int(step) >= len(values) + past_end:
        raise _rejected()
    return int(step)


def _add(document: Any, path: list[str], value: Any) -> None:
    parent = _get(document, path[:-1])
    if isinstance(parent, dict):
        parent[path[-1]] = value
    elif isinstance(parent, list):
        parent.insert(_index(parent, path[-1], past_end=True), value)
    else:
        raise _rejected()


def _replace(document: Any, path: list[str], value: Any) -> None:
    """The API server's library lets a replace add an absent member, against the RFC [seen on 1.36]."""
    parent = _get(document, path[:-1])
    if isinstance(parent, dict):
        parent[path[-1]] = value
    elif isinstance(parent, list):
        parent[_index(parent, path[-1])] = value
    else:
        raise _rejected()


def _remove(document: Any, path: list[str]) -> None:
    parent = _get(document, path[:-1])
    if isinstance(parent, dict) and path[-1] in parent:
        del parent[path[-1]]
    elif isinstance(parent, list):
        del parent[_index(parent, path[-1])]
    else:
        raise _rejected()


def _same(left: Any, right: Any) -> bool:
    """JSON equality: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
