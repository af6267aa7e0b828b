"""The proxy is worth something only if it does what it says: each fault as a plain client sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest
import trustme

from tests.faultproxy.faults import (
    EXPIRED,
    Answer,
    BlackHole,
    Cut,
    Delay,
    EndAfter,
    IdleCut,
    Repeat,
    Reset,
    Silence,
)
from tests.faultproxy.proxy import FaultProxy
from tests.runtime.scriptedapi import ScriptedApi, answer, event, serving_api, stream, thing

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

LINES = [event("ADDED", thing("one", "1")), event("ADDED", thing("two", "2"))]
WATCH = "/things?watch=true&timeoutSeconds=60&resourceVersion=1"


class Client:
    def __init__(self, api: ScriptedApi, proxy: FaultProxy, http: aiohttp.ClientSession) -> None:
        self.api, self.proxy, self.http = api, proxy, http

    async def get(self, path: str = "/things") -> tuple[int, bytes]:
        async with self.http.get(self.proxy.url + path) as response:
            return response.status, await response.read()

    async def watched(self, seconds: float = 1000) -> list[str]:
        """Names of the events that come until the watch ends; ``silent`` or the error's name at its end."""
        names = []
        try:
            async with asyncio.timeout(seconds), self.http.get(self.proxy.url + WATCH) as response:
                async for line in response.content:
                    parsed = json.loads(line)
                    names.append(parsed["object"]["metadata"].get("name", parsed["type"]))
        except TimeoutError:
            names.append("silent")
        except (aiohttp.ClientError, json.JSONDecodeError) as error:
            names.append(type(error).__name__)
        return names


@contextlib.asynccontextmanager
async def a_client(
    *, tls: ssl.SSLContext | None = None, trust: ssl.SSLContext | bool = True
) -> AsyncIterator[Client]:
    async with serving_api() as api, FaultProxy(api.url, tls=tls).serve() as proxy:
        connector = aiohttp.TCPConnector(ssl=trust)
        async with aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=None)
        ) as http:
            yield Client(api, proxy, http)


async def test_what_no_rule_is_for_passes_as_it_is() -> None:
    async with a_client() as client:
        client.api.calls.extend([answer({"a": 1}), answer(b"x" * 300_000), answer({}, code=404)])
        assert await client.get("/a?b=/c") == (200, b'{"a": 1}')
        assert await client.get() == (200, b"x" * 300_000)
        assert (await client.get())[0] == 404
        async with client.http.post(client.proxy.url + "/x", data=b"y" * 300_000) as response:
            assert response.status == 200
        assert (client.api.seen[0].path, client.api.seen[0].query) == ("/a", "b=/c")
        assert client.api.seen[-1].body == b"y" * 300_000
        client.api.watches.append(stream(*LINES))
        assert await client.watched() == ["one", "two"]
        assert [str(each) for each in client.proxy.sent("WATCH", "/thi*")] == ["WATCH /things"]
        assert len(client.proxy.sent("*")) == 5
        assert client.proxy.open("*") == []


async def test_rules_are_for_methods_paths_and_so_many_times() -> None:
    async with a_client() as client:
        rule = client.proxy.on("GET", "*/b").do(Answer(503, retry_after="7"), times=2)
        assert [(await client.get(path))[0] for path in ("/a", "/b", "/b", "/b")] == [200, 503, 503, 200]
        assert rule.hits == 2
        client.proxy.on("WATCH").do(Answer(500))
        assert (await client.get())[0] == 200
        assert (await client.get(WATCH))[0] == 500
        client.proxy.clear()
        assert (await client.get(WATCH))[0] == 200
        assert len(client.api.seen) == 4


async def test_answer_says_what_it_is_told_and_can_come_after_the_deed() -> None:
    async with a_client() as client:
        client.proxy.on("GET").do(Delay(5), Answer(429, "TooManyRequests", "3", sent=True))
        begun = asyncio.get_running_loop().time()
        async with client.http.get(client.proxy.url + "/x") as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "3")
            assert (await response.json())["reason"] == "TooManyRequests"
        assert asyncio.get_running_loop().time() - begun == pytest.approx(5, abs=0.5)
        assert len(client.api.seen) == 1


@pytest.mark.parametrize("sent", [False, True])
async def test_a_reset_and_a_black_hole(sent: bool) -> None:
    async with a_client() as client:
        client.proxy.on("GET", "/reset").do(Reset(sent=sent))
        client.proxy.on("GET", "/hole").do(BlackHole(sent=sent))
        with pytest.raises(aiohttp.ClientError):
            await client.get("/reset")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.get("/hole"), 3600)
        assert bool([seen for seen in client.api.seen if seen.path == "/hole"]) is sent
        await asyncio.sleep(0)
        assert (await client.get("/other"))[0] == 200


async def test_a_stream_falls_silent_is_cut_in_a_line_or_ends_early() -> None:
    async with a_client() as client:
        client.api.default_watch = stream(*LINES, then="hold")
        rule = client.proxy.on("WATCH").do(Silence())
        assert await client.watched() == ["silent"]
        rule.do(Silence(1))
        assert await client.watched() == ["one", "silent"]
        rule.do(Cut(1))
        assert await client.watched() == ["one", "ClientPayloadError"]
        rule.do(Cut(1, politely=True))
        assert await client.watched() == ["one", "JSONDecodeError"]
        rule.do(EndAfter(lambda: 5))
        begun = asyncio.get_running_loop().time()
        assert await client.watched() == ["one", "two"]
        assert asyncio.get_running_loop().time() - begun == pytest.approx(5, abs=0.5)


async def test_a_stream_without_bytes_is_cut_or_forgotten() -> None:
    async with a_client() as client:
        client.api.default_watch = stream(LINES[0], 30, LINES[1], then="deaf")
        rule = client.proxy.on("WATCH").do(IdleCut(40))
        assert await client.watched() == ["one", "two", "ClientPayloadError"]
        rule.do(IdleCut(20, silently=True))
        assert await client.watched() == ["one", "silent"]


async def test_events_are_dropped_and_doubled() -> None:
    async with a_client() as client:
        client.api.default_watch = stream(*LINES)
        client.proxy.on("WATCH").do(Repeat(2, lambda each: each["object"]["metadata"]["name"] == "one"))
        assert await client.watched() == ["one", "one", "two"]
        client.proxy.on("WATCH").do(Repeat(0, lambda each: each["object"]["metadata"]["name"] == "one"))
        assert await client.watched() == ["two"]


async def test_the_three_shapes_of_an_expired_version() -> None:
    async with a_client() as client:
        found = []
        for fault in EXPIRED:
            client.proxy.on("WATCH").do(fault)
            status, body = await client.get(WATCH)
            parsed = json.loads(body)
            found.append(
                (status, parsed.get("type"), parsed.get("object", parsed)["code"], body.endswith(b"\n"))
            )
        assert found == [(410, None, 410, False), (200, "ERROR", 410, True), (200, None, 410, False)]
        assert client.api.seen == []


async def test_a_listener_can_be_down_dark_and_frozen() -> None:
    async with a_client() as client:
        client.api.default_watch = stream(LINES[0], 10, LINES[1])
        await client.get()
        watching = asyncio.create_task(client.watched(100))
        await asyncio.sleep(1)
        assert len(client.proxy.open()) == 1
        await client.proxy.dark()
        assert await watching == ["one", "silent"]
        waiting = asyncio.create_task(client.get())
        await asyncio.sleep(100)
        assert not waiting.done()
        await client.proxy.up()
        assert (await waiting)[0] == 200

        watching = asyncio.create_task(client.watched(100))
        await asyncio.sleep(1)
        await client.proxy.down()
        assert (await watching)[0] == "one"
        assert (await watching)[1] != "silent"
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get()
        await client.proxy.up()
        assert (await client.get())[0] == 200

        watching = asyncio.create_task(client.watched(100))
        await asyncio.sleep(1)
        client.proxy.freeze()
        await asyncio.sleep(60)
        assert not watching.done()
        client.proxy.thaw()
        assert await watching == ["one", "two"]


async def test_one_stream_of_several_can_be_muted_or_reset_from_outside() -> None:
    async with a_client() as client:
        client.api.default_watch = stream(LINES[0], 10, LINES[1])
        first, second = (asyncio.create_task(client.watched(100)) for _ in range(2))
        await asyncio.sleep(1)
        client.proxy.drop_idle()
        one, two = client.proxy.open()
        one.muted = True
        two.abandon()
        ended = [await first, await second]
        assert sorted(each[-1] == "silent" for each in ended) == [False, True]


async def test_the_certificate_is_swapped_for_new_connections_only() -> None:
    old, new = trustme.CA(), trustme.CA()
    server, client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    old.issue_cert("127.0.0.1").configure_cert(server)
    old.configure_trust(client_context)
    async with a_client(tls=server, trust=client_context) as client:
        assert client.proxy.url.startswith("https://")
        client.api.default_watch = stream(LINES[0], 10, LINES[1])
        watching = asyncio.create_task(client.watched())
        await asyncio.sleep(1)
        client.proxy.swap_certificate(new.issue_cert("127.0.0.1"))
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await client.get()
        assert await watching == ["one", "two"]


async def test_a_failure_of_the_proxy_itself_fails_the_test() -> None:
    async def broken(exchange: object, proceed: object) -> None:
        raise RuntimeError("not a fault")

    async def test() -> None:
        async with a_client() as client:
            client.proxy.on("GET").do(broken)
            with contextlib.suppress(aiohttp.ClientError):
                await client.get()

    with pytest.raises(AssertionError):
        await test()
