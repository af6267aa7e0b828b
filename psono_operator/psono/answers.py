"""What an answer of a Psono server means: a value, or a typed error.

Pure: status, Retry-After and body in. Observed on server 7.2.3: refusals are bare words under a JSON
content type, inspect answers JSON as text/html, so bodies are judged by content and never by content type.
A refusal has one form for many reasons. An answer that is not the four encrypted texts is refused even
when it is a value the server decrypted itself (quirk Q19). Nothing of a body goes into an error (rule F8);
Retry-After may be seconds or a date (rule M1). It refuses to know connections and cryptography.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from psono_operator.psono.credentials import canonical_uuid
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
from psono_operator.psono.strictjson import MOST_PARTS, NotJson, NotUtf8, parse_json

RETRY_AFTER_CAP = 3600.0
"""Seconds. A server whose daily budget is spent says 86 400; waiting that long unasked helps nobody."""
RETRY_AFTER_DEFAULT = 60.0
"""Seconds, where the server names no time."""
RETRY_AFTER_LEAST = 1.0
"""Seconds, where the server names a time that is over."""

PROXY_REFUSED = "the proxy refused with {status}; check the proxy's user and rules, or set NO_PROXY"
_CHECK_URL = "check the server URL, its path (such as /server) included"


_READ_PARTS = 1000
"""Members of an entry's answer, which has five."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer whose body has been read. Prints nothing of the body."""

    status: int
    retry_after: str | None = field(repr=False)
    """The header of that name, as sent."""
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyReport:
    """What inspect tells about an API key. Being listed does not mean that an entry can be read."""

    allow_insecure_access: bool
    restrict_to_secrets: bool
    read: bool
    write: bool
    write_dates: dict[str, str]
    """Entry id, lower case with dashes, to the time of its last change, as the server wrote it."""


def read_answer(answer: Answer, now: Callable[[], datetime]) -> SealedEntry:
    """The sealed entry in an answer to a read.

    :raises RemoteError: everything but 200 with the four texts.
    """
    document = _document(answer, now, Meaning.READ)
    parts = [document.get(name) for name in ("data", "data_nonce", "secret_key", "secret_key_nonce")]
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) != len(parts):
        raise ProtocolError(
            answer.status,
            "its answer holds no encrypted entry. The operator never asks for plaintext; "
            'disable "Allow insecure usage" for the API key and ' + _CHECK_URL,
        )
    return SealedEntry(*texts)


def inspect_answer(answer: Answer, now: Callable[[], datetime]) -> KeyReport:
    """The report in an answer to an inspect.

    :raises RemoteError: everything but 200 with a whole report.
    """
    document = _document(answer, now, Meaning.INSPECT)
    names = ("allow_insecure_access", "restrict_to_secrets", "read", "write")
    flags = {name: flag for name in names if isinstance(flag := document.get(name), bool)}
    dates = _write_dates(document.get("api_key_secrets"))
    if len(flags) != len(names) or dates is None:
        raise ProtocolError(answer.status, "its answer is no report about an API key; " + _CHECK_URL)
    return KeyReport(write_dates=dates, **flags)


def _write_dates(listed: object) -> dict[str, str] | None:
    if not isinstance(listed, list):
        return None
    dates: dict[str, str] = {}
    for item in listed:
        entry_id, date = (item.get("secret_id"), item.get("write_date")) if isinstance(item, dict) else (0, 0)
        canonical = canonical_uuid(entry_id) if isinstance(entry_id, str) else None
        if canonical is None or not isinstance(date, str):
            return None
        dates[canonical] = date
    return dates


def _document(answer: Answer, now: Callable[[], datetime], meaning: Meaning) -> dict[str, object]:
    if answer.status != HTTPStatus.OK:
        raise _refusal(answer, now, meaning)
    try:
        most_parts = _READ_PARTS if meaning is Meaning.READ else MOST_PARTS
        document = parse_json(answer.body, most_parts=most_parts)
        problem = "its answer is JSON, but no object"
    except (NotUtf8, NotJson):
        document = None
        html = answer.body.lstrip()[:1] == b"<"
        problem = "its answer is a web page" if html else "its answer is no JSON object"
    if not isinstance(document, dict):
        raise ProtocolError(answer.status, f"{problem}; {_CHECK_URL}")
    return document


def _refusal(answer: Answer, now: Callable[[], datetime], meaning: Meaning) -> RemoteError:
    status = answer.status
    if status == HTTPStatus.BAD_REQUEST:
        return _bad_request(answer.body, meaning)
    if status == HTTPStatus.UNAUTHORIZED:
        return Refused(status, Meaning.LOGIN)
    if status == HTTPStatus.FORBIDDEN:
        return Refused(status, Meaning.FORBIDDEN)
    if status == HTTPStatus.LOCKED:
        return Maintenance(disabled=b"SERVER_DISABLED" in answer.body)
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        return Unreachable(PROXY_REFUSED.format(status=status))
    if status == HTTPStatus.TOO_MANY_REQUESTS or (
        status == HTTPStatus.SERVICE_UNAVAILABLE and answer.retry_after is not None
    ):
        return Throttled(_retry_after(answer.retry_after, now))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServerFault(status)
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return ProtocolError(
            status,
            "it redirects, which is not followed; check the server URL: https or http, host, "
            "and its path (such as /server)",
        )
    if status == HTTPStatus.NOT_FOUND:
        return ProtocolError(status, f"it knows no such address; {_CHECK_URL}")
    return ProtocolError(status, f"it does not take the request; {_CHECK_URL}")


_MEANINGS = {
    b"api_key_id": Meaning.API_KEY_ID,
    b"secret_id": Meaning.SECRET_ID,
    b"api_key_idsecret_id": Meaning.BOTH_IDS,
    b"400 Bad Request": Meaning.REQUEST,
}


def _bad_request(body: bytes, meaning: Meaning) -> RemoteError:
    words = _field_names(body)
    if words == b"non_field_errors":
        return Refused(HTTPStatus.BAD_REQUEST, meaning)
    if words in _MEANINGS:
        return Refused(HTTPStatus.BAD_REQUEST, _MEANINGS[words])
    return ProtocolError(
        HTTPStatus.BAD_REQUEST,
        "its refusal is none of Psono's; if it is Psono, its ALLOWED_HOSTS may lack the host; " + _CHECK_URL,
    )


def _field_names(body: bytes) -> bytes:
    """The names of the refused fields run together, as the server writes them.

    Where a server should come to send the JSON object it means, its names are run together here.
    """
    try:
        document = parse_json(body)
    except (NotUtf8, NotJson):
        return body.strip()
    return "".join(sorted(document)).encode("utf-8", "replace") if isinstance(document, dict) else body


def _retry_after(header: str | None, now: Callable[[], datetime]) -> float:
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        seconds = float(text)
    else:
        try:
            date = parsedate_to_datetime(text)
        except ValueError:
            return RETRY_AFTER_DEFAULT
        seconds = ((date if date.tzinfo else date.replace(tzinfo=UTC)) - now()).total_seconds()
    return min(max(seconds, RETRY_AFTER_LEAST), RETRY_AFTER_CAP)


def request_body(**fields: str) -> bytes:
    """The body of a request: these fields and nothing else, above all no secret key."""
    return json.dumps(fields).encode("ascii")
