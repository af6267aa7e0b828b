"""B8: delays double, jitter comes on top, and only lasting health resets them."""

from __future__ import annotations

import random

import pytest

from psono_operator.runtime.backoff import Backoff
from tests.virtualtime import VirtualClock


class NoJitter(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return a


class FullJitter(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return b


pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def test_delays_double_up_to_half_the_cap() -> None:
    backoff = Backoff(clock=VirtualClock(), rng=NoJitter())
    assert [backoff.next() for _ in range(8)] == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 15, 15, 15])
    assert backoff.failures == 8


async def test_jitter_adds_up_to_the_delay_itself() -> None:
    backoff = Backoff(clock=VirtualClock(), rng=FullJitter())
    assert [backoff.next() for _ in range(3)] == pytest.approx([1.6, 3.2, 6.4])


async def test_no_delay_is_longer_than_the_cap() -> None:
    """Fault E8: a server that is back is found within half a minute."""
    backoff = Backoff(clock=VirtualClock(), rng=FullJitter())
    assert max(backoff.next() for _ in range(20)) == pytest.approx(30)


async def test_the_servers_wish_is_a_floor_and_is_jittered_too() -> None:
    """M1: wait that long plus jitter."""
    clock = VirtualClock()
    assert Backoff(clock=clock, rng=NoJitter()).next(floor=20) == pytest.approx(20)
    assert Backoff(clock=clock, rng=FullJitter()).next(floor=20) == pytest.approx(20.8)
    assert Backoff(clock=clock, rng=NoJitter()).next(floor=0.1) == pytest.approx(0.8)


async def test_short_health_does_not_reset_and_long_health_does() -> None:
    clock = VirtualClock()
    backoff = Backoff(clock=clock, rng=NoJitter())
    backoff.next()
    backoff.healthy()
    await clock.sleep(119)
    backoff.healthy()
    assert backoff.next() == pytest.approx(1.6)
    backoff.healthy()
    await clock.sleep(60)
    backoff.healthy()
    await clock.sleep(60)
    assert backoff.next() == pytest.approx(0.8)
    assert backoff.failures == 1


async def test_time_that_passes_in_trouble_is_no_health() -> None:
    clock = VirtualClock()
    backoff = Backoff(clock=clock, rng=NoJitter())
    backoff.next()
    await clock.sleep(3600)
    assert backoff.next() == pytest.approx(1.6)


@pytest.mark.parametrize(("first", "factor", "cap"), [(0, 2, 30), (16, 2, 30), (1, 0.5, 30)])
async def test_nonsense_is_refused(first: float, factor: float, cap: float) -> None:
    with pytest.raises(ValueError, match="backoff"):
        Backoff(clock=VirtualClock(), rng=NoJitter(), first=first, factor=factor, cap=cap)
