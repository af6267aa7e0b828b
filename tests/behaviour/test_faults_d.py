"""What went wrong in others, parts D, E and H: load, retries, watches, statuses. Numbers as in docs/faults.md."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from psono_operator.psono.answers import Answer
from tests.behaviour.network import CONFLICT, FORBIDDEN, Request, Send, instead
from tests.behaviour.steps import network, writes_of
from tests.behaviour.world import World, behaviour, behaviour_with, mapping

VALUES = {"A": "canary-a", "B": "canary-b"}
DAY = {"refreshInterval": "24h"}


async def many(world: World, count: int, **spec: Any) -> list[str]:
    """So many PsonoSecrets of one key each; their names."""
    entry = world.entry(**VALUES)
    names = [f"n{number}" for number in range(count)]
    for name in names:
        await world.create(entry, "A", name=name, target=name, **spec)
    return names


async def all_ready(world: World, count: int) -> None:
    async def are() -> bool:
        listed = (await world.get(world.psono_secrets_path()))["items"]
        conditions = [each.get("status", {}).get("conditions", [{}])[0] for each in listed]
        return [each.get("status") for each in conditions] == ["True"] * count

    await world.eventually(are, within=1)


def reads(net: Any) -> int:
    return sum(each.host == "psono" for each in net.requests)


@behaviour_with(only="sandbox")
async def test_a_restart_brings_no_burst_and_the_fleet_stays_spread(world: World) -> None:
    """Fault D1: nothing at the restart, and no second with more than a few reads in three intervals after."""
    await many(world, 60, refreshInterval="5m")
    await asyncio.sleep(3)
    await all_ready(world, 60)
    await world.restart()
    at: list[float] = []

    async def noted(request: Request, send: Send) -> Any:
        if request.host == "psono":
            at.append(world.clock.monotonic())
        return await send()

    network(world, noted)
    began = world.clock.monotonic()
    await asyncio.sleep(1000)
    assert min(at) - began > 200, "a restart alone reads nothing"
    assert 150 <= len(at) <= 200
    assert max(Counter(int(each) for each in at).values()) <= 8


@behaviour_with(only="sandbox")
async def test_a_server_whose_penalty_grows_is_left_alone_until_it_is_over(world: World) -> None:
    """Fault D2: every early call would prolong it."""
    free_at, early = 0.0, 0
    penalized = False

    async def strict(request: Request, send: Send) -> Any:
        nonlocal free_at, early
        now = world.clock.monotonic()
        if request.host != "psono" or not penalized or now >= free_at > 0:
            return await send()
        early += free_at > 0
        free_at = max(free_at, now) + 10
        return Answer(429, str(int(free_at - now) + 1), b"429 Too Many Requests")

    network(world, strict)
    penalized = True
    await many(world, 40, **DAY)
    await asyncio.sleep(90)
    await all_ready(world, 40)
    assert early <= 3, "those that were on their way when the first was refused"


@behaviour_with(only="sandbox")
async def test_a_server_with_a_small_budget_serves_everybody_in_the_end(world: World) -> None:
    """Fault D3: ten requests a second, and no more."""
    calls: Counter[int] = Counter()

    async def capped(request: Request, send: Send) -> Any:
        if request.host == "psono":
            second = int(world.clock.monotonic())
            calls[second] += 1
            if calls[second] > 10:
                return Answer(429, "1", b"429 Too Many Requests")
        return await send()

    network(world, capped)
    await many(world, 60, **DAY)
    await asyncio.sleep(60)
    await all_ready(world, 60)
    assert max(calls.values()) <= 10 + 4, "nobody asks during the pause"


@behaviour_with(only="sandbox")
@pytest.mark.parametrize("wrong", ["key", "entry"])
async def test_what_stays_wrong_costs_no_more_than_what_works(world: World, wrong: str) -> None:
    """Faults D5 and D10, J4: half an hour, then two hours, of a wrong key or a missing entry."""
    if wrong == "key":
        world._secrets.add("cd" * 32)
        await world.patch(
            world.secrets_path("psono-credentials"), {"stringData": {"apiSecretKey": "cd" * 32}}
        )
    names = await many(world, 20)
    if wrong == "entry":
        obj = await world.psono_secret(names[0])
        world.psono.revoke(world.key, obj["spec"]["data"][0]["remoteRef"]["secretId"])
        for name in names:
            await world.force_sync("x", name)
    net = network(world)
    await asyncio.sleep(1800)
    first = reads(net)
    assert first <= 20 * 12
    await asyncio.sleep(7200)
    assert reads(net) - first <= 20 * 7200 / 300 + 7200 / 300, "one per five minutes, and one inspect"
    for name in names[:3]:
        await world.failing("RemoteReadFailed", name, within=1)
        assert len(await world.events(name)) == 1


@behaviour_with(only="sandbox")
async def test_hours_without_psono_end_by_themselves(world: World) -> None:
    """Fault D12: no number of attempts is the last."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, **DAY)
    await world.ready()
    world.psono.fail(502)
    world.rotate(entry, A="canary-a2", B="canary-b2")
    await world.force_sync("x")
    await asyncio.sleep(2 * 3600)
    await world.failing("RemoteReadFailed")
    world.psono.heal()
    await asyncio.sleep(330)
    await world.ready()
    assert await world.data() == {"A": "canary-a2", "B": "canary-b2"}


@behaviour_with(only="sandbox")
async def test_everybody_who_reads_from_a_silent_server_says_so_before_long(world: World) -> None:
    """Faults D10 and H6: four at a time are asked for, and all get the same message soon after."""
    world.psono.delay_seconds = 100
    names = await many(world, 100)
    await asyncio.sleep(45)
    messages = set()
    for name in names:
        messages.add((await world.condition(name)).get("message", name))
    assert len(messages) == 1, messages
    assert "no whole answer in time" in messages.pop()
    world.psono.heal()
    await asyncio.sleep(320)
    await all_ready(world, 100)


@behaviour_with(only="sandbox")
async def test_twenty_slow_entries_are_read_side_by_side(world: World) -> None:
    """Fault D14: half a second each, and all within three (four at a time)."""
    entries = [world.entry(A=f"canary-{number}") for number in range(20)]
    world.psono.delay_seconds = 0.5
    await world.create("", data=[mapping(f"K{n}", entry, "A") for n, entry in enumerate(entries)])
    await world.ready(within=3)


@behaviour_with(only="sandbox")
async def test_a_hundred_lists_anew_are_no_news(world: World) -> None:
    """Fault E9: history is compacted and every watch cut, again and again."""
    await many(world, 5, **DAY)
    await asyncio.sleep(1)
    await all_ready(world, 5)
    assert world.sandbox is not None
    net = network(world)
    listed = len(world.sandbox.journal.find("GET"))
    for number in range(100):
        await world.create_secret(f"unrelated-{number}", {"X": "canary-x"})
        world.sandbox.compact()
        world.sandbox.close_watches()
        await asyncio.sleep(40)
    assert len(world.sandbox.journal.find("GET")) - listed > 200
    assert reads(net) == 0
    assert [each for each in net.requests if each.method != "GET"] == []


@behaviour
async def test_of_fifty_edits_in_a_second_the_last_one_counts(world: World) -> None:
    """Fault E10."""
    entry = world.entry(**VALUES)
    await world.create(entry, "A", **DAY)
    for number in range(50):
        await world.patch_spec(data=[mapping(f"K{number}", entry, "A")])
    await world.target({"K49": "canary-a"}, within=2)
    await world.ready()
    assert await world.data() == {"K49": "canary-a"}


@behaviour_with(only="sandbox")
async def test_values_flow_although_every_other_status_write_is_refused(world: World) -> None:
    """Faults H1 and H2: and no refusal costs a read."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, refreshInterval="30s")
    await world.ready()
    count = 0

    async def odd(request: Request, send: Send) -> Any:
        nonlocal count
        if request.path.endswith("/status"):
            count += 1
            if count % 2:
                return CONFLICT
        return await send()

    net = network(world, odd)
    for number in range(10):
        world.rotate(entry, A=f"canary-{number}", B="canary-b")
        await asyncio.sleep(60)
        assert (await world.data() or {})["A"] == f"canary-{number}"
    assert reads(net) <= 600 / 27
    assert len(writes_of(net, world, "db")) == 10


@behaviour_with(only="sandbox")
async def test_values_flow_although_no_status_can_ever_be_written(world: World) -> None:
    """Fault H1: an admission policy or missing rights; when they are mended, the status tells the truth."""
    entry = world.entry(**VALUES)
    net = network(world, instead(FORBIDDEN, "PATCH", "/status"))
    await world.create(entry, *VALUES, refreshInterval="30s")
    for number in range(10):
        world.rotate(entry, A=f"canary-{number}", B="canary-b")
        await asyncio.sleep(60)
        assert (await world.data() or {})["A"] == f"canary-{number}"
    assert reads(net) <= 600 / 27 + 1
    assert await world.events() == []
    net.handler = instead(FORBIDDEN, "PATCH", "/status", times=0)
    await asyncio.sleep(300)
    await world.ready()


@behaviour_with(only="sandbox")
@pytest.mark.parametrize("code", [403, 422])
async def test_a_finalizer_that_may_not_be_set_is_reported(world: World, code: int) -> None:
    """Every failure is reported: here nothing is read and nothing written before it is mended (H1)."""
    refused = {403: FORBIDDEN, 422: type(FORBIDDEN)(422, FORBIDDEN.body)}[code]
    entry = world.entry(**VALUES)
    net = network(world, instead(refused, "PATCH", "/psonosecrets/db"))
    handler = net.handler

    async def but_statuses(request: Request, send: Send) -> Any:
        return await send() if request.path.endswith("/status") else await handler(request, send)

    net.handler = but_statuses
    await world.create(entry, *VALUES)
    assert f"({code})" in await world.failing("TargetUpdateFailed")
    assert reads(net) == 0
    net.handler = instead(refused, "PATCH", "/psonosecrets/db", times=0)
    await world.ready(within=10)


@behaviour_with(only="sandbox")
async def test_twenty_restarts_are_no_transition(world: World) -> None:
    """Fault H4."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, refreshInterval="1h")
    before = await world.ready()
    for _ in range(20):
        await world.restart()
        await asyncio.sleep(5)
    after = await world.psono_secret()
    assert after["status"] == before["status"]
    assert await world.events() == []


@behaviour_with(only="sandbox")
async def test_rights_that_come_back_are_noticed(world: World) -> None:
    """The authentication Secret may not be read for a while; no watch tells when it may again."""
    entry = world.entry(**VALUES)
    net = network(world, instead(FORBIDDEN, "GET", "/secrets/psono-credentials"))
    await world.create(entry, *VALUES, **DAY)
    assert "may not read" in await world.failing("AuthenticationSecretError")
    await asyncio.sleep(1000)
    net.handler = instead(FORBIDDEN, "GET", "/nothing")
    await asyncio.sleep(340)
    await world.ready()
