"""From trigger to result in less than a second, whatever the interval and however long the backoff."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.behaviour.network import Request, Send
from tests.behaviour.steps import MERGE, SOON, grow_the_backoff, network
from tests.behaviour.world import AUTH, World, behaviour, behaviour_with, mapping

VALUES = {"A": "canary-a", "B": "canary-b"}
DAY = {"refreshInterval": "24h"}
Part = Callable[[World], Awaitable[None]]


async def settled(world: World, **spec: Any) -> str:
    """A PsonoSecret that is Ready and due tomorrow; its entry."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, **{**DAY, **spec})
    await world.ready()
    await world.quiet()
    return entry


async def edit_target(world: World) -> None:
    await world.patch(world.secrets_path("db"), {"stringData": {"A": "canary-edited"}})


async def delete_target(world: World) -> None:
    await world.delete(world.secrets_path("db"))


async def rewrite_auth(world: World) -> None:
    await world.delete(world.secrets_path(AUTH))
    await world.create_auth()


async def force(world: World) -> None:
    await world.force_sync("now")


async def change_spec(world: World) -> None:
    await world.patch_spec(refreshInterval="23h")


TRIGGERS: dict[str, Part] = {
    "spec": change_spec, "credentials": rewrite_auth, "force": force, "edited": edit_target,
    "deleted": delete_target,
}  # fmt: skip


@behaviour
async def test_a_changed_spec(world: World) -> None:
    entry = await settled(world)
    await world.patch_spec(data=[mapping("C", entry, "B")])
    await world.target({"C": "canary-b"}, within=SOON)


@behaviour
@pytest.mark.parametrize("touch", [edit_target, delete_target], ids=["edited", "deleted"])
async def test_a_touched_target(world: World, touch: Part) -> None:
    await settled(world)
    await touch(world)
    await asyncio.sleep(0.02)
    await world.target(VALUES, within=SOON)


@behaviour
async def test_the_force_sync_annotation(world: World) -> None:
    """Fault D13: the handled value is kept, and appears even where nothing changed."""
    entry = await settled(world)
    world.rotate(entry, A="canary-a2", B="canary-b2")
    await world.force_sync("one")
    await world.target({"A": "canary-a2", "B": "canary-b2"}, within=SOON)
    await world.force_sync("two")

    async def handled() -> bool:
        return bool((await world.psono_secret())["status"].get("lastHandledForceSync") == "two")

    await world.eventually(handled, within=SOON)
    await world.annotate(
        world.psono_secrets_path("db"), **{"secrets.psono.com/force-sync": None}
    )  # taking the annotation off asks for one more, and the status forgets the value

    async def forgotten() -> bool:
        return "lastHandledForceSync" not in (await world.psono_secret())["status"]

    await world.eventually(forgotten, within=SOON)


@behaviour
async def test_forcing_twice_within_a_second_costs_one_read_or_two(world: World) -> None:
    """Fault D13: the second may join a read that has not begun."""
    await settled(world)
    before = world.psono.count("read")
    await world.force_sync("one")
    await world.force_sync("two")

    async def handled() -> bool:
        return bool((await world.psono_secret())["status"].get("lastHandledForceSync") == "two")

    await world.eventually(handled, within=SOON)
    await world.quiet()
    assert 1 <= world.psono.count("read") - before <= 2


@behaviour
async def test_other_credentials_in_the_authentication_secret(world: World) -> None:
    entry = await settled(world)
    other = world.psono.add_key()
    world.psono.assign(other, entry)
    world.rotate(entry, A="canary-a2", B="canary-b2")
    world._secrets.add(other.secret_key_hex)
    values = {"apiKeyId": other.id, "apiSecretKey": other.secret_key_hex}
    await world.patch(world.secrets_path(AUTH), {"stringData": values})
    await world.target({"A": "canary-a2", "B": "canary-b2"}, within=SOON)


@behaviour
async def test_a_deleted_authentication_secret_and_its_return(world: World) -> None:
    await settled(world)
    await world.delete(world.secrets_path(AUTH))
    assert "does not exist" in await world.failing("AuthenticationSecretError", within=SOON)
    assert await world.data() == VALUES
    await world.create_auth()
    await world.ready(within=SOON)


@behaviour
@pytest.mark.parametrize("failing", [False, True])
async def test_an_edit_of_the_authentication_secret_that_changes_nothing_costs_no_read(
    world: World, failing: bool
) -> None:
    """A label, another key, blanks around a value: the credentials are what they were."""
    await settled(world)
    if failing:
        world.psono.fail(500)
        await world.force_sync("x")
        await world.failing("RemoteReadFailed")
        await grow_the_backoff(world)
        await world.quiet()
    before = len(world.psono.requests)
    await world.patch(world.secrets_path(AUTH), {"metadata": {"labels": {"team": "a"}}})
    await world.patch(
        world.secrets_path(AUTH), {"stringData": {"note": "mine", "apiKeyId": f" {world.key.id}\n"}}
    )
    await world.quiet()
    if not failing or world.sandbox is not None:
        assert len(world.psono.requests) == before


@behaviour
async def test_an_idle_edit_of_the_credentials_hides_no_edit_of_the_target(world: World) -> None:
    """Both arrive at once; what is found out about the one must not count for the other."""
    await settled(world)
    net = network(world)
    held = asyncio.Event()

    async def late(request: Request, send: Send) -> Any:
        if str(request).startswith("GET kubernetes") and AUTH in str(request):
            held.set()
            await asyncio.sleep(0.3)
        return await send()

    net.handler = late
    await world.patch(world.secrets_path(AUTH), {"metadata": {"labels": {"team": "a"}}})
    await edit_target(world)
    await asyncio.wait_for(held.wait(), 2)
    await world.target(VALUES, within=SOON + 0.3)


@behaviour_with(only="sandbox")
@pytest.mark.parametrize("trigger", TRIGGERS)
async def test_no_backoff_holds_up_a_trigger(world: World, trigger: str) -> None:
    """Fault D9: Psono was down until the backoff reached its cap, came back, and nobody said so."""
    await settled(world)
    world.psono.fail(500)
    await world.force_sync("x")
    await world.failing("RemoteReadFailed")
    await grow_the_backoff(world)
    world.psono.heal()
    if trigger == "credentials":
        other = world.psono.add_key()
        world.psono.assign(other, (await world.psono_secret())["spec"]["data"][0]["remoteRef"]["secretId"])
        world.key = other
    await TRIGGERS[trigger](world)
    await world.ready(within=SOON)
    await world.target(VALUES, within=SOON)


@behaviour
@pytest.mark.parametrize("how", ["deleted", "renamed", "unmapped"])
async def test_the_holder_of_a_key_lets_go(world: World, how: str) -> None:
    entry = world.entry(**VALUES)
    await world.create(entry, "A", name="holder", target="shared", target_options=MERGE, **DAY)
    await world.ready("holder")
    await world.create(entry, "A", "B", name="waiting", target="shared", target_options=MERGE, **DAY)
    assert '"holder"' in await world.failing("TargetUpdateFailed", "waiting")
    await grow_the_backoff(world)
    match how:
        case "deleted":
            await world.delete(world.psono_secrets_path("holder"))
        case "renamed":
            await world.patch_spec("holder", target={"name": "elsewhere"})
        case "unmapped":
            await world.patch_spec("holder", data=[mapping("C", entry, "B")])
    await world.ready("waiting", within=SOON)


@behaviour
async def test_a_target_that_was_somebodys_credentials_is_free_again(world: World) -> None:
    entry = world.entry(**VALUES)
    await world.create_secret("other", {"serverUrl": world.psono_url})
    await world.create(
        entry, "A", name="user", target="user", authentication={"secretRef": {"name": "other"}}, **DAY
    )
    await world.failing("AuthenticationSecretError", "user")
    await world.create(entry, "A", target="other", target_options=MERGE, **DAY)
    assert "authentication Secret" in await world.failing("TargetUpdateFailed")
    await grow_the_backoff(world)
    await world.patch_spec("user", authentication={"secretRef": {"name": AUTH}})
    await world.ready(within=SOON)


@behaviour_with(only="sandbox")
async def test_the_due_time(world: World) -> None:
    """Due after the interval give or take a tenth, and read then."""
    entry = await settled(world, refreshInterval="10m")
    world.rotate(entry, A="canary-a2", B="canary-b2")
    await asyncio.sleep(539)
    assert await world.data() == VALUES
    await world.target({"A": "canary-a2", "B": "canary-b2"}, within=122)


@behaviour_with(only="sandbox")
async def test_a_key_is_not_kept_from_its_holder_by_edits_of_others(world: World) -> None:
    """A blocked PsonoSecret reads nothing because somebody writes his own keys into the shared target."""
    entry = world.entry(**VALUES)
    await world.create(entry, "A", name="holder", target="shared", target_options=MERGE, **DAY)
    await world.ready("holder")
    await world.create(entry, "A", "B", name="waiting", target="shared", target_options=MERGE, **DAY)
    await world.failing("TargetUpdateFailed", "waiting")
    await grow_the_backoff(world)
    before = world.psono.count("read")
    for number in range(60):
        await world.patch(world.secrets_path("shared"), {"stringData": {"THEIRS": f"canary-{number}"}})
        await asyncio.sleep(1)
    assert world.psono.count("read") - before <= 1
    await world.delete(world.psono_secrets_path("holder"))
    await world.ready("waiting", within=SOON)
