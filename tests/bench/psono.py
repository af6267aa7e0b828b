"""The Psono double of a benchmark, in a process of its own.

Makes one API key for each namespace and one entry for each object, says so in one line of JSON, and answers
until its standard input is closed; then it says how many requests there were.

`python -m tests.bench.psono OBJECTS NAMESPACES`
"""

from __future__ import annotations

import asyncio
import json
import sys

from psono_operator.sandbox.psono import PsonoDouble

KEYS = ("DB_HOST", "DB_USER", "DB_PASSWORD")
DELAY = 0.005
"""Seconds until an answer."""


async def main(objects: int, namespaces: int) -> None:
    double = PsonoDouble()
    double.delay_seconds = DELAY
    keys = [double.add_key() for _ in range(namespaces)]
    entries = [
        double.add_entry(
            {"environment_variables_variables": [{"key": key, "value": f"{key}-{number}"} for key in KEYS]},
            [keys[number % namespaces]],
        )
        for number in range(objects)
    ]
    async with double.serve() as served:
        world = {
            "url": served.url,
            "keys": [(key.id, key.secret_key_hex) for key in keys],
            "entries": entries,
        }
        print(json.dumps(world), flush=True)
        await asyncio.to_thread(sys.stdin.read)
    print(len(double.requests), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
