"""Metrics of the runtime, under the names that operators already chart (rule E8).

Names, labels and buckets are client-go's and controller-runtime's. Every series exists from the start, with
0, and no label holds the name of an object. What happens is counted as it happens, through the observers;
what can be looked up (depth, unfinished work) is looked up when someone scrapes, through ``refresh``.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from psono_operator.runtime.clock import Clock
from psono_operator.runtime.controller import Controller
from psono_operator.runtime.informer import Informer
from psono_operator.runtime.workqueue import WorkQueue

QUEUE_BUCKETS = tuple(10.0**exponent for exponent in range(-8, 4))
"""client-go: ``ExponentialBuckets(10e-9, 10, 12)``."""

RECONCILE_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0,
    1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
)  # fmt: skip
"""controller-runtime's, in seconds."""

LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

RESULTS = ("success", "error", "requeue_after")


def new_registry() -> CollectorRegistry:
    """A registry with the process's own figures (memory, CPU, garbage collection)."""
    # A ``_created`` series beside each counter would double what is stored for no one's use.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class RuntimeMetrics:
    """Hands out observers for queues and controllers; call ``refresh`` before a scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refreshers: list[Callable[[], None]] = []
        queue, controller = ("name",), ("controller",)
        self._depth = Gauge("workqueue_depth", "Keys due and not taken", queue, registry=registry)
        self._adds = Counter("workqueue_adds_total", "Keys that became due", queue, registry=registry)
        self._retries = Counter("workqueue_retries_total", "Keys retried", queue, registry=registry)
        self._waited = Histogram(
            "workqueue_queue_duration_seconds",
            "Seconds a key was due before it was taken",
            queue,
            buckets=QUEUE_BUCKETS,
            registry=registry,
        )
        self._worked = Histogram(
            "workqueue_work_duration_seconds",
            "Seconds a key was processed",
            queue,
            buckets=QUEUE_BUCKETS,
            registry=registry,
        )
        self._unfinished = Gauge(
            "workqueue_unfinished_work_seconds",
            "Seconds of work in progress, not yet in work_duration",
            queue,
            registry=registry,
        )
        self._longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "Seconds the oldest running reconcile has run",
            queue,
            registry=registry,
        )
        self._reconciles = Counter(
            "controller_runtime_reconcile_total",
            "Reconciles by result",
            ("controller", "result"),
            registry=registry,
        )
        self._failures = {
            kind: Counter(f"controller_runtime_{name}_total", text, controller, registry=registry)
            for kind, name, text in (
                ("error", "reconcile_errors", "Reconciles that failed"),
                ("terminal", "terminal_reconcile_errors", "Reconciles that wait for new input"),
                ("unexpected", "reconcile_panics", "Reconciles that raised something unexpected"),
                ("timeout", "reconcile_timeouts", "Reconciles cut off by their deadline"),
                ("conflict", "reconcile_conflicts", "Reconciles that read what was out of date"),
            )
        }
        self._seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Seconds a reconcile took",
            controller,
            buckets=RECONCILE_BUCKETS,
            registry=registry,
        )
        self._active = Gauge(
            "controller_runtime_active_workers", "Reconciles running now", controller, registry=registry
        )
        self._maximum = Gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Reconciles that may run at once",
            controller,
            registry=registry,
        )
        self._leader = Gauge(
            "leader_election_master_status", "1 while this process leads", queue, registry=registry
        )
        self._responses = Counter(
            "rest_client_requests_total",
            "Requests to the API server by status code, method and host",
            ("code", "method", "host"),
            registry=registry,
        )
        self._objects = Gauge("informer_objects", "Objects in the cache", ("informer",), registry=registry)
        self._synced = Gauge(
            "informer_synced", "1 once the first list is complete", ("informer",), registry=registry
        )
        self._healed = Gauge(
            "informer_relist_differences",
            "Differences that safety relists found since the start",
            ("informer",),
            registry=registry,
        )
        self._handler_errors = Gauge(
            "informer_handler_errors", "Failed handlers since the start", ("informer",), registry=registry
        )
        self._lag = Histogram(
            "event_loop_lag_seconds",
            "Seconds by which the event loop woke up late",
            buckets=LAG_BUCKETS,
            registry=registry,
        )

    def queue_observer(self, name: str) -> QueueMetrics:
        """The observer for the queue ``name``; its series start at 0. See ``watch_queue`` too."""
        return QueueMetrics(
            self._adds.labels(name),
            self._retries.labels(name),
            self._waited.labels(name),
            self._worked.labels(name),
        )

    def watch_queue(self, queue: WorkQueue) -> None:
        """Show depth and work in progress of ``queue``."""
        depth = self._depth.labels(queue.name)
        unfinished = self._unfinished.labels(queue.name)
        longest = self._longest.labels(queue.name)

        def refresh() -> None:
            depth.set(queue.depth)
            unfinished.set(queue.unfinished_seconds())
            longest.set(queue.longest_running_seconds())

        self._refreshers.append(refresh)

    def controller_observer(self, name: str) -> ControllerMetrics:
        """The observer for the controller ``name``; its series start at 0."""
        self._maximum.labels(name).set(0)
        return ControllerMetrics(
            {result: self._reconciles.labels(name, result) for result in RESULTS},
            {kind: counter.labels(name) for kind, counter in self._failures.items()},
            self._seconds.labels(name),
            self._active.labels(name),
        )

    def watch_controller(self, controller: Controller) -> None:
        """Show how many workers ``controller`` has."""
        self._maximum.labels(controller.name).set(controller.workers)

    def watch_informer(self, informer: Informer) -> None:
        """Show size and state of ``informer``."""
        objects = self._objects.labels(informer.name)
        synced = self._synced.labels(informer.name)
        healed = self._healed.labels(informer.name)
        errors = self._handler_errors.labels(informer.name)

        def refresh() -> None:
            objects.set(len(informer.view))
            synced.set(informer.synced)
            healed.set(informer.healed)
            errors.set(informer.handler_errors)

        self._refreshers.append(refresh)

    def on_response(self, method: str, host: str, code: str) -> None:
        """For the transport; ``code`` is the status, or ``<error>`` when no answer came."""
        self._responses.labels(code, method, host).inc()

    def leading(self, name: str, leads: bool) -> None:
        """Whether this process holds the lease ``name``."""
        self._leader.labels(name).set(leads)

    def loop_lag(self, seconds: float) -> None:
        """For LoopLag."""
        self._lag.observe(seconds)

    def refresh(self) -> None:
        """Look up what is not counted as it happens; in the event loop, before a scrape."""
        for refresh in self._refreshers:
            refresh()


class QueueMetrics:
    """Fulfils ``workqueue.QueueObserver``."""

    def __init__(self, adds: Counter, retries: Counter, waited: Histogram, worked: Histogram) -> None:
        self.added = adds.inc
        self.retried = retries.inc
        self.waited = waited.observe
        self.worked = worked.observe


class ControllerMetrics:
    """Fulfils ``controller.ControllerObserver``."""

    def __init__(
        self, results: dict[str, Counter], failures: dict[str, Counter], seconds: Histogram, active: Gauge
    ) -> None:
        self._results = results
        self._failures = failures
        self._seconds = seconds
        self._active = active

    def started(self) -> None:
        """A worker took a key."""
        self._active.inc()

    def ended(self, result: str, seconds: float) -> None:
        """It let go of it; what was cancelled by the stop has no result."""
        self._active.dec()
        if result in self._results:
            self._results[result].inc()
            self._seconds.observe(seconds)

    def failed(self, kind: str) -> None:
        """Every kind but a conflict is an error too (F3)."""
        if kind != "error":
            self._failures[kind].inc()
        if kind != "conflict":
            self._failures["error"].inc()


class LoopLag:
    """A service that measures by how much the event loop wakes up late (rule N6)."""

    name = "loop-lag"

    def __init__(self, clock: Clock, observe: Callable[[float], None], interval: float = 0.5) -> None:
        self._clock = clock
        self._observe = observe
        self._interval = interval

    async def run(self) -> None:
        """Measure every ``interval`` seconds until cancelled."""
        while True:
            due = self._clock.monotonic() + self._interval
            await self._clock.sleep(self._interval)
            self._observe(max(0.0, self._clock.monotonic() - due))
