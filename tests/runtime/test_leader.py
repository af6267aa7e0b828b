"""Leader election: judged locally, fenced, released last (K1 to K7)."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from psono_operator.runtime import lease
from psono_operator.runtime.errors import AlreadyExists, Conflict, NotFound, ServerError, Unreachable
from psono_operator.runtime.gate import NotLeader
from psono_operator.runtime.leader import LeaderElector, LeaseGate, LostLease, Timing
from psono_operator.runtime.resources import KubeObject, ObjectKey
from tests.virtualtime import VirtualClock

KEY = ObjectKey("psono-system", "psono-kubernetes-operator")
TIMING = Timing()
Hook = Callable[[str], Awaitable[None]]


class Leases:
    """One Lease on an API server, with optimistic concurrency; ``before`` and ``after`` may delay or fail."""

    def __init__(self) -> None:
        self.obj: KubeObject | None = None
        self.version = 0
        self.writes: list[tuple[float, str]] = []

    def put(self, body: Any) -> KubeObject:
        self.version += 1
        metadata = {**body["metadata"], "uid": "u", "resourceVersion": str(self.version)}
        self.obj = {**body, "metadata": metadata}
        self.writes.append((asyncio.get_running_loop().time(), body["spec"]["holderIdentity"]))
        return dict(self.obj)


class Client:
    """A candidate's way to the API server."""

    def __init__(self, leases: Leases) -> None:
        self.leases = leases
        self.before: Hook = self._nothing
        self.after: Hook = self._nothing

    async def _nothing(self, verb: str) -> None: ...

    async def get(self, *_: Any, timeout: float | None = None) -> KubeObject:
        return await self._call("get", timeout, self._get)

    async def create(self, _: Any, body: Any, *, timeout: float | None = None) -> KubeObject:
        return await self._call("create", timeout, lambda: self._create(body))

    async def replace(self, _: Any, body: Any, *, timeout: float | None = None) -> KubeObject:
        return await self._call("replace", timeout, lambda: self._replace(body))

    async def _call(self, verb: str, timeout: float | None, act: Callable[[], KubeObject]) -> KubeObject:
        assert timeout is not None, "every lease request has its own deadline (K2)"
        try:
            async with asyncio.timeout(timeout):
                await self.before(verb)
                answer = act()
                await self.after(verb)
                return answer
        except TimeoutError:
            raise Unreachable(f"{verb}: deadline") from None

    def _get(self) -> KubeObject:
        if self.leases.obj is None:
            raise NotFound("GET lease", 404)
        return dict(self.leases.obj)

    def _create(self, body: Any) -> KubeObject:
        if self.leases.obj is not None:
            raise AlreadyExists("POST lease", 409, reason="AlreadyExists")
        return self.leases.put(body)

    def _replace(self, body: Any) -> KubeObject:
        if self.leases.obj is None:
            raise NotFound("PUT lease", 404)
        if body["metadata"]["resourceVersion"] != self.leases.obj["metadata"]["resourceVersion"]:
            raise Conflict("PUT lease", 409, reason="Conflict")
        return self.leases.put(body)


def elector(
    client: Client, name: str = "a", clock: Any = None, seed: int = 1, **options: Any
) -> LeaderElector:
    clock = clock or VirtualClock()
    return LeaderElector(client, KEY, name, clock=clock, rng=random.Random(seed), **options)  # type: ignore[arg-type]


async def until(check: Callable[[], bool], within: float = 60.0) -> float:
    """The virtual seconds it took."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not check():
        assert loop.time() - begun < within
        await asyncio.sleep(0.05)
    return loop.time() - begun


def theirs(**spec: Any) -> Any:
    return {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 4, **spec},
    }


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def test_an_absent_lease_is_created_and_renewed() -> None:
    leases = Leases()
    one = elector(Client(leases))
    task = asyncio.create_task(one.run())
    await one.wait_leading()
    await asyncio.sleep(60)
    assert one.gate.remaining() > TIMING.lease_duration - TIMING.margin - TIMING.retry_period * 1.2 - 0.1
    assert 60 / (2 * 1.2) - 2 <= len(leases.writes) <= 60 / 2 + 2
    assert leases.obj is not None
    assert leases.obj["spec"]["leaseTransitions"] == 0
    await cancelled(task)


@pytest.mark.parametrize("skew", [-3600, 0, 3600], ids=["an hour behind", "right", "an hour ahead"])
async def test_a_silent_holder_is_replaced_after_its_duration_whatever_its_clock_said(skew: int) -> None:
    """K1: the renewTime in the record decides nothing."""
    leases = Leases()
    stamp = lease.micro_time(datetime.fromtimestamp(1_796_126_400 + skew, UTC))
    leases.put(theirs(renewTime=stamp))
    one = elector(Client(leases))
    task = asyncio.create_task(one.run())
    took = await until(lambda: one.leads)
    assert 15 <= took <= 15 + TIMING.retry_period * 1.2 + 0.1
    assert leases.obj is not None
    assert leases.obj["spec"]["leaseTransitions"] == 5
    await cancelled(task)


async def test_the_duration_that_counts_is_the_one_in_the_record() -> None:
    """K1."""
    leases = Leases()
    leases.put(theirs(leaseDurationSeconds=40))
    one = elector(Client(leases))
    task = asyncio.create_task(one.run())
    assert await until(lambda: one.leads) >= 40
    await cancelled(task)


async def test_a_holder_that_renews_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    leases = Leases()
    holder, standby = elector(Client(leases), "a"), elector(Client(leases), "b", seed=2)
    first = asyncio.create_task(holder.run())
    await holder.wait_leading()
    second = asyncio.create_task(standby.run())
    await asyncio.sleep(300)
    assert holder.leads
    assert not standby.leads
    with pytest.raises(NotLeader):
        standby.gate.remaining()
    assert caplog.text.count("standing by: lease psono-system/psono-kubernetes-operator is held by a") == 1
    await cancelled(first)
    await cancelled(second)


async def test_hanging_renewals_end_leadership_at_the_deadline_and_no_later() -> None:
    """K2."""
    client = Client(Leases())
    one = elector(client)
    task = asyncio.create_task(one.run())
    await one.wait_leading()

    async def hang(verb: str) -> None:
        await asyncio.sleep(3600)

    await asyncio.sleep(5)
    last = client.leases.writes[-1][0]
    client.before = hang
    with pytest.raises(LostLease):
        await task
    assert asyncio.get_running_loop().time() - last <= TIMING.renew_deadline + TIMING.retry_period * 1.2 + 0.1
    with pytest.raises(NotLeader):
        one.gate.remaining()


@pytest.mark.parametrize(("delay", "survives"), [(4, True), (8, True), (12, False), (20, False)])
async def test_a_slow_renewal_is_survived_below_the_deadline(delay: float, survives: bool) -> None:
    """Fault E11: and above it the end comes before the gate could close by itself."""
    client = Client(Leases())
    one = elector(client)
    task = asyncio.create_task(one.run())
    await one.wait_leading()
    slow_until = asyncio.get_running_loop().time() + (4 if survives else 60)

    async def slow(verb: str) -> None:
        if asyncio.get_running_loop().time() < slow_until:
            await asyncio.sleep(delay)

    client.after = slow
    end = asyncio.get_running_loop().time() + 30
    while asyncio.get_running_loop().time() < end and not task.done():
        assert one.gate.is_open
        await asyncio.sleep(0.1)
    assert task.done() is not survives
    await cancelled(task)


async def test_answers_that_always_take_four_seconds_are_no_reason_to_go() -> None:
    client = Client(Leases())
    one = elector(client)
    task = asyncio.create_task(one.run())
    await one.wait_leading()

    async def slow(verb: str) -> None:
        await asyncio.sleep(4)

    client.after = slow
    for _ in range(3000):
        assert one.gate.is_open
        await asyncio.sleep(0.1)
    await cancelled(task)


async def test_a_lost_answer_is_found_again() -> None:
    """K3: our renewal was stored, its answer lost; the conflict leads to a look, not to the end."""
    client = Client(Leases())
    one = elector(client)
    task = asyncio.create_task(one.run())
    await one.wait_leading()
    failures = iter([True])

    async def lose(verb: str) -> None:
        if verb == "replace" and next(failures, False):
            raise Unreachable("reset")

    client.after = lose
    await asyncio.sleep(30)
    assert one.leads
    assert one.gate.is_open
    await cancelled(task)


async def test_somebody_else_in_the_record_ends_it_at_once() -> None:
    client = Client(Leases())
    one = elector(client)
    task = asyncio.create_task(one.run())
    await one.wait_leading()
    client.leases.put(theirs())
    took = await until(task.done)
    assert isinstance(task.exception(), LostLease)
    assert took <= TIMING.retry_period * 1.2 + 0.1
    assert not one.gate.is_open


async def test_trouble_with_the_api_server_does_not_end_a_standby() -> None:
    client = Client(Leases())
    broken = True

    async def fail(verb: str) -> None:
        if broken:
            raise ServerError("GET lease", 500)

    client.before = fail
    one = elector(client)
    task = asyncio.create_task(one.run())
    await asyncio.sleep(600)
    assert not task.done()
    broken = False
    await until(lambda: one.leads)
    await cancelled(task)


async def test_a_released_lease_is_taken_within_three_seconds() -> None:
    """K5."""
    leases = Leases()
    holder, standby = elector(Client(leases), "a"), elector(Client(leases), "b", seed=2)
    first, second = asyncio.create_task(holder.run()), asyncio.create_task(standby.run())
    await until(lambda: holder.leads or standby.leads)
    old, new = (holder, standby) if holder.leads else (standby, holder)
    await asyncio.sleep(10)
    await old.release()
    with pytest.raises(NotLeader):
        old.gate.remaining()
    assert leases.obj is not None
    assert leases.obj["spec"]["holderIdentity"] == ""
    assert leases.obj["spec"]["leaseDurationSeconds"] == 1
    assert await until(lambda: new.leads) <= 3
    for task in (first, second):
        await cancelled(task)


async def test_a_release_during_a_renewal_waits_and_stays_released() -> None:
    """K5: nothing reopens the gate after release began."""
    client = Client(Leases())
    one = elector(client)
    task = asyncio.create_task(one.run())
    await one.wait_leading()

    async def slow(verb: str) -> None:
        await asyncio.sleep(1)

    client.before = slow
    await asyncio.sleep(TIMING.retry_period * 1.2)
    await one.release()
    assert not one.gate.is_open
    assert client.leases.obj is not None
    assert client.leases.obj["spec"]["holderIdentity"] == ""
    await task


async def test_times_are_utc_with_microseconds() -> None:
    """K7."""
    moment = datetime.fromisoformat("2026-12-01T21:00:00.000120+09:00")
    assert lease.micro_time(moment) == "2026-12-01T12:00:00.000120Z"


@pytest.mark.parametrize(
    "numbers",
    [
        {"lease_duration": 14},
        {"renew_deadline": 11},
        {"renew_deadline": 2},
        {"retry_period": 0},
    ],
)
async def test_timings_that_cannot_work_are_refused(numbers: dict[str, Any]) -> None:
    """K2."""
    with pytest.raises(ValueError, match="order"):
        Timing(**numbers)


async def test_the_gate_counts_from_the_sending_of_the_renewal() -> None:
    """K4: the answer took 3 s, which are gone from the lease."""
    gate = LeaseGate(VirtualClock(), TIMING)
    sent = asyncio.get_running_loop().time()
    await asyncio.sleep(3)
    gate.renewed(sent)
    assert gate.remaining() == pytest.approx(10)
    await asyncio.sleep(10)
    with pytest.raises(NotLeader):
        gate.remaining()


class Freezer:
    """A candidate's process that can stand still: nothing of it runs, but time goes on."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.until = 0.0
        self._clock = VirtualClock()

    async def thaw(self) -> None:
        left = self.until - self._clock.monotonic()
        if left > 0:
            await asyncio.sleep(left)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def now(self) -> datetime:
        return self._clock.now()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.thaw()


@pytest.mark.parametrize("seed", range(5))
async def test_at_most_one_writer_at_any_instant(seed: int) -> None:
    """K3, K4: five candidates, random delays, failures and frozen processes for twenty minutes."""
    rng = random.Random(seed)
    leases = Leases()
    reigns: list[str] = []

    async def hinder(clock: Freezer, verb: str) -> None:
        draw = rng.random()
        await asyncio.sleep(rng.expovariate(1 / 0.3) if draw < 0.8 else rng.uniform(0, 12))
        await clock.thaw()
        if draw > 0.95:
            raise ServerError("PUT lease", 500)

    async def candidate(number: int) -> None:
        generation = 0
        while True:  # a lost lease ends the process; its successor is another candidate
            generation += 1
            clock, client = freezers[number], Client(leases)
            client.before = client.after = functools.partial(hinder, clock)
            electors[number] = one = elector(
                client, f"{number}-{generation}", clock, seed=rng.randrange(10**6)
            )
            with_reason = asyncio.create_task(one.run())
            try:
                await with_reason
            except LostLease:
                await asyncio.sleep(rng.uniform(0, 5))
            finally:
                with_reason.cancel()

    freezers = [Freezer(rng) for _ in range(5)]
    electors: list[Any] = [None] * 5
    tasks = [asyncio.create_task(candidate(number)) for number in range(5)]
    for _ in range(1200 * 4):
        await asyncio.sleep(0.25)
        open_now = [one._identity for one in electors if one is not None and one.gate.is_open]
        assert len(open_now) <= 1, open_now
        if open_now and (not reigns or reigns[-1] != open_now[0]):
            reigns.append(open_now[0])
        if rng.random() < 0.01:
            freezers[rng.randrange(5)].until = asyncio.get_running_loop().time() + rng.uniform(1, 60)
    assert len(reigns) > 3, "the test must see leaders come and go"
    for task in tasks:
        await cancelled(task)
