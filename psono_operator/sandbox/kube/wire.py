"""Bytes to bodies, queries to options, bodies to answers: the HTTP of the sandbox that needs no routes."""

from __future__ import annotations

import json
from typing import Any

import yaml
from aiohttp import web

from psono_operator.sandbox.kube.objects import Obj
from psono_operator.sandbox.kube.render import View
from psono_operator.sandbox.kube.status import ApiError, bad_options, unsupported
from psono_operator.sandbox.kube.writing import WriteOptions, Written


class JsonLoader(yaml.SafeLoader):
    """YAML without timestamps: what is text in JSON stays text."""


JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse_body(raw: bytes) -> Any:
    """A body as JSON, or as YAML if it is none; ValueError if it is neither."""
    try:
        return json.loads(raw)
    except ValueError:
        pass
    try:
        parsed = yaml.load(raw, JsonLoader)  # noqa: S506  (a SafeLoader with fewer resolvers)
    except yaml.YAMLError:
        raise ValueError from None
    if not isinstance(parsed, dict):
        raise ValueError
    return parsed


def write_options(query: dict[str, str], request: web.Request, kind: str) -> WriteOptions:
    """The options of a write, from its query and the User-Agent; 422 for values that do not exist."""
    validation = query.get("fieldValidation", "") or "Warn"
    if validation not in ("Warn", "Strict", "Ignore"):
        raise bad_options(kind, unsupported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"]))
    dry_run = query.get("dryRun", "")
    if dry_run not in ("", "All"):
        raise bad_options(kind, unsupported("dryRun", [dry_run], ["All"]))
    agent = request.headers.get("User-Agent", "").partition("/")[0] or "unknown"
    return WriteOptions(
        manager=query.get("fieldManager") or agent[:128],
        dry_run=dry_run == "All",
        validation=validation,
        force=query.get("force", "") == "true",
    )


def unsupported_media(accepted: list[str]) -> ApiError:
    """415."""
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(
        accepted
    )
    return ApiError(415, "UnsupportedMediaType", message)


def encode(body: Any) -> bytes:
    """JSON as bytes."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def respond(
    body: Any, status: int = 200, warnings: tuple[str, ...] = (), content_type: str = "application/json"
) -> web.Response:
    """A JSON answer; each warning becomes a header."""
    response = web.Response(body=encode(body), status=status, headers={"Content-Type": content_type})
    for text in warnings:
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def written(view: View, done: Written) -> web.Response:
    """The answer to a write."""
    body: Obj = view.one(done.object)
    return respond(body, 201 if done.created else 200, tuple(done.warnings))


def page_not_found() -> web.Response:
    """404 outside every API, which is plain text."""
    return web.Response(status=404, text="404 page not found\n")
