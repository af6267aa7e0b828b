"""Former targets and finalizers: everything that can be released is, in order, and races are looked at again."""

from __future__ import annotations

from typing import Any

import pytest

from psono_operator.runtime.errors import Forbidden, ServerError, Unreachable
from psono_operator.runtime.resources import ObjectKey
from psono_operator.runtime.store import Store
from psono_operator.secretsync.cleanup import Cleanup
from psono_operator.secretsync.indexes import SECRET_INDEXES
from psono_operator.secretsync.release import Owned
from psono_operator.secretsync.releaser import ReleaseFailed, Releaser
from psono_operator.secretsync.target import Claimant
from tests.secretsync.objects import UID, psono_secret, secret
from tests.secretsync.scriptedclient import CONFLICT, GONE, ScriptedClient
from tests.secretsync.targets import managed

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

CLAIMANT = Claimant("db", UID)
OURS = CLAIMANT.reference()
FORBIDDEN = Forbidden("DELETE x", 403, reason="Forbidden")


def owned(name: str = "old", version: str = "7") -> dict[str, Any]:
    return secret(name, version=version, ownerReferences=[OURS])


def shared(name: str = "old") -> dict[str, Any]:
    return secret(name, annotations=managed({("db", UID): ["A"], ("rival", "uid-9"): ["B"]}))


def releaser(client: ScriptedClient) -> Releaser:
    return Releaser(client)  # type: ignore[arg-type]


def cleanup(client: ScriptedClient, *cached: dict[str, Any]) -> Cleanup:
    store = Store(SECRET_INDEXES)
    store.replace(cached)
    return Cleanup(client, releaser(client), store)  # type: ignore[arg-type]


async def test_a_former_owner_target_is_deleted_as_it_was_seen_and_no_other() -> None:
    """G5: with uid and version; metadata is all that is read."""
    client = ScriptedClient(owned(), None)
    await releaser(client).release(ObjectKey("shop", "old"), CLAIMANT, Owned.DELETE)
    assert client.requests == [("get metadata", "shop/old"), ("delete", "shop/old", "uid-of-old", "7")]


async def test_a_secret_recreated_in_between_is_not_deleted() -> None:
    """G5: the 409 leads to another look, which finds nothing of ours."""
    client = ScriptedClient(owned(), CONFLICT, secret("old", {"A": b"theirs"}))
    await releaser(client).release(ObjectKey("shop", "old"), CLAIMANT, Owned.DELETE)
    assert client.verbs == ["get metadata", "delete", "get metadata"]


@pytest.mark.parametrize("answers", [[GONE], [owned(), GONE]])
async def test_what_is_gone_is_released(answers: list[Any]) -> None:
    """H3."""
    client = ScriptedClient(*answers)
    await releaser(client).release(ObjectKey("shop", "old"), CLAIMANT, Owned.DELETE)
    assert client.answers == []


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (FORBIDDEN, "403"),
        (ServerError("DELETE x", 500, reason="InternalError"), "500 InternalError"),
        (Unreachable("no answer"), "cannot be reached"),
    ],
)
async def test_a_refusal_names_the_secret_and_the_next_step(error: Exception, word: str) -> None:
    client = ScriptedClient(owned(), error)
    with pytest.raises(ReleaseFailed) as caught:
        await releaser(client).release(ObjectKey("shop", "old"), CLAIMANT, Owned.DELETE)
    assert '"old"' in str(caught.value)
    assert word in str(caught.value)


async def test_a_race_without_end_is_a_failure_for_later() -> None:
    """F3."""
    client = ScriptedClient(owned(), CONFLICT, owned(), CONFLICT, owned(), CONFLICT)
    with pytest.raises(ReleaseFailed, match="409"):
        await releaser(client).release(ObjectKey("shop", "old"), CLAIMANT, Owned.DELETE)
    assert client.answers == []


async def test_one_that_cannot_be_released_keeps_no_other() -> None:
    """Three renames while the first is held: the other two go, and the first failure is told."""
    client = ScriptedClient(owned("a"), FORBIDDEN, owned("b"), None, owned("c"), FORBIDDEN)
    keys = [ObjectKey("shop", name) for name in "abc"]
    message = await cleanup(client).release_leftovers(keys, CLAIMANT)
    assert '"a"' in message
    assert [each[1] for each in client.requests if each[0] == "delete"] == ["shop/a", "shop/b", "shop/c"]


async def test_the_finalizer_goes_last() -> None:
    """H1, Q3: first our share in every Secret that has one, then the finalizer."""
    obj = psono_secret(target="new", metadata={"finalizers": ["a/b", "secrets.psono.com/finalizer"]})
    obj["spec"]["target"]["creationPolicy"] = "Merge"
    client = ScriptedClient(shared("new"), shared("new"), shared("old"), shared("old"), obj)
    await cleanup(client, shared("old"), shared("new")).finalize(obj)
    assert [(each[0], each[1]) for each in client.requests] == [
        ("get metadata", "shop/new"), ("patch", "shop/new"),
        ("get metadata", "shop/old"), ("patch", "shop/old"),
        ("patch", "shop/db"),
    ]  # fmt: skip
    assert client.requests[1][2]["metadata"]["annotations"] == managed({("rival", "uid-9"): ["B"]})
    assert "data" not in client.requests[1][2]
    assert client.requests[4][2]["metadata"]["finalizers"] == ["a/b"]


async def test_the_finalizer_stays_while_our_share_cannot_be_removed() -> None:
    obj = psono_secret()
    obj["spec"]["target"]["creationPolicy"] = "Merge"
    client = ScriptedClient(shared("db"), FORBIDDEN)
    with pytest.raises(ReleaseFailed):
        await cleanup(client, shared("db")).finalize(obj)


async def test_an_owner_target_is_left_to_the_garbage_collector() -> None:
    """H4: no delete, no patch but that of the finalizer, so that orphaning works."""
    obj = psono_secret()
    client = ScriptedClient(owned("db"), obj)
    await cleanup(client, owned("db")).finalize(obj)
    assert client.verbs == ["get metadata", "patch"]


async def test_without_our_finalizer_there_is_nothing_to_do() -> None:
    """H1: somebody else's finalizer may keep the object for long."""
    client = ScriptedClient()
    await cleanup(client, owned("db")).finalize(psono_secret(metadata={"finalizers": ["a/b"]}))
    assert client.requests == []


async def test_only_secrets_of_the_own_namespace_are_released() -> None:
    """A uid can be written into any annotation by anybody."""
    obj = psono_secret()
    client = ScriptedClient(obj)
    elsewhere = secret("x", namespace="elsewhere", annotations=managed({("db", UID): ["A"]}))
    await cleanup(client, elsewhere).finalize(obj)
    assert client.verbs == ["patch"]
