"""A Kubernetes API server in memory, faithful at the edges where controllers break (rules Q)."""

from psono_operator.sandbox.kube.clock import Clock, SystemClock
from psono_operator.sandbox.kube.journal import Entry, Journal
from psono_operator.sandbox.kube.schema import SchemaError
from psono_operator.sandbox.kube.server import KubeSandbox

__all__ = ["Clock", "Entry", "Journal", "KubeSandbox", "SchemaError", "SystemClock"]
