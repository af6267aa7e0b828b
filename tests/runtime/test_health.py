"""What probes are told (N3, N4, C7)."""

from __future__ import annotations

import asyncio

import pytest

from psono_operator.runtime.controller import Controller, Result
from psono_operator.runtime.health import (
    Check,
    HealthChecks,
    informer_progress,
    informer_synced,
    queue_progress,
    workers_progress,
)
from psono_operator.runtime.informer import Informer
from psono_operator.runtime.resources import ObjectKey
from psono_operator.runtime.store import Store
from psono_operator.runtime.workqueue import WorkQueue
from tests.runtime.objects import ScriptedReflector, key
from tests.runtime.test_workqueue import Jitterless
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def test_a_report_names_each_check_as_kubernetes_does() -> None:
    health = HealthChecks()
    health.add_readiness(Check("good", lambda: None), Check("bad", lambda: "because"))
    report = health.readiness()
    assert not report.ok
    assert report.lines == (
        "[+]shutdown ok",
        "[+]good ok",
        "[-]bad failed: because",
        "readyz check failed",
    )
    assert health.liveness().lines == ("[+]ping ok", "healthz check passed")
    assert health.liveness().ok


async def test_a_check_that_raises_has_failed_and_tells_no_value() -> None:
    """F8."""
    health = HealthChecks()

    def crash() -> str | None:
        raise ValueError("hunter2")

    health.add_liveness(Check("odd", crash))
    assert health.liveness().lines[1] == "[-]odd failed: the check failed: ValueError"


async def test_stopping_fails_readiness_and_not_liveness() -> None:
    """N2: ready=false comes first, and no restart is asked for."""
    health = HealthChecks()
    assert health.readiness().ok
    health.stopping = True
    assert not health.readiness().ok
    assert health.liveness().ok


async def test_readiness_names_the_informer_that_is_not_synced() -> None:
    """C7, N4, faults E8: not synced, then synced, then out of date."""
    reflector = ScriptedReflector()
    informer = Informer("secrets", [reflector], Store())
    health = HealthChecks()
    health.add_readiness(informer_synced(informer))
    assert health.readiness().lines[1].startswith("[-]informer-secrets failed: waiting for the first list")
    running = asyncio.create_task(informer.run())
    reflector.snapshot()
    await informer.wait_synced()
    assert health.readiness().ok
    reflector.last_error = "LIST answered 403"
    assert health.readiness().lines[1] == "[-]informer-secrets failed: LIST answered 403"
    reflector.last_error = None
    assert health.readiness().ok
    await informer.stop()
    await running


async def test_liveness_is_progress_and_not_reachability() -> None:
    """N3: an API server that is down for an hour fails nothing as long as it is tried; silence does."""
    clock, reflector = VirtualClock(), ScriptedReflector()
    informer = Informer("secrets", [reflector], Store())
    health = HealthChecks()
    health.add_liveness(informer_progress(informer, clock, 240))
    reflector.last_error = "refused"
    for _ in range(120):
        await asyncio.sleep(30)
        reflector.last_progress = clock.monotonic()
        assert health.liveness().ok
    await asyncio.sleep(241)
    assert health.liveness().lines[1] == "[-]informer-secrets-progress failed: no step for 241 s"


async def test_a_worker_that_does_not_come_back_fails_liveness() -> None:
    """N3: even one that ignores its deadline."""

    class Wedged:
        async def reconcile(self, key: ObjectKey) -> Result:
            while asyncio.get_running_loop().time() < 200:
                try:
                    await asyncio.sleep(200)
                except asyncio.CancelledError:
                    continue
            return Result()

    clock = VirtualClock()
    queue = WorkQueue("things", clock, Jitterless())
    controller = Controller("things", queue, Wedged(), clock=clock)
    health = HealthChecks()
    health.add_liveness(workers_progress(controller, 120))
    running = asyncio.create_task(controller.run())
    queue.add(key("x"))
    await asyncio.sleep(119)
    assert health.liveness().ok
    await asyncio.sleep(2)
    assert health.liveness().lines[1] == "[-]controller-things-workers failed: a reconcile has run for 121 s"
    controller.shut_down()
    await running


async def test_a_due_key_that_a_waiting_worker_does_not_get_fails_liveness() -> None:
    """N3: a lost wake-up would leave an operator that looks idle; what waits for its turn or its time does not."""
    clock = VirtualClock()
    queue = WorkQueue("things", clock, Jitterless())
    health = HealthChecks()
    health.add_liveness(queue_progress(queue, 300))
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(1000)
    assert health.liveness().ok, "there is nothing to do"
    queue._wake = lambda count: None  # type: ignore[method-assign]
    queue.add(key("x"))
    await asyncio.sleep(299)
    assert health.liveness().ok
    await asyncio.sleep(2)
    line = "[-]queue-things-progress failed: a key has been due for 301 s, and a worker waits"
    assert health.liveness().lines[1] == line
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_timer_that_was_lost_fails_liveness() -> None:
    """N3."""
    queue = WorkQueue("things", VirtualClock(), Jitterless())
    health = HealthChecks()
    health.add_liveness(queue_progress(queue, 300))
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    queue._arm = lambda now: None  # type: ignore[method-assign]
    queue.add_after(key("x"), 100)
    await asyncio.sleep(390)
    assert health.liveness().ok
    await asyncio.sleep(20)
    assert not health.liveness().ok
    waiting.cancel()
    await asyncio.wait([waiting])
