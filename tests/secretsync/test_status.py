"""From outcome to status to one patch (I1 to I5)."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.api.conditions import Reason
from psono_operator.api.status import EMPTY_STATUS, SyncedEntry, SyncedTarget, parse_status
from psono_operator.runtime.client import PatchKind
from psono_operator.runtime.errors import Conflict, NotFound
from psono_operator.runtime.ownwrites import OwnWrites
from psono_operator.secretsync.outcome import Failed, Outcome, Synced
from psono_operator.secretsync.status import StatusWriter, next_status, status_patch
from tests.secretsync.objects import psono_secret
from tests.virtualtime import EPOCH, VirtualClock

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
SYNCED = Synced(
    generation=2,
    force_sync="go",
    target=SyncedTarget(name="db", creation_policy="Owner", resource_version="7"),
    entries=(SyncedEntry(secret_id="e1"),),
    message="all is well",
)
FAILED = Failed(2, "go", Reason.REMOTE_READ_FAILED, "no answer")


def test_a_good_synchronization_is_reported_whole() -> None:
    assert next_status(EMPTY_STATUS, SYNCED, NOW).to_object() == {
        "observedGeneration": 2,
        "lastSyncTime": "2026-12-01T12:00:00Z",
        "target": {"name": "db", "creationPolicy": "Owner", "resourceVersion": "7"},
        "entries": [{"secretId": "e1"}],
        "lastHandledForceSync": "go",
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "observedGeneration": 2,
                "lastTransitionTime": "2026-12-01T12:00:00Z",
                "reason": "SecretSynchronized",
                "message": "all is well",
            }
        ],
    }


def test_a_failure_keeps_what_the_last_good_synchronization_left() -> None:
    """H11: the time of the last sync moves on success only."""
    good = next_status(EMPTY_STATUS, SYNCED, NOW)
    bad = next_status(good, FAILED, LATER)
    assert (bad.last_sync_time, bad.target, bad.entries) == (good.last_sync_time, good.target, good.entries)
    assert bad.ready is not None
    assert (bad.ready.status, bad.ready.reason, bad.ready.message) == (
        "False",
        "RemoteReadFailed",
        "no answer",
    )
    assert bad.ready.last_transition_time == "2026-12-01T12:05:00Z"


def test_the_same_failure_twice_is_the_same_status() -> None:
    """I5."""
    once = next_status(EMPTY_STATUS, FAILED, NOW)
    assert status_patch(once.to_object(), next_status(once, FAILED, LATER)) is None


def test_other_conditions_stay() -> None:
    foreign = {
        "type": "Suspended",
        "status": "True",
        "reason": "ByHand",
        "message": "",
        "lastTransitionTime": "x",
    }
    old = parse_status({"status": {"conditions": [foreign]}})
    assert foreign in next_status(old, FAILED, NOW).to_object()["conditions"]


def applied(stored: Any, patch: Any) -> Any:
    """RFC 7386, on what the API server stores."""
    result = copy.deepcopy(stored)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = applied(result.get(name) if isinstance(result.get(name), dict) else {}, value)
        else:
            result[name] = value
    return result


outcomes = st.builds(
    Failed,
    generation=st.integers(1, 3),
    force_sync=st.sampled_from(["", "a", "b"]),
    reason=st.sampled_from(list(Reason)[1:]),
    message=st.text(max_size=5),
) | st.builds(
    Synced,
    generation=st.integers(1, 3),
    force_sync=st.sampled_from(["", "a"]),
    target=st.builds(
        SyncedTarget, name=st.sampled_from(["x", "y"]), resource_version=st.sampled_from([None, "1"])
    ),
    entries=st.lists(st.builds(SyncedEntry, secret_id=st.sampled_from("abc")), max_size=2).map(tuple),
    message=st.text(max_size=5),
    leftover=st.sampled_from(["", "still there"]),
)


@given(st.lists(outcomes, max_size=5))
def test_patches_lead_to_the_wanted_status_and_then_to_none(steps: list[Outcome]) -> None:
    """I1."""
    stored: dict[str, Any] = {}
    for number, outcome in enumerate(steps):
        now = NOW + timedelta(seconds=number)
        wanted = next_status(parse_status({"status": stored}), outcome, now)
        patch = status_patch(stored, wanted)
        if patch is not None:
            stored = applied(stored, patch["status"])
        assert parse_status({"status": stored}) == wanted
        assert status_patch(stored, wanted) is None


class Api:
    """Answers of a client, in order: an object, or an error to raise."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []

    async def patch(self, *args: Any, **kwargs: Any) -> Any:
        return self._next("patch", args[2], kwargs.get("subresource"), args[3])

    async def get(self, *args: Any) -> Any:
        return self._next("get")

    def _next(self, *request: Any) -> Any:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


CONFLICT = Conflict("PATCH x", 409, reason="Conflict")


def writer(api: Api) -> StatusWriter:
    clock = VirtualClock(EPOCH)
    return StatusWriter(api, clock, OwnWrites(clock))  # type: ignore[arg-type]


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_conflict_is_resolved_from_the_live_object_without_another_attempt() -> None:
    """H2 of the public reports, F2, F3: the second patch carries the live version and nothing stale."""
    live = psono_secret(
        metadata={"resourceVersion": "200"}, status=next_status(EMPTY_STATUS, FAILED, NOW).to_object()
    )
    api = Api(CONFLICT, live, live)
    await writer(api).write(psono_secret(), SYNCED)
    first, _, second = api.requests
    assert (first[1]["metadata"], second[1]["metadata"]) == (
        {"resourceVersion": "100"},
        {"resourceVersion": "200"},
    )
    assert first[2:] == second[2:] == ("status", PatchKind.MERGE)
    assert second[1]["status"]["conditions"][0]["reason"] == "SecretSynchronized"


@pytest.mark.asyncio
@pytest.mark.looptime
@pytest.mark.parametrize(
    "answers",
    [
        [NotFound("PATCH x", 404)],
        [CONFLICT, NotFound("GET x", 404)],
        [CONFLICT, psono_secret(metadata={"uid": "of-its-successor"})],
    ],
    ids=["gone", "gone after a conflict", "replaced by another of its name"],
)
async def test_an_object_that_is_gone_needs_no_status(answers: list[Any]) -> None:
    """F4, C3."""
    api = Api(*answers)
    await writer(api).write(psono_secret(), SYNCED)
    assert api.answers == []


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_conflict_without_end_is_left_to_the_queue() -> None:
    """F3."""
    live = psono_secret()
    with pytest.raises(Conflict):
        await writer(Api(CONFLICT, live, CONFLICT, live, CONFLICT)).write(psono_secret(), SYNCED)


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_an_equal_status_is_not_written() -> None:
    """I1."""
    stored = next_status(EMPTY_STATUS, FAILED, NOW).to_object()
    api = Api()
    await writer(api).write(psono_secret(status=stored), FAILED)
    assert api.requests == []
