"""When a PsonoSecret is due, and how long to wait after a failure. Pure.

Due times come from the status, so that a restart changes nothing (rule J1); the jitter comes from the uid,
so that it is the same for every process (J2).
"""

from __future__ import annotations

import hashlib
import random
from datetime import datetime

from psono_operator.api.spec import MINIMUM_INTERVAL

SOON = 0.01
"""Seconds that count as none: the queue may hand out a key a rounding error early, and a wait shorter than
that would bring it back at once, and again."""

JITTER = 0.1
"""The period of an object differs from its interval by at most this share."""


def period(interval: float, uid: str) -> float:
    """Seconds between two refreshes of the object ``uid``: the interval, ±10 %, at least 30."""
    digest = hashlib.blake2b(uid.encode(), digest_size=8).digest()
    share = int.from_bytes(digest, "big") / 2**64  # 0 ≤ share < 1
    return max(MINIMUM_INTERVAL, interval * (1 - JITTER + 2 * JITTER * share))


def next_due(synced_at: datetime | None, interval: float, uid: str, now: datetime) -> float:
    """Seconds until the next refresh; 0 when it is due.

    A time that is missing or lies in the future is no help: due now (rule J3).
    """
    if synced_at is None or synced_at > now:
        return 0.0
    return max(0.0, period(interval, uid) - (now - synced_at).total_seconds())


def retry_cap(interval: float) -> float:
    """The longest wait between two retries, in seconds; failing never costs more than working (J4)."""
    return max(MINIMUM_INTERVAL, min(300.0, interval))


def retry_delay(failures: int, *, first: float, cap: float, rng: random.Random) -> float:
    """Seconds to wait after the ``failures``-th failure in a row: doubling from ``first``, jittered.

    The jitter only lengthens, by up to a tenth, so that "not before" holds.
    """
    step = min(cap, first * 2.0 ** min(failures - 1, 32))
    return step * (1 + rng.random() * JITTER)


PEACEFUL_REPAIRS = 3
"""Repairs of a target in a row that are made at once; further ones wait ever longer."""
_FIGHT_MEMORY = 60.0
_LONGEST_TRUCE = 300.0


def contested_until(repairs: int, repaired_at: float) -> float:
    """Monotonic seconds before which a target that was repaired ``repairs`` times in a row is left alone."""
    if repairs < PEACEFUL_REPAIRS:
        return 0.0
    return repaired_at + min(_LONGEST_TRUCE, 4.0 * 2.0 ** min(repairs - PEACEFUL_REPAIRS, 16))


def repairs_in_a_row(repairs: int, repaired_at: float, now: float) -> int:
    """How many repairs in a row the one made ``now`` is; a long peace starts the count anew."""
    if repairs == 0 or now > max(repaired_at, contested_until(repairs, repaired_at)) + _FIGHT_MEMORY:
        return 1
    return repairs + 1
