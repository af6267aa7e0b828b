"""The error tree: which class, and what it may say."""

from __future__ import annotations

import traceback

import pytest

from psono_operator.runtime.errors import (
    MESSAGE_LIMIT,
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    Throttled,
    Unauthorized,
    error_from_status,
)

CANARY = "c4n4ry-value"


def status(reason: str = "", message: str = "", **details: object) -> dict[str, object]:
    return {"kind": "Status", "reason": reason, "message": message, "details": details}


@pytest.mark.parametrize(
    ("code", "reason", "retry_after", "expected"),
    [
        (400, "BadRequest", None, BadRequest),
        (401, "Unauthorized", None, Unauthorized),
        (403, "Forbidden", None, Forbidden),
        (404, "NotFound", None, NotFound),
        (405, "MethodNotAllowed", None, ApiError),
        (409, "AlreadyExists", None, AlreadyExists),
        (409, "Conflict", None, Conflict),
        (409, "", None, Conflict),
        (410, "Expired", None, Gone),
        (422, "Invalid", None, Invalid),
        (429, "TooManyRequests", None, Throttled),
        (500, "InternalError", None, ServerError),
        (503, "ServiceUnavailable", None, ServerError),
        (503, "ServiceUnavailable", 2.0, Throttled),
        (504, "Timeout", None, ServerError),
        (599, "", None, ServerError),
    ],
)
def test_the_class_follows_from_code_and_reason(
    code: int, reason: str, retry_after: float | None, expected: type[ApiError]
) -> None:
    error = error_from_status("GET /x", code, status(reason), retry_after=retry_after)
    assert type(error) is expected
    assert (error.code, error.reason, error.retry_after) == (code, reason, retry_after)


def test_a_message_names_request_code_reason_and_the_servers_words() -> None:
    error = error_from_status("GET /api/v1/pods", 403, status("Forbidden", "no rights"))
    assert str(error) == "GET /api/v1/pods answered 403 Forbidden: no rights"


@pytest.mark.parametrize(
    "body", [None, [], "text", 5, {"kind": "Pod", "message": CANARY}, {"message": CANARY}]
)
def test_a_body_that_is_no_status_is_not_quoted(body: object) -> None:
    """F8: kept only if ``kind`` is Status."""
    error = error_from_status("GET /x", 500, body)
    assert str(error) == "GET /x answered 500"


def test_a_sensitive_status_keeps_code_reason_and_causes_only() -> None:
    """F8, R2: a 422 on a Secret quotes the whole object, in the message and in the causes' messages."""
    cause = {"reason": "FieldValueInvalid", "field": "data[key]", "message": CANARY}
    body = status("Invalid", f"Secret is invalid: {CANARY}", causes=[cause, cause], name=CANARY)
    error = error_from_status("PATCH /x", 422, body, sensitive=True)
    assert str(error) == "PATCH /x answered 422 Invalid: data[key] FieldValueInvalid"
    assert len(error.causes) == 1, "repeated causes are told once (R6)"
    shown = "".join([str(error), repr(error), repr(error.__dict__), *traceback.format_exception(error)])
    assert CANARY not in shown


def test_a_long_message_is_cut() -> None:
    """F8: truncated."""
    assert len(error_from_status("GET /x", 500, status("", "x" * 10_000)).message) == MESSAGE_LIMIT


def test_retry_after_may_come_from_the_details() -> None:
    """M1: ``details.retryAfterSeconds``; the header wins."""
    body = status("TooManyRequests", retryAfterSeconds=3)
    assert error_from_status("GET /x", 429, body).retry_after == 3.0
    assert error_from_status("GET /x", 429, body, retry_after=7.0).retry_after == 7.0


@pytest.mark.parametrize(
    "details", [None, 5, {"causes": 5}, {"causes": [5]}, {"causes": [{"reason": 5, "field": None}]}]
)
def test_odd_details_do_no_harm(details: object) -> None:
    body = {"kind": "Status", "reason": 7, "message": None, "details": details}
    assert isinstance(error_from_status("GET /x", 404, body), NotFound)


def test_a_terminating_namespace_is_told_from_other_refusals() -> None:
    """H6."""
    terminating = status(
        "Forbidden", causes=[{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]
    )
    assert error_from_status("POST /x", 403, terminating).namespace_terminating
    assert not error_from_status("POST /x", 403, status("Forbidden")).namespace_terminating


@pytest.mark.parametrize(("asked", "seconds"), [(3, 3.0), (-5, 0.0), (10**400, 86400.0)])
def test_no_number_in_a_status_makes_a_wait_that_never_ends(asked: int, seconds: float) -> None:
    """M1."""
    error = error_from_status("GET /x", 429, status("TooManyRequests", retryAfterSeconds=asked))
    assert error.retry_after == seconds
