"""What an answer looks like: whole objects, metadata only, or a Table, chosen by Accept (rule Q9, R1).

Everything here is pure. Annotations stay in metadata-only answers, last-applied-configuration among them,
as on a real server (rule D2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psono_operator.sandbox.kube.columns import cell
from psono_operator.sandbox.kube.listing import Page
from psono_operator.sandbox.kube.objects import Obj
from psono_operator.sandbox.kube.registry import Column, ResourceType
from psono_operator.sandbox.kube.status import ApiError

META_GROUP, META_VERSION = "meta.k8s.io", "meta.k8s.io/v1"
PLAIN, PARTIAL, TABLE = "", "PartialObjectMetadata", "Table"
_NAME = Column("Name", "string", ".metadata.name", "Name must be unique within a namespace.", format="name")


def not_acceptable() -> ApiError:
    """406: nothing in Accept can be served."""
    message = "only the following media types are accepted: application/json"
    return ApiError(406, "NotAcceptable", message)


def negotiate(accept: str, *, many: bool) -> str:
    """PLAIN, PARTIAL or TABLE: the first clause of an Accept header that can be served; 406."""
    if not accept.strip():
        return PLAIN
    for clause in accept.split(","):
        media, *raw = (part.strip() for part in clause.split(";"))
        parameters = dict(part.partition("=")[::2] for part in raw)
        if media not in ("application/json", "application/*", "*/*"):
            continue
        wanted = parameters.get("as")
        if wanted is None:
            return PLAIN
        if parameters.get("g") != META_GROUP or parameters.get("v") != "v1":
            continue
        if wanted == TABLE:
            return TABLE
        if wanted == (f"{PARTIAL}List" if many else PARTIAL):
            return PARTIAL
    raise not_acceptable()


@dataclass(frozen=True, slots=True)
class View:
    """How one request wants its objects shown."""

    resource: ResourceType
    form: str
    now: datetime
    include: str = "Metadata"

    def one(self, obj: Obj) -> Obj:
        """The answer that is one object."""
        if self.form == PARTIAL:
            return partial(obj)
        if self.form == TABLE:
            return self._table([obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
        return obj

    def many(self, page: Page) -> Obj:
        """The answer that is a list."""
        metadata: Obj = {"resourceVersion": page.resource_version}
        if page.continue_token:
            metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        if self.form == TABLE:
            return self._table(page.items, metadata)
        if self.form == PARTIAL:
            items = [partial(obj) for obj in page.items]
            body: Obj = {"kind": f"{PARTIAL}List", "apiVersion": META_VERSION, "metadata": metadata}
            return body | {"items": items or None}
        resource = self.resource
        kind = resource.list_kind or f"{resource.kind}List"
        if resource.custom:
            metadata.setdefault("continue", "")
            return {
                "apiVersion": resource.api_version,
                "items": page.items,
                "kind": kind,
                "metadata": metadata,
            }
        items = [{k: v for k, v in obj.items() if k not in ("kind", "apiVersion")} for obj in page.items]
        return {"kind": kind, "apiVersion": resource.api_version, "metadata": metadata, "items": items}

    def event(self, kind: str, obj: Obj, *, first: bool) -> Obj:
        """A watch event; only the first Table of a watch has its columns defined."""
        if kind == "ERROR":
            return {"type": kind, "object": obj}
        if kind == "BOOKMARK":
            bare = {"kind": PARTIAL, "apiVersion": META_VERSION} if self.form == PARTIAL else {}
            if self.form == TABLE:
                return {"type": kind, "object": self._bookmark_table(obj)}
            return {"type": kind, "object": {**obj, **bare}}
        shown = self.one(self.resource.strategy.outward(obj))
        if self.form == TABLE and not first:
            shown["columnDefinitions"] = None
        return {"type": kind, "object": shown}

    def _bookmark_table(self, obj: Obj) -> Obj:
        table = self._table([], dict(obj["metadata"]))
        row = {
            "cells": [],
            "object": {"kind": PARTIAL, "apiVersion": META_VERSION, "metadata": obj["metadata"]},
        }
        return table | {"columnDefinitions": None, "rows": [row]}

    def _table(self, objects: list[Obj], metadata: Mapping[str, Any]) -> Obj:
        columns = [_NAME, *self.resource.columns]
        return {
            "kind": TABLE,
            "apiVersion": META_VERSION,
            "metadata": dict(metadata),
            "columnDefinitions": [_definition(column) for column in columns],
            "rows": [
                {
                    "cells": [cell(obj, column, self.now) for column in columns],
                    "object": self._row_object(obj),
                }
                for obj in objects
            ],
        }

    def _row_object(self, obj: Obj) -> Obj | None:
        if self.include == "None":
            return None
        return obj if self.include == "Object" else partial(obj)


def partial(obj: Obj) -> Obj:
    """An object's PartialObjectMetadata."""
    return {"kind": PARTIAL, "apiVersion": META_VERSION, "metadata": obj["metadata"]}


def _definition(column: Column) -> Obj:
    shown = column.format if column.format not in ("age", "plain") else ""
    return {
        "name": column.name,
        "type": column.type,
        "format": shown,
        "description": column.description,
        "priority": column.priority,
    }
