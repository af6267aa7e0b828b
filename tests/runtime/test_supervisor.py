"""No service dies silently (N1), and an orderly stop has an order and a budget (N2)."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from psono_operator.runtime.supervisor import StopPhase, Supervisor
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class FakeService:
    def __init__(self, name: str, run: Callable[[], Awaitable[object]] | None = None) -> None:
        self.name = name
        self._run = run
        self.state = "new"

    async def run(self) -> None:
        self.state = "running"
        try:
            if self._run is None:
                await asyncio.sleep(1e9)
            else:
                await self._run()
        except asyncio.CancelledError:
            self.state = "cancelled"
            raise
        self.state = "returned"


class Exits(list[int]):
    """Takes the place of ``os._exit``."""

    def __call__(self, code: int) -> None:
        self.append(code)


def supervise(
    *services: FakeService, phases: tuple[StopPhase, ...] = (), exits: Exits | None = None, **options: float
) -> Supervisor:
    return Supervisor(
        services, phases, clock=VirtualClock(), exit_now=exits if exits is not None else Exits(), **options
    )


async def crash() -> None:
    await asyncio.sleep(5)
    raise LookupError("hunter2")


async def give_up() -> None:
    await asyncio.sleep(5)


async def leak_a_cancellation() -> None:
    await asyncio.sleep(5)
    raise asyncio.CancelledError


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize(
    ("how", "said"),
    [
        (crash, "failed: LookupError"),
        (give_up, "returned although"),
        (leak_a_cancellation, "ended: Cancelled"),
    ],
)
async def test_a_dead_service_ends_the_process_within_a_second(
    which: int, how: Callable[[], Awaitable[object]], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """N1, faults E2: any service, raising or returning; code 1; one line that names it and holds no value."""
    services = [FakeService(f"service-{n}", how if n == which else None) for n in range(3)]
    phase_ran = []

    async def phase() -> None:
        phase_ran.append(True)

    async with asyncio.timeout(6):
        code = await supervise(*services, phases=(StopPhase("never", phase, 1),)).run()
    assert code == 1
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(lines) == 1
    assert f"service service-{which} {said}" in lines[0]
    assert "hunter2" not in caplog.text
    assert not phase_ran
    assert all(service.state == "cancelled" for n, service in enumerate(services) if n != which)


async def test_a_service_that_ignores_its_cancellation_does_not_keep_a_crashed_process() -> None:
    """N1."""

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(100)
                return
            except asyncio.CancelledError:
                continue

    exits = Exits()
    task = asyncio.create_task(
        supervise(FakeService("dies", crash), FakeService("stubborn", stubborn), exits=exits).run()
    )
    await asyncio.sleep(6.5)
    assert exits == [1]
    assert await task == 1


async def test_a_stop_runs_the_phases_in_order_and_ends_with_zero() -> None:
    """N2: services live through the phases unless one of them stops them."""
    steps: list[str] = []
    ended = asyncio.Event()
    informer, http = FakeService("informer", ended.wait), FakeService("http")

    def step(name: str) -> StopPhase:
        async def action() -> None:
            steps.append(f"{name}: {informer.state}, {http.state}")
            if name == "informers":
                ended.set()
                await asyncio.sleep(0)

        return StopPhase(name, action, 5)

    supervisor = supervise(informer, http, phases=(step("queue"), step("informers"), step("sessions")))
    running = asyncio.create_task(supervisor.run())
    await asyncio.sleep(1)
    assert not supervisor.stopping
    supervisor.request_stop()
    supervisor.request_stop()
    assert await running == 0
    assert steps == [
        "queue: running, running",
        "informers: running, running",
        "sessions: returned, running",
    ]
    assert http.state == "cancelled"
    assert asyncio.get_running_loop().time() == pytest.approx(1)


async def test_phases_have_budgets_and_all_of_them_one(caplog: pytest.LogCaptureFixture) -> None:
    """N2: a phase that hangs or fails does not keep the next from running; the grace is never exceeded."""
    began: list[tuple[str, float]] = []

    def phase(name: str, budget: float, seconds: float, error: Exception | None = None) -> StopPhase:
        async def action() -> None:
            began.append((name, round(asyncio.get_running_loop().time(), 1)))
            await asyncio.sleep(seconds)
            if error is not None:
                raise error

        return StopPhase(name, action, budget)

    supervisor = supervise(
        FakeService("x"),
        phases=(
            phase("hangs", 10, 1e6),
            phase("fails", 5, 1, ValueError("hunter2")),
            phase("times out itself", 5, 1, TimeoutError("hunter2")),
            phase("hangs too", 1e6, 1e6),
            phase("too late", 5, 0),
        ),
    )
    supervisor.request_stop()
    assert await supervisor.run() == 0
    assert began == [("hangs", 0.0), ("fails", 10.0), ("times out itself", 11.0), ("hangs too", 12.0)]
    assert asyncio.get_running_loop().time() == pytest.approx(25, abs=0.1)
    for said in (
        "hangs took longer",
        "fails failed: ValueError",
        "itself failed: TimeoutError",
        "too late skipped",
    ):
        assert said in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_crash_during_the_stop_is_told_and_the_stop_goes_on() -> None:
    """N1, N2: the later phases (the lease) matter all the more."""
    steps: list[str] = []

    async def wait() -> None:
        await asyncio.sleep(10)

    async def last() -> None:
        steps.append("last")

    supervisor = supervise(
        FakeService("dies", crash),
        FakeService("x"),
        phases=(StopPhase("w", wait, 15), StopPhase("l", last, 5)),
    )
    supervisor.request_stop()
    assert await supervisor.run() == 1
    assert steps == ["last"]


async def test_a_stop_that_cannot_end_is_ended() -> None:
    """N2: what swallows its cancellation does not outlive the grace."""

    async def swallow() -> None:
        for _ in range(100):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    exits = Exits()
    supervisor = supervise(FakeService("x", swallow), exits=exits)
    running = asyncio.create_task(supervisor.run())
    await asyncio.sleep(1)
    supervisor.request_stop()
    await asyncio.sleep(2)
    assert exits == [1]
    await running


async def test_the_second_signal_ends_the_process_at_once() -> None:
    """N2."""
    exits = Exits()

    async def wait() -> None:
        await asyncio.sleep(20)

    supervisor = supervise(FakeService("x"), phases=(StopPhase("wait", wait, 20),), exits=exits)
    running = asyncio.create_task(supervisor.run())
    await asyncio.sleep(1)
    supervisor.on_signal(signal.SIGTERM)
    await asyncio.sleep(1)
    assert exits == []
    supervisor.on_signal(signal.SIGINT)
    assert exits == [1]
    assert await running == 0


async def test_cancelling_the_supervisor_cancels_everything() -> None:
    service = FakeService("x")
    running = asyncio.create_task(supervise(service).run())
    await asyncio.sleep(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert service.state == "cancelled"


PROGRAM = """
import asyncio, sys
from psono_operator.runtime.clock import LoopClock
from psono_operator.runtime.supervisor import StopPhase, Supervisor

class Idle:
    name = "idle"
    async def run(self):
        print("running", flush=True)
        await asyncio.sleep(1000)

async def phase():
    print("stopping", flush=True)
    await asyncio.sleep(float(sys.argv[1]))

async def main():
    supervisor = Supervisor([Idle()], [StopPhase("phase", phase, 100)], clock=LoopClock())
    supervisor.install_signal_handlers(asyncio.get_running_loop())
    return await supervisor.run()

sys.exit(asyncio.run(main()))
"""


def signalled(seconds: int, *signals: signal.Signals) -> int:
    """The exit code of a real process whose stop takes ``seconds`` and that gets ``signals`` one by one."""
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(seconds)], stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        assert process.stdout is not None
        for number, word in zip(signals, ("running\n", "stopping\n"), strict=False):
            assert process.stdout.readline() == word
            process.send_signal(number)
        return process.wait(timeout=20)


@pytest.mark.parametrize(
    ("seconds", "signals", "code"),
    [(0, (signal.SIGTERM,), 0), (0, (signal.SIGINT,), 0), (600, (signal.SIGTERM, signal.SIGTERM), 1)],
)
async def test_a_real_process_obeys_real_signals(
    seconds: int, signals: tuple[signal.Signals, ...], code: int
) -> None:
    """N2: one signal stops in order, a second one at once."""
    assert signalled(seconds, *signals) == code
