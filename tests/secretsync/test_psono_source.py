"""Psono as a source: turns, pauses, shared failures, explained refusals, over a real double."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from psono_operator.api.spec import RemoteRef, SecretRef
from psono_operator.psono.errors import Refused, Throttled, Unreachable
from psono_operator.psono.sessions import SessionPool
from psono_operator.sandbox.psono import ApiKey, PsonoDouble
from psono_operator.secretsync.psono_source import READS_PER_KEY, SHARED_FOR, PsonoSource, PsonoSources
from psono_operator.secretsync.source import PATIENCE, SourceBusy
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class Stage:
    """A double, and sources for its keys."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.double = PsonoDouble(now=self.clock.now, sleep=self.clock.sleep)
        self.sources = PsonoSources(SessionPool({}), self.clock)
        self.url = ""
        self._open: list[PsonoSource] = []

    def source(self, key: ApiKey, url: str = "") -> PsonoSource:
        values = {"serverUrl": url or self.url, "apiKeyId": key.id, "apiSecretKey": key.secret_key_hex}
        data = {name: value.encode() for name, value in values.items()}
        source = self.sources.open(self.sources.parse(data, SecretRef(name="auth")))
        self._open.append(source)
        return source

    def entry(self, *keys: ApiKey) -> str:
        return self.double.add_entry({"a": "canary"}, keys)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Stage]:
        async with self.double.serve() as served:
            self.url = served.url
            try:
                yield self
            finally:
                for each in self._open:
                    await each.close()
                await self.sources.close()


async def message_of(source: PsonoSource, entry: str) -> str:
    with pytest.raises(Refused) as caught:
        await source.read(entry)
    assert caught.value.status == 400, "never anything else than it was"
    return str(caught.value)


async def test_a_value_is_read_decrypted_and_selected() -> None:
    async with Stage().served() as stage:
        key = stage.double.add_key()
        entry = stage.entry(key)
        found = await stage.source(key).read(entry)
        assert found.select(RemoteRef.model_validate({"secretId": entry, "field": "a"})).reveal() == b"canary"
        assert set(await stage.source(key).versions()) == {entry}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("unknown key", "unknown, inactive or deleted"),
        ("no right", "no read right"),
        ("not assigned", "not assigned"),
        ("lost", "owner may not read it"),
    ],
)
async def test_a_bare_refusal_is_explained_once_and_the_same_again(wrong: str, words: str) -> None:
    """One inspect, however many reads are refused at once and later; the message stays (I5)."""
    async with Stage().served() as stage:
        key = stage.double.add_key(read=wrong != "no right")
        entry = stage.entry(*([] if wrong == "not assigned" else [key]))
        if wrong == "unknown key":
            stage.double.store.delete_key(key)
        if wrong == "lost":
            stage.double.store.lose(key, entry)
        source = stage.source(key)
        first = await asyncio.gather(*(message_of(source, entry) for _ in range(6)))
        assert words in first[0]
        await stage.clock.sleep(200)
        assert {*first, await message_of(source, entry)} == {first[0]}
        assert stage.double.count("inspect") == 1
        await stage.clock.sleep(100)
        assert await message_of(source, entry) == first[0]
        assert stage.double.count("inspect") == 2


@pytest.mark.parametrize("trouble", [404, 500, 403])
async def test_where_inspect_says_nothing_everything_it_can_mean_is_said(trouble: int) -> None:
    """A refusal stays a refusal, and a server without inspect is not asked again and again."""
    async with Stage().served() as stage:
        key = stage.double.add_key()
        entry = stage.entry()
        stage.double.fail(trouble, endpoint="inspect")
        source = stage.source(key)
        messages = {await message_of(source, entry) for _ in range(5)}
        assert len(messages) == 1
        assert "or the entry is not assigned" in messages.pop()
        assert stage.double.count("inspect") == 1


async def test_a_throttled_inspect_pauses_the_server_and_explains_nothing() -> None:
    async with Stage().served() as stage:
        key = stage.double.add_key()
        entry = stage.entry()
        stage.double.throttle(60, after_requests=1)
        source = stage.source(key)
        assert "or the entry is not assigned" in await message_of(source, entry)
        with pytest.raises(Throttled):
            await source.read(entry)
        assert len(stage.double.requests) == 2, "and nobody asks during the pause"


async def test_a_malformed_id_needs_no_explanation() -> None:
    async with Stage().served() as stage:
        key = stage.double.add_key()
        assert "UUID" in await message_of(stage.source(key), "no-uuid")
        assert stage.double.count("inspect") == 0


async def test_a_mended_entry_is_read_and_what_was_said_of_it_forgotten() -> None:
    async with Stage().served() as stage:
        key = stage.double.add_key()
        entry = stage.entry()
        source = stage.source(key)
        assert "not assigned" in await message_of(source, entry)
        stage.double.assign(key, entry)
        await source.read(entry)
        stage.double.store.change_key(key, active=False)
        assert "API key is unknown, inactive" in await message_of(source, entry)


async def test_a_pause_holds_for_everybody_who_reads_from_that_server() -> None:
    """D2: its end is named, so the message is the same while it lasts (I5); other servers go on."""
    async with Stage().served() as stage, stage.double.serve() as elsewhere:
        keys = [stage.double.add_key() for _ in range(2)]
        entry = stage.entry(*keys)
        stage.double.throttle(60)
        messages = []
        for key in (*keys, *keys):
            with pytest.raises(Throttled) as caught:
                await stage.source(key).read(entry)
            messages.append(str(caught.value))
            await stage.clock.sleep(7)
        assert len(set(messages)) == 1
        assert "until 2026-12-01T12:01:00Z" in messages[0]
        assert len(stage.double.requests) == 1
        stage.double.throttle(None)
        await stage.source(keys[0], elsewhere.url).read(entry)
        await stage.clock.sleep(60)
        await stage.source(keys[0]).read(entry)


async def test_a_longer_pause_stays_and_one_that_is_over_is_forgotten() -> None:
    async with Stage().served() as stage:
        stage.sources.pause("https://a", 60)
        stage.sources.pause("https://a", 10)
        with pytest.raises(Throttled) as caught:
            stage.sources.check_pause("https://a")
        assert caught.value.retry_after == 60
        await stage.clock.sleep(61)
        stage.sources.pause("https://b", 10)
        assert set(stage.sources._pauses) == {"https://b"}


async def test_a_key_reads_a_few_entries_at_a_time() -> None:
    async with Stage().served() as stage:
        key = stage.double.add_key()
        entries = [stage.entry(key) for _ in range(3 * READS_PER_KEY)]
        stage.double.delay_seconds = 0.5
        source = stage.source(key)
        started = stage.clock.monotonic()
        await asyncio.gather(*(source.read(each) for each in entries))
        assert stage.clock.monotonic() - started == pytest.approx(1.5, abs=0.1)


async def test_those_who_wait_for_a_server_that_does_not_answer_are_let_go() -> None:
    """A silent server holds the few whose turn it is; the others have other work meanwhile."""
    async with Stage().served() as stage:
        key = stage.double.add_key()
        entries = [stage.entry(key) for _ in range(5 * READS_PER_KEY)]
        stage.double.delay_seconds = 100
        source = stage.source(key)
        started, busy = stage.clock.monotonic(), []

        async def ask(entry: str) -> Exception | None:
            try:
                await source.read(entry)
            except SourceBusy:
                busy.append(stage.clock.monotonic() - started)
            except Unreachable as error:
                return error
            return None

        answers = await asyncio.gather(*(ask(each) for each in entries))
        failed = [str(each) for each in answers if each is not None]
        assert busy == [pytest.approx(PATIENCE, abs=0.1)] * (4 * READS_PER_KEY)
        assert len(failed) == READS_PER_KEY
        assert len(set(failed)) == 1
        asked = len(stage.double.requests)
        for each in entries:  # those who were let go come back: they get the answer of the others at once
            with pytest.raises(Unreachable) as caught:
                await source.read(each)
            assert str(caught.value) == failed[0]
        assert len(stage.double.requests) == asked
        stage.double.delay_seconds = 0
        await stage.clock.sleep(SHARED_FOR)
        await asyncio.gather(*(source.read(each) for each in entries))


async def test_one_that_nobody_waited_for_is_asked_again_at_once() -> None:
    """A failure is shared only where others were turned away because of it."""
    async with Stage().served() as stage:
        key = stage.double.add_key()
        entry = stage.entry(key)
        stage.double.delay_seconds = 100
        source = stage.source(key)
        with pytest.raises(Unreachable):
            await source.read(entry)
        stage.double.delay_seconds = 0
        await source.read(entry)
