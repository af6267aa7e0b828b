"""The end of a PsonoSecret: its target goes or stays as the policy says, and nothing holds it up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from psono_operator.runtime.lease import LEASES
from tests.behaviour.network import FORBIDDEN, TERMINATING, Network
from tests.behaviour.steps import (
    MERGE,
    OWNER,
    Gate,
    creates,
    encoded,
    is_write,
    network,
    owners,
    patches,
    shares,
)
from tests.behaviour.world import World, behaviour, behaviour_with, world
from tests.controlplane.cluster import ControlPlane, control_plane
from tests.controlplane_fixture import install_crd, require_control_plane

A = {"A": "canary-a"}
POLICIES = {"Owner": OWNER, "Merge": MERGE}
HOLD = "example.com/hold"


async def start(world: World, policy: str = "Owner", name: str = "db", **spec: Any) -> str:
    """A PsonoSecret that maps A of an entry, which is returned, to a target of its own name, and is Ready."""
    entry = world.entry(**A)
    await world.create(entry, "A", name=name, target=name, target_options=POLICIES[policy], **spec)
    await world.ready(name)
    await world.quiet()
    return entry


async def end(world: World, propagation: str = "Background", name: str = "db") -> None:
    await world.delete(world.psono_secrets_path(name), propagation)
    await world.gone(world.psono_secrets_path(name))


# -- propagation ----------------------------------------------------------------------------------------


@behaviour
@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
@pytest.mark.parametrize("policy", ["Owner", "Merge"])
async def test_what_is_left_when_a_psono_secret_is_deleted(
    world: World, policy: str, propagation: str
) -> None:
    """A4, H4, Q4: an Owner target goes unless it is orphaned; the garbage collector does it, never we."""
    net = network(world)
    await start(world, policy)
    await end(world, propagation)
    if policy == "Owner" and propagation != "Orphan":
        await world.gone(world.secrets_path("db"))
    else:
        await world.quiet()
        left = await world.secret()
        assert await world.data() == A
        assert (owners(left), shares(left)) == ([], {})
    assert net.sent("DELETE") == []
    assert await world.events() == []


@behaviour
async def test_a_target_is_not_made_anew_while_its_owner_is_on_its_way_out(world: World) -> None:
    """H4: in a foreground deletion the target goes first, and something else holds the owner."""
    net = network(world)
    await start(world)
    await world.patch(
        world.psono_secrets_path("db"), {"metadata": {"finalizers": [HOLD, "secrets.psono.com/finalizer"]}}
    )
    await world.delete(world.psono_secrets_path("db"), "Foreground")
    await world.gone(world.secrets_path("db"))
    await world.force_sync("x")
    await world.quiet()
    assert await world.secret() is None
    held = await world.psono_secret()
    assert "secrets.psono.com/finalizer" not in held["metadata"]["finalizers"]
    assert len(net.sent("POST", "/secrets")) == 1
    await world.patch(world.psono_secrets_path("db"), {"metadata": {"finalizers": None}})
    await world.gone(world.psono_secrets_path("db"))


@behaviour
async def test_an_owner_target_is_retained_by_switching_to_merge_first(world: World) -> None:
    """Q14, as documented: switch, wait for Ready of the new generation, delete."""
    await start(world)
    uid = (await world.secret())["metadata"]["uid"]
    patched = await world.patch_spec(target=MERGE)
    obj = await world.ready()
    assert obj["status"]["observedGeneration"] == patched["metadata"]["generation"] == 2
    await end(world)
    await world.quiet()
    left = await world.secret()
    assert (left["metadata"]["uid"], owners(left), shares(left)) == (uid, [], {})
    assert await world.data() == A


@behaviour
@pytest.mark.parametrize("renamed", [False, True])
async def test_a_switch_to_merge_counts_even_if_it_was_never_carried_out(world: World, renamed: bool) -> None:
    """Somebody in a hurry: the values are not lost."""
    await start(world)
    await world.stop()
    await world.patch_spec(target={**MERGE, **({"name": "new"} if renamed else {})})
    await world.delete(world.psono_secrets_path("db"))
    world.start()
    await world.gone(world.psono_secrets_path("db"))
    await world.quiet()
    assert await world.data() == A
    assert owners(await world.secret()) == []


@behaviour
async def test_a_former_owner_target_that_was_still_to_go_goes_with_its_owner(world: World) -> None:
    """Renamed and switched, the new target good, the old one held: its values are in the new one."""
    gate = Gate(FORBIDDEN, lambda request: request.method == "DELETE")
    network(world, gate)
    await start(world)
    await world.patch_spec(target={**MERGE, "name": "new"})
    await world.failing("PreviousTargetCleanupFailed")
    await world.quiet()
    await end(world)
    await world.gone(world.secrets_path("db"))
    assert await world.data("new") == A
    assert shares(await world.secret("new")) == {}


@behaviour
@pytest.mark.parametrize("before", ["Owner", "Merge"])
async def test_a_psono_secret_made_anew_at_once_gets_its_target(world: World, before: str) -> None:
    """C3: its predecessor's target may still be on its way out."""
    entry = await start(world, before)
    await world.delete(world.psono_secrets_path("db"))
    await world.gone(world.psono_secrets_path("db"))
    await world.create(entry, "A", target_options=POLICIES[before])
    await world.ready()
    await world.quiet()
    await world.target(A)
    found, uid = await world.secret(), (await world.psono_secret())["metadata"]["uid"]
    if before == "Owner":
        assert [each["uid"] for each in found["metadata"]["ownerReferences"]] == [uid]
    else:
        assert uid in str(found["metadata"]["annotations"])


# -- with nothing to lean on -------------------------------------------------------------------------------


@behaviour
@pytest.mark.parametrize("policy", ["Owner", "Merge"])
@pytest.mark.parametrize("missing", ["Psono", "the authentication Secret", "the target", "all three"])
async def test_a_deletion_needs_nothing_that_may_be_gone(world: World, policy: str, missing: str) -> None:
    """H3."""
    await start(world, policy)
    if missing in {"Psono", "all three"}:
        world.psono.fail(503)
    if missing in {"the authentication Secret", "all three"}:
        await world.delete(world.secrets_path("psono-credentials"))
    if missing in {"the target", "all three"}:
        world.psono.fail(503)  # or it would be made anew
        await world.delete(world.secrets_path("db"))
    asked = len(world.psono.requests)
    await world.delete(world.psono_secrets_path("db"))
    await world.gone(world.psono_secrets_path("db"), within=5)
    assert len(world.psono.requests) <= asked + 2, (
        "a refresh may have been on its way, the deletion asks nobody"
    )


@behaviour
async def test_a_deletion_is_finished_by_the_next_process(world: World) -> None:
    await start(world, "Merge")
    await world.kill()
    await world.delete(world.psono_secrets_path("db"))
    assert (await world.psono_secret())["metadata"]["deletionTimestamp"]
    world.start()
    await world.gone(world.psono_secrets_path("db"))
    await world.quiet()
    assert shares(await world.secret()) == {}
    assert await world.data() == A


@behaviour
async def test_a_mark_that_cannot_be_removed_holds_the_object_and_is_reported(world: World) -> None:
    gate = Gate(FORBIDDEN, patches(world, "db", data=False))
    network(world, gate)
    await start(world, "Merge")
    await world.delete(world.psono_secrets_path("db"))
    message = await world.failing("PreviousTargetCleanupFailed")
    assert '"db"' in message
    assert "403" in message
    assert gate.refused >= 1
    gate.open()
    await world.gone(world.psono_secrets_path("db"), within=10)
    assert shares(await world.secret()) == {}


@behaviour
async def test_one_that_never_worked_can_be_deleted(world: World) -> None:
    world.psono.fail(500)
    await world.create(world.entry(**A), "A")
    await world.failing("RemoteReadFailed")
    await end(world)
    assert await world.secret() is None


@behaviour_with(start=False)
@pytest.mark.parametrize("held", [False, True])
async def test_one_deleted_before_it_was_ever_seen_is_left_alone(world: World, held: bool) -> None:
    """H1: no finalizer is added to what is being deleted, no target is made, and there is no loop."""
    await world.create_auth()
    entry = world.entry(**A)
    await world.create(entry, "A", metadata={"finalizers": [HOLD] if held else []})
    await world.delete(world.psono_secrets_path("db"))
    world.start()
    net = network(world)
    await world.quiet()
    await asyncio.sleep(600 if world.sandbox else 1)
    assert net.sent("POST", "/secrets") == net.sent("PATCH") == []
    assert await world.secret() is None
    assert world.psono.requests == []
    if held:
        assert (await world.psono_secret())["metadata"]["finalizers"] == [HOLD]
        await world.patch(world.psono_secrets_path("db"), {"metadata": {"finalizers": None}})
    await world.gone(world.psono_secrets_path("db"))


@behaviour
@pytest.mark.parametrize("policy", ["Owner", "Merge"])
async def test_finalizers_of_others_survive(world: World, policy: str) -> None:
    """H2, A10: on the PsonoSecret and on the target; and nothing is done again while they hold."""
    net = network(world)
    await start(world, policy)
    finalizers = [HOLD, "secrets.psono.com/finalizer", "example.com/other"]
    await world.patch(world.psono_secrets_path("db"), {"metadata": {"finalizers": finalizers}})
    await world.patch(world.secrets_path("db"), {"metadata": {"finalizers": [HOLD]}})
    await world.quiet()
    await world.delete(world.psono_secrets_path("db"))

    async def released() -> bool:
        return list((await world.psono_secret())["metadata"]["finalizers"]) == [HOLD, "example.com/other"]

    await world.eventually(released)
    await world.quiet()
    net.requests.clear()
    await world.annotate(world.psono_secrets_path("db"), note="x")
    await world.annotate(world.secrets_path("db"), note="x")
    await world.quiet()
    await asyncio.sleep(600 if world.sandbox else 1)
    assert [each for each in net.requests if is_write(each)] == []
    assert (await world.secret())["metadata"]["finalizers"] == [HOLD]
    await world.patch(world.psono_secrets_path("db"), {"metadata": {"finalizers": None}})
    await world.gone(world.psono_secrets_path("db"))
    await world.patch(world.secrets_path("db"), {"metadata": {"finalizers": None}})
    if policy == "Owner":
        await world.gone(world.secrets_path("db"))
    else:
        assert await world.data() == A


@behaviour
async def test_a_finalizer_that_somebody_adds_at_the_worst_moment_survives(world: World) -> None:
    """H2: between our read and our write."""
    path = world.psono_secrets_path("db")
    added = False

    async def interfere(request: Any, send: Any) -> Any:
        nonlocal added
        if not added and request.method == "PATCH" and request.path == path and request.key:
            current = (await world.psono_secret())["metadata"]
            if current.get("deletionTimestamp") is None:
                added = True
                await world.patch(path, {"metadata": {"finalizers": [HOLD, *current.get("finalizers", [])]}})
        return await send()

    network(world, interfere)
    await start(world)
    assert added
    assert (await world.psono_secret())["metadata"]["finalizers"] == [HOLD, "secrets.psono.com/finalizer"]
    await world.patch(path, {"metadata": {"finalizers": ["secrets.psono.com/finalizer"]}})
    await end(world)


# -- with the whole namespace ------------------------------------------------------------------------------


async def family(world: World) -> None:
    """Five PsonoSecrets of either policy, two of them sharing a target, and one that fails."""
    for number in range(4):
        await start(world, "Merge" if number % 2 else "Owner", f"p{number}")
    await world.create(world.entry(B="canary-b"), "B", name="p4", target="p1", target_options=MERGE)
    await world.ready("p4")
    await world.create("no-such-entry", "A", name="p5")
    await world.failing("RemoteReadFailed", "p5")
    await world.quiet()


def chatter(net: Network) -> list[str]:
    """What was asked of Kubernetes, without what concerns the Lease."""
    return [
        str(each)
        for each in net.requests
        if each.host == "kubernetes" and f"/{LEASES.plural}" not in each.path
    ]


@behaviour
@pytest.mark.parametrize("psono_down", [False, True])
async def test_a_deleted_namespace_goes_quickly_and_quietly(world: World, psono_down: bool) -> None:
    """A6, A8, H6: without Psono too; few requests, one event at most, nothing about the Namespace itself."""
    net = network(world)
    await family(world)
    if psono_down:
        world.psono.fail(503)
    net.requests.clear()
    await world.call("DELETE", f"/api/v1/namespaces/{world.namespace}")

    async def released() -> bool:
        return bool((await world.get(world.psono_secrets_path()))["items"] == [])

    await world.eventually(released, within=30)
    # The rest is the namespace controller's, and the real one looks again only every few seconds.
    await world.gone(f"/api/v1/namespaces/{world.namespace}", within=30 if world.sandbox else 60)
    await world.quiet()
    await asyncio.sleep(600 if world.sandbox else 1)
    events = [each for each in net.requests if "/events" in each.path]
    assert len(events) <= 1, [each.body for each in events]
    writes = [str(each) for each in net.requests if is_write(each)]
    assert len(writes) <= 6 * 6, writes
    assert not [each for each in net.requests if each.path == f"/api/v1/namespaces/{world.namespace}"]
    net.requests.clear()
    await asyncio.sleep(600 if world.sandbox else 1)
    assert chatter(net) == [], "and then there is silence"


@behaviour
async def test_a_namespace_that_is_held_is_no_reason_to_be_loud(world: World) -> None:
    """A9: somebody's finalizers hold a PsonoSecret and the namespace; everybody waits in silence."""
    net = network(world)
    await start(world)
    await world.patch(
        world.psono_secrets_path("db"), {"metadata": {"finalizers": [HOLD, "secrets.psono.com/finalizer"]}}
    )
    await world.quiet()
    await world.call("DELETE", f"/api/v1/namespaces/{world.namespace}")

    async def held() -> bool:
        found = await world.psono_secret()
        return bool(found["metadata"]["finalizers"] == [HOLD])

    await world.eventually(held, within=15)
    await world.gone(world.secrets_path("db"), within=15)
    await world.quiet()
    net.requests.clear()
    await asyncio.sleep(1200 if world.sandbox else 3)
    assert chatter(net) == []
    await world.patch(world.psono_secrets_path("db"), {"metadata": {"finalizers": None}})
    await world.gone(world.psono_secrets_path("db"), within=15)


@behaviour
async def test_a_target_that_cannot_be_made_in_an_ending_namespace_is_not_tried_again_and_again(
    world: World,
) -> None:
    """H6: the moment between the namespace's deletion and our own; no event can be written there either."""
    gate = Gate(TERMINATING, creates(world, "db"))
    net = network(world, gate)
    await world.create(world.entry(**A), "A", refreshInterval="5m")
    assert "namespace is being deleted" in await world.failing("TargetUpdateFailed")
    await world.quiet()
    await asyncio.sleep(240 if world.sandbox else 3)
    assert gate.refused == 1
    assert net.sent("POST", "/events") == []
    await end(world)


@behaviour_with(only="sandbox")
async def test_other_namespaces_keep_their_pace_meanwhile(world: World) -> None:
    """A9."""
    await world.stop()
    world.start(watch_namespace="")
    await start(world)
    await world.call("POST", "/api/v1/namespaces", {"metadata": {"name": "ending"}})
    for number in range(20):
        await world.call(
            "POST",
            "/apis/secrets.psono.com/v1alpha1/namespaces/ending/psonosecrets",
            {
                "apiVersion": "secrets.psono.com/v1alpha1", "kind": "PsonoSecret",
                "metadata": {"name": f"p{number}", "finalizers": [HOLD]},
                "spec": {
                    "authentication": {"secretRef": {"name": "none"}}, "target": {"name": f"p{number}"},
                    "data": [{"secretKey": "A", "remoteRef": {"secretId": "x", "field": "a"}}],
                },
            },
        )  # fmt: skip
    await world.quiet()
    await world.call("DELETE", "/api/v1/namespaces/ending")
    await world.patch(world.secrets_path("db"), {"data": {"A": encoded("canary-drift")}})
    await world.target(A, within=1)


# -- with the CustomResourceDefinition -----------------------------------------------------------------------


@behaviour_with(only="sandbox")
async def test_a_deleted_definition_is_survived(world: World) -> None:
    """A5, F4: Merge targets stay; the operator waits, and works again when it is back."""
    await start(world, "Merge")
    await start(world, "Owner", "owned")
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/psonosecrets.secrets.psono.com"
    crd = await world.get(path)
    await world.delete(path)
    await asyncio.sleep(120)
    assert await world.data() == A
    assert world.operator is not None
    crd["metadata"] = {"name": crd["metadata"]["name"]}
    crd.pop("status", None)
    await world.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    await world.create(world.entry(B="canary-b"), "B", name="again", target="again")
    await world.ready("again", within=120)


@dataclass
class Own:
    """In place of pytest's request: a control plane of the test's own, which it may break."""

    plane: ControlPlane

    def getfixturevalue(self, name: str) -> Any:
        assert name == "control_plane"
        return self.plane


@pytest.mark.asyncio
@pytest.mark.controlplane
async def test_what_survives_the_deletion_of_the_definition(tmp_path: Path) -> None:
    """A5, on a real control plane: Merge targets stay, Owner targets are collected, nothing hangs."""
    require_control_plane()
    with control_plane(tmp_path) as plane:
        install_crd(plane)
        async with world("controlplane", cast("pytest.FixtureRequest", Own(plane))) as stage:
            await stage.create_auth()
            stage.start()
            for number in range(3):
                await start(stage, "Owner", f"owned-{number}")
                await start(stage, "Merge", f"merged-{number}")
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/psonosecrets.secrets.psono.com"
            await stage.delete(path)
            await stage.gone(path, within=30)
            for number in range(3):
                await stage.gone(stage.secrets_path(f"owned-{number}"), within=60)
                left = await stage.secret(f"merged-{number}")
                assert (await stage.data(f"merged-{number}"), shares(left)) == (A, {})
            install_crd(plane)
            await stage.create(stage.entry(B="canary-b"), "B", name="again", target="again")
            await stage.ready("again", within=60)
