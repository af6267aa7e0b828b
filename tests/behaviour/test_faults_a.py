"""What went wrong in others, part A and B: ownership, metadata, values. Numbers as in docs/faults.md."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.behaviour.network import Request, Send
from tests.behaviour.steps import MERGE, is_write, network, untouched, writes_of
from tests.behaviour.world import AUTH, World, behaviour, behaviour_with, mapping, variables

VALUES = {"A": "canary-a", "B": "canary-b"}
TRACKING = {
    "app.kubernetes.io/instance": "shop",
    "argocd.argoproj.io/instance": "shop",
    "kustomize.toolkit.fluxcd.io/name": "shop",
}


@behaviour
async def test_nothing_but_secrets_psono_secrets_and_events_is_ever_written(world: World) -> None:
    """Fault A8: above all no Namespace."""
    net = network(world)
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    await world.create(entry, "A", name="merged", target="merged", target_options=MERGE)
    await world.ready()
    await world.ready("merged")
    world.psono.fail(500)
    await world.force_sync("x")
    await world.failing("RemoteReadFailed")
    world.psono.heal()
    await world.patch_spec(target={"name": "new"})
    await world.ready()
    for name in ("db", "merged"):
        await world.delete(world.psono_secrets_path(name))
        await world.gone(world.psono_secrets_path(name))
    written = {(each.method, _kind(each.path)) for each in net.requests if is_write(each)}
    assert written <= {
        ("POST", "secrets"), ("PUT", "secrets"), ("PATCH", "secrets"), ("DELETE", "secrets"),
        ("PATCH", "psonosecrets"), ("PATCH", "psonosecrets/status"),
        ("POST", "events"), ("PATCH", "events"),
        ("POST", "leases"), ("PUT", "leases"), ("PATCH", "leases"),
    }  # fmt: skip


def _kind(path: str) -> str:
    parts = path.split("/namespaces/", 1)[-1].split("/")
    return "/".join([parts[1] if len(parts) > 1 else "namespaces", *parts[3:]])


@behaviour
async def test_a_rotation_leaves_everything_else_on_the_target_as_it_is(world: World) -> None:
    """Fault A10: owner references, labels, annotations and finalizers of others."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    await world.ready()
    path = f"/api/v1/namespaces/{world.namespace}/configmaps"
    _, boss = await world.call("POST", path, {"metadata": {"name": "boss"}})
    ours = (await world.secret())["metadata"]["ownerReferences"]
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": boss["metadata"]["uid"]}
    await world.patch(
        world.secrets_path("db"),
        {
            "metadata": {
                "labels": TRACKING, "annotations": {"example.com/note": "mine"},
                "finalizers": ["example.com/hold"], "ownerReferences": [theirs, *ours],
            }
        },
    )  # fmt: skip
    await world.quiet()
    before = untouched(await world.secret())
    world.rotate(entry, A="canary-a2", B="canary-b2")
    await world.force_sync("x")
    await world.target({"A": "canary-a2", "B": "canary-b2"})
    after = await world.secret()
    assert untouched(after) == before
    assert [each["name"] for each in after["metadata"]["ownerReferences"]] == ["boss", "db"]
    await world.patch(world.secrets_path("db"), {"metadata": {"finalizers": None}})


@behaviour
@pytest.mark.parametrize("policy", ["Owner", "Merge"])
async def test_no_label_and_no_annotation_of_the_psono_secret_reaches_the_target(
    world: World, policy: str
) -> None:
    """Faults A11 and A12: a GitOps tool would take the Secret for its own and prune it."""
    entry = world.entry(**VALUES)
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"kind": "PsonoSecret"})}
    await world.create(
        entry, *VALUES, target_options={"creationPolicy": policy},
        metadata={"labels": TRACKING, "annotations": {**applied, "argocd.argoproj.io/tracking-id": "x"}},
    )  # fmt: skip
    await world.ready()
    metadata = (await world.secret())["metadata"]
    assert metadata["labels"] == {"app.kubernetes.io/managed-by": "psono-kubernetes-operator"}
    expected = ["secrets.psono.com/managed-keys"] if policy == "Merge" else []
    assert list(metadata.get("annotations", {})) == expected


@behaviour
@pytest.mark.parametrize("first", ["Owner", "Merge"])
async def test_owner_and_merge_on_one_secret_is_refused_to_the_second_without_a_fight(
    world: World, first: str
) -> None:
    """Fault A15."""
    entry = world.entry(**VALUES)
    second = {"Owner": "Merge", "Merge": "Owner"}[first]
    await world.create(entry, "A", name="first", target_options={"creationPolicy": first})
    await world.ready("first")
    net = network(world)
    await world.create(entry, "B", name="second", target_options={"creationPolicy": second})
    assert 'PsonoSecret "first"' in await world.failing("TargetUpdateFailed", "second")
    await asyncio.sleep(1000 if world.sandbox is not None else 3)
    assert writes_of(net, world, "db") == []
    assert await world.data() == {"A": "canary-a"}
    await world.ready("first")
    await world.failing("TargetUpdateFailed", "second")


@behaviour_with(only="sandbox")
async def test_a_target_that_the_cache_does_not_know_yet_is_no_failure(world: World) -> None:
    """Fault A18: the watch is five seconds behind; a create meets our own Secret."""
    assert world.operator is not None
    open_stream = world.operator._transport.stream

    def late(path: str, **options: Any) -> Any:
        stream = open_stream(path, **options)
        return _Late(stream) if "/secrets" in path and "psonosecrets" not in path else stream

    world.operator._transport.stream = late  # type: ignore[method-assign]
    entry = world.entry(**VALUES)
    await asyncio.sleep(240)  # until every watch was opened anew
    net = network(world)
    await world.create(entry, *VALUES)
    await world.ready()
    world.rotate(entry, A="canary-a2", B="canary-b2")
    await world.force_sync("x")
    await world.target({"A": "canary-a2", "B": "canary-b2"}, within=3)
    assert len(net.sent("POST", "/secrets")) == 2, "the second one was answered AlreadyExists"
    await asyncio.sleep(10)
    await world.ready()
    assert await world.events() == []


class _Late:
    """A stream whose chunks arrive five seconds late."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aenter__(self) -> Any:
        opened = await self._stream.__aenter__()
        read = opened.read

        async def late(deadline: float) -> Any:
            chunk = await read(deadline)
            await asyncio.sleep(5)
            return chunk

        opened.read = late
        return opened

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


@behaviour
async def test_a_label_added_between_our_read_and_our_write_survives(world: World) -> None:
    """Fault A19, F2, F3: for a whole replacement as for a patch."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    await world.ready()
    net = network(world)

    async def slow(request: Request, send: Send) -> Any:
        if request.method == "PUT" and len(net.sent("PUT", "/secrets/")) == 1:
            await world.patch(world.secrets_path("db"), {"metadata": {"labels": {"team": "a"}}})
        return await send()

    net.handler = slow
    world.rotate(entry, A="canary-a2", B="canary-b2")
    await world.force_sync("x")
    await world.target({"A": "canary-a2", "B": "canary-b2"})
    assert (await world.secret())["metadata"]["labels"]["team"] == "a"
    assert [each.status for each in net.sent("PUT", "/secrets/")] == [409, 200]
    assert world.psono.count("read") == 2, "and the race cost no read"


# -- B ----------------------------------------------------------------------------------------------


@behaviour
async def test_a_newline_after_a_credential_is_no_part_of_it(world: World) -> None:
    """Fault B5."""
    await world.delete(world.secrets_path(AUTH))
    await world.create_auth(
        serverUrl=world.psono_url + "\n",
        apiKeyId=f"{world.key.id}\r\n",
        apiSecretKey=f" {world.key.secret_key_hex}\n",
    )
    entry = world.entry(A=" canary\n")
    await world.create(entry, "A")
    await world.ready()
    assert await world.data() == {"A": " canary\n"}


ORDER: dict[str, list[tuple[str, str]]] = {
    "more": [("A", "canary-a"), ("X", "canary-x"), ("B", "canary-b")],
    "reordered": [("B", "canary-b"), ("A", "canary-a")],
    "duplicates": [("A", "canary-a"), ("B", "canary-b"), ("A", "canary-second"), ("B", "canary-second")],
}


@behaviour_with(only="sandbox")
@pytest.mark.parametrize("how", ORDER)
async def test_an_entry_that_grows_or_is_reordered_gives_the_same_target(world: World, how: str) -> None:
    """Fault B6, Q5: of equal keys the first counts."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    await world.ready()
    net = network(world)
    listed = [{"key": key, "value": value} for key, value in ORDER[how]]
    world.psono.update_entry(entry, {**variables({}), "environment_variables_variables": listed})
    await world.force_sync("x")
    await world.quiet()
    assert (await world.psono_secret())["status"]["lastHandledForceSync"] == "x"
    assert writes_of(net, world, "db") == []
    assert await world.data() == VALUES


@behaviour
async def test_a_secret_too_large_is_refused_before_it_is_sent_and_not_tried_again_at_once(
    world: World,
) -> None:
    """Fault B9."""
    half = "canary" + "x" * (512 * 1024 - 6)
    entry = world.entry(A=half, B=half, C="y")
    net = network(world)
    await world.create(entry, "A", "B", "C")
    message = await world.failing("TargetUpdateFailed")
    assert "at most 1048576" in message
    assert "map fewer or smaller values" in message
    await asyncio.sleep(100 if world.sandbox is not None else 3)
    assert writes_of(net, world, "db") == []
    assert world.psono.count("read") == 1
    await world.patch_spec(data=[mapping("A", entry), mapping("B", entry)])
    await world.ready()
