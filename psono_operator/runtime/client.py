"""One method per verb of the Kubernetes API, on raw objects.

The client knows URLs, content types, the field manager and the write gate; it refuses to know what is in
an object. Every call has a deadline, none is repeated here, and every failure is an error of
``runtime.errors``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from enum import Enum
from typing import Any

from psono_operator.runtime.resources import KubeObject, ObjectKey, Resource


class PatchKind(Enum):
    """The kinds of patch, by content type; always explicit, never guessed from the body."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class KubeClient:
    """The Kubernetes API, verb by verb."""

    async def get(self, resource: Resource, key: ObjectKey, *, metadata_only: bool = False) -> KubeObject:
        raise NotImplementedError

    async def list_page(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        limit: int | None = 500,
        continue_token: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
    ) -> KubeObject:
        """One page: the list object as sent, with ``items`` always a list (rule R1)."""
        raise NotImplementedError

    async def create(self, resource: Resource, obj: Mapping[str, Any]) -> KubeObject:
        raise NotImplementedError

    async def replace(self, resource: Resource, obj: Mapping[str, Any]) -> KubeObject:
        """PUT; ``obj`` must carry the resourceVersion that was read, else ValueError (rule F2)."""
        raise NotImplementedError

    async def patch(
        self,
        resource: Resource,
        key: ObjectKey,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        kind: PatchKind,
        *,
        subresource: str | None = None,
    ) -> KubeObject:
        raise NotImplementedError

    async def delete(
        self,
        resource: Resource,
        key: ObjectKey,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
    ) -> None:
        """DELETE with preconditions (rule G5)."""
        raise NotImplementedError

    def watch_lines(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        resource_version: str,
        timeout_seconds: int,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
    ) -> AsyncIterator[KubeObject]:
        """The events of one watch request, parsed, until the server or the silence limit ends it."""
        raise NotImplementedError
