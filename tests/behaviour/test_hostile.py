"""What a careless user, a hostile server or bad luck must not do (each was once possible)."""

from __future__ import annotations

import asyncio
import copy

import pytest
import yaml

from psono_operator.sandbox.psono import PsonoDouble
from tests.behaviour.world import World, behaviour, behaviour_with, mapping
from tests.controlplane_fixture import CRD_FILE


@behaviour_with(only="sandbox")
async def test_a_target_corrected_during_the_read_is_never_written(world: World) -> None:
    """F6: Psono takes 20 s; what was a mistake when the answer comes must not be carried out."""
    await world.create_secret("precious", {"THEIRS": "canary-theirs"})
    version = (await world.secret("precious"))["metadata"]["resourceVersion"]
    entry = world.entry(A="canary-a")
    world.psono.delay_seconds = 20
    await world.create(entry, "A", target="precious")
    await asyncio.sleep(3)
    await world.patch_spec(target={"name": "db"})
    await world.target({"A": "canary-a"}, within=60)
    await world.quiet()
    assert (await world.secret("precious"))["metadata"]["resourceVersion"] == version


@behaviour_with(only="sandbox")
async def test_nothing_is_created_for_an_object_deleted_during_the_read(world: World) -> None:
    """H4."""
    entry = world.entry(A="canary-a")
    world.psono.delay_seconds = 20
    await world.create(entry, "A", target_options={"creationPolicy": "Merge"})
    await asyncio.sleep(3)
    await world.delete(world.psono_secrets_path("db"))
    await world.gone(world.psono_secrets_path("db"), within=40)
    await asyncio.sleep(40)
    assert await world.secret("db") is None


@behaviour
async def test_a_copy_of_a_target_loses_our_mark_and_keeps_its_values(world: World) -> None:
    """`kubectl get secret db -o yaml`, another name, `apply`: a backup, owner reference and all."""
    entry = world.entry(A="canary-a")
    await world.create(entry, "A")
    await world.ready()
    backup = copy.deepcopy(await world.secret("db"))
    backup["metadata"] = {
        "name": "db-backup", "labels": backup["metadata"]["labels"],
        "ownerReferences": backup["metadata"]["ownerReferences"],
    }  # fmt: skip
    await world.call("POST", world.secrets_path(), backup)

    async def unmarked() -> bool:
        return "ownerReferences" not in (await world.secret("db-backup"))["metadata"]

    await world.eventually(unmarked)
    assert await world.data("db-backup") == {"A": "canary-a"}


@behaviour_with(only="sandbox")
@pytest.mark.parametrize("spec", ["junk", ["junk"], 7, {"target": "junk"}, {"target": {"name": ["junk"]}}])
async def test_an_object_with_a_spec_of_any_kind_can_be_deleted(world: World, spec: object) -> None:
    """H3: it may be older than the rules of the CRD."""
    assert world.sandbox is not None
    crd = yaml.safe_load(CRD_FILE.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {"x-kubernetes-preserve-unknown-fields": True}
    del crd["spec"]["versions"][0]["selectableFields"]
    world.sandbox.install_crd(crd)
    entry = world.entry(A="canary-a")
    await world.create(entry, "A")
    await world.ready()
    await world.patch(world.psono_secrets_path("db"), {"spec": spec})
    await world.failing("InvalidConfiguration")
    await world.delete(world.psono_secrets_path("db"))
    await world.gone(world.psono_secrets_path("db"))


@behaviour_with(only="sandbox")
async def test_a_server_that_hangs_delays_nobody_else(world: World) -> None:
    """Sixty objects wait for a silent server; one for a good server is new."""
    silent = PsonoDouble(now=world.clock.now, sleep=world.clock.sleep)
    silent.delay_seconds = 40
    async with silent.serve() as served:
        await world.create_auth("silent", serverUrl=served.url)
        entry = world.entry(A="canary-a")
        for number in range(60):
            await world.create(
                entry, "A", name=f"silent-{number}", target=f"silent-{number}",
                authentication={"secretRef": {"name": "silent"}},
            )  # fmt: skip
        await asyncio.sleep(5)
        begun = asyncio.get_running_loop().time()
        await world.create(entry, data=[mapping("A", entry)])
        await world.ready(within=5)
        assert asyncio.get_running_loop().time() - begun < 1.5


@behaviour_with(only="sandbox")
async def test_nobodys_text_forges_a_line_of_the_log_or_the_status(world: World) -> None:
    forged = "x\n2026-12-01T12:00:00.000Z ERROR   forged"
    entry = world.entry(A="canary-a")
    await world.create_secret("db", {"B": "canary-b"})
    await world.create(entry, "A", target_options={"type": forged})
    message = await world.failing("TargetUpdateFailed")
    assert "\n" not in message
    assert r"\n2026" in message
