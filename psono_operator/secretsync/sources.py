"""One open source per authentication Secret, kept while the Secret's version stays the same.

The Secret is read live when the metadata cache shows a version that was not read yet, by one of those who
ask; its values are parsed, used and dropped. Parsed credentials stay in memory with the client that needs
them. A new version with equal credentials keeps the source and its number, so nobody reads Psono anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from psono_operator.api.spec import SecretRef
from psono_operator.psono.errors import CredentialsError
from psono_operator.runtime.client import KubeClient
from psono_operator.runtime.errors import Forbidden, NotFound
from psono_operator.runtime.resources import KubeObject, ObjectKey
from psono_operator.runtime.store import StoreView
from psono_operator.secretsync.memory import revision
from psono_operator.secretsync.resources import SECRETS
from psono_operator.secretsync.source import SecretSource
from psono_operator.secretsync.target import decoded

C = TypeVar("C")
"""A backend's parsed credentials."""


class AuthSecretUnavailable(Exception):
    """The authentication Secret cannot be read; the message names it and the next step."""


class SourceFactory(Protocol[C]):
    """Opens sources; the only one who knows which backend it is."""

    def parse(self, data: Mapping[str, bytes], ref: SecretRef) -> C:
        """Credentials out of the Secret's values. Raises CredentialsError."""

    def same(self, left: C, right: C) -> bool:
        """Whether two parsed credentials are equal."""

    def open(self, credentials: C) -> SecretSource:
        """A source for the credentials."""


@dataclass(slots=True)
class OpenSource:
    """A source in use."""

    number: int
    """Different for different credentials; equal for equal ones of the same reference."""
    source: SecretSource
    users: int = 0
    retired: bool = False


@dataclass(slots=True)
class _Slot(Generic[C]):
    """What is known of one reference. ``lock`` owns the rest across awaits."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    version: str = ""
    credentials: C | None = None
    opened: OpenSource | None = None
    error: CredentialsError | None = None


class SourceRegistry(Generic[C]):
    """Hands out sources. One instance per process."""

    def __init__(self, client: KubeClient, secrets: StoreView, factory: SourceFactory[C]) -> None:
        """``secrets``: the metadata cache."""
        self._client = client
        self._secrets = secrets
        self._factory = factory
        self._slots: dict[tuple[ObjectKey, SecretRef], _Slot[C]] = {}
        self._numbers = 0

    @contextlib.asynccontextmanager
    async def lease(self, namespace: str, ref: SecretRef) -> AsyncIterator[OpenSource]:
        """The source for a reference, not closed before the block is left.

        Raises AuthSecretUnavailable, CredentialsError, and what the client raises.
        """
        opened = await self._current(ObjectKey(namespace, ref.name), ref)
        opened.users += 1
        try:
            yield opened
        finally:
            opened.users -= 1
            if opened.retired and opened.users == 0:
                await opened.source.close()

    async def prune(self, in_use: Callable[[ObjectKey], bool]) -> None:
        """Drop what belongs to authentication Secrets that nobody refers to any more."""
        for slot_key in [each for each in self._slots if not in_use(each[0])]:
            await self._retire(self._slots.pop(slot_key).opened)

    async def close(self) -> None:
        """Close every source that is not in use, and the others when they are given back."""
        for slot in self._slots.values():
            await self._retire(slot.opened)
        self._slots.clear()

    async def _current(self, key: ObjectKey, ref: SecretRef) -> OpenSource:
        slot = self._slots.setdefault((key, ref), _Slot())
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
            await self._retire(slot.opened)
            slot.version, slot.credentials, slot.opened, slot.error = version, None, None, error
            return
        if (
            slot.opened is None
            or slot.credentials is None
            or not self._factory.same(slot.credentials, credentials)
        ):
            await self._retire(slot.opened)
            self._numbers += 1
            slot.opened = OpenSource(self._numbers, self._factory.open(credentials))
            slot.credentials = credentials
        slot.version, slot.error = version, None

    async def _read(self, slot: _Slot[C], key: ObjectKey) -> KubeObject:
        try:
            return await self._client.get(SECRETS, key)
        except NotFound:
            await self._retire(slot.opened)
            slot.version, slot.credentials, slot.opened, slot.error = "", None, None, None
            raise AuthSecretUnavailable(
                f'the authentication Secret "{key.name}" does not exist in namespace "{key.namespace}": '
                "create it, or correct spec.authentication.secretRef.name"
            ) from None
        except Forbidden:
            raise AuthSecretUnavailable(
                f'the operator may not read the authentication Secret "{key.name}": '
                "check the operator's RBAC rights in this namespace"
            ) from None

    async def _retire(self, opened: OpenSource | None) -> None:
        if opened is not None:
            opened.retired = True
            if opened.users == 0:
                await opened.source.close()
