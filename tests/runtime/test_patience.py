"""M1: a call that the server put off is made again when it said, within bounds, and no other one is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from psono_operator.runtime.client import KubeClient, PatchKind
from psono_operator.runtime.errors import Throttled
from psono_operator.runtime.gate import NotLeader
from psono_operator.runtime.patience import Patience
from psono_operator.runtime.resources import ObjectKey
from tests.runtime.scriptedapi import THINGS, ScriptedApi, answer, refuse, serving_api, thing, transport_to

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

KEY = ObjectKey("a", "b")
Call = Callable[[KubeClient], Awaitable[Any]]


PUT_OFF = refuse(429, "TooManyRequests", headers={"Retry-After": "2"})
GOING = refuse(503, "ServiceUnavailable", headers={"Retry-After": "2"})
GUARDED = {"metadata": {"resourceVersion": "7"}}


@asynccontextmanager
async def patient(**options: Any) -> AsyncIterator[tuple[ScriptedApi, KubeClient]]:
    async with serving_api() as api, transport_to(api.url, **options) as transport:
        yield api, KubeClient(transport, field_manager="tester", patience=Patience(random.Random(1)))


async def test_how_long_a_client_waits_for_whom() -> None:
    """M1, M3: bounded, jittered, within the deadline, and no call twice that may have been carried out."""
    patience = Patience(random.Random(1))

    def wait(code: int, retry_after: float | None, made: int = 1, *, harmless: bool = True) -> float | None:
        error = Throttled("GET /x", code, retry_after=retry_after)
        return patience.wait(error, made, 30.0, harmless=harmless)

    waits = [wait(429, 4.0) for _ in range(200)]
    assert all(each is not None and 4.0 <= each <= 5.0 for each in waits)
    assert len(set(waits)) == 200
    assert wait(429, 0.0) is not None
    assert (wait(429, 4.0, 9), wait(429, 4.0, 10)) != (None, None)
    assert wait(429, 4.0, 10) is None
    assert wait(429, None) is None
    assert wait(429, 31.0) is None
    assert wait(429, 4.0, harmless=False) is not None
    assert wait(503, 4.0, harmless=False) is None
    assert wait(503, 4.0) is not None


CALLS: dict[str, tuple[Call, bool]] = {
    "get": (lambda c: c.get(THINGS, KEY), True),
    "replace": (lambda c: c.replace(THINGS, thing("x", "7")), True),
    "create": (lambda c: c.create(THINGS, thing("x", "")), False),
    "patch": (lambda c: c.patch(THINGS, KEY, {"spec": {}}, PatchKind.MERGE), False),
    "guarded patch": (lambda c: c.patch(THINGS, KEY, GUARDED, PatchKind.MERGE), True),
    "tested patch": (lambda c: c.patch(THINGS, KEY, [{"op": "test"}], PatchKind.JSON), True),
    "untested patch": (lambda c: c.patch(THINGS, KEY, [{"op": "add"}], PatchKind.JSON), False),
    "apply": (lambda c: c.patch(THINGS, KEY, {}, PatchKind.APPLY), True),
    "delete": (lambda c: c.delete(THINGS, KEY), False),
    "guarded delete": (lambda c: c.delete(THINGS, KEY, uid="u"), True),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_was_put_off_is_made_again_when_the_server_said(name: str) -> None:
    """M1: 429, 429, 200; after 503 only what does no harm twice."""
    call, harmless = CALLS[name]
    async with patient() as (api, client):
        api.calls.extend([PUT_OFF, PUT_OFF, answer(thing("x", "8"))])
        await call(client)
        first, second, third = (seen.at for seen in api.seen)
        assert all(2 <= gap <= 2.6 for gap in (second - first, third - second))
        api.seen.clear()
        api.calls.extend([GOING, answer(thing("x", "8"))])
        if harmless:
            await call(client)
            assert len(api.seen) == 2
        else:
            with pytest.raises(Throttled):
                await call(client)
            assert len(api.seen) == 1


async def test_patience_ends_with_the_deadline_and_after_ten_requests() -> None:
    async with patient() as (api, client):
        api.default_call = PUT_OFF
        with pytest.raises(Throttled) as caught:
            await client.get(THINGS, KEY, timeout=7)
        assert caught.value.retry_after == 2
        assert len(api.seen) in (3, 4)
        assert api.seen[-1].at <= 7
        api.seen.clear()
        api.default_call = refuse(429, headers={"Retry-After": "0"})
        with pytest.raises(Throttled):
            await client.get(THINGS, KEY)
        assert len(api.seen) == 10
        api.seen.clear()
        api.default_call = refuse(429, headers={"Retry-After": "3600"})
        with pytest.raises(Throttled):
            await client.get(THINGS, KEY)
        assert len(api.seen) == 1


async def test_the_gate_is_asked_again_before_each_request() -> None:
    """K4: the lease was lost while we waited."""

    class Gate:
        left = 100.0

        def remaining(self) -> float:
            return self.left

    gate = Gate()
    async with serving_api() as api, transport_to(api.url) as transport:
        client = KubeClient(transport, field_manager="tester", gate=gate, patience=Patience(random.Random(1)))
        api.default_call = PUT_OFF
        waiting = asyncio.create_task(client.replace(THINGS, thing("x", "7")))
        await asyncio.sleep(1)
        gate.left = 0.0
        with pytest.raises(NotLeader):
            await waiting
        assert len(api.seen) == 1


async def test_lists_are_not_repeated_here() -> None:
    """B8: the reflector has a backoff of its own."""
    async with patient() as (api, client):
        api.default_call = PUT_OFF
        with pytest.raises(Throttled):
            await client.list_page(THINGS)
        assert len(api.seen) == 1
