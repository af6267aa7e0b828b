"""A1 to A4, B1 to B9, C6, F4: list and watch against a server that misbehaves by script."""

from __future__ import annotations

import asyncio
import itertools
import logging
import pickle
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from psono_operator.runtime.client import KubeClient
from psono_operator.runtime.errors import (
    BadRequest,
    Cause,
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    ProtocolError,
    ServerError,
    Throttled,
    Unauthorized,
    Unreachable,
)
from psono_operator.runtime.reflector import Change, ChangeKind, Reflector, Snapshot, State
from psono_operator.runtime.transforms import LAST_APPLIED, metadata_allowlist
from psono_operator.runtime.watchevents import (
    AfterFailure,
    Bookmark,
    UnknownEvent,
    WatchEndedEarly,
    after_watch_failure,
    read_line,
)
from tests.runtime.scriptedapi import (
    SECRETS,
    THINGS,
    Reply,
    ScriptedApi,
    answer,
    bookmark,
    event,
    page,
    refuse,
    serving,
    status_body,
    stream,
    thing,
)
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

LOGGER = "psono_operator.runtime.reflector"
Item = Snapshot | Change


def reflector_of(client: KubeClient, resource: Any = THINGS, **options: Any) -> Reflector:
    return Reflector(client, resource, **{"clock": VirtualClock(), "rng": random.Random(1), **options})


async def take(reflector: Reflector, count: int) -> list[Item]:
    """The first ``count`` items, all consumed: the iterator stands at the request for the next one."""
    items: list[Item] = []
    async with aclosing(reflector.events()) as events:
        async for item in events:
            items.append(item)
            if len(items) == count:
                break
    return items


@asynccontextmanager
async def running(reflector: Reflector) -> AsyncIterator[list[Item]]:
    """The reflector with a consumer that takes everything."""
    items: list[Item] = []

    async def consume() -> None:
        async with aclosing(reflector.events()) as events:
            async for item in events:
                items.append(item)

    task = asyncio.create_task(consume())
    try:
        yield items
        assert not task.done(), "a reflector never ends by itself"
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


def trouble(reflector: Reflector) -> str:
    """What the reflector says is wrong; empty when nothing is."""
    return reflector.last_error or ""


def names(item: Item) -> list[str]:
    assert isinstance(item, Snapshot)
    return [obj["metadata"]["name"] for obj in item.items]


def changed(item: Item) -> tuple[str, str]:
    assert isinstance(item, Change)
    return item.kind.value, item.object["metadata"]["name"]


def watched_from(api: ScriptedApi) -> list[str]:
    return [seen.query.partition("resourceVersion=")[2].partition("&")[0] for seen in api.watches_seen]


# Listing


async def test_1203_objects_are_three_pages_with_exactly_these_queries() -> None:
    """A1."""
    things = [thing(f"t{number}", str(number + 1)) for number in range(1203)]
    async with serving() as (api, client):
        api.calls.extend(
            [
                page(things[:500], "2000", "one"),
                page(things[500:1000], "2000", "two"),
                page(things[1000:], "2000"),
            ]
        )
        (snapshot,) = await take(reflector_of(client), 1)
    assert isinstance(snapshot, Snapshot)
    assert (len(snapshot.items), snapshot.version, snapshot.scheduled) == (1203, "2000", False)
    assert [seen.query for seen in api.seen] == [
        "limit=500",
        "limit=500&continue=one",
        "limit=500&continue=two",
    ]


async def test_an_expired_continue_token_restarts_from_the_first_page() -> None:
    """A2: nothing of the first attempt remains, and the token that the 410 offers is not used."""
    expired = answer({**status_body(410, "Expired"), "metadata": {"continue": "inconsistent"}}, code=410)
    async with serving() as (api, client):
        api.calls.extend([page([thing("gone", "1")], "5", "one"), expired, page([thing("b", "8")], "9")])
        (snapshot,) = await take(reflector_of(client), 1)
    assert isinstance(snapshot, Snapshot)
    assert (names(snapshot), snapshot.version) == (["b"], "9")
    assert [seen.query for seen in api.seen] == ["limit=500", "limit=500&continue=one", "limit=500"]


async def test_a_token_that_expires_twice_leads_to_one_list_without_pages() -> None:
    """A2."""
    first = page([thing("a", "1")], "5", "one")
    async with serving() as (api, client):
        api.calls.extend([first, refuse(410), first, refuse(410), page([thing("b", "8")], "9")])
        (snapshot,) = await take(reflector_of(client), 1)
    assert names(snapshot) == ["b"]
    assert [seen.query for seen in api.seen][-1] == ""
    assert len(api.seen) == 5


async def test_the_watch_begins_at_the_version_of_the_list() -> None:
    """A3: not at the newest item's."""
    async with serving() as (api, client):
        api.calls.append(page([thing("a", "10"), thing("b", "20")], "900"))
        async with running(reflector_of(client)):
            await asyncio.sleep(1)
    assert watched_from(api) == ["900"]


async def test_a_list_without_a_version_is_an_error_that_backs_off() -> None:
    """A3: never watch from an empty version."""
    async with serving() as (api, client):
        api.calls.extend([page([thing("a", "1")], ""), page([thing("a", "1")], "7")])
        reflector = reflector_of(client)
        async with running(reflector) as items:
            await asyncio.sleep(0.5)
            assert "without resourceVersion" in trouble(reflector)
            assert reflector.state is State.EMPTY
            await asyncio.sleep(5)
            assert trouble(reflector) == ""
    assert len(items) == 1
    assert watched_from(api) == ["7"]


async def test_the_same_page_for_ever_is_an_error() -> None:
    async with serving() as (api, client):
        api.default_call = page([thing("a", "1")], "7", "same")
        reflector = reflector_of(client)
        async with running(reflector) as items:
            await asyncio.sleep(0.5)
            assert "same page" in trouble(reflector)
    assert (items, len(api.seen)) == ([], 2)


async def test_selectors_and_namespace_go_into_lists_and_watches() -> None:
    async with serving() as (api, client):
        reflector = reflector_of(client, namespace="a", label_selector="x", field_selector="y", page_size=7)
        async with running(reflector):
            await asyncio.sleep(1)
    assert [seen.path for seen in api.seen] == ["/apis/example.com/v1/namespaces/a/things"] * 2
    assert api.seen[0].query == "labelSelector=x&fieldSelector=y&limit=7"
    assert api.seen[1].query.endswith("&labelSelector=x&fieldSelector=y")


# Watching


async def test_events_become_changes_and_move_the_version_deletions_too() -> None:
    """B9."""
    async with serving() as (api, client):
        api.calls.append(page([thing("a", "1")], "5"))
        api.watches.append(
            stream(
                event("MODIFIED", thing("a", "6")),
                event("ADDED", thing("b", "7")),
                event("DELETED", thing("a", "8")),
                2,
            )
        )
        async with running(reflector_of(client)) as items:
            await asyncio.sleep(10)
    assert names(items[0]) == ["a"]
    assert [changed(item) for item in items[1:]] == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert watched_from(api) == ["5", "8"]


async def test_watch_timeouts_are_spread() -> None:
    """B1: 180 to 230 s, and all ask for bookmarks."""
    async with serving() as (api, client), running(reflector_of(client, relist_interval=None)):
        await asyncio.sleep(230 * 50)
    queries = [seen.query for seen in api.watches_seen][:50]
    assert all("allowWatchBookmarks=true" in query for query in queries)
    seconds = [int(query.rpartition("timeoutSeconds=")[2]) for query in queries]
    assert len(seconds) == 50
    assert all(180 <= second <= 230 for second in seconds)
    assert len(set(seconds)) > 20


async def test_a_bookmark_only_moves_the_version() -> None:
    """B1, B2."""
    async with serving() as (api, client):
        api.watches.append(stream(5, bookmark("44"), 5))
        async with running(reflector_of(client)) as items:
            await asyncio.sleep(20)
    assert len(items) == 1, "the snapshot"
    assert watched_from(api) == ["1", "44"]


EXPIRED = status_body(410, "Expired", "too old resource version")


@pytest.mark.parametrize(
    "shape",
    [
        refuse(410, "Expired"),
        refuse(410, "Gone"),
        stream(event("ERROR", EXPIRED)),
        stream(event("ERROR", {**EXPIRED, "code": None})),
        stream(5, event("ERROR", EXPIRED), then="silent"),
        stream(EXPIRED),
        answer(EXPIRED),
    ],
    ids=["http", "http gone", "event", "event without code", "later event", "bare line", "bare body"],
)
async def test_each_shape_of_410_leads_to_exactly_one_list_at_once(shape: Reply) -> None:
    """B3: never a second watch from the expired version."""
    async with serving() as (api, client):
        api.calls.extend([page([], "5"), page([thing("a", "8")], "9")])
        api.watches.append(shape)
        states: list[State] = []
        reflector = reflector_of(client, on_state=states.append)
        async with running(reflector) as items:
            await asyncio.sleep(5.5)
            assert trouble(reflector) == "", "expiry is no trouble"
    assert [names(item) for item in items] == [[], ["a"]]
    assert watched_from(api) == ["5", "9"]
    assert len(api.lists_seen) == 2
    assert states == [State.LISTING, State.WATCHING, State.EMPTY, State.LISTING, State.WATCHING]


async def test_a_server_that_expires_every_version_is_not_asked_in_a_loop() -> None:
    """B3 with B8: only the first expiry is free."""
    async with serving() as (api, client):
        api.default_watch = refuse(410, "Expired")
        async with running(reflector_of(client)):
            await asyncio.sleep(20)
    assert len(api.lists_seen) < 10


def error_event(code: int, reason: str = "", *, causes: tuple[str, ...] = ()) -> Reply:
    return stream(2, event("ERROR", status_body(code, reason, causes=causes)))


@pytest.mark.parametrize(
    ("failure", "relists"),
    [
        (refuse(429, headers={"Retry-After": "1"}), False),
        (error_event(429), False),
        (refuse(500), False),
        (error_event(500), False),
        (error_event(503), False),
        (error_event(504), False),
        (refuse(504, causes=("ResourceVersionTooLarge",)), True),
        (error_event(504, "Timeout", causes=("ResourceVersionTooLarge",)), True),
        (refuse(401), False),
        (refuse(403), False),
        (refuse(404), True),
        (refuse(400), True),
        (stream(b"nonsense\n"), False),
        (stream(b'{"type":"ADDED","obj', then="cut"), False),
        (stream(event("ADDED", {"metadata": {"name": "x"}})), False),
    ],
)
async def test_after_other_failures_the_same_version_is_asked_again_unless_it_is_to_blame(
    failure: Reply, relists: bool
) -> None:
    """B4: the table of (code, cause) → next request; always after a delay."""
    async with serving() as (api, client):
        api.calls.extend([page([], "5"), page([], "9")])
        api.watches.append(failure)
        failures: list[KubeError] = []
        async with running(reflector_of(client, on_failure=failures.append)) as items:
            await asyncio.sleep(10)
    assert len(items) == (2 if relists else 1)
    assert watched_from(api) == (["5", "9"] if relists else ["5", "5"])
    assert len(failures) == 1
    again = api.seen[2].at - api.seen[1].at
    assert again >= 0.8


async def test_the_fifth_failure_in_a_row_of_the_server_suspects_the_version() -> None:
    """B4."""
    async with serving() as (api, client):
        api.calls.extend([page([], "5"), page([], "9")])
        api.watches.extend([refuse(500), refuse(503), error_event(504), refuse(500), refuse(500)])
        async with running(reflector_of(client)) as items:
            await asyncio.sleep(300)
    assert watched_from(api)[:6] == ["5"] * 5 + ["9"]
    assert len(items) == 2


async def test_news_in_between_begin_the_count_anew() -> None:
    """B4: consecutive failures."""
    async with serving() as (api, client):
        failing = [refuse(500)] * 4
        api.watches.extend(
            [*failing, stream(2, bookmark("8"), event("ERROR", status_body(500))), *failing[:3]]
        )
        async with running(reflector_of(client)):
            await asyncio.sleep(300)
    assert len(api.lists_seen) == 1
    assert watched_from(api)[5] == "8"


async def test_a_version_that_gets_empty_answers_is_given_up_after_the_fifth() -> None:
    """B4, B5."""
    async with serving() as (api, client):
        api.calls.extend([page([], "5"), page([], "9")])
        api.watches.extend([stream()] * 5)
        async with running(reflector_of(client)):
            await asyncio.sleep(300)
    assert watched_from(api)[:6] == ["5"] * 5 + ["9"]


async def test_a_version_from_the_future_is_given_up_after_two_deaf_watches() -> None:
    """C6, R4: after a restore of etcd a real server holds such a watch to its end without a line."""
    async with serving() as (api, client):
        api.calls.extend([page([], "99999"), page([], "9")])
        api.watches.extend([stream(then="deaf")] * 2)
        async with running(reflector_of(client)) as items:
            await asyncio.sleep(1000)
    assert watched_from(api)[:3] == ["99999"] * 2 + ["9"]
    assert len(items) == 2


async def test_a_quiet_watch_with_bookmarks_and_one_that_ends_early_are_not_deaf() -> None:
    async with serving() as (api, client):
        deaf = stream(then="deaf")
        api.watches.extend([deaf, stream(then="hold"), deaf, stream(100), stream(100), stream(then="hold")])
        async with running(reflector_of(client)):
            await asyncio.sleep(1100)
    assert len(api.lists_seen) == 1


async def test_an_unreachable_server_does_not_cost_the_version() -> None:
    """B4: after an outage, resume; do not list everything."""
    async with serving() as (api, client):
        api.watches.extend([stream(5, then="cut")] * 12)
        async with running(reflector_of(client)):
            await asyncio.sleep(900)
    assert len(api.lists_seen) == 1
    assert len(api.watches_seen) > 12


async def test_an_unknown_event_is_ignored_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """B4: and does not move the version."""
    odd = event("SOMETHING", thing("a", "77"))
    async with serving() as (api, client):
        api.watches.extend([stream(odd, odd, 2), stream(odd, 2)])
        async with running(reflector_of(client)) as items:
            await asyncio.sleep(10)
    assert len(items) == 1
    assert watched_from(api) == ["1", "1", "1"]
    assert [record.name for record in caplog.records] == [LOGGER]
    assert "'SOMETHING'" in caplog.text


async def test_a_server_that_closes_at_once_is_asked_less_than_ten_times_in_twenty_seconds() -> None:
    """B5."""
    async with serving() as (api, client):
        api.default_watch = stream()
        async with running(reflector_of(client)):
            await asyncio.sleep(20)
    assert len(api.seen) < 10


async def test_old_bookmarks_do_not_make_an_immediate_end_better() -> None:
    """B5."""
    async with serving() as (api, client):
        api.default_watch = stream(bookmark("1"))
        async with running(reflector_of(client)):
            await asyncio.sleep(20)
    assert len(api.seen) < 10


async def test_after_a_normal_end_the_watch_goes_on_at_once() -> None:
    """B5."""
    async with serving() as (api, client):
        api.watches.extend([stream(100), stream(event("ADDED", thing("a", "8"))), stream(100)])
        async with running(reflector_of(client)):
            await asyncio.sleep(250)
    times = [seen.at for seen in api.watches_seen]
    assert [round(later - earlier) for earlier, later in itertools.pairwise(times)] == [100, 0, 100]


async def test_a_silent_watch_is_given_up_ten_seconds_after_its_timeout() -> None:
    """B6."""
    async with serving() as (api, client):
        api.watches.append(stream(then="silent"))
        reflector = reflector_of(client)
        async with running(reflector):
            await asyncio.sleep(1)
            assert trouble(reflector) == ""
            await asyncio.sleep(250)
    first, second = api.watches_seen[:2]
    timeout = int(first.query.rpartition("timeoutSeconds=")[2])
    assert timeout + 10 <= second.at - first.at <= timeout + 12
    assert watched_from(api) == ["1", "1"]


async def test_delays_grow_while_the_server_flaps_and_shrink_after_two_good_minutes() -> None:
    """B8."""
    async with serving() as (api, client):
        api.watches.extend(
            [stream(10, then="cut")] * 5
            + [stream(125, event("ERROR", status_body(500))), stream(then="hold")]
        )
        async with running(reflector_of(client)):
            await asyncio.sleep(600)
    ends = [seen.at + 10 for seen in api.watches_seen[:5]] + [api.watches_seen[5].at + 125]
    delays = [later.at - end for later, end in zip(api.watches_seen[1:], ends, strict=False)]
    for delay, base in zip(delays, [0.8, 1.6, 3.2, 6.4, 12.8, 0.8], strict=True):
        assert base - 0.01 <= delay <= 2 * base + 0.01


@pytest.mark.parametrize(("header", "least", "most"), [("20", 20, 21), ("9999", 180, 182)])
async def test_retry_after_is_a_floor_that_has_a_ceiling(header: str, least: float, most: float) -> None:
    """B8: for lists and watches; never blind for longer than liveness allows (N3)."""
    throttle = refuse(429, headers={"Retry-After": header})
    async with serving() as (api, client):
        api.calls.append(throttle)
        async with running(reflector_of(client)):
            await asyncio.sleep(300)
    assert least <= api.seen[1].at - api.seen[0].at <= most
    async with serving() as (api, client):
        api.watches.append(throttle)
        async with running(reflector_of(client)):
            await asyncio.sleep(300)
    assert least <= api.watches_seen[1].at - api.watches_seen[0].at <= most


async def test_an_item_whose_consumer_failed_is_delivered_again() -> None:
    """B9: the version moves when the next item is asked for."""
    async with serving() as (api, client):
        api.calls.append(page([thing("a", "1")], "5"))
        replay = [event("MODIFIED", thing("a", "6")), event("MODIFIED", thing("b", "7"))]
        api.watches.extend([stream(*replay, then="hold"), stream(replay[1], then="hold")])
        reflector = reflector_of(client)
        first = await take(reflector, 3)
        second = await take(reflector, 1)
    assert changed(first[2]) == changed(second[0]) == ("MODIFIED", "b")
    assert watched_from(api) == ["5", "6"], "a was consumed, b was not"


async def test_a_snapshot_whose_consumer_failed_is_taken_again() -> None:
    """B9."""
    async with serving() as (api, client):
        reflector = reflector_of(client)
        for _ in range(2):
            assert isinstance((await take(reflector, 1))[0], Snapshot)
    assert (len(api.lists_seen), len(api.watches_seen)) == (2, 0)


# What others see of it


async def test_a_forbidden_list_is_told_once_and_retried_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    """B4: never exit, RBAC may be mid-rollout; a loud line, but one."""
    caplog.set_level(logging.INFO, LOGGER)
    async with serving() as (api, client):
        api.default_call = refuse(403, "Forbidden", "not you")
        reflector = reflector_of(client)
        async with running(reflector) as items:
            await asyncio.sleep(600)
            assert "403" in trouble(reflector)
            assert items == []
            api.default_call = page([], "5")
            await asyncio.sleep(70)
            assert trouble(reflector) == ""
            assert len(items) == 1
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "verbs list and watch on things.example.com" in caplog.text
    assert "works again" in caplog.text


async def test_a_missing_type_is_told_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    """F4."""
    async with serving() as (api, client):
        api.default_call = answer(b"404 page not found", code=404)
        reflector = reflector_of(client)
        async with running(reflector):
            await asyncio.sleep(100)
            assert reflector.state is State.EMPTY
    assert len(caplog.records) == 1
    assert "does not have things.example.com: is its CustomResourceDefinition installed?" in caplog.text
    assert len(api.seen) < 12


async def test_trouble_while_watching_is_told_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    """One line per transition, also when each attempt is accepted first and fails then."""
    caplog.set_level(logging.INFO, LOGGER)
    async with serving() as (api, client):
        api.watches.extend(
            [stream(event("ERROR", status_body(500)))] * 3 + [stream(30, bookmark("8"), then="hold")]
        )
        reflector = reflector_of(client)
        async with running(reflector):
            await asyncio.sleep(0.5)
            assert "500" in trouble(reflector)
            await asyncio.sleep(15)
            assert trouble(reflector) == "", "an open watch is good news before its first line"
            await asyncio.sleep(60)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_a_watch_that_fails_after_a_good_while_is_trouble_during_the_delay() -> None:
    async with serving() as (api, client):
        api.watches.append(stream(30, event("ERROR", status_body(500))))
        reflector = reflector_of(client)
        async with running(reflector):
            await asyncio.sleep(30.5)
            assert "500" in trouble(reflector)
            await asyncio.sleep(5)
            assert trouble(reflector) == ""


async def test_a_long_stream_whose_connection_breaks_goes_on_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Fault E7, B8: load balancers do that; it is no trouble, and does not make the next failure wait longer."""
    caplog.set_level(logging.INFO, LOGGER)
    async with serving() as (api, client):
        api.watches.extend([stream(40, then="cut")] * 10 + [refuse(500), stream(then="hold")])
        reflector = reflector_of(client)
        async with running(reflector):
            await asyncio.sleep(600)
    starts = [seen.at for seen in api.watches_seen[:11]]
    assert all(40 <= later - earlier <= 41.1 for earlier, later in itertools.pairwise(starts))
    assert api.watches_seen[11].at - starts[10] <= 1.7
    assert [record.levelname for record in caplog.records] == ["INFO"] * 10 + ["WARNING", "INFO"]


async def test_a_version_that_expired_during_an_outage_is_listed_anew_at_once() -> None:
    """B3: only a server that expires one version after the other has to wait."""
    async with serving() as (api, client):
        api.watches.extend([refuse(500)] * 4 + [refuse(410, "Expired"), stream(then="hold")])
        async with running(reflector_of(client)):
            await asyncio.sleep(100)
    assert api.lists_seen[1].at - api.watches_seen[4].at <= 0.1


async def test_trouble_of_another_nature_is_told_anew(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (api, client):
        api.calls.extend([refuse(500), refuse(500), refuse(403), refuse(503)])
        async with running(reflector_of(client)):
            await asyncio.sleep(100)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "WARNING"]


async def test_progress_is_seen_whatever_happens() -> None:
    """N3: the longest gap is a watch timeout with its margin."""
    async with serving() as (api, client):
        api.calls.extend([refuse(500), refuse(429, headers={"Retry-After": "600"}), page([], "5")])
        api.watches.extend([stream(then="silent"), refuse(403), stream(then="silent")])
        reflector = reflector_of(client)
        worst = 0.0
        async with running(reflector):
            for _ in range(2000):
                await asyncio.sleep(1)
                worst = max(worst, asyncio.get_running_loop().time() - reflector.last_progress)
    assert 180 < worst <= 241


async def test_a_safety_relist_comes_about_every_hour() -> None:
    """C6: an event that the server dropped silently is healed."""
    async with serving() as (api, client):
        api.default_call = page([thing("dropped", "7")], "9")
        api.calls.append(page([], "5"))
        async with running(reflector_of(client, relist_interval=3600.0)) as items:
            await asyncio.sleep(4 * 3600)
    snapshots = [item for item in items if isinstance(item, Snapshot)]
    assert [snapshot.scheduled for snapshot in snapshots[:3]] == [False, True, True]
    assert names(snapshots[1]) == ["dropped"]
    gaps = [later.at - earlier.at for earlier, later in itertools.pairwise(api.lists_seen)]
    assert all(3600 * 0.8 <= gap <= 3600 * 1.2 + 240 for gap in gaps)


async def test_a_safety_relist_that_fails_does_not_stop_the_watch() -> None:
    """C6: what we have is no worse than before."""
    async with serving() as (api, client):
        api.default_call = refuse(500)
        api.calls.append(page([], "5"))
        async with running(reflector_of(client, relist_interval=3600.0)) as items:
            await asyncio.sleep(6000)
            api.default_call = page([], "9")
            await asyncio.sleep(1000)
    assert len(items) == 2
    assert set(watched_from(api)) == {"5", "9"}
    assert len(api.lists_seen) < 12


async def test_without_an_interval_there_is_no_safety_relist() -> None:
    async with serving() as (api, client), running(reflector_of(client, relist_interval=None)):
        await asyncio.sleep(86_400)
    assert len(api.lists_seen) == 1


async def test_no_byte_of_a_secret_gets_past_a_metadata_reflector(caplog: pytest.LogCaptureFixture) -> None:
    """D1, D2, F8: the server ignores Accept, and kubectl apply left its annotation."""
    caplog.set_level(logging.DEBUG)
    canary = "c4n4ry"

    def secret(version: str) -> dict[str, Any]:
        obj = thing("a", version, data={"k": canary}, stringData={"k": canary})
        obj["metadata"]["annotations"] = {LAST_APPLIED: canary, "example.com/x": "ours"}
        return obj

    async with serving() as (api, client):
        api.calls.append(page([secret("1")], "5"))
        quoting = status_body(422, "Invalid", canary)
        api.watches.extend(
            [stream(event("MODIFIED", secret("6")), event("ERROR", quoting)), refuse(422, "", canary)]
        )
        reflector = reflector_of(
            client, SECRETS, metadata_only=True, transform=metadata_allowlist(["example.com/"])
        )
        errors: list[str | None] = []
        async with running(reflector) as items:
            for _ in range(10):
                await asyncio.sleep(1)
                errors.append(reflector.last_error)
    assert len(items) == 2
    assert canary.encode() not in pickle.dumps(
        [(getattr(i, "items", None), getattr(i, "object", None)) for i in items]
    )
    assert canary not in f"{errors} {items!r} {caplog.text}"
    assert any(errors)


async def test_items_do_not_show_their_objects() -> None:
    """F8."""
    assert "x" not in f"{Snapshot([{'x': 1}], '5')!r}".removeprefix("Snapshot")
    assert repr(Change(ChangeKind.ADDED, {"secret": 1})).count("secret") == 0


# The pure parts


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (event("ADDED", thing("a", "7")), Change(ChangeKind.ADDED, thing("a", "7"))),
        (event("DELETED", thing("a", "7")), Change(ChangeKind.DELETED, thing("a", "7"))),
        (bookmark("9"), Bookmark("9")),
        (bookmark(""), Bookmark("")),
        (event("NEW", {}), UnknownEvent("NEW")),
    ],
)
async def test_the_meaning_of_a_line(line: dict[str, Any], expected: object) -> None:
    assert read_line(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (event("ERROR", EXPIRED), Gone),
        (event("ERROR", {"kind": "Status", "reason": "Gone"}), Gone),
        (EXPIRED, Gone),
        (event("ERROR", status_body(429)), Throttled),
        (event("ERROR", {}), ServerError),
        (status_body(200), ServerError),
        ({}, ProtocolError),
        ({"type": 5, "object": {}}, ProtocolError),
        ({"type": "ADDED"}, ProtocolError),
        (event("ADDED", {"metadata": {"name": "a"}}), ProtocolError),
        (event("ADDED", {"metadata": {"resourceVersion": "7"}}), ProtocolError),
    ],
)
async def test_a_line_that_is_an_error(line: dict[str, Any], expected: type[KubeError]) -> None:
    """B3, B4."""
    assert isinstance(read_line(line), expected)


TOO_LARGE = ServerError("GET /x", 504, causes=[Cause("ResourceVersionTooLarge", "")])


@pytest.mark.parametrize(
    ("error", "in_a_row", "relist"),
    [
        (Gone("GET /x", 410), 0, True),
        (BadRequest("GET /x", 400), 0, True),
        (NotFound("GET /x", 404), 0, True),
        (TOO_LARGE, 1, True),
        (ServerError("GET /x", 500), 4, False),
        (ServerError("GET /x", 500), 5, True),
        (ProtocolError("x"), 5, True),
        (WatchEndedEarly("x"), 5, True),
        (Unreachable("x"), 50, False),
        (Throttled("GET /x", 429), 50, False),
        (Forbidden("GET /x", 403), 50, False),
        (Unauthorized("GET /x", 401), 50, False),
    ],
)
async def test_what_follows_a_failed_watch(error: KubeError, in_a_row: int, relist: bool) -> None:
    """B4: the table itself."""
    expected = AfterFailure.RELIST if relist else AfterFailure.SAME_VERSION
    assert after_watch_failure(error, in_a_row) is expected
