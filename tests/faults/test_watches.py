"""A watch that is silent, cut, wrong, expired or short-lived: what the operator still sees, and when."""

from __future__ import annotations

import asyncio
import logging
import os
import random

import pytest

from tests.behaviour.world import World, behaviour_with
from tests.faultproxy.exchange import Exchange, Proceed
from tests.faultproxy.faults import Cut, EndAfter, Expired, ExpiredShape, IdleCut, Repeat, Reset, Silence
from tests.faults.stage import (
    PSONO_SECRETS,
    SECRETS,
    live,
    metric,
    proxied,
    ready,
    synced,
    tap,
    until,
    watching,
)

SILENCE_LIMIT = 230 + 10
"""Seconds: the longest watch timeout and the margin (B1, B6)."""


@behaviour_with(only="sandbox", start=False)
async def test_a_watch_that_is_silent_after_its_headers_is_given_up_in_time(world: World) -> None:
    """B6, fault E4."""
    async with proxied(world) as proxy:
        rule = proxy.on("WATCH", PSONO_SECRETS).do(Silence(), times=1)
        await watching(proxy)
        await world.create(world.entry(A="canary-a"), "A")
        await asyncio.sleep(100)
        assert await world.data() is None
        assert await synced(world, SILENCE_LIMIT) > 0
        assert rule.hits == 1
        assert len(proxy.sent("WATCH", PSONO_SECRETS)) == 2
        assert len(proxy.sent("GET", PSONO_SECRETS)) == 1, "no list: the version was still good"


@behaviour_with(only="sandbox", start=False)
async def test_established_watches_that_are_forgotten_without_a_word_are_given_up_in_time(
    world: World,
) -> None:
    """B6, faults E4: no FIN, no RST, no more packets. Liveness holds, and so does the cache."""
    async with proxied(world) as proxy:
        entry = world.entry(A="canary-a", B="canary-b")
        await world.create(entry, "A", refreshInterval="24h")
        await world.ready()
        await watching(proxy)
        for each in proxy.open():
            each.muted = True
        await world.patch_spec(
            data=[{"secretKey": "B", "remoteRef": {"secretId": entry, "environmentVariable": "B"}}]
        )
        await world.delete(world.secrets_path("db"))
        await asyncio.sleep(60)
        assert await world.secret() is None
        assert await live(world)
        await synced(world, SILENCE_LIMIT)
        assert await world.data() == {"B": "canary-b"}


@behaviour_with(start=False)
@pytest.mark.parametrize("politely", [False, True])
async def test_a_watch_cut_within_a_line_goes_on_at_once_and_invents_nothing(
    world: World, politely: bool
) -> None:
    """B7: half an event is no event, and the version stands still."""
    async with proxied(world) as proxy:
        await watching(proxy)
        rules = [
            proxy.on("WATCH", path).do(Cut(politely=politely), times=1) for path in (PSONO_SECRETS, SECRETS)
        ]
        for each in proxy.open():
            each.abandon()
        await asyncio.sleep(2)
        entry = world.entry(A="canary-a")
        await world.create(entry, "A")
        await synced(world, 5)
        assert [rule.hits for rule in rules] == [1, 1]
        await world.delete(world.secrets_path("db"))
        await world.target({"A": "canary-a"})
        assert len(proxy.sent("GET", PSONO_SECRETS)) == len(proxy.sent("GET", SECRETS)) == 1


@behaviour_with(only="sandbox", start=False)
async def test_an_event_that_never_came_is_healed_by_the_safety_relist(world: World) -> None:
    """C6, and a metric says that it was needed."""
    async with proxied(world) as proxy:
        proxy.on("WATCH", PSONO_SECRETS).do(Repeat(0))
        await watching(proxy)
        await world.create(world.entry(A="canary-a"), "A")
        await asyncio.sleep(1800)
        assert await world.data() is None
        assert await metric(world, "informer_relist_differences") == 0
        await until(world.data, 1.2 * 3600 + SILENCE_LIMIT - 1800, every=10)
        assert await metric(world, "informer_relist_differences", informer="psonosecrets") >= 1


@behaviour_with(only="sandbox", start=False)
async def test_doubled_events_cause_no_second_reconcile_read_or_write(world: World) -> None:
    """C4: the same version again is no news. The story is told calmly, then with every event doubled."""
    async with proxied(world) as proxy:
        adds = [await metric(world, "workqueue_adds_total")]
        for times in (1, 2):
            proxy.on("WATCH").do(Repeat(times))
            await watching(proxy)
            for each in proxy.open():
                each.abandon()
            names = [f"db{number}-{times}" for number in range(5)]
            for name in names:
                await world.create(world.entry(A="canary-a"), "A", name=name, target=name)
            for name in names:
                await synced(world, 35, name)
            await asyncio.sleep(20)
            adds.append(await metric(world, "workqueue_adds_total"))
        calm, doubled = adds[1] - adds[0], adds[2] - adds[1]
        assert doubled <= calm + 2
        assert world.psono.count("read") == 10
        assert len(proxy.sent("POST", SECRETS)) == len(proxy.sent("PATCH", "*/status")) == 10


@behaviour_with(only="sandbox", start=False)
@pytest.mark.parametrize("shape", ExpiredShape)
async def test_an_expired_version_leads_to_one_list_and_no_missed_deletion(
    world: World, shape: ExpiredShape
) -> None:
    """B3, C1, faults E5 and E6: while the watch was cut, the target was deleted and the version expired."""
    async with proxied(world) as proxy:
        await world.create(world.entry(A="canary-a"), "A", refreshInterval="24h")
        await world.ready()
        await watching(proxy)
        cut = proxy.on("WATCH", SECRETS).do(Reset())
        for each in proxy.open("WATCH", SECRETS):
            each.abandon()
        await world.delete(world.secrets_path("db"))
        await asyncio.sleep(5)
        limit = int((await world.get(world.secrets_path()))["metadata"]["resourceVersion"])
        answer = Expired(shape)

        async def expired(exchange: Exchange, proceed: Proceed) -> None:
            old = int(exchange.query["resourceVersion"]) < limit
            await (answer(exchange, proceed) if old else proceed())

        cut.off()
        rule = proxy.on("WATCH", SECRETS).do(expired)
        lists = len(proxy.sent("GET", SECRETS))
        await until(world.secret, 35)
        await asyncio.sleep(600)
        assert len(proxy.sent("GET", SECRETS)) - lists == 1
        assert rule.hits <= 1 + 1 + 600 / 180, "the dead version was asked for once"
        assert await ready(world)
        assert world.psono.count("read") <= 2


@behaviour_with(only="sandbox", start=False)
async def test_compaction_while_disconnected_is_a_relist(world: World) -> None:
    """Fault E5 as the sandbox's own storage does it."""
    async with proxied(world) as proxy:
        await world.create(world.entry(A="canary-a"), "A", refreshInterval="24h")
        await world.ready()
        await watching(proxy)
        cut = proxy.on("WATCH").do(Reset())
        for each in proxy.open():
            each.abandon()
        await world.delete(world.secrets_path("db"))
        await world.annotate(world.psono_secrets_path("db"), other="x")
        assert world.sandbox is not None
        world.sandbox.compact()
        found: list[bytes] = []
        cut.do(tap(found, b'"code":410'))
        await until(world.secret, 35)
        await asyncio.sleep(300)
        assert len(found) == 2
        assert len(proxy.sent("GET", SECRETS)) == len(proxy.sent("GET", PSONO_SECRETS)) == 2


@behaviour_with(only="sandbox", start=False)
@pytest.mark.parametrize("silently", [False, True])
async def test_a_load_balancer_that_cuts_idle_streams_is_no_event(
    world: World, silently: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault E7, B8: half an hour behind a 45 s idle cut: nothing above info, and news come at once.

    When the cut is silent they come when the watch is given up, as nobody can know better.
    """
    async with proxied(world) as proxy:
        proxy.on("WATCH").do(IdleCut(45, silently=silently))
        entry = world.entry(A="canary-a")
        await world.create(entry, "A", refreshInterval="24h")
        await world.ready()
        await asyncio.sleep(1800)
        assert [r.getMessage() for r in caplog.records if r.levelno > logging.INFO] == []
        assert len(proxy.sent("GET", PSONO_SECRETS)) == 1
        assert len(proxy.sent("WATCH", PSONO_SECRETS)) >= (8 if silently else 30)
        await world.create(entry, "A", name="late", target="late")
        await synced(world, SILENCE_LIMIT if silently else 3, "late")


@behaviour_with(only="sandbox", start=False)
async def test_hours_of_watches_that_are_closed_every_30_to_90_seconds(world: World) -> None:
    """Fault E4, B5: a change every other minute arrives every time, at once, and nothing piles up."""
    rng = random.Random(4)
    async with proxied(world) as proxy:
        proxy.on("WATCH").do(EndAfter(lambda: rng.uniform(30, 90)))
        entry = world.entry(A="canary-0")
        await world.create(entry, "A", refreshInterval="24h")
        await world.ready()
        tasks, files = 0, 0
        for number in range(1, 61):
            await asyncio.sleep(120 - 2)
            world.rotate(entry, A=f"canary-{number}")
            await world.force_sync(str(number))
            await asyncio.sleep(2)
            assert await world.data() == {"A": f"canary-{number}"}
            if number in (10, 60):
                before = tasks, files
                tasks, files = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
                assert number == 10 or (tasks, files) <= (before[0] + 2, before[1] + 4)
        assert len(proxy.sent("GET", PSONO_SECRETS)) <= 1 + 2 / 0.8
        assert len(proxy.sent("WATCH")) > 200
        assert await ready(world)
