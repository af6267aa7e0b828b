"""SecretBytes shows its content to nobody who does not ask for it (rule F8)."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable

import pytest

from psono_operator.psono.secretbytes import SecretBytes

SECRET = SecretBytes(b"hunter2-canary")


@pytest.mark.parametrize(
    "show",
    [repr, str, ascii, "{:>40}".format, "%s".__mod__, "%r".__mod__, lambda secret: f"{secret} {[secret]}"],
)
def test_no_text_form_shows_the_content(show: Callable[[object], str]) -> None:
    text = show(SECRET)
    assert "SecretBytes(" in text
    assert "hunter2" not in text


def test_a_dataclass_around_it_does_not_show_it_either() -> None:
    @dataclasses.dataclass
    class Holder:
        value: SecretBytes

    assert "hunter2" not in repr(Holder(SECRET))


@pytest.mark.parametrize(
    "escape",
    [pickle.dumps, copy.copy, copy.deepcopy, bytes, list, len, iter, vars, lambda secret: secret[0]],
)
def test_there_is_no_way_out_but_reveal(escape: Callable[[object], object]) -> None:
    with pytest.raises(TypeError) as caught:
        escape(SECRET)
    assert "hunter2" not in str(caught.value)


def test_reveal_gives_the_bytes() -> None:
    assert SECRET.reveal() == b"hunter2-canary"


def test_it_equals_neither_its_bytes_nor_another_of_the_same_content() -> None:
    others: list[object] = [b"hunter2-canary", SecretBytes(b"hunter2-canary")]
    assert SECRET not in others
    assert hash(SECRET) != hash(SecretBytes(b"hunter2-canary"))


def test_same_as_compares_content() -> None:
    assert SECRET.same_as(SecretBytes(b"hunter2-canary"))
    assert not SECRET.same_as(SecretBytes(b"hunter2-canarz"))
    assert not SECRET.same_as(SecretBytes(b""))


def test_only_bytes_can_be_wrapped_and_the_refusal_is_value_free() -> None:
    with pytest.raises(TypeError) as caught:
        SecretBytes("hunter2-canary")  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)
