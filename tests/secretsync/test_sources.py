"""One source per authentication Secret: kept while it may be, closed when nobody needs it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from typing import Any

import pytest

from psono_operator.api.spec import SecretRef
from psono_operator.psono.errors import CredentialsError, MissingCredential, Role
from psono_operator.runtime.errors import Forbidden, Unreachable
from psono_operator.runtime.resources import ObjectKey
from psono_operator.secretsync.sources import (
    AuthSecretForbidden,
    AuthSecretUnavailable,
    SourceRegistry,
)
from tests.secretsync.fakes import Api
from tests.secretsync.objects import secret
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

REF = SecretRef(name="auth")
DB, WEB = ObjectKey("shop", "db"), ObjectKey("shop", "web")
AUTH = ObjectKey("shop", "auth")


class Source:
    """Knows whether it is open."""

    def __init__(self, credentials: str) -> None:
        self.credentials = credentials
        self.closed = 0

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


class Factory:
    """Credentials are the text under ``key``."""

    def __init__(self) -> None:
        self.opened: list[Source] = []

    def parse(self, data: Mapping[str, bytes], ref: SecretRef) -> str:
        if "key" not in data:
            raise MissingCredential(Role.API_KEY_ID, "key", "is missing; add it")
        return data["key"].decode()

    def same(self, left: str, right: str) -> bool:
        return left == right

    def open(self, credentials: str) -> Any:
        self.opened.append(Source(credentials))
        return self.opened[-1]

    @property
    def open_now(self) -> list[str]:
        return [each.credentials for each in self.opened if not each.closed]


class Stage:
    """A registry, its factory, and an API server whose metadata cache is up to date unless told otherwise."""

    def __init__(self, **values: str) -> None:
        self.api = Api(auth("1", **values))
        self.factory = Factory()
        self.clock = VirtualClock()
        self.registry: SourceRegistry[str] = SourceRegistry(
            self.api,  # type: ignore[arg-type]
            self.api.cache,  # type: ignore[arg-type]
            self.factory,
            self.clock,
        )

    def write(self, version: str, **values: str) -> None:
        self.api.cache.put(auth(version, **values))

    async def number(self, holder: ObjectKey = DB, ref: SecretRef = REF) -> int:
        async with self.registry.lease(holder, ref) as opened:
            assert not opened.source.closed  # type: ignore[attr-defined]
            return opened.number


def auth(version: str, name: str = "auth", **values: str) -> dict[str, Any]:
    return secret(name, {key: value.encode() for key, value in values.items()}, version=version)


async def test_a_version_is_read_once_for_everybody() -> None:
    stage = Stage(key="a")
    stage.api.delay = 1
    numbers = await asyncio.gather(*(stage.number(each) for each in (DB, WEB, ObjectKey("shop", "x"))))
    assert len(set(numbers)) == 1
    assert stage.api.count("get") == 1
    assert stage.factory.open_now == ["a"]


async def test_a_new_version_with_equal_credentials_keeps_source_and_number() -> None:
    """docs/architecture.md: changed credentials cause a read only when the parsed values differ."""
    stage = Stage(key="a")
    before = await stage.number()
    stage.write("2", key="a", label="new")
    assert await stage.number() == before
    stage.write("3", key="b")
    assert await stage.number() != before
    assert stage.factory.open_now == ["b"]


async def test_a_source_in_use_is_closed_when_it_is_given_back() -> None:
    """An authentication Secret that changes or goes while reads run does not break them."""
    stage = Stage(key="a")
    async with stage.registry.lease(DB, REF) as opened:
        stage.write("2", key="b")
        await stage.number(WEB)
        assert stage.factory.open_now == ["a", "b"]
        assert opened.retired
    assert stage.factory.open_now == ["b"]


async def test_a_missing_secret_is_said_at_once_and_found_when_it_is_there() -> None:
    stage = Stage(key="a")
    await stage.number()
    del stage.api.cache.objects[AUTH]
    with pytest.raises(AuthSecretUnavailable, match='"auth" does not exist in namespace "shop"'):
        await stage.number()
    assert stage.factory.open_now == []
    stage.write("9", key="a")
    assert await stage.number() == 2


async def test_a_broken_secret_is_read_once_per_version() -> None:
    stage = Stage(wrong="x")
    for _ in range(3):
        with pytest.raises(CredentialsError):
            await stage.number()
    assert stage.api.count("get") == 1
    stage.write("2", key="a")
    assert await stage.number() == 1


async def test_a_kept_error_holds_no_value() -> None:
    """F8: its traceback would hold the parser's frames, and those the Secret's values."""
    stage = Stage(wrong="canary-value")
    with pytest.raises(CredentialsError):
        await stage.number()
    gc.collect()
    (slot,) = stage.registry._slots.values()
    frames, trace = [], slot.error.__traceback__ if slot.error else None
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "parse" not in frames


async def test_what_may_not_be_read_is_told_apart_from_what_is_missing() -> None:
    """Nothing tells when the right is given, so it is tried again."""
    stage = Stage(key="a")
    stage.api.fail["get"] = [Forbidden("GET x", 403)]
    with pytest.raises(AuthSecretForbidden, match="RBAC"):
        await stage.number()
    assert await stage.number() == 1


async def test_trouble_with_the_api_server_changes_nothing() -> None:
    stage = Stage(key="a")
    before = await stage.number()
    stage.write("2", key="b")
    stage.api.fail["get"] = [Unreachable("no answer")]
    with pytest.raises(Unreachable):
        await stage.number()
    assert stage.factory.open_now == ["a"]
    assert await stage.number() == before + 1


async def test_the_last_holder_takes_the_source_along() -> None:
    """C3, fault G4: nothing is kept for a PsonoSecret that is gone."""
    stage = Stage(key="a")
    for holder in (DB, WEB):
        await stage.number(holder)
    await stage.registry.forget(DB)
    assert stage.factory.open_now == ["a"]
    await stage.registry.forget(WEB)
    await stage.registry.forget(WEB)
    assert (stage.factory.open_now, len(stage.registry)) == ([], 0)


async def test_who_switches_the_authentication_secret_lets_go_of_the_first() -> None:
    """No source stays open for a reference that nobody has any more."""
    stage = Stage(key="a")
    stage.api.cache.put(auth("5", "other", key="b"))
    await stage.number()
    await stage.number(ref=SecretRef(name="other"))
    assert stage.factory.open_now == ["b"]
    await stage.number(ref=SecretRef.model_validate({"name": "other", "apiKeyIdKey": "id"}))
    assert len(stage.registry) == 1


async def test_one_who_goes_while_another_begins_closes_nothing_that_is_needed() -> None:
    """A race: the last holder is forgotten while a new one waits for the Secret."""
    stage = Stage(key="a")
    await stage.number(DB)
    stage.write("2", key="a")
    stage.api.delay = 1
    waiting = asyncio.create_task(stage.number(WEB))
    await asyncio.sleep(0.5)
    await asyncio.gather(stage.registry.forget(DB), stage.registry.forget(DB))
    assert await waiting == 1
    assert stage.factory.open_now == ["a"]


@pytest.mark.parametrize("turns", range(12))
async def test_a_cut_at_any_await_leaves_nothing_half_changed(turns: int) -> None:
    """F6."""
    stage = Stage(key="a")
    await stage.number()
    stage.write("2", key="b")
    task = asyncio.create_task(stage.number())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert await stage.number() == 2
    stage.write("3", key="c")
    assert await stage.number() == 3
    assert stage.factory.open_now == ["c"]
    await stage.registry.close()
    assert stage.factory.open_now == []


async def test_the_end_closes_everything() -> None:
    stage = Stage(key="a")
    async with stage.registry.lease(DB, REF):
        await stage.registry.close()
        assert stage.factory.open_now == ["a"]
    assert stage.factory.open_now == []
    assert len(stage.registry) == 0
