"""One request under way, and the words in which faults are written.

An exchange knows its request, the client's connection and the one to the server behind. It passes the answer on in
pieces or lines, answers itself, hangs, closes or resets; which of these is the business of faults and rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from tests.faultproxy.http1 import Head, framed, pieces, read_head


class Wire(Protocol):
    """What an exchange wants of the proxy."""

    thawed: asyncio.Event

    async def server_of(self, connection: Connection) -> Streams:
        """The connection to the server behind that belongs to a client's. OSError."""


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proceed(Protocol):
    """What happens to an exchange without this fault."""

    async def __call__(self) -> None: ...


Fault = Callable[["Exchange", Proceed], Awaitable[None]]


class Broken(Exception):
    """The connection to the client is of no further use."""


@dataclass(eq=False)
class Rule:
    """What is done to which requests. ``hits`` counts those it was applied to."""

    method: str
    path: str
    faults: tuple[Fault, ...] = ()
    times: int | None = None
    """How many requests it is for; None: all."""
    hits: int = 0
    active: bool = False

    def do(self, *faults: Fault, times: int | None = None) -> Rule:
        """Switch the rule on."""
        self.faults, self.times, self.active = faults, times, True
        return self

    def off(self) -> None:
        """Switch it off; what it has begun goes on."""
        self.active = False

    def matches(self, exchange: Exchange) -> bool:
        left = self.active and (self.times is None or self.hits < self.times)
        method = self.method in ("*", exchange.method)
        return left and method and fnmatch.fnmatchcase(exchange.path, self.path)


@dataclass(eq=False)
class Connection:
    """One client, and the connection to the server that was opened for it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    begun: bytes = b""
    """What was read of the next request."""
    server: Streams | None = None
    task: asyncio.Task[None] | None = None

    def reset(self) -> None:
        """End it with RST, as a crashed peer would."""
        connection = self.writer.get_extra_info("socket")
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        """End it with FIN."""
        self.writer.close()
        self.leave_server()

    def leave_server(self) -> None:
        if self.server is not None:
            self.server[1].close()
            self.server = None


@dataclass(eq=False, repr=False)
class Exchange:
    """One request, and the words in which faults are written."""

    head: Head
    body: bytes
    at: float
    """Loop time of its arrival."""
    _proxy: Wire
    _connection: Connection
    status: int = 0
    """Of the server's answer; 0 while there is none."""
    muted: bool = False
    """Set it, and nothing reaches the client any more, while the connection stays open."""
    _answer: Head | None = None

    @property
    def method(self) -> str:
        method = self.head.first.split(" ")[0]
        return "WATCH" if method == "GET" and self.query.get("watch") == "true" else method

    @property
    def path(self) -> str:
        return urlsplit(self.head.first.split(" ")[1]).path

    @property
    def query(self) -> dict[str, str]:
        parsed = parse_qs(urlsplit(self.head.first.split(" ")[1]).query)
        return {name: values[-1] for name, values in parsed.items()}

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    async def forward(self) -> None:
        """Send the request to the server and wait for the head of its answer."""
        for fresh in (self._connection.server is None, True):
            try:
                reader, writer = await self._proxy.server_of(self._connection)
                writer.write(self.head.encode() + self.body)
                await writer.drain()
                self._answer = await read_head(reader)
            except OSError:
                self._answer = None
            if self._answer is not None:
                self.status = int(self._answer.first.split(" ")[1])
                return
            self._connection.leave_server()
            if fresh:
                break  # else the server had only closed a connection that was idle
        raise Broken("the server behind does not answer")

    async def begin(self) -> None:
        """Send the head of the server's answer to the client."""
        await self._send(self._known().encode())

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body of the server's answer as it comes."""
        server = self._connection.server
        assert server is not None
        body = pieces(self._known(), server[0], until_end=self.status not in (204, 304))
        try:
            async for piece in body:
                yield piece
        except (asyncio.IncompleteReadError, OSError):
            raise Broken("the server behind broke off") from None

    async def lines(self) -> AsyncIterator[bytes]:
        """The same by lines, each with its end of line; a last one may have none."""
        held = b""
        async for piece in self.pieces():
            *whole, held = (held + piece).split(b"\n")
            for line in whole:
                yield line + b"\n"
        if held:
            yield held

    async def send(self, piece: bytes) -> None:
        """A piece of the body to the client."""
        if piece:
            await self._send(framed(self._known(), piece))

    async def end(self) -> None:
        """The end of the answer."""
        if self._known().chunked:
            await self._send(b"0\r\n\r\n")
        elif self._known().length is None:
            self.close()

    async def relay(self) -> None:
        """The rest of the answer as it is."""
        await self.begin()
        async for piece in self.pieces():
            await self.send(piece)
        await self.end()

    async def answer(self, status: int, body: bytes, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Answer in place of the server."""
        self.status = status
        framing = (("Content-Type", "application/json"), ("Content-Length", str(len(body))))
        await self._send(Head(f"HTTP/1.1 {status} Proxy", (*framing, *headers)).encode() + body)
        # The server may still be answering on the connection behind.
        self._connection.leave_server()

    def reset(self) -> None:
        """RST."""
        self._connection.reset()
        raise Broken("reset")

    def close(self) -> None:
        """FIN, wherever the answer is."""
        self._connection.close()
        raise Broken("closed")

    async def hang(self) -> None:
        """Do nothing until the client leaves."""
        await asyncio.Event().wait()

    def abandon(self) -> None:
        """From outside: reset the connection of an exchange that is under way."""
        self._connection.reset()

    async def _send(self, data: bytes) -> None:
        await self._proxy.thawed.wait()
        if self.muted:
            return
        try:
            self._connection.writer.write(data)
            await self._connection.writer.drain()
        except OSError:
            raise Broken("the client is gone") from None

    def _known(self) -> Head:
        assert self._answer is not None, "forward() comes first"
        return self._answer


async def pass_on(exchange: Exchange) -> None:
    """What happens to a request that no rule is for."""
    await exchange.forward()
    await exchange.relay()


def status_body(code: int, reason: str, message: str = "from the proxy") -> dict[str, Any]:
    """A Status of Kubernetes."""
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    }  # fmt: skip


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()
