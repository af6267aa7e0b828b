"""The check that ends every behaviour test finds what it looks for."""

from __future__ import annotations

import base64
import logging

import pytest

from tests.behaviour.world import leaked, listening


@pytest.mark.parametrize("before", ["", "x", "xy", "xyz"])
def test_a_value_is_found_wherever_it_stands_in_base64(before: str) -> None:
    text = base64.b64encode(f"{before}canary-value and more".encode()).decode()
    assert leaked("canary-value", f"data: {text}")


def test_a_plain_value_is_found_and_an_innocent_text_is_not_accused() -> None:
    assert leaked("canary", "password=canary") == "plain"
    assert leaked("canary-value", "nothing of the kind, " + base64.b64encode(b"innocent text").decode()) == ""


def test_what_is_logged_at_any_level_is_heard() -> None:
    with listening() as lines:
        logging.getLogger("some.library").debug("body %s", "canary")
    assert leaked("canary", "\n".join(lines)) == "plain"
