"""An API server that answers from a script and remembers what it was asked.

For tests of one protocol step at a time, including answers that no honest server gives. Replies are taken
from two queues, one for watches and one for everything else; when a queue is empty its default answers.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from psono_operator.runtime.client import KubeClient
from psono_operator.runtime.credentials import ApiEndpoint, Credentials, StaticToken, TokenSource
from psono_operator.runtime.gate import WriteGate
from psono_operator.runtime.resources import Resource
from psono_operator.runtime.transport import Transport
from tests.virtualtime import VirtualClock

THINGS = Resource("example.com", "v1", "things", "Thing")
SECRETS = Resource("", "v1", "secrets", "Secret", sensitive=True)

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it arrived; ``at`` is loop time."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    at: float


def answer(body: object = None, *, code: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A whole answer; bytes are sent as they are, everything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def reply(request: web.Request) -> web.StreamResponse:
        return web.Response(body=data, status=code, headers=headers, content_type="application/json")

    return reply


def status_body(
    code: int, reason: str = "", message: str = "", causes: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A Status as API servers send it; ``causes`` are reasons."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": {"causes": [{"reason": cause} for cause in causes]},
        "code": code,
    }


def refuse(
    code: int,
    reason: str = "",
    message: str = "",
    *,
    causes: tuple[str, ...] = (),
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """A Status with its code as HTTP status."""
    return answer(status_body(code, reason, message, causes), code=code, headers=headers)


def thing(name: str, version: str, **more: Any) -> dict[str, Any]:
    """A small object in namespace ``a``."""
    metadata = {"namespace": "a", "name": name, "uid": f"uid-{name}", "resourceVersion": version}
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata, **more}


def page(items: list[dict[str, Any]] | None, version: str, token: str = "") -> Reply:
    """One page of a list."""
    metadata = {"resourceVersion": version, **({"continue": token} if token else {})}
    return answer({"kind": "ThingList", "apiVersion": "example.com/v1", "metadata": metadata, "items": items})


def event(kind: str, obj: Mapping[str, Any]) -> dict[str, Any]:
    """A watch event."""
    return {"type": kind, "object": obj}


def bookmark(version: str) -> dict[str, Any]:
    """A bookmark carries nothing but its version."""
    return event("BOOKMARK", {"kind": "Thing", "metadata": {"resourceVersion": version}})


def stream(*parts: object, then: str = "end") -> Reply:
    """A watch answer. Parts: dicts are lines, bytes are sent as they are, numbers are pauses in seconds.

    ``then``: ``end`` at once, ``hold`` until the asked for timeout with a bookmark before it, the same without
    one (``deaf``), fall ``silent``, or ``cut`` the connection.
    """

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in parts:
            if isinstance(part, int | float):
                await asyncio.sleep(part)
            else:
                await response.write(part if isinstance(part, bytes) else json.dumps(part).encode() + b"\n")
        if then == "hold":
            # A real server sends a bookmark about two seconds before it ends a watch.
            await asyncio.sleep(float(request.query["timeoutSeconds"]) - 2)
            await response.write(json.dumps(bookmark(request.query["resourceVersion"])).encode() + b"\n")
            await asyncio.sleep(2)
        elif then == "deaf":
            await asyncio.sleep(float(request.query["timeoutSeconds"]))
        elif then == "silent":
            await asyncio.Event().wait()
        elif then == "cut" and request.transport is not None:
            request.transport.close()
        return response

    return reply


class ScriptedApi:
    """See the module."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.calls: deque[Reply] = deque()
        self.watches: deque[Reply] = deque()
        self.default_call: Reply = page([], "1")
        self.default_watch: Reply = stream(then="hold")
        self.url = ""

    @property
    def lists_seen(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.method == "GET" and "watch=true" not in seen.query]

    @property
    def watches_seen(self) -> list[Seen]:
        return [seen for seen in self.seen if "watch=true" in seen.query]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        now = asyncio.get_running_loop().time()
        headers = dict(request.headers)
        self.seen.append(
            Seen(request.method, request.path, request.rel_url.raw_query_string, headers, body, now)
        )
        if request.query.get("watch") == "true":
            reply = self.watches.popleft() if self.watches else self.default_watch
        else:
            reply = self.calls.popleft() if self.calls else self.default_call
        return await reply(request)


@asynccontextmanager
async def serving_api() -> AsyncIterator[ScriptedApi]:
    """A scripted server on a free port."""
    api = ScriptedApi()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    api.url = f"http://{host}:{port}"
    try:
        yield api
    finally:
        await runner.cleanup()


@asynccontextmanager
async def transport_to(
    url: str, *, tokens: TokenSource | None = None, endpoint: ApiEndpoint | None = None, **options: Any
) -> AsyncIterator[Transport]:
    """A transport on virtual time."""
    credentials = Credentials(endpoint or ApiEndpoint(url), tokens or StaticToken())
    transport = Transport(credentials, clock=VirtualClock(), **options)
    try:
        yield transport
    finally:
        await transport.close()


@asynccontextmanager
async def serving(
    *, gate: WriteGate | None = None, tokens: TokenSource | None = None, **options: Any
) -> AsyncIterator[tuple[ScriptedApi, KubeClient]]:
    """A scripted server and a client of it."""
    async with serving_api() as api, transport_to(api.url, tokens=tokens, **options) as transport:
        yield api, KubeClient(transport, field_manager="tester", gate=gate)
