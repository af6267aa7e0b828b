"""Exceptions in logs: where, never what (F8, N8)."""

from __future__ import annotations

import pytest

from psono_operator.runtime.controller import TerminalError
from psono_operator.runtime.errors import NotFound
from psono_operator.runtime.tracebacks import one_line, summary


def caught(error: BaseException, cause: BaseException | None = None, *, hide: bool = False) -> BaseException:
    try:
        try:
            if cause is not None:
                raise cause
        except BaseException:  # noqa: BLE001
            if hide:
                raise error from None
            raise error  # noqa: B904
        raise error
    except BaseException as raised:  # noqa: BLE001
        return raised


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NotFound("GET /x", 404), "NotFound: GET /x answered 404"),
        (TerminalError("the spec is wrong"), "TerminalError: the spec is wrong"),
        (ValueError("hunter2"), "ValueError"),
        (KeyError("hunter2"), "KeyError"),
    ],
)
def test_only_classes_that_vouch_for_their_text_are_quoted(error: Exception, expected: str) -> None:
    """F8."""
    assert summary(error) == expected


def test_a_chain_names_types_and_places_in_one_line() -> None:
    line = one_line(caught(ValueError("hunter2"), KeyError("hunter3")))
    assert line.startswith("ValueError at test_tracebacks.py:")
    assert "; from KeyError at test_tracebacks.py:" in line
    assert "\n" not in line
    assert "hunter" not in line


def test_a_hidden_cause_stays_hidden() -> None:
    """F8: ``from None`` is how a boundary drops what may hold a body."""
    assert "KeyError" not in one_line(caught(ValueError(), KeyError(), hide=True))


def test_every_member_of_a_group_is_named() -> None:
    line = one_line(ExceptionGroup("hunter2", [ValueError("hunter3"), NotFound("GET /x", 404)]))
    assert line == "ExceptionGroup; from ValueError; from NotFound: GET /x answered 404"


def test_deep_recursion_stays_short() -> None:
    def deeper(n: int) -> None:
        if n:
            deeper(n - 1)
        raise ValueError

    with pytest.raises(ValueError) as caught_:  # noqa: PT011
        deeper(200)
    assert len(one_line(caught_.value)) < 500
