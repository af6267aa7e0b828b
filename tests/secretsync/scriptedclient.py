"""A Kubernetes client that answers by script and remembers what it was asked."""

from __future__ import annotations

from typing import Any

from psono_operator.runtime.errors import AlreadyExists, Conflict, NotFound

CONFLICT = Conflict("PUT x", 409, reason="Conflict")
EXISTS = AlreadyExists("POST x", 409, reason="AlreadyExists")
GONE = NotFound("GET x", 404, reason="NotFound")


class ScriptedClient:
    """``answers``: per call, in order, an object or an error to raise."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[Any, ...]] = []

    async def get(self, resource: Any, key: Any, *, metadata_only: bool = False) -> Any:
        return self._next("get metadata" if metadata_only else "get", str(key))

    async def create(self, resource: Any, body: Any) -> Any:
        return self._next("create", body)

    async def replace(self, resource: Any, body: Any) -> Any:
        return self._next("replace", body)

    async def patch(self, resource: Any, key: Any, body: Any, kind: Any) -> Any:
        return self._next("patch", str(key), body)

    async def delete(self, resource: Any, key: Any, *, uid: str, resource_version: str) -> Any:
        return self._next("delete", str(key), uid, resource_version)

    @property
    def verbs(self) -> list[str]:
        return [each[0] for each in self.requests]

    def _next(self, *request: Any) -> Any:
        self.requests.append(request)
        assert self.answers, f"not foreseen: {request[0]}"
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer
