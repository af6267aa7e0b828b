"""What a status and an event say: the documented reason, the object, the next step; the same while it lasts.

Each way to fail is brought about twice in a row. The message must name what is wrong and what to do, the
second failure must leave the status byte for byte as it was, and there must be one event for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from tests.behaviour.network import FORBIDDEN, TERMINATING, instead
from tests.behaviour.steps import MERGE, network
from tests.behaviour.world import AUTH, World, behaviour, behaviour_with, mapping

VALUES = {"A": "canary-a", "B": "canary-b"}
Part = Callable[[World, str], Awaitable[None]]


@dataclass(frozen=True)
class Case:
    """``spoil`` brings the failure about; ``says`` are parts of the message."""

    reason: str
    says: tuple[str, ...]
    spoil: Part
    changes: dict[str, Any] = field(default_factory=dict)


def in_psono(act: Callable[[World, str], object]) -> Part:
    async def part(world: World, entry: str) -> None:
        act(world, entry)

    return part


def credentials(**values: str) -> Part:
    async def part(world: World, entry: str) -> None:
        await world.patch(world.secrets_path(AUTH), {"stringData": values})

    return part


async def no_auth(world: World, entry: str) -> None:
    await world.delete(world.secrets_path(AUTH))


async def no_server_url(world: World, entry: str) -> None:
    await world.patch(world.secrets_path(AUTH), {"data": {"serverUrl": None}})


async def no_variable(world: World, entry: str) -> None:
    world.rotate(entry, A="canary-a")


async def another_type(world: World, entry: str) -> None:
    await world.patch_spec(
        target={"type": "kubernetes.io/basic-auth"}, data=[mapping("username", entry, "A")]
    )


async def another_controller(world: World, entry: str) -> None:
    await world.call(
        "POST", f"/api/v1/namespaces/{world.namespace}/configmaps", {"metadata": {"name": "boss"}}
    )
    boss = await world.get(f"/api/v1/namespaces/{world.namespace}/configmaps/boss")
    owner = {
        "apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": boss["metadata"]["uid"],
        "controller": True,
    }  # fmt: skip
    await world.create_secret("theirs", {"X": "canary-x"}, metadata={"ownerReferences": [owner]})
    await world.patch_spec(target={"name": "theirs"})


async def a_rival(world: World, entry: str) -> None:
    await world.create(entry, "A", name="rival", target="shared", target_options=MERGE)
    await world.ready("rival")
    await world.patch_spec(target={"name": "shared", "creationPolicy": "Merge"})


def refused(*request: str) -> Part:
    async def part(world: World, entry: str) -> None:
        network(world, instead(FORBIDDEN, *request))
        world.rotate(entry, A="canary-a2", B="canary-b2")

    return part


async def no_cleanup(world: World, entry: str) -> None:
    network(world, instead(FORBIDDEN, "DELETE", "/secrets/"))
    await world.patch_spec(target={"name": "new"})


READ = "RemoteReadFailed"
REFUSED = "TargetUpdateFailed"
CASES = {
    "auth missing": Case(
        "AuthenticationSecretError", (f'"{AUTH}"', "create it", "secretRef.name"), no_auth
    ),
    "auth key missing": Case("AuthenticationSecretError", ("'serverUrl'", "add it"), no_server_url),
    "auth key empty": Case(
        "AuthenticationSecretError", ("'apiKeyId'", "fill it in"), credentials(apiKeyId=" ")
    ),
    "secret key": Case(
        "ClientConfigurationError", ("'apiSecretKey'", "64 hexadecimal"), credentials(apiSecretKey="abc")
    ),
    "server url": Case(
        "ClientConfigurationError", ("'serverUrl'", "https://"), credentials(serverUrl="ftp://x")
    ),
    "unreachable": Case(READ, ("ENTRY", "refuses connections", "check the server URL"), credentials(serverUrl="http://127.0.0.1:9")),
    "server fault": Case(READ, ("ENTRY", "502", "server's own log"), in_psono(lambda w, e: w.psono.fail(502))),
    "maintenance": Case(
        READ,
        ("ENTRY", "maintenance", "ask its administrator"),
        in_psono(lambda w, e: setattr(w.psono, "maintenance", True)),
    ),
    "wrong path": Case(READ, ("ENTRY", "404", "check the server URL"), in_psono(lambda w, e: w.psono.fail(404))),
    "not assigned": Case(
        READ, ("ENTRY", "400", "not assigned", "assign it"), in_psono(lambda w, e: w.psono.revoke(w.key, e))
    ),
    "no right": Case(
        READ,
        ("ENTRY", "400", "no read right", "grant it"),
        in_psono(lambda w, e: w.psono.store.change_key(w.key, read=False)),
    ),
    "dead key": Case(
        READ,
        ("ENTRY", "400", "unknown, inactive or deleted", "check the API key"),
        in_psono(lambda w, e: w.psono.store.change_key(w.key, active=False)),
    ),
    "wrong secret key": Case(
        READ, ("ENTRY", "API secret key does not unlock it"), credentials(apiSecretKey="cd" * 32)
    ),
    "plaintext": Case(
        READ,
        ("ENTRY", "Allow insecure usage", "disable"),
        in_psono(lambda w, e: setattr(w.psono, "answers_plaintext", True)),
    ),
    "no variable": Case(
        "ValueExtractionFailed", ("ENTRY", 'key "B"', "variable 'B'", "check the spelling"), no_variable
    ),
    "type": Case(REFUSED, ('Secret "db"', "type Opaque", "delete the Secret"), another_type),
    "controller": Case(REFUSED, ('Secret "theirs"', 'ConfigMap "boss"', "choose another"), another_controller),
    "rival": Case(REFUSED, ('key "A"', 'PsonoSecret "rival"', "remove the mapping"), a_rival),
    "rights": Case(REFUSED, ('Secret "db"', "403", "RBAC"), refused("PUT", "/secrets/db")),
    "cleanup": Case("PreviousTargetCleanupFailed", ('Secret "db"', "403", "RBAC"), no_cleanup),
}  # fmt: skip
ON_BOTH = {"auth missing", "not assigned", "no variable", "rival", "cleanup"}


async def failing_twice(world: World, case: Case) -> None:
    """Fault H6; I2, I5, I6."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, refreshInterval="24h", **case.changes)
    good = (await world.ready())["status"]["conditions"][0]
    await world.quiet()
    assert [each for each in await world.events() if each[1] != "TargetTakenOver"] == []
    await asyncio.sleep(1.1)  # so that a transition shows
    await case.spoil(world, entry)
    await world.force_sync("one")
    message = await world.failing(case.reason, within=2)
    for part in case.says:
        assert part.replace("ENTRY", entry) in message, message
    assert len(message.encode()) <= 1024
    await world.quiet()
    before = await world.psono_secret()
    (condition,) = before["status"]["conditions"]
    assert moment(condition) > moment(good)
    assert condition["observedGeneration"] == before["metadata"]["generation"]
    assert before["status"]["observedGeneration"] == before["metadata"]["generation"]

    await asyncio.sleep(1.1)
    await world.force_sync("two")

    async def handled() -> bool:
        return bool((await world.psono_secret())["status"].get("lastHandledForceSync") == "two")

    await world.eventually(handled)
    await world.quiet()
    after = await world.psono_secret()
    assert after["status"]["conditions"] == before["status"]["conditions"], (
        "the same failure, the same status"
    )
    if case.reason != "PreviousTargetCleanupFailed":
        before["status"]["lastHandledForceSync"] = "two"
        assert after["status"] == before["status"]

    async def told() -> Any:
        return [each for each in await world.events() if each[:2] == ("Warning", case.reason)]

    (event,) = await world.eventually(told)
    assert event[2] == message


@behaviour_with(only="sandbox")
@pytest.mark.parametrize("name", CASES)
async def test_a_failure_says_what_is_wrong_and_what_to_do_and_says_it_once(world: World, name: str) -> None:
    """Fault H6."""
    await failing_twice(world, CASES[name])


@behaviour_with(only="controlplane")
@pytest.mark.parametrize("name", sorted(ON_BOTH))
async def test_a_failure_says_it_on_a_real_api_server(world: World, name: str) -> None:
    """Fault H6."""
    await failing_twice(world, CASES[name])


def moment(condition: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(condition["lastTransitionTime"])


@behaviour
async def test_a_story_in_events(world: World) -> None:
    """Fails: one Warning. Fails on: none. Recovers: one Normal. A plain first success: none."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    await world.ready()
    for force, break_it in (("1", True), ("2", True), ("3", False), ("4", False)):
        if break_it:
            world.psono.fail(500)
        else:
            world.psono.heal()
        await world.force_sync(force)

        async def handled(force: str = force) -> bool:
            return bool((await world.psono_secret())["status"].get("lastHandledForceSync") == force)

        await world.eventually(handled)
        await world.quiet()

    async def told() -> bool:
        return len(await world.events()) >= 2

    await world.eventually(told)
    assert [each[:2] for each in await world.events()] == [
        ("Warning", "RemoteReadFailed"), ("Normal", "SecretSynchronized"),
    ]  # fmt: skip
    condition = await world.condition()
    assert condition["message"] == 'Secret "db" holds 2 values of 1 Psono entry.'


@behaviour
async def test_a_failure_that_turns_into_another_is_a_second_event(world: World) -> None:
    entry = world.entry(**VALUES)
    await world.create(entry, "A", "MISSING")
    await world.failing("ValueExtractionFailed")
    world.psono.fail(500)
    await world.force_sync("x")
    await world.failing("RemoteReadFailed")

    async def told() -> bool:
        return {each[1] for each in await world.events()} == {"ValueExtractionFailed", "RemoteReadFailed"}

    await world.eventually(told)


@behaviour
async def test_there_is_a_condition_from_the_first_attempt_on(world: World) -> None:
    """Fault H5: GitOps tools wait for Ready of the observed generation."""
    world.psono.fail(500)
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    await world.failing("RemoteReadFailed", within=1)
    status = (await world.psono_secret())["status"]
    assert status["observedGeneration"] == 1
    assert "lastSyncTime" not in status
    world.psono.heal()
    await world.ready()
    moved = await world.patch_spec(refreshInterval="1h")
    await world.ready()
    status = (await world.psono_secret())["status"]
    assert (
        status["observedGeneration"]
        == status["conditions"][0]["observedGeneration"]
        == moved["metadata"]["generation"]
        == 2
    )


@behaviour_with(only="sandbox")
async def test_the_last_synchronization_is_the_last_good_one(world: World) -> None:
    """Fault H11."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, refreshInterval="30s")
    good = (await world.ready())["status"]["lastSyncTime"]
    world.psono.fail(500)
    await asyncio.sleep(120)
    status = (await world.psono_secret())["status"]
    assert status["lastSyncTime"] <= good.replace("12:00:0", "12:00:5")
    assert status["conditions"][0]["status"] == "False"
    assert status["target"]["name"] == "db"
    world.psono.heal()
    await asyncio.sleep(33)
    healed = (await world.ready())["status"]
    assert healed["lastSyncTime"] > status["lastSyncTime"]
    assert "500" not in str(healed)


@behaviour_with(only="sandbox")
async def test_an_ending_namespace_gets_no_events_and_no_storm(world: World) -> None:
    """Fault A9, H6."""
    net = network(world)

    async def ending(request: Any, send: Any) -> Any:
        return TERMINATING if request.method == "POST" and request.host == "kubernetes" else await send()

    net.handler = ending
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, refreshInterval="10m")
    assert "its namespace is being deleted" in await world.failing("TargetUpdateFailed")
    await asyncio.sleep(3600)
    creates = [each for each in net.requests if each.method == "POST" and each.host == "kubernetes"]
    assert 4 <= len(creates) <= 8
    assert all("events" not in each.path for each in creates)


@behaviour_with(only="sandbox")
async def test_a_cleanup_that_succeeds_at_last_is_good_news(world: World) -> None:
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, refreshInterval="24h")
    await world.ready()
    network(world, instead(FORBIDDEN, "DELETE", "/secrets/", times=3))
    await world.patch_spec(target={"name": "new"})
    await world.failing("PreviousTargetCleanupFailed")
    await world.ready(within=20)

    async def told() -> bool:
        return [each[:2] for each in await world.events()] == [
            ("Warning", "PreviousTargetCleanupFailed"), ("Normal", "SecretSynchronized"),
        ]  # fmt: skip

    await world.eventually(told)


@behaviour_with(only="sandbox")
async def test_a_pause_has_one_message_while_it_lasts(world: World) -> None:
    """D2, I5: and its end is a time on the clock."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    await world.ready()
    world.psono.throttle(600)
    await world.force_sync("1")
    message = await world.failing("RemoteReadFailed")
    assert "pause until 2026-12-01T12:10:0" in message
    requests = len(world.psono.requests)
    for number in range(2, 6):
        await asyncio.sleep(60)
        await world.force_sync(str(number))
        await world.quiet()
        assert await world.failing("RemoteReadFailed") == message
    assert len(world.psono.requests) == requests
    world.psono.heal()
    await asyncio.sleep(400)
    await world.ready()


@behaviour_with(only="sandbox")
async def test_a_slow_server_is_reported_before_the_attempt_is_cut_off(world: World) -> None:
    """F6: an attempt that the deadline of the reconcile ends could say nothing at all."""
    entries = [world.entry(A=f"canary-{number}") for number in range(40)]
    world.psono.delay_seconds = 9
    await world.create("", data=[mapping(f"K{n}", entry, "A") for n, entry in enumerate(entries)])
    await asyncio.sleep(44)
    message = await world.failing("RemoteReadFailed", within=2)
    assert message.startswith("40 Psono entries could not be read within 45 s")
