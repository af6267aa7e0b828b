"""Validating a custom resource by its structural schema, with the API server's own words (rule Q11).

Order of the real server: the schema first, then list-map keys, then the rules unless an earlier error
blocks them. On an update, errors about values that did not change are only warnings (ratcheting).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from psono_operator.sandbox.kube.objects import Obj, json_type, parse_timestamp
from psono_operator.sandbox.kube.rules import RuleError
from psono_operator.sandbox.kube.schema import Schema
from psono_operator.sandbox.kube.status import (
    Cause,
    duplicate,
    invalid,
    required,
    too_many,
    type_invalid,
    unsupported,
)

_BLOCKING = frozenset(
    [
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    ]
)
_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to"
    " complete validation"
)
_MISSING = object()
Path = tuple[str | int, ...]


def validate(obj: Obj, schema: Schema, old: Obj | None = None) -> tuple[list[Cause], list[str]]:
    """What is wrong with ``obj``, and the warnings about what was wrong with ``old`` already."""
    found: list[tuple[Path, Cause]] = []
    for name, child in sorted(schema.properties.items()):
        if name in obj and name not in ("apiVersion", "kind", "metadata"):
            found += _validate(obj[name], child, (name,))
    found += [((name,), required(name)) for name in schema.required if name not in obj]
    found, warnings = _ratchet(found, obj, old)
    if any(cause.reason in _BLOCKING for _, cause in found):
        return [cause for _, cause in found] + [
            Cause("FieldValueInvalid", f"Invalid value: null: {_NOT_CHECKED}", "<nil>")
        ], warnings
    ruled, more = _ratchet(_rules(obj, schema, ()), obj, old)
    return [cause for _, cause in found + ruled], warnings + more


def _ratchet(
    found: list[tuple[Path, Cause]], obj: Obj, old: Obj | None
) -> tuple[list[tuple[Path, Cause]], list[str]]:
    if old is None:
        return found, []
    kept, warnings = [], []
    for path, cause in found:
        before = _at(old, path)
        if before is not _MISSING and before == _at(obj, path):
            warnings.append(cause.line())
        else:
            kept.append((path, cause))
    return kept, warnings


def _at(value: Any, path: Path) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return _MISSING
    return value


def spell(path: Path) -> str:
    """A path the way messages write it: ``spec.data[0].secretKey``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _validate(value: Any, schema: Schema, path: Path) -> list[tuple[Path, Cause]]:
    field = spell(path)
    if value is None and schema.nullable:
        return []
    kind = json_type(value)
    wanted = schema.type
    if wanted and kind != wanted and not (wanted == "number" and kind == "integer"):
        return [(path, type_invalid(field, kind, f'{field} in body must be of type {wanted}: "{kind}"'))]
    found = [(path, cause) for cause in _scalar(value, schema, field)]
    if isinstance(value, dict):
        for name, child in sorted(schema.properties.items()):
            if name in value:
                found += _validate(value[name], child, (*path, name))
        if schema.additional is not None:
            for name in sorted(set(value) - set(schema.properties)):
                found += _validate(value[name], schema.additional, (*path, name))
        missing = [name for name in schema.required if name not in value]
        found += [((*path, name), required(spell((*path, name)))) for name in missing]
    elif isinstance(value, list):
        found += [(path, cause) for cause in _counts(value, schema, field)]
        if schema.items is not None:
            for index, item in enumerate(value):
                found += _validate(item, schema.items, (*path, index))
        found += _duplicates(value, schema, path)
    return found


def _scalar(value: Any, schema: Schema, field: str) -> list[Cause]:
    causes: list[Cause] = []
    leaf = field.rpartition(".")[2]
    if isinstance(value, str):
        low, high = schema.lengths
        if low is not None and len(value) < low:
            causes.append(invalid(field, value, f"{field} in body should be at least {low} chars long"))
        if high is not None and len(value) > high:
            detail = f"may not be more than {high} bytes"
            causes.append(Cause("FieldValueTooLong", f"Too long: {detail}", field))
        if schema.expression is not None and schema.expression.search(value) is None:
            causes.append(invalid(field, value, f"{field} in body should match '{schema.pattern}'"))
        if schema.format == "date-time" and parse_timestamp(value) is None:
            detail = f"{leaf} in body must be of type date-time: {json.dumps(value)}"
            causes.append(type_invalid(field, value, detail))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        lowest, highest = schema.bounds
        if lowest is not None and value < lowest:
            causes.append(
                invalid(field, value, f"{leaf} in body should be greater than or equal to {lowest}")
            )
        if highest is not None and value > highest:
            causes.append(invalid(field, value, f"{leaf} in body should be less than or equal to {highest}"))
    if schema.enum is not None and value not in schema.enum:
        causes.append(unsupported(field, value, schema.enum))
    return causes


def _counts(value: Sequence[Any], schema: Schema, field: str) -> list[Cause]:
    low, high = schema.counts
    if low is not None and len(value) < low:
        return [invalid(field, len(value), f"{field} in body should have at least {low} items")]
    if high is not None and len(value) > high:
        return [too_many(field, len(value), high)]
    return []


def _duplicates(value: list[Any], schema: Schema, path: Path) -> list[tuple[Path, Cause]]:
    if schema.list_type not in ("map", "set"):
        return []
    seen: list[Any] = []
    found: list[tuple[Path, Cause]] = []
    for index, item in enumerate(value):
        key = item
        if schema.list_type == "map":
            if not isinstance(item, dict) or not all(name in item for name in schema.list_keys):
                continue
            key = {name: item[name] for name in schema.list_keys}
        if key in seen:
            found.append(((*path, index), duplicate(spell((*path, index)), key)))
        seen.append(key)
    return found


def _rules(value: Any, schema: Schema, path: Path) -> list[tuple[Path, Cause]]:
    found: list[tuple[Path, Cause]] = []
    for rule in schema.rules:
        field = spell(path) + rule.field_path
        shown = "" if isinstance(value, (dict, list)) else f"{json.dumps(value)}: "
        try:
            if not rule.test(value):
                found.append((path, Cause(rule.reason, f"Invalid value: {shown}{rule.message}", field)))
        except RuleError as error:
            found.append((path, invalid(field, json_type(value), f"{error} evaluating rule: {rule.message}")))
    if isinstance(value, dict):
        for name, child in sorted(schema.properties.items()):
            if name in value:
                found += _rules(value[name], child, (*path, name))
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            found += _rules(item, schema.items, (*path, index))
    return found
