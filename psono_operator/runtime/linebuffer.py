"""Chunks of bytes in, complete lines out.

A watch response is a sequence of JSON documents, one per line, cut into chunks wherever the network
pleases. This module does the framing (rule B7) and refuses to know what is in a line. It is our own because
a stream reader's ``readline`` gives up at twice its buffer size (aio-libs/aiohttp#4453), which one large
object exceeds.
"""

from __future__ import annotations

from psono_operator.runtime.errors import ProtocolError

LINE_LIMIT = 16 * 1024 * 1024
"""Bytes of one line. An object is at most about 1.5 MiB in etcd; JSON may be several times that."""


class LineTooLong(ProtocolError):
    """A line grew over the limit without an end: this is no watch stream."""


class LineBuffer:
    """Splits a byte stream at ``\\n``; a ``\\r`` before it is dropped, empty lines are skipped."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._tail = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes, without their line ends.

        Raises LineTooLong, also for a line that has not ended yet.
        """
        first, *rest = chunk.split(b"\n")
        self._tail += first
        self._check(len(self._tail))
        if not rest:
            return []
        lines = [bytes(self._tail), *rest[:-1]]
        self._tail = bytearray(rest[-1])
        for line in rest:
            self._check(len(line))
        return [line.removesuffix(b"\r") for line in lines if line not in (b"", b"\r")]

    def tail(self) -> bytes:
        """What came after the last line end. At the end of the stream: a line that was cut off."""
        return bytes(self._tail).removesuffix(b"\r")

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise LineTooLong(f"a line of the answer is longer than {self._limit} bytes")
