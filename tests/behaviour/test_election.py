"""Several operators, one worker: fail-over as a user notices it (K3 to K6, fault E3, E12, E14)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from psono_operator.app import Operator
from psono_operator.settings import resolve
from tests.behaviour.world import World, behaviour_with
from tests.controlplane.cluster import ControlPlane, free_ports, kubeconfig_document

LEASE = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/psono-kubernetes-operator"


class Replica:
    """An operator in this process that takes part in an election."""

    def __init__(self, world: World, seed: int) -> None:
        import random

        given = {
            "http_address": "127.0.0.1:0", "watch_namespace": world.namespace,
            "leader_election_namespace": world.namespace,
        }  # fmt: skip
        self.operator = Operator(
            resolve(given, {}), world.credentials, clock=world.clock, rng=random.Random(seed), environ={}
        )
        self.task = asyncio.create_task(self.operator.run())

    @property
    def leads(self) -> bool:
        elector = self.operator.elector
        return elector is not None and elector.leads

    async def is_ready(self, world: World) -> bool:
        """What its readiness probe says."""
        await self.operator.http.wait_listening()
        host, port = self.operator.http.address
        async with world.http.get(f"http://{host}:{port}/readyz") as answer:
            return answer.status == 200

    async def end(self) -> int:
        self.operator.stop()
        return await self.task

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def two(world: World) -> tuple[Replica, Replica]:
    """Two replicas: the leader, and the standby."""
    await world.create_auth()
    replicas = [Replica(world, 1), Replica(world, 2)]

    async def one_leads() -> bool:
        return sum(each.leads for each in replicas) == 1

    await world.eventually(one_leads, within=10)
    replicas.sort(key=lambda each: not each.leads)
    return replicas[0], replicas[1]


@behaviour_with(start=False)
async def test_both_are_ready_and_one_works(world: World) -> None:
    """K6, E14: a standby keeps warm caches, is Ready, and asks Psono nothing."""
    leader, standby = await two(world)
    entry = world.entry(A="canary-a")
    await world.create(entry, "A")
    await world.ready()
    assert world.psono.count("read") == 1

    async def both_ready() -> bool:
        return await leader.is_ready(world) and await standby.is_ready(world)

    await world.eventually(both_ready)
    assert [leader.leads, standby.leads] == [True, False]
    assert await leader.end() == 0
    assert await standby.end() == 0


@behaviour_with(start=False)
async def test_after_an_orderly_stop_the_standby_works_within_three_seconds(world: World) -> None:
    """K5, E12: and what is not due is neither read nor written again (J1)."""
    leader, standby = await two(world)
    entry = world.entry(A="canary-a")
    await world.create(entry, "A")
    await world.ready()
    version = (await world.secret())["metadata"]["resourceVersion"]
    assert await leader.end() == 0
    begun = asyncio.get_running_loop().time()
    await world.create(entry, "A", name="second", target="second")
    await world.ready("second", within=3)
    assert asyncio.get_running_loop().time() - begun <= 3
    assert standby.leads
    assert world.psono.count("read") == 2
    assert (await world.secret())["metadata"]["resourceVersion"] == version
    lease = await world.get(LEASE.format(world.namespace))
    assert lease["spec"]["leaseTransitions"] >= 1
    assert await standby.end() == 0


@behaviour_with(start=False)
async def test_after_a_sudden_death_the_standby_works_when_the_lease_has_run_out(world: World) -> None:
    """K1, E3."""
    leader, standby = await two(world)
    entry = world.entry(A="canary-a")
    await leader.kill()
    await world.create(entry, "A")
    await world.ready(within=15 + 2 + 1)
    assert standby.leads
    assert await standby.end() == 0


@behaviour_with(start=False, only="sandbox")
async def test_a_stolen_lease_ends_the_process_with_1_and_without_another_write(world: World) -> None:
    """K4."""
    leader, standby = await two(world)
    await standby.end()
    lease = await world.get(LEASE.format(world.namespace))
    lease["spec"]["holderIdentity"] = "somebody-else"
    await world.call("PUT", LEASE.format(world.namespace), lease)
    assert await asyncio.wait_for(leader.task, 5) == 1


# -- real processes --------------------------------------------------------------------------------


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Operator processes, all ended afterwards."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def start_process(world: World, directory: Path, user: str) -> subprocess.Popen[bytes]:
    """An operator process with an identity of its own in the audit log."""
    plane = world.control_plane
    assert plane is not None
    done = plane.kubectl("-n", world.namespace, "create", "serviceaccount", user)
    assert done.returncode == 0, done.stderr
    account = f"{world.namespace}:{user}"
    plane.kubectl(
        "create",
        "clusterrolebinding",
        account.replace(":", "-"),
        "--clusterrole=cluster-admin",
        f"--serviceaccount={account}",
    )
    token = plane.kubectl("-n", world.namespace, "create", "token", user).stdout.strip()
    config = directory / user
    config.write_text(json.dumps(kubeconfig_document(plane.url, plane.ca_file, token)))
    (port,) = free_ports(1)
    return subprocess.Popen(
        [
            sys.executable, "-m", "psono_operator", "run", f"--kubeconfig={config}", f"--http-address=127.0.0.1:{port}",
            f"--leader-election-namespace={world.namespace}", f"--watch-namespace={world.namespace}",
        ],
        stderr=subprocess.DEVNULL, env={**os.environ, "HOME": "/nonexistent"},
    )  # fmt: skip


async def holder(world: World) -> str:
    """The identity in the lease; empty when there is none."""
    lease = await world.get(LEASE.format(world.namespace)) or {}
    return str(lease.get("spec", {}).get("holderIdentity", ""))


def writes(plane: ControlPlane, namespace: str, user: str) -> list[Any]:
    """The mutating requests of one process, but for those on its lease, from the API server's audit log."""
    assert plane.audit_log is not None
    wanted = f"system:serviceaccount:{namespace}:{user}"
    found = []
    for line in plane.audit_log.read_text().splitlines():
        event = json.loads(line)
        if event["stage"] == "ResponseComplete" and event["user"]["username"] == wanted:
            resource = event.get("objectRef", {}).get("resource")
            if event["verb"] in {"create", "update", "patch", "delete"} and resource != "leases":
                found.append((event["requestReceivedTimestamp"], event["verb"], resource))
    return found


@behaviour_with(start=False, only="controlplane")
async def test_a_leader_that_stood_still_writes_nothing_after_waking(
    world: World, tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    """K4: SIGSTOP for longer than the lease, then SIGCONT; seen from the API server's audit log."""
    await world.create_auth()
    plane = world.control_plane
    assert plane is not None
    processes.append(start_process(world, tmp_path, "first"))
    entry = world.entry(A="canary-a")
    await world.create(entry, "A")
    await world.ready(within=20)
    processes.append(start_process(world, tmp_path, "second"))
    first = await holder(world)
    processes[0].send_signal(signal.SIGSTOP)

    async def taken_over() -> bool:
        return await holder(world) not in {"", first}

    await world.eventually(taken_over, within=30)
    for number in range(20):  # work that the sleeper will find waiting when it wakes
        await world.create(entry, "A", name=f"late-{number}", target=f"late-{number}")
    for number in range(20):
        await world.ready(f"late-{number}", within=20)
    before = writes(plane, world.namespace, "first")
    processes[0].send_signal(signal.SIGCONT)
    code = await asyncio.to_thread(processes[0].wait, 20)
    assert code == 1
    assert writes(plane, world.namespace, "first") == before
    assert len(before) >= 3
    assert len(writes(plane, world.namespace, "second")) >= 60
