"""What can go wrong with one exchange. Each fault is a value; several are chained by ``Rule.do``."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.faultproxy.exchange import Exchange, Proceed, encoded, status_body

Chooser = Callable[[dict[str, Any]], bool]
"""Whether an event of a watch is meant."""


def any_object(event: dict[str, Any]) -> bool:
    """Every event about an object."""
    return event.get("type") in ("ADDED", "MODIFIED", "DELETED")


@dataclass(frozen=True, slots=True)
class Delay:
    """The request arrives so many seconds later."""

    seconds: float

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> None:
        await asyncio.sleep(self.seconds)
        await proceed()


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is not the server's; ``body`` None: a Status. The server does not see the request.

    ``retry_after`` is sent as it is, so a date is as good as seconds; ``sent``: the server does see it.
    """

    status: int
    reason: str = ""
    retry_after: str | None = None
    body: Any = None
    sent: bool = False

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> None:
        if self.sent:
            await exchange.forward()
        body = self.body if self.body is not None else status_body(self.status, self.reason)
        headers = [("Retry-After", self.retry_after)] if self.retry_after is not None else []
        await exchange.answer(self.status, encoded(body), headers)


@dataclass(frozen=True, slots=True)
class Silence:
    """The answer begins, brings so many lines, and then nothing more, ever."""

    lines: int = 0

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> None:
        await exchange.forward()
        await exchange.begin()
        if self.lines:
            count = 0
            async for line in exchange.lines():
                await exchange.send(line)
                count += 1
                if count == self.lines:
                    break
        await exchange.hang()


@dataclass(frozen=True, slots=True)
class Cut:
    """The answer ends within the line after so many whole ones.

    The connection is closed, or, ``politely``, the answer is declared complete as some intermediaries do.
    """

    lines: int = 0
    politely: bool = False

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> None:
        await exchange.forward()
        await exchange.begin()
        count = 0
        async for line in exchange.lines():
            if count == self.lines:
                await exchange.send(line[: len(line) // 2])
                if self.politely:
                    await exchange.end()
                exchange.close()
            await exchange.send(line)
            count += 1
        await exchange.end()


@dataclass(frozen=True, slots=True)
class Reset:
    """RST in place of an answer. ``sent``: the server has carried the request out."""

    sent: bool = False

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> None:
        if self.sent:
            await exchange.forward()
        exchange.reset()


@dataclass(frozen=True, slots=True)
class BlackHole:
    """No answer, and no end of the connection. ``sent``: the server has carried the request out."""

    sent: bool = False

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> None:
        if self.sent:
            await exchange.forward()
        await exchange.hang()


@dataclass(frozen=True, slots=True)
class Repeat:
    """The events that are meant reach the client so many times: 0 drops them, 2 doubles them."""

    times: int
    meant: Chooser = any_object

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> None:
        await exchange.forward()
        await exchange.begin()
        async for line in exchange.lines():
            await exchange.send(line * (self.times if self.meant(json.loads(line)) else 1))
        await exchange.end()


@dataclass(frozen=True, slots=True)
class EndAfter:
    """The answer is ended in good order after so many seconds, whether the server is through or not."""

    seconds: Callable[[], float]

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> None:
        await exchange.forward()
        await exchange.begin()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.seconds()):
                async for line in exchange.lines():
                    await exchange.send(line)
        await exchange.end()
        exchange.close()


@dataclass(frozen=True, slots=True)
class IdleCut:
    """A load balancer that forgets a stream on which nothing came for so many seconds.

    ``silently``: it drops it without a word, else it closes it.
    """

    seconds: float
    silently: bool = False

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> None:
        await exchange.forward()
        await exchange.begin()
        lines = exchange.lines()
        while True:
            try:
                async with asyncio.timeout(self.seconds):
                    line = await anext(lines, None)
            except TimeoutError:
                break
            if line is None:
                await exchange.end()
                return
            await exchange.send(line)
        if self.silently:
            await exchange.hang()
        exchange.close()


class ExpiredShape(Enum):
    """The ways in which servers and proxies say that a version is too old."""

    STATUS = "the HTTP status"
    EVENT = "an event within a good answer"
    BARE = "a bare Status within a good answer"


@dataclass(frozen=True, slots=True)
class Expired:
    """The version or token asked for is too old."""

    shape: ExpiredShape

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> None:
        status: dict[str, Any] = status_body(410, "Expired", "too old resource version")
        if self.shape is ExpiredShape.STATUS:
            await exchange.answer(410, encoded(status))
        elif self.shape is ExpiredShape.EVENT:
            await exchange.answer(200, encoded({"type": "ERROR", "object": status}) + b"\n")
        else:
            await exchange.answer(200, encoded(status))


EXPIRED: Sequence[Expired] = tuple(Expired(shape) for shape in ExpiredShape)
