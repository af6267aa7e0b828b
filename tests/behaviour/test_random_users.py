"""Hundreds of random steps of users, and what must hold whenever the operator comes to rest.

A failure prints the seed and every step. ``RANDOM_USERS=40`` tries that many seeds instead of a few.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from tests.behaviour import invariants
from tests.behaviour.users import FINALIZER, OTHER_AUTH, Users
from tests.behaviour.world import AUTH, World, behaviour_with

SEEDS = range(int(os.environ.get("RANDOM_USERS", "5")))


@behaviour_with(only="sandbox", start=False)
@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_users_do(world: World, seed: int) -> None:
    await play(world, seed, steps=70, pause=60)


@behaviour_with(only="controlplane", start=False)
async def test_whatever_users_do_on_a_real_api_server(world: World) -> None:
    await play(world, 1, steps=18, pause=0.5)


async def play(world: World, seed: int, *, steps: int, pause: float) -> None:
    await world.create_auth()

    async def served() -> bool:  # the API server may still be filling its own cache of a new kind
        return bool((await world.call("GET", world.psono_secrets_path(), ok=False))[0] == 200)

    await world.eventually(served)
    users = Users(world, random.Random(seed), pause)
    await users.begin()
    try:
        for _ in range(steps):
            await users.step()
            await rest(world)
            await invariants.check(users)
        world.psono.heal()
        for name in (AUTH, OTHER_AUTH):
            if await world.secret(name) is None:
                await world.create_auth(name)
        await users.note_auth()
        await asyncio.sleep(2.5)  # the pause a throttled server asked for
        for obj in (await world.get(world.psono_secrets_path()))["items"]:
            if "deletionTimestamp" not in obj["metadata"]:
                await world.force_sync("at last", obj["metadata"]["name"])
        await rest(world)
        await asyncio.sleep(1)
        await rest(world)
        await invariants.converged(users)
    except AssertionError as error:
        story = "\n".join(f"{number:3} {step}" for number, step in enumerate(users.told))
        raise AssertionError(f"seed {seed}: {error}\n{story}\n{await world.picture()}") from error


async def rest(world: World) -> None:
    """Until the operator has nothing to do, and the garbage collector had a moment."""
    await world.quiet()

    async def finalized() -> bool:
        listed = (await world.get(world.psono_secrets_path()))["items"]
        return not any(
            "deletionTimestamp" in each["metadata"] and FINALIZER in each["metadata"].get("finalizers", ())
            for each in listed
        )

    await world.eventually(finalized)
    await asyncio.sleep(0.15)
    await world.quiet()
