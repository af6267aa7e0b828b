"""HTTP sessions towards Psono servers, one per server and CA bundle, shared and counted.

A session is opened with the first lease and closed when the last lease is released and the last request
over it has ended, so neither sockets nor TLS contexts pile up when credentials change (F6 and K6 of the
public fault log, quirk Q16). All rules for speaking to Psono are kept here: POST only, no redirects, no
cookies, no netrc, no Authorization, TLS always verified against the system's roots and the bundle, a
deadline on everything. It refuses to know what is asked and what is answered.

The pool is the only owner of its sessions; everything runs in one event loop and the counts change between
awaits only.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from yarl import URL

from psono_operator.psono.credentials import PsonoCredentials, trusting
from psono_operator.psono.errors import Unreachable
from psono_operator.psono.proxies import Proxy, ProxyRules

CONNECT_TIMEOUT = 10.0
"""Seconds for a connection: name, TCP, proxy and TLS."""
TOTAL_TIMEOUT = 30.0
"""Seconds for a whole exchange, the body included."""
CONNECTIONS_PER_SERVER = 16

_HEADERS = {
    # inspect is answered as text/html: any narrower Accept is refused with 406
    "Accept": "*/*",
    "Content-Type": "application/json",
    "User-Agent": "psono-kubernetes-operator",
}

_Key = tuple[URL, bytes | None]


@dataclass(slots=True, eq=False)
class _Shared:
    session: aiohttp.ClientSession
    proxy: Proxy | None
    users: int = 0
    """Leases and requests in flight."""


class SessionPool:
    """Hands out leases on sessions. Use within one running event loop."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        connections_per_server: int = CONNECTIONS_PER_SERVER,
        connect_timeout: float = CONNECT_TIMEOUT,
        total_timeout: float = TOTAL_TIMEOUT,
    ) -> None:
        """``environment`` is read for proxy variables only; timeouts are seconds.

        :raises ProxySettingsError: a proxy variable is malformed.
        """
        self._rules = ProxyRules(environment)
        self._limit = connections_per_server
        # Waiting for a free connection is part of the total only: a busy server is no broken network.
        self._timeout = aiohttp.ClientTimeout(total=total_timeout, sock_connect=connect_timeout)
        self._shared: dict[_Key, _Shared] = {}
        self._system_roots: ssl.SSLContext | None = None
        self._closed = False

    def acquire(self, credentials: PsonoCredentials) -> SessionLease:
        """A lease on the session for this server and CA bundle; the caller releases it.

        :raises Unreachable: the pool has been closed.
        """
        if self._closed:
            raise Unreachable("the operator is stopping")
        url = URL(credentials.server_url, encoded=True)
        key = (url.origin(), credentials.ca_bundle)
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = self._open(url, credentials.ca_bundle)
        shared.users += 1
        return SessionLease(self, key, shared, credentials.server_url)

    async def close(self) -> None:
        """Close every session, whoever holds a lease. Requests in flight end as Unreachable."""
        self._closed = True
        while self._shared:
            _, shared = self._shared.popitem()
            await shared.session.close()

    def __len__(self) -> int:
        """How many sessions are open."""
        return len(self._shared)

    async def _leave(self, key: _Key, shared: _Shared) -> None:
        shared.users -= 1
        if shared.users == 0 and self._shared.get(key) is shared:
            del self._shared[key]
            await shared.session.close()

    def _open(self, url: URL, ca_bundle: bytes | None) -> _Shared:
        connector = aiohttp.TCPConnector(
            limit=self._limit, ssl=self._context(ca_bundle) if url.scheme == "https" else True
        )
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            timeout=self._timeout,
            trust_env=False,  # it would bring netrc along; proxies.py reads the variables instead
            raise_for_status=False,
        )
        return _Shared(session, self._rules.proxy_for(url))

    def _context(self, ca_bundle: bytes | None) -> ssl.SSLContext:
        if ca_bundle is not None:
            return trusting(_verifying_context(), ca_bundle)
        if self._system_roots is None:
            self._system_roots = _verifying_context()
        return self._system_roots

    @asynccontextmanager
    async def _post(
        self, key: _Key, shared: _Shared, url: str, body: bytes
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        proxy = shared.proxy
        authorization = {"Proxy-Authorization": proxy.authorization} if proxy and proxy.authorization else {}
        tunnelled = url.startswith("https:")  # then the proxy sees the CONNECT only, else the request itself
        shared.users += 1
        try:
            async with shared.session.post(
                URL(url, encoded=True),
                data=body,
                headers={} if tunnelled else authorization,
                allow_redirects=False,
                proxy=proxy.url if proxy else None,
                proxy_headers=authorization if tunnelled else None,
            ) as response:
                yield response
        finally:
            await self._leave(key, shared)


class SessionLease:
    """The right to send requests to one server until :meth:`release`."""

    def __init__(self, pool: SessionPool, key: _Key, shared: _Shared, server_url: str) -> None:
        self._pool = pool
        self._key = key
        self._shared = shared
        self._server_url = server_url
        self._released = False

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[aiohttp.ClientResponse]:
        """POST ``body`` (JSON) to ``path`` below the server URL; the body of the answer is still unread.

        :raises Unreachable: the lease was released or the pool closed.
        :raises aiohttp.ClientError, OSError: no answer; their text may name hosts and is not for users.
        """
        if self._released or self._shared.session.closed:
            raise Unreachable("the connection was given up, as credentials changed or the operator stops")
        async with self._pool._post(self._key, self._shared, self._server_url + path, body) as response:
            yield response

    async def release(self) -> None:
        """Give the lease back; a second call does nothing. Requests in flight may end in peace."""
        if not self._released:
            self._released = True
            await self._pool._leave(self._key, self._shared)


def _verifying_context() -> ssl.SSLContext:
    """The system's roots, host names checked. The same on every Python version.

    Python 3.13 began to demand RFC 5280 to the letter, which certificates of many private CAs do not keep
    and no other client asks for, and to accept any certificate of a bundle as an anchor, as others do.
    """
    context = ssl.create_default_context()
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
