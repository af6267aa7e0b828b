"""M1: a server that asks for patience gets it, and the user gets the Secret without a second read of Psono."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.behaviour.world import World, behaviour_with
from tests.faultproxy.faults import Answer
from tests.faults.stage import PSONO_SECRETS, SECRETS, proxied, synced, watching

CALLS = {
    "read of the credentials": ("GET", "*/secrets/*"),
    "finalizer": ("PATCH", "*/psonosecrets/db"),
    "target": ("POST", "*/secrets"),
    "status": ("PATCH", "*/status"),
}


@behaviour_with(only="sandbox", start=False)
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("call", CALLS)
async def test_a_call_put_off_twice_is_made_a_third_time_at_the_right_moment(
    world: World, call: str, status: int
) -> None:
    """429 for every call, 503 for those that may be made twice; the others begin the reconcile anew."""
    method, path = CALLS[call]
    async with proxied(world) as proxy:
        await watching(proxy)
        rule = proxy.on(method, path).do(Answer(status, "TooManyRequests", "3"), times=2)
        await world.create(world.entry(A="canary-a"), "A", refreshInterval="24h")
        await synced(world, 15)
        await asyncio.sleep(5)
        assert rule.hits == 2
        times = [each.at for each in proxy.sent(method, path)][:3]
        assert all(gap >= 2.99 for gap in (b - a for a, b in itertools.pairwise(times)))
        assert await world.data() == {"A": "canary-a"}
        made_anew = status == 503 and method == "POST"
        assert world.psono.count("read") == (3 if made_anew else 1)


@behaviour_with(only="sandbox", start=False)
async def test_retry_after_may_be_a_date(world: World) -> None:
    async with proxied(world) as proxy:
        await watching(proxy)
        date = "Tue, 01 Dec 2026 12:00:10 GMT"  # ten seconds after this world began
        proxy.on("POST", "*/secrets").do(Answer(429, "TooManyRequests", date), times=1)
        await world.create(world.entry(A="canary-a"), "A")
        await synced(world, 15)
        first, second = (each.at for each in proxy.sent("POST", "*/secrets"))
        assert second >= 10 > first
        assert world.psono.count("read") == 1


@behaviour_with(only="sandbox", start=False)
async def test_an_hour_is_not_slept_through_in_a_worker(world: World) -> None:
    """Retry-After 3600 on one object: another is worked on at once, even by a single worker.

    Nobody is taken at their word for that long, either: the wait is cut to a few minutes.
    """
    async with proxied(world, workers="1") as proxy:
        await watching(proxy)
        rule = proxy.on("PATCH", "*/psonosecrets/slow").do(Answer(429, "TooManyRequests", "3600"))
        entry = world.entry(A="canary-a")
        await world.create(entry, "A", name="slow", target="slow")
        await asyncio.sleep(2)
        assert rule.hits == 1
        await world.create(entry, "A")
        await synced(world, 2)
        await asyncio.sleep(3000)
        assert 3000 / 400 <= rule.hits <= 1 + 3000 / 180
        rule.off()
        await synced(world, 400, "slow")


@behaviour_with(only="sandbox", start=False)
@pytest.mark.parametrize("status", [429, 503])
async def test_lists_and_watches_keep_the_servers_pace(world: World, status: int) -> None:
    """B4, B8, M1: Retry-After is a floor for the backoff; the version is not given up."""
    async with proxied(world, start=False) as proxy:
        lists = proxy.on("GET", PSONO_SECRETS).do(Answer(status, "TooManyRequests", "20"), times=2)
        watches = proxy.on("WATCH", SECRETS).do(Answer(status, "TooManyRequests", "20"), times=2)
        await world.create(world.entry(A="canary-a"), "A")
        world.start()
        await synced(world, 50)
        await watching(proxy, 10)
        assert (lists.hits, watches.hits) == (2, 2)
        for sent in (proxy.sent("GET", PSONO_SECRETS), proxy.sent("WATCH", SECRETS)):
            gaps = [later.at - earlier.at for earlier, later in itertools.pairwise(sent[:3])]
            assert all(20 <= gap <= 23 for gap in gaps)
        assert len(proxy.sent("GET", SECRETS)) == 1


@behaviour_with(only="sandbox", start=False)
async def test_a_creation_that_was_carried_out_although_503_said_otherwise_ends_well(world: World) -> None:
    """M3: it is not sent again blindly; the next reconcile finds the Secret and says Ready."""
    async with proxied(world) as proxy:
        await watching(proxy)
        rule = proxy.on("POST", SECRETS).do(Answer(503, "ServiceUnavailable", "1", sent=True), times=1)
        await world.create(world.entry(A="canary-a"), "A")
        await synced(world, 10)
        assert rule.hits == 1
        assert await world.data() == {"A": "canary-a"}
