"""What must hold whenever the operator has come to rest, whatever users did before."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.behaviour.network import Network
from tests.behaviour.users import FINALIZER, OTHER_AUTH, Farewell, Users
from tests.behaviour.world import AUTH, World, decoded

PSONO_SECRETS, SECRETS = World.psono_secrets_path, World.secrets_path
MANAGED = "secrets.psono.com/managed-keys"


async def check(users: Users) -> None:
    """All of them."""
    for patience in range(20, -1, -1):
        objects = {each["metadata"]["name"]: each for each in await _items(users, PSONO_SECRETS)}
        secrets = {each["metadata"]["name"]: each for each in await _items(users, SECRETS)}
        try:
            _owners_have_exactly_their_mapping(users, objects, secrets)
            break
        except AssertionError:
            # Whoever touches a target again and again is answered ever later (fault C3).
            if patience == 0:
                raise
            await users.world.clock.sleep(users.pause / 3)
    _foreign_keys_stay(users, secrets)
    _no_key_is_managed_twice(objects, secrets)
    _marks_are_on_the_target_alone(objects, secrets)
    _credentials_are_never_written(users, objects, secrets)
    _the_deleted_leave_what_their_policy_says(users, objects, secrets)
    assert users.network is not None
    a_failing_attempt_writes_nothing(users.network)


async def converged(users: Users) -> None:
    """Nothing is broken any more and everybody was asked: all are Ready, but for those in each other's way."""
    objects = await _items(users, PSONO_SECRETS)

    async def buried() -> bool:
        await check(users)
        return not users.farewells

    await users.world.eventually(buried, within=60)
    for obj in objects:
        name, target = obj["metadata"]["name"], obj["spec"]["target"]["name"]
        ready = _ready(obj)
        assert ready, (name, obj.get("status"))
        if ready["status"] == "True":
            data = await users.world.data(target) or {}
            for key, value in users.wanted(obj).items():
                assert data.get(key) == value, f"{name} is Ready and {target} holds another {key}"
        elif ready["reason"] == "AuthenticationSecretError":
            # Its credentials were deleted, and somebody's target of that name was made anew in their place.
            auth = obj["spec"]["authentication"]["secretRef"]["name"]
            assert "serverUrl" not in (await users.world.data(auth) or {"serverUrl": ""}), (name, ready)
        else:
            assert ready["reason"] == "TargetUpdateFailed", (name, ready)
            secret = await users.world.secret(target)
            held_by = _holders(secret) - {obj["metadata"]["uid"]}
            living = {each["metadata"]["uid"] for each in objects}
            assert held_by & living or target == OTHER_AUTH, (name, ready)


async def _items(users: Users, path: Callable[[World], str]) -> list[Any]:
    return list((await users.world.get(path(users.world)))["items"])


def _ready(obj: Any) -> Any:
    return next(
        (each for each in obj.get("status", {}).get("conditions", ()) if each["type"] == "Ready"), None
    )


def _is_good(obj: Any) -> bool:
    ready = _ready(obj)
    return bool(
        ready
        and ready["status"] == "True"
        and ready["observedGeneration"] == obj["metadata"]["generation"]
        and "deletionTimestamp" not in obj["metadata"]
    )


def _managed(secret: Any) -> dict[str, Any]:
    return dict(json.loads(secret["metadata"].get("annotations", {}).get(MANAGED, "{}")))


def _owner(secret: Any) -> str:
    references = secret["metadata"].get("ownerReferences", ())
    return next((str(each["uid"]) for each in references if each.get("controller")), "")


def _holders(secret: Any) -> set[str]:
    """The uids of those who have their mark on it."""
    return {_owner(secret), *(share["uid"] for share in _managed(secret).values())} - {""}


def _foreign_keys_stay(users: Users, secrets: dict[str, Any]) -> None:
    for name, keys in users.foreign.items():
        data = decoded(secrets[name]) if name in secrets else {}
        for key, value in keys.items():
            assert data.get(key) == value, f"foreign key {key} of {name} was changed"


def _owners_have_exactly_their_mapping(
    users: Users, objects: dict[str, Any], secrets: dict[str, Any]
) -> None:
    for name, obj in objects.items():
        target = obj["spec"]["target"]
        if target["creationPolicy"] == "Owner" and _is_good(obj):
            assert target["name"] in secrets, f"{name} is Ready and {target['name']} does not exist"
            data = decoded(secrets[target["name"]])
            assert set(data) == set(users.wanted(obj)), (
                f"{name} is Ready and {target['name']} has {set(data)}"
            )
            assert set(data.values()) <= users.history, f"{target['name']} holds what was never in Psono"
            assert _owner(secrets[target["name"]]) == obj["metadata"]["uid"]


def _no_key_is_managed_twice(objects: dict[str, Any], secrets: dict[str, Any]) -> None:
    for name, secret in secrets.items():
        shares = _managed(secret)
        keys = [key for share in shares.values() for key in share["keys"]]
        assert len(keys) == len(set(keys)), f"{name}: {shares}"
        assert not (shares and _owner(secret)), f"{name} is owned and shared"
        data = decoded(secret)
        for manager, share in shares.items():
            assert share["uid"] == objects.get(manager, {}).get("metadata", {}).get("uid"), (
                f"{name}: {shares}"
            )
            if _is_good(objects[manager]):
                assert set(share["keys"]) <= set(data), f"{name} lacks managed keys of {manager}"


def _marks_are_on_the_target_alone(objects: dict[str, Any], secrets: dict[str, Any]) -> None:
    for obj in objects.values():
        if not _is_good(obj):
            continue
        uid = obj["metadata"]["uid"]
        marked = {name for name, secret in secrets.items() if uid in _holders(secret)}
        assert marked == {obj["spec"]["target"]["name"]}, f"{obj['metadata']['name']} is marked on {marked}"


def _credentials_are_never_written(users: Users, objects: dict[str, Any], secrets: dict[str, Any]) -> None:
    """While somebody refers to them; a target of before that somebody refers to now is still a target."""
    for name in (AUTH, OTHER_AUTH):
        used = any(obj["spec"]["authentication"]["secretRef"]["name"] == name for obj in objects.values())
        version = secrets[name]["metadata"]["resourceVersion"] if name in secrets else ""
        marked = name in secrets and bool(_holders(secrets[name]))
        if used and name in users.auth_used:
            assert version == users.auth_versions[name], f"{name} was written"
        users.auth_versions[name] = version
        (users.auth_used.add if used and not marked else users.auth_used.discard)(name)


def _the_deleted_leave_what_their_policy_says(
    users: Users, objects: dict[str, Any], secrets: dict[str, Any]
) -> None:
    """What is left to the garbage collector may take it a while; those stay among the farewells."""
    pending: list[Farewell] = []
    for farewell in users.farewells:
        living = [each for each in objects.values() if each["metadata"]["uid"] == farewell.uid]
        assert not any(FINALIZER in each["metadata"].get("finalizers", ()) for each in living), living
        shares = [share["uid"] for secret in secrets.values() for share in _managed(secret).values()]
        assert farewell.uid not in shares, f"marks of the dead {farewell.name}: {shares}"
        if living or farewell.uid in {_owner(secret) for secret in secrets.values()}:
            pending.append(farewell)
    users.farewells[:] = pending


def a_failing_attempt_writes_nothing(network: Network) -> None:
    """In no reconcile a status that says failed comes after a write of a Secret."""
    wrote: set[str] = set()
    for request in network.requests:
        if request.wrote and "/secrets/" in f"{request.path}/" and request.method in {"POST", "PUT"}:
            wrote.add(request.reconcile)
        if request.path.endswith("/status") and request.reconcile in wrote and request.body:
            for condition in json.loads(request.body)["status"].get("conditions", ()):
                good = condition["reason"] in {"SecretSynchronized", "PreviousTargetCleanupFailed"}
                assert good or condition["type"] != "Ready", (
                    f"{request.key} failed after a write: {condition}"
                )
    network.requests.clear()
