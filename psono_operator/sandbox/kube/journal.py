"""The requests a sandbox has seen, to assert on (rule Q12).

A body is kept for writes, so that a test can look at what was sent, but never one about Secrets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Entry:
    """One request; ``status`` is 0 until the answer has begun. ``body`` is parsed JSON or None."""

    method: str
    path: str
    query: Mapping[str, str]
    content_type: str
    user_agent: str
    accept: str
    at: float
    status: int = 0
    body: Any = field(default=None, repr=False)

    @property
    def watch(self) -> bool:
        return self.query.get("watch", "false").lower() not in ("0", "false")


class Journal:
    """The last ``limit`` requests in order of arrival."""

    def __init__(self, limit: int = 200_000) -> None:
        self._entries: deque[Entry] = deque(maxlen=limit)

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)

    def clear(self) -> None:
        """Forget everything seen so far."""
        self._entries.clear()

    def writes(self) -> list[Entry]:
        """The requests that may have changed something."""
        return [entry for entry in self._entries if entry.method not in ("GET", "HEAD")]

    def find(self, method: str, fragment: str = "") -> list[Entry]:
        """The requests of a method whose path contains ``fragment``."""
        return [entry for entry in self._entries if entry.method == method and fragment in entry.path]

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)
