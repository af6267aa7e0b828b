"""N2: a stop is orderly and short whatever is under way, and a second signal ends everything at once."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.behaviour.world import World, behaviour_with
from tests.controlplane.cluster import free_ports
from tests.faultproxy.faults import BlackHole, Silence
from tests.faults.stage import probe, proxied, psono_proxied, synced, until, watching

PHASES = 8
GRACE = 25.0


@behaviour_with(only="sandbox")
@pytest.mark.parametrize("number", range(PHASES))
async def test_a_second_signal_ends_the_process_in_any_phase(world: World, number: int) -> None:
    operator = world.operator
    assert operator is not None
    exits: list[int] = []
    supervisor = operator.supervisor
    supervisor._exit_now = exits.append
    entered, gate = asyncio.Event(), asyncio.Event()
    phases = list(supervisor._phases)
    assert len(phases) == PHASES
    usual = phases[number].action

    async def hang() -> None:
        entered.set()
        await gate.wait()
        await usual()

    phases[number] = dataclasses.replace(phases[number], action=hang, budget=10.0)
    supervisor._phases = tuple(phases)
    await synced_once(world)
    supervisor.on_signal(signal.SIGTERM)
    await asyncio.wait_for(entered.wait(), GRACE)
    assert exits == []
    supervisor.on_signal(signal.SIGTERM)
    assert exits == [1]
    gate.set()


async def synced_once(world: World) -> None:
    await world.create(world.entry(A="canary-a"), "A")
    await world.ready()


@behaviour_with(only="sandbox", start=False)
@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("WATCH", BlackHole()),
        ("WATCH", Silence()),
        ("GET", BlackHole()),
        ("PATCH", BlackHole()),
        ("POST", BlackHole()),
    ],
    ids=str,
)
async def test_a_stop_while_something_hangs_is_within_the_grace(
    world: World, method: str, fault: BlackHole | Silence
) -> None:
    """N2: also while a watch waits for its headers, and while a write is never answered."""
    async with proxied(world, start=False) as proxy:
        rule = proxy.on(method, "*").do(fault)
        await world.create(world.entry(A="canary-a"), "A")
        world.start()
        await until(lambda: asyncio.sleep(0, rule.hits > 0), 10, every=0.05)
        await asyncio.sleep(1)
        begun = asyncio.get_running_loop().time()
        assert await world.stop() == 0
        took = asyncio.get_running_loop().time() - begun
        assert took <= (1 if method in ("WATCH", "GET") else 20)


@behaviour_with(only="sandbox", start=False)
async def test_a_stop_while_psono_is_silent_and_the_api_server_is_gone(world: World) -> None:
    """The worst day: nobody answers, and the process ends in time and with 0."""
    async with psono_proxied(world) as psono, proxied(world) as proxy:
        await watching(proxy)
        psono.on("POST").do(BlackHole())
        await world.create(world.entry(A="canary-a"), "A")
        await asyncio.sleep(2)
        assert (await probe(world, "/healthz"))[0] == 200
        await proxy.dark()
        begun = asyncio.get_running_loop().time()
        assert await world.stop() == 0
        assert asyncio.get_running_loop().time() - begun <= GRACE


@behaviour_with(only="sandbox", start=False)
async def test_a_reconcile_that_can_end_does_end_before_the_stop(world: World) -> None:
    """E7, N2: a slow Psono; the value arrives, its status too, and then the process ends."""
    from tests.faultproxy.faults import Delay

    async with psono_proxied(world) as psono, proxied(world) as proxy:
        await watching(proxy)
        psono.on("POST").do(Delay(5))
        await world.create(world.entry(A="canary-a"), "A")
        await asyncio.sleep(1)
        assert await world.stop() == 0
        assert await world.data() == {"A": "canary-a"}
        assert (await world.condition())["status"] == "True"
        world.start()
        await synced(world, 5)


def test_a_signal_before_anything_has_begun_is_obeyed(tmp_path: Path) -> None:
    """N2: while a credential plugin of the kubeconfig takes its time."""
    marker = tmp_path / "started"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "users": [{"name": "x", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "sh",
            "args": ["-c", f"touch {marker}; exec sleep 5"],
        }}}],
    }  # fmt: skip
    (tmp_path / "config").write_text(json.dumps(config))
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "psono_operator", "run", f"--kubeconfig={tmp_path / 'config'}"]
    with subprocess.Popen(
        [*command, f"--http-address=127.0.0.1:{port}"],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": "/nonexistent"},
    ) as process:
        end = time.monotonic() + 30
        while not marker.exists():
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        assert process.wait(timeout=20) == 0
        assert time.monotonic() - begun < 2
