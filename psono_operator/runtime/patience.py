"""Whether a call that the server put off is made again, and when (rule M1).

A server that is overloaded says so with 429, one that is on its way out with 503, both with Retry-After. 429
means that nothing was done, so that any call can be repeated; after 503 only one can whose repetition does
no harm (M3). The wait is what the server wishes plus jitter, and has to end within the caller's deadline: an
hour is not slept through but given back to the caller, who puts it on the queue. Computes and sleeps for
nobody.
"""

from __future__ import annotations

import random

from psono_operator.runtime.errors import Throttled

TRIES = 10
"""Requests for one call, as in client-go."""
_LEAST = 0.1
"""Seconds, for a server that wishes none."""
_JITTER = 0.25
"""The share by which a wait may be longer, so that those who were put off together come back apart."""


class Patience:
    """The policy of one client. ``tries`` is how many requests a call may cost."""

    def __init__(self, rng: random.Random, tries: int = TRIES) -> None:
        self._rng = rng
        self._tries = tries

    def wait(self, error: Throttled, made: int, left: float, *, harmless: bool) -> float | None:
        """Seconds until the next request, after ``made`` of them; None: there is none.

        ``left`` is in seconds, until the call's deadline. ``harmless``: to be done twice would do no harm.
        """
        if error.retry_after is None or made >= self._tries or not (error.code == 429 or harmless):
            return None
        wait = max(error.retry_after, _LEAST) * self._rng.uniform(1.0, 1.0 + _JITTER)
        return wait if wait < left else None
