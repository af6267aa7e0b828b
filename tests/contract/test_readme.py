"""What the README shows is what the tests apply."""

from __future__ import annotations

import re
from typing import Any

import yaml

from psono_operator.api.spec import parse_spec
from tests.behaviour.world import World, behaviour_with, variables
from tests.controlplane.cluster import ROOT

README = (ROOT / "README.md").read_text()
EXAMPLE = list(yaml.safe_load_all("\n---\n".join(re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))))


def test_the_example_is_valid() -> None:
    secret, psono_secret = EXAMPLE
    spec = parse_spec(psono_secret)
    assert spec.authentication.secret_ref.name == secret["metadata"]["name"]
    assert len(spec.secret_ids) == 1


def test_its_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE)
    assert {"demo", "test", "control-plane"} <= set(used) <= targets
    for link in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / link).exists(), link


@behaviour_with(start=False)
async def test_the_example_works_as_it_stands(world: World) -> None:
    """But for the server's address, the key and the entry, which are the reader's own."""
    secret, psono_secret = (_moved(each, world.namespace) for each in EXAMPLE)
    values = {each["secretKey"]: f"canary-{each['secretKey']}" for each in psono_secret["spec"]["data"]}
    entry = world.psono.add_entry(variables(values), [world.key])
    secret["stringData"] = {
        "serverUrl": world.psono_url, "apiKeyId": world.key.id, "apiSecretKey": world.key.secret_key_hex,
    }  # fmt: skip
    for each in psono_secret["spec"]["data"]:
        each["remoteRef"]["secretId"] = entry
    await world.call("POST", world.secrets_path(), secret)
    await world.call("POST", world.psono_secrets_path(), psono_secret)
    world.start()
    await world.ready(psono_secret["metadata"]["name"])
    assert await world.data(psono_secret["spec"]["target"]["name"]) == values
    assert world.psono.count("read") == 1


def _moved(obj: Any, namespace: str) -> Any:
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
