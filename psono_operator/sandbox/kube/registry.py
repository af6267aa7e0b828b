"""Which resource types the server has, and how each of them differs from plain storage.

A :class:`ResourceType` is a value; what a kind does to its own objects (folding, checks) is its
:class:`Strategy`. The registry only finds types and refuses to know what they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from psono_operator.sandbox.kube.objects import Obj
from psono_operator.sandbox.kube.schema import Schema
from psono_operator.sandbox.kube.status import Cause, Named

COMMON_FIELDS: Mapping[str, tuple[str, ...]] = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
}


class Strategy(Protocol):
    """What a kind does to its objects. All of it is pure; ``new`` may be changed in place."""

    def decode(self, new: Obj) -> list[str]:
        """Check shapes; drop unknown fields and return their paths; DecodeError if it cannot be read."""

    def prepare(self, new: Obj, old: Obj | None) -> None:
        """Fold and default before validation; ``old`` is None on create."""

    def validate(self, new: Obj, old: Obj | None) -> tuple[list[Cause], list[str]]:
        """Errors and warnings."""

    def outward(self, obj: Obj) -> Obj:
        """The stored object as this version of the API shows it."""

    def inward(self, obj: Obj) -> Obj:
        """The object of this version as it is stored; ``obj`` may be reused."""


class PlainStrategy:
    """Storage without opinions; the base of the others."""

    def decode(self, new: Obj) -> list[str]:
        return []

    def prepare(self, new: Obj, old: Obj | None) -> None:
        return None

    def validate(self, new: Obj, old: Obj | None) -> tuple[list[Cause], list[str]]:
        return [], []

    def outward(self, obj: Obj) -> Obj:
        return obj

    def inward(self, obj: Obj) -> Obj:
        return obj


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a Table answer: JSONPath relative to the object, or the name of a built-in cell."""

    name: str
    type: str
    path: str
    description: str = ""
    priority: int = 0
    format: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ResourceType:
    """One served resource of one version."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str = ""
    list_kind: str = ""
    namespaced: bool = True
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    custom: bool = False
    status: bool = False
    generations: bool = False
    unconditional_update: bool = True
    create_on_update: bool = False
    label_name: bool = False
    schema: Schema | None = None
    raw_schema: Mapping[str, Any] | None = None
    columns: Sequence[Column] = ()
    selectable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    strategy: Strategy = field(default_factory=PlainStrategy)
    table: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def named(self) -> Named:
        return Named(self.group, self.plural, self.kind)

    @property
    def storage(self) -> str:
        """The table its objects are in; two versions or groups of one thing share it."""
        return self.table or f"{self.group}/{self.plural}"

    @property
    def fields(self) -> Mapping[str, tuple[str, ...]]:
        """What a field selector may name."""
        common = COMMON_FIELDS if self.namespaced else {"metadata.name": COMMON_FIELDS["metadata.name"]}
        return {**common, **self.selectable}

    @property
    def sensitive(self) -> bool:
        """Whether bodies hold secret values, which the journal must not keep."""
        return not self.group and self.plural == "secrets"


class Registry:
    """The served types. Owned by the sandbox; CRDs add to it and take from it."""

    def __init__(self, types: Sequence[ResourceType] = ()) -> None:
        self._types: dict[tuple[str, str, str], ResourceType] = {}
        self.edition = 0
        for each in types:
            self.add(each)

    def add(self, resource: ResourceType) -> None:
        """Serve ``resource``, in place of an older definition of the same name."""
        self._types[resource.group, resource.version, resource.plural] = resource
        self.edition += 1

    def remove(self, resource: ResourceType) -> None:
        """Stop serving it."""
        self._types.pop((resource.group, resource.version, resource.plural), None)
        self.edition += 1

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        return self._types.get((group, version, plural))

    def all(self) -> list[ResourceType]:
        return list(self._types.values())

    def versions(self) -> dict[str, list[str]]:
        """Group to its versions, the legacy group under the empty string."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self._types:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return found

    def by_kind(self, api_version: str, kind: str) -> ResourceType | None:
        """The type an ownerReference means, matched by group and kind (the version may be another)."""
        group = api_version.rpartition("/")[0]
        for each in self._types.values():
            if each.group == group and each.kind == kind:
                return each
        return None
