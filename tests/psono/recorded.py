"""The recorded responses of a real server, and the check that an error is free of values.

Data and its meaning: ``tests/data/psono/README.md``.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "psono"


def _load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DATA / name).read_text())
    return document


RESPONSES: dict[str, dict[str, Any]] = {
    path.stem: document
    for path in sorted(DATA.glob("*.json"))
    if "response_body" in (document := _load(path.name))
}
HTTP_CASES: list[dict[str, Any]] = _load("http_cases.json")["cases"]


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and everything that travels along with it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            yield current
            waiting += [current.__cause__, current.__context__]


def assert_value_free(error: BaseException, *canaries: str) -> None:
    """No canary in any text of the error, of its attributes, its traceback or its companions."""
    texts = ["".join(traceback.format_exception(error))]
    for link in chain(error):
        texts += [str(link), repr(link), repr(link.args), repr(vars(link)), repr(getattr(link, "object", ""))]
        texts += [repr(getattr(link, "doc", "")), "\n".join(getattr(link, "__notes__", []))]
    for canary in canaries:
        assert canary, "an empty canary proves nothing"
        assert not any(canary in text for text in texts), "a value got into an error"
