"""Where the API server is and who we are, as values the transport can use.

An :class:`ApiEndpoint` says where and whom to trust, a :class:`TokenSource` what to send as Authorization.
In a pod both come from files that the kubelet renews; the token is read again at most once a minute and an
unreadable or empty file never costs us a token that still works (rule L1); the CA bundle is compared every
five minutes, and one that is none changes nothing (rule L2). This room refuses to know HTTP and kubeconfig
files; paths and environment are handed in.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from psono_operator.runtime.clock import Clock
from psono_operator.runtime.errors import ConfigurationError

log = logging.getLogger(__name__)

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REREAD_AFTER = 60.0
"""Seconds between two readings of a token file; the kubelet renews a token at 80 % of its life."""

BUNDLE_REREAD_AFTER = 300.0
"""Seconds between two readings of a CA bundle."""


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """The API server: base URL without trailing slash, what to trust, and the namespace to assume."""

    url: str
    ssl_context: ssl.SSLContext | None = None
    default_namespace: str = "default"
    server_name: str | None = None
    """The name expected in the server's certificate, when it is not the host of the URL."""


class TokenSource(Protocol):
    """What proves who we are."""

    @property
    def scheme(self) -> str:
        """The Authorization scheme of the token, almost always ``Bearer``."""

    async def token(self) -> str | None:
        """The token for the next request, or None to send none."""

    def invalidate(self) -> None:
        """The server refused the token: find a new one before the next answer."""


class TrustSource(Protocol):
    """What proves who the server is."""

    async def context(self) -> ssl.SSLContext | None:
        """The context for the next connection; the same object as long as nothing changed."""

    def doubt(self) -> None:
        """A server's certificate was not accepted: look for news before the next answer."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """All that the transport needs."""

    endpoint: ApiEndpoint
    tokens: TokenSource = field(repr=False)
    in_cluster: bool = False
    """Whether they are those of the pod this process runs in."""
    trust: TrustSource | None = None
    """What replaces the endpoint's context in the course of time, if anything does."""


class StaticToken:
    """A token that never changes, or none at all (client certificates, a server without authentication)."""

    def __init__(self, token: str | None = None, scheme: str = "Bearer") -> None:
        self._token = token
        self.scheme = scheme

    async def token(self) -> str | None:
        return self._token

    def invalidate(self) -> None:
        """Nothing newer can be found."""


class FileToken:
    """A token in a file that somebody else renews."""

    scheme = "Bearer"

    def __init__(self, path: Path, clock: Clock, reread_after: float = REREAD_AFTER) -> None:
        self._path = path
        self._clock = clock
        self._reread_after = reread_after
        self._token: str | None = None
        self._read_at: float | None = None
        self._reading = asyncio.Lock()
        self._trouble = False

    async def token(self) -> str | None:
        if self._is_fresh():
            return self._token
        async with self._reading:
            if not self._is_fresh():  # or another caller has read it while we waited
                await self._read()
        return self._token

    def invalidate(self) -> None:
        self._read_at = None

    def _is_fresh(self) -> bool:
        return self._read_at is not None and self._clock.monotonic() - self._read_at < self._reread_after

    async def _read(self) -> None:
        try:
            token = (await asyncio.to_thread(self._path.read_text, "ascii")).strip()
        except (OSError, ValueError):
            token = ""
        self._read_at = self._clock.monotonic()
        if token:
            self._token = token
        if self._trouble != (not token):
            self._trouble = not token
            if self._trouble:
                log.warning("token file %s is empty or cannot be read; keeping the last token", self._path)
            else:
                log.info("token file %s is readable again", self._path)


class FixedTrust:
    """A context that never changes."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context

    async def context(self) -> ssl.SSLContext | None:
        return self._context

    def doubt(self) -> None:
        """Nothing newer can be found."""


class FileTrust:
    """A CA bundle in a file that somebody else renews. What was read last and was good stays in use."""

    def __init__(self, path: Path, clock: Clock, reread_after: float = BUNDLE_REREAD_AFTER) -> None:
        self._path = path
        self._clock = clock
        self._reread_after = reread_after
        self._bundle: str | None = None
        self._context: ssl.SSLContext | None = None
        self._read_at: float | None = None
        self._reading = asyncio.Lock()
        self._trouble = False

    async def context(self) -> ssl.SSLContext | None:
        """See the protocol; None only before a good bundle has been read."""
        if self._is_fresh():
            return self._context
        async with self._reading:
            if not self._is_fresh():
                await self._read()
        return self._context

    def doubt(self) -> None:
        self._read_at = None

    def _is_fresh(self) -> bool:
        return self._read_at is not None and self._clock.monotonic() - self._read_at < self._reread_after

    async def _read(self) -> None:
        trouble = False
        try:
            bundle = await asyncio.to_thread(self._path.read_text, "ascii")
            if bundle != self._bundle:
                context = tls_context(bundle)
                if self._bundle is not None:
                    log.info("the CA bundle %s has changed; new connections use it", self._path)
                self._bundle, self._context = bundle, context
        except (OSError, ValueError):
            trouble = True
        self._read_at = self._clock.monotonic()
        if trouble and not self._trouble:
            log.warning("the CA bundle %s is missing or not PEM; keeping the last one", self._path)
        self._trouble = trouble


class InClusterCredentials:
    """The service account of the pod we run in."""

    def __init__(
        self,
        environ: Mapping[str, str],
        clock: Clock,
        directory: Path = SERVICE_ACCOUNT_DIRECTORY,
    ) -> None:
        self._host = environ.get("KUBERNETES_SERVICE_HOST", "")
        self._port = environ.get("KUBERNETES_SERVICE_PORT", "")
        self._clock = clock
        self._directory = directory

    @property
    def token_path(self) -> Path:
        return self._directory / "token"

    def missing(self) -> str | None:
        """Why these credentials cannot be used, in a few words; None when they can."""
        if not self._host or not self._port:
            return "KUBERNETES_SERVICE_HOST is not set"
        if not self.token_path.is_file():
            return f"there is no token file {self.token_path}"
        return None

    async def load(self) -> Credentials:
        """Endpoint, token source and trust. Raises ConfigurationError."""
        tokens = FileToken(self.token_path, self._clock)
        if await tokens.token() is None:
            raise ConfigurationError(f"the service account token {self.token_path} is empty or unreadable")
        trust = FileTrust(self._directory / "ca.crt", self._clock)
        return Credentials(await self._endpoint(trust), tokens, in_cluster=True, trust=trust)

    async def _endpoint(self, trust: TrustSource) -> ApiEndpoint:
        authority = f"[{self._host}]" if ":" in self._host else self._host
        context = await trust.context()
        if context is None:
            bundle = self._directory / "ca.crt"
            raise ConfigurationError(f"the cluster's CA bundle {bundle} is missing or not PEM")
        try:
            namespace = (await asyncio.to_thread((self._directory / "namespace").read_text, "utf-8")).strip()
        except (OSError, ValueError):
            namespace = ""
        return ApiEndpoint(f"https://{authority}:{self._port}", context, namespace or "default")


def tls_context(authorities: str | None = None) -> ssl.SSLContext:
    """A client context trusting the PEM ``authorities`` and no other, or the system's when None.

    Raises ValueError for anything but certificates in PEM.
    """
    if authorities is not None and not authorities.strip():
        raise ValueError("no certificate")  # an empty string would mean the system's authorities
    try:
        context = ssl.create_default_context(cadata=authorities)
    except ssl.SSLError:
        raise ValueError("not a certificate in PEM") from None
    # Python 3.13 began to insist on extensions that the CAs of many clusters lack
    # (kubernetes-client/python#2394); the API server's own clients do not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
