"""List and watch one resource, as snapshots and changes, for ever.

    EMPTY ──► LISTING ──► WATCHING
      ▲          ▲           │ │
      │          └───────────┘ │    the safety relist is due
      └────────────────────────┘    the version expired, or the server does not know it

The reflector knows the list-and-watch protocol and its failures; it refuses to know what the objects are and
who reads them. It never ends by itself: every failure ends in a delay and another attempt. What a line of the
stream means and what follows which failure is decided in ``watchevents``. The initial set comes from
:meth:`Reflector._list` alone, where a streaming list could be put beside it (A5).

Rules: A1 to A4, B1 to B9, C6 (safety relist), F4 (a type that is absent). Progress is told for N3.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum

from psono_operator.runtime.backoff import Backoff
from psono_operator.runtime.client import KubeClient
from psono_operator.runtime.clock import Clock
from psono_operator.runtime.errors import (
    ApiError,
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    ProtocolError,
    Unreachable,
)
from psono_operator.runtime.resources import KubeObject, Resource, metadata_of, version_of
from psono_operator.runtime.transforms import Transform, strip_noise
from psono_operator.runtime.watchevents import (
    AfterFailure,
    Bookmark,
    Change,
    ChangeKind,
    UnknownEvent,
    WatchEndedEarly,
    after_watch_failure,
    is_servers_fault,
    read_line,
)

__all__ = ["Change", "ChangeKind", "Reflector", "Snapshot", "State"]

log = logging.getLogger(__name__)

WATCH_SECONDS = (180, 230)
"""A watch ends after a time drawn from this range: some load balancers cut idle flows at 240 s (B1)."""
SHORT_WATCH = 1.0
"""Seconds. A stream that ends sooner and brought nothing new is a failure (B5)."""
DEAF_WATCHES_BEFORE_RELIST = 2
"""Watches of full length without a single line, not even a bookmark, until the version is suspected. That is
how a real API server (1.36) treats a version from its future, such as ours after a restore of etcd."""
STEADY_WATCH = 30.0
"""Seconds. A stream that lasted so long before its connection broke is no sign of trouble: load balancers cut
idle ones, rollouts of the API server all of them. The next watch follows at once, spread over a second."""
EXPIRY_PAUSE = 60.0
"""Seconds. A version that expires sooner after another one means that the server insists."""
RETRY_AFTER_CAP = 180.0
"""Seconds for which we go blind at most because a server said so; below the limit of liveness (N3)."""
FULL_LIST_TIMEOUT = 120.0
"""Seconds for a list without pages, the last resort of A2."""


class State(Enum):
    """Where the state machine is. EMPTY: there is no version to watch from, and a list is to come."""

    EMPTY = "empty"
    LISTING = "listing"
    WATCHING = "watching"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All objects at one version. ``scheduled``: nothing was wrong, only the safety relist was due (C6)."""

    items: list[KubeObject] = field(repr=False)
    version: str
    scheduled: bool = False


class Reflector:
    """See the module. One consumer at a time iterates :meth:`events`."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        *,
        clock: Clock,
        rng: random.Random,
        backoff: Backoff | None = None,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
        transform: Transform = strip_noise,
        page_size: int = 500,
        relist_interval: float | None = 3600.0,
        on_state: Callable[[State], None] | None = None,
        on_failure: Callable[[KubeError], None] | None = None,
    ) -> None:
        """``namespace`` None means all. ``relist_interval`` is in seconds, ±20 %; None switches it off.

        ``on_state`` hears of every change of state, ``on_failure`` of every failed attempt.
        """
        self._client = client
        self._resource = resource
        self._clock = clock
        self._rng = rng
        self._backoff = backoff if backoff is not None else Backoff(clock=clock, rng=rng)
        self.namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._metadata_only = metadata_only
        self._transform = transform
        self._page_size = page_size
        self._relist_interval = relist_interval
        self._on_state = on_state
        self._on_failure = on_failure

        self.state = State.EMPTY
        self.last_progress = clock.monotonic()
        """When the state machine last stepped: an attempt, a page, a line, a failure, the end of a delay."""
        self._version: str | None = None
        self._relist_at: float | None = None
        self._trouble: KubeError | None = None
        self._opened_at: float | None = None
        self._expired_at = float("-inf")
        self._failed_watches = 0
        self._deaf_watches = 0
        self._unknown_types: set[str] = set()

    @property
    def last_error(self) -> str | None:
        """Why nothing can be learnt at the moment, in one line; None while all is well."""
        if self._trouble is None or self._stream_lasted(SHORT_WATCH):
            return None
        return str(self._trouble)

    async def events(self) -> AsyncGenerator[Snapshot | Change, None]:
        """A snapshot, then changes, then possibly another snapshot, without end.

        An item counts as consumed when the next one is asked for. A consumer that failed on an item closes
        the iterator (``contextlib.aclosing``) and calls this again: it gets the same item, or a snapshot
        that includes it (B9).
        """
        while True:
            relisting = self._version is None or self._relist_is_due()
            try:
                if relisting:
                    snapshot = await self._list()
                    yield snapshot
                    self._listed(snapshot.version)
                else:
                    self._enter(State.WATCHING)
                    async with aclosing(self._watch()) as changes:
                        async for change in changes:
                            yield change
            except KubeError as error:
                await self._pause(error, self._version is not None and not relisting)

    async def _list(self) -> Snapshot:
        """The whole collection. An expired continue token restarts it once; then one list without pages."""
        scheduled = self._version is not None
        self._enter(State.LISTING)
        for page_size in (self._page_size, self._page_size, None):
            snapshot = await self._collect(page_size, scheduled)
            if snapshot is not None:
                return snapshot
        raise ProtocolError(f"{self._request} answered a list without pages with an expired token")

    async def _collect(self, page_size: int | None, scheduled: bool) -> Snapshot | None:
        """All pages, or None when the continue token expired under way (A2)."""
        items: list[KubeObject] = []
        version, token = "", ""
        while True:
            try:
                page = await self._client.list_page(
                    self._resource,
                    namespace=self.namespace,
                    limit=page_size,
                    continue_token=token or None,
                    label_selector=self._label_selector,
                    field_selector=self._field_selector,
                    metadata_only=self._metadata_only,
                    timeout=None if page_size else FULL_LIST_TIMEOUT,
                )
            except Gone:
                if not token:
                    raise
                return None  # with all that was collected: a later token would mix two snapshots
            self._step()
            items += map(self._transform, page["items"])
            version = version or version_of(page)
            previous, token = token, str(metadata_of(page).get("continue") or "")
            if not version:
                raise ProtocolError(f"{self._request} answered a list without resourceVersion")
            if not token:
                return Snapshot(items, version, scheduled)
            if token == previous:
                raise ProtocolError(f"{self._request} answered the same page twice")

    def _listed(self, version: str) -> None:
        """The consumer has taken the snapshot."""
        self._version = version
        self._failed_watches = self._deaf_watches = 0
        if self._relist_interval is not None:
            jitter = self._rng.uniform(0.8, 1.2)
            self._relist_at = self._clock.monotonic() + self._relist_interval * jitter
        self._recovered()

    async def _watch(self) -> AsyncGenerator[Change, None]:
        """One watch request from the current version. Moves the version; raises what ended the watch."""
        assert self._version is not None  # noqa: S101 - the caller's condition, for the type checker
        started, begun_at = self._version, self._clock.monotonic()
        timeout, heard = self._rng.randint(*WATCH_SECONDS), False
        self._opened_at = None
        lines = self._client.watch_lines(
            self._resource,
            namespace=self.namespace,
            resource_version=started,
            timeout_seconds=timeout,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            metadata_only=self._metadata_only,
            on_open=self._opened,
        )
        async with aclosing(lines):
            async for line in lines:
                self._step()
                heard = True
                event = read_line(line, self._request, sensitive=self._resource.sensitive)
                match event:
                    case KubeError():
                        raise event
                    case Change(kind, obj):
                        version = version_of(obj)
                        yield Change(kind, self._transform(obj))
                        self._advance(version)
                    case Bookmark(version):
                        self._advance(version)
                    case UnknownEvent(name):
                        self._ignore(name)
        self._step()
        lasted = self._clock.monotonic() - begun_at
        if self._version == started and lasted < SHORT_WATCH:
            raise WatchEndedEarly(f"{self._request}: the server ended the watch at once")
        self._recovered()
        if heard:
            self._deaf_watches = 0
        elif lasted >= timeout - SHORT_WATCH:
            self._deaf_watches += 1
            if self._deaf_watches >= DEAF_WATCHES_BEFORE_RELIST:
                log.info("%s: nothing was heard from version %s; listing again", self._request, started)
                self._forget_version()

    def _opened(self) -> None:
        self._step()
        self._opened_at = self._clock.monotonic()
        self._backoff.healthy()

    def _advance(self, version: str) -> None:
        if version and version != self._version:
            self._version = version
            self._failed_watches = 0
            self._recovered()
        elif self._stream_lasted(SHORT_WATCH):
            self._recovered()

    def _stream_lasted(self, seconds: float) -> bool:
        """Whether a watch was accepted, and so many seconds ago; servers may refuse right after that."""
        return self._opened_at is not None and self._clock.monotonic() - self._opened_at >= seconds

    def _ignore(self, event_type: str) -> None:
        if event_type not in self._unknown_types and len(self._unknown_types) < 10:
            self._unknown_types.add(event_type)
            log.warning("%s: ignoring events of unknown type %.40r", self._request, event_type)

    async def _pause(self, error: KubeError, watching: bool) -> None:
        """Decide what follows a failure, tell of it, and wait."""
        self._step()
        steady = self._stream_lasted(STEADY_WATCH)
        self._opened_at = None
        if watching and steady and isinstance(error, Unreachable):
            log.info("%s; watching again", error)
            await self._wait(self._rng.uniform(0.0, 1.0))
            return
        if watching:
            self._failed_watches += is_servers_fault(error)
            if after_watch_failure(error, self._failed_watches) is AfterFailure.RELIST:
                self._forget_version()
        elif self._version is not None and self._relist_interval is not None:
            # The safety relist failed. What we have is no worse than before: go on and try later.
            self._relist_at = self._clock.monotonic() + 0.1 * self._relist_interval
        if self._version is None:
            self._enter(State.EMPTY)  # also when it is the first list that failed
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        delay = self._backoff.next(min(retry_after or 0.0, RETRY_AFTER_CAP))
        if self._on_failure is not None:
            self._on_failure(error)
        if isinstance(error, Gone) and not self._expired_lately():
            # Versions expire in the course of things; only a server that insists has to wait.
            log.debug("%s; listing again", error)
            return
        self._tell(error)
        await self._wait(delay)

    async def _wait(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._step()

    def _expired_lately(self) -> bool:
        """Whether a version expired a moment ago; this one counts from now on."""
        before, self._expired_at = self._expired_at, self._clock.monotonic()
        return self._expired_at - before < EXPIRY_PAUSE

    def _tell(self, error: KubeError) -> None:
        """One line when trouble begins or changes its nature, none per attempt."""
        known, self._trouble = self._trouble, error
        if known is None or _nature(known) != _nature(error):
            level = logging.ERROR if isinstance(error, Forbidden | NotFound) else logging.WARNING
            log.log(level, "%s%s; trying again", error, self._advice(error))

    def _advice(self, error: KubeError) -> str:
        name = f"{self._resource.plural}.{self._resource.group}".rstrip(".")
        if isinstance(error, Forbidden):
            return f" (the operator needs the verbs list and watch on {name})"
        if isinstance(error, NotFound):
            return f" (the cluster does not have {name}: is its CustomResourceDefinition installed?)"
        return ""

    def _recovered(self) -> None:
        self._backoff.healthy()
        known, self._trouble = self._trouble, None
        if known is not None:
            log.info("%s works again", self._request)

    def _forget_version(self) -> None:
        self._version = None
        self._enter(State.EMPTY)

    def _relist_is_due(self) -> bool:
        return self._relist_at is not None and self._clock.monotonic() >= self._relist_at

    @property
    def _request(self) -> str:
        return f"GET {self._resource.collection_path(self.namespace)}"

    def _enter(self, state: State) -> None:
        self._step()
        if state is not self.state:
            self.state = state
            if self._on_state is not None:
                self._on_state(state)

    def _step(self) -> None:
        self.last_progress = self._clock.monotonic()


def _nature(error: KubeError) -> tuple[type[KubeError], int]:
    return type(error), error.code if isinstance(error, ApiError) else 0
