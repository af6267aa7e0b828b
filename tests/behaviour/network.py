"""Between the running operator and the network: a test can answer, delay or cut single requests there.

A handler sees every ordinary request of the operator (not its watches) before it is sent and decides what
becomes of it: send it with ``await send()``, answer in its place, wait, or never come back. Kubernetes and
Psono requests pass the same handler, in the order in which they are made.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from psono_operator.app import Operator
from psono_operator.runtime.controller import current_reconcile
from psono_operator.runtime.transport import Response

Send = Callable[[], Awaitable[Any]]


@dataclass(slots=True)
class Request:
    """``host`` is ``kubernetes`` or ``psono``; ``key`` the PsonoSecret whose reconcile asks, or empty."""

    host: str
    method: str
    path: str
    key: str
    reconcile: str = ""
    """Which of its reconciles."""
    body: bytes | None = None
    status: int = 0
    """Of the answer; 0 until there is one."""

    @property
    def wrote(self) -> bool:
        """Whether it changed something, as far as its answer tells."""
        return self.host == "kubernetes" and self.method != "GET" and 200 <= self.status < 300

    def __str__(self) -> str:
        return f"{self.method} {self.host} {self.path.rsplit('/namespaces/', 1)[-1]}"


Handler = Callable[[Request, Send], Awaitable[Any]]


async def passing(request: Request, send: Send) -> Any:
    """The handler that leaves everything as it is."""
    return await send()


class Network:
    """All ordinary requests of one operator; install it before the operator runs its first step."""

    def __init__(self, operator: Operator, handler: Handler = passing) -> None:
        self.handler = handler
        self.requests: list[Request] = []
        self._wrap_kubernetes(operator)
        self._wrap_psono(operator)

    def sent(self, method: str, *fragments: str) -> list[Request]:
        """The requests of a method whose path contains all fragments."""
        return [
            each
            for each in self.requests
            if each.method == method and all(fragment in each.path for fragment in fragments)
        ]

    def _wrap_kubernetes(self, operator: Operator) -> None:
        original = operator._transport.request

        async def request(method: str, path: str, **options: Any) -> Any:
            asked = Request("kubernetes", method, path, *_reconciled(), options.get("body"))
            return await self._handle(asked, lambda: original(method, path, **options))

        operator._transport.request = request  # type: ignore[method-assign]

    def _wrap_psono(self, operator: Operator) -> None:
        original_open = operator._psono.open

        def opened(credentials: Any) -> Any:
            source = original_open(credentials)
            original = source._client._exchange

            async def exchange(endpoint: Any, body: bytes) -> Any:
                asked = Request("psono", "POST", endpoint.path, *_reconciled(), body)
                return await self._handle(asked, lambda: original(endpoint, body))

            source._client._exchange = exchange  # type: ignore[method-assign]
            return source

        operator._psono.open = opened  # type: ignore[method-assign]

    async def _handle(self, request: Request, send: Send) -> Any:
        self.requests.append(request)
        answer = await self.handler(request, send)
        request.status = answer.status
        return answer


def _reconciled() -> tuple[str, str]:
    context = current_reconcile.get()
    return (str(context.key), context.reconcile_id) if context else ("", "")


def status(code: int, reason: str = "", *, cause: str = "", retry_after: float | None = None) -> Response:
    """An answer of the API server in place of its own."""
    body = {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": "no", "details": {"causes": [{"reason": cause}]} if cause else {},
    }  # fmt: skip
    return Response(code, json.dumps(body).encode(), retry_after)


FORBIDDEN = status(403, "Forbidden")
CONFLICT = status(409, "Conflict")
TERMINATING = status(403, "Forbidden", cause="NamespaceTerminating")


def instead(answer: Response, method: str, *fragments: str, times: float = float("inf")) -> Handler:
    """Answer so in place of the API server, so many times, to requests whose path contains all fragments."""
    left = times

    async def handler(request: Request, send: Send) -> Any:
        nonlocal left
        hit = request.method == method and all(each in request.path for each in fragments)
        if request.host == "kubernetes" and hit and left > 0:
            left -= 1
            return answer
        return await send()

    return handler


class Cut:
    """A handler that lets a reconcile get as far as its ``at``-th request (from 0) and no further.

    ``sent``: the request is carried out, and only its answer never comes. ``made`` is set when the cut was
    made; kill the operator then. Nothing counts before ``arm``.
    """

    def __init__(self, at: int, *, sent: bool) -> None:
        self.made = asyncio.Event()
        self.count: int | None = None
        self._at = at
        self._sent = sent

    def arm(self) -> None:
        self.count = 0

    async def __call__(self, request: Request, send: Send) -> Any:
        if self.count is None or not request.key:
            return await send()
        number, self.count = self.count, self.count + 1
        if number < self._at:
            return await send()
        if number == self._at and self._sent:
            await send()
        self.made.set()
        return await asyncio.Event().wait()  # until the operator is killed
