"""Killed at any request, the operator leaves nothing that its successor does not bring in order (F6, G3, H7).

Each story is told once undisturbed. Then it is told again for every request its reconciles make: the
operator is killed before the request is sent, or after it was carried out and before the answer comes, and a
new one is started. Both ends must be the same to a user: every Secret with its values, owner and managed
keys, every status, every finalizer. Fault B8 of the public reports.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.behaviour.network import Cut, Network
from tests.behaviour.world import World, behaviour_with, decoded, mapping

Part = Callable[[World, str, str], Awaitable[None]]
FOREIGN = {"THEIRS": "canary-theirs"}


async def owned(world: World, name: str, entry: str) -> None:
    await world.create(entry, "A", "B", name=name, target=f"{name}-old", refreshInterval="24h")
    await world.ready(name)


async def merged(world: World, name: str, entry: str) -> None:
    await world.create_secret(f"{name}-old", FOREIGN)
    await world.create(
        entry, "A", "B", name=name, target=f"{name}-old", refreshInterval="24h",
        target_options={"creationPolicy": "Merge"},
    )  # fmt: skip
    await world.ready(name)


async def nothing(world: World, name: str, entry: str) -> None:
    """First there is nothing."""


async def first_sync(world: World, name: str, entry: str) -> None:
    await world.create(entry, "A", name=name, target=f"{name}-old", refreshInterval="24h")


async def first_merge(world: World, name: str, entry: str) -> None:
    await world.create_secret(f"{name}-old", FOREIGN)
    await world.create(
        entry, "A", name=name, target=f"{name}-old", refreshInterval="24h",
        target_options={"creationPolicy": "Merge"},
    )  # fmt: skip


async def rotate(world: World, name: str, entry: str) -> None:
    world.rotate(entry, A="canary-a2", B="canary-b2")
    await world.force_sync("now", name)


async def drop_a_key(world: World, name: str, entry: str) -> None:
    await world.patch_spec(name, data=[mapping("A", entry), mapping("C", entry, "B")])


async def rename(world: World, name: str, entry: str) -> None:
    await world.patch_spec(name, target={"name": f"{name}-new"})


async def to_merge(world: World, name: str, entry: str) -> None:
    await world.patch_spec(name, target={"creationPolicy": "Merge"})


async def to_owner(world: World, name: str, entry: str) -> None:
    await world.patch_spec(name, target={"creationPolicy": "Owner"})


async def rename_and_merge(world: World, name: str, entry: str) -> None:
    await world.patch_spec(name, target={"name": f"{name}-new", "creationPolicy": "Merge"})


async def rename_and_own(world: World, name: str, entry: str) -> None:
    await world.patch_spec(name, target={"name": f"{name}-new", "creationPolicy": "Owner"})


async def delete(world: World, name: str, entry: str) -> None:
    await world.delete(world.psono_secrets_path(name))


STORIES: dict[str, tuple[Part, Part]] = {
    "first sync": (nothing, first_sync),
    "first merge": (nothing, first_merge),
    "rotation": (owned, rotate),
    "rotation of a merged target": (merged, rotate),
    "changed mapping": (owned, drop_a_key),
    "changed mapping of a merged target": (merged, drop_a_key),
    "rename": (owned, rename),
    "rename of a merged target": (merged, rename),
    "Owner to Merge": (owned, to_merge),
    "Merge to Owner": (merged, to_owner),
    "Owner to Merge, renamed": (owned, rename_and_merge),
    "Merge to Owner, renamed": (merged, rename_and_own),
    "deletion": (owned, delete),
    "deletion of a merged target": (merged, delete),
}


@behaviour_with(only="sandbox")
@pytest.mark.parametrize("story", STORIES)
async def test_a_kill_at_any_request_changes_nothing_in_the_end(world: World, story: str) -> None:
    requests, expected = await told(world, "calm", story)
    assert requests >= (1 if story.startswith("deletion") else 3)
    for at in range(requests):
        for sent in (False, True):
            name = f"cut-{at}-{'after' if sent else 'before'}"
            cut = Cut(at, sent=sent)
            _, found = await told(world, name, story, cut)
            assert cut.made.is_set()
            assert found == expected, f"{story}, killed at request {at} ({'after' if sent else 'before'})"


@behaviour_with(only="controlplane")
@pytest.mark.parametrize(
    ("story", "at"), [("first sync", 2), ("rename", 3), ("Owner to Merge", 2), ("deletion", 0)]
)
async def test_a_kill_changes_nothing_in_the_end_on_a_real_api_server(
    world: World, story: str, at: int
) -> None:
    _, expected = await told(world, "calm", story)
    _, found = await told(world, "cut", story, Cut(at, sent=True))
    assert found == expected


async def told(world: World, name: str, story: str, cut: Cut | None = None) -> tuple[int, Any]:
    """Tell a story with one PsonoSecret; how many requests its reconciles made, and how it ended."""
    before, change = STORIES[story]
    entry = world.entry(A="canary-a", B="canary-b")
    await world.stop()
    world.start()
    assert world.operator is not None
    cut = cut or Cut(1_000, sent=False)
    Network(world.operator, cut)
    await before(world, name, entry)
    await world.quiet()
    cut.arm()
    await change(world, name, entry)
    quiet = asyncio.create_task(world.quiet())
    await asyncio.wait([asyncio.create_task(cut.made.wait()), quiet], return_when=asyncio.FIRST_COMPLETED)
    if cut.made.is_set():
        quiet.cancel()
        await asyncio.wait([quiet])
        await world.kill()
        world.start()
    await world.quiet()
    await settled(world, name)
    return cut.count or 0, await ending(world, name, entry)


async def settled(world: World, name: str) -> None:
    """Until the PsonoSecret is Ready or gone, and so are the Secrets of those that are gone."""
    if (await world.psono_secret(name) or {}).get("metadata", {}).get("deletionTimestamp"):
        await world.gone(world.psono_secrets_path(name))
    if await world.psono_secret(name) is not None:
        await world.ready(name)
    await asyncio.sleep(0.3)
    await world.quiet()


async def ending(world: World, name: str, entry: str) -> Any:
    """Everything a user can see of it, without what differs from run to run."""
    obj = await world.psono_secret(name)
    listed = await world.get(world.secrets_path())
    secrets = {
        each["metadata"]["name"].removeprefix(name): _plain(each)
        for each in listed["items"]
        if each["metadata"]["name"].startswith(f"{name}-")
    }
    status = None
    if obj is not None:
        target = obj["status"]["target"]
        live = await world.secret(target["name"])
        assert target["resourceVersion"] == live["metadata"]["resourceVersion"], "what the status claims (B8)"
        (condition,) = obj["status"]["conditions"]
        status = [
            obj["metadata"]["finalizers"], target["name"], target["creationPolicy"],
            condition["status"], condition["reason"], condition["message"],
            obj["status"]["observedGeneration"], obj["metadata"]["generation"],
        ]  # fmt: skip
    text = json.dumps([status, secrets], sort_keys=True)
    uids = {obj["metadata"]["uid"]: "UID"} if obj else {}
    for found, word in {**uids, name: "NAME", entry: "ENTRY"}.items():
        text = text.replace(found, word)
    return json.loads(text)


def _plain(secret: Any) -> Any:
    metadata = secret["metadata"]
    kept = ("labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp")
    return [decoded(secret), secret["type"], {key: metadata[key] for key in kept if key in metadata}]
