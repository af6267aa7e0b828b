"""The recorded exchanges, replayed by a server on the loopback interface, for read and for inspect."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from psono_operator.psono.errors import (
    Maintenance,
    Meaning,
    ProtocolError,
    Refused,
    RemoteError,
    ServerFault,
    Throttled,
)
from tests.psono.recorded import HTTP_CASES, assert_value_free
from tests.psono.wire import KEY_ID, SECRET_ID, Observed, client_for, http_server

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

BY_BODY = {
    "api_key_id": Meaning.API_KEY_ID,
    "secret_id": Meaning.SECRET_ID,
    "api_key_idsecret_id": Meaning.BOTH_IDS,
    "400 Bad Request": Meaning.REQUEST,
}
BY_STATUS: dict[int, type[RemoteError]] = {
    301: ProtocolError,
    403: Refused,
    404: ProtocolError,
    405: ProtocolError,
    406: ProtocolError,
    415: ProtocolError,
    423: Maintenance,
    429: Throttled,
    500: ServerFault,
}


def expected(case: dict[str, Any], endpoint: str) -> tuple[type[RemoteError] | None, Meaning | None]:
    """The error, and for a refusal its meaning, that ``case`` is when it answers a call to ``endpoint``."""
    status, body = case["status"], case["body"]
    if status == 200:
        return (None if endpoint == "inspect" and "api_key_secrets" in body else ProtocolError), None
    if status == 400 and body.startswith("{"):  # the health check's form of a refusal
        return ProtocolError, None
    if status == 400:
        return Refused, BY_BODY.get(body, Meaning.READ if endpoint == "read" else Meaning.INSPECT)
    return BY_STATUS[status], Meaning.FORBIDDEN if status == 403 else None


@pytest.mark.parametrize("endpoint", ["read", "inspect"])
@pytest.mark.parametrize("case", HTTP_CASES, ids=[case["case"] for case in HTTP_CASES])
async def test_a_recorded_exchange_has_its_error(case: dict[str, Any], endpoint: str) -> None:
    async def replay(request: web.Request) -> web.Response:
        return web.Response(status=case["status"], body=case["body"].encode(), headers=case["headers"])

    error_type, meaning = expected(case, endpoint)
    observed = Observed()
    async with http_server(replay) as url, client_for(url, observer=observed) as client:
        call = client.read(SECRET_ID) if endpoint == "read" else client.inspect()
        if error_type is None:
            await call
        else:
            with pytest.raises(RemoteError) as caught:
                await call
            assert type(caught.value) is error_type
            assert getattr(caught.value, "meaning", None) is meaning
            quoted = [case["body"]] if len(case["body"]) > 12 else []
            assert_value_free(caught.value, KEY_ID, SECRET_ID, *quoted)
    status = "ProtocolError" if case["status"] == 200 and error_type else str(case["status"])
    assert [(called, outcome) for called, outcome, _ in observed.calls] == [(endpoint, status)]


async def test_the_inspect_answer_is_read_whatever_its_content_type() -> None:
    case = next(case for case in HTTP_CASES if case["case"] == "inspect, insecure key")

    async def replay(request: web.Request) -> web.Response:
        return web.Response(body=case["body"].encode(), headers=case["headers"])

    async with http_server(replay) as url, client_for(url) as client:
        report = await client.inspect()
    assert report.allow_insecure_access
    assert report.read
    assert not report.write
    assert report.write_dates["90754a8c-2156-4b40-95c6-485bb3e60b7b"] == "2026-11-30T22:01:09.171628+00:00"
    assert len(report.write_dates) == 3
