"""The names that operators already chart (E8)."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from psono_operator.runtime.controller import Controller, Result, RetryError, TerminalError
from psono_operator.runtime.errors import Conflict
from psono_operator.runtime.informer import Informer
from psono_operator.runtime.metrics import LoopLag, RuntimeMetrics, new_registry
from psono_operator.runtime.resources import ObjectKey
from psono_operator.runtime.store import Store
from psono_operator.runtime.workqueue import WorkQueue
from tests.runtime.objects import ScriptedReflector, key, make_object
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

EXPECTED = {
    "workqueue_depth": ("gauge", {"name"}),
    "workqueue_adds": ("counter", {"name"}),
    "workqueue_queue_duration_seconds": ("histogram", {"name"}),
    "workqueue_work_duration_seconds": ("histogram", {"name"}),
    "workqueue_unfinished_work_seconds": ("gauge", {"name"}),
    "workqueue_longest_running_processor_seconds": ("gauge", {"name"}),
    "workqueue_retries": ("counter", {"name"}),
    "controller_runtime_reconcile": ("counter", {"controller", "result"}),
    "controller_runtime_reconcile_errors": ("counter", {"controller"}),
    "controller_runtime_reconcile_time_seconds": ("histogram", {"controller"}),
    "controller_runtime_active_workers": ("gauge", {"controller"}),
    "controller_runtime_max_concurrent_reconciles": ("gauge", {"controller"}),
    "leader_election_master_status": ("gauge", {"name"}),
    "rest_client_requests": ("counter", {"code", "method", "host"}),
}


class FailsInTurn:
    def __init__(self) -> None:
        self.turns: list[BaseException | Result] = [
            Conflict("PUT /x", 409),
            RetryError("later"),
            KeyError("unexpected"),
            TerminalError("wrong"),
            Result(5),
            Result(),
        ]

    async def reconcile(self, key: ObjectKey) -> Result:
        turn = self.turns.pop(0)
        await asyncio.sleep(0.2)
        if isinstance(turn, BaseException):
            raise turn
        return turn


def families(registry: CollectorRegistry) -> dict[str, tuple[str, set[str]]]:
    return {
        family.name: (family.type, {label for sample in family.samples for label in sample.labels} - {"le"})
        for family in registry.collect()
    }


async def test_names_types_and_labels_are_the_charted_ones_from_the_start() -> None:
    """E8: every series of a known queue or controller is there with 0 before anything happened."""
    registry = CollectorRegistry()
    metrics = RuntimeMetrics(registry)
    queue = WorkQueue("things", VirtualClock(), random.Random(1), observer=metrics.queue_observer("things"))
    metrics.watch_queue(queue)
    controller = Controller(
        "things", queue, FailsInTurn(), clock=VirtualClock(), observer=metrics.controller_observer("things")
    )
    metrics.watch_controller(controller)
    metrics.leading("lease", False)
    metrics.on_response("GET", "10.0.0.1:443", "200")
    found = families(registry)
    assert {name: found[name] for name in EXPECTED} == EXPECTED
    for result in ("success", "error", "requeue_after"):
        labels = {"controller": "things", "result": result}
        assert registry.get_sample_value("controller_runtime_reconcile_total", labels) == 0
    assert registry.get_sample_value("workqueue_retries_total", {"name": "things"}) == 0
    assert (
        registry.get_sample_value("controller_runtime_max_concurrent_reconciles", {"controller": "things"})
        == 32
    )
    assert (
        registry.get_sample_value(
            "rest_client_requests_total", {"code": "200", "method": "GET", "host": "10.0.0.1:443"}
        )
        == 1
    )


async def test_queue_and_controller_are_counted_as_they_work() -> None:
    """E8; F3: a conflict is no error; no label holds the name of an object."""
    registry = new_registry()
    metrics = RuntimeMetrics(registry)
    clock = VirtualClock()
    queue = WorkQueue("things", clock, random.Random(1), observer=metrics.queue_observer("things"))
    metrics.watch_queue(queue)
    controller = Controller(
        "things", queue, FailsInTurn(), clock=clock, observer=metrics.controller_observer("things")
    )
    running = asyncio.create_task(controller.run())
    await asyncio.sleep(0)

    def value(metric: str, /, **labels: str) -> float | None:
        return registry.get_sample_value(metric, labels)

    queue.add(key("object-name"))
    await asyncio.sleep(0.1)
    metrics.refresh()
    assert value("workqueue_unfinished_work_seconds", name="things") == pytest.approx(0.1)
    assert value("workqueue_longest_running_processor_seconds", name="things") == pytest.approx(0.1)
    assert value("controller_runtime_active_workers", controller="things") == 1
    await asyncio.sleep(60)
    queue.add(key("object-name"))
    await asyncio.sleep(30)
    queue.shut_down()
    await running
    metrics.refresh()

    for result, count in (("requeue_after", 2), ("error", 3), ("success", 1)):
        assert value("controller_runtime_reconcile_total", controller="things", result=result) == count
    for name, count in (
        ("reconcile_errors", 3),
        ("reconcile_conflicts", 1),
        ("reconcile_panics", 1),
        ("terminal_reconcile_errors", 1),
        ("reconcile_timeouts", 0),
    ):
        assert value(f"controller_runtime_{name}_total", controller="things") == count
    assert value("controller_runtime_reconcile_time_seconds_count", controller="things") == 6
    assert value("controller_runtime_reconcile_time_seconds_bucket", controller="things", le="0.25") == 6
    assert value("controller_runtime_active_workers", controller="things") == 0
    assert value("workqueue_retries_total", name="things") == 3
    assert value("workqueue_adds_total", name="things") == 6
    assert value("workqueue_work_duration_seconds_count", name="things") == 6
    assert value("workqueue_queue_duration_seconds_bucket", name="things", le="0.1") == 6
    assert value("workqueue_depth", name="things") == 0
    text = generate_latest(registry).decode()
    assert "object-name" not in text
    assert "workqueue_adds_created" not in text


async def test_an_informer_shows_its_size_and_state() -> None:
    registry = CollectorRegistry()
    metrics = RuntimeMetrics(registry)
    reflector = ScriptedReflector()
    informer = Informer("secrets", [reflector], Store())
    metrics.watch_informer(informer)
    running = asyncio.create_task(informer.run())
    metrics.refresh()
    assert registry.get_sample_value("informer_synced", {"informer": "secrets"}) == 0
    reflector.snapshot(make_object("x"), make_object("y"))
    await informer.wait_synced()
    metrics.refresh()
    assert registry.get_sample_value("informer_synced", {"informer": "secrets"}) == 1
    assert registry.get_sample_value("informer_objects", {"informer": "secrets"}) == 2
    await informer.stop()
    await running


class CoarseClock(VirtualClock):
    """Sleeps too long by what the test says: a busy event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.late = 0.0

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds + self.late)


async def test_a_late_wake_up_of_the_loop_is_measured() -> None:
    """N6."""
    registry = CollectorRegistry()
    clock = CoarseClock()
    task = asyncio.create_task(LoopLag(clock, RuntimeMetrics(registry).loop_lag, interval=1).run())
    await asyncio.sleep(10.5)
    assert registry.get_sample_value("event_loop_lag_seconds_count") == 10
    assert registry.get_sample_value("event_loop_lag_seconds_bucket", {"le": "0.001"}) == 10
    clock.late = 0.3
    await asyncio.sleep(5)
    assert registry.get_sample_value("event_loop_lag_seconds_bucket", {"le": "0.25"}) == 11
    assert registry.get_sample_value("event_loop_lag_seconds_bucket", {"le": "0.5"}) > 12  # type: ignore[operator]
    task.cancel()
    await asyncio.wait([task])


async def test_taking_in_ten_thousand_objects_blocks_the_loop_for_less_than_a_breath() -> None:
    """N6: real time, generous for a shared machine; the work is linear, or this takes minutes."""
    reflector = ScriptedReflector()
    store = Store(
        {"owner": lambda obj: [obj["spec"]["owner"]], "target": lambda obj: [obj["metadata"]["name"]]}
    )
    informer = Informer("things", [reflector], store)
    queue = WorkQueue("things", VirtualClock(), random.Random(1))
    informer.add_handler(lambda notification: queue.add(notification.key))
    objects = [
        make_object(str(n), namespace=f"ns-{n % 10}", spec={"owner": f"o-{n % 7}"}) for n in range(10_000)
    ]
    running = asyncio.create_task(informer.run())
    reflector.snapshot(*objects)
    longest, last = 0.0, time.perf_counter()
    while not informer.synced:
        await asyncio.sleep(0)
        longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
    assert queue.depth == 10_000
    assert longest < 1.0
    print(f"longest block {longest * 1000:.0f} ms")
    await informer.stop()
    await running
