"""What answers mean: every kind of refusal, Retry-After in its forms, and bodies nobody expects."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.psono.answers import Answer, KeyReport, inspect_answer, read_answer
from psono_operator.psono.errors import (
    Maintenance,
    Meaning,
    ProtocolError,
    Refused,
    RemoteError,
    ServerFault,
    Throttled,
    Unreachable,
)
from psono_operator.psono.sealed import SealedEntry
from tests.psono.recorded import assert_value_free

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
CANARY = "cAnArY-77"
GOOD = {"data": "00", "data_nonce": "01", "secret_key": "02", "secret_key_nonce": "03", "read_count": 1}
REPORT = {
    "allow_insecure_access": False,
    "restrict_to_secrets": True,
    "read": True,
    "write": False,
    "api_key_secrets": [
        {"secret_id": "B3DE3933FD0F4A17B8DBCB0E2AE66398", "write_date": "2026-11-30T22:01:08.507281+00:00"}
    ],
}


def refusal(
    status: int,
    body: bytes = b"",
    retry_after: str | None = None,
    meaning: Callable[[Answer, Callable[[], datetime]], object] = read_answer,
) -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        meaning(Answer(status, retry_after, body + CANARY.encode() if status != 400 else body), lambda: NOW)
    assert_value_free(caught.value, CANARY)
    assert caught.value.__context__ is None
    return caught.value


@pytest.mark.parametrize(
    ("body", "on_read", "on_inspect"),
    [
        (b"non_field_errors", Meaning.READ, Meaning.INSPECT),
        (b'{"non_field_errors": ["NO_PERMISSION_OR_NOT_EXIST"]}', Meaning.READ, Meaning.INSPECT),
        (b"api_key_id", Meaning.API_KEY_ID, Meaning.API_KEY_ID),
        (b"secret_id", Meaning.SECRET_ID, Meaning.SECRET_ID),
        (b"api_key_idsecret_id", Meaning.BOTH_IDS, Meaning.BOTH_IDS),
        (b'{"secret_id": ["x"], "api_key_id": ["x"]}', Meaning.BOTH_IDS, Meaning.BOTH_IDS),
        (b"400 Bad Request", Meaning.REQUEST, Meaning.REQUEST),
    ],
)
def test_a_bare_400_is_explained_with_all_that_it_can_mean(
    body: bytes, on_read: Meaning, on_inspect: Meaning
) -> None:
    for meaning, expected in ((read_answer, on_read), (inspect_answer, on_inspect)):
        error = refusal(400, body, meaning=meaning)
        assert isinstance(error, Refused)
        assert (error.status, error.meaning) == (400, expected)
        assert expected in str(error)


@pytest.mark.parametrize(
    "body", [b"", b"<html>Bad Request (400)</html>", CANARY.encode(), b"[]", b"null", b"{}"]
)
def test_a_400_of_another_kind_is_not_psonos(body: bytes) -> None:
    error = refusal(400, body)
    assert isinstance(error, ProtocolError)
    assert error.status == 400
    assert "ALLOWED_HOSTS" in str(error)


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (201, ProtocolError, "server URL"),
        (204, ProtocolError, "server URL"),
        (301, ProtocolError, "redirects"),
        (302, ProtocolError, "server URL"),
        (308, ProtocolError, "server URL"),
        (401, Refused, "login"),
        (403, Refused, "Authorization"),
        (404, ProtocolError, "/server"),
        (405, ProtocolError, "server URL"),
        (406, ProtocolError, "server URL"),
        (407, Unreachable, "proxy"),
        (415, ProtocolError, "server URL"),
        (423, Maintenance, "maintenance"),
        (429, Throttled, "60 s"),
        (500, ServerFault, "500"),
        (502, ServerFault, "502"),
        (503, ServerFault, "503"),
        (599, ServerFault, "599"),
    ],
)
def test_a_status_has_its_error_and_a_hint(status: int, kind: type[RemoteError], hint: str) -> None:
    error = refusal(status, b"<html>")
    assert type(error) is kind
    assert hint in str(error)


def test_a_disabled_server_is_told_from_maintenance() -> None:
    error = refusal(423, b'{"non_field_errors": ["SERVER_DISABLED"]}')
    assert isinstance(error, Maintenance)
    assert error.disabled


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("60", 60),
        (" 7 ", 7),
        ("0", 1),
        ("86400", 3600),
        ("9" * 5000, 3600),
        ("Tue, 01 Dec 2026 12:02:00 GMT", 120),
        ("Tue, 01 Dec 2026 12:02:00 -0000", 120),
        ("Tue, 01 Dec 2026 13:02:00 +0100", 120),
        ("Tue, 01 Dec 2026 11:00:00 GMT", 1),
        ("Fri, 01 Jan 2100 00:00:00 GMT", 3600),
        ("soon", 60),
        ("-5", 60),
        ("1.5", 60),
        ("٣", 60),
        ("Tue, 41 Dec 2026 99:00:00 GMT", 60),
        ("", 60),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_capped_at_an_hour(
    status: int, header: str, seconds: float
) -> None:
    """Rule M1."""
    error = refusal(status, retry_after=header)
    assert isinstance(error, Throttled)
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        (b"", "no JSON"),
        (b"  <!doctype html>", "web page"),
        (b'{"data": ', "no JSON"),
        (b"[]", "no object"),
        (b"null", "no object"),
        (b"\xff\xfe", "no JSON"),
        (b"{}", "no encrypted entry"),
        (json.dumps({**GOOD, "data": None}).encode(), "no encrypted entry"),
        (json.dumps({**GOOD, "data_nonce": 1}).encode(), "no encrypted entry"),
        (json.dumps({"website_password_password": CANARY}).encode(), "Allow insecure usage"),
    ],
)
def test_a_200_without_the_four_texts_is_refused(body: bytes, hint: str) -> None:
    """Quirk Q19: plaintext is refused as well."""
    with pytest.raises(ProtocolError, match=hint) as caught:
        read_answer(Answer(200, None, body), lambda: NOW)
    assert_value_free(caught.value, CANARY)


def test_a_report_names_entries_by_their_canonical_id() -> None:
    report = inspect_answer(Answer(200, None, json.dumps(REPORT).encode()), lambda: NOW)
    dates = {"b3de3933-fd0f-4a17-b8db-cb0e2ae66398": "2026-11-30T22:01:08.507281+00:00"}
    assert report == KeyReport(
        allow_insecure_access=False, restrict_to_secrets=True, read=True, write=False, write_dates=dates
    )


@pytest.mark.parametrize(
    "change",
    [
        {"read": 1},
        {"write": None},
        {"api_key_secrets": None},
        {"api_key_secrets": [1]},
        {"api_key_secrets": [{"secret_id": "nope", "write_date": "x"}]},
        {"api_key_secrets": [{"secret_id": "b3de3933-fd0f-4a17-b8db-cb0e2ae66398"}]},
        {"api_key_secrets": [{"write_date": "x"}]},
    ],
)
def test_half_a_report_is_none(change: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        inspect_answer(Answer(200, None, json.dumps({**REPORT, **change}).encode()), lambda: NOW)


bodies = st.binary() | st.builds(
    lambda change: json.dumps({**GOOD, **REPORT, **change}).encode(),
    st.dictionaries(
        st.sampled_from([*GOOD, *REPORT]), st.none() | st.text() | st.integers() | st.just(CANARY)
    ),
)


@given(st.sampled_from([200, 400, 423]) | st.integers(100, 599), st.none() | st.text(max_size=30), bodies)
def test_any_answer_gives_a_value_or_a_clean_error(status: int, retry_after: str | None, body: bytes) -> None:
    answer = Answer(status, retry_after, body + (CANARY.encode() if body.endswith(b"}") is False else b""))
    for meaning, kind in ((read_answer, SealedEntry), (inspect_answer, KeyReport)):
        try:
            assert isinstance(meaning(answer, lambda: NOW), kind)
        except RemoteError as error:
            assert_value_free(error, CANARY)
