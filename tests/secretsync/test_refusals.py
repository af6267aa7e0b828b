"""What a bare 400 means, where inspect tells."""

from __future__ import annotations

from typing import Any

import pytest

from psono_operator.psono.answers import KeyReport
from psono_operator.psono.errors import Meaning
from psono_operator.secretsync.refusals import REPORT_AGE, KeyKnowledge, explain_refusal

ENTRY = "25070c66-8950-4264-9b39-11e6d83312e3"
OTHER = "57c616ac-7c46-4a52-8936-670a607f2755"


def report(*entries: str, read: bool = True) -> KeyReport:
    return KeyReport(
        allow_insecure_access=False,
        restrict_to_secrets=True,
        read=read,
        write=False,
        write_dates=dict.fromkeys(entries, "2026-12-01T12:00:00+00:00"),
    )


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (None, Meaning.READ.value),
        (report(ENTRY, read=False), "no read right"),
        (report(OTHER), "not assigned"),
        (report(), "not assigned"),
        (report(ENTRY), "owner may not read it"),
    ],
)
def test_inspect_tells_which_it_is(known: KeyReport | None, words: str) -> None:
    text = explain_refusal(known, ENTRY)
    assert words in text
    assert ENTRY not in text, "the entry is named around it"


def test_a_refused_inspect_means_the_key() -> None:
    assert explain_refusal(None, ENTRY, key_refused=True) == Meaning.INSPECT.value


@pytest.mark.parametrize("written", [ENTRY.upper(), ENTRY.replace("-", ""), f"urn:uuid:{ENTRY}"])
def test_an_entry_is_recognised_however_its_id_is_written(written: str) -> None:
    assert "owner may not read it" in explain_refusal(report(ENTRY), written)


def test_inspect_is_asked_once_in_five_minutes_whatever_comes_of_it() -> None:
    knowledge = KeyKnowledge()
    assert knowledge.may_ask(0)
    knowledge.asked(0)
    assert not knowledge.may_ask(REPORT_AGE - 1)
    assert knowledge.explain(ENTRY) == Meaning.READ.value
    assert knowledge.may_ask(REPORT_AGE)


@pytest.mark.parametrize(
    ("learned", "key_wide"),
    [
        ({"report": None, "key_refused": True}, True),
        ({"report": report(read=False)}, True),
        ({"report": report()}, False),
    ],
    ids=["key refused", "no right", "not assigned"],
)
def test_a_later_good_read_disproves_what_was_said(learned: dict[str, Any], key_wide: bool) -> None:
    """Whatever was wrong with the key is over; what was said of another entry stays as it was."""
    knowledge = KeyKnowledge()
    knowledge.learned(**learned)
    before = knowledge.explain(OTHER)
    knowledge.readable(ENTRY)
    assert knowledge.explain(ENTRY) == Meaning.READ.value
    assert knowledge.explain(OTHER) == (Meaning.READ.value if key_wide else before)
