"""Further words for behaviour tests about targets: marks on Secrets, refusals on the way, what was sent."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.behaviour.network import Handler, Network, Request, Send, passing
from tests.behaviour.world import World

MANAGED = "secrets.psono.com/managed-keys"
MERGE = {"creationPolicy": "Merge"}
OWNER = {"creationPolicy": "Owner"}
SOON = 1.0
"""Seconds within which a change has its effect, backoff or not."""


def network(world: World, handler: Handler = passing) -> Network:
    """The requests of the running operator; call it before anything is created."""
    assert world.operator is not None
    return Network(world.operator, handler)


def shares(secret: Mapping[str, Any]) -> dict[str, list[str]]:
    """PsonoSecret name → keys, as the Secret's annotation has it."""
    text = secret["metadata"].get("annotations", {}).get(MANAGED)
    return {} if text is None else {name: each["keys"] for name, each in json.loads(text).items()}


def owners(secret: Mapping[str, Any]) -> list[str]:
    """Names of the owners, the controller's with a star."""
    references = secret["metadata"].get("ownerReferences", [])
    return [each["name"] + "*" * bool(each.get("controller")) for each in references]


def untouched(secret: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata that belongs to others: all but the version, our annotation and the bookkeeping."""
    metadata = dict(secret["metadata"])
    for name in ("resourceVersion", "managedFields"):
        metadata.pop(name, None)
    annotations = {key: value for key, value in metadata.pop("annotations", {}).items() if key != MANAGED}
    return {**metadata, "annotations": annotations, "type": secret["type"]}


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def is_write(request: Request) -> bool:
    """Whether it asks Kubernetes for a change, granted or not."""
    return request.host == "kubernetes" and request.method != "GET"


def writes_of(net: Network, world: World, name: str) -> list[Request]:
    """The writes of one Secret."""
    paths = {world.secrets_path(name), world.secrets_path()}
    found = [each for each in net.requests if is_write(each) and each.path in paths]
    return [each for each in found if each.path != world.secrets_path() or _named(each) == name]


def body_of(request: Request) -> dict[str, Any]:
    return dict(json.loads(request.body or b"{}"))


def _named(request: Request) -> str:
    return str(body_of(request).get("metadata", {}).get("name"))


class Gate:
    """A handler that answers ``answer`` to the requests that ``when`` picks, until it is opened."""

    def __init__(self, answer: Any, when: Callable[[Request], bool]) -> None:
        self.answer = answer
        self.when = when
        self.closed = True
        self.refused = 0

    def open(self) -> None:
        self.closed = False

    async def __call__(self, request: Request, send: Send) -> Any:
        if self.closed and request.host == "kubernetes" and self.when(request):
            self.refused += 1
            return self.answer
        return await send()


def deletes(world: World, *names: str) -> Callable[[Request], bool]:
    """Picks DELETEs of these Secrets; of all when none is named."""
    paths = {world.secrets_path(name) for name in names}

    def picked(request: Request) -> bool:
        return (
            request.method == "DELETE"
            and "/secrets/" in request.path
            and (not paths or request.path in paths)
        )

    return picked


def creates(world: World, name: str) -> Callable[[Request], bool]:
    """Picks the creation of one Secret."""
    return lambda request: (
        request.method == "POST" and request.path == world.secrets_path() and _named(request) == name
    )


def patches(world: World, name: str, *, data: bool | None = None) -> Callable[[Request], bool]:
    """Picks patches of one Secret; ``data``: only those that do, or do not, carry values."""

    def picked(request: Request) -> bool:
        if (request.method, request.path) != ("PATCH", world.secrets_path(name)):
            return False
        return data is None or ("data" in body_of(request)) is data

    return picked


async def grow_the_backoff(world: World) -> None:
    """Where time is virtual, wait until every backoff has reached its cap: nothing then wakes by itself."""
    if world.sandbox is not None:
        await asyncio.sleep(900)
