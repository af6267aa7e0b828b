"""First synchronization of N PsonoSecrets: the operator beside the floor, on a real control plane.

Each measured run has a fresh control plane and a Psono double that answers after 5 ms, all on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.bench.process import Process
from tests.bench.psono import KEYS
from tests.controlplane.cluster import ControlPlane, ControlPlaneError, control_plane, free_ports
from tests.controlplane_fixture import install_crd

GROUP = "/apis/secrets.psono.com/v1alpha1"
DEADLINE = 600.0


@dataclass(frozen=True)
class Figures:
    """One measured run."""

    seconds: float
    cpu: float
    peak: float
    """MiB."""
    reads: int
    """Requests to Psono."""


class Psono:
    """The double's process."""

    def __init__(self, objects: int, namespaces: int) -> None:
        command = [sys.executable, "-m", "tests.bench.psono", str(objects), str(namespaces)]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.world: dict[str, Any] = json.loads(self._line())

    def stop(self) -> int:
        """End it; how many requests it had."""
        if self._child.stdin:
            self._child.stdin.close()
        answered = int(self._line())
        self._child.wait()
        return answered

    def _line(self) -> bytes:
        return self._child.stdout.readline() if self._child.stdout else b""


@asynccontextmanager
async def world(
    objects: int, namespaces: int
) -> AsyncIterator[tuple[ControlPlane, Psono, aiohttp.ClientSession]]:
    """A control plane with ``objects`` PsonoSecrets in it, and the double they read from."""
    psono = Psono(objects, namespaces)
    with tempfile.TemporaryDirectory() as directory, control_plane(Path(directory)) as plane:
        install_crd(plane)
        connector = aiohttp.TCPConnector(limit=32, ssl=plane.ssl_context())
        headers = {"Authorization": f"Bearer {plane.token}"}
        async with aiohttp.ClientSession(plane.url, connector=connector, headers=headers) as api:
            slots = asyncio.Semaphore(32)

            async def post(path: str, body: Any) -> None:
                async with slots, api.post(path, json=body) as answer:
                    if answer.status != 201:
                        raise SystemExit(f"POST {path}: {answer.status} {await answer.text()}")

            names = [f"team-{number}" for number in range(namespaces)]
            for name, (key, secret_key) in zip(names, psono.world["keys"], strict=True):
                await post("/api/v1/namespaces", {"metadata": {"name": name}})
                text = {"serverUrl": psono.world["url"], "apiKeyId": key, "apiSecretKey": secret_key}
                secret = {"metadata": {"name": "psono-credentials"}, "stringData": text}
                await post(f"/api/v1/namespaces/{name}/secrets", secret)
            await asyncio.gather(
                *(
                    post(
                        f"{GROUP}/namespaces/{names[number % namespaces]}/psonosecrets",
                        psono_secret(number, entry),
                    )
                    for number, entry in enumerate(psono.world["entries"])
                )
            )
            yield plane, psono, api


def psono_secret(number: int, entry: str) -> dict[str, Any]:
    """Three keys of one entry."""
    data = [{"secretKey": key, "remoteRef": {"secretId": entry, "environmentVariable": key}} for key in KEYS]
    return {
        "apiVersion": "secrets.psono.com/v1alpha1",
        "kind": "PsonoSecret",
        "metadata": {"name": f"app-{number}"},
        "spec": {
            "authentication": {"secretRef": {"name": "psono-credentials"}},
            "target": {"name": f"target-{number}"},
            "data": data,
        },
    }


async def all_ready(api: aiohttp.ClientSession, objects: int) -> None:
    """Return when every PsonoSecret is Ready, told by one watch."""
    ready: set[str] = set()
    query = {"watch": "true", "timeoutSeconds": "3600"}
    path = f"{GROUP}/psonosecrets"
    try:
        async with asyncio.timeout(DEADLINE):
            while True:  # the API server ends watches that fall behind; the next one begins with all objects
                async with api.get(path, params=query, timeout=aiohttp.ClientTimeout(total=None)) as stream:
                    buffer = b""
                    async for chunk in stream.content.iter_any():
                        *lines, buffer = (buffer + chunk).split(b"\n")
                        for line in lines:
                            if b'"reason":"SecretSynchronized"' in line:
                                ready.add(json.loads(line)["object"]["metadata"]["uid"])
                        if len(ready) >= objects:
                            return
    except TimeoutError:
        raise SystemExit(f"only {len(ready)} of {objects} became Ready") from None


async def measure(program: str, objects: int, namespaces: int) -> Figures:
    async with world(objects, namespaces) as (plane, psono, api):
        if program == "floor":
            command = ["-m", "tests.bench.floor", plane.url, str(plane.ca_file), plane.token]
        else:
            (port,) = free_ports(1)
            command = [
                "-m", "psono_operator", "run", f"--kubeconfig={plane.kubeconfig}", f"--http-address=127.0.0.1:{port}",
                "--log-level=warning",
            ]  # fmt: skip
        waiting = asyncio.create_task(all_ready(api, objects))
        await asyncio.sleep(0.5)
        begun = time.monotonic()
        process = Process([sys.executable, *command])
        ended = asyncio.create_task(asyncio.to_thread(process.wait)) if program == "operator" else None
        tasks = [waiting, ended] if ended else [waiting]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if ended and ended.done():
            waiting.cancel()
            raise SystemExit(f"the operator ended with {process.wait()}")
        await waiting
        seconds = time.monotonic() - begun
        cpu, peak = process.usage()
        process.stop()
        if ended:
            await ended
        return Figures(seconds, cpu, peak, psono.stop())


def table(objects: int, runs: dict[str, list[Figures]]) -> str:
    """Medians of each program and the ratio between them."""
    middle = {
        program: [
            statistics.median(getattr(run, name) for run in each)
            for name in ("seconds", "cpu", "peak", "reads")
        ]
        for program, each in runs.items()
    }
    ratio = [ours / floor for ours, floor in zip(middle["operator"], middle["floor"], strict=True)]
    rows = [f"{objects} PsonoSecrets, first synchronization, median of {len(runs['floor'])}"]
    rows.append(
        f"{'':10}{'start to all Ready, s':>24}{'CPU, s':>10}{'peak, MiB':>12}{'requests to Psono':>20}"
    )
    for program, (seconds, cpu, peak, reads) in middle.items():
        rows.append(f"{program:10}{seconds:>24.2f}{cpu:>10.2f}{peak:>12.1f}{reads:>20.0f}")
    rows.append(f"{'ratio':10}{ratio[0]:>24.2f}{ratio[1]:>10.2f}{ratio[2]:>12.2f}{ratio[3]:>20.2f}")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--objects", type=int, nargs="+", default=[1000], help="numbers of PsonoSecrets")
    parser.add_argument("--namespaces", type=int, default=10)
    parser.add_argument("--runs", type=int, default=2, help="runs of each program, in turn")
    options = parser.parse_args()
    try:
        for objects in options.objects:
            runs: dict[str, list[Figures]] = {"floor": [], "operator": []}
            for _ in range(options.runs):
                for program, figures in runs.items():
                    figures.append(asyncio.run(measure(program, objects, options.namespaces)))
            print(table(objects, runs), flush=True)
    except ControlPlaneError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
