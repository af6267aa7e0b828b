"""The one place that knows the order.

    auth Secret ─► read ─► decrypt ─► extract ─► ownership gate ─► target write ─► status ─► Result

Every step is a named call that takes values and returns values. Nothing is carried in the queue: what is to
be done follows from the cache, the status and the memory of the last attempt (``need``).
"""

from __future__ import annotations

import logging
import math
import random
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn, Protocol

from psono_operator.api.spec import InvalidSpec
from psono_operator.api.status import SyncedEntry, SyncedTarget
from psono_operator.runtime.client import KubeClient
from psono_operator.runtime.clock import Clock
from psono_operator.runtime.controller import Result, RetryError, TerminalError
from psono_operator.runtime.errors import KubeError
from psono_operator.runtime.gate import NotLeader
from psono_operator.runtime.ownwrites import OwnWrites
from psono_operator.runtime.resources import (
    KubeObject,
    ObjectKey,
    generation_of,
    is_deleting,
    key_of,
    uid_of,
    version_of,
)
from psono_operator.runtime.store import StoreView
from psono_operator.secretsync.failures import FIRST_DELAY, REPORTED, NotSupported, Retry, failure_of
from psono_operator.secretsync.fetch import fetch
from psono_operator.secretsync.finalizer import Vanished, add_finalizer, live, remove_finalizer
from psono_operator.secretsync.indexes import BY_AUTH_SECRET
from psono_operator.secretsync.memory import Inputs, Memory, Seen, revision
from psono_operator.secretsync.need import (
    Cause,
    CheckTarget,
    Need,
    Synchronize,
    Wait,
    need_after,
    need_from_status,
)
from psono_operator.secretsync.outcome import Failed, Outcome, Synced
from psono_operator.secretsync.render import rendered
from psono_operator.secretsync.schedule import period, retry_cap, retry_delay
from psono_operator.secretsync.sources import SourceRegistry
from psono_operator.secretsync.status import StatusWriter
from psono_operator.secretsync.target import Owner, Wanted, decoded
from psono_operator.secretsync.visit import Visit, inputs_of, look
from psono_operator.secretsync.writer import TargetWriter, WriteResult

log = logging.getLogger(__name__)

STALE_WAIT = 0.2
"""Seconds until a cache that is behind our own write is looked at again (rule F1)."""


class EventSink(Protocol):
    """Where events about objects go; ``runtime.recorder`` fulfils it."""

    def event(self, regarding: KubeObject, type: str, reason: str, action: str, note: str) -> None:
        """Best effort, never raises, never waits."""


class PsonoSecretReconciler:
    """Brings one PsonoSecret's target and status in line with Psono."""

    def __init__(
        self,
        *,
        client: KubeClient,
        psono_secrets: StoreView,
        secrets: StoreView,
        sources: SourceRegistry[Any],
        writer: TargetWriter,
        status: StatusWriter,
        memory: Memory,
        own_writes: OwnWrites,
        events: EventSink,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """``psono_secrets`` and ``secrets`` are the caches; of Secrets, metadata only."""
        self._client = client
        self._psono_secrets = psono_secrets
        self._secrets = secrets
        self._sources = sources
        self._writer = writer
        self._status = status
        self._memory = memory
        self._own_writes = own_writes
        self._events = events
        self._clock = clock
        self._rng = rng

    async def reconcile(self, key: ObjectKey) -> Result:
        """One visit. Raises TerminalError and RetryError for what the status reports, and KubeError."""
        obj = self._psono_secrets.get(key)
        if obj is None:
            return await self._forget(key)
        if self._own_writes.is_stale(obj):
            return Result(requeue_after=STALE_WAIT)
        if is_deleting(obj):
            return await self._release(obj)
        try:
            visit = look(obj, self._secrets)
        except (InvalidSpec, NotSupported) as error:
            await self._failed(obj, inputs_of(obj, None, self._secrets), error, interval=math.inf)
        await self._report_what_is_left(visit)
        need = self._need(visit)
        try:
            visit.obj = await add_finalizer(self._client, visit.obj)
            self._own_writes.record(visit.obj)
            todo = await self._check_target(visit) if isinstance(need, CheckTarget) else need
            if isinstance(todo, Wait):
                return _after(todo.seconds)
            return await self._synchronize(visit, todo.cause)
        except Vanished:
            return Result()
        except REPORTED as error:
            await self._failed(visit.obj, visit.inputs, error, interval=visit.spec.interval)
        except (KubeError, NotLeader):
            raise
        except Exception as error:
            # A fault of our own must be seen in the status too; the traceback goes without values (F8).
            log.error(
                "unexpected %s while synchronizing %s", type(error).__name__, key, exc_info=_place(error)
            )
            await self._failed(visit.obj, visit.inputs, error, interval=visit.spec.interval)

    async def _synchronize(self, visit: Visit, cause: Cause) -> Result:
        spec, seen = visit.spec, self._memory.get(visit.key, visit.inputs.uid)
        if visit.cached_target is None and visit.known_target:
            visit.obj = await self._still_wanted(visit)
        async with self._sources.lease(visit.key.namespace, spec.authentication.secret_ref) as opened:
            if cause is Cause.CREDENTIALS and seen is not None and seen.good and opened.number == seen.source:
                self._memory.put(visit.key, replace(seen, inputs=visit.inputs))
                return _after(seen.next_at - self._clock.monotonic())
            entries = await fetch(opened.source, spec.secret_ids)
            data = rendered(spec, entries)
        written = await self._write(visit, data)
        outcome = Synced(
            generation=visit.inputs.generation,
            force_sync=visit.inputs.force_sync,
            target=SyncedTarget(
                name=spec.target.name,
                creation_policy=spec.target.creation_policy,
                resource_version=version_of(written.target),
            ),
            entries=tuple(SyncedEntry(secret_id=secret_id) for secret_id in spec.secret_ids),
            keys=len(data),
        )
        wait = period(spec.interval, visit.inputs.uid)
        seen = Seen(
            inputs=replace(visit.inputs, target=revision(written.target)),
            good=True,
            next_at=self._clock.monotonic() + wait,
            source=opened.number,
            marks=self._memory.marks(data),
        )
        log.info("synchronized %s (%s): target %s", visit.key, cause, written.kind)
        await self._report(visit.obj, seen, outcome)
        return Result(requeue_after=wait)

    async def _check_target(self, visit: Visit) -> Wait | Synchronize:
        """Whether a touched target still holds what we wrote; repairs what needs no value from Psono."""
        seen = self._memory.get(visit.key, visit.inputs.uid)
        secret = await self._writer.read(visit.target_key)
        data = decoded(secret) if secret is not None else {}
        if seen is None or not self._memory.matches(seen.marks, data):
            return Synchronize(Cause.DRIFT)
        written = await self._write(visit, data)
        self._memory.put(
            visit.key, replace(seen, inputs=replace(visit.inputs, target=revision(written.target)))
        )
        return Wait(seen.next_at - self._clock.monotonic())

    async def _write(self, visit: Visit, data: dict[str, bytes]) -> WriteResult:
        owner = Owner(visit.key.name, visit.inputs.uid)
        written = await self._writer.apply(
            Wanted(visit.target_key, visit.spec.target.type, owner, data),
            believed_absent=visit.cached_target is None,
            known=visit.known_target,
            holds_credentials=bool(self._psono_secrets.by_index(BY_AUTH_SECRET, str(visit.target_key))),
        )
        if written.dropped:
            note = f'Secret "{visit.target_key.name}" existed and was taken over; keys dropped: '
            dropped = ", ".join(written.dropped)
            self._events.event(visit.obj, "Warning", "TargetTakenOver", "Synchronize", note + dropped)
        return written

    async def _still_wanted(self, visit: Visit) -> KubeObject:
        """The PsonoSecret, live: a target we knew is gone, and perhaps its deletion has begun (rule H4)."""
        obj = await live(self._client, visit.obj)
        if (
            is_deleting(obj)
            or uid_of(obj) != visit.inputs.uid
            or generation_of(obj) != visit.inputs.generation
        ):
            raise Vanished  # the news is on its way through the watch
        return obj

    async def _failed(
        self, obj: KubeObject, inputs: Inputs, error: Exception, *, interval: float
    ) -> NoReturn:
        """Report a failed attempt and say when the next one is. Always raises."""
        failure = failure_of(error)
        seen = self._memory.get(key_of(obj), inputs.uid)
        again = seen is not None and not seen.good and seen.inputs == inputs
        failures = seen.failures + 1 if seen is not None and again else 1
        match failure.retry:
            case Retry.ON_CHANGE:
                delay = math.inf
            case Retry.INTERVAL:
                delay = period(interval, inputs.uid)
            case Retry.BACKOFF | Retry.SLOW_BACKOFF:
                first, cap = FIRST_DELAY[failure.retry], retry_cap(interval)
                delay = retry_delay(failures, first=first, cap=cap, rng=self._rng)
        delay = max(delay, failure.not_before)
        seen = Seen(inputs, good=False, next_at=self._clock.monotonic() + delay, failures=failures)
        outcome = Failed(inputs.generation, inputs.force_sync, failure.reason, failure.message)
        await self._report(obj, seen, outcome)
        summary = f"{failure.reason}: {failure.message}"
        if failure.retry in FIRST_DELAY:
            raise RetryError(summary, first=delay, cap=delay) from None
        raise TerminalError(summary, requeue_after=delay if math.isfinite(delay) else None) from None

    async def _report(self, obj: KubeObject, seen: Seen, outcome: Outcome) -> None:
        self._memory.put(key_of(obj), replace(seen, unreported=outcome))
        await self._status.write(obj, outcome)
        self._memory.put(key_of(obj), seen)

    async def _report_what_is_left(self, visit: Visit) -> None:
        """Write the status of the last attempt if that failed; no second attempt is made for it."""
        seen = self._memory.get(visit.key, visit.inputs.uid)
        if seen is not None and seen.unreported is not None:
            await self._report(visit.obj, replace(seen, unreported=None), seen.unreported)

    async def _release(self, obj: KubeObject) -> Result:
        """The PsonoSecret is being deleted. Its target is the garbage collector's (rule H4)."""
        await remove_finalizer(self._client, obj)
        return Result()

    async def _forget(self, key: ObjectKey) -> Result:
        self._memory.forget(key)
        self._own_writes.forget(key)
        await self._sources.prune(lambda auth: bool(self._psono_secrets.by_index(BY_AUTH_SECRET, str(auth))))
        return Result()

    def _need(self, visit: Visit) -> Need:
        monotonic = self._clock.monotonic()
        seen = self._memory.get(visit.key, visit.inputs.uid)
        if seen is not None:
            return need_after(visit.inputs, seen, monotonic)
        now = self._clock.now()
        need = need_from_status(visit.inputs, visit.spec, visit.status, visit.target_version, now)
        if isinstance(need, Wait):
            self._memory.put(visit.key, Seen(visit.inputs, good=True, next_at=monotonic + need.seconds))
        return need


def _after(seconds: float) -> Result:
    return Result(requeue_after=max(0.0, seconds)) if math.isfinite(seconds) else Result()


def _place(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """For the log: where it happened, without what the exception says."""
    bare = RuntimeError(f"{type(error).__name__} (text withheld)")
    return RuntimeError, bare.with_traceback(error.__traceback__), error.__traceback__
