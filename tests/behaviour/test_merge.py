"""Policy Merge: several writers share a Secret, and nobody loses a key."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.behaviour.network import FORBIDDEN, Request, Send
from tests.behaviour.steps import (
    MANAGED,
    MERGE,
    OWNER,
    SOON,
    Gate,
    body_of,
    encoded,
    grow_the_backoff,
    network,
    owners,
    patches,
    shares,
    untouched,
    writes_of,
)
from tests.behaviour.world import World, behaviour, behaviour_with, mapping

FOREIGN = {"THEIRS": "canary-theirs", "BINARY": "canary\0\r\n🔐", "EMPTY": ""}


async def foreign_secret(world: World, name: str = "shared", **more: Any) -> Any:
    """A Secret of somebody else, with everything on it that is worth keeping."""
    note = {"apiVersion": "v1", "kind": "ConfigMap", "name": "note"}
    path = f"/api/v1/namespaces/{world.namespace}/configmaps"
    _, made = await world.call("POST", path, {"metadata": {"name": f"note-{name}"}})
    metadata = {
        "labels": {"team": "a"},
        "annotations": {"example.com/note": "  kept \u00e4s it is "},
        "finalizers": ["example.com/keep"],
        "ownerReferences": [{**note, "name": f"note-{name}", "uid": made["metadata"]["uid"]}],
    }
    return await world.create_secret(name, FOREIGN, metadata=metadata, **more)


async def merge(world: World, entry: str, *keys: str, name: str = "db", **spec: Any) -> Any:
    return await world.create(entry, *keys, name=name, target="shared", target_options=MERGE, **spec)


async def let_go(world: World, *names: str) -> None:
    """Take off the finalizers that hold Secrets of a test."""
    for name in names:
        await world.patch(world.secrets_path(name), {"metadata": {"finalizers": None}})


@behaviour
async def test_foreign_keys_and_metadata_stay_byte_for_byte(world: World) -> None:
    """G2: through the first write, a rotation, a changed mapping and the deletion; and none was ever sent."""
    net = network(world)
    before = await foreign_secret(world)
    entry = world.entry(A="canary-1", B="canary-2")

    async def unharmed() -> None:
        found = await world.secret("shared")
        for key in FOREIGN:
            assert found["data"][key] == before["data"][key]
        assert untouched(found) == untouched(before)

    await merge(world, entry, "A", "B")
    await world.ready()
    await unharmed()
    assert await world.data("shared") == {**FOREIGN, "A": "canary-1", "B": "canary-2"}
    world.rotate(entry, A="canary-3", B="canary-2")
    await world.force_sync("x")
    await world.target({**FOREIGN, "A": "canary-3", "B": "canary-2"}, "shared")
    await unharmed()
    await world.patch_spec(data=[mapping("A", entry)])
    await world.target({**FOREIGN, "A": "canary-3"}, "shared")
    await unharmed()
    await world.delete(world.psono_secrets_path("db"))
    await world.gone(world.psono_secrets_path("db"))
    await unharmed()
    sent = b"".join(each.body or b"" for each in net.requests if each.host == "kubernetes").decode()
    for value in filter(None, FOREIGN.values()):
        assert encoded(value) not in sent
    await let_go(world, "shared")


@behaviour
async def test_values_and_their_list_change_in_one_request(world: World) -> None:
    """G3: one write for the first synchronization, one for a changed mapping."""
    net = network(world)
    await foreign_secret(world)
    entry = world.entry(A="canary-1", B="canary-2", C="canary-3")
    await merge(world, entry, "A", "B")
    await world.ready()
    await world.patch_spec(data=[mapping("B", entry), mapping("C", entry)])
    await world.ready()
    await world.quiet()
    first, second = (body_of(each) for each in writes_of(net, world, "shared"))
    assert set(first["data"]) == {"A", "B"}
    assert json.loads(first["metadata"]["annotations"][MANAGED])["db"]["keys"] == ["A", "B"]
    assert second["data"] == {"A": None, "C": encoded("canary-3")}
    assert json.loads(second["metadata"]["annotations"][MANAGED])["db"]["keys"] == ["B", "C"]
    for body in (first, second):
        assert body["metadata"]["resourceVersion"], "guarded by the version that was read (F2)"
    await let_go(world, "shared")


@behaviour
async def test_a_missing_target_is_created_without_an_owner(world: World) -> None:
    """A16."""
    entry = world.entry(A="canary-1")
    made = await merge(world, entry, "A")
    await world.ready()
    found = await world.secret("shared")
    assert owners(found) == []
    assert json.loads(found["metadata"]["annotations"][MANAGED]) == {
        "db": {"uid": made["metadata"]["uid"], "keys": ["A"]}
    }
    assert found["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "psono-kubernetes-operator"}


@behaviour
async def test_several_psono_secrets_share_one_target(world: World) -> None:
    entry = world.entry(A="canary-a", B="canary-b", C="canary-c")
    for name in "abc":
        await merge(world, entry, name.upper(), name=name)
    for name in "abc":
        await world.ready(name)
    assert await world.data("shared") == {"A": "canary-a", "B": "canary-b", "C": "canary-c"}
    assert shares(await world.secret("shared")) == {"a": ["A"], "b": ["B"], "c": ["C"]}


async def conflict(world: World) -> str:
    """``holder`` manages K of ``shared``, and ``blocked`` wants it: refused for long. The message."""
    entry = world.entry(K="canary-holder", H="canary-h")
    other = world.entry(K="canary-blocked")
    await merge(world, entry, "K", "H", name="holder")
    await world.ready("holder")
    await merge(world, other, "K", name="blocked")
    return await world.failing("TargetUpdateFailed", "blocked")


@behaviour
async def test_an_overlap_is_refused_and_names_key_and_holder(world: World) -> None:
    """And the target is as it was, however often the blocked one asks."""
    net = network(world)
    message = await conflict(world)
    assert 'key "K"' in message
    assert 'PsonoSecret "holder"' in message
    await world.quiet()
    version = (await world.secret("shared"))["metadata"]["resourceVersion"]
    sent = len(writes_of(net, world, "shared"))
    await world.force_sync("x", "blocked")
    await world.quiet()
    await grow_the_backoff(world)
    assert await world.failing("TargetUpdateFailed", "blocked") == message
    assert (await world.secret("shared"))["metadata"]["resourceVersion"] == version
    assert len(writes_of(net, world, "shared")) == sent
    assert await world.data("shared") == {"K": "canary-holder", "H": "canary-h"}


@behaviour
@pytest.mark.parametrize("how", ["unmapped", "deleted", "stripped", "renamed", "owner elsewhere"])
async def test_the_blocked_one_is_ready_soon_after_the_holder_lets_go(world: World, how: str) -> None:
    """Whatever its backoff says."""
    gate = Gate(FORBIDDEN, patches(world, "shared", data=False))
    network(world, gate)
    gate.open()
    await conflict(world)
    await grow_the_backoff(world)
    holder = world.psono_secrets_path("holder")
    entry = (await world.psono_secret("holder"))["spec"]["data"][1]["remoteRef"]["secretId"]
    match how:
        case "unmapped":
            await world.patch_spec("holder", data=[mapping("H", entry)])
        case "deleted":
            await world.delete(holder)
        case "stripped":
            gate.closed = True  # the operator cannot remove the entry, and somebody loses patience
            await world.delete(holder)
            await world.failing("PreviousTargetCleanupFailed", "holder")
            await world.patch(holder, {"metadata": {"finalizers": None}})
            await world.gone(holder)
        case "renamed":
            await world.patch_spec("holder", target={"name": "elsewhere"})
        case "owner elsewhere":
            await world.patch_spec("holder", target={"name": "elsewhere", **OWNER})
    await world.ready("blocked", within=SOON)
    data = await world.data("shared")
    assert data is not None
    assert (data["K"], data["H"]) == ("canary-blocked", "canary-h"), "values stay when a share is given up"
    listed = shares(await world.secret("shared"))
    assert listed == {"blocked": ["K"], **({"holder": ["H"]} if how == "unmapped" else {})}


@behaviour
async def test_of_two_who_want_one_key_at_once_one_gets_it(world: World) -> None:
    """G3: and the other is told who."""
    entry = world.entry(K="canary-k")
    await asyncio.gather(*(merge(world, entry, "K", name=name) for name in ("left", "right")))

    async def settled() -> bool:
        found = [(await world.condition(name)).get("status") for name in ("left", "right")]
        return sorted(map(str, found)) == ["False", "True"]

    await world.eventually(settled)
    (winner,) = shares(await world.secret("shared"))
    loser = "right" if winner == "left" else "left"
    assert f'"{winner}"' in await world.failing("TargetUpdateFailed", loser)


@behaviour
async def test_a_stale_key_goes_with_the_next_good_synchronization_and_not_before(world: World) -> None:
    """A17, and a failing object never changes its target."""
    await foreign_secret(world)
    entry = world.entry(A="canary-a", B="canary-b")
    await merge(world, entry, "A", "B")
    await world.ready()
    world.psono.fail(500)
    await world.patch_spec(data=[mapping("A", entry)])
    await world.failing("RemoteReadFailed")
    assert await world.data("shared") == {**FOREIGN, "A": "canary-a", "B": "canary-b"}
    world.psono.heal()
    await world.force_sync("x")
    await world.target({**FOREIGN, "A": "canary-a"}, "shared")
    await let_go(world, "shared")


@behaviour
async def test_a_deletion_leaves_values_and_takes_only_its_own_entry(world: World) -> None:
    """Q4; the last one takes the annotation."""
    await foreign_secret(world)
    entry = world.entry(A="canary-a", B="canary-b")
    await merge(world, entry, "A", name="a")
    await merge(world, entry, "B", name="b")
    await world.ready("a")
    await world.ready("b")
    whole = await world.data("shared")
    entries = json.loads((await world.secret("shared"))["metadata"]["annotations"][MANAGED])
    await world.delete(world.psono_secrets_path("a"))
    await world.gone(world.psono_secrets_path("a"))
    found = await world.secret("shared")
    assert json.loads(found["metadata"]["annotations"][MANAGED]) == {"b": entries["b"]}
    await world.delete(world.psono_secrets_path("b"))
    await world.gone(world.psono_secrets_path("b"))
    found = await world.secret("shared")
    assert found["metadata"]["annotations"] == {"example.com/note": "  kept äs it is "}
    assert await world.data("shared") == whole
    await let_go(world, "shared")


async def orphaned_entry(world: World, *keys: str) -> None:
    """An entry in the annotation of ``shared`` whose PsonoSecret ``db`` is gone: nobody removed it."""
    entry = world.entry(**{key: f"canary-old-{key}" for key in keys})
    await merge(world, entry, *keys)
    await world.ready()
    await world.stop()
    await world.delete(world.psono_secrets_path("db"))
    await world.patch(world.psono_secrets_path("db"), {"metadata": {"finalizers": None}})
    await world.gone(world.psono_secrets_path("db"))


@behaviour
async def test_a_successor_of_the_same_name_is_a_new_manager(world: World) -> None:
    """C3: it gets its keys, and what only its predecessor had is nobody's and stays."""
    await orphaned_entry(world, "A", "OLD")
    entry = world.entry(A="canary-new")
    made = await merge(world, entry, "A")
    world.start()
    await world.ready()
    found = await world.secret("shared")
    assert json.loads(found["metadata"]["annotations"][MANAGED]) == {
        "db": {"uid": made["metadata"]["uid"], "keys": ["A"]}
    }
    assert await world.data("shared") == {"A": "canary-new", "OLD": "canary-old-OLD"}
    await world.patch_spec(data=[mapping("B", entry, "A")])
    await world.target({"B": "canary-new", "OLD": "canary-old-OLD"}, "shared")


@behaviour
@pytest.mark.parametrize("policy", [MERGE, OWNER], ids=["Merge", "Owner"])
async def test_an_entry_of_somebody_who_is_gone_blocks_nobody(world: World, policy: dict[str, str]) -> None:
    await orphaned_entry(world, "K")
    entry = world.entry(K="canary-k")
    await world.create(entry, "K", name="next", target="shared", target_options=policy)
    world.start()
    await world.ready("next")
    assert await world.data("shared") == {"K": "canary-k"}
    assert list(shares(await world.secret("shared"))) == (["next"] if policy is MERGE else [])


@behaviour
@pytest.mark.parametrize(
    "text",
    ["nonsense", "[]", '{"db":null}', '{"db":{"uid":7,"keys":["A"]}}', '{"db":{"uid":"x","keys":"A"}}'],
)
async def test_a_corrupt_list_is_refused_and_mended_by_removing_it(world: World, text: str) -> None:
    """And no key is touched meanwhile, not even with a changed mapping."""
    await foreign_secret(world)
    entry = world.entry(A="canary-a", B="canary-b")
    await merge(world, entry, "A", "B")
    await world.ready()
    await world.annotate(world.secrets_path("shared"), **{MANAGED: text})
    assert f"annotation {MANAGED}" in await world.failing("TargetUpdateFailed")
    await world.patch_spec(data=[mapping("A", entry)])
    message = await world.failing("TargetUpdateFailed")
    assert "remove the annotation" in message
    assert await world.data("shared") == {**FOREIGN, "A": "canary-a", "B": "canary-b"}
    await grow_the_backoff(world)
    await world.annotate(world.secrets_path("shared"), **{MANAGED: None})
    await world.ready(within=SOON)
    assert shares(await world.secret("shared")) == {"db": ["A"]}
    assert await world.data("shared") == {**FOREIGN, "A": "canary-a", "B": "canary-b"}, "B is nobody's now"
    await let_go(world, "shared")


@behaviour
async def test_a_corrupt_list_is_mended_by_restoring_it(world: World) -> None:
    entry = world.entry(A="canary-a")
    await merge(world, entry, "A")
    await world.ready()
    before = (await world.secret("shared"))["metadata"]["annotations"][MANAGED]
    await world.annotate(world.secrets_path("shared"), **{MANAGED: "{" + before})
    await world.failing("TargetUpdateFailed")
    await world.annotate(world.secrets_path("shared"), **{MANAGED: before})
    await world.ready(within=SOON)


@behaviour
async def test_a_foreign_key_written_into_our_share_by_hand_survives(world: World) -> None:
    """The list says it is ours; the API server knows who wrote it."""
    await foreign_secret(world)
    entry = world.entry(A="canary-a", B="canary-b")
    await merge(world, entry, "A", "B")
    await world.ready()
    await world.quiet()
    listed = json.loads((await world.secret("shared"))["metadata"]["annotations"][MANAGED])
    listed["db"]["keys"] = ["A", "B", *FOREIGN]
    await world.annotate(world.secrets_path("shared"), **{MANAGED: json.dumps(listed)})

    async def mended() -> bool:
        return shares(await world.secret("shared")) == {"db": ["A", "B"]}

    await world.eventually(mended)
    await world.patch_spec(data=[mapping("A", entry)])
    await world.target({**FOREIGN, "A": "canary-a"}, "shared")
    await let_go(world, "shared")


@behaviour
async def test_a_foreign_key_written_into_our_share_while_nobody_looked_survives(world: World) -> None:
    """The operator was away, and the mapping changed as well."""
    await foreign_secret(world)
    entry = world.entry(A="canary-a", B="canary-b")
    await merge(world, entry, "A", "B")
    await world.ready()
    await world.stop()
    listed = json.loads((await world.secret("shared"))["metadata"]["annotations"][MANAGED])
    listed["db"]["keys"] = ["A", "B", *FOREIGN]
    await world.annotate(world.secrets_path("shared"), **{MANAGED: json.dumps(listed)})
    await world.patch_spec(data=[mapping("A", entry)])
    world.start()
    await world.target({**FOREIGN, "A": "canary-a"}, "shared")
    await let_go(world, "shared")


@behaviour
@pytest.mark.parametrize("lost", ["our entry", "the annotation"])
async def test_a_lost_entry_comes_back_without_a_read(world: World, lost: str) -> None:
    entry = world.entry(A="canary-a", B="canary-b")
    await merge(world, entry, "A")
    await merge(world, entry, "B", name="other")
    await world.ready()
    await world.ready("other")
    await world.quiet()
    reads = world.psono.count("read")
    listed = json.loads((await world.secret("shared"))["metadata"]["annotations"][MANAGED])
    del listed["db"]
    text = json.dumps(listed) if lost == "our entry" else None
    await world.annotate(world.secrets_path("shared"), **{MANAGED: text})

    async def back() -> bool:
        return shares(await world.secret("shared")) == {"db": ["A"], "other": ["B"]}

    await world.eventually(back)
    assert world.psono.count("read") == reads


@behaviour
async def test_owner_refuses_a_secret_in_which_others_manage_keys(world: World) -> None:
    """A15: both statuses say what is so, nothing is written, and the refusal ends with its cause."""
    entry = world.entry(A="canary-a", B="canary-b")
    await merge(world, entry, "A", name="tenant")
    await world.ready("tenant")
    await world.create(entry, "B", name="owner", target="shared")
    assert 'PsonoSecret "tenant"' in await world.failing("TargetUpdateFailed", "owner")
    assert await world.data("shared") == {"A": "canary-a"}
    await grow_the_backoff(world)
    assert (await world.condition("tenant"))["status"] == "True"
    await world.delete(world.psono_secrets_path("tenant"))
    await world.ready("owner", within=SOON)
    assert await world.data("shared") == {"B": "canary-b"}


@behaviour
@pytest.mark.parametrize("policy", [MERGE, OWNER], ids=["Merge", "Owner"])
async def test_a_secret_of_another_psono_secret_is_refused_until_it_goes(
    world: World, policy: dict[str, str]
) -> None:
    entry = world.entry(A="canary-a", B="canary-b")
    await world.create(entry, "A", name="owner", target="shared")
    await world.ready("owner")
    await world.create(entry, "B", name="next", target="shared", target_options=policy)
    assert 'PsonoSecret "owner"' in await world.failing("TargetUpdateFailed", "next")
    assert await world.data("shared") == {"A": "canary-a"}
    await grow_the_backoff(world)
    await world.delete(world.psono_secrets_path("owner"))
    # On the real control plane the garbage collector takes its time.
    await world.ready("next", within=SOON if world.sandbox else 20)
    assert await world.data("shared") == {"B": "canary-b"}


@behaviour
async def test_merge_gets_in_as_soon_as_the_owner_becomes_one_of_many(world: World) -> None:
    entry = world.entry(A="canary-a", B="canary-b")
    await world.create(entry, "A", name="owner", target="shared")
    await world.ready("owner")
    await merge(world, entry, "B", name="tenant")
    await world.failing("TargetUpdateFailed", "tenant")
    await grow_the_backoff(world)
    await world.patch_spec("owner", target=MERGE)
    await world.ready("tenant", within=SOON)
    await world.ready("owner")
    assert shares(await world.secret("shared")) == {"owner": ["A"], "tenant": ["B"]}
    assert await world.data("shared") == {"A": "canary-a", "B": "canary-b"}


@behaviour
async def test_a_secret_of_a_foreign_controller_is_shared(world: World) -> None:
    """Its reference stays the only one."""
    path = f"/api/v1/namespaces/{world.namespace}/configmaps"
    _, boss = await world.call("POST", path, {"metadata": {"name": "boss"}})
    reference = {
        "apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": boss["metadata"]["uid"],
        "controller": True,
    }  # fmt: skip
    await world.create_secret("shared", FOREIGN, metadata={"ownerReferences": [reference]})
    entry = world.entry(A="canary-a")
    await merge(world, entry, "A")
    await world.ready()
    assert owners(await world.secret("shared")) == ["boss*"]
    assert await world.data("shared") == {**FOREIGN, "A": "canary-a"}


@behaviour
async def test_a_value_of_nobody_is_taken_over_with_a_warning(world: World) -> None:
    await world.create_secret("shared", {**FOREIGN, "A": "canary-nobodys"})
    entry = world.entry(A="canary-a")
    await merge(world, entry, "A")
    await world.ready()
    assert await world.data("shared") == {**FOREIGN, "A": "canary-a"}

    async def warned() -> bool:
        return any(
            reason == "KeysTakenOver" and note.endswith(": A") for _, reason, note in await world.events()
        )

    await world.eventually(warned)
    await world.force_sync("x")
    await world.quiet()
    assert len([each for each in await world.events() if each[1] == "KeysTakenOver"]) == 1


@behaviour
async def test_an_edit_between_our_read_and_our_write_survives(world: World) -> None:
    """A19, F2: a label, a new foreign key and a changed one, all set at the worst moment."""
    await world.create_secret("shared", FOREIGN)
    edited = False

    async def interfere(request: Request, send: Send) -> Any:
        nonlocal edited
        if not edited and patches(world, "shared")(request):
            edited = True
            change = {"THEIRS": encoded("canary-newer"), "MORE": encoded("canary-more")}
            await world.patch(
                world.secrets_path("shared"), {"metadata": {"labels": {"theirs": "1"}}, "data": change}
            )
        return await send()

    network(world, interfere)
    entry = world.entry(A="canary-a")
    await merge(world, entry, "A")
    await world.ready()
    assert edited
    wanted = {**FOREIGN, "THEIRS": "canary-newer", "MORE": "canary-more", "A": "canary-a"}
    assert await world.data("shared") == wanted
    assert (await world.secret("shared"))["metadata"]["labels"] == {"theirs": "1"}


@behaviour_with(only="sandbox")
async def test_only_our_own_keys_count_as_drift(world: World) -> None:
    """C2: ten minutes without a write; a foreign edit costs none, an edit of ours costs one."""
    net = network(world)
    await world.create_secret("shared", FOREIGN)
    entry = world.entry(A="canary-a")
    await merge(world, entry, "A", refreshInterval="30s")
    await world.ready()
    await world.quiet()
    net.requests.clear()
    await asyncio.sleep(600)
    assert writes_of(net, world, "shared") == []
    await world.patch(world.secrets_path("shared"), {"data": {"THEIRS": encoded("canary-edited")}})
    await asyncio.sleep(60)
    assert writes_of(net, world, "shared") == []
    await world.patch(world.secrets_path("shared"), {"data": {"A": encoded("canary-drift")}})
    await asyncio.sleep(60)
    assert len(writes_of(net, world, "shared")) == 1
    assert await world.data("shared") == {**FOREIGN, "THEIRS": "canary-edited", "A": "canary-a"}


@behaviour
async def test_more_than_the_secret_can_hold_is_refused_before_the_call(world: World) -> None:
    """G6: counted with what others keep there."""
    net = network(world)
    await world.create_secret("shared", {"BIG": "x" * 1_048_000})
    entry = world.entry(A="canary" * 100)
    await merge(world, entry, "A")
    assert "1048600 bytes, 600 of them ours" in await world.failing("TargetUpdateFailed")
    assert net.sent("PATCH", "/secrets/shared") == []
    await world.patch(world.secrets_path("shared"), {"data": {"BIG": None}})
    await world.force_sync("x")
    await world.ready()


@behaviour
async def test_a_mapping_that_a_special_type_needs_cannot_be_removed(world: World) -> None:
    net = network(world)
    await world.create_secret(
        "shared", {"tls.crt": "canary-c", "tls.key": "canary-k"}, type="kubernetes.io/tls"
    )
    entry = world.entry(**{"tls.crt": "canary-crt", "tls.key": "canary-key"})
    options = {**MERGE, "type": "kubernetes.io/tls"}
    await world.create(entry, "tls.crt", "tls.key", target="shared", target_options=options)
    await world.ready()
    sent = len(writes_of(net, world, "shared"))
    await world.patch_spec(data=[mapping("tls.crt", entry)])
    assert '"tls.key"' in await world.failing("TargetUpdateFailed")
    assert len(writes_of(net, world, "shared")) == sent
    assert await world.data("shared") == {"tls.crt": "canary-crt", "tls.key": "canary-key"}
