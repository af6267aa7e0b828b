"""The informer between reflectors, store and handlers (C1, C7, N1, N6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from psono_operator.runtime.informer import Informer, SourceEnded
from psono_operator.runtime.notifications import Added, Deleted, Notification, Updated
from psono_operator.runtime.reflector import ChangeKind
from psono_operator.runtime.resources import KubeObject
from psono_operator.runtime.store import Store
from tests.runtime.objects import ScriptedReflector, key, make_object

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


@asynccontextmanager
async def running(
    *reflectors: ScriptedReflector, handlers: tuple[Callable[[Notification], None], ...] = ()
) -> AsyncIterator[Informer]:
    informer = Informer("things", reflectors, Store(detect_mutations=True))
    for handler in handlers:
        informer.add_handler(handler)
    task = asyncio.create_task(informer.run())
    try:
        yield informer
    finally:
        await informer.stop()
        await task


async def test_snapshots_and_changes_become_notifications_in_order() -> None:
    reflector, heard = ScriptedReflector(), list[Notification]()
    x1, x2, y1 = make_object("x", 1), make_object("x", 2), make_object("y", 1)
    async with running(reflector, handlers=(heard.append,)) as informer:
        assert "the first list of all namespaces" in (informer.problem or "")
        reflector.snapshot(x1)
        await informer.wait_synced()
        assert heard == [Added(x1, initial=True)]
        assert not informer.problem
        reflector.change(ChangeKind.ADDED, x2)  # C2: an ADDED for a known object is an update
        reflector.change(ChangeKind.MODIFIED, y1)
        reflector.change(ChangeKind.DELETED, y1)
        reflector.change(ChangeKind.DELETED, y1)
        await asyncio.sleep(1)
        assert heard[1:] == [Updated(x1, x2), Added(y1), Deleted(y1)]
        assert informer.view.get(key("x")) is x2
    assert reflector.closed


async def test_a_deletion_missed_while_disconnected_is_told_once() -> None:
    """C1."""
    reflector, heard = ScriptedReflector(), list[Notification]()
    async with running(reflector, handlers=(heard.append,)) as informer:
        reflector.snapshot(make_object("x"), make_object("y"))
        reflector.snapshot(make_object("y"))
        reflector.snapshot(make_object("y"))
        await asyncio.sleep(1)
        assert heard[2:] == [Deleted(make_object("x"), final_state_unknown=True)]
        assert informer.healed == 0


async def test_readers_never_see_half_a_snapshot() -> None:
    """C1, N6: handing out takes several turns of the loop, publishing takes none."""
    reflector = ScriptedReflector()
    sizes: set[int] = set()
    turns: list[int] = []
    async with running(reflector, handlers=(lambda _: sizes.add(len(informer.view)),)) as informer:

        async def read() -> None:
            while not informer.synced:
                sizes.add(len(informer.view))
                turns.append(1)
                await asyncio.sleep(0)

        reflector.snapshot(*(make_object(str(n)) for n in range(10_000)))
        await read()
        assert sizes == {0, 10_000}
        assert len(turns) > 30


async def test_during_a_slow_relist_readers_keep_the_old_snapshot() -> None:
    """C1."""
    reflector = ScriptedReflector()
    async with running(reflector) as informer:
        reflector.snapshot(make_object("x"))
        await informer.wait_synced()
        reflector.last_error = "GET /things answered 503"
        await asyncio.sleep(600)
        assert informer.view.get(key("x")) is not None
        assert informer.synced
        assert informer.problem == "GET /things answered 503"


async def test_several_namespaces_feed_one_store_and_all_must_be_listed() -> None:
    """C7."""
    a, b = ScriptedReflector("a"), ScriptedReflector("b")
    heard: list[Notification] = []
    async with running(a, b, handlers=(heard.append,)) as informer:
        a.snapshot(make_object("x", namespace="a"))
        await asyncio.sleep(1)
        assert not informer.synced
        assert informer.problem == "waiting for the first list of b"
        b.snapshot(make_object("x", namespace="b"))
        await informer.wait_synced()
        assert all(isinstance(n, Added) and n.initial for n in heard)
        a.snapshot()
        await asyncio.sleep(1)
        assert [o["metadata"]["namespace"] for o in informer.view.list()] == ["b"]
        a.last_progress, b.last_progress = 7.0, 5.0
        assert informer.last_progress == 5.0
        b.last_error = "no answer"
        assert informer.problem == "namespace b: no answer"


async def test_a_failing_handler_is_one_objects_problem(caplog: pytest.LogCaptureFixture) -> None:
    """N1, C1: the stream goes on, the others hear of it, and no value is logged (F8)."""
    reflector, heard = ScriptedReflector(), list[Notification]()

    def crash(notification: Notification) -> None:
        if notification.key.name == "odd":
            raise ValueError("hunter2")

    async with running(reflector, handlers=(crash, heard.append)) as informer:
        reflector.snapshot(make_object("odd"), make_object("good"))
        await informer.wait_synced()
        assert [n.key.name for n in heard] == ["odd", "good"]
        assert informer.handler_errors == 1
    assert "a/odd" in caplog.text
    assert "ValueError" in caplog.text
    assert "hunter2" not in caplog.text


async def test_differences_found_by_a_safety_relist_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """C6: a silently dropped event is healed, and someone can see that it was."""
    reflector = ScriptedReflector()
    caplog.set_level(logging.INFO)
    async with running(reflector) as informer:
        reflector.snapshot(make_object("x", 1))
        reflector.snapshot(make_object("x", 1), scheduled=True)
        reflector.snapshot(make_object("x", 2), scheduled=True)
        await asyncio.sleep(1)
        assert informer.healed == 1
    assert "1 differences" in caplog.text


@pytest.mark.parametrize("how", ["ends", "raises"])
async def test_a_reflector_that_stops_ends_the_informer_loudly(how: str) -> None:
    """N1, E2 of the faults: nothing lives on doing nothing."""
    good, bad = ScriptedReflector("a"), ScriptedReflector("b")
    informer = Informer("things", [good, bad], Store())
    if how == "ends":
        bad.end()
    else:
        bad.fail(LookupError())
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(1):
            await informer.run()
    assert caught.group_contains(SourceEnded if how == "ends" else LookupError)
    assert good.closed


async def test_a_store_that_fails_ends_the_informer() -> None:
    """N1: catch per item, crash per service."""

    class Broken(Store):
        def apply_upsert(self, obj: KubeObject) -> list[Notification]:
            raise RuntimeError

    reflector = ScriptedReflector()
    reflector.snapshot()
    reflector.change(ChangeKind.ADDED, make_object("x"))
    with pytest.raises(ExceptionGroup):
        await Informer("things", [reflector], Broken()).run()


async def test_stopping_before_the_start_and_twice_does_no_harm() -> None:
    informer = Informer("things", [ScriptedReflector()], Store())
    await informer.stop()
    await informer.run()
    await informer.stop()
    with pytest.raises(ValueError, match="at least one"):
        Informer("none", [], Store())
