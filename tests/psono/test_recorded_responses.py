"""All recorded responses of a real server, from body to selected value, in one table.

The stages, their order and the selection rules are those of ``tests/data/psono/README.md``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from psono_operator.psono.answers import Answer, read_answer
from psono_operator.psono.credentials import CredentialKeys, parse_credentials
from psono_operator.psono.entry import Entry, EnvironmentVariable, FieldPath, Selector
from psono_operator.psono.errors import (
    DecryptionError,
    ExtractionError,
    InvalidCredential,
    ProtocolError,
    PsonoError,
    Role,
)
from psono_operator.psono.secretbytes import SecretBytes
from tests.psono.recorded import RESPONSES, assert_value_free

SELECTORS: dict[str, Callable[[str], Selector]] = {
    "environmentVariable": EnvironmentVariable,
    "field": FieldPath,
}


def api_secret_key(recorded: dict[str, Any]) -> SecretBytes:
    data = {
        "serverUrl": b"https://psono.example",
        "apiKeyId": recorded["api_key_id"].encode(),
        "apiSecretKey": recorded["api_secret_key_hex"].encode(),
    }
    return parse_credentials(data, CredentialKeys()).api_secret_key


def opened(recorded: dict[str, Any]) -> Entry:
    answer = Answer(200, None, recorded["response_body"].encode())
    sealed = read_answer(answer, lambda: datetime.now(UTC))
    return sealed.open(api_secret_key(recorded))


def stage(error: PsonoError) -> str:
    if isinstance(error, DecryptionError):
        return error.stage
    if isinstance(error, ProtocolError):
        return (
            "response_shape"
            if "encrypted" in str(error) or "no object" in str(error)
            else "response_not_json"
        )
    assert isinstance(error, InvalidCredential)
    assert error.role is Role.API_SECRET_KEY
    return "api_secret_key_form"


def test_all_66_are_here() -> None:
    assert len(RESPONSES) == 66


@pytest.mark.parametrize("name", RESPONSES)
def test_a_recorded_response_gives_what_it_must(name: str) -> None:
    recorded = RESPONSES[name]
    expected_error = recorded["expected_error"]
    try:
        entry = opened(recorded)
    except PsonoError as error:
        assert expected_error in (stage(error), "either")
        plaintext = bytes.fromhex(recorded.get("expected_plaintext_hex") or "").decode("utf-8", "replace")
        ids = (recorded["api_secret_key_hex"], recorded["api_key_id"])
        assert_value_free(error, *ids, *pieces(recorded["response_body"]), *pieces(plaintext))
        return
    assert expected_error in (None, "either")
    check_plaintext(entry, recorded)
    check_selections(entry, recorded)


def pieces(text: str) -> list[str]:
    return [text[position : position + 16] for position in range(0, min(len(text) - 15, 3200), 16)]


def check_plaintext(entry: Entry, recorded: dict[str, Any]) -> None:
    if recorded.get("expected_plaintext_hex"):
        entry = Entry.parse(bytes.fromhex(recorded["expected_plaintext_hex"]))
    if recorded.get("expected_plaintext_json") is not None:
        expected = json.loads(json.dumps(recorded["expected_plaintext_json"]), parse_int=float)
        assert entry._content == expected


def check_selections(entry: Entry, recorded: dict[str, Any]) -> None:
    for group, selector in SELECTORS.items():
        for name, expected in recorded["expected_selected"][group].items():
            value = entry.select(selector(name)).reveal()
            if isinstance(expected, dict):
                assert len(value) == expected["utf8_bytes"]
                assert hashlib.sha256(value).hexdigest() == expected["sha256"]
            else:
                assert value == expected.encode("utf-8")
        for name in recorded["expected_selection_failures"][group]:
            with pytest.raises(ExtractionError) as caught:
                entry.select(selector(name))
            assert name.strip() in caught.value.selector


LONG = [name for name, recorded in RESPONSES.items() if "expected_plaintext_sha256" in recorded]


@pytest.mark.parametrize("name", LONG)
def test_a_long_plaintext_arrives_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = RESPONSES[name]
    seen: list[bytes] = []
    monkeypatch.setattr(Entry, "parse", seen.append)
    opened(recorded)
    assert len(seen[0]) == recorded["expected_plaintext_bytes"]
    assert hashlib.sha256(seen[0]).hexdigest() == recorded["expected_plaintext_sha256"]


def test_all_keys_of_a_shared_entry_open_the_same_content() -> None:
    shared = [opened(recorded) for name, recorded in RESPONSES.items() if name.startswith("shared_by_two")]
    assert len(shared) > 2
    assert all(entry._content == shared[0]._content for entry in shared)
