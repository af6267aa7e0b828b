"""Puts the fault proxy between the operator of a behaviour world and its servers, and asks its probes.

The test itself, as a user, talks to the API server directly. On the real control plane the proxy speaks TLS to
both sides; on the sandbox it does when a test asks for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trustme

from psono_operator.runtime.credentials import ApiEndpoint, Credentials, InClusterCredentials
from tests.behaviour.world import World
from tests.faultproxy.exchange import Exchange, Proceed
from tests.faultproxy.proxy import FaultProxy

PSONO_SECRETS = "*/psonosecrets"
SECRETS = "*/secrets"


def listener(authority: trustme.CA) -> ssl.SSLContext:
    """What a server shows that has its certificate from ``authority``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@contextlib.asynccontextmanager
async def proxied(world: World, *, start: bool = True, **settings: str) -> AsyncIterator[FaultProxy]:
    """The proxy in front of the API server; the operator is started behind it, and stopped at the end."""
    authority = trustme.CA() if world.control_plane is not None else None
    upstream, tokens = world.credentials.endpoint, world.credentials.tokens
    proxy = FaultProxy(upstream.url, upstream.ssl_context, None if authority is None else listener(authority))
    trust = ssl.create_default_context()
    if authority is not None:
        authority.configure_trust(trust)
    async with proxy.serve():
        world.credentials = Credentials(ApiEndpoint(proxy.url, trust), tokens)
        await world.create_auth()
        if start:
            world.start(**settings)
        try:
            yield proxy
        finally:
            if world.operator is not None:
                assert await world.stop() == 0


@contextlib.asynccontextmanager
async def psono_proxied(world: World) -> AsyncIterator[FaultProxy]:
    """The proxy in front of Psono; enter it before the authentication Secret is made."""
    proxy = FaultProxy(world.psono_url)
    async with proxy.serve():
        world.psono_url = proxy.url
        yield proxy


@dataclass
class ServiceAccount:
    """The files of a pod's service account, and the API server's certificate that they are about."""

    directory: Path
    authority: trustme.CA = field(default_factory=trustme.CA)

    def write(self, *, token: str | None = None, authority: trustme.CA | bytes | None = None) -> None:
        """Renew a file, as the kubelet does."""
        if token is not None:
            (self.directory / "token").write_text(token)
        if authority is not None:
            pem = authority if isinstance(authority, bytes) else authority.cert_pem.bytes()
            (self.directory / "ca.crt").write_bytes(pem)

    async def credentials(self, proxy: FaultProxy, world: World) -> Credentials:
        """In-cluster credentials as a pod has them."""
        url = urlsplit(proxy.url)
        environ = {
            "KUBERNETES_SERVICE_HOST": str(url.hostname),
            "KUBERNETES_SERVICE_PORT": str(url.port),
        }
        return await InClusterCredentials(environ, world.clock, self.directory).load()


@contextlib.asynccontextmanager
async def in_a_pod(world: World, directory: Path) -> AsyncIterator[tuple[FaultProxy, ServiceAccount]]:
    """As ``proxied``, over TLS, the operator with the credentials of a pod."""
    account = ServiceAccount(directory)
    account.write(token="token-1", authority=account.authority)
    (directory / "namespace").write_text(world.namespace)
    async with FaultProxy(world.url, None, listener(account.authority)).serve() as proxy:
        world.credentials = await account.credentials(proxy, world)
        await world.create_auth()
        world.start(no_leader_elect="true")
        try:
            yield proxy, account
        finally:
            if world.operator is not None:
                assert await world.stop() == 0


async def probe(world: World, path: str) -> tuple[int, str]:
    """What a kubelet hears from the operator."""
    assert world.operator is not None
    await world.operator.http.wait_listening()
    host, port = world.operator.http.address
    async with world.http.get(f"http://{host}:{port}{path}") as answer:
        return answer.status, await answer.text()


async def ready(world: World) -> bool:
    return (await probe(world, "/readyz"))[0] == 200


async def live(world: World) -> bool:
    return (await probe(world, "/healthz"))[0] == 200


async def metric(world: World, name: str, **labels: str) -> float:
    """The sum of the samples of a metric that carry these labels."""
    total = 0.0
    for line in (await probe(world, "/metrics"))[1].splitlines():
        wanted = all(f'{label}="{value}"' in line for label, value in labels.items())
        if wanted and line.startswith((name + "{", name + " ")):
            total += float(line.rsplit(" ", 1)[1])
    return total


async def until(
    check: Callable[[], Awaitable[Any]], within: float, *, every: float = 0.5, why: str = ""
) -> float:
    """Poll calmly, for long waits; the seconds it took. Fails after ``within`` seconds."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not await check():
        assert loop.time() - begun <= within, f"not within {within} s: {why or check.__qualname__}"
        await asyncio.sleep(every)
    return loop.time() - begun


async def is_ready(world: World, name: str = "db") -> bool:
    return (await world.condition(name)).get("status") == "True"


async def synced(world: World, within: float, name: str = "db") -> float:
    """Seconds until the PsonoSecret is Ready for its generation."""
    return await until(lambda: is_ready(world, name), within, why=f"{name} is Ready")


async def watching(proxy: FaultProxy, within: float = 5) -> None:
    """Until the operator watches both resources."""

    async def both() -> bool:
        return all(proxy.open("WATCH", path) for path in (PSONO_SECRETS, SECRETS))

    await until(both, within, every=0.1)


def tap(found: list[bytes], fragment: bytes) -> Callable[[Exchange, Proceed], Awaitable[None]]:
    """A fault that is none: remembers the lines of answers that contain ``fragment``."""

    async def listen(exchange: Exchange, proceed: Proceed) -> None:
        await exchange.forward()
        await exchange.begin()
        async for line in exchange.lines():
            if fragment in line:
                found.append(line)
            await exchange.send(line)
        await exchange.end()

    return listen
