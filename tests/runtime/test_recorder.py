"""Events: few, bounded, in nobody's way (I6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from psono_operator.runtime.client import PatchKind
from psono_operator.runtime.errors import (
    AlreadyExists,
    Cause,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    Throttled,
    Unreachable,
)
from psono_operator.runtime.gate import NotLeader
from psono_operator.runtime.recorder import ENDING_SECONDS, EventRecorder
from psono_operator.runtime.resources import KubeObject, ObjectKey, Resource
from tests.runtime.objects import make_object
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class FakeEvents:
    """The events API: keeps what is created, notes each request, fails as told."""

    def __init__(self) -> None:
        self.creates: list[dict[str, Any]] = []
        self.patches: list[tuple[ObjectKey, Mapping[str, Any], PatchKind]] = []
        self.failures: list[BaseException] = []
        self.delay = 0.0

    async def create(self, resource: Resource, obj: Mapping[str, Any]) -> KubeObject:
        assert resource.collection_path("a") == "/apis/events.k8s.io/v1/namespaces/a/events"
        self.creates.append(dict(obj))
        await self._answer()
        return dict(obj)

    async def patch(
        self, resource: Resource, key: ObjectKey, body: Mapping[str, Any], kind: PatchKind
    ) -> KubeObject:
        self.patches.append((key, body, kind))
        await self._answer()
        return {}

    async def _answer(self) -> None:
        await asyncio.sleep(self.delay)
        if self.failures:
            raise self.failures.pop(0)


class Stage:
    def __init__(self, **options: int) -> None:
        self.api = FakeEvents()
        self.recorder = EventRecorder(
            self.api, VirtualClock(), controller="example.com/operator", instance="pod-1", **options
        )

    def tell(self, name: str = "x", reason: str = "Failed", note: str = "It failed.", **more: str) -> None:
        self.recorder.event(make_object(name, 7, **more), "Warning", reason, "Synchronize", note)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.recorder.run())
        yield
        assert not task.done(), "an event must be worth no one's failure"
        task.cancel()
        await asyncio.wait([task])


async def test_an_event_has_all_that_the_api_wants() -> None:
    stage = Stage()
    async with stage.running():
        stage.tell(note="ü" * 2000)
        await asyncio.sleep(1)
    [event] = stage.api.creates
    name = event.pop("metadata")
    assert name["namespace"] == "a"
    assert name["name"].startswith("x.")
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2026-12-01T12:00:00.000000Z",
        "reportingController": "example.com/operator",
        "reportingInstance": "pod-1",
        "type": "Warning",
        "reason": "Failed",
        "action": "Synchronize",
        "note": "ü" * 512,
        "regarding": {
            "apiVersion": "example.com/v1",
            "kind": "Thing",
            "namespace": "a",
            "name": "x",
            "uid": "uid-a-x",
            "resourceVersion": "7",
        },
    }


@pytest.mark.parametrize(("namespace", "expected"), [("", "default"), ("b", "b")])
async def test_names_are_short_enough_and_unique_and_cluster_scoped_objects_get_a_namespace(
    namespace: str, expected: str
) -> None:
    stage = Stage()
    async with stage.running():
        for reason in ("One", "Two"):
            stage.recorder.event(make_object("n" * 253, namespace=namespace), "Normal", reason, "Act", "")
        await asyncio.sleep(1)
    names = [event["metadata"]["name"] for event in stage.api.creates]
    assert len(set(names)) == 2
    assert all(len(name) == 253 for name in names)
    assert {event["metadata"]["namespace"] for event in stage.api.creates} == {expected}


async def test_a_thousand_failures_are_one_create_and_a_few_patches() -> None:
    """I6: whatever the notes say; the last patch holds the full count."""
    stage = Stage()
    async with stage.running():
        for n in range(1_000):
            stage.tell(note=f"attempt {n}")
            await asyncio.sleep(3)
        await asyncio.sleep(600)
    assert len(stage.api.creates) == 1
    assert 2 <= len(stage.api.patches) <= 3000 / 360 + 3
    key, body, kind = stage.api.patches[-1]
    assert key.name == stage.api.creates[0]["metadata"]["name"]
    assert kind is PatchKind.MERGE
    assert body == {"series": {"count": 1000, "lastObservedTime": "2026-12-01T12:49:57.000000Z"}}
    first = stage.api.patches[0][1]["series"]
    assert first["count"] == 2


async def test_repeats_before_the_first_was_sent_are_told_with_it_or_after_it() -> None:
    stage = Stage()
    stage.api.delay = 5
    async with stage.running():
        stage.tell()
        await asyncio.sleep(1)
        stage.tell()
        stage.tell()
        await asyncio.sleep(20)
        assert [body["series"]["count"] for _, body, _ in stage.api.patches] == [3]
    assert "series" not in stage.api.creates[0]
    waiting = Stage()
    waiting.tell()
    waiting.tell()
    async with waiting.running():
        await asyncio.sleep(1)
    assert waiting.api.creates[0]["series"]["count"] == 2
    assert waiting.api.patches == []


async def test_a_series_ends_after_six_quiet_minutes() -> None:
    stage = Stage()
    async with stage.running():
        stage.tell()
        await asyncio.sleep(359)
        stage.tell()
        await asyncio.sleep(1000)
        assert len(stage.api.creates) == 1
        stage.tell()
        await asyncio.sleep(1)
        assert len(stage.api.creates) == 2
        assert len(stage.recorder._series) == 1
        await asyncio.sleep(1000)
        assert len(stage.recorder._series) == 0
        await asyncio.sleep(3 * 3600)
        assert stage.recorder._buckets == {}


async def test_the_last_repeats_are_told_when_the_series_ends_however_slow_the_server_is() -> None:
    stage = Stage()
    stage.api.delay = 100
    async with stage.running():
        for wait in (1, 100, 100, 2000):  # each comes while the one before is being sent
            stage.tell()
            await asyncio.sleep(wait)
    assert [body["series"]["count"] for _, body, _ in stage.api.patches] == [2, 3, 4]
    assert len(stage.recorder._series) == 0


async def test_what_differs_is_another_event() -> None:
    stage = Stage()
    async with stage.running():
        stage.tell()
        stage.tell(reason="Other")
        stage.tell(name="y")
        stage.tell(uid="recreated")
        stage.recorder.event(make_object("x"), "Normal", "Failed", "Synchronize", "")
        await asyncio.sleep(1)
    assert len(stage.api.creates) == 5


async def test_one_object_cannot_fill_the_api_with_events() -> None:
    """I6: 25 at once, then one in five minutes; other objects are not affected."""
    stage = Stage()
    async with stage.running():
        for n in range(100):
            stage.tell(reason=f"Reason{n}")
        stage.tell(name="y")
        await asyncio.sleep(1)
        assert len(stage.api.creates) == 26
        assert stage.recorder.dropped == 75
        await asyncio.sleep(3600)
        for n in range(100):
            stage.tell(reason=f"Reason{n}")
        await asyncio.sleep(1)
        assert len(stage.api.creates) == 26 + 12


async def test_a_full_queue_drops_and_a_dropped_event_can_be_told_later() -> None:
    stage = Stage(queue_size=10)
    for n in range(30):
        stage.tell(name=str(n))
    assert stage.recorder.dropped == 20
    async with stage.running():
        await asyncio.sleep(1)
        assert len(stage.api.creates) == 10
        stage.tell(name="29")
        await asyncio.sleep(1)
        assert len(stage.api.creates) == 11


@pytest.mark.parametrize(
    ("failures", "requests", "dropped", "logged"),
    [
        ([Unreachable("POST"), Throttled("POST", 429)], 3, 0, False),
        ([ServerError("POST", 500)] * 3, 3, 1, True),
        ([Forbidden("POST", 403)], 1, 1, True),
        ([Forbidden("POST", 403, causes=[Cause("NamespaceTerminating", "")])], 1, 1, False),
        ([NotFound("POST", 404)], 1, 1, False),
        ([Invalid("POST", 422)], 1, 1, True),
        ([AlreadyExists("POST", 409)], 1, 0, False),
        ([NotLeader()], 1, 1, False),
        ([LookupError("hunter2")], 1, 1, True),
    ],
)
async def test_a_refused_event_is_tried_little_and_hurts_no_one(
    failures: list[BaseException],
    requests: int,
    dropped: int,
    logged: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """I6, H6, K6: few tries, silent where the namespace goes and in followers, and the next one is tried again."""
    stage = Stage()
    stage.api.failures = list(failures)
    async with stage.running():
        stage.tell()
        await asyncio.sleep(60)
        assert len(stage.api.creates) == requests
        assert stage.recorder.dropped == dropped
        assert bool(caplog.records) is logged
        assert "hunter2" not in caplog.text
        if dropped:
            stage.tell()
            await asyncio.sleep(1)
            assert len(stage.api.creates) == requests + 1
            assert "series" not in stage.api.creates[-1]


async def test_an_event_that_the_server_forgot_is_created_again() -> None:
    stage = Stage()
    async with stage.running():
        stage.tell()
        await asyncio.sleep(1)
        stage.api.failures = [NotFound("PATCH", 404)]
        stage.tell()
        await asyncio.sleep(1)
    assert len(stage.api.patches) == 1
    assert [event.get("series", {}).get("count") for event in stage.api.creates] == [None, 2]


async def test_flush_waits_for_what_was_told_but_not_for_ever() -> None:
    """N2."""
    stage = Stage()
    async with stage.running():
        assert await stage.recorder.flush(0)
        stage.api.delay = 2
        stage.tell()
        stage.tell(name="y")
        assert not await stage.recorder.flush(1)
        assert await stage.recorder.flush(10)
        assert len(stage.api.creates) == 2
        assert asyncio.get_running_loop().time() == pytest.approx(4, abs=0.1)


async def test_an_ending_namespace_is_told_nothing_more() -> None:
    """H6: one refusal is enough for all its objects; other namespaces hear as before, and it later, too."""
    stage = Stage()
    stage.api.failures = [Forbidden("POST", 403, causes=[Cause("NamespaceTerminating", "")])]
    async with stage.running():
        for name in ("x", "y", "z"):
            stage.tell(name, namespace="ending")
        stage.tell("x", namespace="lively")
        await asyncio.sleep(1)
        told = [each["metadata"]["namespace"] for each in stage.api.creates]
        assert told == ["ending", "lively"]
        await asyncio.sleep(ENDING_SECONDS + 60)
        stage.tell("x", namespace="ending")
        await asyncio.sleep(1)
        assert len(stage.api.creates) == 3, "a namespace of that name may have been made anew"
