"""Statuses and events: on transitions only, and never at the expense of values (I1, I5, I6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from psono_operator.api.conditions import Reason
from psono_operator.api.status import SyncedTarget
from psono_operator.runtime.errors import Conflict, Forbidden
from psono_operator.runtime.ownwrites import OwnWrites
from psono_operator.runtime.resources import key_of
from psono_operator.secretsync.memory import Inputs, Memory, Seen
from psono_operator.secretsync.outcome import CleanedUp, Failed, Outcome, Synced
from psono_operator.secretsync.reporter import Reporter
from psono_operator.secretsync.status import StatusWriter
from tests.secretsync.fakes import Api, Events
from tests.secretsync.objects import UID, psono_secret
from tests.virtualtime import EPOCH, VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

KEY = key_of(psono_secret())
SEEN = Seen(Inputs(UID, 1, "", "a/1", "t/1"), good=True, next_at=300)
GOOD = Synced(
    generation=1,
    force_sync="",
    target=SyncedTarget(name="db", creation_policy="Owner", resource_version="7"),
    entries=(),
    message="all is well",
)
BAD = Failed(1, "", Reason.REMOTE_READ_FAILED, "no answer")
WORSE = Failed(1, "", Reason.TARGET_UPDATE_FAILED, "no right")
LEFT = replace(GOOD, leftover="the old one is still there")
CLEAN = CleanedUp(1, "", "all is well")
WARNED = ("Warning", "RemoteReadFailed", "no answer")
RECOVERED = ("Normal", "SecretSynchronized", "all is well")


class Stage:
    """A reporter over one stored object."""

    def __init__(self) -> None:
        self.api, self.events, self.memory = Api(psono_secret()), Events(), Memory(b"k" * 32)
        clock = VirtualClock(EPOCH)
        self.clock = clock
        status = StatusWriter(self.api, clock, OwnWrites(clock))  # type: ignore[arg-type]
        self.reporter = Reporter(status, self.memory, self.events)

    @property
    def stored(self) -> dict[str, Any]:
        return self.api.cache.objects[KEY]

    async def report(self, *outcomes: Outcome) -> list[tuple[str, str, str]]:
        self.events.seen.clear()
        for outcome in outcomes:
            await self.reporter.report(self.stored, SEEN, outcome)
        return list(self.events.seen)


@pytest.mark.parametrize(
    ("story", "events"),
    [
        ([GOOD], []),
        ([GOOD, GOOD], []),
        ([BAD], [WARNED]),
        ([BAD, BAD, BAD], [WARNED]),
        ([GOOD, BAD, BAD, GOOD, GOOD], [WARNED, RECOVERED]),
        ([BAD, WORSE], [WARNED, ("Warning", "TargetUpdateFailed", "no right")]),
        ([replace(BAD, quiet=True)], []),
        (
            [GOOD, LEFT, LEFT, CLEAN],
            [("Warning", "PreviousTargetCleanupFailed", "the old one is still there"), RECOVERED],
        ),
    ],
    ids=["first", "again", "fails", "still", "recovers", "otherwise", "quiet", "leftover"],
)
async def test_an_event_is_a_transition(story: list[Outcome], events: list[tuple[str, str, str]]) -> None:
    assert await Stage().report(*story) == events


async def test_a_status_that_cannot_be_written_is_kept_for_later() -> None:
    """H2 of the public reports: it costs no second attempt; B8: nothing is announced that is not written."""
    stage = Stage()
    stage.api.fail["patch"] = [Forbidden("PATCH x", 403)] * 2
    with pytest.raises(Forbidden):
        await stage.report(BAD)
    assert stage.events.seen == []
    obj, error = await stage.reporter.catch_up(stage.stored)
    assert isinstance(error, Forbidden)
    assert obj is stage.stored
    obj, error = await stage.reporter.catch_up(stage.stored)
    assert error is None
    assert obj is stage.stored
    assert stage.events.seen == [WARNED]
    calls = len(stage.api.calls)
    assert await stage.reporter.catch_up(stage.stored) == (stage.stored, None)
    assert len(stage.api.calls) == calls


async def test_a_late_status_tells_when_it_happened() -> None:
    stage = Stage()
    stage.api.fail["patch"] = [Forbidden("PATCH x", 403)]
    with pytest.raises(Forbidden):
        await stage.report(GOOD)
    await stage.clock.sleep(3600)
    await stage.reporter.catch_up(stage.stored)
    assert stage.stored["status"]["lastSyncTime"] == "2026-12-01T12:00:00Z"


async def test_an_event_is_judged_by_the_status_that_was_replaced() -> None:
    """The cache may be behind: another status was written meanwhile."""
    stage = Stage()
    stale = stage.stored
    await stage.report(BAD)
    stage.events.seen.clear()
    stage.api.fail["patch"] = [Conflict("PATCH x", 409)]
    await stage.reporter.report(stale, SEEN, BAD)
    assert stage.events.seen == []


async def test_nothing_is_announced_of_an_object_that_is_gone() -> None:
    """F4."""
    stage = Stage()
    gone = stage.stored
    stage.api.cache.objects.clear()
    await stage.reporter.report(gone, SEEN, BAD)
    assert stage.events.seen == []


async def test_what_is_left_to_say_of_a_predecessor_is_not_said_of_its_successor() -> None:
    """C3."""
    stage = Stage()
    stage.api.fail["patch"] = [Forbidden("PATCH x", 403)]
    with pytest.raises(Forbidden):
        await stage.report(BAD)
    calls = len(stage.api.calls)
    await stage.reporter.catch_up(psono_secret(metadata={"uid": "another"}))
    assert len(stage.api.calls) == calls
