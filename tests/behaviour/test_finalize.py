"""``psono-operator finalize``: what waits for an operator that is gone is let go (A7, Q13)."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.behaviour.world import World, behaviour_with, decoded


async def finalize(world: World, directory: Path, *options: str) -> str:
    """Standard output of the real command, which must succeed."""
    assert world.control_plane is not None
    config = directory / "kubeconfig"
    config.write_text(world.control_plane.kubeconfig.read_text())
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "psono_operator", "finalize", f"--kubeconfig={config}",
        f"--namespace={world.namespace}", *options, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


@behaviour_with(only="controlplane")
async def test_stuck_objects_are_named_then_released_and_targets_end_as_their_policy_says(
    world: World, tmp_path: Path
) -> None:
    """Dry run by default; twice does no harm; Owner goes with the garbage collector, Merge values stay."""
    await world.create_secret("shared", {"THEIRS": "canary-theirs"})
    entry = world.entry(A="canary-a")
    await world.create(entry, "A", name="owner", target="owned")
    await world.create(entry, "A", name="merge", target="shared", target_options={"creationPolicy": "Merge"})
    await world.create(entry, "A", name="kept", target="kept")
    for name in ("owner", "merge", "kept"):
        await world.ready(name)
    await world.stop()
    for name in ("owner", "merge"):
        await world.delete(world.psono_secrets_path(name))
    assert await world.psono_secret("owner") is not None

    said = await finalize(world, tmp_path)
    assert f"{world.namespace}/owner (being deleted) would be released" in said
    assert f"{world.namespace}/merge (being deleted) would be released" in said
    assert "kept" not in said
    assert "--yes" in said
    assert await world.psono_secret("owner") is not None

    assert "owner (being deleted) released" in await finalize(world, tmp_path, "--yes")
    await world.gone(world.psono_secrets_path("owner"))
    await world.gone(world.psono_secrets_path("merge"))
    await world.gone(world.secrets_path("owned"), within=40)
    shared = await world.secret("shared")
    assert decoded(shared) == {"THEIRS": "canary-theirs", "A": "canary-a"}
    assert "annotations" not in shared["metadata"]

    assert "nothing to release" in await finalize(world, tmp_path, "--yes")
    assert "kept (not being deleted) released" in await finalize(world, tmp_path, "--yes", "--all")
    kept = await world.psono_secret("kept")
    assert "finalizers" not in kept["metadata"]
    assert json.dumps(await world.data("kept")) == json.dumps({"A": "canary-a"})
