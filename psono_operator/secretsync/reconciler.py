"""The one place that knows the order.

    auth Secret ─► read ─► decrypt ─► extract ─► ownership gate ─► target write
                ─► release of previous targets ─► status ─► Result

Every step is a named call that takes values and returns values. Nothing is carried in the queue: what is to
be done follows from the cache, the status and the memory of the last attempt (``need``).
"""

from __future__ import annotations

import logging
import math
import random
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn

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
from psono_operator.secretsync.cleanup import Cleanup
from psono_operator.secretsync.failures import FIRST_DELAY, REPORTED, Retry, failure_of
from psono_operator.secretsync.fetch import fetch
from psono_operator.secretsync.finalizer import Vanished, add_finalizer, live
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
from psono_operator.secretsync.outcome import CleanedUp, Failed, Synced, good_message
from psono_operator.secretsync.render import rendered
from psono_operator.secretsync.reporter import Reporter
from psono_operator.secretsync.schedule import (
    PEACEFUL_REPAIRS,
    period,
    repairs_in_a_row,
    retry_cap,
    retry_delay,
)
from psono_operator.secretsync.sources import SourceRegistry
from psono_operator.secretsync.target import Wanted, decoded
from psono_operator.secretsync.visit import Visit, inputs_of, look
from psono_operator.secretsync.writer import TargetWriter, WriteResult, Written

log = logging.getLogger(__name__)

STALE_WAIT = 0.2
"""Seconds until a cache that is behind our own write is looked at again (rule F1)."""


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
        cleanup: Cleanup,
        reporter: Reporter,
        memory: Memory,
        own_writes: OwnWrites,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """``psono_secrets`` and ``secrets`` are the caches; of Secrets, metadata only."""
        self._client = client
        self._psono_secrets = psono_secrets
        self._secrets = secrets
        self._sources = sources
        self._writer = writer
        self._cleanup = cleanup
        self._reporter = reporter
        self._memory = memory
        self._own_writes = own_writes
        self._clock = clock
        self._rng = rng

    async def reconcile(self, key: ObjectKey) -> Result:
        """One visit. Raises TerminalError and RetryError for what the status reports, and KubeError."""
        obj = self._psono_secrets.get(key)
        if obj is None:
            return await self._forget(key)
        if self._own_writes.is_stale(obj):
            return Result(requeue_after=STALE_WAIT)
        inputs, interval = inputs_of(obj, None, self._psono_secrets, self._secrets), math.inf
        try:
            if is_deleting(obj):
                await self._cleanup.finalize(obj)
                return Result()
            visit = look(obj, self._psono_secrets, self._secrets)
            inputs, interval = visit.inputs, visit.spec.interval
            await self._reporter.report_what_is_left(obj)
            obj = visit.obj = await add_finalizer(self._client, obj)
            self._own_writes.record(obj)
            need = self._need(visit)
            todo = await self._check_target(visit) if isinstance(need, CheckTarget) else need
            if isinstance(todo, Synchronize):
                return await self._synchronize(visit, todo.cause)
            return await self._clean_up(visit, todo)
        except Vanished:
            return Result()
        except REPORTED as error:
            await self._failed(obj, inputs, error, interval)
        except (KubeError, NotLeader):
            raise
        except Exception as error:
            # A fault of our own must be seen in the status too; the traceback goes without values (F8).
            log.error(
                "unexpected %s while synchronizing %s", type(error).__name__, key, exc_info=_place(error)
            )
            await self._failed(obj, inputs, error, interval)

    async def _synchronize(self, visit: Visit, cause: Cause) -> Result:
        spec, seen = visit.spec, self._memory.get(visit.key, visit.inputs.uid)
        if visit.cached_target is None and visit.around.known:
            visit.obj = await self._still_wanted(visit)
        async with self._sources.lease(visit.key.namespace, spec.authentication.secret_ref) as opened:
            if cause is Cause.CREDENTIALS and seen is not None and seen.good and opened.number == seen.source:
                self._memory.put(visit.key, replace(seen, inputs=visit.inputs))
                return _after(seen.next_at - self._clock.monotonic())
            entries = await fetch(opened.source, spec.secret_ids)
            data = rendered(spec, entries)
        written = await self._write(visit, data)
        leftover = await self._cleanup.release_leftovers(visit.leftovers, visit.claimant)
        seen = self._after_success(visit, seen, data, written, drift=cause is Cause.DRIFT, leftover=leftover)
        seen.source = opened.number
        outcome = Synced(
            generation=visit.inputs.generation,
            force_sync=visit.inputs.force_sync,
            target=SyncedTarget(
                name=spec.target.name,
                creation_policy=spec.target.creation_policy,
                resource_version=version_of(written.target),
            ),
            entries=tuple(SyncedEntry(secret_id=secret_id) for secret_id in spec.secret_ids),
            message=good_message(spec),
            leftover=leftover,
        )
        log.info("synchronized %s (%s): target %s", visit.key, cause, written.kind)
        await self._reporter.report(visit.obj, seen, outcome)
        return _after(min(seen.next_at, seen.cleanup_at or math.inf) - self._clock.monotonic())

    def _after_success(
        self, visit: Visit, before: Seen | None, data: dict[str, bytes], written: WriteResult,
        *, drift: bool, leftover: str,
    ) -> Seen:  # fmt: skip
        now = self._clock.monotonic()
        seen = Seen(
            inputs=replace(visit.inputs, target=revision(written.target)),
            good=True,
            next_at=now + period(visit.spec.interval, visit.inputs.uid),
            marks=self._memory.marks(data),
        )
        if drift and before is not None and before.good and written.kind is not Written.UNCHANGED:
            seen.repairs = repairs_in_a_row(before.repairs, before.repaired_at, now)
            seen.repaired_at = now
            if seen.repairs == PEACEFUL_REPAIRS:
                others = f" (field managers: {', '.join(written.managers)})" if written.managers else ""
                note = (
                    f'Secret "{visit.target_key.name}" is changed again and again by somebody else{others}; '
                )
                self._reporter.warn(visit.obj, "TargetContested", note + "repairs now wait longer each time")
        if leftover:
            self._plan_cleanup(visit, seen, failures=1)
        return seen

    async def _check_target(self, visit: Visit) -> Wait | Synchronize:
        """Whether a touched target still holds what we wrote; repairs what needs no value from Psono."""
        seen = self._memory.get(visit.key, visit.inputs.uid)
        secret = await self._writer.read(visit.target_key)
        data = decoded(secret) if secret is not None else {}
        if visit.spec.target.creation_policy == "Merge" and seen is not None:
            data = {name: value for name, value in data.items() if name in seen.marks}
        if seen is None or not self._memory.matches(seen.marks, data):
            return Synchronize(Cause.DRIFT)
        written = await self._write(visit, data)
        inputs = replace(visit.inputs, target=revision(written.target))
        self._memory.put(visit.key, replace(seen, inputs=inputs))
        return Wait(seen.next_at - self._clock.monotonic())

    async def _clean_up(self, visit: Visit, wait: Wait) -> Result:
        """Nothing is to be read or written now; a previous target may still have to go."""
        now, seen = self._clock.monotonic(), self._memory.get(visit.key, visit.inputs.uid)
        if seen is None or not seen.good or not visit.leftovers:
            return _after(wait.seconds)
        if now < seen.cleanup_at:
            return _after(min(wait.seconds, seen.cleanup_at - now))
        leftover = await self._cleanup.release_leftovers(visit.leftovers, visit.claimant)
        seen = replace(seen, cleanup_failures=0, cleanup_at=0.0)
        if leftover:
            before = self._memory.get(visit.key, visit.inputs.uid)
            self._plan_cleanup(visit, seen, failures=(before.cleanup_failures if before else 0) + 1)
        message = good_message(visit.spec)
        outcome = CleanedUp(visit.inputs.generation, visit.inputs.force_sync, message, leftover)
        await self._reporter.report(visit.obj, seen, outcome)
        return _after(min(wait.seconds, (seen.cleanup_at or math.inf) - now))

    def _plan_cleanup(self, visit: Visit, seen: Seen, *, failures: int) -> None:
        first, cap = FIRST_DELAY[Retry.BACKOFF], retry_cap(visit.spec.interval)
        seen.cleanup_failures = failures
        seen.cleanup_at = self._clock.monotonic() + retry_delay(failures, first=first, cap=cap, rng=self._rng)

    async def _write(self, visit: Visit, data: dict[str, bytes]) -> WriteResult:
        target = visit.spec.target
        written = await self._writer.apply(
            Wanted(visit.target_key, target.type, target.creation_policy, visit.claimant, data),
            visit.around,
            believed_absent=visit.cached_target is None,
        )
        if written.dropped:
            note = f'Secret "{target.name}" existed and was taken over; keys dropped: '
            self._reporter.warn(visit.obj, "TargetTakenOver", note + ", ".join(written.dropped))
        if written.taken:
            note = f'Secret "{target.name}" had values of nobody in particular, now replaced, for keys: '
            self._reporter.warn(visit.obj, "KeysTakenOver", note + ", ".join(written.taken))
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

    async def _failed(self, obj: KubeObject, inputs: Inputs, error: Exception, interval: float) -> NoReturn:
        """Report a failed attempt and say when the next one is."""
        failure = failure_of(error)
        before = self._memory.get(key_of(obj), inputs.uid)
        again = before is not None and not before.good and before.inputs == inputs
        failures = before.failures + 1 if before is not None and again else 1
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
        outcome = Failed(
            inputs.generation, inputs.force_sync, failure.reason, failure.message, quiet=failure.quiet
        )
        await self._reporter.report(obj, seen, outcome)
        summary = f"{failure.reason}: {failure.message}"
        if failure.retry in FIRST_DELAY:
            raise RetryError(summary, first=delay, cap=delay) from None
        raise TerminalError(summary, requeue_after=delay if math.isfinite(delay) else None) from None

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
