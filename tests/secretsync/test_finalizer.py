"""Our own finalizer, and nobody else's (H1, H2)."""

from __future__ import annotations

from typing import Any

import pytest

from psono_operator.api.names import FINALIZER
from psono_operator.runtime.errors import Conflict, Forbidden, Invalid, NotFound, Unreachable
from psono_operator.runtime.resources import key_of
from psono_operator.secretsync.finalizer import (
    FinalizerRefused,
    Vanished,
    add_finalizer,
    finalizer_patch,
    has_finalizer,
    remove_finalizer,
)
from tests.secretsync.fakes import Api
from tests.secretsync.objects import psono_secret

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

OTHERS = ["example.com/first", "example.com/last"]
CONFLICT = Conflict("PATCH x", 409)
DELETING = {"deletionTimestamp": "2026-12-01T12:00:00Z"}


def obj(*finalizers: str, **metadata: Any) -> dict[str, Any]:
    return psono_secret(metadata={"finalizers": list(finalizers), **metadata})


def stored(api: Api) -> list[str]:
    return list(api.cache.objects[key_of(obj())]["metadata"]["finalizers"])


async def test_it_is_added_to_the_others_and_guarded() -> None:
    """H2: the whole list with the version it was read with."""
    api = Api(obj(*OTHERS))
    assert has_finalizer(await add_finalizer(api, obj(*OTHERS)))  # type: ignore[arg-type]
    assert stored(api) == [*OTHERS, FINALIZER]
    assert api.calls == [
        ("patch", {"metadata": {"finalizers": [*OTHERS, FINALIZER], "resourceVersion": "100"}})
    ]


async def test_it_is_added_once() -> None:
    api = Api(obj(FINALIZER))
    await add_finalizer(api, obj(FINALIZER))  # type: ignore[arg-type]
    assert api.calls == []


async def test_it_is_removed_and_the_others_stay() -> None:
    api = Api(obj(OTHERS[0], FINALIZER, OTHERS[1], **DELETING))
    await remove_finalizer(api, obj(OTHERS[0], FINALIZER, OTHERS[1], **DELETING))  # type: ignore[arg-type]
    assert stored(api) == OTHERS


@pytest.mark.parametrize("present", [True, False])
async def test_one_that_another_controller_has_just_added_survives(present: bool) -> None:
    """H2: a second controller adds its own between our read and our write."""
    seen = obj() if present else obj(FINALIZER)
    now = obj(*(() if present else (FINALIZER,)), "example.com/new", resourceVersion="101")
    api = Api(now)
    api.fail["patch"] = [CONFLICT]
    await (add_finalizer if present else remove_finalizer)(api, seen)  # type: ignore[arg-type]
    assert stored(api) == ["example.com/new", *([FINALIZER] if present else [])]


@pytest.mark.parametrize(
    "now",
    [obj(**DELETING), obj(uid="of-its-successor"), None],
    ids=["being deleted", "replaced", "gone"],
)
async def test_nothing_is_added_to_what_is_not_there_any_more(now: Any) -> None:
    """H1, C3: the server would refuse a new finalizer on an object being deleted."""
    api = Api(*([now] if now else []))
    api.fail["patch"] = [CONFLICT]
    with pytest.raises(Vanished):
        await add_finalizer(api, obj())  # type: ignore[arg-type]
    assert api.count("patch") == 1


async def test_an_object_seen_while_it_is_being_deleted_costs_no_request() -> None:
    """H1: created and deleted before it was ever seen."""
    api = Api()
    with pytest.raises(Vanished):
        await add_finalizer(api, obj(**DELETING))  # type: ignore[arg-type]
    assert api.calls == []


@pytest.mark.parametrize("errors", [[NotFound("PATCH x", 404)], [CONFLICT]], ids=["gone", "gone in a race"])
async def test_removing_it_from_what_is_gone_is_fine(errors: list[Exception]) -> None:
    """F4."""
    api = Api()
    api.fail["patch"] = errors
    await remove_finalizer(api, obj(FINALIZER))  # type: ignore[arg-type]


@pytest.mark.parametrize("act", [add_finalizer, remove_finalizer])
async def test_a_race_without_end_is_left_to_the_queue(act: Any) -> None:
    """F3."""
    seen = obj() if act is add_finalizer else obj(FINALIZER)
    api = Api(seen)
    api.fail["patch"] = [CONFLICT] * 3
    with pytest.raises(Conflict):
        await act(api, seen)
    assert api.count("patch") == 3


@pytest.mark.parametrize("act", [add_finalizer, remove_finalizer])
@pytest.mark.parametrize(
    ("error", "word"),
    [(Forbidden("PATCH x", 403), "RBAC"), (Invalid("PATCH x", 422), "CustomResourceDefinition")],
)
async def test_what_a_person_has_to_mend_is_said(act: Any, error: Exception, word: str) -> None:
    seen = obj() if act is add_finalizer else obj(FINALIZER)
    api = Api(seen)
    api.fail["patch"] = [error]
    with pytest.raises(FinalizerRefused, match=word):
        await act(api, seen)


async def test_trouble_with_the_api_server_is_passed_on() -> None:
    api = Api(obj())
    api.fail["patch"] = [Unreachable("no")]
    with pytest.raises(Unreachable):
        await add_finalizer(api, obj())  # type: ignore[arg-type]


async def test_the_patch_holds_the_list_and_the_version_only() -> None:
    assert finalizer_patch(obj(FINALIZER), present=False) == {
        "metadata": {"finalizers": [], "resourceVersion": "100"}
    }
