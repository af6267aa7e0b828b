"""E5: a namespace with thousands of keys, or with keys that fail slowly, delays no other one."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psono_operator.runtime.controller import Controller, Result
from psono_operator.runtime.resources import ObjectKey
from psono_operator.runtime.retries import RetryDelays
from psono_operator.runtime.rotation import Rotation
from psono_operator.runtime.workqueue import Priority, WorkQueue
from tests.virtualtime import VirtualClock

looptime = [pytest.mark.asyncio, pytest.mark.looptime]


# -- the rotation -------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "pop", "discard", "pop allowed"]), st.integers(0, 3), st.integers(0, 9)
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_a_rotation_is_fair_loses_nothing_and_keeps_the_order_of_a_group(
    steps: list[tuple[str, int, int]],
) -> None:
    """Against a model: no group is served twice while another waits that was there before the first time."""
    rotation: Rotation[int, tuple[int, int]] = Rotation()
    model: dict[int, list[tuple[int, int]]] = defaultdict(list)
    served_since: dict[int, Counter[int]] = {}  # group that waits → whom it saw being served since then
    for step, group, number in steps:
        item = (group, number)
        if step == "add":
            if item not in model[group]:
                model[group].append(item)
            rotation.add(group, item)
        elif step == "discard":
            if item in model[group]:
                model[group].remove(item)
            rotation.discard(group, item)
        else:
            allowed = {group, (group + 1) % 4} if step == "pop allowed" else set(range(4))
            taken = rotation.pop(allowed.__contains__ if step == "pop allowed" else None)
            waiting = {each for each in allowed if model[each]}
            assert (taken is None) == (not waiting)
            if taken is not None:
                assert taken == model[taken[0]].pop(0)
                served_since.pop(taken[0], None)
                for each in waiting - {taken[0]}:
                    seen = served_since.setdefault(each, Counter())
                    seen[taken[0]] += 1
                    assert seen[taken[0]] <= 1
        for each in range(4):
            if not model[each]:
                served_since.pop(each, None)
        assert len(rotation) == sum(map(len, model.values()))


# -- the bucket of retries ----------------------------------------------------------------------------------


def test_a_group_that_joins_waits_for_none_of_the_retries_of_another() -> None:
    delays = RetryDelays(random.Random(1), 10.0, 100)
    long = [delays.turn(0.0, "a") for _ in range(5000)]
    assert long[-1] == pytest.approx(490)
    assert [delays.turn(0.0, "b") for _ in range(10)] == [0.0] * 10


def test_groups_that_fail_together_share_the_rate_of_one_bucket() -> None:
    """E4: twenty groups with two hundred retries each need as long as one with four thousand."""
    delays = RetryDelays(random.Random(1), 10.0, 100)
    due = [delays.turn(0.0, f"ns-{n % 20}") for n in range(4000)]
    for start in range(0, 400, 50):
        assert sum(start <= each < start + 50 for each in due) <= 10 * 50 * 1.1 + 100 * (start == 0)


@given(st.lists(st.tuples(st.floats(0, 2), st.sampled_from("abcd")), min_size=1, max_size=400))
@settings(max_examples=100, deadline=None)
def test_all_groups_together_stay_near_the_rate_of_the_bucket(steps: list[tuple[float, str]]) -> None:
    """E4: with n groups that join one after the other it is at most the rate times 1 + 1/2 + … + 1/n."""
    delays = RetryDelays(random.Random(1), 10.0, 20)
    now, due = 0.0, []
    for gap, group in steps:
        now += gap
        due.append(now + delays.turn(now, group))
    harmonic = sum(1 / number for number in range(1, 5))
    for start in range(0, int(max(due)) + 1, 5):
        found = sum(start <= each < start + 5 for each in due)
        assert found <= harmonic * (10.0 * 5 + 20) + 4


# -- the queue and its workers ------------------------------------------------------------------------------


class Reconciler:
    """Namespace ``bad``: every key takes ``slow`` seconds and fails. All others are done in 10 ms."""

    def __init__(self, slow: float) -> None:
        self.slow = slow
        self.began: dict[ObjectKey, float] = {}
        self.running = 0
        self.most = 0

    async def reconcile(self, key: ObjectKey) -> Result:
        self.began.setdefault(key, asyncio.get_running_loop().time())
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.slow if key.namespace == "bad" else 0.01)
            if key.namespace == "bad":
                raise RuntimeError("as always")
        finally:
            self.running -= 1
        return Result()


@pytest.mark.asyncio
@pytest.mark.looptime
@pytest.mark.parametrize("priority", [Priority.LOW, Priority.HIGH])
@pytest.mark.parametrize("slow", [0.005, 50.0])
async def test_five_thousand_failing_keys_delay_the_first_sync_of_another_namespace_by_less_than_a_second(
    slow: float, priority: Priority
) -> None:
    clock, reconciler = VirtualClock(), Reconciler(slow)
    queue = WorkQueue("things", clock, random.Random(1), limit=32)
    controller = Controller("things", queue, reconciler, clock=clock, workers=32, spare=8)
    for number in range(5000):
        queue.add(ObjectKey("bad", str(number)), priority)
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.run())
        delays = []
        for number in range(30):
            await asyncio.sleep(7)
            key = ObjectKey(f"good-{number % 3}", str(number))
            added = asyncio.get_running_loop().time()
            queue.add(key, Priority.LOW)
            await asyncio.sleep(1)
            delays.append(reconciler.began.get(key, float("inf")) - added)
        controller.shut_down()
        await controller.cancel_rest()
    assert max(delays) < 1
    assert reconciler.most <= 40


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_one_namespace_alone_has_the_workers_of_the_setting_and_no_more() -> None:
    clock, reconciler = VirtualClock(), Reconciler(50.0)
    queue = WorkQueue("things", clock, random.Random(1), limit=32)
    controller = Controller("things", queue, reconciler, clock=clock, workers=32, spare=8)
    for number in range(5000):
        queue.add(ObjectKey("bad", str(number)))
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.run())
        await asyncio.sleep(30)
        assert reconciler.running == 32
        assert queue.overlooked_seconds() == 0, "waiting for one's turn is no fault"
        await asyncio.sleep(30)
        assert reconciler.running == 32, "a worker that the limit had kept waiting was woken"
        controller.shut_down()
        await controller.cancel_rest()


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_waiter_that_the_limit_kept_is_woken_when_there_is_room() -> None:
    """E6: also when the worker that made room does not come back for more."""
    queue = WorkQueue("things", VirtualClock(), random.Random(1), limit=1)
    queue.add(ObjectKey("a", "1"))
    queue.add(ObjectKey("a", "2"))
    first = await queue.get()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    assert not waiting.done()
    queue.done(first)
    assert await asyncio.wait_for(waiting, 1) == ObjectKey("a", "2")


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_first_sync_that_meets_a_conflict_is_not_put_behind_the_retries_of_others() -> None:
    """E4: the second attempt comes after the backoff of its own key."""
    queue = WorkQueue("things", VirtualClock(), random.Random(1))
    for number in range(5000):
        queue.retry(ObjectKey("bad", str(number)))
    assert queue.retry(ObjectKey("good", "x")) < 1.2


@pytest.mark.asyncio
@pytest.mark.looptime
@pytest.mark.parametrize("seed", range(5))
async def test_with_limit_and_groups_no_key_is_lost_or_with_two_workers(seed: int) -> None:
    """E1, E6 with everything that fairness added."""
    rng = random.Random(seed)
    queue = WorkQueue("things", VirtualClock(), random.Random(1), limit=3)
    keys = [ObjectKey(f"ns-{n % 4}", str(n)) for n in range(40)]
    wanted: Counter[ObjectKey] = Counter()
    at_work: set[ObjectKey] = set()
    handled: dict[ObjectKey, int] = {}

    async def work() -> None:
        while True:
            key = await queue.get()
            assert key not in at_work
            at_work.add(key)
            busy = [each.namespace for each in at_work]
            assert len(busy) <= 3 or len(set(busy)) > 1
            seen = wanted[key]
            await asyncio.sleep(rng.choice([0, 0.01, 0.5]))
            handled[key] = seen
            at_work.remove(key)
            queue.done(key)

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work()) for _ in range(5)]
        for _ in range(2000):
            key = rng.choice(keys)
            wanted[key] += 1
            if rng.random() < 0.5:
                queue.add(key, rng.choice(list(Priority)))
            else:
                queue.add_after(key, rng.random())
            if rng.random() < 0.1:
                await asyncio.sleep(rng.random() * 0.2)
        await asyncio.sleep(60)
        for worker in workers:
            worker.cancel()
    assert handled == dict(wanted)
    assert queue.depth == queue.scheduled == 0
