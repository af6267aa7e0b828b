"""What an attempt leaves behind in memory: above all, when the next one is. Pure.

A failure is retried after a delay that doubles as long as nobody asks for anything else (rule J4). Mending
a target that somebody keeps touching is counted, whether it succeeds or not, so that it slows down (fault
C3 of the public reports); see ``schedule``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace

from psono_operator.api.conditions import Reason
from psono_operator.runtime.resources import KubeObject
from psono_operator.secretsync.failures import FIRST_DELAY, Failure, Retry
from psono_operator.secretsync.memory import Inputs, Seen, gate, revision
from psono_operator.secretsync.schedule import SOON, period, repairs_in_a_row, retry_cap, retry_delay


def after_success(
    inputs: Inputs, before: Seen | None, target: KubeObject, *, interval: float, source: int,
    marks: Mapping[str, bytes], mended: bool, now: float,
) -> Seen:  # fmt: skip
    """``inputs`` hold the target as it was found, ``target`` is it now; ``mended``: it had to be written."""
    seen = Seen(inputs, good=True, next_at=now + period(interval, inputs.uid), source=source, marks=marks)
    _count_repair(seen, before, now, counts=mended)
    seen.inputs = seeing(inputs, target)
    return seen


def after_check(
    inputs: Inputs, before: Seen, target: KubeObject, *, mended: bool, now: float
) -> Seen:  # fmt: skip
    """The target was touched and holds our values; ``mended``: something else about it had to be written."""
    seen = replace(before, inputs=inputs)
    _count_repair(seen, before, now, counts=mended)
    seen.inputs = seeing(inputs, target)
    return seen


def seeing(inputs: Inputs, target: KubeObject) -> Inputs:
    """``inputs`` with the target as it is now."""
    return replace(inputs, target=revision(target), gate=gate(target))


def after_failure(
    inputs: Inputs, before: Seen | None, failure: Failure, *, interval: float, source: int, now: float,
    rng: random.Random,
) -> Seen:  # fmt: skip
    """``interval`` is infinite where the spec cannot be read; so is ``next_at`` where only a change helps."""
    again = before is not None and not before.good and before.inputs.asks_the_same(inputs)
    failures = before.failures + 1 if before is not None and again else 1
    delay = max(_delay(failure, failures, interval, inputs.uid, rng), _spread(failure.not_before, rng))
    seen = Seen(inputs, good=False, next_at=now + delay, source=source, failures=failures)
    seen.refused = failure.reason is Reason.TARGET_UPDATE_FAILED
    _count_repair(seen, before, now, counts=True)
    return seen


def cleanup_again(seen: Seen, *, failures: int, interval: float, now: float, rng: random.Random) -> None:
    """Plan the next attempt to release a previous target, after ``failures`` in a row."""
    seen.cleanup_failures = failures
    first, cap = FIRST_DELAY[Retry.BACKOFF], retry_cap(interval)
    seen.cleanup_at = now + retry_delay(failures, first=first, cap=cap, rng=rng)


def _delay(failure: Failure, failures: int, interval: float, uid: str, rng: random.Random) -> float:
    match failure.retry:
        case Retry.ON_CHANGE:
            return math.inf
        case Retry.INTERVAL:
            return period(interval, uid)
    return retry_delay(failures, first=FIRST_DELAY[failure.retry], cap=retry_cap(interval), rng=rng)


def _spread(not_before: float, rng: random.Random) -> float:
    """Everybody a server has sent away may come back at once; a tenth of the wait takes them apart."""
    return not_before * (1 + rng.random() / 10) + SOON


def _count_repair(seen: Seen, before: Seen | None, now: float, *, counts: bool) -> None:
    if before is None:
        return
    seen.repairs, seen.repaired_at = before.repairs, before.repaired_at
    if counts and before.inputs.asks_the_same(seen.inputs) and before.inputs.target != seen.inputs.target:
        seen.repairs = repairs_in_a_row(before.repairs, before.repaired_at, now)
        seen.repaired_at = now
