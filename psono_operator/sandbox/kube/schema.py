"""Structural schemas: reading one, pruning and defaulting by it (rule Q11).

A schema is compiled when its CRD is installed; what the sandbox would judge wrongly (an unknown rule, a
``$ref``, a keyword that it does not know) is refused then, so that it cannot be ignored later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psono_operator.sandbox.kube.objects import Obj, clone, dig
from psono_operator.sandbox.kube.rules import RULES, Rule

_KEYWORDS = frozenset(
    [
        "type",
        "description",
        "title",
        "default",
        "nullable",
        "format",
        "enum",
        "pattern",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "required",
        "properties",
        "additionalProperties",
        "items",
        "example",
    ]
)
_EXTENSIONS = frozenset(
    [
        "x-kubernetes-validations",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
    ]
)


class SchemaError(Exception):
    """The schema cannot be served by the sandbox; the message says what and where."""


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """An ``x-kubernetes-validations`` entry and its stand-in in Python."""

    test: Rule
    text: str
    message: str
    reason: str
    field_path: str


@dataclass(frozen=True, slots=True)
class Schema:
    """One node of a structural schema. None means that the keyword is absent."""

    type: str
    properties: Mapping[str, Schema] = field(default_factory=dict)
    items: Schema | None = None
    additional: Schema | None = None
    required: Sequence[str] = ()
    default: Any = None
    has_default: bool = False
    nullable: bool = False
    preserve: bool = False
    enum: Sequence[Any] | None = None
    pattern: str | None = None
    expression: re.Pattern[str] | None = None
    format: str | None = None
    lengths: tuple[int | None, int | None] = (None, None)
    counts: tuple[int | None, int | None] = (None, None)
    bounds: tuple[float | None, float | None] = (None, None)
    list_type: str = "atomic"
    list_keys: Sequence[str] = ()
    atomic_map: bool = False
    rules: Sequence[CompiledRule] = ()


def compile_schema(raw: Mapping[str, Any], path: str = "") -> Schema:
    """The schema as a tree of nodes; raises SchemaError."""
    where = path or "<root>"
    unknown = sorted(set(raw) - _KEYWORDS - _EXTENSIONS)
    if unknown:
        raise SchemaError(f"the sandbox does not know {', '.join(unknown)} (at {where})")
    preserve = raw.get("x-kubernetes-preserve-unknown-fields") is True
    if "type" not in raw and not preserve:
        raise SchemaError(f"type is required (at {where})")
    pattern = None
    if raw.get("pattern") is not None:
        try:
            pattern = re.compile(_python_pattern(raw["pattern"]), re.ASCII)
        except re.error as error:
            raise SchemaError(f"pattern does not compile (at {where}): {error}") from None
    properties = raw.get("properties") or {}
    items, additional = raw.get("items"), raw.get("additionalProperties")
    return Schema(
        type=raw.get("type", ""),
        properties={name: compile_schema(each, f"{path}.{name}") for name, each in properties.items()},
        items=compile_schema(items, f"{path}[]") if items else None,
        additional=compile_schema(additional, f"{path}.*") if isinstance(additional, Mapping) else None,
        required=tuple(raw.get("required") or ()),
        default=raw.get("default"),
        has_default="default" in raw,
        nullable=raw.get("nullable") is True,
        preserve=preserve or additional is True,
        enum=raw.get("enum"),
        pattern=raw.get("pattern"),
        expression=pattern,
        format=raw.get("format"),
        lengths=(raw.get("minLength"), raw.get("maxLength")),
        counts=(raw.get("minItems"), raw.get("maxItems")),
        bounds=(raw.get("minimum"), raw.get("maximum")),
        list_type=raw.get("x-kubernetes-list-type") or "atomic",
        list_keys=tuple(raw.get("x-kubernetes-list-map-keys") or ()),
        atomic_map=raw.get("x-kubernetes-map-type") == "atomic",
        rules=tuple(_compile_rule(each, where) for each in raw.get("x-kubernetes-validations") or ()),
    )


def _python_pattern(pattern: str) -> str:
    """RE2 as Python's re: ``$`` is the very end of the text, not also the place before a last newline."""
    return re.sub(r"(\\.)|\[(?:\\.|[^\]\\])*\]|\$", lambda m: r"\Z" if m[0] == "$" else m[0], pattern)


def _compile_rule(raw: Mapping[str, Any], where: str) -> CompiledRule:
    text = str(raw.get("rule", "")).strip()
    if text not in RULES:
        raise SchemaError(f"the sandbox has no stand-in for the rule {text!r} (at {where}); add it to RULES")
    message = raw.get("message") or f"failed rule: {text}"
    return CompiledRule(
        RULES[text], text, message, raw.get("reason") or "FieldValueInvalid", raw.get("fieldPath") or ""
    )


def prune(value: Any, schema: Schema, path: str = "", *, root: bool = True) -> list[str]:
    """Drop unknown fields from ``value`` in place and return their paths.

    At the root ``apiVersion``, ``kind`` and ``metadata`` stay; metadata is not this module's business.
    """
    dropped: list[str] = []
    if isinstance(value, dict):
        for name in list(value):
            if root and name in ("apiVersion", "kind", "metadata"):
                continue
            child = schema.properties.get(name) or schema.additional
            place = f"{path}.{name}" if path else name
            if child is not None:
                dropped += prune(value[name], child, place, root=False)
            elif not schema.preserve:
                del value[name]
                dropped.append(place)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            dropped += prune(item, schema.items, f"{path}[{index}]", root=False)
    return dropped


def default(value: Any, schema: Schema) -> None:
    """Fill in defaults in place; a null where none is allowed counts as absent."""
    if isinstance(value, dict):
        for name, child in schema.properties.items():
            if name in value and value[name] is None and not child.nullable:
                del value[name]
            if child.has_default and name not in value:
                value[name] = clone(child.default)
            if name in value:
                default(value[name], child)
        if schema.additional is not None:
            for name, item in value.items():
                if name not in schema.properties:
                    default(item, schema.additional)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            default(item, schema.items)


def raw_schema(crd: Obj, version: str) -> Mapping[str, Any]:
    """The openAPIV3Schema of one version of a CRD; raises SchemaError when there is none."""
    for each in dig(crd, ("spec", "versions")) or ():
        found = dig(each, ("schema", "openAPIV3Schema"))
        if each.get("name") == version and isinstance(found, Mapping):
            return found
    raise SchemaError(f"version {version} has no schema")
