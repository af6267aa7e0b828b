"""The work queue (E1 to E7) on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from psono_operator.runtime.resources import ObjectKey
from psono_operator.runtime.workqueue import Priority, ShutDown, WorkQueue
from tests.runtime.objects import key
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

HIGH, LOW = Priority.HIGH, Priority.LOW


class Jitterless(random.Random):
    """No jitter: the middle of every range."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class Heard:
    """A QueueObserver that counts."""

    def __init__(self) -> None:
        self.adds = self.retries = 0
        self.waits: list[float] = []
        self.works: list[float] = []

    def added(self) -> None:
        self.adds += 1

    def waited(self, seconds: float) -> None:
        self.waits.append(seconds)

    def worked(self, seconds: float) -> None:
        self.works.append(seconds)

    def retried(self) -> None:
        self.retries += 1


def make_queue(**options: object) -> WorkQueue:
    return WorkQueue("test", VirtualClock(), Jitterless(), **options)  # type: ignore[arg-type]


def now() -> float:
    return asyncio.get_running_loop().time()


async def taken_at(queue: WorkQueue, limit: float = 1e6) -> tuple[str, float] | None:
    """Name and time of the next key, already done with; None if none comes within ``limit`` seconds."""
    try:
        async with asyncio.timeout(limit):
            taken = await queue.get()
    except TimeoutError:
        return None
    queue.done(taken)
    return taken.name, round(now(), 2)


# -- E1 -------------------------------------------------------------------------------------------------


async def test_what_is_added_during_processing_is_remembered_once() -> None:
    """E1."""
    queue = make_queue()
    queue.add(key("x"))
    taken = await queue.get()
    for _ in range(5):
        queue.add(key("x"))
    assert queue.depth == 0
    queue.done(taken)
    assert queue.depth == 1
    assert await taken_at(queue) == ("x", 0.0)
    assert await taken_at(queue, 1e5) is None


async def test_done_without_get_is_an_error() -> None:
    queue = make_queue()
    queue.add(key("x"))
    for name in ("x", "y"):
        with pytest.raises(ValueError, match="not being processed"):
            queue.done(key(name))


@pytest.mark.parametrize("seed", range(3))
async def test_no_key_is_ever_with_two_workers_and_no_add_is_lost(seed: int) -> None:
    """E1, E6: 10 000 random operations, 8 workers, some of them cancelled now and then."""
    rng = random.Random(seed)
    queue = WorkQueue("test", VirtualClock(), rng)
    keys = [key(str(n)) for n in range(40)]
    wanted: dict[ObjectKey, int] = {}  # number of the last add, per key
    seen: dict[ObjectKey, int] = {}  # number that was current when the key was last taken
    busy: set[ObjectKey] = set()
    runs: Counter[str] = Counter()

    async def work() -> None:
        while True:
            taken = await queue.get()
            assert taken not in busy
            busy.add(taken)
            runs["all"] += 1
            seen[taken] = wanted.get(taken, 0)
            try:
                if rng.random() < 0.7:
                    await asyncio.sleep(rng.choice([0, 0, 0.01, 0.5]))
                if rng.random() < 0.2:
                    queue.retry(taken, first=0.01, cap=0.1)
                elif rng.random() < 0.3:
                    queue.add_after(taken, rng.random())
                else:
                    queue.forget(taken)
            except asyncio.CancelledError:
                queue.add(taken)  # what was cut off is wanted still
                raise
            finally:
                busy.discard(taken)
                queue.done(taken)

    workers = [asyncio.create_task(work()) for _ in range(8)]
    for step in range(1, 10_001):
        chosen = rng.choice(keys)
        wanted[chosen] = step
        if rng.random() < 0.5:
            queue.add(chosen, rng.choice([LOW, HIGH]))
        else:
            queue.add_after(chosen, rng.random() * 3, rng.choice([LOW, HIGH]))
        if rng.random() < 0.3:
            await asyncio.sleep(rng.choice([0, 0, 0.001, 0.05]))
        if rng.random() < 0.02:
            victim = rng.randrange(8)
            workers[victim].cancel()
            await asyncio.wait([workers[victim]])
            workers[victim] = asyncio.create_task(work())
    await asyncio.sleep(600)
    assert seen == wanted
    assert runs["all"] > 1_000
    assert len(queue._heap) - queue._stale == queue.scheduled >= 0
    for worker in workers:
        assert not worker.done() or worker.exception() is None
        worker.cancel()
    await asyncio.wait(workers)


# -- E2, E3 ---------------------------------------------------------------------------------------------


async def test_an_add_cancels_a_pending_later_time() -> None:
    """E2: one run now, none in five hours."""
    queue = make_queue()
    queue.add_after(key("x"), 5 * 3600)
    queue.add(key("x"))
    assert await taken_at(queue) == ("x", 0.0)
    assert await taken_at(queue, 6 * 3600) is None


@pytest.mark.parametrize("delays", [(300, 3600), (3600, 300)])
async def test_the_earliest_of_two_delays_counts(delays: tuple[float, float]) -> None:
    """E2."""
    queue = make_queue()
    for delay in delays:
        queue.add_after(key("x"), delay)
    assert await taken_at(queue) == ("x", 300.0)
    assert await taken_at(queue, 1e5) is None


async def test_times_set_during_processing_follow_the_same_rule() -> None:
    """E2."""
    queue = make_queue()
    queue.add(key("x"))
    taken = await queue.get()
    queue.add_after(taken, 50)
    queue.add_after(taken, 5)
    queue.add_after(taken, 500)
    queue.done(taken)
    assert await taken_at(queue) == ("x", 5.0)
    assert await taken_at(queue, 1e4) is None


async def test_an_earlier_insert_shortens_a_wait_that_has_begun() -> None:
    """E3: every earlier insert sets the timer anew."""
    queue = make_queue()
    queue.add_after(key("late"), 1000)
    waiting = asyncio.create_task(taken_at(queue))
    await asyncio.sleep(1)
    queue.add_after(key("early"), 10)
    assert await waiting == ("early", 11.0)
    assert await taken_at(queue) == ("late", 1000.0)


async def test_ten_thousand_delayed_keys_cost_no_task_and_one_timer() -> None:
    """E3; a jump of the wall clock moves nothing."""
    clock = VirtualClock()
    queue = WorkQueue("test", clock, Jitterless())
    waiter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    tasks = len(asyncio.all_tasks())
    timers = timer_count()
    for n in range(10_000):
        queue.add_after(key(str(n)), 1000 + (n * 7919) % 10_000)
    assert len(asyncio.all_tasks()) == tasks
    assert timer_count() == timers + 1
    clock.skew = 86_400
    assert await waiter == key("0")
    assert now() == pytest.approx(1000, abs=0.01)


def timer_count() -> int:
    loop = asyncio.get_running_loop()
    return sum(not handle.cancelled() for handle in loop._scheduled)  # type: ignore[attr-defined]


async def test_keys_moved_back_and_forth_do_not_pile_up_in_the_heap() -> None:
    """E3: what no longer counts is cleared away."""
    queue = make_queue()
    queue.add_after(key("earliest"), 60)
    for n in range(50_000):
        queue.add_after(key(str(n % 10)), 3600)
        queue.add(key(str(n % 10)))
        queue.done(await queue.get())
    assert len(queue._heap) < 200
    assert queue.scheduled == 1


async def test_one_due_time_wakes_all_workers_it_can_use() -> None:
    queue = make_queue()
    for n in range(3):
        queue.add_after(key(str(n)), 5)
    assert queue.depth == 0
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    assert {k.name for k in await asyncio.gather(*getters)} == {"0", "1", "2"}
    assert now() == pytest.approx(5, abs=0.01)


async def test_looking_at_the_depth_does_not_swallow_a_wake_up() -> None:
    """E6: whoever finds keys due wakes those who wait for them."""
    queue = make_queue()
    queue.add_after(key("x"), 5)
    waiter = asyncio.create_task(queue.get())
    asyncio.get_running_loop().call_at(5.0, lambda: queue.depth)
    async with asyncio.timeout(10):
        assert await waiter == key("x")


# -- E4 -------------------------------------------------------------------------------------------------


async def test_the_backoff_doubles_from_one_second_to_five_minutes() -> None:
    """E4."""
    queue = make_queue()
    queue.add(key("x"))
    delays, at = [], [0.0]
    for n in range(11):
        taken = await queue.get()
        assert queue.failures(taken) == n
        delays.append(queue.retry(taken))
        queue.done(taken)
        at.append(at[-1] + delays[-1])
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert await taken_at(queue) is not None
    assert now() == pytest.approx(at[-1], abs=0.1)


async def test_forget_starts_the_backoff_over() -> None:
    """E4: after a spec change the next attempt is immediate and the counter is 0."""
    queue = make_queue()
    for _ in range(5):
        queue.add(key("x"))
        taken = await queue.get()
        queue.retry(taken)
        queue.done(taken)
    queue.forget(key("x"))
    queue.add(key("x"))
    assert queue.failures(key("x")) == 0
    assert await taken_at(queue) == ("x", 0.0)
    queue.add(key("x"))
    taken = await queue.get()
    assert queue.retry(taken) == 1


async def test_first_cap_and_the_servers_wish_shape_a_retry() -> None:
    """E4, M1: Retry-After is a floor, not another backoff."""
    queue = make_queue()
    assert [queue.retry(key("x"), first=15, cap=40) for _ in range(4)] == [15, 30, 40, 40]
    assert queue.retry(key("y"), at_least=3600) == 3600
    assert queue.retry(key("y"), at_least=1) == 2
    assert queue.retry(key("x"), first=1, cap=1e12) > 0


async def test_the_jitter_is_at_most_a_tenth_and_parts_keys_that_failed_together() -> None:
    queue = WorkQueue("test", VirtualClock(), random.Random(1))
    delays = [queue.retry(key(str(n)), first=100) for n in range(50)]
    assert all(90 <= delay <= 110 for delay in delays)
    assert max(delays) - min(delays) > 10


async def test_the_bucket_of_all_retries_is_the_larger_of_the_two() -> None:
    """E4: a hundred retries are free, then ten a second; and it refills."""
    queue = make_queue(first=0.001)
    delays = [queue.retry(key(str(n))) for n in range(300)]
    assert delays[:100] == [0.001] * 100
    assert delays[100:103] == [pytest.approx(0.1), pytest.approx(0.2), pytest.approx(0.3)]
    assert delays[-1] == pytest.approx(20)
    await asyncio.sleep(1000)
    assert [queue.retry(key(str(n))) for n in range(1000, 1100)] == [0.001] * 100


async def test_an_earlier_pending_time_survives_a_retry() -> None:
    """E2, E4: what was added during a failing attempt runs at once."""
    queue = make_queue()
    queue.add(key("x"))
    taken = await queue.get()
    queue.add(key("x"))
    queue.retry(taken, first=100)
    queue.done(taken)
    assert await taken_at(queue) == ("x", 0.0)
    assert await taken_at(queue, 1000) is None


# -- E5 -------------------------------------------------------------------------------------------------


async def test_a_new_object_overtakes_a_thousand_of_the_first_list() -> None:
    """E5."""
    queue = make_queue()
    for n in range(1_000):
        queue.add(key(f"initial-{n}"), LOW)
    for _ in range(4):
        await queue.get()
    queue.add(key("new"), HIGH)
    assert key("new") in {await queue.get() for _ in range(2)}


async def test_endless_urgent_work_does_not_starve_the_rest() -> None:
    """E5: every tenth key is a LOW one, in their order."""
    queue = make_queue(low_share=10)
    for n in range(20):
        queue.add(key(f"low-{n}"), LOW)
    served = []
    for n in range(200):
        queue.add(key(f"high-{n}"), HIGH)
        queue.add(key(f"more-{n}"), HIGH)
        taken = await queue.get()
        queue.done(taken)
        served.append(taken.name)
    assert [name for name in served if name.startswith("low")] == [f"low-{n}" for n in range(20)]
    assert all(served[n].startswith("low") == (n % 10 == 9) for n in range(200))


@pytest.mark.parametrize(
    ("first", "second", "level"), [(LOW, HIGH, HIGH), (HIGH, LOW, HIGH), (LOW, LOW, LOW)]
)
@pytest.mark.parametrize("where", ["ready", "delayed", "processing"])
async def test_a_key_has_the_highest_level_of_its_pending_adds(
    first: Priority, second: Priority, level: Priority, where: str
) -> None:
    """E5."""
    queue = make_queue()
    if where == "processing":
        queue.add(key("x"), HIGH)
        taken = await queue.get()
        queue.add(key("x"), first)
        queue.add(key("x"), second)
        queue.add(key("low"), LOW)
        queue.done(taken)
    else:
        delay = 5 if where == "delayed" else 0
        queue.add_after(key("low"), delay - 0.5 if delay else 0, LOW)
        queue.add_after(key("x"), delay, first)
        queue.add_after(key("x"), delay, second)
        await asyncio.sleep(delay + 1)
    order = [(await queue.get()).name for _ in range(2)]
    assert order == (["x", "low"] if level is HIGH else ["low", "x"])


async def test_a_key_keeps_its_level_across_retries_and_not_across_a_success() -> None:
    """E5."""
    queue = make_queue()
    queue.add(key("x"), HIGH)
    for _ in range(2):
        taken = await queue.get()
        queue.retry(taken)
        queue.done(taken)
        queue.add_after(key("low"), 0.1, LOW)
        await asyncio.sleep(10)
        assert queue.depth == 2
        assert (await queue.get()).name == "x"
        queue.done(key("x"))
        queue.done(await queue.get())
        queue.add(key("x"), HIGH)
    taken = await queue.get()
    queue.forget(taken)
    queue.add_after(taken, 1)
    queue.done(taken)
    queue.add_after(key("low"), 0.5)
    await asyncio.sleep(2)
    assert (await queue.get()).name == "low"


# -- E6, E7 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_a_storm_of_cancelled_waiters_swallows_nothing(seed: int) -> None:
    """E6: what goes in comes out."""
    rng = random.Random(seed)
    queue = make_queue()
    got: list[str] = []

    async def take() -> None:
        taken = await queue.get()
        got.append(taken.name)
        queue.done(taken)

    takers: set[asyncio.Task[None]] = set()
    for n in range(2_000):
        takers |= {asyncio.create_task(take()) for _ in range(rng.randrange(3))}
        await asyncio.sleep(0)
        if rng.random() < 0.5:
            queue.add(key(str(n)))
        else:
            queue.add_after(key(str(n)), rng.random())
        for taker in rng.sample(sorted(takers, key=id), k=min(len(takers), rng.randrange(4))):
            taker.cancel()
        if rng.random() < 0.3:
            await asyncio.sleep(rng.random() / 10)
        takers = {taker for taker in takers if not taker.done()}
    while len(got) < 2_000:
        async with asyncio.timeout(10):
            await take()
    assert sorted(got, key=int) == [str(n) for n in range(2_000)]
    for taker in takers:
        taker.cancel()
    await asyncio.gather(*takers, return_exceptions=True)
    assert not queue._waiters


async def test_a_waiter_cancelled_right_after_it_was_woken_passes_the_key_on() -> None:
    """E6."""
    queue = make_queue()
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    queue.add(key("x"))
    first.cancel()
    async with asyncio.timeout(1):
        assert await second == key("x")


async def test_after_a_shut_down_running_keys_finish_and_pending_ones_never_start() -> None:
    """E7: 3 running, 50 pending; 3 finish, 0 start."""
    queue = make_queue()
    started: list[str] = []
    finished: list[str] = []

    async def work() -> None:
        while True:
            try:
                taken = await queue.get()
            except ShutDown:
                return
            started.append(taken.name)
            await asyncio.sleep(10)
            finished.append(taken.name)
            queue.retry(taken)
            queue.done(taken)

    for n in range(53):
        queue.add(key(str(n)))
    queue.add_after(key("later"), 5)
    workers = [asyncio.create_task(work()) for _ in range(3)]
    idle = make_queue()
    waiting = asyncio.create_task(idle.get())
    await asyncio.sleep(1)
    queue.add(key("0"))
    queue.shut_down()
    idle.shut_down()
    queue.add(key("refused"))
    assert await queue.drain(3) is False
    assert await queue.drain(30) is True
    assert now() == pytest.approx(10, abs=0.01)
    async with asyncio.timeout(1):
        await asyncio.gather(*workers)
    assert started == sorted(finished) == ["0", "1", "2"]
    with pytest.raises(ShutDown):
        await waiting
    with pytest.raises(ShutDown):
        await queue.get()
    assert queue.depth == queue.scheduled == 0


async def test_draining_an_idle_queue_takes_no_time() -> None:
    queue = make_queue()
    assert await queue.drain(0) is True


# -- E8 -------------------------------------------------------------------------------------------------


async def test_the_observer_hears_of_everything_once() -> None:
    """E8."""
    heard = Heard()
    queue = make_queue(observer=heard)
    queue.add(key("x"))
    queue.add(key("x"), LOW)
    await asyncio.sleep(3)
    taken = await queue.get()
    queue.add(key("x"))
    await asyncio.sleep(2)
    assert queue.unfinished_seconds() == queue.longest_running_seconds() == pytest.approx(2)
    queue.retry(taken)
    queue.done(taken)
    await queue.get()
    assert heard.adds == 2
    assert heard.retries == 1
    assert heard.waits == [pytest.approx(3), pytest.approx(2)]
    assert heard.works == [pytest.approx(2)]
