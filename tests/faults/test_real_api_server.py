"""The same on a real API server and a real etcd: killed, stopped, compacted; and networks that lie to it."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from tests.behaviour.world import World, behaviour_with
from tests.controlplane.cluster import ControlPlane
from tests.faultproxy.faults import Answer, BlackHole, IdleCut, Repeat, Reset
from tests.faults.stage import (
    PSONO_SECRETS,
    SECRETS,
    live,
    proxied,
    ready,
    synced,
    tap,
    until,
    watching,
)


def plane_of(world: World) -> ControlPlane:
    assert world.control_plane is not None
    return world.control_plane


async def several(world: World, count: int) -> str:
    """So many PsonoSecrets that are Ready; their entry."""
    entry = world.entry(A="canary-a", B="canary-b")
    for number in range(count):
        await world.create(entry, "A", name=f"db{number}", target=f"db{number}", refreshInterval="1h")
    for number in range(count):
        await synced(world, 10, f"db{number}")
    await world.quiet()
    return entry


async def reborn(plane: ControlPlane) -> None:
    """A new API server process, with an empty watch cache."""
    plane.start("kube-apiserver")
    await asyncio.to_thread(plane.wait_ready)


@behaviour_with(only="controlplane", start=False)
@pytest.mark.parametrize("during", [True, False])
async def test_a_killed_api_server_is_caught_up_with_within_half_a_minute(world: World, during: bool) -> None:
    """Fault E8, J1: kill -9, a while of nothing, a new process; no duplicate read of Psono, no duplicate write.

    ``during``: a reconcile is under way when the server dies.
    """
    plane = plane_of(world)
    async with proxied(world) as proxy:
        entry = await several(world, 10)
        reads = world.psono.count("read")
        versions = {n: (await world.secret(f"db{n}"))["metadata"]["resourceVersion"] for n in range(10)}
        await watching(proxy)
        if during:
            proxy.on("POST", SECRETS).do(BlackHole(), times=1)
            await world.create(entry, "B", name="late", target="late")
            await asyncio.sleep(0.5)
            reads = world.psono.count("read")
        plane.stop("kube-apiserver", signal.SIGKILL)
        await until(lambda: not_ready(world), 10)
        await asyncio.sleep(5)
        assert await live(world)
        await reborn(plane)
        begun = time.monotonic()
        if not during:
            await world.create(entry, "B", name="late", target="late")
        await world.delete(world.secrets_path("db3"))
        await synced(world, 60 if during else 30, "late")
        await until(lambda: world.secret("db3"), 30)
        await until(lambda: ready(world), 30)
        assert time.monotonic() - begun <= (60 if during else 30)
        await world.quiet()
        assert world.psono.count("read") <= reads + 2 + during, (
            "one for the new object, one for the lost target"
        )
        for number in {*range(10)} - {3}:
            found = await world.secret(f"db{number}")
            assert found["metadata"]["resourceVersion"] == versions[number]


async def not_ready(world: World) -> bool:
    return not await ready(world)


@behaviour_with(only="controlplane", start=False)
async def test_an_api_server_that_is_stopped_for_a_while_goes_on_where_it_was(world: World) -> None:
    """SIGSTOP and SIGCONT: calls wait or are tried again, watches live on, nothing is read twice."""
    plane = plane_of(world)
    async with proxied(world) as proxy:
        entry = await several(world, 3)
        await watching(proxy)
        reads = world.psono.count("read")
        created = asyncio.create_task(world.create(entry, "B", name="late", target="late"))
        plane.processes["kube-apiserver"].send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(10)
            assert await live(world)
        finally:
            plane.processes["kube-apiserver"].send_signal(signal.SIGCONT)
        await created
        await synced(world, 30, "late")
        assert world.psono.count("read") <= reads + 1
        assert await ready(world)


@behaviour_with(only="controlplane", start=False)
async def test_a_version_that_etcd_has_forgotten_leads_to_a_list(world: World) -> None:
    """B3, C1, fault E5: a real 410, as etcd was compacted and the API server reborn while we were cut off."""
    plane = plane_of(world)
    async with proxied(world) as proxy:
        await several(world, 2)
        await watching(proxy)
        found: list[bytes] = []
        cut = proxy.on("WATCH").do(Reset())
        for each in proxy.open():
            each.abandon()
        await world.delete(world.secrets_path("db0"))
        for number in range(5):
            await world.annotate(world.psono_secrets_path("db1"), other=str(number))
        lists = len(proxy.sent("GET", SECRETS))
        plane.stop("kube-apiserver", signal.SIGKILL)
        plane.compact()
        await reborn(plane)
        cut.do(tap(found, b'"code":410'))
        await until(lambda: world.secret("db0"), 40)
        assert found, "the server did say 410"
        assert len(proxy.sent("GET", SECRETS)) == lists + 1
        await until(lambda: ready(world), 30)


@behaviour_with(only="controlplane", start=False)
async def test_doubled_events_and_put_off_calls_change_nothing_for_the_user(world: World) -> None:
    """C4, M1."""
    async with proxied(world) as proxy:
        proxy.on("WATCH").do(Repeat(2))
        rules = [
            proxy.on(method, path).do(Answer(429, "TooManyRequests", "1"), times=2)
            for method, path in (("POST", SECRETS), ("PATCH", "*/status"), ("GET", "*/secrets/*"))
        ]
        await several(world, 3)
        assert [rule.hits for rule in rules] == [2, 2, 2]
        assert world.psono.count("read") <= 3
        assert len([each for each in proxy.sent("POST", SECRETS) if each.status == 201]) == 3


@behaviour_with(only="controlplane", start=False)
async def test_a_black_holed_write_and_an_idle_cut_end_well(world: World) -> None:
    """B6, E7: a status that was written and never answered; watches that are cut after 10 idle seconds."""
    async with proxied(world) as proxy:
        proxy.on("WATCH").do(IdleCut(10))
        rule = proxy.on("PATCH", "*/status").do(BlackHole(sent=True), times=1)
        entry = world.entry(A="canary-a")
        await world.create(entry, "A")
        await synced(world, 10)
        await until(world._idle, 40)
        assert rule.hits == 1
        assert len(proxy.sent("WATCH", PSONO_SECRETS)) >= 2
        await world.create(entry, "A", name="late", target="late")
        await synced(world, 20, "late")
        assert len(proxy.sent("GET", PSONO_SECRETS)) == 1
