"""Status and conditions: what is written, what is forgiven, when a transition time moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.api.conditions import MESSAGE_LIMIT, Reason, format_time, parse_time, shortened
from psono_operator.api.status import (
    EMPTY_STATUS,
    PsonoSecretStatus,
    SyncedEntry,
    SyncedTarget,
    parse_status,
    ready_condition,
)

NOW = datetime(2026, 12, 1, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def test_a_status_survives_the_way_there_and_back() -> None:
    status = PsonoSecretStatus(
        observed_generation=3,
        last_sync_time=format_time(NOW),
        target=SyncedTarget(name="db", creation_policy="Owner", resource_version="77"),
        entries=(
            SyncedEntry(secret_id="a", write_date="2026-11-30T22:01:08.507281+00:00"),
            SyncedEntry(secret_id="b"),
        ),
        last_handled_force_sync="now",
        conditions=(
            ready_condition(None, reason=Reason.SECRET_SYNCHRONIZED, message="m", generation=3, now=NOW),
        ),
    )
    assert parse_status({"status": status.to_object()}) == status
    assert status.to_object()["conditions"][0] == {
        "type": "Ready", "status": "True", "observedGeneration": 3, "reason": "SecretSynchronized",
        "message": "m", "lastTransitionTime": "2026-12-01T12:00:00Z",
    }  # fmt: skip


@pytest.mark.parametrize(
    "status", [None, {}, [], "x", {"conditions": {}}, {"observedGeneration": "3"}, {"entries": [{}]}]
)
def test_an_unreadable_status_counts_as_absent(status: Any) -> None:
    assert parse_status({"status": status}) == EMPTY_STATUS


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["conditions", "type", "status", "entries", "secretId", "target", "lastSyncTime"]), inner)))  # fmt: skip
def test_no_status_makes_reading_fail(status: Any) -> None:
    parse_status({"status": status})


def test_the_transition_time_moves_only_with_the_status() -> None:
    """I2: a new reason or message keeps it."""
    first = ready_condition(None, reason=Reason.REMOTE_READ_FAILED, message="a", generation=1, now=NOW)
    second = ready_condition(first, reason=Reason.TARGET_UPDATE_FAILED, message="b", generation=2, now=LATER)
    assert second.last_transition_time == first.last_transition_time == "2026-12-01T12:00:00Z"
    third = ready_condition(second, reason=Reason.SECRET_SYNCHRONIZED, message="c", generation=2, now=LATER)
    assert (third.status, third.last_transition_time) == ("True", "2026-12-01T13:00:00Z")


def test_a_broken_transition_time_is_replaced() -> None:
    first = ready_condition(None, reason=Reason.INTERNAL_ERROR, message="a", generation=1, now=NOW)
    broken = first.model_copy(update={"last_transition_time": "yesterday"})
    again = ready_condition(broken, reason=Reason.INTERNAL_ERROR, message="a", generation=1, now=LATER)
    assert again.last_transition_time == "2026-12-01T13:00:00Z"


@pytest.mark.parametrize("text", [None, 5, "", "soon", "2026-12-01", "2026-12-01T12:00:00"])
def test_a_time_without_an_offset_is_no_time(text: object) -> None:
    """J3."""
    assert parse_time(text) is None


def test_a_long_message_is_cut_and_says_so() -> None:
    """I5: at most 1 KiB."""
    assert len(shortened("x" * 5000)) == MESSAGE_LIMIT
    assert shortened("x" * 5000).endswith("…")
    assert shortened("short") == "short"
