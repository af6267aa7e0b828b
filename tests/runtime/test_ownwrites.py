"""Our own writes, recognised (D5), and a cache that lags behind them (F1)."""

from __future__ import annotations

import asyncio

import pytest

from psono_operator.runtime.ownwrites import TRUST, OwnWrites
from tests.runtime.objects import key, make_object
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def test_only_exactly_what_we_wrote_is_an_echo() -> None:
    """D5."""
    writes = OwnWrites(VirtualClock())
    assert not writes.is_echo(make_object("x", 7))
    writes.record(make_object("x", 7))
    assert writes.is_echo({"metadata": make_object("x", 7)["metadata"]})
    assert not writes.is_echo(make_object("x", 8))
    assert not writes.is_echo(make_object("x", 7, uid="another"))
    assert not writes.is_echo(make_object("y", 7))


@pytest.mark.parametrize(
    ("ours", "cached", "stale"),
    [
        ("10", "9", True),
        ("10", "10", False),
        ("10", "11", False),
        ("9", "10", False),
        ("0x10", "9", False),
        ("10", "abc", False),
        ("10", "", False),
    ],
)
async def test_a_cached_object_older_than_our_write_is_stale(ours: str, cached: str, stale: bool) -> None:
    """F1, A4: what cannot be ordered is not called stale."""
    writes = OwnWrites(VirtualClock())
    writes.record(make_object("x", ours))
    assert writes.is_stale(make_object("x", cached)) is stale
    assert not writes.is_stale(make_object("x", cached, uid="another"))


async def test_the_newer_of_two_answers_stays_whatever_their_order() -> None:
    writes = OwnWrites(VirtualClock())
    writes.record(make_object("x", 12))
    writes.record(make_object("x", 11))
    assert writes.is_echo(make_object("x", 12))
    writes.record(make_object("x", 3, uid="another"))
    assert writes.is_echo(make_object("x", 3, uid="another"))


async def test_an_api_server_restored_from_a_backup_is_believed_again_after_a_while() -> None:
    """F1: versions that start again at a lower number must not make an object look old for ever."""
    writes = OwnWrites(VirtualClock())
    writes.record(make_object("x", 1000))
    assert writes.is_stale(make_object("x", 900))
    await asyncio.sleep(TRUST + 1)
    assert not writes.is_stale(make_object("x", 900))
    writes.record(make_object("x", 901))
    assert writes.is_echo(make_object("x", 901))


async def test_forgetting_keeps_it_bounded() -> None:
    writes = OwnWrites(VirtualClock())
    for name in ("x", "y"):
        writes.record(make_object(name, 1))
    writes.record({"metadata": {"name": "no-version"}})
    assert len(writes) == 2
    writes.forget(key("x"))
    writes.forget(key("unknown"))
    assert len(writes) == 1
    assert not writes.is_echo(make_object("x", 1))
