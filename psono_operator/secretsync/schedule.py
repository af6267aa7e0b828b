"""When a PsonoSecret is due, and how long to wait after a failure. Pure.

Due times come from the status, so that a restart changes nothing (rule J1); the jitter comes from the uid,
so that it is the same for every process (J2).
"""

from __future__ import annotations

import hashlib
import random
from datetime import datetime

from psono_operator.api.spec import MINIMUM_INTERVAL

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
