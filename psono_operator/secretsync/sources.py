"""One open source per authentication Secret, kept while the Secret's version stays the same.

The Secret is read live when the metadata cache shows a version that was not read yet, by one of those who
ask; its values are parsed, used and dropped. Parsed credentials stay in memory with the client that needs
them, and only while a PsonoSecret refers to them. A new version with equal credentials keeps the source
and its number, so nobody reads Psono anew.

What is known of a Secret changes in one step between two awaits, and what it replaces is closed after
that: a cut at any await leaves nothing half-changed (rule F6).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from psono_operator.api.spec import SecretRef
from psono_operator.psono.errors import CredentialsError
from psono_operator.runtime.client import KubeClient
from psono_operator.runtime.clock import Clock
from psono_operator.runtime.errors import Forbidden, NotFound
from psono_operator.runtime.resources import KubeObject, ObjectKey
from psono_operator.runtime.store import StoreView
from psono_operator.secretsync.memory import revision
from psono_operator.secretsync.resources import SECRETS
from psono_operator.secretsync.source import PATIENCE, SecretSource, SourceBusy
from psono_operator.secretsync.target import decoded

SHARE = 8
"""Workers that one source may hold while it does not answer; the others have other work."""
C = TypeVar("C")
"""A backend's parsed credentials."""


class AuthSecretUnavailable(Exception):
    """The authentication Secret cannot be read; the message names it and the next step."""


class AuthSecretForbidden(AuthSecretUnavailable):
    """We may not read it. No watch tells when that changes."""


class SourceFactory(Protocol[C]):
    """Opens sources; the only one who knows which backend it is."""

    def parse(self, data: Mapping[str, bytes], ref: SecretRef) -> C:
        """Credentials out of the Secret's values. Raises CredentialsError."""

    def same(self, left: C, right: C) -> bool:
        """Whether two parsed credentials are equal."""

    def open(self, credentials: C) -> SecretSource:
        """A source for the credentials."""


@dataclass(slots=True, eq=False)
class OpenSource:
    """A source in use. It may be closed twice, where the first time was cut off."""

    number: int
    """Different for different credentials; equal for equal ones of the same reference."""
    source: SecretSource
    users: int = 0
    retired: bool = False
    since: dict[ObjectKey, float] = field(default_factory=dict)
    """Who uses it now, and since when, in monotonic seconds."""

    def check_share(self, now: float) -> None:
        """Raises SourceBusy when it holds its share of the workers and one of them has waited long."""
        if len(self.since) >= SHARE and now - min(self.since.values()) > PATIENCE:
            raise SourceBusy


@dataclass(slots=True)
class _Slot(Generic[C]):
    """What is known of one reference. ``lock`` owns the rest across awaits."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    version: str = ""
    credentials: C | None = None
    opened: OpenSource | None = None
    error: CredentialsError | None = None
    holders: set[ObjectKey] = field(default_factory=set)
    """The PsonoSecrets that refer to it."""

    def now_is(
        self,
        version: str,
        credentials: C | None = None,
        opened: OpenSource | None = None,
        error: CredentialsError | None = None,
    ) -> OpenSource | None:
        """Change everything at once; the source that is to be retired, if it is another now."""
        before = self.opened
        self.version, self.credentials, self.opened, self.error = version, credentials, opened, error
        return before if before is not opened else None


_SlotKey = tuple[ObjectKey, SecretRef]


class SourceRegistry(Generic[C]):
    """Hands out sources. One instance per process."""

    def __init__(
        self, client: KubeClient, secrets: StoreView, factory: SourceFactory[C], clock: Clock
    ) -> None:
        """``secrets``: the metadata cache."""
        self._clock = clock
        self._client = client
        self._secrets = secrets
        self._factory = factory
        self._slots: dict[_SlotKey, _Slot[C]] = {}
        self._held: dict[ObjectKey, _SlotKey] = {}
        self._retired: list[OpenSource] = []
        self._numbers = 0

    @contextlib.asynccontextmanager
    async def lease(self, holder: ObjectKey, ref: SecretRef) -> AsyncIterator[OpenSource]:
        """The source for the reference of the PsonoSecret ``holder``, not closed before the block is left.

        It is kept for later until the holder is forgotten or refers to another. One lease of a holder at a
        time. Raises AuthSecretUnavailable, CredentialsError, SourceBusy, and what the client raises.
        """
        opened = await self._current(holder, ref)
        opened.check_share(self._clock.monotonic())
        opened.users += 1
        opened.since[holder] = self._clock.monotonic()
        try:
            yield opened
        finally:
            opened.users -= 1
            del opened.since[holder]
            if opened.retired:
                await self._close_retired()

    async def forget(self, holder: ObjectKey) -> None:
        """The PsonoSecret is gone; what nobody else refers to is closed and dropped."""
        slot_key = self._held.pop(holder, None)
        slot = self._slots.get(slot_key) if slot_key is not None else None
        if slot_key is None or slot is None:
            return
        slot.holders.discard(holder)
        if not slot.holders:
            del self._slots[slot_key]
            await self._retire(slot.now_is(""))

    async def close(self) -> None:
        """Close every source that is not in use, and the others when they are given back."""
        slots = list(self._slots.values())
        self._slots.clear()
        self._held.clear()
        for slot in slots:
            await self._retire(slot.now_is(""))

    def __len__(self) -> int:
        """How many references are known."""
        return len(self._slots)

    async def _current(self, holder: ObjectKey, ref: SecretRef) -> OpenSource:
        key = ObjectKey(holder.namespace, ref.name)
        if self._held.get(holder, (key, ref)) != (key, ref):
            await self.forget(holder)
        slot = self._slots.setdefault((key, ref), _Slot())
        slot.holders.add(holder)
        self._held[holder] = (key, ref)
        async with slot.lock:
            cached = revision(self._secrets.get(key))
            if not cached or cached != slot.version:
                await self._refresh(slot, key, ref)
            if slot.error is not None:
                raise slot.error.with_traceback(None)
            if slot.opened is None:
                raise AssertionError("a slot without an error has a source")
            return slot.opened

    async def _refresh(self, slot: _Slot[C], key: ObjectKey, ref: SecretRef) -> None:
        secret = await self._read(slot, key)
        version = revision(secret)
        if version == slot.version:
            return
        try:
            credentials = self._factory.parse(decoded(secret), ref)
        except CredentialsError as error:
            # Its traceback holds the frames of the parser, and those the values.
            await self._retire(slot.now_is(version, error=error.with_traceback(None)))
            return
        opened = slot.opened
        if (
            opened is None
            or slot.credentials is None
            or not self._factory.same(slot.credentials, credentials)
        ):
            self._numbers += 1
            opened = OpenSource(self._numbers, self._factory.open(credentials))
        await self._retire(slot.now_is(version, credentials, opened))

    async def _read(self, slot: _Slot[C], key: ObjectKey) -> KubeObject:
        try:
            return await self._client.get(SECRETS, key)
        except NotFound:
            await self._retire(slot.now_is(""))
            raise AuthSecretUnavailable(
                f'the authentication Secret "{key.name}" does not exist in namespace "{key.namespace}": '
                "create it, or correct spec.authentication.secretRef.name"
            ) from None
        except Forbidden:
            raise AuthSecretForbidden(
                f'the operator may not read the authentication Secret "{key.name}": '
                "check the operator's RBAC rights in this namespace"
            ) from None

    async def _retire(self, opened: OpenSource | None) -> None:
        if opened is not None:
            opened.retired = True
            self._retired.append(opened)
            await self._close_retired()

    async def _close_retired(self) -> None:
        for opened in [each for each in self._retired if each.users == 0]:
            await opened.source.close()
            if opened in self._retired:
                self._retired.remove(opened)
