"""The proxy: a listener whose every request passes the rules before it reaches the server behind.

``proxy.on(method, path).do(fault, ...)`` says what happens to the requests of a method (``WATCH`` for those
that watch, ``*`` for any) whose path, without the query, matches a pattern of ``fnmatch``. The newest rule
that matches counts; a request without a rule is passed on as it is. A fault is a function of the exchange and of
what would happen without it, so that several can be chained. The whole listener can be taken down (connections
are refused), made dark (they are accepted by the kernel and never answered), and frozen (everything stands still).

Plain HTTP or TLS on either side. The certificate it shows can be swapped while it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.faultproxy.exchange import Broken, Connection, Exchange, Fault, Rule, Streams, pass_on
from tests.faultproxy.http1 import framed, pieces, read_head

_BACKLOG = 128


@dataclass(eq=False, repr=False)
class FaultProxy:
    """See the module. ``url`` is the server behind, ``upstream_tls`` what it is trusted by, ``tls`` what we show."""

    upstream: str
    upstream_tls: ssl.SSLContext | None = None
    tls: ssl.SSLContext | None = None
    seen: list[Exchange] = field(default_factory=list)
    """All requests in order of arrival."""
    failures: list[BaseException] = field(default_factory=list)
    """What went wrong in the proxy itself; a test that ends with any has failed."""
    thawed: asyncio.Event = field(default_factory=asyncio.Event)
    _rules: list[Rule] = field(default_factory=list)
    _open: list[Exchange] = field(default_factory=list)
    _connections: set[Connection] = field(default_factory=set)
    _socket: socket.socket | None = None
    _server: asyncio.Server | None = None
    _port: int = 0

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self._port}"

    def on(self, method: str, path: str = "*") -> Rule:
        """A rule, without effect until ``do``."""
        rule = Rule(method, path)
        self._rules.insert(0, rule)
        return rule

    def clear(self) -> None:
        """No rules; what they have begun goes on."""
        self._rules.clear()

    def sent(self, method: str, path: str = "*") -> list[Exchange]:
        """The requests seen so far that such a rule would be for."""
        rule = Rule(method, path, active=True)
        return [each for each in self.seen if rule.matches(each)]

    def open(self, method: str = "WATCH", path: str = "*") -> list[Exchange]:
        """Those that are under way."""
        rule = Rule(method, path, active=True)
        return [each for each in self._open if rule.matches(each)]

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[FaultProxy]:
        """Listen on a free port until the block is left."""
        self.thawed.set()
        await self.up()
        try:
            yield self
        finally:
            self.thawed.set()
            await self.down()
        assert self.failures == []

    async def up(self) -> None:
        """Accept connections (again), on the same port; those that waited in the dark are answered now."""
        if self._socket is None:
            # With the protocol named, asyncio switches Nagle's algorithm off: on virtual time, nothing may linger.
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(("127.0.0.1", self._port))
            self._socket.listen(_BACKLOG)
            self._socket.setblocking(False)
            self._port = self._socket.getsockname()[1]
        if self._server is None:
            self._server = await asyncio.start_server(
                self._serve_client, sock=self._socket.dup(), ssl=self.tls, limit=2**20, backlog=_BACKLOG
            )

    async def dark(self) -> None:
        """The kernel accepts connections, and nobody ever says a word; those that exist fall silent."""
        self._stop_accepting()
        for each in self._open:
            each.muted = True

    async def down(self) -> None:
        """Nobody listens, and all connections are reset."""
        self._stop_accepting()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        connections = list(self._connections)
        for each in connections:
            each.reset()
        tasks = [each.task for each in connections if each.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def freeze(self) -> None:
        """Nothing gets through in either direction, until ``thaw``."""
        self.thawed.clear()

    def thaw(self) -> None:
        self.thawed.set()

    def swap_certificate(self, certificate: Any) -> None:
        """Show another one (of trustme) to new connections; those that exist go on."""
        assert self.tls is not None
        certificate.configure_cert(self.tls)

    def drop_idle(self) -> None:
        """Close the connections that carry nothing, as servers do after a while.

        (A client that measures idleness in real time keeps them for ever where time is virtual.)
        """
        busy = {each._connection for each in self._open}
        for connection in self._connections - busy:
            connection.close()

    async def server_of(self, connection: Connection) -> Streams:
        """The connection to the server behind that belongs to a client's."""
        if connection.server is None:
            url = urlsplit(self.upstream)
            connection.server = await asyncio.open_connection(
                url.hostname, url.port, ssl=self.upstream_tls, limit=2**20
            )
        return connection.server

    def _stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer, task=asyncio.current_task())
        self._connections.add(connection)
        try:
            while await self._serve_request(connection):
                pass
        except (Broken, ConnectionError):
            pass
        except asyncio.CancelledError:  # only ``down`` cancels
            pass
        except Exception as error:  # noqa: BLE001 - told at the end of the test
            self.failures.append(error)
        finally:
            self._connections.discard(connection)
            connection.close()

    async def _serve_request(self, connection: Connection) -> bool:
        """One exchange; whether the connection can carry another."""
        head = await read_head(connection.reader, connection.begun)
        if head is None:
            return False
        connection.begun = b""
        body = [piece async for piece in pieces(head, connection.reader, until_end=False)]
        now = asyncio.get_running_loop().time()
        sent = b"".join(framed(head, piece) for piece in (*body, *([b""] if head.chunked else [])))
        exchange = Exchange(head, sent, now, self, connection)
        self.seen.append(exchange)
        self._open.append(exchange)
        gone = asyncio.create_task(_next_byte(connection))
        work = asyncio.create_task(self._apply(exchange))
        try:
            await asyncio.wait({gone, work}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and gone.result():
                await asyncio.wait({work})  # it was the next request, and no goodbye
            if not work.done():
                return False
            work.result()
            self._open.remove(exchange)
            connection.begun = await gone
            return bool(connection.begun) and head.get("connection").lower() != "close"
        finally:
            if exchange in self._open:
                self._open.remove(exchange)
            for task in (gone, work):
                task.cancel()
            await asyncio.wait({gone, work})

    async def _apply(self, exchange: Exchange) -> None:
        await self.thawed.wait()
        rule = next((each for each in self._rules if each.matches(exchange)), None)
        if rule is not None:
            rule.hits += 1

        async def chain(faults: tuple[Fault, ...]) -> None:
            if not faults:
                await pass_on(exchange)
                return
            await faults[0](exchange, lambda: chain(faults[1:]))

        await chain(rule.faults if rule is not None else ())


async def _next_byte(connection: Connection) -> bytes:
    """The first byte of the next request; empty when the client has left."""
    try:
        return await connection.reader.read(1)
    except OSError:
        return b""
