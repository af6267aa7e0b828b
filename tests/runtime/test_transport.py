"""One request: deadlines, credentials, connections, and errors that tell nothing they should not."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from psono_operator.runtime import connections as connections_module
from psono_operator.runtime.connections import keepalive_socket
from psono_operator.runtime.credentials import ApiEndpoint, Credentials, StaticToken, tls_context
from psono_operator.runtime.errors import KubeError, ProtocolError, Unreachable
from psono_operator.runtime.transport import Transport, parse_retry_after
from tests.faultproxy.proxy import FaultProxy
from tests.runtime.scriptedapi import answer, refuse, serving_api, stream, transport_to
from tests.virtualtime import VirtualClock

CANARY = "c4n4ry"

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class Rotating:
    """A token source that moves on to the next token when one is refused."""

    scheme = "Bearer"

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.refused = 0

    async def token(self) -> str | None:
        return self.tokens[0]

    def invalidate(self) -> None:
        self.refused += 1
        if len(self.tokens) > 1:
            self.tokens.pop(0)


async def test_a_request_carries_what_it_was_given_and_nothing_else() -> None:
    async with (
        serving_api() as api,
        transport_to(api.url, user_agent="me/1", tokens=StaticToken("t")) as transport,
    ):
        api.calls.append(answer(b"body", headers={"Retry-After": "7"}))
        response = await transport.request(
            "PUT",
            "/a/b%2Fc",
            query=[("x", "a b&c")],
            body=b"{}",
            content_type="application/json",
            accept="text/x",
        )
    assert (response.status, response.body, response.retry_after) == (200, b"body", 7.0)
    seen = api.seen[0]
    assert (seen.method, seen.path, seen.query, seen.body) == ("PUT", "/a/b/c", "x=a%20b%26c", b"{}")
    headers = {name.lower(): value for name, value in seen.headers.items()}
    assert headers == {
        "host": api.url.removeprefix("http://"),
        "accept": "text/x",
        "accept-encoding": "identity",
        "user-agent": "me/1",
        "authorization": "Bearer t",
        "content-type": "application/json",
        "content-length": "2",
    }


async def test_a_body_of_several_mebibytes_is_sent_whole() -> None:
    body = b"x" * (3 * 1024 * 1024)
    async with serving_api() as api, transport_to(api.url) as transport:
        await transport.request("POST", "/x", body=body)
    assert api.seen[0].body == body


async def test_proxies_and_netrc_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """L4."""
    (tmp_path / "netrc").write_text("default login u password p\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with serving_api() as api, transport_to(api.url) as transport:
        assert (await transport.request("GET", "/x")).status == 200
    assert "Authorization" not in api.seen[0].headers


async def test_cookies_are_not_kept() -> None:
    async with serving_api() as api, transport_to(api.url) as transport:
        api.calls.append(answer({}, headers={"Set-Cookie": "a=b"}))
        await transport.request("GET", "/x")
        await transport.request("GET", "/x")
    assert "Cookie" not in api.seen[1].headers


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_error_and_is_not_followed(code: int) -> None:
    """L5: the token goes nowhere else."""
    async with serving_api() as api, transport_to(api.url, tokens=StaticToken("t")) as transport:
        for queue, send in ((api.calls, request_x), (api.watches, stream_x)):
            queue.append(answer({}, code=code, headers={"Location": f"{api.url}/elsewhere?{CANARY}"}))
            with pytest.raises(ProtocolError, match=f"redirect \\({code}\\)") as caught:
                await send(transport)
            assert CANARY not in str(caught.value)
    assert len(api.seen) == 2


async def request_x(transport: Transport) -> int:
    return (await transport.request("GET", "/x")).status


async def stream_x(transport: Transport) -> int:
    async with transport.stream("/x", query=[("watch", "true")]) as opened:
        return opened.status


SEND = pytest.mark.parametrize("send", [request_x, stream_x])


@SEND
async def test_after_a_401_a_new_token_is_tried_once(
    send: Callable[[Transport], asyncio.Future[int]],
) -> None:
    """L1."""
    tokens = Rotating("old", "new")
    async with serving_api() as api, transport_to(api.url, tokens=tokens) as transport:
        api.calls.append(refuse(401))
        api.watches.append(refuse(401))
        assert await send(transport) == 200
    assert [seen.headers["Authorization"] for seen in api.seen] == ["Bearer old", "Bearer new"]


@SEND
async def test_a_401_without_a_new_token_is_final(send: Callable[[Transport], asyncio.Future[int]]) -> None:
    """L1: then back off, which is the caller's business."""
    tokens = Rotating("only")
    async with serving_api() as api, transport_to(api.url, tokens=tokens) as transport:
        api.default_call = api.default_watch = refuse(401)
        assert await send(transport) == 401
        assert (len(api.seen), tokens.refused) == (1, 1)
        tokens.tokens = ["a", "b", "c"]
        assert await send(transport) == 401
    assert len(api.seen) == 3, "once, not until it works"


async def test_an_open_watch_takes_no_connection_from_calls() -> None:
    """L3: pool of one and an open watch."""
    async with serving_api() as api, transport_to(api.url, connections=1) as transport:
        api.watches.append(stream(then="silent"))
        api.watches.append(stream(then="silent"))
        query = [("watch", "true")]
        async with transport.stream("/x", query=query), transport.stream("/x", query=query):
            assert (await transport.request("GET", "/x", timeout=5)).status == 200


async def test_no_more_calls_are_in_flight_than_the_pool_is_wide() -> None:
    """M2: fifty ready, four at a time."""
    now, most = 0, 0

    async def slow(request: web.Request) -> web.StreamResponse:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(1)
        now -= 1
        return web.json_response({})

    async with serving_api() as api, transport_to(api.url, connections=4) as transport:
        api.default_call = slow
        await asyncio.gather(*(transport.request("POST", "/x", body=b"{}") for _ in range(50)))
    assert most == 4


async def nothing(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_call_without_an_answer_ends_at_its_deadline() -> None:
    """B6: ordinary requests get total timeouts."""
    loop = asyncio.get_running_loop()
    async with serving_api() as api, transport_to(api.url) as transport:
        api.default_call = api.default_watch = nothing
        for timeout, expected in ((None, 30), (2.5, 2.5)):
            begun = loop.time()
            with pytest.raises(Unreachable, match=f"no answer from 127.0.0.1:\\d+ within {expected:g} s"):
                await transport.request("GET", "/x", timeout=timeout)
            assert loop.time() - begun == pytest.approx(expected, abs=0.01)
        begun = loop.time()
        with pytest.raises(Unreachable, match="within 30 s"):
            await stream_x(transport)
        assert loop.time() - begun == pytest.approx(30, abs=0.01)


async def test_an_answer_that_never_ends_is_bounded_too() -> None:
    async with serving_api() as api, transport_to(api.url) as transport:
        api.default_call = stream(b"x", then="silent")
        with pytest.raises(Unreachable, match="within 30 s"):
            await transport.request("GET", "/x")


async def test_a_silent_stream_ends_at_the_readers_deadline() -> None:
    """B6."""
    loop = asyncio.get_running_loop()
    async with serving_api() as api, transport_to(api.url) as transport:
        api.watches.append(stream(b"x", then="silent"))
        async with transport.stream("/x", query=[("watch", "true")]) as opened:
            assert await opened.read(loop.time() + 5) == b"x"
            begun = loop.time()
            with pytest.raises(Unreachable, match="fell silent"):
                await opened.read(begun + 200)
            assert loop.time() - begun == pytest.approx(200, abs=0.01)


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def test_a_connection_that_breaks_is_told_in_words_of_ours() -> None:
    async with serving_api() as api, transport_to(api.url) as transport:
        api.default_call = reset
        with pytest.raises(Unreachable, match=r"GET /x: .*(closed the connection|connection reset)"):
            await transport.request("GET", "/x", query=[("q", CANARY)])
        api.default_call = stream(b"x", then="cut")
        with pytest.raises(Unreachable, match=r"GET /x: the answer of .* was cut off"):
            await transport.request("GET", "/x")


async def test_a_post_is_never_repeated() -> None:
    """M3: it may have been carried out."""
    async with serving_api() as api, transport_to(api.url) as transport:
        api.default_call = reset
        for method in ("POST", "PATCH"):
            with pytest.raises(Unreachable):
                await transport.request(method, "/x", body=b"{}")
    assert [seen.method for seen in api.seen] == ["POST", "PATCH"]


async def test_a_refused_connection_and_an_unknown_name_are_told_apart() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    async with transport_to(f"http://127.0.0.1:{port}") as transport:
        with pytest.raises(Unreachable, match=f"GET /x: connection refused by 127.0.0.1:{port}"):
            await transport.request("GET", "/x")
    async with transport_to("http://name.invalid:1") as transport:
        with pytest.raises(Unreachable, match=r"the name of name\.invalid:1 could not be resolved"):
            await transport.request("GET", "/x")


async def test_an_answer_that_is_not_http_is_a_protocol_error() -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"220 {CANARY}\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, transport_to(f"http://127.0.0.1:{port}") as transport:
        with pytest.raises(ProtocolError, match="is not HTTP") as caught:
            await transport.request("GET", "/x")
    assert CANARY not in str(caught.value)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


async def serve_tls(authority: trustme.CA, name: str) -> tuple[web.AppRunner, str]:
    async def hello(request: web.Request) -> web.StreamResponse:
        return web.json_response({})

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    app = web.Application()
    app.router.add_get("/x", hello)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    return runner, f"https://127.0.0.1:{runner.addresses[0][1]}"


def client_for(url: str, authority: trustme.CA, name: str | None) -> AbstractAsyncContextManager[Transport]:
    context = tls_context(authority.cert_pem.bytes().decode())
    return transport_to(url, endpoint=ApiEndpoint(url, context, server_name=name))


async def test_the_server_must_prove_its_name_by_our_authority(authority: trustme.CA) -> None:
    runner, url = await serve_tls(authority, "kube.example")
    try:
        async with client_for(url, authority, "kube.example") as transport:
            assert (await transport.request("GET", "/x")).status == 200
        for other, name in ((trustme.CA(), "kube.example"), (authority, None)):
            async with client_for(url, other, name) as transport:
                with pytest.raises(
                    Unreachable, match=r"the certificate of 127\.0\.0\.1:\d+ was not accepted: \w+"
                ):
                    await transport.request("GET", "/x")
    finally:
        await runner.cleanup()


async def test_tls_spoken_to_a_server_without_it_is_told() -> None:
    async with serving_api() as api:
        url = api.url.replace("http://", "https://")
        async with transport_to(url, endpoint=ApiEndpoint(url, ssl.create_default_context())) as transport:
            with pytest.raises(Unreachable, match="TLS handshake"):
                await transport.request("GET", "/x")


async def test_every_answer_is_counted_by_method_host_and_code() -> None:
    """E8: rest_client_requests_total; a 401 that is repeated counts twice."""
    seen: list[tuple[str, str, str]] = []

    def observe(method: str, host: str, code: str) -> None:
        seen.append((method, host, code))

    async with (
        serving_api() as api,
        transport_to(api.url, tokens=Rotating("a", "b"), on_response=observe) as transport,
    ):
        api.calls.append(refuse(401))
        await transport.request("GET", "/x")
        await stream_x(transport)
        api.default_call = reset
        with pytest.raises(Unreachable):
            await transport.request("POST", "/x")
        api.default_call = nothing
        with pytest.raises(Unreachable):
            await transport.request("PUT", "/x")
    host = api.url.removeprefix("http://")
    assert seen == [
        ("GET", host, "401"),
        ("GET", host, "200"),
        ("GET", host, "200"),
        ("POST", host, "<error>"),
        ("PUT", host, "<error>"),
    ]


async def test_sockets_notice_a_peer_that_vanished() -> None:
    """B6: aiohttp leaves keepalive off."""
    with keepalive_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as connection:
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


async def test_calls_and_watches_use_such_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """B6."""
    options: list[int] = []
    factory = connections_module.keepalive_socket

    def remembering(address: connections_module.AddressInfo) -> socket.socket:
        made = factory(address)
        options.append(made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        return made

    monkeypatch.setattr(connections_module, "keepalive_socket", remembering)
    async with serving_api() as api, transport_to(api.url) as transport:
        await request_x(transport)
        await stream_x(transport)
    assert options == [1, 1]


def connections_of(proxy: FaultProxy) -> int:
    return len(proxy._connections)


class ChangingTrust:
    """A trust source that a test changes."""

    def __init__(self, authority: trustme.CA) -> None:
        self.doubts = 0
        self.change(authority)

    def change(self, authority: trustme.CA) -> None:
        self._context = tls_context(authority.cert_pem.bytes().decode())

    async def context(self) -> ssl.SSLContext:
        return self._context

    def doubt(self) -> None:
        self.doubts += 1


async def test_with_a_new_context_old_streams_end_by_themselves_and_their_pool_with_them() -> None:
    """L2: new requests use a new connector; the old one is closed when nobody uses it any more."""
    old, new = trustme.CA(), trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    old.issue_cert("127.0.0.1").configure_cert(server)
    async with serving_api() as api, FaultProxy(api.url, None, server).serve() as proxy:
        api.default_watch = stream({"a": 1}, 100, {"b": 2})
        trust = ChangingTrust(old)
        credentials = Credentials(ApiEndpoint(proxy.url), StaticToken(), trust=trust)
        transport = Transport(credentials, clock=VirtualClock())
        async with transport.stream("/x", query=[("watch", "true")]) as watch:
            assert b"a" in await watch.read(10)
            await transport.request("GET", "/x")
            proxy.swap_certificate(new.issue_cert("127.0.0.1"))
            trust.change(new)
            await transport.request("GET", "/x")
            assert connections_of(proxy) == 3
            assert b"b" in await watch.read(200)
        await asyncio.sleep(1)
        assert connections_of(proxy) == 1
        trust.change(old)
        with pytest.raises(Unreachable, match="certificate"):
            await transport.request("GET", "/x")
        assert trust.doubts == 1
        await transport.close()


async def test_a_closed_transport_says_so() -> None:
    async with serving_api() as api, transport_to(api.url) as transport:
        await transport.request("GET", "/x")
        await transport.close()
        for send in (request_x, stream_x):
            with pytest.raises(Unreachable, match="closed"):
                await send(transport)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("9" * 40, 999_999_999.0),
        (email.utils.formatdate(1_000_060, usegmt=True), 60.0),
        (email.utils.formatdate(999_000, usegmt=True), 0.0),
    ],
)
async def test_retry_after_is_seconds_or_a_date(value: str | None, expected: float | None) -> None:
    """M1."""
    assert parse_retry_after(value, 1_000_000) == expected


async def test_nothing_confidential_shows_in_errors_reprs_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    """F8: token, query, body and answer."""
    caplog.set_level(logging.DEBUG)
    async with serving_api() as api, transport_to(api.url, tokens=StaticToken(CANARY)) as transport:
        api.calls.append(answer(CANARY.encode(), headers={"X-Header": CANARY}))
        response = await transport.request("POST", "/x", query=[("q", CANARY)], body=CANARY.encode())
        assert response.body == CANARY.encode()
        api.default_call = reset
        errors: list[KubeError] = []
        for method in ("GET", "POST"):
            try:
                await transport.request(method, "/x", query=[("q", CANARY)], body=CANARY.encode())
            except KubeError as error:
                errors.append(error)
        assert len(errors) == 2
        assert all(error.__cause__ is None and error.__suppress_context__ for error in errors)
        assert CANARY not in f"{response!r} {transport!r} {errors!r} {caplog.text}"
