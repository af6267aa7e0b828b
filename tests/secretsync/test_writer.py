"""One request per plan; a lost race is planned anew from fresh state, never sent again (F2, F3, F5)."""

from __future__ import annotations

from typing import Any

import pytest

from psono_operator.runtime.errors import (
    ApiError,
    Cause,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    Throttled,
    Unauthorized,
    Unreachable,
)
from psono_operator.secretsync.target import Wanted
from psono_operator.secretsync.writer import (
    NamespaceTerminating,
    TargetRefused,
    TargetWriteFailed,
    TargetWriter,
    WriteResult,
    Written,
)
from tests.secretsync.objects import secret
from tests.secretsync.scriptedclient import CONFLICT, EXISTS, GONE, ScriptedClient
from tests.secretsync.targets import DEPLOYMENT, OURS, around, fields, managed, wanted

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

OWNED = secret(data={"A": b"0"}, ownerReferences=[OURS])
EQUAL = secret(data={"A": b"1"}, ownerReferences=[OURS])
MERGED = secret(data={"A": b"0", "X": b"x"}, annotations=managed({("db", "uid-1"): ["A"]}))


async def apply(client: ScriptedClient, goal: Wanted | None = None, *, absent: bool = False) -> WriteResult:
    writer = TargetWriter(client)  # type: ignore[arg-type]
    return await writer.apply(goal or wanted(), around(), believed_absent=absent)


async def test_a_target_believed_absent_is_created_without_a_look() -> None:
    client = ScriptedClient(EQUAL)
    assert (await apply(client, absent=True)).kind is Written.CREATED
    assert client.verbs == ["create"]


async def test_one_that_exists_after_all_goes_through_the_gate() -> None:
    """F5, A18: AlreadyExists means look again, never overwrite."""
    client = ScriptedClient(EXISTS, EQUAL)
    assert (await apply(client, absent=True)).kind is Written.UNCHANGED
    assert client.verbs == ["create", "get"]
    client = ScriptedClient(EXISTS, secret(ownerReferences=[DEPLOYMENT]))
    with pytest.raises(TargetRefused, match="Deployment"):
        await apply(client, absent=True)


async def test_an_equal_target_is_read_and_left() -> None:
    """G4."""
    client = ScriptedClient(EQUAL)
    assert (await apply(client)).kind is Written.UNCHANGED
    assert client.verbs == ["get"]


async def test_a_conflict_is_planned_anew_from_what_is_there_now() -> None:
    """A19: the label that somebody set in between is in the second body."""
    newer = secret(data={"A": b"0"}, ownerReferences=[OURS], version="8", labels={"theirs": "1"})
    client = ScriptedClient(OWNED, CONFLICT, newer, newer)
    assert (await apply(client)).kind is Written.UPDATED
    assert client.verbs == ["get", "replace", "get", "replace"]
    first, second = client.requests[1][1], client.requests[3][1]
    assert first["metadata"]["resourceVersion"] == "7"
    assert second["metadata"]["resourceVersion"] == "8"
    assert second["metadata"]["labels"] == {"theirs": "1"}


async def test_a_race_that_somebody_else_won_is_decided_by_the_gate() -> None:
    """The second look may refuse what the first allowed."""
    client = ScriptedClient(OWNED, CONFLICT, secret(ownerReferences=[DEPLOYMENT]))
    with pytest.raises(TargetRefused):
        await apply(client)


async def test_a_target_deleted_in_between_is_created() -> None:
    client = ScriptedClient(OWNED, GONE, GONE, EQUAL)
    assert (await apply(client)).kind is Written.CREATED
    assert client.verbs == ["get", "replace", "get", "create"]


@pytest.mark.parametrize("policy", ["Owner", "Merge"])
async def test_a_race_without_end_is_left_to_the_queue(policy: Any) -> None:
    """F3: three tries, then Conflict."""
    live = OWNED if policy == "Owner" else MERGED
    client = ScriptedClient(live, CONFLICT, live, CONFLICT, live, CONFLICT)
    with pytest.raises(Conflict):
        await apply(client, wanted(policy=policy))
    assert client.answers == []


async def test_a_missing_namespace_is_no_race() -> None:
    client = ScriptedClient(NotFound("POST x", 404, reason="NotFound"))
    with pytest.raises(TargetWriteFailed, match="404"):
        await apply(client, absent=True)


async def test_the_result_holds_metadata_and_no_value() -> None:
    """F8; and it names who else had written the target (C3)."""
    records = [fields("psono-kubernetes-operator", keys=["A"]), fields("bot"), fields("kubectl")]
    found = secret(data={"A": b"0"}, ownerReferences=[OURS], managedFields=records)
    stored = secret(data={"A": b"canary"}, ownerReferences=[OURS], managedFields=records)
    result = await apply(ScriptedClient(found, stored), wanted({"A": b"canary"}))
    assert result.target == {"metadata": stored["metadata"]}
    assert result.managers == ("bot", "kubectl")
    assert "Y2FuYXJ5" not in repr(result)


async def test_dropped_and_taken_keys_are_told() -> None:
    taken_over = await apply(ScriptedClient(secret(data={"A": b"0", "Z": b"z"}), EQUAL))
    assert taken_over.dropped == ("Z",)
    merged = await apply(ScriptedClient(secret(data={"A": b"0", "Z": b"z"}), MERGED), wanted(policy="Merge"))
    assert merged.taken == ("A",)


TERMINATING = Forbidden("POST x", 403, causes=[Cause("NamespaceTerminating", "metadata.namespace")])


@pytest.mark.parametrize(
    ("error", "raised", "words"),
    [
        (TERMINATING, NamespaceTerminating, ["namespace is being deleted"]),
        (Forbidden("POST x", 403), TargetWriteFailed, ["403", "RBAC"]),
        (
            Invalid("POST x", 422, causes=[Cause("FieldValueInvalid", "data[A]")] * 3),
            TargetWriteFailed,
            ["(422, data[A])", "spec.target.type"],
        ),
        (ServerError("POST x", 500, reason="InternalError"), TargetWriteFailed, ["500 InternalError"]),
        (Throttled("POST x", 429), Throttled, []),
        (Unauthorized("POST x", 401), Unauthorized, []),
        (Unreachable("no answer"), Unreachable, []),
    ],
)
async def test_what_the_user_can_mend_is_explained_and_the_rest_is_not(
    error: Exception, raised: type[Exception], words: list[str]
) -> None:
    with pytest.raises(raised) as caught:
        await apply(ScriptedClient(error), absent=True)
    for word in words:
        assert word in str(caught.value)


async def test_a_server_that_quotes_the_object_is_not_quoted() -> None:
    """R2."""
    error: ApiError = Invalid("PATCH x", 422, message="Secret canary is invalid", causes=[])
    with pytest.raises(TargetWriteFailed) as caught:
        await apply(ScriptedClient(MERGED, error), wanted(policy="Merge"))
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None
