"""Due times and retries."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.secretsync.schedule import next_due, period, retry_cap, retry_delay

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def test_periods_spread_evenly_over_ten_percent() -> None:
    """J2."""
    periods = [period(300, str(uuid.UUID(int=number))) for number in range(2000)]
    assert min(periods) >= 270
    assert max(periods) <= 330
    assert sum(each < 300 for each in periods) == pytest.approx(1000, abs=100)
    assert len(set(periods)) == len(periods)


@given(st.uuids(), st.floats(30, 1e6))
def test_a_period_is_stable_and_never_below_the_minimum(uid: uuid.UUID, interval: float) -> None:
    assert period(interval, str(uid)) == period(interval, str(uid)) >= 30
    assert period(interval, str(uid)) <= interval * 1.1 + 1e-6


@pytest.mark.parametrize(
    ("synced", "due"),
    [(None, 0.0), (NOW + timedelta(seconds=1), 0.0), (NOW - timedelta(days=1), 0.0), (NOW, period(300, "u"))],
)
def test_a_time_that_is_no_help_means_due_now(synced: datetime | None, due: float) -> None:
    """J3."""
    assert next_due(synced, 300, "u", NOW) == due


def test_retries_double_to_the_cap() -> None:
    """E4, J4."""
    still = random.Random()
    still.random = lambda: 0.0  # type: ignore[method-assign]
    delays = [retry_delay(number, first=1, cap=retry_cap(3600), rng=still) for number in range(1, 12)]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


@pytest.mark.parametrize(("interval", "cap"), [(30, 30), (60, 60), (300, 300), (86400, 300)])
def test_failing_never_costs_more_than_working(interval: float, cap: float) -> None:
    """J4, D5: a day of failures is bounded by a day of refreshes, plus the first few steps."""
    assert retry_cap(interval) == cap
    rng, elapsed, attempts = random.Random(1), 0.0, 0
    while elapsed < 86400:
        attempts += 1
        elapsed += retry_delay(attempts, first=1, cap=cap, rng=rng)
    assert attempts <= 86400 / cap + 10
