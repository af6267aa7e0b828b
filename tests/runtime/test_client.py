"""The verbs: exact requests, typed failures, the gate before every write."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from contextlib import aclosing
from typing import Any

import pytest

from psono_operator.runtime.client import METADATA, METADATA_LIST, KubeClient, PatchKind
from psono_operator.runtime.errors import (
    ApiError,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    ProtocolError,
    Throttled,
    Unreachable,
)
from psono_operator.runtime.gate import NotLeader
from psono_operator.runtime.resources import ObjectKey
from tests.runtime.scriptedapi import (
    SECRETS,
    THINGS,
    answer,
    bookmark,
    event,
    page,
    refuse,
    serving,
    status_body,
    stream,
    thing,
)

CANARY = "c4n4ry"
KEY = ObjectKey("a", "b")
PATH = "/apis/example.com/v1/namespaces/a/things"

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class Gate:
    """A gate that leaves ``left`` seconds, or is closed."""

    def __init__(self, left: float | None) -> None:
        self.left = left
        self.asked = 0

    def remaining(self) -> float:
        self.asked += 1
        if self.left is None:
            raise NotLeader
        return self.left


async def write_create(client: KubeClient) -> None:
    await client.create(THINGS, thing("b", "7"))


async def write_replace(client: KubeClient) -> None:
    await client.replace(THINGS, thing("b", "7"))


async def write_patch(client: KubeClient) -> None:
    await client.patch(THINGS, KEY, {"spec": {"ü": 1}}, PatchKind.MERGE, subresource="status")


async def write_delete(client: KubeClient) -> None:
    await client.delete(THINGS, KEY, uid="u", resource_version="7", propagation="Background")


WRITES = {
    write_create: ("POST", PATH, "fieldManager=tester", "application/json", thing("b", "7")),
    write_replace: ("PUT", f"{PATH}/b", "fieldManager=tester", "application/json", thing("b", "7")),
    write_patch: (
        "PATCH",
        f"{PATH}/b/status",
        "fieldManager=tester",
        "application/merge-patch+json",
        {"spec": {"ü": 1}},
    ),
    write_delete: (
        "DELETE",
        f"{PATH}/b",
        "",
        "application/json",
        {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u", "resourceVersion": "7"},
            "propagationPolicy": "Background",
        },
    ),
}


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_is_exactly_one_request(write: Any) -> None:
    """F2 (resourceVersion in the PUT), G5 (preconditions), explicit content types."""
    method, path, query, content_type, body = WRITES[write]
    async with serving() as (api, client):
        api.default_call = answer(thing("b", "8"))
        await write(client)
    (seen,) = api.seen
    assert (seen.method, seen.path, seen.query) == (method, path, query)
    assert seen.headers["Content-Type"] == content_type
    assert seen.headers["Accept"] == "application/json"
    assert json.loads(seen.body) == body


@pytest.mark.parametrize("write", WRITES)
async def test_a_closed_gate_sends_nothing(write: Any) -> None:
    """K4."""
    for left in (None, 0.0, -1.0):
        async with serving(gate=Gate(left)) as (api, client):
            with pytest.raises(NotLeader):
                await write(client)
        assert api.seen == []


@pytest.mark.parametrize("write", WRITES)
async def test_the_time_the_gate_leaves_caps_the_call(write: Any) -> None:
    """K4."""
    async with serving(gate=Gate(3.0)) as (api, client):
        api.default_call = stream(then="silent")
        begun = asyncio.get_running_loop().time()
        with pytest.raises(Unreachable, match="within 3 s"):
            await write(client)
        assert asyncio.get_running_loop().time() - begun == pytest.approx(3, abs=0.01)


async def test_reads_do_not_ask_the_gate() -> None:
    gate = Gate(None)
    async with serving(gate=gate) as (api, client):
        api.calls.append(answer(thing("b", "7")))
        await client.get(THINGS, KEY)
        await client.list_page(THINGS)
    assert gate.asked == 0
    assert Gate(math.inf).remaining() == math.inf


async def test_writes_return_the_object_and_may_be_validated_strictly() -> None:
    async with serving() as (api, client):
        strict = KubeClient(client._transport, field_manager="tester", field_validation="Strict")
        api.default_call = answer(thing("b", "8"))
        assert await strict.create(THINGS, thing("b", "7")) == thing("b", "8")
        assert await client.replace(THINGS, thing("b", "7")) == thing("b", "8")
        patch = [{"op": "test", "path": "/x", "value": 1}]
        assert await client.patch(THINGS, KEY, patch, PatchKind.JSON) == thing("b", "8")
    assert api.seen[0].query == "fieldManager=tester&fieldValidation=Strict"
    assert api.seen[2].headers["Content-Type"] == "application/json-patch+json"


async def test_a_replace_without_the_version_that_was_read_is_refused_here() -> None:
    """F2: a Secret's PUT without one would succeed unconditionally."""
    async with serving() as (api, client):
        with pytest.raises(ValueError, match="resourceVersion"):
            await client.replace(SECRETS, {"metadata": {"namespace": "a", "name": "b"}})
        with pytest.raises(ValueError, match="namespace"):
            await client.create(SECRETS, {"metadata": {"name": "b"}})
    assert api.seen == []


async def test_a_delete_without_preconditions_says_none() -> None:
    async with serving() as (api, client):
        api.default_call = answer({"kind": "Status", "status": "Success"})
        await client.delete(THINGS, KEY)
    assert json.loads(api.seen[0].body) == {"apiVersion": "v1", "kind": "DeleteOptions"}


async def test_list_queries_are_exactly_those_of_the_first_and_of_later_pages() -> None:
    """A1: no resourceVersion, ever."""
    async with serving() as (api, client):
        await client.list_page(THINGS)
        await client.list_page(THINGS, namespace="a", continue_token="t/+=", label_selector="x=y,z")
        await client.list_page(THINGS, limit=None, field_selector="metadata.name=b")
    assert [(seen.path, seen.query) for seen in api.seen] == [
        ("/apis/example.com/v1/things", "limit=500"),
        (PATH, "labelSelector=x%3Dy%2Cz&limit=500&continue=t%2F%2B%3D"),
        ("/apis/example.com/v1/things", "fieldSelector=metadata.name%3Db"),
    ]


async def test_null_items_are_an_empty_list() -> None:
    """R1: an empty PartialObjectMetadataList has them."""
    async with serving() as (api, client):
        api.calls.append(page(None, "5"))
        assert (await client.list_page(THINGS))["items"] == []


@pytest.mark.parametrize(
    "body",
    [b"", b"no json", b"[]", b'"x"', b'{"kind":"Status"}', b'{"items":{}}', b'{"items":[5]}', b"[" * 100_000],
)
async def test_an_answer_that_is_no_list_is_a_protocol_error(body: bytes) -> None:
    async with serving() as (api, client):
        api.calls.append(answer(body))
        with pytest.raises(ProtocolError, match=r"GET /apis/example\.com/v1/things"):
            await client.list_page(THINGS)


async def test_metadata_only_asks_for_it_and_drops_the_rest_unasked() -> None:
    """D1: also when somebody in between ignored the Accept header."""
    secret = {**thing("b", "7"), "data": {"k": CANARY}, "stringData": {"k": CANARY}, "type": "Opaque"}
    async with serving() as (api, client):
        api.calls.extend([answer(secret), page([secret], "7")])
        api.watches.append(stream(event("ADDED", secret)))
        seen: list[object] = [
            await client.get(SECRETS, KEY, metadata_only=True),
            await client.list_page(SECRETS, metadata_only=True),
        ]
        watch = client.watch_lines(SECRETS, resource_version="7", timeout_seconds=5, metadata_only=True)
        async with aclosing(watch):
            seen += [line async for line in watch]
    assert [request.headers["Accept"] for request in api.seen] == [METADATA, METADATA_LIST, METADATA]
    assert len(seen) == 3
    assert CANARY not in str(seen)
    assert str(seen).count("uid-b") == 3


async def test_a_refusal_is_the_error_of_its_status() -> None:
    async with serving() as (api, client):
        api.calls.append(refuse(404, "NotFound", 'things "b" not found'))
        with pytest.raises(NotFound, match=r'GET .*/things/b answered 404 NotFound: things "b" not found'):
            await client.get(THINGS, KEY)
        api.calls.append(refuse(429, "TooManyRequests", headers={"Retry-After": "4"}))
        with pytest.raises(Throttled) as caught:
            await write_create(client)
        assert caught.value.retry_after == 4
        api.calls.append(answer(b"<html>" + CANARY.encode(), code=502))
        with pytest.raises(ApiError) as proxy:
            await client.get(THINGS, KEY)
        assert str(proxy.value) == f"GET {PATH}/b answered 502"


async def test_a_refused_patch_of_a_secret_tells_nothing_of_its_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """F8, R2."""
    caplog.set_level(logging.DEBUG)
    status = status_body(422, "Invalid", f"Secret in version v1: {CANARY}", causes=("FieldValueInvalid",))
    async with serving() as (api, client):
        api.calls.append(answer(status, code=422))
        with pytest.raises(Invalid) as caught:
            await client.patch(SECRETS, KEY, {"data": {"k": CANARY}}, PatchKind.MERGE)
        api.calls.append(answer(CANARY.encode()))
        with pytest.raises(ProtocolError) as protocol:
            await client.get(SECRETS, KEY)
    errors: list[KubeError] = [caught.value, protocol.value]
    assert caught.value.causes[0].reason == "FieldValueInvalid"
    for error in errors:
        assert error.__cause__ is None
        assert error.__context__ is None
        assert CANARY not in f"{error} {error!r} {vars(error)} {caplog.text}"


async def lines_of(client: KubeClient, resource: Any = THINGS, **options: Any) -> list[dict[str, Any]]:
    watch = client.watch_lines(resource, **{"resource_version": "7", "timeout_seconds": 200, **options})
    async with aclosing(watch):
        return [line async for line in watch]


async def test_a_watch_asks_for_bookmarks_and_a_timeout() -> None:
    """B1."""
    async with serving() as (api, client):
        await lines_of(client, namespace="a", label_selector="x=y", timeout_seconds=190)
    assert (api.seen[0].path, api.seen[0].query) == (
        PATH,
        "watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=190&labelSelector=x%3Dy",
    )


async def test_lines_come_out_whole_however_they_were_cut() -> None:
    """B7: one byte at a time, CRLF, blank lines, five mebibytes."""
    small = json.dumps(event("ADDED", thing("ü", "8")), ensure_ascii=False).encode()
    large = event("MODIFIED", thing("large", "9", spec="x" * (5 * 1024 * 1024)))
    parts: list[Any] = [bytes([byte]) for byte in small + b"\r\n\r\n"]
    async with serving() as (api, client):
        api.watches.append(stream(*parts, large, bookmark("10")))
        lines = await lines_of(client)
    assert [line["type"] for line in lines] == ["ADDED", "MODIFIED", "BOOKMARK"]
    assert lines[0]["object"]["metadata"]["name"] == "ü"
    assert lines[1] == large


@pytest.mark.parametrize("then", ["end", "cut"])
@pytest.mark.parametrize(
    "rest",
    [
        b'{"type":"ADDED","obj',
        '{"type":"ADDED","object":{"metadata":{"name":"ü'.encode()[:-1],
        json.dumps(event("ADDED", thing("whole-but-for-its-end", "9"))).encode(),
    ],
)
async def test_a_line_that_was_cut_off_is_a_disconnect_and_no_event(rest: bytes, then: str) -> None:
    """B7: even when cut within a character."""
    seen: list[dict[str, Any]] = []
    async with serving() as (api, client):
        api.watches.append(stream(bookmark("8"), rest, then=then))

        async def read() -> None:
            watch = client.watch_lines(THINGS, resource_version="7", timeout_seconds=200)
            async with aclosing(watch):
                async for line in watch:
                    seen.append(line)

        with pytest.raises(Unreachable, match="cut off"):
            await read()
    assert len(seen) == 1


async def test_a_bare_status_is_delivered_as_it_is_even_without_an_end_of_line() -> None:
    """B3, shape c: what it means is for the reflector to say."""
    status = status_body(410, "Expired")
    async with serving() as (api, client):
        api.watches.extend([stream(status), stream(json.dumps(status).encode())])
        assert await lines_of(client) == [status]
        assert await lines_of(client) == [status]


async def test_a_line_that_is_no_json_object_is_a_protocol_error() -> None:
    async with serving() as (api, client):
        for line in (CANARY.encode(), b"[]", b"\xff"):
            api.watches.append(stream(line + b"\n"))
            with pytest.raises(ProtocolError, match="no JSON object") as caught:
                await lines_of(client)
            assert CANARY not in repr(caught.value)


async def test_a_refused_watch_is_the_error_of_its_status() -> None:
    async with serving() as (api, client):
        opened: list[bool] = []
        api.watches.append(refuse(410, "Expired", CANARY, headers={"Retry-After": "3"}))
        with pytest.raises(Gone) as caught:
            await lines_of(client, SECRETS, on_open=lambda: opened.append(True))
        assert (caught.value.retry_after, opened) == (3, [])
        assert CANARY not in str(caught.value)
        await lines_of(client, on_open=lambda: opened.append(True))
        assert opened == [True]


async def test_silence_ends_a_watch_ten_seconds_after_its_timeout() -> None:
    """B6: counted from the last line, not from the start."""
    loop = asyncio.get_running_loop()
    async with serving() as (api, client):
        api.watches.append(stream(100, bookmark("8"), 100, bookmark("9"), then="silent"))
        begun = loop.time()
        with pytest.raises(Unreachable, match="fell silent"):
            await lines_of(client, timeout_seconds=200)
        assert loop.time() - begun == pytest.approx(410, abs=0.1)


async def test_bytes_without_an_end_of_line_do_not_count_as_life() -> None:
    """B6: the gap is between lines."""
    loop = asyncio.get_running_loop()
    async with serving() as (api, client):
        drip: list[Any] = [part for _ in range(100) for part in (b" ", 10)]
        api.watches.append(stream(*drip, then="silent"))
        begun = loop.time()
        with pytest.raises(Unreachable, match="fell silent"):
            await lines_of(client, timeout_seconds=200)
        assert loop.time() - begun == pytest.approx(210, abs=0.1)


async def test_a_slow_consumer_is_no_silence_of_the_server() -> None:
    async with serving() as (api, client):
        api.watches.append(stream(bookmark("8"), 1, bookmark("9")))
        watch = client.watch_lines(THINGS, resource_version="7", timeout_seconds=20)
        seen = 0
        async with aclosing(watch):
            async for _ in watch:
                seen += 1
                await asyncio.sleep(500)
    assert seen == 2
