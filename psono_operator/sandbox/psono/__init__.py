"""A Psono server in memory: real encryption, the real server's answers, nothing of the operator's code."""

from psono_operator.sandbox.psono.server import PsonoDouble, RecordedRequest, Served
from psono_operator.sandbox.psono.store import ApiKey, Store

__all__ = ["ApiKey", "PsonoDouble", "RecordedRequest", "Served", "Store"]
