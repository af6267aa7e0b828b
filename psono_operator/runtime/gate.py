"""The write gate: asked before every mutating call (rule K4).

The default gate is always open. With leader election the elector provides one that is open only while
the lease, counted from the moment the last renewal was sent, cannot have run out.
"""

from __future__ import annotations

import math
from typing import Protocol


class NotLeader(Exception):
    """This process may not write: it does not hold the lease."""


class WriteGate(Protocol):
    """Who may write, and for how long still."""

    def remaining(self) -> float:
        """Seconds for which writing stays allowed; caps the deadline of the call.

        Raises NotLeader when writing is not allowed now.
        """


class OpenGate:
    """The gate of a process that runs alone."""

    def remaining(self) -> float:
        return math.inf
