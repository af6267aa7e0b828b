"""Just enough of HTTP/1.1 to pass a message on in pieces.

Heads are kept as they came. A body is read by its framing (length, chunks, or until the end of the
connection) and written with the framing its head announces, so that it can be changed or broken in between.
No pipelining, no trailers, no upgrades.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

LIMIT = 64 * 1024
"""Bytes of a piece of a body."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line and the headers of a message."""

    first: str
    headers: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        """The value of a header; empty when there is none."""
        return next((value for each, value in self.headers if each.lower() == name), "")

    def with_header(self, name: str, value: str) -> Head:
        """The same with one header set to one value."""
        others = tuple(each for each in self.headers if each[0].lower() != name.lower())
        return replace(self, headers=(*others, (name, value)))

    @property
    def chunked(self) -> bool:
        return self.get("transfer-encoding").lower() == "chunked"

    @property
    def length(self) -> int | None:
        """The announced length, or None."""
        value = self.get("content-length")
        return int(value) if value else None

    def encode(self) -> bytes:
        lines = [self.first, *(f"{name}: {value}" for name, value in self.headers), "", ""]
        return "\r\n".join(lines).encode("latin-1")


async def read_head(reader: asyncio.StreamReader, begun: bytes = b"") -> Head | None:
    """The next head, of which ``begun`` was read already; None when the connection ends before it."""
    try:
        raw = begun + await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
    pairs = (line.partition(":") for line in lines)
    return Head(first, tuple((name.strip(), value.strip()) for name, _, value in pairs))


async def pieces(head: Head, reader: asyncio.StreamReader, *, until_end: bool) -> AsyncIterator[bytes]:
    """The body, decoded. ``until_end``: without any framing it lasts until the connection ends.

    Raises IncompleteReadError when it ends early.
    """
    if head.chunked:
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readuntil(b"\r\n")
    elif head.length is not None:
        left = head.length
        while left:
            piece = await reader.read(min(left, LIMIT))
            if not piece:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(piece)
            yield piece
    elif until_end:
        while piece := await reader.read(LIMIT):
            yield piece


def framed(head: Head, piece: bytes) -> bytes:
    """A piece of a body as it is sent under ``head``; an empty one ends it."""
    if not head.chunked:
        return piece
    return b"%x\r\n%s\r\n" % (len(piece), piece)
