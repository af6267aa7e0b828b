"""Servers and proxies on the loopback interface, and clients towards them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from psono_operator.psono.client import BODY_CAP, Endpoint, PsonoClient
from psono_operator.psono.credentials import CredentialKeys, PsonoCredentials, parse_credentials
from psono_operator.psono.sessions import SessionPool
from psono_operator.sandbox.psono import ApiKey
from tests.virtualtime import VirtualClock

KEY_ID = "28b1d99d-0bc3-49f3-8889-92460064a423"
SECRET_ID = "1ce44b8f-a726-44e8-9838-f11d1d073351"
SECRET_KEY_HEX = "5e" * 32


def credentials(url: str, key: ApiKey | None = None, ca_bundle: bytes | None = None) -> PsonoCredentials:
    data = {
        "serverUrl": url.encode(),
        "apiKeyId": (key.id if key else KEY_ID).encode(),
        "apiSecretKey": (key.secret_key_hex if key else SECRET_KEY_HEX).encode(),
        "ca.crt": ca_bundle or b"",
    }
    return parse_credentials(data, CredentialKeys(ca_bundle="ca.crt" if ca_bundle else None))


@dataclass
class Observed:
    """An observer that remembers."""

    calls: list[tuple[Endpoint, str, float]] = field(default_factory=list)

    def __call__(self, endpoint: Endpoint, outcome: str, seconds: float) -> None:
        self.calls.append((endpoint, outcome, seconds))


@asynccontextmanager
async def client_for(
    url: str,
    key: ApiKey | None = None,
    *,
    ca_bundle: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    observer: Observed | None = None,
    body_cap: int = BODY_CAP,
) -> AsyncIterator[PsonoClient]:
    clock = VirtualClock()
    wanted = credentials(url, key, ca_bundle)
    pool = SessionPool(environment or {})
    lease = pool.acquire(wanted)
    try:
        yield PsonoClient(
            wanted, lease, monotonic=clock.monotonic, now=clock.now, observer=observer, body_cap=body_cap
        )
    finally:
        await lease.release()
        assert len(pool) == 0
        await pool.close()


@asynccontextmanager
async def http_server(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_server(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """A TCP server on a free port; connections are closed when ``talk`` returns and at the end."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


class ForwardProxy:
    """An HTTP proxy that sends everything to one port, whatever host it was asked for."""

    def __init__(self, upstream_port: int, *, refuse_with: int | None = None) -> None:
        self.targets: list[str] = []
        self.heads: list[str] = []
        self._upstream_port = upstream_port
        self._refuse_with = refuse_with

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, target, _ = head.split("\r\n", 1)[0].split(" ")
        self.targets.append(f"{method} {target}")
        self.heads.append(head)
        if self._refuse_with is not None:
            writer.write(f"HTTP/1.1 {self._refuse_with} No\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
            return
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = "/" + target.split("/", 3)[3]
            lines = [line for line in head.split("\r\n") if not line.lower().startswith("proxy-")]
            up_writer.write("\r\n".join([f"{method} {path} HTTP/1.1", *lines[1:]]).encode("latin-1"))
        try:
            await asyncio.gather(_pump(reader, up_writer), _pump(up_reader, writer))
        finally:
            up_writer.close()
            with contextlib.suppress(OSError):
                await up_writer.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
