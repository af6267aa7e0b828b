"""One HTTP request to the API server, with a deadline.

The transport knows the endpoint, the credentials and deadlines, and refuses to know what is
asked: JSON, resources and retries are its callers' business. It repeats a request in one case, after a 401
with a token that has been replaced meanwhile (L1). (aiohttp repeats a GET, PUT or DELETE once when a
connection dies before an answer; M3 allows that, for our PUTs and DELETEs carry preconditions.)

Rules: B6 (deadlines), L1 (token), L5 (no redirects), F8 (nothing it raises or shows holds a header, query or
body); the connections keep L2 to L4 and M2.
"""

from __future__ import annotations

import asyncio
import email.utils
import errno
import io
import math
import os
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from yarl import URL

from psono_operator.runtime.clock import Clock
from psono_operator.runtime.connections import Connections
from psono_operator.runtime.credentials import Credentials, FixedTrust
from psono_operator.runtime.errors import KubeError, ProtocolError, Unreachable

JSON = "application/json"

ResponseObserver = Callable[[str, str, str], None]
"""Called with method, host and status code (``<error>`` when no answer came), as client-go counts them."""

Query = Sequence[tuple[str, str]]

_LARGE_BODY = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer."""

    status: int
    body: bytes = field(repr=False)
    retry_after: float | None = None
    """Seconds the server asked us to wait (the Retry-After header), if it did."""


@dataclass(frozen=True, slots=True)
class _Call:
    """What is sent, but for the credentials."""

    method: str
    path: str
    query: Query
    body: bytes | None
    content_type: str | None
    accept: str

    @property
    def target(self) -> str:
        """The call as errors may name it: without the query (rule F8)."""
        return f"{self.method} {self.path}"

    def __repr__(self) -> str:
        return self.target


class Stream:
    """An answer whose body is read piece by piece."""

    def __init__(self, response: aiohttp.ClientResponse, target: str, host: str, now: float) -> None:
        self._response = response
        self._target = target
        self._host = host
        self.status = response.status
        self.retry_after = parse_retry_after(response.headers.get("Retry-After"), now)

    async def read(self, deadline: float) -> bytes:
        """The next bytes; empty at the end. Unreachable when none came by ``deadline`` (loop time)."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._response.content.readany()
        except TimeoutError:
            raise Unreachable(f"{self._target}: the stream of {self._host} fell silent") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(error, self._target, self._host) from None


class Transport:
    """Requests to one API server. Owns its connections, which are opened on first use."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Clock,
        connections: int = 64,
        connect_timeout: float = 10.0,
        call_timeout: float = 30.0,
        user_agent: str = "psono-kubernetes-operator",
        on_response: ResponseObserver | None = None,
    ) -> None:
        """``connections`` is how many calls may be in flight; the timeouts are in seconds."""
        self._endpoint = credentials.endpoint
        self._tokens = credentials.tokens
        self._clock = clock
        self._connect_timeout = connect_timeout
        self.call_timeout = call_timeout
        self._user_agent = user_agent
        self._on_response = on_response
        self._host = urlsplit(self._endpoint.url).netloc
        self._trust = credentials.trust or FixedTrust(self._endpoint.ssl_context)
        self._connections = Connections(self._trust, limit=connections, connect_timeout=connect_timeout)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: bytes | None = None,
        content_type: str | None = None,
        accept: str = JSON,
        timeout: float | None = None,
    ) -> Response:
        """One call and its whole answer, within ``timeout`` seconds (by default ``call_timeout``).

        ``path`` is sent as it is; the query is encoded here. Raises Unreachable and ProtocolError.
        """
        limit = self.call_timeout if timeout is None else timeout
        call = _Call(method, path, query, body, content_type, accept)
        self._refuse_when_closed(call)
        try:
            async with (
                asyncio.timeout(None if math.isinf(limit) else limit),
                self._connections.session() as session,
            ):
                response = await self._send(session, call)
                try:
                    retry_after = parse_retry_after(response.headers.get("Retry-After"), self._now())
                    return Response(response.status, await response.read(), retry_after)
                finally:
                    response.release()
        except TimeoutError:
            raise Unreachable(f"{call.target}: no answer from {self._host} within {limit:.3g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(error, call.target, self._host) from None

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Query = (), accept: str = JSON
    ) -> AsyncGenerator[Stream, None]:
        """A GET whose body is read as it comes. The head must arrive within ``call_timeout`` seconds.

        Not bound by the number of connections for calls (rule L3).
        """
        call = _Call("GET", path, query, None, None, accept)
        self._refuse_when_closed(call)
        async with self._connections.session(streams=True) as session:
            try:
                async with asyncio.timeout(self.call_timeout):
                    response = await self._send(session, call)
            except TimeoutError:
                limit = f"{self.call_timeout:.3g} s"
                raise Unreachable(f"{call.target}: no answer from {self._host} within {limit}") from None
            try:
                yield Stream(response, call.target, self._host, self._now())
            finally:
                response.close()

    async def close(self) -> None:
        """Close all connections. Later calls raise Unreachable."""
        await self._connections.close()

    async def _send(self, session: aiohttp.ClientSession, call: _Call) -> aiohttp.ClientResponse:
        """The head of the answer, after at most two attempts (L1)."""
        token = await self._tokens.token()
        response = await self._send_once(session, call, token)
        if response.status == 401:
            self._tokens.invalidate()
            renewed = await self._tokens.token()
            if renewed is not None and renewed != token:
                response.close()
                response = await self._send_once(session, call, renewed)
        if 300 <= response.status < 400:
            response.close()
            raise ProtocolError(f"{call.target} was answered with a redirect ({response.status})")
        return response

    async def _send_once(
        self, session: aiohttp.ClientSession, call: _Call, token: str | None
    ) -> aiohttp.ClientResponse:
        self._refuse_when_closed(call)
        url = self._endpoint.url + call.path
        if call.query:
            url = f"{url}?{urlencode(call.query, quote_via=quote)}"
        headers = {"Accept": call.accept, "User-Agent": self._user_agent}
        if token is not None:
            headers["Authorization"] = f"{self._tokens.scheme} {token}"
        if call.content_type is not None:
            headers["Content-Type"] = call.content_type
        # aiohttp warns about bytes beyond this size; a file object is sent piece by piece.
        data = io.BytesIO(call.body) if call.body is not None and len(call.body) >= _LARGE_BODY else call.body
        try:
            response = await session.request(
                call.method,
                URL(url, encoded=True),
                data=data,
                headers=headers,
                allow_redirects=False,
                server_hostname=self._endpoint.server_name,
            )
        except asyncio.CancelledError:  # our own deadline, most of the time
            self._observe(call.method, "<error>")
            raise
        except TimeoutError:
            self._observe(call.method, "<error>")
            limit = f"{self._connect_timeout:g} s"
            raise Unreachable(f"{call.target}: no connection to {self._host} within {limit}") from None
        except (aiohttp.ClientError, OSError) as error:
            self._observe(call.method, "<error>")
            if isinstance(error, aiohttp.ClientConnectorCertificateError):
                self._trust.doubt()
            raise _failure(error, call.target, self._host) from None
        self._observe(call.method, str(response.status))
        return response

    def _refuse_when_closed(self, call: _Call) -> None:
        if self._connections.closed:
            raise Unreachable(f"{call.target}: the transport is closed")

    def _observe(self, method: str, code: str) -> None:
        if self._on_response is not None:
            self._on_response(method, self._host, code)

    def _now(self) -> float:
        return self._clock.now().timestamp()


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Seconds to wait, from a Retry-After header: seconds or an HTTP date; None for anything else.

    ``now`` is the wall clock as a Unix timestamp. (RFC 9110, section 10.2.3)
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _failure(error: Exception, target: str, host: str) -> KubeError:
    """Our error for one of aiohttp's or the system's, by kind alone: their texts may quote the exchange."""
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=cause):
            detail = getattr(cause, "verify_message", "") or "it is not valid"
            return Unreachable(f"{target}: the certificate of {host} was not accepted: {detail}")
        case aiohttp.ClientConnectorDNSError():
            reason = f"the name of {host} could not be resolved"
        case aiohttp.ClientSSLError() | ssl.SSLError():
            reason = f"the TLS handshake with {host} failed"
        case aiohttp.ServerDisconnectedError():
            reason = f"{host} closed the connection without an answer"
        case aiohttp.ClientPayloadError():
            reason = f"the answer of {host} was cut off"
        case aiohttp.ClientResponseError():
            return ProtocolError(f"{target}: the answer of {host} is not HTTP")
        case OSError(errno=errno.ECONNREFUSED):
            reason = f"connection refused by {host}"
        case OSError(errno=errno.ECONNRESET | errno.EPIPE):
            reason = f"connection reset by {host}"
        case OSError(errno=int(number)):
            reason = f"no connection to {host}: {os.strerror(number)}"
        case _:
            reason = f"the connection to {host} broke"
    return Unreachable(f"{target}: {reason}")
