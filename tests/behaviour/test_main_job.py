"""The main job: a PsonoSecret becomes a Secret, follows Psono, and is cleaned up."""

from __future__ import annotations

import asyncio

import pytest

from tests.behaviour.world import World, behaviour, behaviour_with, mapping, variables

HOST, USER, PASSWORD = "canary-host", "canary-user", "canary-password"
VALUES = {"DB_HOST": HOST, "DB_USER": USER, "DB_PASSWORD": PASSWORD}


@behaviour
async def test_three_values_of_one_entry_become_one_secret_with_one_download(world: World) -> None:
    """The spec's own example; J5, Q15."""
    entry = world.entry(**VALUES)
    made = await world.create(entry, *VALUES)
    obj = await world.ready()
    secret = await world.secret()
    assert await world.data() == VALUES
    assert secret["type"] == "Opaque"
    assert secret["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "psono-kubernetes-operator"}
    assert secret["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "secrets.psono.com/v1alpha1", "kind": "PsonoSecret", "name": "db",
            "uid": made["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True,
        }
    ]  # fmt: skip
    assert obj["metadata"]["finalizers"] == ["secrets.psono.com/finalizer"]
    assert world.psono.count("read") == 1
    status = obj["status"]
    assert status["observedGeneration"] == 1
    assert status["target"] == {
        "name": "db", "creationPolicy": "Owner", "resourceVersion": secret["metadata"]["resourceVersion"],
    }  # fmt: skip
    assert status["entries"] == [{"secretId": entry}]
    (condition,) = status["conditions"]
    assert (condition["reason"], condition["message"]) == (
        "SecretSynchronized", 'Secret "db" holds 3 values of 1 Psono entry.',
    )  # fmt: skip


@behaviour
async def test_only_listed_values_are_copied_under_the_listed_names(world: World) -> None:
    entry = world.entry(**VALUES)
    await world.create(entry, data=[mapping("DATABASE_PASSWORD", entry, " DB_PASSWORD ")])
    await world.ready()
    assert await world.data() == {"DATABASE_PASSWORD": PASSWORD}


@behaviour
async def test_values_of_several_entries_meet_in_one_target(world: World) -> None:
    first = world.entry(A="canary-a")
    second = world.psono.add_entry(
        {"website_password_password": "canary-b", "x": {"y": {"z": "canary-c"}}}, [world.key]
    )
    ref = {"secretId": second}
    await world.create(
        first,
        data=[
            mapping("A", first),
            {"secretKey": "B", "remoteRef": {**ref, "field": "website_password_password"}},
            {"secretKey": "C", "remoteRef": {**ref, "field": "x.y.z"}},
        ],
    )
    await world.ready()
    assert await world.data() == {"A": "canary-a", "B": "canary-b", "C": "canary-c"}
    assert world.psono.count("read") == 2


@behaviour
async def test_a_rotation_follows_a_forced_synchronization(world: World) -> None:
    """D13: within two seconds, one read, and the handled value is kept."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    await world.ready()
    world.rotate(entry, **{**VALUES, "DB_PASSWORD": "canary-second"})
    await world.force_sync("one")
    await world.target({**VALUES, "DB_PASSWORD": "canary-second"}, within=2)

    async def handled() -> bool:
        return bool((await world.psono_secret())["status"].get("lastHandledForceSync") == "one")

    await world.eventually(handled)
    assert world.psono.count("read") == 2


@behaviour_with(only="sandbox")
async def test_a_rotation_follows_at_the_next_refresh(world: World) -> None:
    entry = world.entry(A="canary-1")
    await world.create(entry, "A", refreshInterval="30s")
    await world.ready()
    world.rotate(entry, A="canary-2")
    await world.target({"A": "canary-2"}, within=34)


@behaviour_with(only="sandbox")
async def test_an_unchanged_source_costs_no_write_but_the_status(world: World) -> None:
    """C1, G4, I1: twenty intervals, no write of the target, one status write each, no event."""
    entry = world.entry(A="canary-1")
    await world.create(entry, "A", refreshInterval="30s")
    await world.ready()
    await world.quiet()
    version = (await world.secret())["metadata"]["resourceVersion"]
    assert world.sandbox is not None
    world.sandbox.journal.clear()
    reads = world.psono.count("read")
    await asyncio.sleep(600)
    refreshes = world.psono.count("read") - reads
    assert 17 <= refreshes <= 20
    writes = [(each.method, each.path.rsplit("/", 1)[-1]) for each in world.sandbox.journal.writes()]
    assert writes == [("PATCH", "status")] * refreshes
    assert (await world.secret())["metadata"]["resourceVersion"] == version
    assert await world.events() == []


@behaviour
async def test_a_deleted_target_is_made_anew(world: World) -> None:
    """C5, C6: at once, although nothing changed in Psono."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, refreshInterval="24h")
    await world.ready()
    await world.delete(world.secrets_path("db"))
    await world.target(VALUES)


@behaviour
@pytest.mark.parametrize(
    "edit",
    [{"DB_USER": "aGVsbG8="}, {"DB_USER": None}, {"EXTRA": "aGVsbG8="}],
    ids=["changed", "removed", "added"],
)
async def test_a_touched_target_is_repaired(world: World, edit: dict[str, str | None]) -> None:
    """C8, Q23."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, refreshInterval="24h")
    await world.ready()
    await world.patch(world.secrets_path("db"), {"data": edit})
    await world.target(VALUES)


@behaviour
async def test_what_others_put_on_the_target_costs_no_read_and_no_write(world: World) -> None:
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    await world.ready()
    await world.quiet()
    reads = world.psono.count("read")
    patched = await world.annotate(world.secrets_path("db"), note="mine")
    await world.quiet()
    assert (await world.secret())["metadata"]["resourceVersion"] == patched["metadata"]["resourceVersion"]
    assert world.psono.count("read") == reads


@behaviour
async def test_a_removed_owner_reference_comes_back_without_a_read(world: World) -> None:
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    await world.ready()
    reads = world.psono.count("read")
    await world.patch(world.secrets_path("db"), {"metadata": {"ownerReferences": None}})

    async def owned() -> bool:
        return bool((await world.secret())["metadata"].get("ownerReferences"))

    await world.eventually(owned)
    assert world.psono.count("read") == reads


@behaviour
async def test_a_changed_mapping_takes_effect_at_once(world: World) -> None:
    """C7, A17."""
    entry = world.entry(**VALUES)
    await world.create(entry, "DB_HOST", "DB_USER")
    await world.ready()
    await world.patch_spec(data=[mapping("DB_HOST", entry), mapping("PASS", entry, "DB_PASSWORD")])
    await world.target({"DB_HOST": HOST, "PASS": PASSWORD})
    await world.ready()


@behaviour
async def test_a_deleted_psono_secret_takes_its_target_along(world: World) -> None:
    """H4, A4."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    await world.ready()
    await world.delete(world.psono_secrets_path("db"))
    await world.gone(world.psono_secrets_path("db"))
    await world.gone(world.secrets_path("db"))


@behaviour
async def test_an_unowned_secret_is_taken_over_with_a_warning(world: World) -> None:
    """A1, Q1: the event names the dropped keys; what others put on it stays (A10)."""
    await world.create_secret(
        "db", {"OLD": "canary-old", "DB_HOST": "canary-older"}, metadata={"labels": {"team": "a"}}
    )
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    await world.ready()
    assert await world.data() == VALUES
    assert (await world.secret())["metadata"]["labels"] == {"team": "a"}

    async def warned() -> bool:
        return any(
            reason == "TargetTakenOver" and note.endswith(": OLD") for _, reason, note in await world.events()
        )

    await world.eventually(warned)


@behaviour
async def test_a_target_of_another_controller_is_refused(world: World) -> None:
    """Q2, G1: and left as it is."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "controller": True}
    _, boss = await world.call(
        "POST", f"/api/v1/namespaces/{world.namespace}/configmaps", {"metadata": {"name": "boss"}}
    )
    owner["uid"] = boss["metadata"]["uid"]
    await world.create_secret("db", {"THEIRS": "canary-theirs"}, metadata={"ownerReferences": [owner]})
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    message = await world.failing("TargetUpdateFailed")
    assert 'ConfigMap "boss"' in message
    assert await world.data() == {"THEIRS": "canary-theirs"}


@behaviour
async def test_a_missing_authentication_secret_is_awaited(world: World) -> None:
    """C8: either order ends in the same state, and the wait ends at once (D9)."""
    await world.delete(world.secrets_path("psono-credentials"))
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, refreshInterval="24h")
    message = await world.failing("AuthenticationSecretError")
    assert '"psono-credentials" does not exist' in message
    await world.create_auth()
    await world.ready(within=2)
    assert await world.data() == VALUES


@behaviour
@pytest.mark.parametrize(
    ("changes", "reason", "word"),
    [
        ({"apiSecretKey": ""}, "AuthenticationSecretError", "apiSecretKey"),
        ({"apiSecretKey": "ab" * 31}, "ClientConfigurationError", "64"),
        ({"serverUrl": "ftp://canary-host"}, "ClientConfigurationError", "serverUrl"),
        ({"apiSecretKey": "cd" * 32}, "RemoteReadFailed", "API secret key"),
    ],
)
async def test_wrong_credentials_have_their_reason(
    world: World, changes: dict[str, str], reason: str, word: str
) -> None:
    await world.delete(world.secrets_path("psono-credentials"))
    await world.create_auth(**changes)
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES, refreshInterval="24h")
    message = await world.failing(reason)
    assert word in message
    await world.delete(world.secrets_path("psono-credentials"))
    await world.create_auth()
    await world.ready(within=2)


@behaviour
async def test_a_failed_read_leaves_the_target_and_recovers(world: World) -> None:
    """Q12."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    await world.ready()
    version = (await world.secret())["metadata"]["resourceVersion"]
    world.psono.fail(500)
    await world.force_sync("x")
    message = await world.failing("RemoteReadFailed")
    assert entry in message
    assert (await world.secret())["metadata"]["resourceVersion"] == version
    world.psono.heal()
    await world.ready(within=4)


@behaviour
async def test_a_missing_value_means_no_change_at_all(world: World) -> None:
    """B2."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    await world.ready()
    world.rotate(entry, DB_HOST="canary-new", DB_USER=USER)
    await world.force_sync("x")
    message = await world.failing("ValueExtractionFailed")
    assert "DB_PASSWORD" in message
    assert await world.data() == VALUES


@behaviour
async def test_a_value_that_is_no_string_is_refused(world: World) -> None:
    """Q8."""
    entry = world.psono.add_entry({"port": 5432}, [world.key])
    await world.create(entry, data=[{"secretKey": "P", "remoteRef": {"secretId": entry, "field": "port"}}])
    assert "number" in await world.failing("ValueExtractionFailed")
    assert await world.data() is None


@behaviour
async def test_a_restart_alone_changes_nothing(world: World) -> None:
    """J1, C9, H4 of the public reports: no read, no write."""
    entry = world.entry(**VALUES)
    await world.create(entry, *VALUES)
    before = await world.ready()
    await world.quiet()
    reads, version = world.psono.count("read"), (await world.secret())["metadata"]["resourceVersion"]
    for _ in range(3):
        await world.restart()
        await world.quiet()
    assert world.psono.count("read") == reads
    assert (await world.secret())["metadata"]["resourceVersion"] == version
    assert (
        await world.psono_secret()
        == await world.ready()
        == before | {"metadata": (await world.psono_secret())["metadata"]}
    )


@behaviour
async def test_bytes_arrive_as_they_are(world: World) -> None:
    """B4, B5."""
    values = {
        "NUL": "canary\0", "CRLF": "canary\r\n", "EMOJI": "canary 🔐", "SPACE": " canary ", "EMPTY": "",
        "BASE64": "Y2FuYXJ5", "LONG": "canary" * 30_000,
    }  # fmt: skip
    entry = world.psono.add_entry(variables(values), [world.key])
    await world.create(entry, *values)
    await world.ready()
    assert await world.data() == values
