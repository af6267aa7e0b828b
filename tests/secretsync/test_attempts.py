"""When the next attempt is, and how a fight over a target slows down."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.api.conditions import Reason
from psono_operator.secretsync.attempts import after_check, after_failure, after_success, cleanup_again
from psono_operator.secretsync.failures import Failure, Retry
from psono_operator.secretsync.memory import Inputs, Seen
from psono_operator.secretsync.need import CheckTarget, Synchronize, Wait, need_after
from psono_operator.secretsync.schedule import period
from tests.secretsync.objects import UID, secret

INPUTS = Inputs(uid=UID, generation=1, force_sync="", credentials="a/1", target="t/1", gate="t")
REMOTE = Failure(Reason.REMOTE_READ_FAILED, "no", Retry.BACKOFF)
REFUSED = Failure(Reason.TARGET_UPDATE_FAILED, "no", Retry.BACKOFF)


def failed(inputs: Inputs, before: Seen | None, failure: Failure = REMOTE, **changes: Any) -> Seen:
    options = {"interval": 300.0, "source": 1, "now": 100.0, "rng": random.Random(1), **changes}
    return after_failure(inputs, before, failure, **options)


def synced(inputs: Inputs, before: Seen | None, *, now: float, mended: bool = True) -> Seen:
    target = secret(version="9")
    return after_success(
        inputs, before, target, interval=300, source=1, marks={}, mended=mended, now=now
    )  # fmt: skip


@pytest.mark.parametrize(
    ("failure", "least", "most"),
    [
        (REMOTE, 1, 1.1),
        (Failure(Reason.REMOTE_READ_FAILED, "no", Retry.SLOW_BACKOFF), 15, 16.5),
        (Failure(Reason.REMOTE_READ_FAILED, "no", Retry.BACKOFF, not_before=60), 60, 66.1),
        (Failure(Reason.VALUE_EXTRACTION_FAILED, "no", Retry.INTERVAL), period(300, UID), period(300, UID)),
        (Failure(Reason.INVALID_CONFIGURATION, "no", Retry.ON_CHANGE), math.inf, math.inf),
    ],
)
def test_each_class_of_failure_has_its_wait(failure: Failure, least: float, most: float) -> None:
    """docs/architecture.md."""
    assert least <= failed(INPUTS, None, failure).next_at - 100 <= most


def test_the_wait_doubles_until_the_user_asks_for_something_else() -> None:
    """E4; a target that somebody edits is no new request."""
    seen = None
    for number in range(1, 5):
        seen = failed(replace(INPUTS, target=f"t/{number}"), seen)
        assert seen.failures == number
    for change in ({"generation": 2}, {"force_sync": "x"}, {"credentials": "a/2"}):
        assert failed(replace(INPUTS, **change), seen).failures == 1
    assert failed(INPUTS, synced(INPUTS, seen, now=1)).failures == 1


@given(st.integers(1, 40), st.floats(30, 1e6))
def test_failing_never_costs_more_than_working(failures: int, interval: float) -> None:
    """J4: not even by its jitter, and never less than half a minute apart in the end."""
    before = Seen(INPUTS, good=False, next_at=0, failures=failures)
    delay = failed(INPUTS, before, interval=interval).next_at - 100
    assert delay <= max(30.0, min(300.0, interval)) * 1.1 + 1e-6


def test_only_the_gate_reopens_a_refused_target() -> None:
    """Values that somebody else changes in it do not cost a read each."""
    seen = failed(INPUTS, None, REFUSED)
    assert isinstance(need_after(replace(INPUTS, target="t/2"), seen, 100), Wait)
    assert isinstance(need_after(replace(INPUTS, target="t/2", gate="u"), seen, 100), Synchronize)
    assert isinstance(need_after(replace(INPUTS, rivals=("u",)), seen, 100), Synchronize)


def test_a_wait_too_short_to_be_one_is_none() -> None:
    """The queue may hand out a key a rounding error early; waiting for that would spin."""
    seen = synced(INPUTS, None, now=0.0)
    assert isinstance(need_after(seen.inputs, seen, seen.next_at - 0.005), Synchronize)
    seen.repairs, seen.repaired_at = 3, 10.0
    touched = replace(seen.inputs, target="t/8")
    assert need_after(touched, seen, 13.0) == Wait(1.0)
    assert need_after(touched, seen, 14.0 - 1e-9) == CheckTarget()


def touched(seen: Seen, number: int) -> Inputs:
    return replace(seen.inputs, target=f"t/{number}", gate=f"g{number}")


@pytest.mark.parametrize("kind", ["repaired", "checked", "failing", "refused"])
def test_whoever_keeps_touching_a_target_is_answered_ever_later(kind: str) -> None:
    """Fault C3, whether the answer is a write, a check that mends an owner reference, or a failed attempt."""
    seen, now, answers = synced(INPUTS, None, now=0.0), 0.0, 0
    if kind in {"failing", "refused"}:
        seen = failed(INPUTS, None, REFUSED if kind == "refused" else REMOTE, now=0.0)
    for number in range(150):
        now += 2
        inputs = touched(seen, number)
        seen.next_at = math.inf  # whatever is due, is due for another reason
        if isinstance(need_after(inputs, seen, now), Wait):
            continue
        answers += 1
        match kind:
            case "repaired":
                seen = synced(inputs, seen, now=now)
            case "checked":
                seen = after_check(inputs, seen, secret(version="9"), mended=True, now=now)
            case _:
                seen = failed(inputs, seen, REFUSED if kind == "refused" else REMOTE, now=now)
    assert answers <= 10


def test_a_touch_now_and_then_is_answered_at_once() -> None:
    seen = synced(INPUTS, None, now=0.0)
    for number in range(1, 10):
        seen.next_at = math.inf
        assert need_after(touched(seen, number), seen, number * 100.0) == CheckTarget()
        seen = synced(touched(seen, number), seen, now=number * 100.0)
        assert seen.repairs == 1


def test_what_needs_no_mending_is_no_fight() -> None:
    """Fault C2: others may write what is theirs as often as they like."""
    seen = synced(INPUTS, None, now=0.0)
    for number in range(100):
        inputs = touched(seen, number)
        assert need_after(inputs, seen, 1.0) == CheckTarget()
        seen = after_check(inputs, seen, secret(version=str(number)), mended=False, now=1.0)
        assert seen.repairs == 0


def test_cleanup_is_tried_again_ever_later() -> None:
    seen, delays = synced(INPUTS, None, now=0.0), []
    for failures in range(1, 11):
        cleanup_again(seen, failures=failures, interval=300, now=0.0, rng=random.Random(1))
        delays.append(seen.cleanup_at)
    assert delays == sorted(delays)
    assert (round(delays[0]), round(delays[-1], -2)) == (1, 300)
