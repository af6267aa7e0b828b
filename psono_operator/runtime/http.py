"""The process's own HTTP port: ``/healthz``, ``/readyz`` and ``/metrics``.

It renders what ``health`` and the metrics registry say and decides nothing. GET and HEAD only; anything else
is 404 or 405. No request is logged.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from psono_operator.runtime.health import HealthChecks, Report

SLOW_RENDER = 0.02
"""Seconds. A registry that took longer to render is rendered in a thread the next time (rule N6); a small one
is not worth a thread."""


class CannotListen(Exception):
    """The port cannot be opened; the message says which and why."""

    value_free = True


class HttpServer:
    """A service. ``port`` 0 takes a free one, see ``address``.

    ``refresh`` is called before each scrape, in the event loop, to bring gauges up to date.
    """

    name = "http"

    def __init__(
        self,
        host: str,
        port: int,
        health: HealthChecks,
        metrics_registry: CollectorRegistry,
        *,
        refresh: Callable[[], None] | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._health = health
        self._registry = metrics_registry
        self._refresh = refresh
        self._render_time = 0.0
        self._address: tuple[str, int] | None = None
        self._listening = asyncio.Event()
        self._stop = asyncio.Event()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are listened on. RuntimeError before that."""
        if self._address is None:
            raise RuntimeError("not listening yet")
        return self._address

    async def wait_listening(self) -> None:
        """Return once requests are answered."""
        await self._listening.wait()

    async def run(self) -> None:
        """Serve until ``stop``. CannotListen when the port is taken or forbidden."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self._port)
            try:
                await site.start()
            except OSError as error:
                where = f"{self._host}:{self._port}"
                raise CannotListen(
                    f"cannot listen on {where}: {_reason(error)}; choose another HTTP address"
                ) from None
            host, port = runner.addresses[0][:2]
            self._address = (str(host), int(port))
            self._listening.set()
            await self._stop.wait()
        finally:
            await runner.cleanup()

    async def stop(self) -> None:
        """End ``run``."""
        self._stop.set()

    async def _healthz(self, request: web.Request) -> web.Response:
        return _answer(request, self._health.liveness())

    async def _readyz(self, request: web.Request) -> web.Response:
        return _answer(request, self._health.readiness())

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._refresh is not None:
            self._refresh()
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        loop = asyncio.get_running_loop()
        started = loop.time()
        if self._render_time > SLOW_RENDER:
            body = await asyncio.to_thread(encode, self._registry)
        else:
            body = encode(self._registry)
        self._render_time = loop.time() - started
        return web.Response(body=body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})


def _reason(error: OSError) -> str:
    """The operating system's words; asyncio's own are long and name the address a second time."""
    if isinstance(error, socket.gaierror) or not error.errno:
        return "no such address"
    return os.strerror(error.errno).lower()


def _answer(request: web.Request, report: Report) -> web.Response:
    """``ok``, or the lines of all checks when asked for (``?verbose``) or when one failed."""
    verbose = "verbose" in request.query or not report.ok
    text = "\n".join(report.lines) + "\n" if verbose else "ok"
    return web.Response(text=text, status=200 if report.ok else 503, headers={"Cache-Control": "no-store"})
