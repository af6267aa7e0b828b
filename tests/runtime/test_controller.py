"""From notifications to reconciles, and what each ending means for the key (C7, E4, F3, F7, N1, N2)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from psono_operator.runtime import predicates
from psono_operator.runtime.controller import (
    Controller,
    ReconcileLogFilter,
    Result,
    RetryError,
    TerminalError,
    current_reconcile,
)
from psono_operator.runtime.errors import Conflict, NotFound, ServerError, Throttled
from psono_operator.runtime.gate import NotLeader
from psono_operator.runtime.informer import Informer
from psono_operator.runtime.notifications import Added, Notification
from psono_operator.runtime.reflector import ChangeKind
from psono_operator.runtime.resources import ObjectKey
from psono_operator.runtime.store import Store
from psono_operator.runtime.workqueue import Priority, WorkQueue
from tests.runtime.objects import ScriptedReflector, key, make_object
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

Behaviour = Callable[[ObjectKey, int], Awaitable[Result]]


class FakeReconciler:
    """Notes each attempt and does what the test says; the behaviour gets the key and the attempt's number."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour
        self.attempts: list[tuple[str, float]] = []
        self.ended: list[str] = []

    async def reconcile(self, key: ObjectKey) -> Result:
        number = sum(name == key.name for name, _ in self.attempts) + 1
        self.attempts.append((key.name, round(asyncio.get_running_loop().time(), 2)))
        try:
            return await self.behaviour(key, number) if self.behaviour else Result()
        finally:
            self.ended.append(key.name)


class Heard:
    """A ControllerObserver that counts."""

    def __init__(self) -> None:
        self.active = self.most = 0
        self.results: list[str] = []
        self.kinds: list[str] = []

    def started(self) -> None:
        self.active += 1
        self.most = max(self.most, self.active)

    def ended(self, result: str, seconds: float) -> None:
        self.active -= 1
        self.results.append(result)

    def failed(self, kind: str) -> None:
        self.kinds.append(kind)


class NoJitter(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class Stage:
    """A controller with a queue, one informer and a fake reconciler."""

    def __init__(self, behaviour: Behaviour | None = None, **options: Any) -> None:
        clock = VirtualClock()
        self.heard = Heard()
        self.queue = WorkQueue("things", clock, NoJitter())
        self.reconciler = FakeReconciler(behaviour)
        self.reflector = ScriptedReflector()
        self.informer = Informer("things", [self.reflector], Store())
        self.controller = Controller(
            "things",
            self.queue,
            self.reconciler,
            clock=clock,
            informers=[self.informer],
            observer=self.heard,
            rng=NoJitter(),
            **options,
        )

    @property
    def attempts(self) -> list[tuple[str, float]]:
        return self.reconciler.attempts

    @asynccontextmanager
    async def running(self, *, synced: bool = True) -> AsyncIterator[None]:
        if synced:
            self.reflector.snapshot()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informer.run())
            group.create_task(self.controller.run())
            await asyncio.sleep(0.001)
            try:
                yield
            finally:
                self.controller.shut_down()
                await self.controller.cancel_rest()
                await self.informer.stop()
        assert self.heard.active == 0


def raising(error: BaseException) -> Behaviour:
    async def behaviour(key: ObjectKey, number: int) -> Result:
        raise error

    return behaviour


# -- wiring -----------------------------------------------------------------------------------------------


async def test_a_notification_becomes_keys_of_the_right_priority() -> None:
    """C8: predicates, mappers and priorities decide; the key is all that arrives."""

    async def behaviour(key: ObjectKey, number: int) -> Result:
        await asyncio.sleep(0.1)
        return Result()

    stage = Stage(behaviour, workers=1)
    stage.queue.add(ObjectKey("a", "first"))
    stage.controller.watch(
        stage.informer,
        lambda notification: [notification.key, ObjectKey("a", "also")],
        lambda notification: notification.key.name != "ignored",
        lambda notification: Priority.LOW if isinstance(notification, Added) else Priority.HIGH,
    )
    async with stage.running():
        stage.reflector.change(ChangeKind.ADDED, make_object("ignored"))
        stage.reflector.change(ChangeKind.ADDED, make_object("x"))
        stage.reflector.change(ChangeKind.ADDED, make_object("y", 1))
        stage.reflector.change(ChangeKind.MODIFIED, make_object("y", 2))
        await asyncio.sleep(1)
    assert [name for name, _ in stage.attempts] == ["first", "y", "also", "x"]


async def test_fifty_edits_in_a_burst_end_with_the_last_state() -> None:
    """Faults E10: the last of the edits is reconciled, however few of them are."""
    seen: list[str] = []

    async def behaviour(key: ObjectKey, number: int) -> Result:
        obj = stage.informer.view.get(key)
        assert obj is not None
        seen.append(obj["metadata"]["resourceVersion"])
        await asyncio.sleep(0.1)
        return Result()

    stage = Stage(behaviour)
    watch_all(stage)
    async with stage.running():
        for version in range(1, 51):
            stage.reflector.change(ChangeKind.MODIFIED, make_object("x", version))
            await asyncio.sleep(0.02)
        await asyncio.sleep(10)
    assert seen[-1] == "50"
    assert len(seen) < 20


def watch_all(stage: Stage, **options: Callable[[Notification], bool]) -> None:
    stage.controller.watch(
        stage.informer, lambda n: [n.key], predicates.always, lambda n: Priority.HIGH, **options
    )


async def test_new_input_resets_the_backoff_and_runs_at_once() -> None:
    """E4, C3: a changed spec, or another uid, has no failures yet; other news keeps the count."""
    stage = Stage(raising(RetryError("no", first=100)))
    watch_all(stage, new_input=predicates.generation_changed)
    async with stage.running():
        stage.reflector.change(ChangeKind.ADDED, make_object("x", 1, generation=1))
        await asyncio.sleep(350)  # attempts at 0, 100, 300
        assert stage.queue.failures(key("x")) == 3
        stage.reflector.change(ChangeKind.MODIFIED, make_object("x", 2, generation=1))
        await asyncio.sleep(10)
        assert stage.queue.failures(key("x")) == 4
        stage.reflector.change(ChangeKind.MODIFIED, make_object("x", 3, generation=2))
        await asyncio.sleep(10)
        assert stage.queue.failures(key("x")) == 1
        stage.reflector.change(ChangeKind.MODIFIED, make_object("x", 4, generation=2, uid="another"))
        await asyncio.sleep(10)
        assert stage.queue.failures(key("x")) == 1
    assert len(stage.attempts) == 6


# -- C7 ---------------------------------------------------------------------------------------------------


async def test_no_work_before_every_cache_is_synced(caplog: pytest.LogCaptureFixture) -> None:
    """C7: after the bounded wait it says so and still does not proceed."""
    stage = Stage(sync_timeout=120)
    other = ScriptedReflector()
    secrets = Informer("secrets", [other], Store())
    stage.controller.watch(secrets, lambda n: [], predicates.always, lambda n: Priority.LOW)
    stage.queue.add(key("x"))
    async with asyncio.TaskGroup() as group:
        group.create_task(secrets.run())
        async with stage.running():
            await asyncio.sleep(300)
            assert stage.attempts == []
            assert caplog.text.count("still waits for the cache secrets") == 2
            other.snapshot()
            await asyncio.sleep(1)
            assert [name for name, _ in stage.attempts] == ["x"]
        await secrets.stop()


async def test_a_stop_while_waiting_for_the_caches_is_heard() -> None:
    """N2."""
    stage = Stage()
    async with asyncio.timeout(1):
        async with stage.running(synced=False):
            pass
        await stage.controller.run()
    assert stage.attempts == []


# -- endings ----------------------------------------------------------------------------------------------


async def test_a_result_says_when_to_come_back() -> None:
    """F7, E2."""

    async def behaviour(key: ObjectKey, number: int) -> Result:
        return Result(requeue_after=60.0) if number < 3 else Result()

    stage = Stage(behaviour)
    async with stage.running():
        stage.queue.add(key("x"))
        await asyncio.sleep(1000)
    assert [round(at) for _, at in stage.attempts] == [0, 60, 120]
    assert stage.heard.results == ["requeue_after", "requeue_after", "success"]
    assert stage.heard.kinds == []


async def test_a_success_forgets_the_failures_before_it_sets_the_next_time() -> None:
    """E4."""

    async def behaviour(key: ObjectKey, number: int) -> Result:
        if number in (1, 2, 4):
            raise RetryError("not yet")
        return Result(requeue_after=10.0)

    stage = Stage(behaviour)
    async with stage.running():
        stage.queue.add(key("x"))
        await asyncio.sleep(15)
    # 1 s and 2 s after the failures, 10 s after the success, and 1 s again after the next failure.
    assert [round(at) for _, at in stage.attempts] == [0, 1, 3, 13, 14]


@pytest.mark.parametrize(("again", "expected"), [(None, [0]), (300.0, [0, 300, 600, 900])])
async def test_a_terminal_error_is_not_retried(again: float | None, expected: list[int]) -> None:
    """F7: one attempt until an input changes or the refresh is due; no retries."""
    stage = Stage(raising(TerminalError("the spec is wrong", requeue_after=again)))
    async with stage.running():
        stage.queue.add(key("x"))
        await asyncio.sleep(1000)
        assert stage.queue.failures(key("x")) == 0
    assert [round(at) for _, at in stage.attempts] == expected
    assert set(stage.heard.kinds) == {"terminal"}
    assert set(stage.heard.results) == {"error"}


class Ending(NamedTuple):
    """An error, and what must follow: the times of the attempts, how it counts, how loud it is."""

    error: BaseException
    times: list[int]
    kind: str = "error"
    result: str = "error"
    level: str = "WARNING"


@pytest.mark.parametrize(
    "ending",
    [
        Ending(RetryError("later"), [0, 1, 3, 7, 15]),
        Ending(RetryError("later", first=4, cap=8), [0, 4, 12, 20]),
        Ending(Conflict("PUT /x", 409), [0, 1, 3, 7, 15], "conflict", "requeue_after", "DEBUG"),
        Ending(NotFound("GET /x", 404), [0, 1, 3, 7, 15]),
        Ending(ServerError("GET /x", 500), [0, 1, 3, 7, 15]),
        Ending(Throttled("GET /x", 429, retry_after=9), [0, 10, 20]),
        Ending(Throttled("GET /x", 429), [0, 1, 3, 7, 15]),
        Ending(KeyError("hunter2"), [0, 1, 3, 7, 15], "unexpected", level="ERROR"),
        Ending(TimeoutError("hunter2"), [0, 1, 3, 7, 15], "unexpected", level="ERROR"),
        Ending(asyncio.CancelledError("hunter2"), [0, 1, 3, 7, 15], "unexpected", level="ERROR"),
    ],
    ids=lambda ending: type(ending.error).__name__,
)
async def test_what_fails_is_tried_again_with_backoff(
    ending: Ending, caplog: pytest.LogCaptureFixture
) -> None:
    """E4, F3, F7, M1, N1: each kind of error, when it is tried again, how it counts, how loud it is.

    A leaked cancellation from inside (the last case) must not end the worker. No foreign text is logged (F8).
    """
    caplog.set_level(logging.DEBUG, "psono_operator")
    stage = Stage(raising(ending.error), workers=1)
    async with stage.running():
        stage.queue.add(key("x"))
        await asyncio.sleep(20.5)
    assert [round(at) for _, at in stage.attempts] == ending.times
    assert set(stage.heard.kinds) == {ending.kind}
    assert set(stage.heard.results) == {ending.result}
    lines = [record for record in caplog.records if "a/x" in record.getMessage()]
    assert {record.levelname for record in lines} == {ending.level}
    assert "hunter2" not in caplog.text


async def test_an_unexpected_error_is_logged_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    """F8, N8: type and frames, no locals, no text."""

    async def behaviour(key: ObjectKey, number: int) -> Result:
        password = "hunter2"
        raise RuntimeError(password)

    stage = Stage(behaviour)
    async with stage.running():
        stage.queue.add(key("x"))
        await asyncio.sleep(0.5)
    assert "RuntimeError at test_controller.py:" in caplog.text
    assert "hunter2" not in caplog.text
    assert all(record.exc_info is None for record in caplog.records)


async def test_a_reconcile_beyond_its_deadline_is_cut_off_and_tried_again() -> None:
    """F6: the worker is free again, others went on meanwhile."""

    async def behaviour(key: ObjectKey, number: int) -> Result:
        if key.name == "slow":
            await asyncio.sleep(1e6)
        return Result()

    stage = Stage(behaviour, workers=2, reconcile_timeout=60)
    async with stage.running():
        stage.queue.add(key("slow"))
        for n in range(10):
            stage.queue.add(key(str(n)))
        await asyncio.sleep(30)
        assert len(stage.reconciler.ended) == 10
        assert stage.controller.oldest_reconcile_age() == pytest.approx(30, abs=0.1)
        await asyncio.sleep(40)
        assert [at for name, at in stage.attempts if name == "slow"] == [0.0, pytest.approx(61, abs=0.1)]
        assert stage.heard.kinds == ["timeout"]
    assert stage.controller.oldest_reconcile_age() == 0.0


async def test_one_keys_failures_are_no_ones_elses() -> None:
    """N1."""

    async def behaviour(key: ObjectKey, number: int) -> Result:
        if key.name == "bad":
            raise ZeroDivisionError
        return Result()

    stage = Stage(behaviour)
    async with stage.running():
        for name in ("bad", *map(str, range(20))):
            stage.queue.add(key(name))
        await asyncio.sleep(0.5)
    assert sorted(stage.heard.results) == ["error"] + ["success"] * 20


async def test_a_closed_gate_ends_the_controller() -> None:
    """K4: not drained, not retried; the process goes."""
    stage = Stage(raising(NotLeader()))
    stage.reflector.snapshot()
    stage.queue.add(key("x"))
    informer = asyncio.create_task(stage.informer.run())
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(1):
            await stage.controller.run()
    assert caught.group_contains(NotLeader)
    assert stage.queue.failures(key("x")) == 0
    await stage.informer.stop()
    await informer


async def test_no_more_reconciles_run_at_once_than_there_are_workers() -> None:
    async def behaviour(key: ObjectKey, number: int) -> Result:
        await asyncio.sleep(1)
        return Result()

    stage = Stage(behaviour, workers=7)
    async with stage.running():
        for n in range(50):
            stage.queue.add(key(str(n)))
        await asyncio.sleep(20)
    assert stage.heard.most == 7
    assert len(stage.attempts) == 50


async def test_every_log_line_of_a_reconcile_names_it(caplog: pytest.LogCaptureFixture) -> None:
    """N8: key and reconcile id, in the tasks that the reconcile starts too, and nowhere else."""
    log = logging.getLogger("psono_operator.test")

    async def behaviour(key: ObjectKey, number: int) -> Result:
        async with asyncio.TaskGroup() as group:
            group.create_task(note())
        return Result()

    async def note() -> None:
        log.info("inside")

    caplog.set_level(logging.INFO, "psono_operator")
    caplog.handler.addFilter(filter_ := ReconcileLogFilter())
    try:
        stage = Stage(behaviour)
        async with stage.running():
            stage.queue.add(key("x"))
            stage.queue.add(key("y"))
            await asyncio.sleep(0.5)
            log.info("outside")
    finally:
        caplog.handler.removeFilter(filter_)
    said = {
        (record.getMessage(), getattr(record, "key", None), getattr(record, "controller", None))
        for record in caplog.records
        if record.name == log.name
    }
    ids = {
        getattr(record, "reconcile_id", "") for record in caplog.records if record.getMessage() == "inside"
    }
    assert said == {("inside", "a/x", "things"), ("inside", "a/y", "things"), ("outside", "", "")}
    assert len(ids) == 2
    assert all(len(id_) == 8 for id_ in ids)
    assert current_reconcile.get() is None


# -- the end ----------------------------------------------------------------------------------------------


async def test_a_stop_lets_running_reconciles_finish_and_cancels_what_takes_too_long() -> None:
    """N2, E7: what is pending never starts, what is quick finishes, the rest is cancelled."""

    async def behaviour(key: ObjectKey, number: int) -> Result:
        await asyncio.sleep(5 if key.name == "quick" else 50)
        return Result()

    stage = Stage(behaviour, workers=2)
    stage.reflector.snapshot()
    for name in ("quick", "slow", "pending"):
        stage.queue.add(key(name))
    informer = asyncio.create_task(stage.informer.run())
    running = asyncio.create_task(stage.controller.run())
    await asyncio.sleep(1)
    stage.controller.shut_down()
    assert await stage.controller.drain(10) is False
    await stage.controller.cancel_rest()
    async with asyncio.timeout(0.1):
        await running
    assert [name for name, _ in stage.attempts] == ["quick", "slow"]
    assert stage.heard.results == ["success", "canceled"]
    assert asyncio.get_running_loop().time() == pytest.approx(11, abs=0.1)
    await stage.informer.stop()
    await informer
