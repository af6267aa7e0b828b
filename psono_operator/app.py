"""The wiring diagram: builds every part, connects them, and names the order of start and stop. No logic.

reflectors ─► informers ─► triggers ─► queue ─► controller ─► reconciler ─► writer, status, events
                                                                   └─► sources ─► Psono
"""

from __future__ import annotations

import random
import secrets
import socket
import uuid
from collections.abc import Mapping

from psono_operator.api import names
from psono_operator.psono.sessions import SessionPool
from psono_operator.runtime.client import KubeClient
from psono_operator.runtime.clock import Clock
from psono_operator.runtime.collector import Collector
from psono_operator.runtime.controller import Controller
from psono_operator.runtime.credentials import Credentials
from psono_operator.runtime.health import (
    Check,
    HealthChecks,
    informer_progress,
    informer_synced,
    queue_progress,
    workers_progress,
)
from psono_operator.runtime.http import HttpServer
from psono_operator.runtime.informer import Informer
from psono_operator.runtime.leader import LeaderElector
from psono_operator.runtime.metrics import LoopLag, RuntimeMetrics, new_registry
from psono_operator.runtime.ownwrites import OwnWrites
from psono_operator.runtime.patience import Patience
from psono_operator.runtime.recorder import EventRecorder
from psono_operator.runtime.reflector import Reflector
from psono_operator.runtime.resources import ObjectKey, Resource
from psono_operator.runtime.store import Store
from psono_operator.runtime.supervisor import Service, StopPhase, Supervisor
from psono_operator.runtime.transforms import metadata_allowlist, strip_noise
from psono_operator.runtime.transport import Transport
from psono_operator.runtime.workqueue import WorkQueue
from psono_operator.secretsync import triggers
from psono_operator.secretsync.cleanup import Cleanup
from psono_operator.secretsync.indexes import PSONO_SECRET_INDEXES, SECRET_INDEXES
from psono_operator.secretsync.memory import Memory
from psono_operator.secretsync.psono_source import PsonoSources
from psono_operator.secretsync.reconciler import PsonoSecretReconciler
from psono_operator.secretsync.releaser import Releaser
from psono_operator.secretsync.reporter import Reporter
from psono_operator.secretsync.resources import PSONO_SECRETS, SECRETS
from psono_operator.secretsync.sources import SourceRegistry
from psono_operator.secretsync.status import StatusWriter
from psono_operator.secretsync.writer import TargetWriter
from psono_operator.settings import Settings

RECONCILE_TIMEOUT = 60.0
SPARE_WORKERS = 8
"""Workers on top of the setting, for namespaces of which nothing is worked on: one whose objects fail slowly
cannot take them from the others."""
SILENCE_LIMIT = 300.0
"""Seconds without a step of an informer, whose watches end after at most 230, that mean it hangs (N3)."""


class Operator:
    """One operator process."""

    def __init__(
        self,
        settings: Settings,
        credentials: Credentials,
        *,
        clock: Clock,
        rng: random.Random,
        environ: Mapping[str, str],
        collector: Collector | None = None,
    ) -> None:
        """``environ`` is read for proxy variables, which concern Psono only. Raises ProxySettingsError.

        ``collector`` is for a process that is nothing but this operator.
        """
        self._collector = collector
        self._clock = clock
        self._rng = rng
        self._namespaces = settings.watch_namespace or (None,)
        registry = new_registry()
        metrics = RuntimeMetrics(registry)
        self.health = HealthChecks()

        self._transport = Transport(
            credentials, clock=clock, connections=settings.workers * 2, on_response=metrics.on_response
        )
        self.elector = self._make_elector(settings, credentials, metrics)
        gate = self.elector.gate if self.elector else None
        self._client = KubeClient(
            self._transport, field_manager=names.OPERATOR, gate=gate, patience=Patience(rng)
        )
        psono_secrets = self._informer("psonosecrets", PSONO_SECRETS, Store(PSONO_SECRET_INDEXES))
        kube_secrets = self._informer("secrets", SECRETS, Store(SECRET_INDEXES), metadata_only=True)
        self._informers = (psono_secrets, kube_secrets)
        self._recorder = EventRecorder(
            self._client, clock, controller=names.OPERATOR, instance=socket.gethostname()
        )
        self._psono = PsonoSources(SessionPool(environ), clock)
        self._sources = SourceRegistry(self._client, kube_secrets.view, self._psono, clock)
        memory, own_writes = Memory(secrets.token_bytes(32)), OwnWrites(clock)
        reconciler = PsonoSecretReconciler(
            client=self._client,
            psono_secrets=psono_secrets.view,
            secrets=kube_secrets.view,
            sources=self._sources,
            writer=TargetWriter(self._client),
            cleanup=Cleanup(self._client, Releaser(self._client), kube_secrets.view),
            reporter=Reporter(StatusWriter(self._client, clock, own_writes), memory, self._recorder),
            memory=memory,
            own_writes=own_writes,
            clock=clock,
            rng=rng,
        )
        self._queue = queue = WorkQueue(
            "psonosecret", clock, rng, limit=settings.workers, observer=metrics.queue_observer("psonosecret")
        )
        self._controller = Controller(
            "psonosecret",
            queue,
            reconciler,
            clock=clock,
            workers=settings.workers,
            spare=SPARE_WORKERS,
            reconcile_timeout=RECONCILE_TIMEOUT,
            observer=metrics.controller_observer("psonosecret"),
            rng=rng,
            permission=self.elector.wait_leading if self.elector else None,
        )
        self._controller.watch(
            psono_secrets,
            triggers.concerned_by_psono_secret(psono_secrets.view),
            triggers.worth_a_look,
            triggers.priority_of,
            new_input=triggers.makes_failures_meaningless,
        )
        self._controller.watch(
            kube_secrets,
            triggers.concerned_by_secret(psono_secrets.view),
            triggers.after_the_first_list,
            triggers.priority_of,
        )
        metrics.watch_queue(queue)
        metrics.watch_controller(self._controller)
        for informer in self._informers:
            metrics.watch_informer(informer)
            self.health.add_readiness(informer_synced(informer))
            self.health.add_liveness(informer_progress(informer, clock, SILENCE_LIMIT))
        self.health.add_liveness(
            workers_progress(self._controller, 2 * RECONCILE_TIMEOUT), queue_progress(queue, SILENCE_LIMIT)
        )
        host, port = settings.http_address
        self.http = HttpServer(host, port, self.health, registry, refresh=metrics.refresh)
        services: list[Service] = [self.http, LoopLag(clock, metrics.loop_lag), self._recorder]
        services += [*self._informers, self._controller]
        if self.elector:
            services.append(self.elector)
            self.health.add_liveness(Check("leader-election", self.elector.problem))
        self.supervisor = Supervisor(services, self._stop_phases(), clock=clock)

    async def run(self) -> int:
        """Work until a stop is requested or a part fails; the exit code."""
        try:
            return await self.supervisor.run()
        finally:
            await self._close_sessions()

    def stop(self) -> None:
        """Request the orderly stop."""
        self.supervisor.request_stop()

    def _make_elector(
        self, settings: Settings, credentials: Credentials, metrics: RuntimeMetrics
    ) -> LeaderElector | None:
        namespace = settings.leader_election_namespace
        if settings.no_leader_elect or not (credentials.in_cluster or namespace):
            return None
        key = ObjectKey(namespace or credentials.endpoint.default_namespace, names.OPERATOR)
        metrics.leading(names.OPERATOR, False)
        return LeaderElector(
            KubeClient(self._transport, field_manager=names.OPERATOR),  # its own writes pass no gate
            key,
            f"{socket.gethostname()}_{uuid.uuid4()}",
            clock=self._clock,
            rng=self._rng,
            on_change=lambda leads: metrics.leading(names.OPERATOR, leads),
        )

    @property
    def idle(self) -> bool:
        """Whether the caches are filled and no key is due or worked on."""
        synced = all(informer.synced for informer in self._informers)
        return synced and self._queue.depth == 0 and self._queue.unfinished_seconds() == 0

    def _informer(
        self, name: str, resource: Resource, store: Store, *, metadata_only: bool = False
    ) -> Informer:
        transform = metadata_allowlist([names.ANNOTATION_PREFIX]) if metadata_only else strip_noise
        reflectors = [
            Reflector(
                self._client,
                resource,
                clock=self._clock,
                rng=self._rng,
                namespace=namespace,
                metadata_only=metadata_only,
                transform=transform,
                on_state=self._collector.heed(f"{name} {namespace}") if self._collector else None,
            )
            for namespace in self._namespaces
        ]
        return Informer(name, reflectors, store)

    def _stop_phases(self) -> list[StopPhase]:
        async def refuse_work() -> None:
            self.health.stopping = True
            self._controller.shut_down()

        async def release() -> None:
            if self.elector:
                await self.elector.release()

        async def stop_informers() -> None:
            for informer in self._informers:
                await informer.stop()

        return [
            StopPhase("refuse work", refuse_work, 1.0),
            StopPhase("finish running reconciles", lambda: self._controller.drain(15.0), 16.0),
            StopPhase("cancel the rest", self._controller.cancel_rest, 2.0),
            StopPhase("flush events", lambda: self._recorder.flush(2.0), 3.0),
            StopPhase("release the lease", release, 3.0),
            StopPhase("stop informers", stop_informers, 2.0),
            StopPhase("close sessions", self._close_sessions, 2.0),
            StopPhase("stop http", self.http.stop, 1.0),
        ]

    async def _close_sessions(self) -> None:
        await self._sources.close()
        await self._psono.close()
        await self._transport.close()
