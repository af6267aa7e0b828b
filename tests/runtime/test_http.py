"""The process's own HTTP port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from psono_operator.runtime import http
from psono_operator.runtime.health import Check, HealthChecks
from psono_operator.runtime.http import CannotListen, HttpServer

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class Stage:
    def __init__(self) -> None:
        self.health = HealthChecks()
        self.registry = CollectorRegistry()
        self.gauge = Gauge("answer", "The answer", registry=self.registry)
        self.server = HttpServer(
            "127.0.0.1", 0, self.health, self.registry, refresh=lambda: self.gauge.set(42)
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[aiohttp.ClientSession]:
        task = asyncio.create_task(self.server.run())
        await self.server.wait_listening()
        host, port = self.server.address
        async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
            yield session
        await self.server.stop()
        await task


async def fetch(
    session: aiohttp.ClientSession, path: str, method: str = "GET", **headers: str
) -> tuple[int, str, str]:
    async with session.request(method, path, headers=headers) as response:
        return response.status, await response.text(), response.headers.get("Content-Type", "")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_good_health_is_a_short_ok_and_names_the_checks_on_request(path: str) -> None:
    stage = Stage()
    stage.health.add_liveness(Check("mine", lambda: None))
    stage.health.add_readiness(Check("mine", lambda: None))
    async with stage.running() as session:
        assert (await fetch(session, path))[:2] == (200, "ok")
        status, text, _ = await fetch(session, f"{path}?verbose")
        assert status == 200
        assert "[+]mine ok\n" in text
        assert text.endswith(f"{path[1:]} check passed\n")
        assert (await fetch(session, path, "HEAD"))[:2] == (200, "")


async def test_bad_health_is_503_and_says_why_unasked() -> None:
    """C7: /readyz is 503 and names the informer."""
    stage = Stage()
    stage.health.add_readiness(Check("informer-secrets", lambda: "waiting"))
    async with stage.running() as session:
        status, text, _ = await fetch(session, "/readyz")
        assert status == 503
        assert "[-]informer-secrets failed: waiting" in text
        assert (await fetch(session, "/healthz"))[0] == 200


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/", "GET", 404), ("/x", "GET", 404), ("/healthz", "POST", 405)]
)
async def test_anything_else_is_refused(path: str, method: str, status: int) -> None:
    async with Stage().running() as session:
        assert (await fetch(session, path, method))[0] == status


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain"),
        ("text/html", "text/plain"),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", "application/openmetrics-text"),
    ],
)
@pytest.mark.parametrize("slow", [False, True])
async def test_metrics_come_in_the_format_that_was_asked_for(
    accept: str, content_type: str, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked-up values are refreshed first, and a slow registry is rendered in a thread (N6)."""
    if slow:
        monkeypatch.setattr(http, "SLOW_RENDER", -1.0)
    async with Stage().running() as session:
        status, text, found = await fetch(session, "/metrics", Accept=accept)
        assert (status, found.split(";")[0]) == (200, content_type)
        assert "\nanswer 42.0\n" in text


async def test_a_port_that_is_taken_is_one_clear_line() -> None:
    stage = Stage()
    with pytest.raises(RuntimeError):
        _ = stage.server.address
    async with stage.running():
        host, port = stage.server.address
        second = HttpServer(host, port, HealthChecks(), CollectorRegistry())
        with pytest.raises(
            CannotListen,
            match=rf"^cannot listen on 127\.0\.0\.1:{port}: address already in use; choose another HTTP address$",
        ):
            await second.run()


async def test_a_host_that_is_none_is_one_clear_line() -> None:
    server = HttpServer("256.256.256.256", 0, HealthChecks(), CollectorRegistry())
    with pytest.raises(
        CannotListen,
        match=r"^cannot listen on 256\.256\.256\.256:0: no such address; choose another HTTP address$",
    ):
        await server.run()


async def test_cancelling_closes_the_port() -> None:
    """N2."""
    stage = Stage()
    task = asyncio.create_task(stage.server.run())
    await stage.server.wait_listening()
    host, port = stage.server.address
    task.cancel()
    await asyncio.wait([task])
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, port)
