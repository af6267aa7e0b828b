"""The connections to one API server, and their replacement when what it is trusted by changes.

Calls and streams have a pool each, so that open watches take no connection from calls (L3). A pool belongs
to a TLS context. When the context changes, new requests go to a new pool, and the old one is closed when the
last request that uses it has ended by itself (L2). It knows no requests; the transport borrows a session for
each.

Rules: B6 (keepalive), L2, L3, L4 (no proxies, no netrc), M2.
"""

from __future__ import annotations

import math
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from psono_operator.runtime.credentials import TrustSource

AddressInfo = tuple[socket.AddressFamily | int, socket.SocketKind | int, int, str, tuple[Any, ...]]
"""A result of ``getaddrinfo``."""

_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000))
"""A dead peer is noticed after a minute, idle or not. Seconds, seconds, probes, milliseconds."""


class _Pool:
    """The sessions of one TLS context, opened on first use, and how many requests use them."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.sessions: dict[bool, aiohttp.ClientSession] = {}
        self.users = 0

    async def close(self) -> None:
        for session in self.sessions.values():
            await session.close()


class Connections:
    """See the module. ``limit`` is how many calls may be in flight (0: any number), the timeout is in
    seconds.
    """

    def __init__(self, trust: TrustSource, *, limit: int, connect_timeout: float) -> None:
        self._trust = trust
        self._limit = limit
        self._connect_timeout = connect_timeout
        self._pool: _Pool | None = None
        self._retired: set[_Pool] = set()
        self.closed = False

    @asynccontextmanager
    async def session(self, *, streams: bool = False) -> AsyncGenerator[aiohttp.ClientSession, None]:
        """A session for one request, from before it is sent until its answer has been read or given up."""
        pool = self._pool_for(await self._trust.context())
        if streams not in pool.sessions:
            pool.sessions[streams] = self._open(pool.context, 0 if streams else self._limit)
        pool.users += 1
        try:
            yield pool.sessions[streams]
        finally:
            pool.users -= 1
            if self._retired:
                await self._close_idle()

    async def close(self) -> None:
        """Close everything, also what is in use."""
        self.closed = True
        for pool in (self._pool, *self._retired):
            if pool is not None:
                await pool.close()
        self._retired.clear()

    def _pool_for(self, context: ssl.SSLContext | None) -> _Pool:
        """The pool in use, replaced if it is not of this context."""
        if self._pool is not None and self._pool.context is context:
            return self._pool
        if self._pool is not None:
            self._retired.add(self._pool)
        self._pool = _Pool(context)
        return self._pool

    async def _close_idle(self) -> None:
        """Close retired pools that nobody uses."""
        for pool in [each for each in self._retired if each.users == 0]:
            self._retired.discard(pool)
            await pool.close()

    def _open(self, context: ssl.SSLContext | None, limit: int) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=limit,
                ssl=context or True,
                keepalive_timeout=60.0,
                socket_factory=keepalive_socket,
            ),
            # Whole requests are bounded by asyncio.timeout; aiohttp would round its own up to full seconds.
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._connect_timeout, ceil_threshold=math.inf
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            # Compression costs both sides more time than the bytes it saves inside a cluster.
            headers={"Accept-Encoding": "identity"},
        )


def keepalive_socket(address: AddressInfo) -> socket.socket:
    """A client socket that notices a peer that vanished without a word (rule B6)."""
    family, kind, protocol, _, _ = address
    connection = socket.socket(family, kind, protocol)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection
