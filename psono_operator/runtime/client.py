"""One method per verb of the Kubernetes API, on raw objects.

The client knows URLs, content types, the field manager and the write gate; it refuses to know what is in an
object. Every call has a deadline; within it, one that the server put off is repeated if the client was given
patience (M1), and no other (M3). Every failure is an error of ``runtime.errors``, built from a Status by
allow-list (F8). Before each mutating call the gate is asked, and the time it leaves caps the call's deadline
(K4). JSON is decoded here and nowhere else.

Rules: A1 (list queries), B1, B6, B7 (watch), D1 (metadata only), F2, G5, R1.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from psono_operator.runtime.errors import ApiError, ProtocolError, Throttled, Unreachable, error_from_status
from psono_operator.runtime.gate import NotLeader, OpenGate, WriteGate
from psono_operator.runtime.linebuffer import LineBuffer
from psono_operator.runtime.patience import Patience
from psono_operator.runtime.resources import KubeObject, ObjectKey, Resource, key_of, version_of
from psono_operator.runtime.transport import JSON, Response, Transport

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

SILENCE_MARGIN = 10.0
"""Seconds beyond the watch timeout that the server gets before its silence counts as its death (B6)."""

_ERROR_BODY_LIMIT = 64 * 1024


class PatchKind(Enum):
    """The kinds of patch, by content type; always explicit, never guessed from the body."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class KubeClient:
    """The Kubernetes API, verb by verb.

    Every ``timeout`` is in seconds and defaults to the transport's. All methods raise errors of
    ``runtime.errors``; those that write raise NotLeader too.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        field_manager: str,
        gate: WriteGate | None = None,
        field_validation: str | None = None,
        patience: Patience | None = None,
    ) -> None:
        """``field_validation``: Strict, Warn or Ignore; None leaves it to the server.

        Without ``patience`` a call is one request. Lists and watches always are: who makes them has a
        backoff.
        """
        self._transport = transport
        self._patience = patience
        self._gate = gate if gate is not None else OpenGate()
        self._write_query = [("fieldManager", field_manager)]
        if field_validation is not None:
            self._write_query.append(("fieldValidation", field_validation))

    async def get(
        self,
        resource: Resource,
        key: ObjectKey,
        *,
        metadata_only: bool = False,
        timeout: float | None = None,
    ) -> KubeObject:
        """The object as it is now."""
        path = resource.object_path(key)
        accept = METADATA if metadata_only else JSON

        async def send(left: float) -> KubeObject:
            response = await self._transport.request("GET", path, accept=accept, timeout=left)
            return _object(response, f"GET {path}", resource)

        obj = await self._call(send, timeout, harmless=True)
        return _without_content(obj) if metadata_only else obj

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
        timeout: float | None = None,
    ) -> KubeObject:
        """One page: the list object as sent, with ``items`` always a list (rule R1).

        Never sends a resourceVersion: unset means the most recent state, and a continuation must not carry
        one (rule A1). ``limit`` None asks for everything at once.
        """
        path = resource.collection_path(namespace)
        query = _selectors(label_selector, field_selector)
        if limit is not None:
            query.append(("limit", str(limit)))
        if continue_token:
            query.append(("continue", continue_token))
        accept = METADATA_LIST if metadata_only else JSON
        response = await self._transport.request("GET", path, query=query, accept=accept, timeout=timeout)
        page = _object(response, f"GET {path}", resource)
        items = page.get("items", ())
        if items is None:
            items = []
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise ProtocolError(f"GET {path} answered something that is no list")
        page["items"] = [_without_content(item) for item in items] if metadata_only else items
        return page

    async def create(
        self, resource: Resource, obj: Mapping[str, Any], *, timeout: float | None = None
    ) -> KubeObject:
        """POST to the collection of the object's namespace. ValueError if it needs one and has none."""
        namespace = key_of(obj).namespace
        if resource.namespaced and not namespace:
            raise ValueError(f"a {resource.kind} needs a namespace")
        target = ("POST", resource.collection_path(namespace))
        return await self._write(target, resource, obj, JSON, timeout, harmless=False)

    async def replace(
        self, resource: Resource, obj: Mapping[str, Any], *, timeout: float | None = None
    ) -> KubeObject:
        """PUT; ``obj`` must carry the resourceVersion that was read, else ValueError (rule F2)."""
        if not version_of(obj):
            raise ValueError("an object is replaced only with the resourceVersion that was read")
        target = ("PUT", resource.object_path(key_of(obj)))
        return await self._write(target, resource, obj, JSON, timeout, harmless=True)

    async def patch(
        self,
        resource: Resource,
        key: ObjectKey,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        kind: PatchKind,
        *,
        subresource: str | None = None,
        timeout: float | None = None,
    ) -> KubeObject:
        """PATCH of an object or one of its subresources."""
        target = ("PATCH", resource.object_path(key, subresource))
        harmless = kind is PatchKind.APPLY or _is_guarded(body)
        return await self._write(target, resource, body, kind.value, timeout, harmless=harmless)

    async def delete(
        self,
        resource: Resource,
        key: ObjectKey,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """DELETE with preconditions (rule G5)."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if any(preconditions.values()):
            options["preconditions"] = {name: value for name, value in preconditions.items() if value}
        if propagation is not None:
            options["propagationPolicy"] = propagation
        path, body = resource.object_path(key), _encode(options)

        async def send(left: float) -> KubeObject:
            response = await self._transport.request(
                "DELETE", path, body=body, content_type=JSON, timeout=self._allowed(left)
            )
            return _object(response, f"DELETE {path}", resource)

        await self._call(send, timeout, harmless="preconditions" in options)

    async def watch_lines(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        resource_version: str,
        timeout_seconds: int,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[KubeObject, None]:
        """The lines of one watch request, parsed, until the server ends it.

        A line is an event, or a bare Status (rule B3); which is for the caller to tell. ``on_open`` is
        called when the server has accepted the request. Unreachable when the stream breaks, when it ends
        within a line (B7), and when no line came for ``timeout_seconds`` plus a margin (B6). Close it with
        ``contextlib.aclosing``.
        """
        path = resource.collection_path(namespace)
        target = f"GET {path}"
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", resource_version),
            ("timeoutSeconds", str(timeout_seconds)),
            *_selectors(label_selector, field_selector),
        ]
        accept = METADATA if metadata_only else JSON
        silence = timeout_seconds + SILENCE_MARGIN
        loop = asyncio.get_running_loop()
        lines = LineBuffer()
        async with self._transport.stream(path, query=query, accept=accept) as stream:
            deadline = loop.time() + silence
            if stream.status != 200:
                body = b""
                deadline = loop.time() + self._transport.call_timeout
                while len(body) < _ERROR_BODY_LIMIT and (chunk := await stream.read(deadline)):
                    body += chunk
                raise _refusal(Response(stream.status, body, stream.retry_after), target, resource)
            if on_open is not None:
                on_open()
            while chunk := await stream.read(deadline):
                for line in lines.feed(chunk):
                    yield _line(line, target, metadata_only)
                    deadline = loop.time() + silence
        tail = lines.tail()
        if tail:
            # An unfinished line is no event. A Status is: the only line of an answer often has no end (B3).
            status = _parse(tail)
            if not isinstance(status, dict) or status.get("kind") != "Status":
                raise Unreachable(f"{target}: the stream was cut off within a line")
            yield status

    async def _write(
        self,
        target: tuple[str, str],
        resource: Resource,
        body: object,
        kind: str,
        timeout: float | None,
        *,
        harmless: bool,
    ) -> KubeObject:
        """``target`` is verb and path, ``kind`` the content type of ``body``."""
        method, path = target
        data = _encode(body)

        async def send(left: float) -> KubeObject:
            response = await self._transport.request(
                method,
                path,
                query=self._write_query,
                body=data,
                content_type=kind,
                timeout=self._allowed(left),
            )
            return _object(response, f"{method} {path}", resource)

        return await self._call(send, timeout, harmless=harmless)

    async def _call(
        self, send: Callable[[float], Awaitable[KubeObject]], timeout: float | None, *, harmless: bool
    ) -> KubeObject:
        """``send`` a request, and again as long as the server puts it off and patience lasts (M1).

        All of it happens within ``timeout``; ``send`` is told the seconds that are left.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + (self._transport.call_timeout if timeout is None else timeout)
        made = 0
        while True:
            made += 1
            try:
                return await send(end - loop.time())
            except Throttled as error:
                left = end - loop.time()
                wait = self._patience.wait(error, made, left, harmless=harmless) if self._patience else None
                if wait is None:
                    raise
            await asyncio.sleep(wait)

    def _allowed(self, left: float) -> float:
        """Seconds for a mutating request; asked right before it is sent, so that a late one never is (K4)."""
        remaining = self._gate.remaining()
        if remaining <= 0:
            raise NotLeader("no time is left of the lease")
        return min(left, remaining)


def _is_guarded(body: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> bool:
    """Whether a patch fails when what it was made for has changed, by itself for example (F2)."""
    if isinstance(body, Mapping):
        return bool(version_of(body))
    return any(operation.get("op") == "test" for operation in body)


def _selectors(label_selector: str | None, field_selector: str | None) -> list[tuple[str, str]]:
    pairs = (("labelSelector", label_selector), ("fieldSelector", field_selector))
    return [(name, value) for name, value in pairs if value]


def _encode(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _parse(data: bytes) -> object:
    """The JSON value, or None: a decoding error would carry the document."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _refusal(response: Response, target: str, resource: Resource) -> ApiError:
    return error_from_status(
        target,
        response.status,
        _parse(response.body),
        retry_after=response.retry_after,
        sensitive=resource.sensitive,
    )


def _object(response: Response, target: str, resource: Resource) -> KubeObject:
    if not 200 <= response.status < 300:
        raise _refusal(response, target, resource)
    value = _parse(response.body)
    if not isinstance(value, dict):
        raise ProtocolError(f"{target} answered {response.status} with something that is no JSON object")
    return value


def _line(line: bytes, target: str, metadata_only: bool) -> KubeObject:
    value = _parse(line)
    if not isinstance(value, dict):
        raise ProtocolError(f"{target} sent a line that is no JSON object")
    if metadata_only and value.get("type") != "ERROR" and isinstance(value.get("object"), dict):
        value["object"] = _without_content(value["object"])
    return value


def _without_content(obj: KubeObject) -> KubeObject:
    """Only the metadata, in case somebody between us and the server ignored the Accept header (D1)."""
    return {name: obj[name] for name in ("apiVersion", "kind", "metadata") if name in obj}
