"""The Psono double answers as the recorded server did: same status, content type and body."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import aiohttp
import pytest
from nacl.secret import SecretBox
from yarl import URL

from psono_operator.sandbox.psono import ApiKey, PsonoDouble
from tests.psono.recorded import HTTP_CASES
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

SWITCHES: dict[str, Any] = {
    "maintenance mode": lambda double: setattr(double, "maintenance", True),
    "server disabled": lambda double: setattr(double, "disabled", True),
    "throttled read": lambda double: double.throttle(60),
    "throttled inspect": lambda double: double.throttle(60),
    "database down": lambda double: double.fail(500),
}
NOT_IMITATED = ("info", "throttled info", "database down, healthcheck")
GIVEN = (
    "inspect",
    "inspect, unrestricted key",
    "inspect, insecure key",
    "inspect, write only key",
    "inspect, key without rights",
)
"""Need keys with certain rights; compared by shape below."""


REPEATED = [case for case in HTTP_CASES if case["case"] not in NOT_IMITATED + GIVEN]


@pytest.mark.parametrize("case", REPEATED, ids=[case["case"] for case in REPEATED])
async def test_a_recorded_exchange_is_repeated(case: dict[str, Any]) -> None:
    double = PsonoDouble()
    SWITCHES.get(case["case"], lambda _: None)(double)
    asked = case["request"]
    async with double.serve() as server, aiohttp.ClientSession() as session:
        url = URL(server.url + asked["path"], encoded=True)
        async with session.request(
            asked["method"], url, headers=asked["headers"], data=asked["body"], allow_redirects=False
        ) as response:
            assert response.status == case["status"]
            assert await response.text() == case["body"]
            for name, value in case["headers"].items():
                # the kind of an empty answer, and whether a page allows methods, nobody looks at
                if name != "Allow" or asked["path"].startswith("/api"):
                    assert response.headers[name] == value
    assert [request.status for request in double.requests] == [case["status"]]


async def _post(url: str, endpoint: str, **fields: str) -> tuple[int, str, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/api-key-access/{endpoint}/", json=fields) as response,
    ):
        text = await response.text()
        kind = response.headers["Content-Type"]
        return response.status, kind, json.loads(text) if response.status == 200 else text


def _unwrap(key: ApiKey, answer: dict[str, Any]) -> bytes:
    """Both layers, written down a second time."""
    entry_key = SecretBox(bytes.fromhex(key.secret_key_hex)).decrypt(
        bytes.fromhex(answer["secret_key"]), bytes.fromhex(answer["secret_key_nonce"])
    )
    assert len(entry_key) == 64
    assert len(answer["secret_key"]) == 160
    return SecretBox(bytes.fromhex(entry_key.decode())).decrypt(
        bytes.fromhex(answer["data"]), bytes.fromhex(answer["data_nonce"])
    )


async def test_a_read_answers_what_each_key_can_open() -> None:
    double = PsonoDouble()
    first, second = double.add_key(), double.add_key(write=True)
    secret_id = double.add_entry({"note_notes": "é"}, keys=[first, second])
    async with double.serve() as server:
        answers = [
            await _post(server.url, "secret", api_key_id=key.id, secret_id=secret_id)
            for key in (first, second)
        ]
    for key, (status, kind, answer) in zip((first, second), answers, strict=True):
        assert (status, kind) == (200, "application/json; charset=utf-8")
        assert json.loads(_unwrap(key, answer)) == {"note_notes": "é"}
    assert answers[0][2]["data"] == answers[1][2]["data"]
    assert answers[0][2]["secret_key"] != answers[1][2]["secret_key"]
    assert [answer[2]["read_count"] for answer in answers] == [0, 1]


async def test_any_bytes_can_be_an_entry() -> None:
    double = PsonoDouble()
    key = double.add_key()
    secret_id = double.add_entry(b"\xff\x00", [key])
    assert _unwrap(key, double.store.sealed(key.id, secret_id) or {}) == b"\xff\x00"


async def test_an_update_has_a_new_nonce_and_a_new_date_even_while_the_clock_stands() -> None:
    double = PsonoDouble(now=VirtualClock().now)
    key = double.add_key()
    secret_id = double.add_entry({"a": "1"}, [key])
    before, dates = double.store.sealed(key.id, secret_id) or {}, [double.store.report(key.id)]
    double.update_entry(secret_id, {"a": "1"})
    after, dates = double.store.sealed(key.id, secret_id) or {}, [*dates, double.store.report(key.id)]
    assert before["data_nonce"] != after["data_nonce"]
    assert before["secret_key"] == after["secret_key"]
    assert dates[0] != dates[1]


async def test_inspect_answers_json_as_html_in_the_recorded_shape() -> None:
    recorded = json.loads(next(case["body"] for case in HTTP_CASES if case["case"] == "inspect"))
    double = PsonoDouble()
    key = double.add_key(read=False, write=True)
    secret_id = double.add_entry({}, [key])
    async with double.serve() as server:
        status, kind, report = await _post(server.url, "inspect", api_key_id=UUID(key.id).hex.upper())
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert report.keys() == recorded.keys()
    assert (report["read"], report["write"]) == (False, True)
    (listed,) = report["api_key_secrets"]
    assert listed.keys() == recorded["api_key_secrets"][0].keys()
    assert listed["secret_id"] == secret_id
    assert len(listed["write_date"]) == len("2026-11-30T22:01:08.507281+00:00")


async def test_rights_are_changed_and_taken_away() -> None:
    double = PsonoDouble()
    key = double.add_key()
    secret_id = double.add_entry({}, [key])
    refused = (400, "application/json; charset=utf-8", "non_field_errors")

    async def read() -> tuple[int, str, Any]:
        return await _post(server.url, "secret", api_key_id=key.id, secret_id=secret_id)

    async with double.serve() as server:
        assert (await read())[0] == 200
        double.store.change_key(key, read=False)
        assert await read() == refused
        double.store.change_key(key, read=True)
        double.revoke(key, secret_id)
        assert await read() == refused
        double.assign(key, secret_id)
        assert (await read())[0] == 200
        double.store.lose(key, secret_id)
        assert await read() == refused
        double.assign(key, secret_id)
        double.store.delete_key(key)
        assert await read() == refused
        assert (await _post(server.url, "inspect", api_key_id=key.id))[2] == "non_field_errors"


async def test_a_sent_secret_key_opens_only_for_insecure_keys_and_is_noted_without_its_value() -> None:
    double = PsonoDouble()
    secure, insecure = double.add_key(), double.add_key(allow_insecure_access=True)
    secret_id = double.add_entry({"a": "b"}, [secure, insecure])
    async with double.serve() as server:
        answers = [
            await _post(
                server.url,
                "secret",
                api_key_id=key.id,
                secret_id=secret_id,
                api_key_secret_key=key.secret_key_hex,
            )
            for key in (secure, insecure)
        ]
    assert [(status, body) for status, _, body in answers] == [(400, "non_field_errors"), (200, {"a": "b"})]
    assert double.forbidden == ["field api_key_secret_key"] * 2
    journal = repr((double.requests, double.forbidden, secure, insecure))
    assert secure.secret_key_hex not in journal
    assert insecure.secret_key_hex not in journal


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "GET", "OPTIONS"])
async def test_whatever_is_no_read_is_refused_and_noted(method: str) -> None:
    """K9 of the fault log: a run can prove that nothing but reads happened."""
    double = PsonoDouble()
    key = double.add_key(write=True)
    secret_id = double.add_entry({}, [key])
    async with double.serve() as server, aiohttp.ClientSession() as session:
        url = f"{server.url}/api-key-access/secret/"
        body = {"api_key_id": key.id, "secret_id": secret_id}
        async with session.request(method, url, json=body) as response:
            assert response.status in (400, 405)
    assert double.forbidden == [f"{method} /api-key-access/secret/"]


async def test_foreign_headers_are_noted() -> None:
    double = PsonoDouble()
    async with double.serve() as server, aiohttp.ClientSession() as session:
        headers = {"Cookie": "a=b", "Authorization": "Token x"}
        await session.post(f"{server.url}/api-key-access/inspect/", json={}, headers=headers)
    assert double.forbidden == ["header Authorization", "header Cookie"]


async def test_faults_come_and_go() -> None:
    clock = VirtualClock()
    double = PsonoDouble(sleep=clock.sleep)
    key = double.add_key()
    secret_id = double.add_entry({}, [key])
    async with double.serve() as server:

        async def statuses(count: int) -> list[int]:
            calls = [("secret", {"secret_id": secret_id}), ("inspect", {})] * count
            return [(await _post(server.url, name, api_key_id=key.id, **more))[0] for name, more in calls]

        double.throttle(60, after_requests=3)
        assert await statuses(3) == [200, 200, 200, 429, 429, 429]
        double.throttle(None)
        double.fail(404, endpoint="inspect")
        assert await statuses(2) == [200, 404, 200, 404]
        double.fail(503, times=1)
        assert await statuses(1) == [503, 200]
        double.disabled = True
        assert await statuses(1) == [423, 423]
        double.heal()
        double.delay_seconds = 30
        begun = clock.monotonic()
        assert await statuses(1) == [200, 200]
        assert clock.monotonic() - begun == pytest.approx(60, abs=1)
    assert double.count("inspect") == 8
    assert double.count("read") == 8


async def test_the_same_randomness_gives_the_same_server() -> None:
    def made() -> tuple[ApiKey, str, object]:
        counter = iter(range(1000))
        double = PsonoDouble(
            now=VirtualClock().now, random_bytes=lambda size: next(counter).to_bytes(size, "big")
        )
        key = double.add_key()
        secret_id = double.add_entry({"a": "b"}, [key])
        return key, secret_id, double.store.sealed(key.id, secret_id)

    assert made() == made()
