"""The API server is away, mute, frozen or does not know us any more; then it is back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import trustme

from tests.behaviour.world import World, behaviour_with
from tests.faultproxy.exchange import Exchange, Proceed
from tests.faultproxy.faults import Answer, BlackHole
from tests.faults.stage import (
    PSONO_SECRETS,
    SECRETS,
    in_a_pod,
    live,
    probe,
    proxied,
    ready,
    synced,
    until,
    watching,
)

KINDS = {"refused": "down", "mute": "dark"}


@behaviour_with(only="sandbox", start=False)
@pytest.mark.parametrize("kind", KINDS)
async def test_ten_minutes_without_an_api_server(world: World, kind: str) -> None:
    """Fault E8, N3, N4: readiness tells the truth, liveness holds, and each watch is back within 30 s.

    A server that answers no packet is given the time of one request on top.
    """
    async with proxied(world) as proxy:
        entry = world.entry(A="canary-a")
        await world.create(entry, "A", refreshInterval="24h")
        await world.ready()
        await watching(proxy)
        assert await ready(world)
        await getattr(proxy, KINDS[kind])()
        told = await until(lambda: not_ready(world), 5 if kind == "refused" else 240 + 30, why="not ready")
        for _ in range(60):
            await asyncio.sleep(10)
            assert await live(world)
            assert not await ready(world), "nothing is known of the cluster"
        status, text = await probe(world, "/readyz?verbose")
        assert status == 503
        assert "[-]informer-psonosecrets failed" in text
        assert "[-]informer-secrets failed" in text
        await world.create(entry, "A", name="late", target="late")
        seen = len(proxy.seen)
        await proxy.up()
        limit = 30 if kind == "refused" else 60
        await until(lambda: watched_again(proxy.seen[seen:]), limit, why="both watches are back")
        await synced(world, 5, "late")
        assert await until(lambda: ready(world), 5) <= 5
        assert told >= 0
        assert world.psono.count("read") == 2


async def not_ready(world: World) -> bool:
    return not await ready(world)


async def watched_again(seen: list[Exchange]) -> bool:
    watches = {each.path.rsplit("/", 1)[-1] for each in seen if each.method == "WATCH" and each.status == 200}
    return watches == {"psonosecrets", "secrets"}


@behaviour_with(only="sandbox", start=False)
@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "*/secrets/*"), ("POST", "*/secrets"), ("PATCH", "*/status"), ("GET", "*/psonosecrets")],
)
async def test_a_call_that_is_never_answered_costs_its_deadline_and_no_more(
    world: World, method: str, path: str, sent: bool
) -> None:
    """B6, M3: whether it was carried out or not, the end is the same and nothing is made twice."""
    async with proxied(world, start=False) as proxy:
        rule = proxy.on(method, path).do(BlackHole(sent=sent), times=1)
        entry = world.entry(A="canary-a")
        await world.create(entry, "A")
        world.start()
        took = await synced(world, 30 + 5)
        assert rule.hits == 1
        if not (sent and path == "*/status"):  # else all there is to see was done
            assert took >= 29
        assert await world.data() == {"A": "canary-a"}
        posts = proxy.sent("POST", "*/secrets")
        assert len([each for each in posts if each.status == 201]) == 1


@behaviour_with(only="sandbox", start=False)
async def test_an_api_server_that_stood_still_for_a_minute(world: World) -> None:
    """Everything that was under way ends well or is tried again."""
    async with proxied(world) as proxy:
        entry = world.entry(A="canary-a")
        await world.create(entry, "A", refreshInterval="24h")
        await world.ready()
        await watching(proxy)
        proxy.freeze()
        await world.create(entry, "A", name="late", target="late")
        await world.delete(world.secrets_path("db"))
        await asyncio.sleep(60)
        assert await live(world)
        proxy.thaw()
        await synced(world, 5, "late")
        await world.target({"A": "canary-a"})
        assert await ready(world)


@behaviour_with(only="sandbox", start=False)
async def test_an_hour_of_401_is_no_reason_to_end_and_its_end_is_noticed(
    world: World, tmp_path: Path
) -> None:
    """L1, N3, faults F2: the token is refused; nothing exits; the new one is used within half a minute."""
    async with in_a_pod(world, tmp_path) as (proxy, account):
        good = {"token-1"}

        async def authenticate(exchange: Exchange, proceed: Proceed) -> None:
            known = exchange.head.get("authorization").removeprefix("Bearer ") in good
            await (proceed() if known else Answer(401, "Unauthorized")(exchange, proceed))

        proxy.on("*").do(authenticate)
        entry = world.entry(A="canary-a")
        await world.create(entry, "A", refreshInterval="24h")
        await world.ready()
        good.clear()
        for each in proxy.open():
            each.abandon()
        await asyncio.sleep(60)
        before = len(proxy.seen)
        for _ in range(60):
            await asyncio.sleep(60)
            assert await live(world)
            assert not await ready(world)
        assert len(proxy.seen) - before <= 2 * 2 * 3600 / 15, "two watches with a backoff"
        account.write(token="token-2")
        good.add("token-2")
        await world.create(entry, "A", name="late", target="late")
        await synced(world, 35, "late")
        await until(lambda: ready(world), 30)


@behaviour_with(only="sandbox", start=False)
async def test_a_rotated_token_costs_one_repeated_request(world: World, tmp_path: Path) -> None:
    """L1: a 401 makes the file be read at once, and the request is sent again."""
    async with in_a_pod(world, tmp_path) as (proxy, account):
        good = {"token-1"}

        async def authenticate(exchange: Exchange, proceed: Proceed) -> None:
            known = exchange.head.get("authorization").removeprefix("Bearer ") in good
            await (proceed() if known else Answer(401, "Unauthorized")(exchange, proceed))

        proxy.on("*").do(authenticate)
        await watching(proxy)
        account.write(token="token-2\n")
        good.clear()
        good.add("token-2")
        await world.create(world.entry(A="canary-a"), "A")
        await synced(world, 2)
        assert len([each for each in proxy.seen if each.status == 401]) <= 2


@behaviour_with(only="sandbox", start=False)
async def test_a_new_certificate_authority_is_trusted_without_a_restart(world: World, tmp_path: Path) -> None:
    """L2, fault K6: certificate and bundle are swapped; new connections work, old streams end by themselves."""
    async with in_a_pod(world, tmp_path) as (proxy, account):
        entry = world.entry(A="canary-a")
        await world.create(entry, "A", refreshInterval="24h")
        await world.ready()
        await watching(proxy)
        old = proxy.open()
        successor = trustme.CA()
        account.write(authority=successor)
        proxy.swap_certificate(successor.issue_cert("127.0.0.1"))
        await asyncio.sleep(5)
        assert proxy.open() == old, "nobody tore the streams down"
        for round_ in range(4):
            await asyncio.sleep(120)
            proxy.drop_idle()
            await world.create(entry, "A", name=f"late{round_}", target=f"late{round_}")
            await synced(world, 5 if round_ else 40, f"late{round_}")
        assert set(proxy.open()).isdisjoint(old)
        assert await ready(world)


@behaviour_with(only="sandbox", start=False)
async def test_a_bundle_that_is_no_bundle_changes_nothing(world: World, tmp_path: Path) -> None:
    """L2: the kubelet was caught half way, or somebody edited the ConfigMap."""
    async with in_a_pod(world, tmp_path) as (proxy, account):
        entry = world.entry(A="canary-a")
        await world.create(entry, "A")
        await world.ready()
        for number, content in enumerate(
            [b"", b"-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n"]
        ):
            account.write(authority=content)
            await asyncio.sleep(400)
            for each in proxy.open():
                each.abandon()
            await world.create(entry, "A", name=f"late{number}", target=f"late{number}")
            await synced(world, 5, f"late{number}")
        assert len(proxy.sent("GET", PSONO_SECRETS)) == len(proxy.sent("GET", SECRETS)) == 1
