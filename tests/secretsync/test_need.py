"""What is to be done follows from inputs, memory and status, never from the event (C8)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from psono_operator.api.conditions import Reason, format_time
from psono_operator.api.spec import parse_spec
from psono_operator.api.status import PsonoSecretStatus, SyncedTarget, ready_condition
from psono_operator.runtime.resources import key_of
from psono_operator.secretsync.memory import Inputs, Memory, Seen
from psono_operator.secretsync.need import (
    Cause,
    CheckTarget,
    Need,
    Synchronize,
    Wait,
    need_after,
    need_from_status,
)
from psono_operator.secretsync.schedule import period
from tests.secretsync.objects import UID, psono_secret

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
INPUTS = Inputs(uid=UID, generation=1, force_sync="", credentials="a/1", target="t/1")
GOOD = Seen(INPUTS, good=True, next_at=300.0)
BAD = Seen(INPUTS, good=False, next_at=300.0)


@pytest.mark.parametrize(
    ("seen", "change", "monotonic", "need"),
    [
        (GOOD, {}, 100.0, Wait(200.0)),
        (GOOD, {}, 300.0, Synchronize(Cause.DUE)),
        (GOOD, {"generation": 2}, 100.0, Synchronize(Cause.SPEC)),
        (GOOD, {"force_sync": "x"}, 100.0, Synchronize(Cause.FORCED)),
        (GOOD, {"credentials": "a/2"}, 100.0, Synchronize(Cause.CREDENTIALS)),
        (GOOD, {"credentials": ""}, 100.0, Synchronize(Cause.CREDENTIALS)),
        (GOOD, {"target": "t/2"}, 100.0, CheckTarget()),
        (GOOD, {"target": ""}, 100.0, CheckTarget()),
        (GOOD, {"target": "t/2"}, 301.0, Synchronize(Cause.DUE)),
        (BAD, {}, 100.0, Wait(200.0)),
        (BAD, {}, 300.0, Synchronize(Cause.RETRY)),
        (BAD, {"generation": 2}, 100.0, Synchronize(Cause.SPEC)),
        (BAD, {"credentials": "a/2"}, 100.0, Synchronize(Cause.CREDENTIALS)),
        (BAD, {"target": "t/2"}, 100.0, Synchronize(Cause.DRIFT)),
    ],
)
def test_after_an_attempt_of_this_process(
    seen: Seen, change: dict[str, Any], monotonic: float, need: Need
) -> None:
    assert need_after(replace(INPUTS, **change), seen, monotonic) == need


SPEC = parse_spec(psono_secret())


def status(**changes: Any) -> PsonoSecretStatus:
    reason = changes.pop("reason", Reason.SECRET_SYNCHRONIZED)
    return PsonoSecretStatus(
        **{
            "observed_generation": 1,
            "last_sync_time": format_time(NOW - timedelta(seconds=60)),
            "target": SyncedTarget(name="db", creation_policy="Owner", resource_version="7"),
            "conditions": (ready_condition(None, reason=reason, message="m", generation=1, now=NOW),),
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("state", "change", "version", "need"),
    [
        (status(), {}, "7", Wait(period(300, UID) - 60)),
        (status(last_sync_time=None), {}, "7", Synchronize(Cause.FIRST)),
        (status(last_sync_time="yesterday"), {}, "7", Synchronize(Cause.FIRST)),
        (status(last_sync_time=format_time(NOW - timedelta(hours=1))), {}, "7", Synchronize(Cause.DUE)),
        (status(last_sync_time=format_time(NOW + timedelta(days=1))), {}, "7", Synchronize(Cause.DUE)),
        (status(), {"generation": 2}, "7", Synchronize(Cause.SPEC)),
        (status(), {"force_sync": "x"}, "7", Synchronize(Cause.FORCED)),
        (status(last_handled_force_sync="x"), {"force_sync": "x"}, "7", Wait(period(300, UID) - 60)),
        (status(), {}, "8", Synchronize(Cause.DRIFT)),
        (status(), {}, "", Synchronize(Cause.DRIFT)),
        (status(target=None), {}, "7", Synchronize(Cause.DRIFT)),
        (status(target=SyncedTarget(name="other", resource_version="7")), {}, "7", Synchronize(Cause.DRIFT)),
        (status(reason=Reason.REMOTE_READ_FAILED), {}, "7", Synchronize(Cause.RETRY)),
        (status(conditions=()), {}, "7", Synchronize(Cause.RETRY)),
    ],
)
def test_in_a_new_process(state: PsonoSecretStatus, change: dict[str, Any], version: str, need: Need) -> None:
    """J1, J3: a restart alone is no reason for anything."""
    assert need_from_status(replace(INPUTS, **change), SPEC, state, version, NOW) == need


def test_memory_is_of_an_object_not_of_a_name() -> None:
    """C3."""
    memory = Memory(b"k" * 32)
    key = key_of(psono_secret())
    memory.put(key, GOOD)
    assert memory.get(key, UID) is GOOD
    assert memory.get(key, "another-uid") is None
    memory.forget(key)
    assert len(memory) == 0


def test_marks_tell_a_touched_value_and_hold_none() -> None:
    """G7: keyed, so that a short password cannot be found from its mark."""
    memory, other = Memory(b"k" * 32), Memory(b"o" * 32)
    marks = memory.marks({"A": b"hunter2", "B": b""})
    assert memory.matches(marks, {"A": b"hunter2", "B": b""})
    for touched in (
        {"A": b"hunter3", "B": b""},
        {"A": b"hunter2"},
        {"A": b"hunter2", "B": b"", "C": b""},
        {},
    ):
        assert not memory.matches(marks, touched)
    assert not memory.matches({}, {})
    assert other.marks({"A": b"hunter2"}) != memory.marks({"A": b"hunter2"})
    assert b"hunter2" not in b"".join(marks.values())
