"""Targets that are renamed, switched, replaced or held: the new one first, then the old, then the status."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from psono_operator.secretsync.secrettypes import unmet_need
from tests.behaviour.network import FORBIDDEN, Request, Send
from tests.behaviour.steps import (
    MANAGED,
    MERGE,
    OWNER,
    SOON,
    Gate,
    body_of,
    creates,
    deletes,
    encoded,
    grow_the_backoff,
    is_write,
    network,
    owners,
    shares,
    writes_of,
)
from tests.behaviour.world import World, behaviour, behaviour_with, decoded, mapping
from tests.controlplane_fixture import CRD_FILE
from tests.secretsync.test_secrettypes import CASES

A = {"A": "canary-a"}
POLICIES = {"Owner": OWNER, "Merge": MERGE}


async def start(world: World, policy: str = "Owner", target: str = "old", **spec: Any) -> str:
    """``db`` maps A of an entry, which is returned, to ``target``, and is Ready."""
    entry = world.entry(**A)
    await world.create(entry, "A", target=target, target_options=POLICIES[policy], **spec)
    await world.ready()
    await world.quiet()
    return entry


async def retarget(world: World, name: str, policy: str = "Owner") -> None:
    await world.patch_spec(target={"name": name, **POLICIES[policy]})


async def version(world: World, name: str) -> str:
    return str((await world.secret(name))["metadata"]["resourceVersion"])


async def names(world: World) -> set[str]:
    """The Secrets of the namespace, but for credentials and what Kubernetes makes."""
    listed = await world.get(world.secrets_path())
    found = {
        each["metadata"]["name"] for each in listed["items"] if each["type"] in {"Opaque", "example.com/t"}
    }
    return found - {"psono-credentials", "other-credentials"}


async def only(world: World, *wanted: str, within: float = 5.0) -> None:
    """Wait until these targets exist and no other."""

    async def is_so() -> bool:
        return await names(world) == set(wanted)

    await world.eventually(is_so, within)


# -- a new name -----------------------------------------------------------------------------------------


@behaviour
async def test_a_renamed_owner_target_leaves_nothing_and_no_gap(world: World) -> None:
    """A2, H7: the new Secret is there before the old one goes, which is deleted as it was seen (G5)."""
    net = network(world)
    await start(world)
    old = (await world.secret("old"))["metadata"]
    net.requests.clear()
    await retarget(world, "new")
    await world.ready()
    await only(world, "new")
    assert await world.data("new") == A
    writes = [(each.method, each.path) for each in net.requests if is_write(each)]
    assert writes == [
        ("POST", world.secrets_path()),
        ("DELETE", world.secrets_path("old")),
        ("PATCH", world.psono_secrets_path("db/status")),
    ]
    (deletion,) = net.sent("DELETE")
    assert body_of(deletion)["preconditions"] == {
        "uid": old["uid"], "resourceVersion": old["resourceVersion"],
    }  # fmt: skip


@behaviour
@pytest.mark.parametrize("policy", ["Owner", "Merge"])
async def test_the_old_target_survives_while_the_new_one_cannot_be_written(world: World, policy: str) -> None:
    """A2."""
    gate = Gate(FORBIDDEN, creates(world, "new"))
    network(world, gate)
    await start(world, policy)
    before = await version(world, "old")
    await retarget(world, "new", policy)
    message = await world.failing("TargetUpdateFailed")
    assert '"new"' in message
    await world.quiet()
    assert await version(world, "old") == before
    assert await world.data("old") == A
    gate.open()
    await world.force_sync("x")
    await world.ready()
    await only(world, *({"new"} if policy == "Owner" else {"new", "old"}))


@behaviour
async def test_the_old_target_survives_while_the_new_one_is_somebody_elses(world: World) -> None:
    await start(world)
    path = f"/api/v1/namespaces/{world.namespace}/configmaps"
    _, boss = await world.call("POST", path, {"metadata": {"name": "boss"}})
    reference = {
        "apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": boss["metadata"]["uid"],
        "controller": True,
    }  # fmt: skip
    await world.create_secret("new", {"THEIRS": "canary-t"}, metadata={"ownerReferences": [reference]})
    await retarget(world, "new")
    assert 'ConfigMap "boss"' in await world.failing("TargetUpdateFailed")
    assert await world.data("old") == A
    assert await world.data("new") == {"THEIRS": "canary-t"}
    await grow_the_backoff(world)
    await world.patch(world.secrets_path("new"), {"metadata": {"ownerReferences": None}})
    await world.ready(within=SOON)
    await only(world, "new")


@behaviour
async def test_a_renamed_merge_target_keeps_the_old_values(world: World) -> None:
    """Q3: only our entry goes; the entries, bytes and annotations of others stay."""
    await world.create_secret("old", {"X": "canary-x"}, metadata={"annotations": {"note": "n"}})
    entry = await start(world, "Merge")
    await world.create(entry, "B", name="other", target="old", target_options=MERGE)
    world.rotate(entry, A="canary-a", B="canary-b")
    await world.force_sync("x", "other")
    await world.ready("other")
    before = await world.secret("old")
    await retarget(world, "new", "Merge")
    await world.ready()
    await world.quiet()
    after = await world.secret("old")
    assert after["data"] == before["data"]
    assert shares(after) == {"other": ["B"]}
    assert after["metadata"]["annotations"]["note"] == "n"
    assert await world.data("new") == A
    await world.delete(world.psono_secrets_path("other"))
    await world.gone(world.psono_secrets_path("other"))
    assert MANAGED not in (await world.secret("old"))["metadata"]["annotations"]


# -- another policy -------------------------------------------------------------------------------------


@behaviour
async def test_from_owner_to_merge_the_secret_becomes_one_of_many(world: World) -> None:
    """In one request, without a moment in which it belongs to nobody."""
    net = network(world)
    await start(world, target="db")
    uid = (await world.secret())["metadata"]["uid"]
    net.requests.clear()
    await world.patch_spec(target=MERGE)
    await world.ready()
    found = await world.secret()
    assert (found["metadata"]["uid"], owners(found), shares(found)) == (uid, [], {"db": ["A"]})
    assert len(writes_of(net, world, "db")) == 1
    await world.patch(world.secrets_path("db"), {"data": {"X": encoded("canary-x")}})
    await world.force_sync("x")
    await world.quiet()
    assert await world.data() == {**A, "X": "canary-x"}


@behaviour
async def test_from_owner_to_merge_what_others_added_meanwhile_stays(world: World) -> None:
    """The policy was Merge already when they wrote; the operator was away."""
    entry = await start(world, target="db")
    await world.stop()
    await world.patch_spec(target=MERGE, data=[mapping("B", entry, "A")])
    await world.patch(world.secrets_path("db"), {"data": {"X": encoded("canary-x")}})
    world.start()
    await world.ready()
    assert await world.data() == {"B": "canary-a", "X": "canary-x"}


@behaviour
async def test_from_merge_to_owner_the_rest_goes_with_a_warning(world: World) -> None:
    """A1: in one request; the event names what was dropped."""
    await world.create_secret("db", {"X": "canary-x"}, metadata={"labels": {"team": "a"}})
    net = network(world)
    await start(world, "Merge", target="db")
    net.requests.clear()
    await world.patch_spec(target=OWNER)
    await world.ready()
    found = await world.secret()
    assert (owners(found), shares(found), decoded(found)) == (["db*"], {}, A)
    assert MANAGED not in found["metadata"].get("annotations", {})
    assert found["metadata"]["labels"] == {"team": "a"}
    assert len(writes_of(net, world, "db")) == 1

    async def warned() -> bool:
        return any(e[1] == "TargetTakenOver" and e[2].endswith(": X") for e in await world.events())

    await world.eventually(warned)


@behaviour
async def test_from_merge_to_owner_is_refused_while_others_manage_keys(world: World) -> None:
    entry = await start(world, "Merge", target="db")
    await world.create(entry, "B", name="other", target="db", target_options=MERGE)
    world.rotate(entry, A="canary-a", B="canary-b")
    await world.force_sync("x", "other")
    await world.ready("other")
    await world.patch_spec(target=OWNER)
    assert 'PsonoSecret "other"' in await world.failing("TargetUpdateFailed")
    assert await world.data() == {**A, "B": "canary-b"}
    assert shares(await world.secret()) == {"db": ["A"], "other": ["B"]}
    await grow_the_backoff(world)
    await world.patch_spec("other", target={"name": "elsewhere"})
    await world.ready(within=SOON)
    await world.target(A)


@behaviour
@pytest.mark.parametrize("after", ["Owner", "Merge"])
@pytest.mark.parametrize("before", ["Owner", "Merge"])
async def test_policy_and_name_at_once(world: World, before: str, after: str) -> None:
    """The old Secret is treated as the policy says under which it was written."""
    await start(world, before)
    await retarget(world, "new", after)
    await world.ready()
    await only(world, *({"new"} if before == "Owner" else {"new", "old"}))
    new = await world.secret("new")
    assert decoded(new) == A
    assert owners(new) == (["db*"] if after == "Owner" else [])
    assert shares(new) == ({} if after == "Owner" else {"db": ["A"]})
    if before == "Merge":
        old = await world.secret("old")
        assert decoded(old) == A
        assert (owners(old), shares(old)) == ([], {})


@behaviour
@pytest.mark.parametrize("after", ["Owner", "Merge"])
@pytest.mark.parametrize("before", ["Owner", "Merge"])
async def test_back_again_before_the_new_target_was_written(world: World, before: str, after: str) -> None:
    gate = Gate(FORBIDDEN, creates(world, "new"))
    net = network(world, gate)
    await start(world, before)
    await retarget(world, "new", after)
    await world.failing("TargetUpdateFailed")
    await retarget(world, "old", before)
    await world.ready()
    gate.open()
    await world.quiet()
    await only(world, "old")
    found = await world.secret("old")
    assert decoded(found) == A
    assert (owners(found), shares(found)) == ((["db*"], {}) if before == "Owner" else ([], {"db": ["A"]}))
    assert len(writes_of(net, world, "old")) == 1, "nothing but the first write was ever needed"


@behaviour
@pytest.mark.parametrize("policy", ["Owner", "Merge"])
async def test_back_again_while_the_old_target_cannot_be_released(world: World, policy: str) -> None:
    """The old one is the target again and must not be released later."""

    def releases(request: Request) -> bool:
        return deletes(world, "old")(request) or (
            (request.method, request.path) == ("PATCH", world.secrets_path("old"))
            and "data" not in body_of(request)
        )

    gate = Gate(FORBIDDEN, releases)
    network(world, gate)
    await start(world, policy)
    await retarget(world, "new", policy)
    message = await world.failing("PreviousTargetCleanupFailed")
    assert '"old"' in message
    assert await world.data("new") == A
    await retarget(world, "old", policy)
    await world.ready()
    gate.open()
    await only(world, *({"old"} if policy == "Owner" else {"new", "old"}))
    await world.force_sync("x")
    await world.quiet()
    found = await world.secret("old")
    assert decoded(found) == A
    assert (owners(found), shares(found)) == ((["db*"], {}) if policy == "Owner" else ([], {"db": ["A"]}))
    if policy == "Merge":
        assert shares(await world.secret("new")) == {}


@behaviour
async def test_to_and_fro_between_policies_faster_than_anybody_can_follow(world: World) -> None:
    await world.create_secret("two", {"X": "canary-x"})
    await start(world, "Merge", "one")
    for name, policy in [("two", "Merge"), ("one", "Owner"), ("three", "Owner"), ("two", "Merge")] * 3:
        await retarget(world, name, policy)
    await world.ready()
    await world.quiet()
    assert await world.data("two") == {**A, "X": "canary-x"}
    assert shares(await world.secret("two")) == {"db": ["A"]}
    assert await world.secret("three") is None
    one = await world.secret("one")
    if one is not None:  # whether it was ever an Owner target is a matter of luck
        assert (owners(one), shares(one)) == ([], {})


# -- cleanup that fails ---------------------------------------------------------------------------------


@behaviour
@pytest.mark.parametrize("by", ["waiting", "a new process"])
async def test_three_renames_while_cleanup_is_refused_converge_once_it_is_allowed(
    world: World, by: str
) -> None:
    """H7: leftovers are found, not remembered, also by a new process."""
    gate = Gate(FORBIDDEN, deletes(world))
    network(world, gate)
    await start(world, target="one")
    for name in ("two", "three", "four"):
        await retarget(world, name)
        message = await world.failing("PreviousTargetCleanupFailed")
        assert "403" in message
    await world.quiet()
    await only(world, "one", "two", "three", "four")
    for name in ("one", "two", "three", "four"):
        assert await world.data(name) == A
    gate.open()
    if by == "a new process":
        await world.kill()
        world.start()
    await only(world, "four", within=10)
    await world.ready()


@behaviour
async def test_a_failed_cleanup_is_retried_alone(world: World) -> None:
    """H7: the good target is not written again, and Psono is not read again."""
    gate = Gate(FORBIDDEN, deletes(world))
    net = network(world, gate)
    await start(world, refreshInterval="24h")
    await retarget(world, "new")
    message = await world.failing("PreviousTargetCleanupFailed")
    assert '"old"' in message
    reads, target = world.psono.count("read"), await version(world, "new")
    net.requests.clear()
    gate.refused = 0
    await asyncio.sleep(600 if world.sandbox else 4)
    assert 1 <= gate.refused <= (16 if world.sandbox else 3), "with backoff"
    assert {(each.method, each.path) for each in net.requests if is_write(each)} == {
        ("DELETE", world.secrets_path("old"))
    }
    assert await world.failing("PreviousTargetCleanupFailed") == message
    assert len([each for each in await world.events() if each[1] == "PreviousTargetCleanupFailed"]) == 1
    gate.open()
    await world.ready(within=310 if world.sandbox else 10)
    assert await version(world, "new") == target
    assert world.psono.count("read") == reads
    await only(world, "new")


@behaviour
async def test_a_leftover_that_somebody_deletes_by_hand_is_no_failure_any_more(world: World) -> None:
    """Seen at once, whatever the backoff says."""
    gate = Gate(FORBIDDEN, deletes(world))
    network(world, gate)
    await start(world, refreshInterval="24h")
    await retarget(world, "new")
    await world.failing("PreviousTargetCleanupFailed")
    await grow_the_backoff(world)
    await world.delete(world.secrets_path("old"))
    await world.ready(within=SOON)


@behaviour
async def test_a_leftover_that_somebody_takes_over_is_not_deleted(world: World) -> None:
    """G5: the owner reference is gone, so it is theirs now."""
    gate = Gate(FORBIDDEN, deletes(world))
    network(world, gate)
    await start(world, refreshInterval="24h")
    await retarget(world, "new")
    await world.failing("PreviousTargetCleanupFailed")
    await world.patch(world.secrets_path("old"), {"metadata": {"ownerReferences": None}})
    await world.ready(within=SOON)
    gate.open()
    await world.force_sync("x")
    await world.quiet()
    assert await world.data("old") == A


@behaviour
async def test_a_finalizer_on_the_old_target_delays_it_and_nothing_else(world: World) -> None:
    """It is deleted once, not again and again, and may become a target again afterwards."""
    net = network(world)
    await start(world)
    await world.patch(world.secrets_path("old"), {"metadata": {"finalizers": ["example.com/hold"]}})
    await world.quiet()
    await retarget(world, "new")
    await world.ready()
    await world.quiet()
    held = await world.secret("old")
    assert held["metadata"]["finalizers"] == ["example.com/hold"]
    assert held["metadata"]["deletionTimestamp"]
    for value in ("x", "y", "z"):
        await world.force_sync(value)
        await world.quiet()
    assert len(net.sent("DELETE")) == 1
    await retarget(world, "old")
    assert "being deleted" in await world.failing("TargetUpdateFailed")
    await grow_the_backoff(world)
    await world.patch(world.secrets_path("old"), {"metadata": {"finalizers": None}})
    await world.ready(within=SOON)
    await only(world, "old")
    assert await world.data("old") == A


@behaviour_with(only="controlplane")
async def test_an_admission_policy_that_forbids_deletion_is_waited_for(world: World) -> None:
    """A2, as an administrator would do it."""
    name = f"keep-secrets-{world.namespace}"
    prefix = "/apis/admissionregistration.k8s.io/v1"
    policy = {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["DELETE"],
                        "resources": ["secrets"],
                    }
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            },
            "validations": [{"expression": "false", "message": "secrets are kept here"}],
        },
    }
    binding = {
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    await start(world, target="one")
    await world.call("POST", f"{prefix}/validatingadmissionpolicies", policy)
    await world.call("POST", f"{prefix}/validatingadmissionpolicybindings", binding)
    try:
        await world.create_secret("probe", {})

        async def effective() -> bool:
            probe = world.secrets_path("probe")
            return bool((await world.call("DELETE", f"{probe}?dryRun=All", ok=False))[0] >= 400)

        await world.eventually(effective, within=15)
        for name_of_target in ("two", "three"):
            await retarget(world, name_of_target)
            await world.failing("PreviousTargetCleanupFailed")
    finally:
        await world.call("DELETE", f"{prefix}/validatingadmissionpolicybindings/{name}")
        await world.call("DELETE", f"{prefix}/validatingadmissionpolicies/{name}")
    await world.ready(within=30)
    await only(world, "three", "probe")


# -- somebody else and the target -------------------------------------------------------------------------


class Meddler:
    """A handler that does something to the target right before the ``at``-th request of ``db``'s reconciles."""

    def __init__(self, world: World, what: str) -> None:
        self.world = world
        self.what = what
        self.at = -1
        self.count = 0

    async def __call__(self, request: Request, send: Send) -> Any:
        if request.key and self.at >= 0:
            number, self.count = self.count, self.count + 1
            if number == self.at:
                await self.meddle()
        return await send()

    async def meddle(self) -> None:
        await self.world.call("DELETE", self.world.secrets_path("db"), ok=False)
        if self.what == "recreated":
            await self.world.create_secret("db", {"X": "canary-x"})


@behaviour
@pytest.mark.parametrize("what", ["deleted", "recreated"])
@pytest.mark.parametrize("policy", ["Owner", "Merge"])
async def test_a_target_that_goes_or_changes_hands_at_any_moment(
    world: World, policy: str, what: str
) -> None:
    """Before each request of a synchronization that has something to write: the end is the same."""
    meddler = Meddler(world, what)
    network(world, meddler)
    entry = await start(world, policy, target="db")
    meddled, at = True, 0
    while meddled:
        meddler.count, meddler.at = 0, at
        values = {"A": f"canary-{at}"}
        world.rotate(entry, **values)
        await world.force_sync(str(at))

        async def handled(at: int = at) -> bool:
            return bool((await world.psono_secret())["status"].get("lastHandledForceSync") == str(at))

        await world.eventually(handled)
        await world.quiet()
        await world.ready()
        meddled = meddler.count > at
        meddler.at = -1
        kept = {"X": "canary-x"} if (policy, what) == ("Merge", "recreated") else {}
        await world.target({**values, **kept})
        at += 1
    assert at >= 4, "read, target, write and status at least"


@behaviour
async def test_an_owner_target_recreated_by_somebody_is_taken_back(world: World) -> None:
    """And they are told what was dropped."""
    await start(world, target="db", refreshInterval="24h")
    await world.delete(world.secrets_path("db"))
    await world.call("DELETE", world.secrets_path("db"), ok=False)
    await world.call(
        "POST", world.secrets_path(), {"metadata": {"name": "db"}, "stringData": {"X": "canary-x"}}, ok=False
    )
    await world.target(A)


@behaviour
@pytest.mark.parametrize("policy", ["Owner", "Merge"])
async def test_an_immutable_target_stays_ready_while_nothing_changes(world: World, policy: str) -> None:
    """C13: three synchronizations with equal data; then one clear reason, and no storm; then made anew (C14)."""
    net = network(world)
    entry = await start(world, policy, target="db")
    await world.patch(world.secrets_path("db"), {"immutable": True})
    for value in ("x", "y", "z"):
        await world.force_sync(value)
        await world.quiet()
        assert (await world.condition())["status"] == "True"
    world.rotate(entry, A="canary-new")
    net.requests.clear()
    reads = world.psono.count("read")
    await world.force_sync("changed")
    message = await world.failing("TargetUpdateFailed")
    assert "immutable" in message
    assert "delete it" in message
    await world.quiet()
    await grow_the_backoff(world)
    assert writes_of(net, world, "db") == []
    assert world.psono.count("read") - reads <= 12, "with backoff"
    assert await world.failing("TargetUpdateFailed") == message
    assert len([each for each in await world.events() if each[1] == "TargetUpdateFailed"]) == 1
    assert await world.data() == A
    await world.delete(world.secrets_path("db"))
    await world.ready(within=SOON)
    assert await world.data() == {"A": "canary-new"}


@behaviour
async def test_an_immutable_target_may_still_change_its_policy(world: World) -> None:
    """R6: only metadata changes."""
    await start(world, target="db")
    await world.patch(world.secrets_path("db"), {"immutable": True})
    await world.patch_spec(target=MERGE)
    await world.ready()
    found = await world.secret()
    assert (owners(found), shares(found)) == ([], {"db": ["A"]})


@behaviour
@pytest.mark.parametrize("policy", ["Owner", "Merge"])
async def test_a_changed_type_is_refused_and_done_when_the_secret_is_deleted(
    world: World, policy: str
) -> None:
    """C17: never deleted and made anew behind the user's back."""
    net = network(world)
    await start(world, policy, target="db", refreshInterval="24h")
    before = await version(world, "db")
    await world.patch_spec(target={"type": "example.com/t"})
    message = await world.failing("TargetUpdateFailed")
    for word in ("Opaque", "example.com/t", "delete the Secret"):
        assert word in message
    await world.quiet()
    await grow_the_backoff(world)
    assert await version(world, "db") == before
    assert net.sent("DELETE") == []
    await world.delete(world.secrets_path("db"))
    await world.ready(within=SOON)
    found = await world.secret()
    assert (found["type"], decoded(found)) == ("example.com/t", A)


@behaviour
async def test_a_type_changed_back_is_no_change(world: World) -> None:
    net = network(world)
    await start(world, target="db")
    await world.patch_spec(target={"type": "example.com/t"})
    await world.failing("TargetUpdateFailed")
    await world.patch_spec(target={"type": "Opaque"})
    await world.ready()
    assert len(writes_of(net, world, "db")) == 1


@behaviour
async def test_other_credentials_take_effect_at_once(world: World) -> None:
    """The old authentication Secret may go; what it could read stays only as long as the spec says so."""
    await start(world, target="db", refreshInterval="24h")
    other = world.psono.add_key()
    entry = world.psono.add_entry(
        {
            "environment_variables_title": "t",
            "environment_variables_variables": [{"key": "A", "value": "canary-b"}],
        },
        [other],
    )
    values = {"apiKeyId": other.id, "apiSecretKey": other.secret_key_hex}
    await world.create_auth("other-credentials", **values)
    await world.patch_spec(
        authentication={"secretRef": {"name": "other-credentials"}}, data=[mapping("A", entry)]
    )
    await world.target({"A": "canary-b"})
    await world.delete(world.secrets_path("psono-credentials"))
    await world.force_sync("x")
    await world.quiet()
    assert (await world.condition())["status"] == "True"


@behaviour
async def test_credentials_that_may_not_read_leave_the_target_as_it_is(world: World) -> None:
    await start(world, target="db", refreshInterval="24h")
    before = await version(world, "db")
    other = world.psono.add_key()
    await world.create_auth("other-credentials", apiKeyId=other.id, apiSecretKey=other.secret_key_hex)
    await world.patch_spec(authentication={"secretRef": {"name": "other-credentials"}})
    await world.failing("RemoteReadFailed")
    assert await version(world, "db") == before
    await world.patch_spec(authentication={"secretRef": {"name": "psono-credentials"}})
    await world.ready()
    assert await version(world, "db") == before


# -- refusals -------------------------------------------------------------------------------------------


@behaviour
@pytest.mark.parametrize("policy", ["Owner", "Merge"])
async def test_credentials_of_any_psono_secret_are_never_a_target(world: World, policy: str) -> None:
    """Q10: also after a rename; and the refusal ends when nobody uses them any more."""
    entry = await start(world, policy)
    await world.create_auth("other-credentials")
    await world.create(
        entry, "A", name="other", target="others", authentication={"secretRef": {"name": "other-credentials"}}
    )
    await world.ready("other")
    before = await version(world, "other-credentials")
    await retarget(world, "other-credentials", policy)
    assert "authentication Secret" in await world.failing("TargetUpdateFailed")
    assert await version(world, "other-credentials") == before
    assert await world.data("old") == A
    await grow_the_backoff(world)
    await world.patch_spec("other", authentication={"secretRef": {"name": "psono-credentials"}})
    await world.ready(within=SOON)
    data = await world.data("other-credentials")
    assert data is not None
    assert (data == A) is (policy == "Owner")
    assert data["A"] == "canary-a"


@behaviour
async def test_credentials_that_do_not_exist_yet_are_no_target_either(world: World) -> None:
    entry = world.entry(**A)
    reference = {"secretRef": {"name": "to-come"}}
    await world.create(entry, "A", name="other", target="others", authentication=reference)
    await world.failing("AuthenticationSecretError", "other")
    await world.create(entry, "A", target="to-come")
    assert "authentication Secret" in await world.failing("TargetUpdateFailed")
    assert await world.secret("to-come") is None


@behaviour
async def test_a_target_that_somebody_names_as_credentials_stays_a_target(world: World) -> None:
    """docs/architecture.md: nobody can block another one's target that way."""
    entry = await start(world, target="db")
    reference = {"secretRef": {"name": "db"}}
    await world.create(entry, "A", name="other", target="others", authentication=reference)
    await world.failing("AuthenticationSecretError", "other")
    world.rotate(entry, A="canary-new")
    await world.force_sync("x")
    await world.target({"A": "canary-new"})


@behaviour
@pytest.mark.parametrize(
    ("type", "values", "word"),
    [
        ("kubernetes.io/tls", {"tls.crt": "canary-c"}, '"tls.key"'),
        ("kubernetes.io/basic-auth", {"user": "canary-u"}, '"username" or "password"'),
        ("kubernetes.io/dockerconfigjson", {".dockerconfigjson": "canary-no-json"}, "JSON object"),
        ("kubernetes.io/ssh-auth", {"ssh-privatekey": ""}, "not empty"),
        ("Opaque", {"A": "canary" * 100_000, "B": "canary" * 100_000}, "1048576"),
    ],
)
async def test_what_a_secret_cannot_hold_is_refused_before_the_call(
    world: World, type: str, values: dict[str, str], word: str
) -> None:
    """G6, B9: one clear reason, no request, no hot retry."""
    net = network(world)
    entry = world.entry(**values)
    await world.create(entry, *values, target_options={"type": type}, refreshInterval="24h")
    assert word in await world.failing("TargetUpdateFailed")
    await world.quiet()
    await asyncio.sleep(600 if world.sandbox else 1)
    assert net.sent("POST", "/secrets") == []
    assert len([each for each in net.requests if each.host == "psono"]) <= 12


@behaviour_with(only="controlplane", start=False)
async def test_the_api_server_judges_special_types_as_our_table(world: World) -> None:
    """What we refuse it refuses, and what we let through it takes."""
    for secret_type, data, need in CASES:
        body = {
            "apiVersion": "v1", "kind": "Secret", "type": secret_type,
            "metadata": {"name": "probe", "namespace": world.namespace},
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }  # fmt: skip
        status, _ = await world.call("POST", f"{world.secrets_path()}?dryRun=All", body, ok=False)
        assert (status == 422) is bool(need), (secret_type, data, status)
        assert unmet_need(secret_type, data) == need


@contextlib.asynccontextmanager
async def before_the_rules(world: World) -> AsyncIterator[None]:
    """In the block, the CRD judges nothing, as an older one might; afterwards it is as it should be."""
    strict = yaml.safe_load(CRD_FILE.read_text())
    loose = yaml.safe_load(CRD_FILE.read_text())
    loose["spec"]["versions"][0]["selectableFields"] = []
    schema = loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{strict['metadata']['name']}"
    await world.patch(path, {"spec": {"versions": loose["spec"]["versions"]}})
    try:
        yield
    finally:
        await world.patch(path, {"spec": {"versions": strict["spec"]["versions"]}})


@behaviour_with(start=False)
@pytest.mark.parametrize(
    ("changes", "reason", "word"),
    [
        ({"refreshInterval": "10s"}, "InvalidRefreshInterval", "at least 30s"),
        ({"refreshInterval": "soon"}, "InvalidRefreshInterval", "Go duration"),
        ({"data": []}, "InvalidConfiguration", "spec.data"),
        ({"data": [mapping("A", "x"), mapping("A", "y")]}, "InvalidConfiguration", "unique"),
        (
            {"data": [{"secretKey": "A", "remoteRef": {"secretId": "x"}}]},
            "InvalidConfiguration",
            "exactly one",
        ),
        ({"data": [mapping("a key", "x", "A")]}, "InvalidConfiguration", "letters"),
        ({"target": {"name": "psono-credentials"}}, "InvalidConfiguration", "differ"),
        (
            {"target": {"name": "db", "type": "kubernetes.io/service-account-token"}},
            "InvalidConfiguration",
            "type",
        ),
        ({"target": {"name": "db", "creationPolicy": "Orphan"}}, "InvalidConfiguration", "creationPolicy"),
    ],
)
async def test_an_object_older_than_the_rules_gets_the_documented_reason(
    world: World, changes: dict[str, Any], reason: str, word: str
) -> None:
    """And nothing is written; mended, it works at once."""
    await world.create_auth()
    entry = world.entry(**A)
    async with before_the_rules(world):

        async def created() -> bool:
            reference = {
                "name": "psono-credentials",
                "serverUrlKey": "serverUrl",
                "apiKeyIdKey": "apiKeyId",
                "apiSecretKeyKey": "apiSecretKey",
            }
            spec = {
                "authentication": {"secretRef": reference},
                "data": [mapping("A", entry)],
                "refreshInterval": "5m",
                **changes,
                "target": {
                    "creationPolicy": "Owner",
                    "type": "Opaque",
                    **changes.get("target", {"name": "db"}),
                },
            }
            body = {
                "apiVersion": "secrets.psono.com/v1alpha1", "kind": "PsonoSecret", "metadata": {"name": "db"},
                "spec": spec,
            }  # fmt: skip
            status, _ = await world.call("POST", world.psono_secrets_path(), body, ok=False)
            return bool(status == 201)

        await world.eventually(created, within=15)
    credentials = await version(world, "psono-credentials")
    world.start()
    assert word in await world.failing(reason, within=15)
    await world.quiet()
    assert await world.secret("db") is None
    assert await version(world, "psono-credentials") == credentials
    await world.patch_spec(
        refreshInterval="5m",
        target={"name": "db", "type": None, "creationPolicy": None},
        data=[mapping("A", entry)],
    )
    await world.ready()
    assert await world.data() == A
