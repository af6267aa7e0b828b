"""Events about objects: best effort, few, and never in anyone's way (rule I6).

``event`` only notes what is to be told and returns; one service sends it. Repeats of the same event become a
series: one create, one patch at the first repeat, then at most one patch per SERIES_SECONDS. A bounded queue
drops, a token bucket per object limits, few tries are made, and nothing is ever raised. Whether something is
worth an event, and its wording, is the caller's: the note must hold no value.

Wire: events.k8s.io/v1. ``note``, ``reason`` and the rest of an event cannot be changed later, so repeats with
another note count for the first one, as in client-go's ``tools/events``.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import OrderedDict, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from psono_operator.runtime.client import PatchKind
from psono_operator.runtime.clock import Clock
from psono_operator.runtime.errors import (
    AlreadyExists,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    Throttled,
    Unreachable,
)
from psono_operator.runtime.gate import NotLeader
from psono_operator.runtime.resources import KubeObject, ObjectKey, Resource, metadata_of
from psono_operator.runtime.tracebacks import one_line

_log = logging.getLogger(__name__)

EVENTS = Resource("events.k8s.io", "v1", "events", "Event")

SERIES_SECONDS = 360.0
"""A series that did not repeat for this long is over; a running one is patched this often."""
SWEEP_SECONDS = 60.0
SERIES_LIMIT = 4096
"""Series remembered at most; the oldest is forgotten first. client-go's cache has the same size."""
BURST = 25
TOKEN_SECONDS = 300.0
"""Per object: BURST requests at once, then one per TOKEN_SECONDS (client-go's spam filter)."""
ENDING_SECONDS = 60.0
"""A namespace that refused an event because it is being deleted is spared this long (H6)."""
TRIES = 3
RETRY_SECONDS = 5.0
NOTE_BYTES = 1024
NAME_LENGTH = 253


class EventClient(Protocol):
    """The two verbs that the recorder needs of ``KubeClient``."""

    async def create(self, resource: Resource, obj: Mapping[str, Any]) -> KubeObject:
        """POST."""

    async def patch(
        self, resource: Resource, key: ObjectKey, body: Mapping[str, Any], kind: PatchKind
    ) -> KubeObject:
        """PATCH."""


_SeriesKey = tuple[str, str, str, str, str, str]


@dataclass(slots=True)
class _Series:
    """One event and its repeats."""

    key: _SeriesKey
    name: ObjectKey
    body: dict[str, Any]
    count: int
    first_seen: datetime
    last_seen: datetime
    last_seen_at: float
    sent: int = 0  # the count that the API server knows; 0: not created
    sent_at: float = 0.0
    queued: bool = False


class EventRecorder:
    """A service. ``controller`` and ``instance`` name us in every event."""

    name = "event-recorder"

    def __init__(
        self, client: EventClient, clock: Clock, *, controller: str, instance: str, queue_size: int = 1000
    ) -> None:
        self.dropped = 0
        """Events that were not told: queue full, bucket empty, or refused by the API server."""
        self._client = client
        self._clock = clock
        self._controller = controller
        self._instance = instance[:128]
        self._queue_size = queue_size
        self._queue: deque[_Series] = deque()
        self._series: OrderedDict[_SeriesKey, _Series] = OrderedDict()
        self._buckets: dict[str, float] = {}
        self._ending: dict[str, float] = {}
        self._sequence = itertools.count()
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def event(self, regarding: KubeObject, type: str, reason: str, action: str, note: str) -> None:
        """Tell that something happened to ``regarding``. Returns at once and never raises.

        ``type`` is ``Normal`` or ``Warning``; ``reason`` and ``action`` are CamelCase words for machines,
        ``note`` is for people and is cut at 1 KiB.
        """
        metadata = metadata_of(regarding)
        namespace, name = metadata.get("namespace") or "", metadata.get("name") or ""
        uid = metadata.get("uid") or f"{namespace}/{name}"
        key = (uid, regarding.get("kind") or "", type, action, reason, name)
        now, at = self._clock.now(), self._clock.monotonic()
        series = self._series.get(key)
        if series is not None and at - series.last_seen_at < SERIES_SECONDS:
            series.count += 1
            series.last_seen, series.last_seen_at = now, at
            if series.sent == 1 and not series.queued:
                self._enqueue(series)
            return
        if not self._take_token(uid, at):
            self.dropped += 1
            return
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "regarding": {
                "apiVersion": regarding.get("apiVersion") or "",
                "kind": regarding.get("kind") or "",
                "namespace": namespace,
                "name": name,
                "uid": metadata.get("uid") or "",
                "resourceVersion": metadata.get("resourceVersion") or "",
            },
            "type": type,
            "reason": reason[:128],
            "action": action[:128],
            "note": _cut(note, NOTE_BYTES),
        }
        suffix = f".{int(now.timestamp() * 1_000_000):x}{next(self._sequence) & 0xFFF:03x}"
        event_key = ObjectKey(namespace or "default", name[: NAME_LENGTH - len(suffix)] + suffix)
        series = _Series(key, event_key, body, 1, now, now, at)
        if self._enqueue(series):
            self._series[key] = series
            self._series.move_to_end(key)
            if len(self._series) > SERIES_LIMIT:
                self._series.popitem(last=False)

    async def run(self) -> None:
        """Send what is noted until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send_all())
            group.create_task(self._sweep())

    async def flush(self, budget: float) -> bool:
        """Wait up to ``budget`` seconds until all that is noted was sent; whether it was."""
        try:
            async with asyncio.timeout(max(0.0, budget)):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    # -- bounds ---------------------------------------------------------------------------------------

    def _enqueue(self, series: _Series) -> bool:
        if len(self._queue) >= self._queue_size:
            self.dropped += 1
            return False
        series.queued = True
        self._queue.append(series)
        self._idle.clear()
        self._wanted.set()
        return True

    def _take_token(self, uid: str, at: float) -> bool:
        """One token of the object's bucket, kept as the time at which the bucket is full again."""
        full_at = max(self._buckets.get(uid, at), at) + TOKEN_SECONDS
        if full_at - at > BURST * TOKEN_SECONDS:
            return False
        self._buckets[uid] = full_at
        return True

    async def _sweep(self) -> None:
        """Once a minute: tell how far running series have got, close those that are over."""
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            at = self._clock.monotonic()
            for series in tuple(self._series.values()):
                over = at - series.last_seen_at >= SERIES_SECONDS
                if over:
                    del self._series[series.key]
                untold = series.sent and series.count > series.sent and not series.queued
                if untold and (over or at - series.sent_at >= SERIES_SECONDS):
                    self._enqueue(series)
            self._buckets = {uid: full_at for uid, full_at in self._buckets.items() if full_at > at}
            self._ending = {namespace: until for namespace, until in self._ending.items() if until > at}

    # -- sending --------------------------------------------------------------------------------------

    async def _send_all(self) -> None:
        while True:
            while self._queue:
                series = self._queue.popleft()
                series.queued = False
                if self._ending.get(series.name.namespace, 0.0) > self._clock.monotonic():
                    self._give_up(series)
                    continue
                await self._send(series)
                # The first repeat may have come while the create was on its way.
                if series.sent == 1 and series.count > 1 and not series.queued:
                    self._enqueue(series)
            self._idle.set()
            self._wanted.clear()
            await self._wanted.wait()

    async def _send(self, series: _Series) -> None:
        """A few tries; what then still fails is dropped."""
        for attempt in range(1, TRIES + 1):
            try:
                await self._send_once(series)
            except (Unreachable, ServerError, Throttled) as error:
                if attempt < TRIES:
                    await self._clock.sleep(RETRY_SECONDS)
                    continue
                _log.warning("event %s dropped: %s", series.name, error)
            except (NotLeader, NotFound):
                pass  # followers tell nothing; and a namespace that is gone takes its events along
            except Forbidden as error:
                if error.namespace_terminating:  # the namespace goes, and its events with it (H6)
                    self._ending[series.name.namespace] = self._clock.monotonic() + ENDING_SECONDS
                else:
                    _log.warning("event %s dropped: %s", series.name, error)
            except KubeError as error:
                _log.warning("event %s dropped: %s", series.name, error)
            except Exception as error:  # noqa: BLE001 - an event is worth no one's failure (I6)
                _log.error("event %s dropped: %s", series.name, one_line(error))
            else:
                return
            break
        self._give_up(series)

    def _give_up(self, series: _Series) -> None:
        self.dropped += 1
        if series.sent == 0 and self._series.get(series.key) is series:
            del self._series[series.key]  # the next one is a first again

    async def _send_once(self, series: _Series) -> None:
        count = series.count
        if series.sent:
            try:
                body = {"series": _series_of(series)}
                await self._client.patch(EVENTS, series.name, body, PatchKind.MERGE)
            except NotFound:  # the API server forgets events after an hour
                await self._create(series)
        else:
            await self._create(series)
        series.sent = count
        series.sent_at = self._clock.monotonic()

    async def _create(self, series: _Series) -> None:
        obj = {
            **series.body,
            "metadata": {"namespace": series.name.namespace, "name": series.name.name},
            "eventTime": _micro_time(series.first_seen),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
        }
        if series.count > 1:
            obj["series"] = _series_of(series)
        with suppress(AlreadyExists):  # an earlier try was carried out and only its answer was lost (M3)
            await self._client.create(EVENTS, obj)


def _series_of(series: _Series) -> dict[str, Any]:
    return {"count": series.count, "lastObservedTime": _micro_time(series.last_seen)}


def _micro_time(when: datetime) -> str:
    """The API's MicroTime: RFC 3339 in UTC with exactly six digits (K7)."""
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _cut(text: str, size: int) -> str:
    """At most ``size`` bytes of UTF-8, no character cut in half."""
    encoded = text.encode()
    return text if len(encoded) <= size else encoded[:size].decode(errors="ignore")
