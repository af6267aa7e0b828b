"""Psono as a ``SecretSource``.

Adds to the client what concerns a whole server or key: how many requests are under way at once; the pause a
server asked for, which holds for everyone who reads from it; a failure to reach it, which
those who were waiting for their turn share; and what a bare refusal means (``refusals``).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from psono_operator.api.conditions import format_time
from psono_operator.api.spec import RemoteRef, SecretRef
from psono_operator.psono.client import Observer, PsonoClient
from psono_operator.psono.credentials import CredentialKeys, PsonoCredentials, parse_credentials
from psono_operator.psono.entry import Entry, EnvironmentVariable, FieldPath
from psono_operator.psono.errors import Meaning, Refused, RemoteError, Throttled, Unreachable
from psono_operator.psono.secretbytes import SecretBytes
from psono_operator.psono.sessions import SessionLease, SessionPool
from psono_operator.runtime.clock import Clock
from psono_operator.secretsync.refusals import KeyKnowledge
from psono_operator.secretsync.source import PATIENCE, SourceBusy

READS_PER_KEY = 4
"""Requests under way at once with one API key."""
SHARED_FOR = 5.0
"""Seconds for which those who were turned away find what the others found: that the server is unreachable."""
_THREAD_ABOVE = 1024 * 1024
"""Characters of ciphertext above which decryption would hold up the event loop (rule N6)."""


_T = TypeVar("_T")


class ServerPaused(Throttled):
    """The server asked for a pause; names its end, so the message is the same while the pause lasts (I5)."""

    def __init__(self, remaining: float, until: datetime) -> None:
        self.retry_after = remaining
        RemoteError.__init__(
            self,
            f"the Psono server asked for a pause until {format_time(until)}; if this comes often, read fewer "
            "entries, read less often, or raise the server's THROTTLE_RATE_ANON and THROTTLE_RATE_USER",
        )


class NobodyThere(Unreachable):
    """Somebody else found out just now that the server cannot be reached; in the same words (I5)."""

    def __init__(self, failure: str) -> None:
        RemoteError.__init__(self, failure)


class ExplainedRefusal(Refused):
    """A refusal whose meaning inspect has told."""

    def __init__(self, refused: Refused, explanation: str) -> None:
        self.status, self.meaning = refused.status, refused.meaning
        RemoteError.__init__(self, f"the Psono server refused with {refused.status}: {explanation}")


@dataclass(slots=True)
class _Pause:
    """The pause one server asked for."""

    until_monotonic: float
    until: datetime


class PsonoSources:
    """Opens sources; keeps the sessions and the pauses of all servers. Fulfils ``SourceFactory``."""

    def __init__(self, sessions: SessionPool, clock: Clock, observer: Observer | None = None) -> None:
        self._sessions = sessions
        self._clock = clock
        self._observer = observer
        self._pauses: dict[str, _Pause] = {}

    def parse(self, data: Mapping[str, bytes], ref: SecretRef) -> PsonoCredentials:
        """Credentials out of an authentication Secret's values. Raises CredentialsError."""
        keys = CredentialKeys(
            ref.server_url_key, ref.api_key_id_key, ref.api_secret_key_key, ref.ca_bundle_key
        )
        return parse_credentials(data, keys)

    def same(self, left: PsonoCredentials, right: PsonoCredentials) -> bool:
        """Whether both make the same requests and open the same entries."""
        return left.same_as(right)

    def open(self, credentials: PsonoCredentials) -> PsonoSource:
        """A source for the credentials; its close gives the session back."""
        lease = self._sessions.acquire(credentials)
        client = PsonoClient(
            credentials,
            lease,
            monotonic=self._clock.monotonic,
            now=self._clock.now,
            observer=self._observer,
        )
        return PsonoSource(self, client, lease, credentials, self._clock)

    async def close(self) -> None:
        """Close all sessions."""
        await self._sessions.close()

    def check_pause(self, server: str) -> None:
        """Raises ServerPaused while the server's pause lasts."""
        pause = self._pauses.get(server)
        if pause is None:
            return
        remaining = pause.until_monotonic - self._clock.monotonic()
        if remaining > 0:
            raise ServerPaused(remaining, pause.until)
        del self._pauses[server]

    def pause(self, server: str, seconds: float) -> None:
        """The server asked everyone to wait; a longer pause already known stays."""
        now = self._clock.monotonic()
        self._pauses = {name: each for name, each in self._pauses.items() if each.until_monotonic > now}
        until, known = now + seconds, self._pauses.get(server)
        if known is None or known.until_monotonic < until:
            self._pauses[server] = _Pause(until, self._clock.now() + timedelta(seconds=seconds))


class PsonoSource:
    """Entries readable with one API key."""

    def __init__(
        self,
        sources: PsonoSources,
        client: PsonoClient,
        lease: SessionLease,
        credentials: PsonoCredentials,
        clock: Clock,
    ) -> None:
        self._sources = sources
        self._client = client
        self._lease = lease
        self._clock = clock
        self._server_url = credentials.server_url
        self._key = credentials.api_secret_key
        self._turns = asyncio.Semaphore(READS_PER_KEY)
        self._unreachable_since = self._shared_until = -math.inf
        self._failure = ""
        self._turned_away = False
        self._inspecting = asyncio.Lock()
        self._knowledge = KeyKnowledge()

    async def versions(self) -> Mapping[str, str]:
        """The write date of every entry of the API key, by id. Raises RemoteError."""
        return (await self._ask(self._client.inspect)).write_dates

    async def read(self, ref: str) -> PsonoEntry:
        """Read and decrypt the entry ``ref``. Raises RemoteError and DecryptionError."""
        try:
            sealed = await self._ask(lambda: self._client.read(ref))
        except Refused as error:
            if error.meaning is not Meaning.READ:
                raise
            await self._inspect_once()
            raise ExplainedRefusal(error, self._knowledge.explain(ref)) from None
        self._knowledge.readable(ref)
        if len(sealed.data) > _THREAD_ABOVE:
            return PsonoEntry(await asyncio.to_thread(sealed.open, self._key))
        return PsonoEntry(sealed.open(self._key))

    async def close(self) -> None:
        """Give the session back."""
        await self._lease.release()

    async def _ask(self, request: Callable[[], Awaitable[_T]]) -> _T:
        asked_at = self._clock.monotonic()
        if asked_at < self._shared_until:
            raise NobodyThere(self._failure)
        await self._take_turn()
        try:
            self._sources.check_pause(self._server_url)
            if self._unreachable_since > asked_at:
                # Those who asked meanwhile answer for us as well. One after the other, a silent server would
                # hold a worker for each of us.
                raise NobodyThere(self._failure)
            try:
                answer = await request()
            except Throttled as error:
                raise self._paused(error) from None
            except Unreachable as error:
                now = self._clock.monotonic()
                self._unreachable_since, self._failure = now, str(error)
                if self._turned_away:  # they come back soon, and each of them has a status to write
                    self._shared_until, self._turned_away = now + SHARED_FOR, False
                raise
            self._unreachable_since = self._shared_until = -math.inf
            return answer
        finally:
            self._turns.release()

    async def _take_turn(self) -> None:
        """Wait for a turn; the caller releases it. Raises SourceBusy rather than hold a worker for long."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._turns.acquire()
        except TimeoutError:
            self._turned_away = True
            raise SourceBusy from None

    async def _inspect_once(self) -> None:
        """Ask what is wrong with a key that was refused, unless that was asked lately. Never raises."""
        async with self._inspecting:
            now = self._clock.monotonic()
            if not self._knowledge.may_ask(now):
                return
            self._knowledge.asked(now)
            try:
                self._knowledge.learned(await self._ask(self._client.inspect))
            except Refused as error:
                self._knowledge.learned(None, key_refused=error.meaning is Meaning.INSPECT)
            except (RemoteError, SourceBusy):
                pass  # then all that the refusal can mean has to be said

    def _paused(self, error: Throttled) -> Throttled:
        self._sources.pause(self._server_url, error.retry_after)
        try:
            self._sources.check_pause(self._server_url)
        except ServerPaused as paused:
            return paused
        return error


class PsonoEntry:
    """A decrypted entry in the words of the spec."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def select(self, ref: RemoteRef) -> SecretBytes:
        """The value ``ref`` selects. Raises ExtractionError."""
        if ref.environment_variable is not None:
            return self._entry.select(EnvironmentVariable(ref.environment_variable))
        return self._entry.select(FieldPath(ref.field or ""))
