"""The client against the Psono double: what goes over the wire and what comes back."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
from aiohttp import web

from psono_operator.psono.client import Endpoint
from psono_operator.psono.entry import EnvironmentVariable, FieldPath
from psono_operator.psono.errors import (
    DecryptionError,
    Maintenance,
    Meaning,
    ProtocolError,
    Refused,
    ServerFault,
    Throttled,
    TooLarge,
)
from psono_operator.psono.secretbytes import SecretBytes
from psono_operator.sandbox.psono import ApiKey, PsonoDouble
from tests.psono.recorded import assert_value_free
from tests.psono.wire import KEY_ID, SECRET_ID, ForwardProxy, Observed, client_for, http_server, raw_server
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

ENTRY = {"environment_variables_variables": [{"key": "DB", "value": "wörld 😀"}]}


def unlocking(key: ApiKey) -> SecretBytes:
    return SecretBytes(bytes.fromhex(key.secret_key_hex))


async def test_an_entry_is_read_decrypted_and_selected_from() -> None:
    double = PsonoDouble()
    key = double.add_key()
    secret_id = double.add_entry(ENTRY, [key])
    observed = Observed()
    async with double.serve() as server, client_for(server.url, key, observer=observed) as client:
        sealed = await client.read(secret_id.upper())
    value = sealed.open(unlocking(key)).select(EnvironmentVariable("DB"))
    assert value.reveal() == "wörld 😀".encode()
    assert double.requests == [("read", secret_id, 200)]
    assert double.forbidden == []
    assert [(endpoint, outcome) for endpoint, outcome, _ in observed.calls] == [(Endpoint.READ, "200")]


async def test_a_server_below_a_path_is_found_with_or_without_a_last_slash() -> None:
    double = PsonoDouble(prefix="/server")
    key = double.add_key()
    secret_id = double.add_entry(ENTRY, [key])
    async with double.serve() as server:
        async with client_for(f"{server.url}//", key) as client:
            await client.read(secret_id)
        async with client_for(server.url.removesuffix("/server"), key) as client:
            with pytest.raises(ProtocolError, match="/server"):
                await client.read(secret_id)


async def test_inspect_tells_rights_and_dates_and_an_update_moves_the_date() -> None:
    double = PsonoDouble(now=VirtualClock().now)
    key = double.add_key(allow_insecure_access=True)
    first, second = double.add_entry(ENTRY, [key]), double.add_entry(ENTRY, [key])
    async with double.serve() as server, client_for(server.url, key) as client:
        before = await client.inspect()
        await client.read(first)
        double.update_entry(first, ENTRY)
        after = await client.inspect()
    assert before.allow_insecure_access
    assert before.write_dates.keys() == {first, second}
    assert after.write_dates[first] != before.write_dates[first]
    assert after.write_dates[second] == before.write_dates[second]


async def test_the_request_is_a_post_of_the_two_ids_and_nothing_else() -> None:
    """Wire contract 1: no Authorization, never the secret key."""
    seen: list[tuple[str, str, dict[str, str], object]] = []

    async def record(request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        seen.append((request.method, request.path, headers, json.loads(await request.read())))
        return web.Response(body=b"{}")

    async with http_server(record) as url, client_for(f"{url}/server") as client:
        for call in (client.read(SECRET_ID.replace("-", "").upper()), client.inspect()):
            with pytest.raises(ProtocolError):
                await call
    assert [line[:2] for line in seen] == [
        ("POST", "/server/api-key-access/secret/"),
        ("POST", "/server/api-key-access/inspect/"),
    ]
    assert seen[0][3] == {"api_key_id": KEY_ID, "secret_id": SECRET_ID}
    assert seen[1][3] == {"api_key_id": KEY_ID}
    allowed = {"host", "accept", "content-type", "user-agent", "accept-encoding", "content-length"}
    for _, _, headers, _ in seen:
        assert headers["accept"] == "*/*"
        assert headers["content-type"] == "application/json"
        assert headers.keys() <= allowed


async def test_cookies_are_not_kept() -> None:
    """By way of a proxy, for the host then has a name: cookies of bare addresses nobody keeps anyhow."""
    seen: list[str | None] = []

    async def bake(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Cookie"))
        return web.Response(body=b"{}", headers={"Set-Cookie": "session=1; Path=/"})

    async with http_server(bake) as url, raw_server(ForwardProxy(int(url.rpartition(":")[2])).talk) as port:
        environment = {"HTTP_PROXY": f"http://127.0.0.1:{port}"}
        async with client_for("http://psono.test", environment=environment) as client:
            for _ in range(2):
                with pytest.raises(ProtocolError):
                    await client.read(SECRET_ID)
    assert seen == [None, None]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    seen: list[str] = []

    async def redirect(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(status=status, headers={"Location": "/canary-7/"})

    async with http_server(redirect) as url, client_for(url) as client:
        with pytest.raises(
            ProtocolError, match="redirects, which is not followed; check the server URL"
        ) as caught:
            await client.read(SECRET_ID)
    assert seen == ["/api-key-access/secret/"]
    assert caught.value.status == status
    assert_value_free(caught.value, "/canary-" + "7/")


async def test_a_netrc_for_the_host_is_ignored(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule L4: a password from there would be an Authorization header, which Psono answers with 403."""
    netrc = tmp_path_factory.mktemp("home") / ".netrc"
    netrc.write_text("machine 127.0.0.1 login user password canary\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(netrc.parent))
    double = PsonoDouble()
    key = double.add_key()
    secret_id = double.add_entry(ENTRY, [key])
    async with double.serve() as server, client_for(server.url, key) as client:
        await client.read(secret_id)
    assert double.forbidden == []


async def test_the_processs_own_proxy_variables_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    double = PsonoDouble()
    key = double.add_key()
    async with double.serve() as server, client_for(server.url, key) as client:
        await client.inspect()


async def test_every_reason_to_refuse_looks_the_same_on_read_and_only_the_key_shows_on_inspect() -> None:
    """Wire contract 3 and 4."""
    double = PsonoDouble()
    good, entry_of = double.add_key(), double.add_key()
    secret_id = double.add_entry(ENTRY, [good, entry_of])
    lost = double.add_entry(ENTRY, [good])
    double.store.lose(good, lost)
    for key, wanted, listed in (
        (good, double.add_entry(ENTRY), True),
        (good, SECRET_ID, True),
        (good, lost, True),
        (_keyed(double, secret_id, read=False), secret_id, True),
        (_keyed(double, secret_id, active=False), secret_id, False),
        (_keyed(double, secret_id, owner_active=False), secret_id, False),
        (ApiKey(KEY_ID, "00" * 32), secret_id, False),
    ):
        async with double.serve() as server, client_for(server.url, key) as client:
            with pytest.raises(Refused) as refused:
                await client.read(wanted)
            assert refused.value.meaning is Meaning.READ
            if listed:
                assert (await client.inspect()).write_dates
            else:
                with pytest.raises(Refused) as refused:
                    await client.inspect()
                assert refused.value.meaning is Meaning.INSPECT


def _keyed(double: PsonoDouble, secret_id: str, **rights: bool) -> ApiKey:
    key = double.add_key(**rights)
    double.assign(key, secret_id)
    return key


async def test_an_id_that_is_no_uuid_is_named_by_the_server() -> None:
    double = PsonoDouble()
    async with double.serve() as server, client_for(server.url, double.add_key()) as client:
        with pytest.raises(Refused) as refused:
            await client.read("nope")
    assert refused.value.meaning is Meaning.SECRET_ID


async def test_the_right_entry_with_a_wrong_secret_key_is_a_decryption_error() -> None:
    double = PsonoDouble()
    key = double.add_key()
    secret_id = double.add_entry(ENTRY, [key])
    async with double.serve() as server, client_for(server.url, key) as client:
        sealed = await client.read(secret_id)
    with pytest.raises(DecryptionError):
        sealed.open(SecretBytes(bytes(32)))


async def test_plaintext_from_the_server_is_refused() -> None:
    """Quirk Q19."""
    double = PsonoDouble()
    key = double.add_key(allow_insecure_access=True)
    canary = "pLaIn" + "-canary"
    secret_id = double.add_entry({"note_notes": canary}, [key])
    double.answers_plaintext = True
    async with double.serve() as server, client_for(server.url, key) as client:
        with pytest.raises(ProtocolError, match="Allow insecure usage") as caught:
            await client.read(secret_id)
    assert_value_free(caught.value, canary)


async def test_throttling_maintenance_and_failure_have_their_errors() -> None:
    """D2 and D5 of the fault log need them apart."""
    double = PsonoDouble()
    key = double.add_key()
    secret_id = double.add_entry(ENTRY, [key])
    observed = Observed()
    async with double.serve() as server, client_for(server.url, key, observer=observed) as client:
        double.throttle(86400, after_requests=1)
        await client.read(secret_id)
        with pytest.raises(Throttled) as throttled:
            await client.inspect()
        assert throttled.value.retry_after == 3600
        double.heal()
        double.maintenance = True
        with pytest.raises(Maintenance):
            await client.read(secret_id)
        double.heal()
        double.fail(500, times=1)
        with pytest.raises(ServerFault):
            await client.read(secret_id)
        await client.read(secret_id)
    assert [outcome for _, outcome, _ in observed.calls] == ["200", "429", "423", "500", "200"]


async def test_an_answer_over_the_cap_is_refused_and_one_below_is_read() -> None:
    double = PsonoDouble()
    key = double.add_key()
    secret_id = double.add_entry({"note_notes": "x" * 400_000}, [key])
    async with double.serve() as server:
        async with client_for(server.url, key, body_cap=1_000_000) as client:
            sealed = await client.read(secret_id)
            assert len(sealed.open(unlocking(key)).select(FieldPath("note_notes")).reveal()) == 400_000
            double.oversized_body = 1_000_001
            with pytest.raises(TooLarge, match="1000000 bytes"):
                await client.read(secret_id)
        async with client_for(server.url, key) as client:
            double.oversized_body = 8 * 1024 * 1024 + 1
            with pytest.raises(TooLarge):
                await client.read(secret_id)


async def test_an_honest_compressed_answer_is_read() -> None:
    double = PsonoDouble()
    key = double.add_key()
    body = gzip.compress(json.dumps(double.store.report(key.id)).encode())

    async def compressed(request: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async with http_server(compressed) as url, client_for(url, key) as client:
        assert (await client.inspect()).read


async def test_a_huge_refusal_is_still_a_refusal() -> None:
    async def huge(request: web.Request) -> web.Response:
        return web.Response(status=502, body=bytes(1 << 20))

    async with http_server(huge) as url, client_for(url) as client:
        with pytest.raises(ServerFault, match="502"):
            await client.read(SECRET_ID)


async def test_a_cancelled_call_is_cancelled_and_leaves_the_client_usable() -> None:
    double = PsonoDouble(sleep=asyncio.sleep)
    key = double.add_key()
    double.delay_seconds = 20
    observed = Observed()
    async with double.serve() as server, client_for(server.url, key, observer=observed) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await client.inspect()
        double.heal()
        await client.inspect()
    assert [outcome for _, outcome, _ in observed.calls] == ["CancelledError", "200"]
