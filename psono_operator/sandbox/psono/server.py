"""The HTTP side of the Psono double: the answers of server 7.2.3, its oddities included.

Refusals are bare words under a JSON content type, inspect is JSON under text/html, a missing last slash is
redirected, and throttling, maintenance and failures can be switched on. Everything that arrives is in a
journal of endpoint, entry id and status, free of key material, and whatever a mere reader would never send
is noted in ``forbidden``. It refuses to know who asks; nothing is imported from the operator.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from ssl import SSLContext
from typing import NamedTuple
from uuid import UUID

from aiohttp import web

from psono_operator.sandbox.psono.store import ApiKey, Store

_PATHS = {"/api-key-access/secret/": "read", "/api-key-access/inspect/": "inspect"}
_OTHER_PATHS = ("/healthcheck/",)
_MEDIA_TYPES = {"read": "application/json", "inspect": "text/html"}
_ALLOW = {"Allow": "POST, OPTIONS, HEAD"}
_REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    415: "Unsupported Media Type",
    429: "Too Many Requests",
}
_PAGE = (
    '\n<!doctype html>\n<html lang="en">\n<head>\n  <title>{title}</title>\n</head>\n<body>\n'
    "  <h1>{title}</h1><p>{text}</p>\n</body>\n</html>\n"
)
_PAGES = {
    404: _PAGE.format(title="Not Found", text="The requested resource was not found on this server."),
    500: _PAGE.format(title="Server Error (500)", text=""),
}
_HEALTH = (
    '{"db_read":{"healthy":true},"db_sync":{"healthy":true},"time_sync":{"healthy":true},'
    '"_info":{"ip":"127.0.0.1"}}'
)


class RecordedRequest(NamedTuple):
    """One line of the journal. ``endpoint`` is read, inspect, or method and path of anything else."""

    endpoint: str
    secret_id: str | None
    status: int


@dataclass(frozen=True, slots=True)
class Served:
    """A double that listens. ``url`` has no trailing slash and goes into an authentication Secret."""

    url: str
    port: int


@dataclass(slots=True)
class _Failure:
    status: int
    endpoint: str | None
    times: float


class PsonoDouble:
    """A Psono server: keys and entries of :class:`Store`, HTTP, and switches for faults.

    Switches: ``maintenance``, ``disabled``, ``delay_seconds``, ``oversized_body`` (bytes that a read
    answers instead of an entry), ``answers_plaintext``, and :meth:`throttle` and :meth:`fail`.
    """

    def __init__(
        self,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        prefix: str = "",
    ) -> None:
        """``prefix`` is a path such as ``/server`` that a reverse proxy would strip."""
        self.store = Store(now, random_bytes)
        self.requests: list[RecordedRequest] = []
        self.forbidden: list[str] = []
        self._sleep = sleep
        self._prefix = prefix
        self.heal()

    def add_key(self, **rights: bool) -> ApiKey:
        """See :meth:`Store.add_key`."""
        return self.store.add_key(**rights)

    def add_entry(self, content: Mapping[str, object] | bytes, keys: Iterable[ApiKey] = ()) -> str:
        """See :meth:`Store.add_entry`."""
        return self.store.add_entry(content, keys)

    def update_entry(self, secret_id: str, content: Mapping[str, object] | bytes) -> None:
        """See :meth:`Store.update_entry`."""
        self.store.update_entry(secret_id, content)

    def assign(self, key: ApiKey, secret_id: str) -> None:
        """See :meth:`Store.assign`."""
        self.store.assign(key, secret_id)

    def revoke(self, key: ApiKey, secret_id: str) -> None:
        """See :meth:`Store.revoke`."""
        self.store.revoke(key, secret_id)

    def heal(self) -> None:
        """Switch every fault off."""
        self.maintenance = False
        self.disabled = False
        self.delay_seconds = 0.0
        self.oversized_body: int | None = None
        self.answers_plaintext = False
        self._retry_after: int | None = None
        self._budget = 0
        self._failure: _Failure | None = None

    def throttle(self, retry_after: int | None, after_requests: int | None = None) -> None:
        """Answer 429 with this Retry-After (seconds) after so many more requests; None ends it."""
        self._retry_after = retry_after
        self._budget = after_requests or 0

    def fail(self, status: int, *, endpoint: str | None = None, times: int | None = None) -> None:
        """Answer ``status`` with a page, on one endpoint or all, for ever or so many times."""
        self._failure = _Failure(status, endpoint, float("inf") if times is None else times)

    def count(self, endpoint: str) -> int:
        """How many requests to ``endpoint`` arrived, whatever the answer."""
        return sum(request.endpoint == endpoint for request in self.requests)

    def app(self) -> web.Application:
        """A new application over this double."""
        app = web.Application(client_max_size=1 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    @asynccontextmanager
    async def serve(
        self, host: str = "127.0.0.1", port: int = 0, *, ssl_context: SSLContext | None = None
    ) -> AsyncIterator[Served]:
        """Listen while the context lasts."""
        runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, ssl_context=ssl_context).start()
            bound = int(runner.addresses[0][1])
            scheme = "https" if ssl_context else "http"
            yield Served(f"{scheme}://{host}:{bound}{self._prefix}", bound)
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        path = request.rel_url.raw_path
        path = path[len(self._prefix) :] if path.startswith(f"{self._prefix}/") else f"/?{path}"
        endpoint = _PATHS.get(path) if request.method == "POST" else None
        if self.delay_seconds:
            await self._sleep(self.delay_seconds)
        fields: dict[str, object] = {}
        response = self._outage(endpoint) or self._misrouted(request, path)
        if response is None and path == "/healthcheck/":
            response = _health(request)
        if response is None:
            response, fields = await self._parse(request, _PATHS[path])
        if response is None:
            answer = self._read if endpoint == "read" else self._inspect
            response = answer(fields)
        self._note(request, endpoint or f"{request.method} {request.path}", fields, response.status)
        return response

    def _outage(self, endpoint: str | None) -> web.Response | None:
        if self.maintenance or self.disabled:
            word = "MAINTENANCE_MODE_ACTIVE" if self.maintenance else "SERVER_DISABLED"
            body = json.dumps({"non_field_errors": [word]}).encode()
            return web.Response(status=423, body=body, headers={"Content-Type": "application/json"})
        failure = self._failure
        if failure and failure.times > 0 and failure.endpoint in (None, endpoint):
            failure.times -= 1
            return _page(failure.status)
        return None

    def _misrouted(self, request: web.Request, path: str) -> web.Response | None:
        if f"{path}/" in _PATHS or f"{path}/" in _OTHER_PATHS:
            location = {"Location": f"{request.rel_url.raw_path}/"}
            return web.Response(status=301, content_type="text/html", charset="utf-8", headers=location)
        return None if path in _PATHS or path in _OTHER_PATHS else _page(404)

    def _throttled(self) -> bool:
        if self._retry_after is None:
            return False
        self._budget -= 1
        return self._budget < 0

    async def _parse(
        self, request: web.Request, endpoint: str
    ) -> tuple[web.Response | None, dict[str, object]]:
        """The refusals every view shares, in the framework's order; else the fields of the body."""
        refused = self._refused_by_head(request, endpoint)
        if refused is not None:
            return refused, {}
        body = await request.read()
        try:
            document = json.loads(body) if body else {}
        except ValueError:
            return _refusal(endpoint, 400), {}
        if not isinstance(document, dict | None):
            return _answer(endpoint, 400, "non_field_errors"), {}
        fields = document or {}
        names = ("api_key_id", "secret_id") if endpoint == "read" else ("api_key_id",)
        malformed = "".join(name for name in names if _uuid(fields.get(name)) is None)
        return (_answer(endpoint, 400, malformed) if malformed else None), fields

    def _refused_by_head(self, request: web.Request, endpoint: str) -> web.Response | None:
        accepted = request.headers.get("Accept", "*/*")
        kind = _MEDIA_TYPES[endpoint]
        if not any(word in accepted for word in ("*/*", kind, f"{kind.partition('/')[0]}/*")):
            return _refusal(endpoint, 406)
        if request.headers.get("Authorization", "").lower().startswith("basic"):
            return _refusal(endpoint, 403)
        if self._throttled():
            return _refusal(endpoint, 429, {"Retry-After": str(self._retry_after)})
        if request.method in ("GET", "HEAD", "DELETE"):
            return web.Response(status=405, headers=_ALLOW)
        if request.method == "PUT" and endpoint == "read":
            return _answer(endpoint, 400, "non_field_errors")  # a write, which no reader has the right to
        if request.method != "POST":
            return _refusal(endpoint, 405)
        return None if request.content_type == "application/json" else _refusal(endpoint, 415)

    def _read(self, fields: Mapping[str, object]) -> web.Response:
        key_id, secret_id = str(_uuid(fields["api_key_id"])), str(_uuid(fields["secret_id"]))
        sent_key = fields.get("api_key_secret_key")
        if self.oversized_body is not None:
            return _answer("read", 200, " " * self.oversized_body)
        if self.answers_plaintext or sent_key is not None:
            plaintext = self.store.plaintext(key_id, secret_id, sent_key)
            if plaintext is not None:
                return _answer("read", 200, plaintext.decode("utf-8", "replace"))
            return _answer("read", 400, "non_field_errors")
        return _document("read", self.store.sealed(key_id, secret_id))

    def _inspect(self, fields: Mapping[str, object]) -> web.Response:
        return _document("inspect", self.store.report(str(_uuid(fields["api_key_id"]))))

    def _note(self, request: web.Request, endpoint: str, fields: Mapping[str, object], status: int) -> None:
        secret_id = _uuid(fields.get("secret_id"))
        self.requests.append(RecordedRequest(endpoint, str(secret_id) if secret_id else None, status))
        if endpoint not in _PATHS.values():
            self.forbidden.append(endpoint)
        self.forbidden += [
            f"header {name}"
            for name in ("Authorization", "Cookie", "Proxy-Authorization")
            if name in request.headers
        ]
        self.forbidden += [f"field {name}" for name in fields if name not in ("api_key_id", "secret_id")]


def _uuid(value: object) -> UUID | None:
    """What the real server's field takes: any text that Python's UUID does, and integers."""
    try:
        if isinstance(value, str):
            return UUID(hex=value)
        return UUID(int=value) if isinstance(value, int) else None
    except ValueError:
        return None


def _answer(endpoint: str, status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        status=status,
        text=text,
        content_type=_MEDIA_TYPES[endpoint],
        charset="utf-8",
        headers={**_ALLOW, **(headers or {})},
    )


def _refusal(endpoint: str, status: int, headers: Mapping[str, str] | None = None) -> web.Response:
    return _answer(endpoint, status, f"{status} {_REASONS[status]}", headers)


def _document(endpoint: str, document: Mapping[str, object] | None) -> web.Response:
    if document is None:
        return _answer(endpoint, 400, "non_field_errors")
    return _answer(endpoint, 200, json.dumps(document))


def _page(status: int) -> web.Response:
    text = _PAGES.get(status) or _PAGE.format(title=f"Error {status}", text="")
    return web.Response(status=status, text=text, content_type="text/html", charset="utf-8")


def _health(request: web.Request) -> web.Response:
    if request.method != "GET":
        return web.Response(status=405)
    return web.Response(body=_HEALTH.encode(), headers={"Content-Type": "application/json"})
