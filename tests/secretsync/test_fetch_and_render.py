"""Entries once each, and all values or none (J5, B2, B4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from psono_operator.api.spec import RemoteRef, parse_spec
from psono_operator.psono.entry import Entry, EnvironmentVariable
from psono_operator.psono.errors import Meaning, PsonoError, Refused, Unreachable
from psono_operator.psono.secretbytes import SecretBytes
from psono_operator.secretsync.fetch import (
    READ_BUDGET,
    READS_AT_ONCE,
    EntryReadFailed,
    ReadsTooSlow,
    fetch,
)
from psono_operator.secretsync.psono_source import PsonoEntry
from psono_operator.secretsync.render import MappingFailed, TooMuchData, rendered
from tests.secretsync.objects import mapping, psono_secret


class Source:
    """Answers reads after a second each; ``broken`` ids fail."""

    def __init__(
        self,
        broken: dict[str, PsonoError] | None = None,
        *,
        delay: float = 1,
        slow: dict[str, float] | None = None,
    ) -> None:
        self.broken = broken or {}
        self.delay = delay
        self.slow = slow or {}
        self.reads: list[str] = []
        self.at_once = 0
        self.most_at_once = 0

    async def read(self, ref: str) -> Any:
        self.reads.append(ref)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.slow.get(ref, self.delay))
        finally:
            self.at_once -= 1
        if ref in self.broken:
            raise self.broken[ref]
        return ref

    async def versions(self) -> dict[str, str]:
        return {}

    async def close(self) -> None: ...


IDS = [f"e{number}" for number in range(20)]
REFUSED = Refused(400, next(iter(Meaning)))


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_entries_are_read_side_by_side() -> None:
    """D14."""
    source = Source()
    found: dict[str, Any] = dict(await fetch(source, IDS))
    assert found == {each: each for each in IDS}
    assert sorted(source.reads) == sorted(IDS)
    assert source.most_at_once == READS_AT_ONCE
    assert asyncio.get_running_loop().time() == pytest.approx(len(IDS) / READS_AT_ONCE)


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_dead_key_costs_a_handful_of_requests() -> None:
    """D5."""
    source = Source(dict.fromkeys(IDS, REFUSED))
    with pytest.raises(EntryReadFailed) as caught:
        await fetch(source, IDS)
    assert len(source.reads) == READS_AT_ONCE
    assert caught.value.secret_id == "e0"


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_the_reported_failure_is_the_first_in_order() -> None:
    """I5."""
    source = Source({"e3": Unreachable("x"), "e1": REFUSED})
    with pytest.raises(EntryReadFailed) as caught:
        await fetch(source, IDS)
    assert (caught.value.secret_id, caught.value.error) == ("e1", REFUSED)
    assert str(caught.value).startswith("entry e1: ")


@pytest.mark.asyncio
@pytest.mark.looptime
@pytest.mark.parametrize("entries", [1, 200])
async def test_reads_that_take_too_long_are_given_up_in_time_to_say_so(entries: int) -> None:
    """F6: a reconcile that is cut off from outside could not report it."""
    source = Source(delay=60 if entries == 1 else 1)
    with pytest.raises(ReadsTooSlow, match=f"^{entries} Psono entr") as caught:
        await fetch(source, [f"e{number}" for number in range(entries)])
    assert asyncio.get_running_loop().time() == pytest.approx(READ_BUDGET)
    assert source.at_once == 0
    assert str(caught.value) == str(ReadsTooSlow(entries))


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_known_failure_is_reported_rather_than_the_time_it_took() -> None:
    """I5."""
    source = Source({"e0": REFUSED}, slow={"e1": 60})
    with pytest.raises(EntryReadFailed) as caught:
        await fetch(source, ["e0", "e1"])
    assert caught.value.secret_id == "e0"


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_cancellation_ends_every_read() -> None:
    """F6."""
    source = Source()
    task = asyncio.create_task(fetch(source, IDS))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.at_once == 0


class Values:
    """An entry that knows its values."""

    def __init__(self, **values: bytes) -> None:
        self.values = values

    def select(self, ref: RemoteRef) -> SecretBytes:
        name = ref.environment_variable or ""
        if name not in self.values:
            Entry.parse(b'{"environment_variables_variables": []}').select(EnvironmentVariable(name))
        return SecretBytes(self.values[name])


def spec(*keys: str) -> Any:
    return parse_spec(psono_secret(data=[mapping(key, entry="e") for key in keys]))


def test_values_are_copied_byte_for_byte() -> None:
    """B4, B5."""
    entry = Values(A=bytes(range(256)), B=b" kept \r\n\0", C=b"")
    assert rendered(spec("A", "B", "C"), {"e": entry}) == entry.values


def test_one_missing_value_means_none_at_all() -> None:
    """B2: the message names key, entry and selector."""
    with pytest.raises(MappingFailed) as caught:
        rendered(spec("A", "GONE"), {"e": Values(A=b"canary")})
    assert '"GONE"' in str(caught.value)
    assert "entry e" in str(caught.value)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_more_than_a_secret_holds_is_refused_before_it_is_sent() -> None:
    """G6, R5, B9: values of exactly 1 MiB together are the most."""
    half = b"x" * (512 * 1024)
    assert rendered(spec("A", "B"), {"e": Values(A=half, B=half)})
    with pytest.raises(TooMuchData, match='the largest is key "B"'):
        rendered(spec("A", "B"), {"e": Values(A=half, B=half + b"x")})


@pytest.mark.parametrize(
    ("ref", "value"),
    [
        ({"environmentVariable": " DB "}, b"first"),
        ({"field": "a.b"}, b"deep"),
    ],
)
def test_the_selectors_of_the_spec_reach_the_entry(ref: dict[str, str], value: bytes) -> None:
    entry = PsonoEntry(
        Entry.parse(
            b'{"a": {"b": "deep"}, "environment_variables_variables": [{"key": "DB", "value": "first"}]}'
        )
    )
    assert entry.select(RemoteRef.model_validate({"secretId": "e", **ref})).reveal() == value
