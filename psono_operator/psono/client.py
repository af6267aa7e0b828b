"""The two calls to a Psono server: read one sealed entry, inspect one API key.

Each is one POST, never repeated here; whoever calls decides about another try. The body of an answer is
read under a cap that counts decompressed bytes, so neither a huge entry nor a compression bomb fills the
memory. Every failure of the connection becomes a typed error without an address, a header or the HTTP
library's own exception in it, since those can carry credentials of a proxy (rules F6, F8). It refuses to
know decryption and Kubernetes.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

import aiohttp

from psono_operator.psono.answers import (
    PROXY_REFUSED,
    Answer,
    KeyReport,
    inspect_answer,
    read_answer,
    request_body,
)
from psono_operator.psono.credentials import PsonoCredentials, canonical_uuid
from psono_operator.psono.errors import ProtocolError, PsonoError, RemoteError, TooLarge, Unreachable
from psono_operator.psono.sealed import SealedEntry
from psono_operator.psono.sessions import SessionLease

BODY_CAP = 8 * 1024 * 1024
"""Bytes of a good answer that are read."""
_REFUSAL_CAP = 64 * 1024
"""Bytes of any other answer that are read; the rest is left unread."""
_CHUNK = 64 * 1024
_OK = 200


class Endpoint(StrEnum):
    """The two paths below the server URL. Without the last slash the server redirects."""

    READ = "read"
    INSPECT = "inspect"

    @property
    def path(self) -> str:
        """With both slashes."""
        return "/api-key-access/secret/" if self is Endpoint.READ else "/api-key-access/inspect/"


Observer = Callable[[Endpoint, str, float], None]
"""Called after each exchange: endpoint, HTTP status or name of an error class, seconds it took."""

_T = TypeVar("_T")


class PsonoClient:
    """Speaks for one API key to one server, over a session that somebody else owns."""

    def __init__(
        self,
        credentials: PsonoCredentials,
        lease: SessionLease,
        *,
        monotonic: Callable[[], float],
        now: Callable[[], datetime],
        observer: Observer | None = None,
        body_cap: int = BODY_CAP,
    ) -> None:
        """``monotonic`` gives seconds, ``now`` an aware time (for Retry-After dates); the cap is bytes."""
        self._api_key_id = credentials.api_key_id
        self._lease = lease
        self._monotonic = monotonic
        self._now = now
        self._observer = observer
        self._body_cap = body_cap

    async def read(self, secret_id: str) -> SealedEntry:
        """The entry with this id, still encrypted. The server counts it as one read.

        :raises RemoteError: the answer is no entry.
        """
        body = request_body(api_key_id=self._api_key_id, secret_id=canonical_uuid(secret_id) or secret_id)
        return await self._call(Endpoint.READ, body, read_answer)

    async def inspect(self) -> KeyReport:
        """Rights of the key and write dates of all its entries; not counted as a read of any.

        :raises RemoteError: the answer is no report.
        """
        body = request_body(api_key_id=self._api_key_id)
        return await self._call(Endpoint.INSPECT, body, inspect_answer)

    async def _call(
        self, endpoint: Endpoint, body: bytes, meaning: Callable[[Answer, Callable[[], datetime]], _T]
    ) -> _T:
        begun = self._monotonic()
        outcome = str(_OK)
        try:
            answer = await self._exchange(endpoint, body)
            if answer.status != _OK:
                outcome = str(answer.status)
            return meaning(answer, self._now)
        except PsonoError as error:
            if outcome == str(_OK):
                outcome = type(error).__name__
            raise
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            if self._observer is not None:
                self._observer(endpoint, outcome, self._monotonic() - begun)

    async def _exchange(self, endpoint: Endpoint, body: bytes) -> Answer:
        try:
            async with self._lease.post(endpoint.path, body) as response:
                good = response.status == _OK
                content = await _content(response, self._body_cap if good else _REFUSAL_CAP)
                if content is None and good:
                    raise TooLarge(self._body_cap)
                return Answer(response.status, response.headers.get("Retry-After"), content or b"")
        except (aiohttp.ClientError, OSError) as error:
            failure = _failure(error)
        raise failure  # outside: the library's exception must not travel along


async def _content(response: aiohttp.ClientResponse, cap: int) -> bytes | None:
    """The body, or None when it is larger than ``cap`` bytes; the connection is then dropped."""
    content = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        content += chunk
        if len(content) > cap:
            response.close()
            return None
    return bytes(content)


_TLS_PROBLEMS = {
    10: "the server's certificate has expired",
    18: "the server's certificate is self-signed and not in the CA bundle",
    19: "the server's certificate comes from a CA that is not trusted",
    20: "the server's certificate comes from a CA that is not trusted",
    21: "the server's certificate comes from a CA that is not trusted",
    62: "the server's certificate is for another host name",
    64: "the server's certificate is for another address",
}
"""OpenSSL's X509_V_ERR_* codes."""


def _failure(error: Exception) -> RemoteError:  # one branch per kind of failure
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        code = getattr(error.certificate_error, "verify_code", None)
        problem = _TLS_PROBLEMS.get(code or 0, "the server's certificate is not valid")
        return Unreachable(
            f"certificate verification failed: {problem}; check the server URL, or add the server's CA to "
            "the authentication Secret and name its key in caBundleKey"
        )
    if isinstance(error, aiohttp.ClientConnectorSSLError | ssl.SSLError):
        return Unreachable("the TLS handshake failed; check that the server URL's port speaks HTTPS")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Unreachable("its host name cannot be resolved; check the server URL and the cluster's DNS")
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return Unreachable("the proxy cannot be reached; check HTTP_PROXY, HTTPS_PROXY and NO_PROXY")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return Unreachable(PROXY_REFUSED.format(status=error.status))
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Unreachable("no connection in time; check the network, its policies, and the server URL")
    if isinstance(error, TimeoutError):
        return Unreachable("no whole answer in time; check the server's load and the network")
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
        return Unreachable("the connection ended before the whole answer had come; check the network")
    if isinstance(error, aiohttp.ClientResponseError):
        return ProtocolError(None, "its answer is not HTTP; check the server URL: https or http, host, port")
    if isinstance(error, ConnectionRefusedError) or isinstance(
        getattr(error, "os_error", None), ConnectionRefusedError
    ):
        return Unreachable("it refuses connections; check the server URL and that the server runs")
    return Unreachable("the connection failed; check the server URL, the network and its policies")
