"""CustomResourceDefinitions: turning one into resource types, and the status it then gets.

Only what a CRD of ``apiextensions.k8s.io/v1`` says is used; conversion webhooks and the scale
subresource are refused, since the sandbox would only pretend to serve them.
"""

from __future__ import annotations

import re
from typing import Any

from psono_operator.sandbox.kube.objects import Obj, clone, dig
from psono_operator.sandbox.kube.registry import Column, PlainStrategy, ResourceType
from psono_operator.sandbox.kube.schema import Schema, SchemaError, compile_schema, default, prune, raw_schema
from psono_operator.sandbox.kube.status import Cause
from psono_operator.sandbox.kube.validation import validate

_AGE = Column("Age", "date", ".metadata.creationTimestamp")
_SIMPLE_PATH = re.compile(r"(\.[A-Za-z_][\w-]*)+")


class CustomStrategy(PlainStrategy):
    """A custom resource: pruned, defaulted and validated by its schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def decode(self, new: Obj) -> list[str]:
        return prune(new, self._schema)

    def prepare(self, new: Obj, old: Obj | None) -> None:
        default(new, self._schema)

    def validate(self, new: Obj, old: Obj | None) -> tuple[list[Cause], list[str]]:
        return validate(new, self._schema, old)


def resource_types(crd: Obj) -> list[ResourceType]:
    """The types a CRD defines, one per served version; raises SchemaError."""
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if dig(crd, ("metadata", "name")) != wanted:
        raise SchemaError(f'metadata.name must be spec.names.plural+"."+spec.group ({wanted})')
    if dig(spec, ("conversion", "strategy")) == "Webhook":
        raise SchemaError("the sandbox has no conversion webhooks")
    return [_resource_type(crd, each) for each in spec.get("versions") or () if each.get("served")]


def _resource_type(crd: Obj, version: dict[str, Any]) -> ResourceType:
    spec, names = crd["spec"], crd["spec"]["names"]
    subresources = version.get("subresources") or {}
    if "scale" in subresources:
        raise SchemaError("the sandbox has no scale subresource")
    raw = raw_schema(crd, version["name"])
    schema = compile_schema(raw)
    columns = [
        Column(
            each["name"],
            each["type"],
            each["jsonPath"],
            each.get("description")
            or f"Custom resource definition column (in JSONPath format): {each['jsonPath']}",
            each.get("priority", 0),
            each.get("format", ""),
        )
        for each in version.get("additionalPrinterColumns") or ()
    ]
    selectable = {}
    for each in version.get("selectableFields") or ():
        if not _SIMPLE_PATH.fullmatch(each["jsonPath"]):
            raise SchemaError(f"selectableFields: {each['jsonPath']!r} is not a simple path")
        label = each["jsonPath"].removeprefix(".")
        selectable[label] = tuple(label.split("."))
    return ResourceType(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        singular=names.get("singular") or names["kind"].lower(),
        list_kind=names.get("listKind") or f"{names['kind']}List",
        namespaced=spec.get("scope") == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        custom=True,
        status="status" in subresources,
        generations=True,
        unconditional_update=False,
        schema=schema,
        raw_schema=raw,
        columns=tuple(columns) or (_AGE,),
        selectable=selectable,
        strategy=CustomStrategy(schema),
    )


class CrdStrategy(PlainStrategy):
    """``apiextensions.k8s.io/v1`` CustomResourceDefinition: established at once, or refused."""

    def prepare(self, new: Obj, old: Obj | None) -> None:
        if old is None and isinstance(dig(new, ("spec", "names", "kind")), str):
            served = established(new, new["metadata"]["creationTimestamp"])
            new["spec"], new["status"] = served["spec"], served["status"]

    def validate(self, new: Obj, old: Obj | None) -> tuple[list[Cause], list[str]]:
        try:
            resource_types(new)
        except (SchemaError, KeyError, TypeError, AttributeError) as error:
            return [Cause("FieldValueInvalid", f"Invalid value: {error}", "spec")], []
        return [], []


def established(crd: Obj, now: str) -> Obj:
    """A copy of the CRD with the defaults and the status a served one has."""
    served: Obj = clone(crd)
    names = served["spec"]["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    served["spec"].setdefault("conversion", {"strategy": "None"})
    condition = {"status": "True", "lastTransitionTime": now}
    served["status"] = {
        "acceptedNames": clone(names),
        "storedVersions": [each["name"] for each in served["spec"]["versions"] if each.get("storage")],
        "conditions": [
            {"type": "NamesAccepted", "reason": "NoConflicts", "message": "no conflicts found", **condition},
            {"type": "Established", "reason": "InitialNamesAccepted", **condition}
            | {"message": "the initial names have been accepted"},
        ],
    }
    return served
