"""The documented walk-through with kubectl alone, on the real control plane."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from tests.behaviour.world import World, behaviour_with, variables
from tests.contract.test_readme import EXAMPLE


async def kubectl(world: World, *arguments: str, stdin: Any = None) -> str:
    """Standard output of a kubectl that must succeed."""
    assert world.control_plane is not None
    text = None if stdin is None else json.dumps(stdin)
    done = await asyncio.to_thread(world.control_plane.kubectl, "-n", world.namespace, *arguments, stdin=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


@behaviour_with(only="controlplane", start=False)
async def test_the_documented_walk_through(world: World) -> None:
    """Create, get, describe, rotate, delete; one download for three keys (Q15)."""
    values = {"DB_HOST": "canary-host", "DB_USER": "canary-user", "DB_PASSWORD": "canary-password"}
    entry = world.entry(**values)
    secret, psono_secret = json.loads(json.dumps(EXAMPLE).replace('"production"', f'"{world.namespace}"'))
    secret["stringData"] = {
        "serverUrl": world.psono_url, "apiKeyId": world.key.id, "apiSecretKey": world.key.secret_key_hex,
    }  # fmt: skip
    for each in psono_secret["spec"]["data"]:
        each["remoteRef"]["secretId"] = entry
    world.start()
    await kubectl(world, "create", "-f", "-", stdin=secret)
    await kubectl(world, "create", "-f", "-", stdin=psono_secret)
    await kubectl(world, "wait", "--for=condition=Ready", "psonosecret/database-credentials", "--timeout=10s")
    head, row = (await kubectl(world, "get", "psonosecrets")).splitlines()
    assert re.split(r"\s{2,}", head.strip()) == ["NAME", "READY", "TARGET", "LAST SYNC", "AGE"]
    assert re.fullmatch(r"database-credentials +True +database-credentials +\d+s +\d+s", row.strip())
    described = await kubectl(world, "describe", "psonosecret", "database-credentials")
    assert re.search(r"Reason: +SecretSynchronized", described)
    assert 'Secret "database-credentials" holds 3 values of 1 Psono entry.' in described
    assert "canary" not in described
    assert world.psono.count("read") == 1

    world.psono.update_entry(entry, variables({**values, "DB_PASSWORD": "canary-second"}))
    await kubectl(world, "annotate", "psonosecret", "database-credentials", "secrets.psono.com/force-sync=1")
    await world.target({**values, "DB_PASSWORD": "canary-second"}, name="database-credentials")

    await kubectl(world, "delete", "psonosecret", "database-credentials", "--timeout=20s")
    await kubectl(world, "wait", "--for=delete", "secret/database-credentials", "--timeout=40s")
    assert await kubectl(world, "get", "secrets", "-o", "name") == "secret/psono-operator-credentials\n"
