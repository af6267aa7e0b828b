"""Liveness and readiness: named checks, each a function that says what is wrong or nothing.

Liveness means progress, not reachability: an API server that is down fails no liveness check, since a
restart would not help (rule N3). Readiness means that the caches are filled and current (rule N4); it does
not depend on leadership (K6). What is checked is given from outside; the checks here are about the runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from psono_operator.runtime.clock import Clock
from psono_operator.runtime.controller import Controller
from psono_operator.runtime.informer import Informer
from psono_operator.runtime.tracebacks import summary
from psono_operator.runtime.workqueue import WorkQueue


@dataclass(frozen=True, slots=True)
class Check:
    """``probe`` answers the reason of a failure, or None. Synchronous, cheap, and value-free."""

    name: str
    probe: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Report:
    """What the checks said, in the words of Kubernetes' own ``?verbose`` endpoints."""

    ok: bool
    lines: tuple[str, ...]


class HealthChecks:
    """The checks of the process. Set ``stopping`` as the first step of a stop: readiness fails then (N2)."""

    def __init__(self) -> None:
        self.stopping = False
        self._live: list[Check] = []
        self._ready: list[Check] = [Check("shutdown", lambda: "stopping" if self.stopping else None)]

    def add_liveness(self, *checks: Check) -> None:
        """Failing ones make Kubernetes restart the process."""
        self._live.extend(checks)

    def add_readiness(self, *checks: Check) -> None:
        """Failing ones tell that the process does not do its work now."""
        self._ready.extend(checks)

    def liveness(self) -> Report:
        """All liveness checks, now."""
        return _report("healthz", [Check("ping", lambda: None), *self._live])

    def readiness(self) -> Report:
        """All readiness checks, now."""
        return _report("readyz", self._ready)


def _report(title: str, checks: list[Check]) -> Report:
    lines = []
    ok = True
    for check in checks:
        try:
            reason = check.probe()
        except Exception as error:  # noqa: BLE001 - a check that cannot look has not seen good health
            reason = f"the check failed: {summary(error)}"
        if reason is None:
            lines.append(f"[+]{check.name} ok")
        else:
            ok = False
            lines.append(f"[-]{check.name} failed: {reason}")
    lines.append(f"{title} check {'passed' if ok else 'failed'}")
    return Report(ok, tuple(lines))


def informer_synced(informer: Informer) -> Check:
    """Readiness: the first list is in and the informer knows of nothing that keeps it from being current."""
    return Check(f"informer-{informer.name}", lambda: informer.problem)


def informer_progress(informer: Informer, clock: Clock, limit: float) -> Check:
    """Liveness: the informer stepped (event, timeout or attempt) within the last ``limit`` seconds."""

    def probe() -> str | None:
        age = clock.monotonic() - informer.last_progress
        return f"no step for {age:.0f} s" if age > limit else None

    return Check(f"informer-{informer.name}-progress", probe)


def workers_progress(controller: Controller, limit: float) -> Check:
    """Liveness: no reconcile runs for longer than ``limit`` seconds (twice its deadline is apt)."""

    def probe() -> str | None:
        age = controller.oldest_reconcile_age()
        return f"a reconcile has run for {age:.0f} s" if age > limit else None

    return Check(f"controller-{controller.name}-workers", probe)


def queue_progress(queue: WorkQueue, limit: float) -> Check:
    """Liveness: no key is due for longer than ``limit`` seconds while a worker waits for one."""

    def probe() -> str | None:
        age = queue.overlooked_seconds()
        return f"a key has been due for {age:.0f} s, and a worker waits" if age > limit else None

    return Check(f"queue-{queue.name}-progress", probe)
