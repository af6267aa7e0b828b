"""Watches: replay, live events, selectors, bookmarks, expiry (rule Q3, Q10, rules B1 to B3, A5)."""

from __future__ import annotations

import pytest

from tests.conformance.rawapi import PARTIAL, TABLE, Api

pytestmark = pytest.mark.asyncio


def short(event: dict[str, object]) -> tuple[object, object, object]:
    meta = event["object"]["metadata"]  # type: ignore[index]
    return event["type"], meta.get("name"), meta.get("resourceVersion")


async def test_a_watch_replays_from_any_retained_version(api: Api) -> None:
    start = await api.get(api.psono)
    created = await api.new_psono("a")
    labelled = await api.patch(f"{api.psono}/a", {"metadata": {"labels": {"a": "b"}}})
    await api.delete(f"{api.psono}/a")
    async with api.watch(api.psono, resourceVersion=start.version) as events:
        assert events.status == 200
        assert short(await events.next()) == ("ADDED", "a", created.version)
        assert short(await events.next()) == ("MODIFIED", "a", labelled.version)
        kind, name, version = short(await events.next())
        assert (kind, name) == ("DELETED", "a")
        assert int(str(version)) > int(labelled.version), "a deletion has a version of its own (B9)"
    async with api.watch(api.psono, resourceVersion=labelled.version) as events:
        assert short(await events.next())[0] == "DELETED"


async def test_a_watch_goes_on_with_live_events(api: Api) -> None:
    start = await api.get(api.psono)
    async with api.watch(api.psono, resourceVersion=start.version) as events:
        created = await api.new_psono("a")
        event = await events.next()
        assert short(event) == ("ADDED", "a", created.version)
        assert event["object"] == created.body
        status = await api.patch(f"{api.psono}/a/status", {"status": {"observedGeneration": 1}})
        assert (await events.next())["object"] == status.body


async def test_a_finalizer_makes_a_deletion_two_events(api: Api) -> None:
    await api.new_psono("a", metadata={"finalizers": ["example.com/f"]})
    start = await api.get(api.psono)
    async with api.watch(api.psono, resourceVersion=start.version) as events:
        await api.delete(f"{api.psono}/a")
        event = await events.next()
        assert event["type"] == "MODIFIED"
        assert event["object"]["metadata"]["deletionTimestamp"]
        await api.patch(f"{api.psono}/a", {"metadata": {"finalizers": None}})
        assert short(await events.next())[:2] == ("DELETED", "a")


async def test_a_write_without_change_is_no_event(api: Api) -> None:
    await api.new_psono("a")
    start = await api.get(api.psono)
    async with api.watch(api.psono, resourceVersion=start.version) as events:
        await api.patch(f"{api.psono}/a", {"spec": {"refreshInterval": "5m"}})
        marker = await api.new_psono("z")
        assert short(await events.next()) == ("ADDED", "z", marker.version)


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
async def test_without_a_version_a_watch_begins_with_what_there_is(api: Api, query: dict[str, str]) -> None:
    first = await api.new_psono("a")
    second = await api.new_psono("b")
    await api.patch(f"{api.psono}/a", {"metadata": {"labels": {"x": "y"}}})
    async with api.watch(api.psono, **query) as events:
        seen = {(await events.next())["object"]["metadata"]["name"] for _ in range(2)}
        assert seen == {"a", "b"}
        assert {event["type"] for event in events.seen} <= {"ADDED", "MODIFIED"}
    assert first.uid != second.uid


async def test_a_watch_of_all_namespaces_sees_ours(api: Api) -> None:
    start = await api.get("/api/v1/secrets")
    async with api.watch("/api/v1/secrets", resourceVersion=start.version) as events:
        await api.new_secret("needle-in-all")
        event = await events.next_of("needle-in-all")
        assert event["object"]["metadata"]["namespace"] == api.namespace


async def test_leaving_a_label_selector_is_a_deletion_and_coming_back_an_addition(api: Api) -> None:
    start = await api.get(api.secrets)
    query = {"resourceVersion": start.version, "labelSelector": "app=x"}
    async with api.watch(api.secrets, **query) as events:
        await api.new_secret("a", metadata={"labels": {"app": "x"}})
        assert short(await events.next())[:2] == ("ADDED", "a")
        left = await api.patch(f"{api.secrets}/a", {"metadata": {"labels": {"app": "y"}}})
        event = await events.next()
        assert short(event) == ("DELETED", "a", left.version)
        assert event["object"]["metadata"]["labels"] == {"app": "x"}, "as it was inside the selector"
        await api.patch(f"{api.secrets}/a", {"metadata": {"labels": {"other": "z"}}})
        back = await api.patch(f"{api.secrets}/a", {"metadata": {"labels": {"app": "x"}}})
        assert short(await events.next()) == ("ADDED", "a", back.version)


async def test_a_field_selector_narrows_a_watch(api: Api) -> None:
    start = await api.get(api.psono)
    query = {"resourceVersion": start.version, "fieldSelector": "spec.target.name=b"}
    async with api.watch(api.psono, **query) as events:
        await api.new_psono("a")
        await api.new_psono("b", spec={"target": {"name": "b"}})
        assert short(await events.next())[:2] == ("ADDED", "b")


async def test_the_timeout_ends_the_stream_in_order(api: Api) -> None:
    start = await api.get(api.psono)
    await api.new_psono("a")
    async with api.watch(api.psono, resourceVersion=start.version, timeoutSeconds="1") as events:
        rest = await events.rest()
    assert [short(event)[:2] for event in rest] == [("ADDED", "a")]


async def test_a_bookmark_carries_a_version_and_nothing_else(api: Api) -> None:
    """Rule B2: one comes shortly before the timeout, on a quiet collection as well."""
    start = await api.get(api.psono)
    query = {"resourceVersion": start.version, "allowWatchBookmarks": "true", "timeoutSeconds": "3"}
    async with api.watch(api.psono, **query) as events:
        rest = await events.rest()
    assert rest
    assert {event["type"] for event in rest} == {"BOOKMARK"}
    bookmark = rest[-1]["object"]
    assert bookmark["kind"] == "PsonoSecret"
    assert int(bookmark["metadata"]["resourceVersion"]) >= int(start.version)
    assert not bookmark["metadata"].get("name")
    assert not {"status", "data"} & bookmark.keys()


async def test_without_leave_there_are_no_bookmarks(api: Api) -> None:
    start = await api.get(api.psono)
    async with api.watch(api.psono, resourceVersion=start.version, timeoutSeconds="2") as events:
        assert await events.rest() == []


async def test_a_too_old_version_is_an_error_inside_a_good_stream(api: Api) -> None:
    """Rule B3, shape b (R4)."""
    await api.new_psono("a")
    api.compact()
    async with api.watch(api.psono, resourceVersion="1") as events:
        assert events.status == 200
        (event,) = await events.rest()
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


async def test_a_version_from_the_future_is_a_silent_good_stream(api: Api) -> None:
    query = {"resourceVersion": "999999999", "timeoutSeconds": "1"}
    async with api.watch(api.psono, **query) as events:
        assert (events.status, await events.rest()) == (200, [])


async def test_a_malformed_version_is_refused(api: Api) -> None:
    answer = await api.get(api.psono, watch="1", resourceVersion="abc")
    assert answer.status >= 400


async def test_initial_events_end_with_an_annotated_bookmark(api: Api) -> None:
    """Rule A5: kubectl delete waits this way since 1.36."""
    await api.new_psono("a")
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with api.watch(api.psono, **query) as events:
        assert short(await events.next())[:2] == ("ADDED", "a")
        bookmark = await events.next()
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await api.new_psono("b")
        assert short(await events.next_of("b"))[:2] == ("ADDED", "b")


async def test_initial_events_need_the_version_match(api: Api) -> None:
    answer = await api.get(api.psono, watch="1", sendInitialEvents="true")
    assert (answer.status, answer.causes[0]["field"]) == (422, "resourceVersionMatch")


async def test_a_metadata_only_watch(api: Api) -> None:
    start = await api.get(api.secrets)
    async with api.watch(api.secrets, accept=PARTIAL, resourceVersion=start.version) as events:
        created = await api.new_secret("a", stringData={"k": "v"})
        obj = (await events.next())["object"]
        assert (obj["kind"], obj["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
        assert obj["metadata"]["resourceVersion"] == created.version
        assert "data" not in obj


async def test_a_table_watch(api: Api) -> None:
    start = await api.get(api.psono)
    async with api.watch(api.psono, accept=TABLE, resourceVersion=start.version) as events:
        await api.new_psono("a")
        first = (await events.next())["object"]
        assert (first["kind"], first["rows"][0]["cells"][0]) == ("Table", "a")
        assert first["columnDefinitions"]
        await api.new_psono("b")
        second = (await events.next())["object"]
        assert second["rows"][0]["cells"][0] == "b"
        assert not second.get("columnDefinitions")
