"""What went wrong in others, part C: pointless writes, drift, immutability. Numbers as in docs/faults.md."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.behaviour.network import Request, Send, status
from tests.behaviour.steps import MERGE, network, writes_of
from tests.behaviour.world import World, behaviour, behaviour_with, mapping, variables

VALUES = {"A": "canary-a", "B": "canary-b"}
DAY = {"refreshInterval": "24h"}


@behaviour_with(only="sandbox")
@pytest.mark.parametrize("policy", ["Owner", "Merge"])
@pytest.mark.parametrize("how", ["value", "deletion"])
async def test_a_fight_over_a_key_is_bounded_and_named_once(world: World, policy: str, how: str) -> None:
    """Fault C3: a bot undoes our work every two seconds for five minutes."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, target_options={"creationPolicy": policy}, **DAY)
    await world.ready()
    net = network(world)
    for number in range(150):
        if how == "value":
            await world.call(
                "PATCH", world.secrets_path("db") + "?fieldManager=bot",
                {"stringData": {"A": f"canary-{number}"}}, kind="application/merge-patch+json",
            )  # fmt: skip
        else:
            await world.call("DELETE", world.secrets_path("db"), ok=False)
        await asyncio.sleep(2)
    assert 3 <= len(writes_of(net, world, "db")) <= 10
    assert world.psono.count("read") <= 11
    await world.quiet()
    contested = [note for _, reason, note in await world.events() if reason == "TargetContested"]
    assert len(contested) == 1
    if how == "value":
        assert "bot" in contested[0]
    await asyncio.sleep(300)
    assert await world.data() == VALUES, "and in the end we prevail"


@behaviour_with(only="sandbox")
async def test_a_fight_over_the_owner_reference_is_bounded_too(world: World) -> None:
    """Fault C3: what needs no value from Psono still is a write."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, **DAY)
    await world.ready()
    net = network(world)
    for _ in range(150):
        await world.patch(world.secrets_path("db"), {"metadata": {"ownerReferences": None}})
        await asyncio.sleep(2)
    assert 3 <= len(writes_of(net, world, "db")) <= 10
    assert world.psono.count("read") == 1


@behaviour_with(only="sandbox")
async def test_a_bot_that_edits_a_target_nobody_can_mend_costs_few_reads(world: World) -> None:
    """Faults C3 and D5: Psono refuses, and the backoff is not started anew by every edit."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, **DAY)
    await world.ready()
    world.psono.revoke(world.key, entry)
    await world.force_sync("x")
    await world.failing("RemoteReadFailed")
    before = world.psono.count("read")
    for number in range(300):
        await world.patch(world.secrets_path("db"), {"stringData": {"A": f"canary-{number}"}})
        await asyncio.sleep(2)
    assert world.psono.count("read") - before <= 18


@behaviour_with(only="sandbox")
async def test_a_target_deleted_while_psono_is_down_is_said_and_made_anew_when_it_is_back(
    world: World,
) -> None:
    """Fault C5."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, **DAY)
    await world.ready()
    world.psono.fail(503)
    await world.delete(world.secrets_path("db"))
    await world.failing("RemoteReadFailed", within=1)
    world.psono.heal()
    await world.target(VALUES, within=5)
    await world.ready()


@behaviour
async def test_a_remapped_key_and_another_policy_take_effect_while_everything_is_cached(
    world: World,
) -> None:
    """Faults C7 and C10: nothing changed in Psono, everything in the spec."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, **DAY)
    await world.ready()
    await world.patch_spec(data=[mapping("A", entry, "B"), mapping("B", entry, "A")])
    await world.target({"A": "canary-b", "B": "canary-a"}, within=1)
    await world.patch_spec(target=MERGE)
    await world.ready(within=1)
    assert not (await world.secret())["metadata"].get("ownerReferences")
    await world.patch_spec(target={"type": "kubernetes.io/basic-auth"})
    message = await world.failing("TargetUpdateFailed", within=1)
    assert "type" in message
    await world.delete(world.secrets_path("db"))
    await world.patch_spec(data=[mapping("username", entry, "A")])
    await world.ready(within=1)
    assert (await world.secret())["type"] == "kubernetes.io/basic-auth"


@behaviour_with(only="sandbox")
async def test_the_same_values_under_new_nonces_are_no_change(world: World) -> None:
    """Fault C11: what Psono sends differs each time, what it stands for does not."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, refreshInterval="30s")
    await world.ready()
    net = network(world)
    for _ in range(20):
        world.psono.update_entry(entry, variables(VALUES))
        await asyncio.sleep(33)
    assert world.psono.count("read") >= 18
    assert writes_of(net, world, "db") == []


@behaviour
@pytest.mark.parametrize("policy", ["Owner", "Merge"])
async def test_an_immutable_target_that_was_deleted_is_made_anew(world: World, policy: str) -> None:
    """Faults C13 and C14."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, target_options={"creationPolicy": policy}, **DAY)
    await world.ready()
    await world.patch(world.secrets_path("db"), {"immutable": True})
    await world.quiet()
    world.rotate(entry, A="canary-a2", B="canary-b2")
    await world.force_sync("x")
    assert "immutable" in await world.failing("TargetUpdateFailed")
    assert await world.data() == VALUES
    await world.delete(world.secrets_path("db"))
    await world.target({"A": "canary-a2", "B": "canary-b2"}, within=1)
    await world.ready()


@behaviour
async def test_a_secret_without_a_type_is_opaque(world: World) -> None:
    """Fault C16."""
    await world.call(
        "POST",
        world.secrets_path(),
        {"metadata": {"name": "db"}, "stringData": {"X": "canary-x"}, "type": ""},
    )
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, target_options={"type": "Opaque"})
    await world.ready()
    assert await world.data() == VALUES


@behaviour_with(only="sandbox")
async def test_a_full_quota_bothers_nobody_whose_target_exists(world: World) -> None:
    """Faults C18 and C19: the steady state asks admission for nothing but statuses."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, refreshInterval="30s")
    await world.create(
        entry, "A", name="merged", target="merged", target_options=MERGE, refreshInterval="30s"
    )
    await world.ready()
    await world.ready("merged")

    async def full(request: Request, send: Send) -> Any:
        secret = "/secrets" in request.path and "psonosecrets" not in request.path
        return status(403, "Forbidden") if secret and request.method != "GET" else await send()

    net = network(world, full)
    await asyncio.sleep(1800)
    assert net.sent("POST", "/secrets") == []
    for name in ("db", "merged"):
        assert (await world.condition(name))["status"] == "True"
        assert await world.events(name) == []
