"""Raw HTTP for the conformance suite: no client of ours sits between a test and the server."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

GROUP = "/apis/secrets.psono.com/v1alpha1"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
DEADLINE = 20.0
CONTROLLER_DEADLINE = 75.0
"""The real garbage collector looks for new kinds every 30 s, so its first work on a CRD may be late."""

Json = dict[str, Any]


@dataclass
class Answer:
    """What came back. ``body`` is parsed JSON, or text where the server does not speak JSON."""

    status: int
    body: Any
    warnings: list[str]

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def generation(self) -> int:
        return int(self.body["metadata"].get("generation", 0))

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def causes(self) -> list[Json]:
        return list((self.body.get("details") or {}).get("causes") or [])

    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]


@dataclass
class Events:
    """The lines of an open watch."""

    response: aiohttp.ClientResponse
    status: int = 200
    seen: list[Json] = field(default_factory=list)

    async def next(self) -> Json:
        """The next event; fails when none comes in time or the stream has ended."""
        async with asyncio.timeout(DEADLINE):
            line = await self.response.content.readline()
        assert line, f"the watch ended after {len(self.seen)} events"
        event: Json = json.loads(line)
        self.seen.append(event)
        return event

    async def next_of(self, name: str) -> Json:
        """The next event about the object ``name``."""
        while True:
            event = await self.next()
            if event["object"]["metadata"].get("name") == name:
                return event

    async def rest(self) -> list[Json]:
        """All events until the server ends the stream."""
        async with asyncio.timeout(DEADLINE):
            raw = await self.response.read()
        return [json.loads(line) for line in raw.splitlines() if line]


@dataclass
class Api:
    """One server and a namespace of our own in it."""

    kind: str
    url: str
    session: aiohttp.ClientSession
    namespace: str
    compact: Callable[[], object]

    @property
    def secrets(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/secrets"

    @property
    def psono(self) -> str:
        return f"{GROUP}/namespaces/{self.namespace}/psonosecrets"

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Answer:
        """One request with a deadline."""
        raw_body = body if isinstance(body, bytes) else json.dumps(body).encode()
        data = None if body is None else io.BytesIO(raw_body)
        headers = {"Accept": accept, "User-Agent": "conformance/1"}
        if data is not None:
            headers["Content-Type"] = content_type
        async with (
            asyncio.timeout(DEADLINE),
            self.session.request(
                method, self.url + path, data=data, headers=headers, params=query or {}
            ) as response,
        ):
            raw = await response.read()
            try:
                parsed = json.loads(raw)
            except ValueError:
                parsed = raw.decode()
            return Answer(response.status, parsed, response.headers.getall("Warning", []))

    async def get(self, path: str, **query: str) -> Answer:
        return await self.call("GET", path, query=query)

    async def create(self, path: str, body: Any, **query: str) -> Answer:
        return await self.call("POST", path, body, query=query)

    async def put(self, path: str, body: Any, **query: str) -> Answer:
        return await self.call("PUT", path, body, query=query)

    async def patch(self, path: str, body: Any, content_type: str = MERGE, **query: str) -> Answer:
        return await self.call("PATCH", path, body, content_type=content_type, query=query)

    async def delete(self, path: str, body: Any = None, **query: str) -> Answer:
        return await self.call("DELETE", path, body, query=query)

    @asynccontextmanager
    async def watch(
        self, path: str, *, accept: str = "application/json", **query: str
    ) -> AsyncIterator[Events]:
        """An open watch; left, it is closed from our side."""
        params = {"watch": "1", "timeoutSeconds": "30", **query}
        async with self.session.get(self.url + path, params=params, headers={"Accept": accept}) as response:
            yield Events(response, response.status)

    async def new_secret(self, name: str, **fields: Any) -> Answer:
        """Create a Secret that must be accepted."""
        answer = await self.create(self.secrets, secret(name, **fields))
        assert answer.status == 201, answer.body
        return answer

    async def new_psono(self, name: str, **fields: Any) -> Answer:
        """Create a PsonoSecret that must be accepted."""
        answer = await self.create(self.psono, psono(name, **fields))
        assert answer.status == 201, answer.body
        return answer

    async def eventually(self, check: Callable[[], Awaitable[bool]]) -> None:
        """Poll until ``check`` holds; what controllers do takes its time."""
        end = time.monotonic() + CONTROLLER_DEADLINE
        while not await check():
            assert time.monotonic() < end, "it did not happen in time"
            await asyncio.sleep(0.05)

    async def gone(self, path: str) -> bool:
        return (await self.get(path)).status == 404

    async def present(self, path: str) -> bool:
        return (await self.get(path)).status == 200


def secret(name: str, **fields: Any) -> Json:
    """A Secret; ``metadata`` in ``fields`` is merged, the rest replaces."""
    meta = {"name": name, **fields.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, **fields}


def psono(name: str, **fields: Any) -> Json:
    """A valid PsonoSecret; ``metadata`` and ``spec`` in ``fields`` are merged, the rest replaces."""
    meta = {"name": name, **fields.pop("metadata", {})}
    spec = {
        "authentication": {"secretRef": {"name": "credentials"}},
        "target": {"name": "target"},
        "data": [{"secretKey": "A", "remoteRef": {"secretId": "id", "field": "f"}}],
        **fields.pop("spec", {}),
    }
    return {
        "apiVersion": "secrets.psono.com/v1alpha1",
        "kind": "PsonoSecret",
        "metadata": meta,
        "spec": spec,
        **fields,
    }


def owner(of: Answer, **more: Any) -> Json:
    """An ownerReference to the object in an answer."""
    body = of.body
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": body["metadata"]["name"],
        "uid": body["metadata"]["uid"],
        **more,
    }
