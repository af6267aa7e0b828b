"""What only the sandbox can do: time and expiry on command, on virtual time (rule Q2, Q3, Q12)."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from psono_operator.sandbox.kube import KubeSandbox
from tests.controlplane_fixture import CRD_FILE
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
SECRETS = "/api/v1/namespaces/default/secrets"
PSONO = "/apis/secrets.psono.com/v1alpha1/namespaces/default/psonosecrets"


class Server:
    """A served sandbox on virtual time and a session to it."""

    def __init__(self, sandbox: KubeSandbox, url: str, session: aiohttp.ClientSession) -> None:
        self.sandbox, self.url, self.session = sandbox, url, session

    async def call(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
        async with self.session.request(method, self.url + path, json=body, params=query) as response:
            return response.status, await response.json()

    async def open(self, path: str, **query: str) -> aiohttp.ClientResponse:
        return await self.session.get(self.url + path, params={"watch": "1", **query})

    async def secret(self, name: str, **metadata: Any) -> Any:
        status, body = await self.call("POST", SECRETS, {"metadata": {"name": name, **metadata}})
        assert status == 201
        return body


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    async with AsyncExitStack() as stack:
        sandbox = KubeSandbox(VirtualClock(), random.Random(1))
        sandbox.install_crd(yaml.safe_load(CRD_FILE.read_text()))
        url = await stack.enter_async_context(sandbox.serve())
        timeout = aiohttp.ClientTimeout(total=None)
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        yield Server(sandbox, url, session)


async def line(response: aiohttp.ClientResponse) -> Any:
    return json.loads(await response.content.readline())


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_bookmarks_come_every_minute_and_just_before_the_timeout(server: Server) -> None:
    start = now()
    async with await server.open(
        SECRETS, resourceVersion="1", allowWatchBookmarks="true", timeoutSeconds="200"
    ) as response:
        times = []
        while raw := await response.content.readline():
            assert json.loads(raw)["type"] == "BOOKMARK"
            times.append(round(now() - start))
    assert times == [60, 120, 180, 198]
    assert round(now() - start) == 200


async def test_a_watch_without_a_timeout_gets_half_an_hour_or_more(server: Server) -> None:
    start = now()
    async with await server.open(SECRETS, resourceVersion="1") as response:
        assert await response.read() == b""
    assert 1800 <= now() - start <= 3600


async def test_a_bookmark_on_command_tells_the_newest_version_of_any_kind(server: Server) -> None:
    async with await server.open(PSONO, resourceVersion="1", allowWatchBookmarks="true") as response:
        newest = await server.secret("a")
        server.sandbox.send_bookmarks()
        event = await line(response)
    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"] == {"resourceVersion": newest["metadata"]["resourceVersion"]}


async def test_no_bookmark_for_who_did_not_ask(server: Server) -> None:
    async with await server.open(SECRETS, resourceVersion="1") as response:
        server.sandbox.send_bookmarks()
        await server.secret("a")
        assert (await line(response))["type"] == "ADDED"


async def test_a_compacted_version_is_410_in_the_stream_and_the_current_one_is_not(server: Server) -> None:
    old = (await server.secret("a"))["metadata"]["resourceVersion"]
    await server.secret("b")
    compacted = server.sandbox.compact()
    async with await server.open(SECRETS, resourceVersion=old) as response:
        assert response.status == 200
        event = await line(response)
        assert await response.content.readline() == b"", "nothing follows"
    assert event["type"] == "ERROR"
    assert event["object"]["message"] == f"too old resource version: {old} ({compacted})"
    async with await server.open(SECRETS, resourceVersion=str(compacted)) as response:
        await server.secret("c")
        assert (await line(response))["object"]["metadata"]["name"] == "c"


async def test_a_compaction_does_not_disturb_an_open_watch(server: Server) -> None:
    async with await server.open(SECRETS, resourceVersion="1") as response:
        await server.secret("a")
        server.sandbox.compact()
        await server.secret("b")
        names = [(await line(response))["object"]["metadata"]["name"] for _ in range(2)]
    assert names == ["a", "b"]


@pytest.mark.parametrize("how", ["expire", "compact"])
async def test_an_expired_continue_token_is_410_with_the_inconsistent_one(server: Server, how: str) -> None:
    """Rule A2: the token in the answer is the one that must not be used."""
    for name in "abc":
        await server.secret(name)
    _, page = await server.call("GET", SECRETS, limit="1")
    token = page["metadata"]["continue"]
    await server.secret("d")
    if how == "expire":
        server.sandbox.expire_continue_tokens()
    else:
        server.sandbox.compact()
    status, body = await server.call("GET", SECRETS, limit="1", **{"continue": token})
    assert (status, body["reason"], body["code"]) == (410, "Expired", 410)
    fresh = body["metadata"]["continue"]
    status, page = await server.call("GET", SECRETS, limit="1", **{"continue": fresh})
    assert (status, page["items"][0]["metadata"]["name"]) == (200, "b")


async def test_tokens_handed_out_after_the_expiry_work(server: Server) -> None:
    for name in "ab":
        await server.secret(name)
    server.sandbox.expire_continue_tokens()
    await server.secret("c")
    _, page = await server.call("GET", SECRETS, limit="1")
    status, _ = await server.call("GET", SECRETS, limit="1", **{"continue": page["metadata"]["continue"]})
    assert status == 200


async def test_initial_events_can_be_refused_like_an_older_server_does(server: Server) -> None:
    server.sandbox.initial_events = False
    query = {"watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    status, body = await server.call("GET", SECRETS, **query)
    assert (status, body["details"]["causes"][0]["field"]) == (422, "sendInitialEvents")


async def test_history_is_bounded_and_its_end_is_a_compaction() -> None:
    sandbox = KubeSandbox(VirtualClock(), random.Random(1), history_limit=10)
    for number in range(20):
        sandbox.create_namespace(f"n{number}")
    assert sandbox.storage.compacted == sandbox.storage.revision - 10


async def test_closing_ends_watches_in_order(server: Server) -> None:
    async with await server.open(SECRETS, resourceVersion="1") as response:
        server.sandbox.close_watches()
        assert await response.read() == b""


async def test_times_come_from_the_clock(server: Server) -> None:
    await asyncio.sleep(3600)
    body = await server.secret("a")
    assert body["metadata"]["creationTimestamp"] == "2026-12-01T13:00:00Z"


async def test_the_collector_can_be_stopped_and_stepped(server: Server) -> None:
    server.sandbox.garbage_collector = False
    parent = await server.secret("parent", finalizers=["example.com/f"])
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "parent", "uid": parent["metadata"]["uid"]}
    await server.secret("child", ownerReferences=[{**reference, "blockOwnerDeletion": True}])
    await server.call("DELETE", f"{SECRETS}/parent", {"propagationPolicy": "Foreground"})
    await asyncio.sleep(3600)
    assert (await server.call("GET", f"{SECRETS}/child"))[0] == 200, "switched off"
    assert server.sandbox.collect(rounds=1) == 1
    assert (await server.call("GET", f"{SECRETS}/child"))[0] == 404
    _, body = await server.call("GET", f"{SECRETS}/parent")
    assert body["metadata"]["finalizers"] == ["example.com/f", "foregroundDeletion"]
    assert server.sandbox.collect(rounds=1) == 1
    _, body = await server.call("GET", f"{SECRETS}/parent")
    assert body["metadata"]["finalizers"] == ["example.com/f"]
    assert server.sandbox.collect() == 0


async def test_the_background_collector_follows_changes(server: Server) -> None:
    ghost = {"apiVersion": "v1", "kind": "Secret", "name": "none", "uid": "none"}
    await server.secret("child", ownerReferences=[ghost])
    await asyncio.sleep(1)
    assert (await server.call("GET", f"{SECRETS}/child"))[0] == 404


async def test_an_owner_of_an_unknown_kind_is_no_reason_to_collect(server: Server) -> None:
    ghost = {"apiVersion": "example.com/v1", "kind": "Unknown", "name": "none", "uid": "none"}
    await server.secret("child", ownerReferences=[ghost])
    assert server.sandbox.collect() == 0
