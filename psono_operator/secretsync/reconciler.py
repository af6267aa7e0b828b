"""The one place that knows the order.

    auth Secret ─► read ─► decrypt ─► extract ─► ownership gate ─► target write
                ─► release of previous targets ─► status ─► Result

Every step is a named call that takes values and returns values. Nothing is carried in the queue: what is to
be done follows from the cache, the status and the memory of the last attempt (``need``).
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn

from psono_operator.api.status import SyncedEntry, SyncedTarget
from psono_operator.runtime.client import KubeClient
from psono_operator.runtime.clock import Clock
from psono_operator.runtime.controller import Result, RetryError, TerminalError
from psono_operator.runtime.errors import Conflict, Forbidden, KubeError, Throttled
from psono_operator.runtime.gate import NotLeader
from psono_operator.runtime.ownwrites import OwnWrites
from psono_operator.runtime.resources import (
    KubeObject,
    ObjectKey,
    is_deleting,
    key_of,
    uid_of,
    version_of,
)
from psono_operator.runtime.store import StoreView
from psono_operator.secretsync.attempts import after_check, after_failure, after_success, cleanup_again
from psono_operator.secretsync.cleanup import Cleanup
from psono_operator.secretsync.delivery import Delivery
from psono_operator.secretsync.failures import FIRST_DELAY, REPORTED, failure_of
from psono_operator.secretsync.fetch import fetch
from psono_operator.secretsync.finalizer import Vanished, add_finalizer
from psono_operator.secretsync.memory import Memory, Seen
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
from psono_operator.secretsync.schedule import SOON
from psono_operator.secretsync.source import SourceBusy
from psono_operator.secretsync.sources import OpenSource, SourceRegistry
from psono_operator.secretsync.target import decoded
from psono_operator.secretsync.visit import Visit, inputs_of, look
from psono_operator.secretsync.writer import TargetWriter, Written

log = logging.getLogger(__name__)

STALE_WAIT = 0.2
"""Seconds until a cache that is behind our own write is looked at again (rule F1)."""
BUSY_WAIT = 2.0
"""Seconds, at least, until a source that many wait for is asked again."""


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
        self._delivery = Delivery(client, psono_secrets, writer, reporter)
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
        try:
            return await self._visit(obj)
        except (Conflict, Throttled):
            raise
        except KubeError as error:
            raise self._soon_enough(obj, error) from None

    async def _visit(self, obj: KubeObject) -> Result:
        visit: Visit | None = None
        try:
            if is_deleting(obj):
                await self._cleanup.finalize(obj)
                return Result()
            visit = look(obj, self._psono_secrets, self._secrets)
            return await self._attend(visit)
        except Vanished:
            return Result()
        except SourceBusy:
            return Result(requeue_after=BUSY_WAIT * (1 + self._rng.random()))
        except REPORTED as error:
            await self._failed(obj, visit, error)
        except (KubeError, NotLeader):
            raise
        except Exception as error:
            # A fault of our own must be seen in the status too; the traceback goes without values (F8).
            log.error(
                "unexpected %s while synchronizing %s",
                type(error).__name__,
                key_of(obj),
                exc_info=_place(error),
            )
            await self._failed(obj, visit, error)

    async def _attend(self, visit: Visit) -> Result:
        """Do what the object needs now; status, finalizer and memory included."""
        visit.obj, unsaid = await self._reporter.catch_up(visit.obj)
        visit.obj = await add_finalizer(self._client, visit.obj)
        self._own_writes.record(visit.obj)
        need = self._need(visit)
        if isinstance(need, Synchronize) and need.cause is Cause.CREDENTIALS:
            need = await self._compare_credentials(visit, need)
        todo = await self._check_target(visit) if isinstance(need, CheckTarget) else need
        if isinstance(todo, Synchronize):
            return await self._synchronize(visit, todo.cause)
        if unsaid is not None:
            raise unsaid  # there is nothing else to do but to try again to say it
        return await self._clean_up(visit, todo)

    async def _synchronize(self, visit: Visit, cause: Cause) -> Result:
        spec, before = visit.spec, self._memory.get(visit.key, visit.inputs.uid)
        if visit.cached_target is None and visit.around.known:
            visit.obj = await self._delivery.check_live(visit)
        async with self._lease(visit) as opened:
            entries = await fetch(opened.source, spec.secret_ids)
            data = rendered(spec, entries)
        written = await self._delivery.deliver(visit, data)
        leftover = await self._cleanup.release_leftovers(visit.leftovers, visit.claimant)
        seen = after_success(
            visit.inputs, before, written.target, interval=spec.interval, source=visit.source,
            marks=self._memory.marks(data), mended=written.kind is not Written.UNCHANGED,
            now=self._clock.monotonic(),
        )  # fmt: skip
        self._delivery.complain(visit, before, seen, written)
        if leftover:
            self._plan_cleanup(visit, seen, failures=1)
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

    @contextlib.asynccontextmanager
    async def _lease(self, visit: Visit) -> AsyncIterator[OpenSource]:
        async with self._sources.lease(visit.key, visit.spec.authentication.secret_ref) as opened:
            visit.source = opened.number
            yield opened

    async def _compare_credentials(self, visit: Visit, need: Need) -> Need:
        """What is needed when the authentication Secret was written but holds what it held before."""
        seen = self._memory.get(visit.key, visit.inputs.uid)
        async with self._lease(visit) as opened:
            if seen is None or opened.number != seen.source:
                return need
        inputs = replace(seen.inputs, credentials=visit.inputs.credentials)
        self._memory.put(visit.key, replace(seen, inputs=inputs))
        return self._need(visit)

    async def _check_target(self, visit: Visit) -> Wait | Synchronize:
        """Whether a touched target still holds what we wrote; repairs what needs no value from Psono."""
        seen = self._memory.get(visit.key, visit.inputs.uid)
        try:
            secret = await self._writer.read(visit.target_key)
        except Forbidden:
            return Synchronize(Cause.DRIFT)  # writing it will be refused as well, and that is reported
        data = decoded(secret) if secret is not None else {}
        if visit.spec.target.creation_policy == "Merge" and seen is not None:
            data = {name: value for name, value in data.items() if name in seen.marks}
        if seen is None or not self._memory.matches(seen.marks, data):
            return Synchronize(Cause.DRIFT)
        written = await self._delivery.deliver(visit, data, secret)
        now, mended = self._clock.monotonic(), written.kind is not Written.UNCHANGED
        after = after_check(visit.inputs, seen, written.target, mended=mended, now=now)
        self._delivery.complain(visit, seen, after, written)
        self._memory.put(visit.key, after)
        return Wait(after.next_at - now)

    async def _clean_up(self, visit: Visit, wait: Wait) -> Result:
        """Nothing is to be read or written now; a previous target may still have to go."""
        now, before = self._clock.monotonic(), self._memory.get(visit.key, visit.inputs.uid)
        if before is None or not before.good or not (visit.leftovers or before.cleanup_failures):
            return _after(wait.seconds)
        if visit.leftovers and now < before.cleanup_at - SOON:
            return _after(min(wait.seconds, before.cleanup_at - now))
        leftover = await self._cleanup.release_leftovers(visit.leftovers, visit.claimant)
        seen = replace(before, cleanup_failures=0, cleanup_at=0.0)
        if leftover:
            self._plan_cleanup(visit, seen, failures=before.cleanup_failures + 1)
        message = good_message(visit.spec)
        outcome = CleanedUp(visit.inputs.generation, visit.inputs.force_sync, message, leftover)
        await self._reporter.report(visit.obj, seen, outcome)
        return _after(min(wait.seconds, (seen.cleanup_at or math.inf) - now))

    def _plan_cleanup(self, visit: Visit, seen: Seen, *, failures: int) -> None:
        now, interval = self._clock.monotonic(), visit.spec.interval
        cleanup_again(seen, failures=failures, interval=interval, now=now, rng=self._rng)

    async def _failed(self, obj: KubeObject, visit: Visit | None, error: Exception) -> NoReturn:
        """Report a failed attempt and say when the next one is. ``visit`` is None where looking failed."""
        if visit is None:
            inputs, interval = inputs_of(obj, None, self._psono_secrets, self._secrets), math.inf
        else:
            obj, inputs, interval = visit.obj, visit.inputs, visit.spec.interval
        failure, before = failure_of(error), self._memory.get(key_of(obj), inputs.uid)
        seen = after_failure(
            inputs, before, failure, interval=interval, source=visit.source if visit else 0,
            now=self._clock.monotonic(), rng=self._rng,
        )  # fmt: skip
        outcome = Failed(
            inputs.generation, inputs.force_sync, failure.reason, failure.message, quiet=failure.quiet
        )
        await self._reporter.report(obj, seen, outcome)
        delay = seen.next_at - self._clock.monotonic()
        summary = f"{failure.reason}: {failure.message}"
        if failure.retry in FIRST_DELAY:
            raise RetryError(summary, first=delay, cap=delay, at_least=delay) from None
        raise TerminalError(summary, requeue_after=delay if math.isfinite(delay) else None) from None

    def _soon_enough(self, obj: KubeObject, error: KubeError) -> Exception:
        """``error``; where only the status could not be written, it holds up no further attempt."""
        seen = self._memory.get(key_of(obj), uid_of(obj))
        if seen is None or seen.unreported is None or not math.isfinite(seen.next_at):
            return error
        return RetryError(str(error), cap=max(1.0, seen.next_at - self._clock.monotonic()))

    async def _forget(self, key: ObjectKey) -> Result:
        self._memory.forget(key)
        self._own_writes.forget(key)
        await self._sources.forget(key)
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
