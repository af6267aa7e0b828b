"""The client against servers that are silent, absent, broken or hostile: typed, timely, value-free (F6, F8)."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
import zlib

import pytest
from aiohttp import web

from psono_operator.psono.errors import (
    ProtocolError,
    RemoteError,
    ServerFault,
    TooLarge,
    Unreachable,
)
from psono_operator.sandbox.psono import PsonoDouble
from tests.psono.recorded import assert_value_free
from tests.psono.wire import KEY_ID, SECRET_ID, Observed, client_for, http_server, raw_server

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def test_one_failure_is_one_request() -> None:
    """Nothing is repeated here, not even when a kept connection turns out to be dead."""
    requests = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        writer.write(b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await reader.readuntil(b"\r\n\r\n")
        requests += 1

    async with raw_server(hang_up) as port, client_for(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(ServerFault):
            await client.read(SECRET_ID)
        with pytest.raises(Unreachable, match="ended before the whole answer"):
            await client.read(SECRET_ID)
    assert requests == 2


async def test_a_silent_server_is_given_up_after_30_seconds() -> None:
    """Rule F6: a deadline on everything, on time that takes none."""
    double = PsonoDouble(sleep=asyncio.sleep)
    double.delay_seconds = 3600
    observed = Observed()
    async with double.serve() as server, client_for(server.url, observer=observed) as client:
        with pytest.raises(Unreachable, match="no whole answer in time"):
            await client.read(SECRET_ID)
    (_, outcome, seconds) = observed.calls[0]
    assert outcome == "Unreachable"
    assert 30 <= seconds <= 31


async def test_a_body_that_trickles_in_is_given_up_after_30_seconds_too() -> None:
    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(1)

    observed = Observed()
    async with http_server(trickle) as url, client_for(url, observer=observed) as client:
        with pytest.raises(Unreachable, match="no whole answer in time"):
            await client.read(SECRET_ID)
    assert observed.calls[0][2] <= 31


async def test_a_handshake_that_never_ends_is_given_up_after_10_seconds() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)

    observed = Observed()
    async with (
        raw_server(say_nothing) as port,
        client_for(f"https://127.0.0.1:{port}", observer=observed) as client,
    ):
        with pytest.raises(Unreachable, match="no connection in time"):
            await client.read(SECRET_ID)
    assert 10 <= observed.calls[0][2] <= 11


async def test_an_unknown_host_name_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    async with client_for("https://psono.invalid") as client:
        with pytest.raises(Unreachable, match="host name cannot be resolved"):
            await client.read(SECRET_ID)


async def test_a_closed_port_is_said_to_refuse() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with client_for(f"http://127.0.0.1:{taken.getsockname()[1]}") as client:
            with pytest.raises(Unreachable, match="refuses connections"):
                await client.read(SECRET_ID)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", Unreachable),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", Unreachable),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", Unreachable),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\ncAnArY", Unreachable),
        (b"HTTP/1.1 200 OK\r\nX: " + b"cAnArY" * 20_000 + b"\r\n\r\n", ProtocolError),
        (b"SSH-2.0-cAnArY\r\n\r\n", ProtocolError),
        (b"\x15\x03\x01\x00\x02\x02\x50\r\n\r\n", ProtocolError),
    ],
)
async def test_an_answer_that_breaks_off_or_is_no_http_has_a_typed_error(
    answer: bytes, kind: type[RemoteError]
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    async with raw_server(talk) as port, client_for(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(kind) as caught:
            await client.read(SECRET_ID)
    assert caught.value.__context__ is None
    assert_value_free(caught.value, "cAnA" + "rY", KEY_ID, SECRET_ID)


async def test_a_reset_connection_is_unreachable() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    async with raw_server(reset) as port, client_for(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(Unreachable):
            await client.read(SECRET_ID)


async def test_a_compression_bomb_is_refused_without_being_unpacked() -> None:
    """The cap counts decompressed bytes: 256 MiB in 250 KiB must not pass through the memory."""
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()

    async def explode(request: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with http_server(explode) as url, client_for(url) as client:
        tracemalloc.start()
        try:
            with pytest.raises(TooLarge):
                await client.read(SECRET_ID)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 48 * 1024 * 1024
