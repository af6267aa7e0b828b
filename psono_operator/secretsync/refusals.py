"""What a bare refusal of a read means. Pure.

Psono gives one answer, a 400 of two words, for a dozen reasons. Inspect tells them apart: it is refused for
a dead key only, it names the key's rights, and it lists the entries assigned to the key. Being listed is no
proof of readability, since entries that the key's owner has lost are listed too.

Nothing here asks a server. ``KeyKnowledge`` says when it may be asked again, and forgets what a later good
read has disproved.
"""

from __future__ import annotations

import math

from psono_operator.psono.answers import KeyReport
from psono_operator.psono.credentials import canonical_uuid
from psono_operator.psono.errors import Meaning

REPORT_AGE = 300.0
"""Seconds for which one answer of inspect, or its failure, is used."""

_NO_READ_RIGHT = "the API key has no read right; grant it in Psono"
_NOT_ASSIGNED = (
    "the entry is not assigned to the API key, or does not exist; assign it to the key in Psono, or correct "
    "secretId"
)
_OWNER_LOST_IT = (
    "the entry is assigned to the API key, but the key's owner may not read it any more; check in Psono that "
    "the owner still has it, and that its share has not expired"
)


def explain_refusal(report: KeyReport | None, secret_id: str, *, key_refused: bool = False) -> str:
    """Why reading ``secret_id`` was refused with a bare 400, and the next step.

    ``report`` is what inspect says of the API key, None where it said nothing; ``key_refused``: it was
    refused itself. Without either, everything that the refusal can mean.
    """
    if key_refused:
        return Meaning.INSPECT.value
    if report is None:
        return Meaning.READ.value
    if not report.read:
        return _NO_READ_RIGHT
    if (canonical_uuid(secret_id) or secret_id) not in report.write_dates:
        return _NOT_ASSIGNED
    return _OWNER_LOST_IT


class KeyKnowledge:
    """The last answer of inspect about one API key. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._asked_at = -math.inf
        self._report: KeyReport | None = None
        self._key_refused = False
        self._read_since: set[str] = set()

    def may_ask(self, now: float) -> bool:
        """Whether inspect may be asked."""
        return now - self._asked_at >= REPORT_AGE

    def asked(self, now: float) -> None:
        """Inspect is being asked; until ``learned``, nothing is known."""
        self._asked_at = now
        self.learned(None)

    def learned(self, report: KeyReport | None, *, key_refused: bool = False) -> None:
        """What inspect said; see ``explain_refusal``."""
        self._report, self._key_refused, self._read_since = report, key_refused, set()

    def readable(self, secret_id: str) -> None:
        """An entry was read just now: what was said of the key or of this entry may be over."""
        if self._key_refused or (self._report is not None and not self._report.read):
            self.learned(None)
        elif self._report is not None:
            self._read_since.add(secret_id)

    def explain(self, secret_id: str) -> str:
        """As ``explain_refusal``, from what is known."""
        report = None if secret_id in self._read_since else self._report
        return explain_refusal(report, secret_id, key_refused=self._key_refused)
