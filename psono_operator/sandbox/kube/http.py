"""HTTP for the sandbox: paths to resources, bodies in, Status bodies and streams out.

It knows URLs, content types and headers, and leaves every decision about objects to the modules below.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from psono_operator.sandbox.kube import discovery, openapi, patch, protobuf
from psono_operator.sandbox.kube.clock import Clock
from psono_operator.sandbox.kube.deletion import DeleteOptions
from psono_operator.sandbox.kube.journal import Entry, Journal
from psono_operator.sandbox.kube.listing import Page, Reader, Scope
from psono_operator.sandbox.kube.registry import Registry, ResourceType
from psono_operator.sandbox.kube.render import View, negotiate
from psono_operator.sandbox.kube.status import (
    ApiError,
    bad_options,
    bad_request,
    failure,
    forbidden_field,
    method_not_allowed,
    no_such_resource,
    required,
    success,
    unauthorized,
)
from psono_operator.sandbox.kube.storage import Key
from psono_operator.sandbox.kube.watch import Watch, flag
from psono_operator.sandbox.kube.wire import (
    encode,
    page_not_found,
    parse_body,
    respond,
    unsupported_media,
    write_options,
    written,
)
from psono_operator.sandbox.kube.writing import Writer

BODY_LIMIT = 3 * 1024 * 1024
_PATCHES = (patch.JSON, patch.MERGE, patch.STRATEGIC, patch.APPLY)
_JSON_BODIES = ("application/json", "application/yaml")


class Engine(Protocol):
    """What HTTP needs of a sandbox."""

    clock: Clock
    registry: Registry
    reader: Reader
    writer: Writer
    journal: Journal
    token: str | None

    def watch(self, scope: Scope, query: dict[str, str]) -> Watch: ...


@dataclass(frozen=True, slots=True)
class Target:
    """What a path means."""

    resource: ResourceType
    namespace: str | None
    name: str
    subresource: str

    @property
    def key(self) -> Key:
        return Key(self.namespace or "", self.name)


def make_app(engine: Engine) -> web.Application:
    """The API server as an aiohttp application."""
    app = web.Application(client_max_size=BODY_LIMIT, handler_args=None)
    app.router.add_route("*", "/{path:.*}", _Handler(engine).handle)
    return app


Verb = Callable[[web.Request, dict[str, str], Target, Entry], Awaitable[web.StreamResponse]]


class _Handler:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def handle(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        entry = Entry(
            method=request.method,
            path=request.path,
            query=query,
            content_type=request.content_type if request.can_read_body else "",
            user_agent=request.headers.get("User-Agent", ""),
            accept=request.headers.get("Accept", ""),
            at=self._engine.clock.monotonic(),
        )
        self._engine.journal.add(entry)
        try:
            response = await self._answer(request, query, entry)
        except ApiError as error:
            response = respond(error.body, error.code, error.warnings)
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {BODY_LIMIT}"
            response = respond(failure(413, "RequestEntityTooLarge", message, {}), 413)
        entry.status = response.status
        return response

    async def _answer(self, request: web.Request, query: dict[str, str], entry: Entry) -> web.StreamResponse:
        token = self._engine.token
        if token is not None and request.headers.get("Authorization") != f"Bearer {token}":
            raise unauthorized()
        parts = [part for part in request.path.split("/") if part]
        fixed = self._fixed(parts, request)
        if fixed is not None:
            return fixed
        target = self._target(parts)
        if target is None:
            return page_not_found()
        handler = self._verb(request.method, target)
        if handler is None:
            return page_not_found()
        if request.method == "GET" and not target.name and flag(query, "watch"):
            return await self._watch(request, query, target, entry)
        return await handler(request, query, target, entry)

    def _fixed(self, parts: list[str], request: web.Request) -> web.Response | None:
        registry = self._engine.registry
        match parts:
            case ["version"]:
                return respond(discovery.VERSION)
            case ["healthz" | "livez" | "readyz", *_]:
                return web.Response(text="ok")
            case ["api"] | ["apis"]:
                if "as=APIGroupDiscoveryList" in request.headers.get("Accept", "").replace(" ", ""):
                    body = discovery.aggregated(registry, legacy=parts == ["api"])
                    return respond(body, content_type=discovery.AGGREGATED)
                return respond(
                    discovery.legacy_versions(request.host)
                    if parts == ["api"]
                    else discovery.groups(registry)
                )
            case ["api", version]:
                found = discovery.resources(registry, "", version)
            case ["apis", group]:
                found = discovery.group(registry, group)
            case ["apis", group, version]:
                found = discovery.resources(registry, group, version)
            case ["openapi", "v3"]:
                return respond(openapi.index(registry))
            case ["openapi", "v3", "api", version]:
                found = openapi.document(registry, "", version)
            case ["openapi", "v3", "apis", group, version]:
                found = openapi.document(registry, group, version)
            case _:
                return None
        return respond(found) if found is not None else page_not_found()

    def _target(self, parts: list[str]) -> Target | None:
        """What a path means; None for a path outside every served group, 404 inside the legacy one."""
        match parts:
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                return None
        namespace: str | None = None
        if (
            len(rest) >= 3
            and rest[0] == "namespaces"
            and not (len(rest) == 3 and rest[2] in ("status", "finalize"))
        ):
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = ([*rest, "", "", ""])[:3]
        resource = self._engine.registry.find(group, version, plural)
        if resource is None or len(rest) > 3 or (namespace is not None and not resource.namespaced):
            if group:
                return None
            raise no_such_resource()
        if subresource and not (subresource == "status" and resource.status):
            raise no_such_resource()
        if resource.namespaced and namespace is None and name:
            raise no_such_resource()
        return Target(resource, namespace, name, subresource)

    def _verb(self, method: str, target: Target) -> Verb | None:
        single = bool(target.name)
        custom = target.resource.custom
        anywhere = target.resource.namespaced and target.namespace is None
        if custom and not single and method in ("PUT", "PATCH"):
            raise bad_request("name must be provided")
        found = {
            ("GET", True): self._get,
            ("GET", False): self._list,
            ("PUT", True): self._put,
            ("PATCH", True): self._patch,
            ("DELETE", True): self._delete,
            ("POST", False): self._post,
            ("DELETE", False): self._delete_collection,
        }.get((method, single))
        if found is None or (target.subresource and method == "DELETE"):
            raise method_not_allowed()
        undeletable = method == "DELETE" and "deletecollection" not in discovery.verbs(target.resource)
        if method != "GET" and not single and (anywhere or undeletable):
            if custom:
                return None
            raise method_not_allowed()
        return found

    def _view(
        self, request: web.Request, query: dict[str, str], target: Target, *, many: bool = False
    ) -> View:
        form = negotiate(request.headers.get("Accept", ""), many=many)
        include = query.get("includeObject", "Metadata") or "Metadata"
        return View(target.resource, form, self._engine.clock.now(), include)

    async def _get(
        self, request: web.Request, query: dict[str, str], target: Target, entry: Entry
    ) -> web.StreamResponse:
        view = self._view(request, query, target)
        return respond(view.one(self._engine.reader.get(target.resource, target.key)))

    async def _list(
        self, request: web.Request, query: dict[str, str], target: Target, entry: Entry
    ) -> web.StreamResponse:
        view = self._view(request, query, target, many=True)
        scope = Scope.read(target.resource, target.namespace, query)
        return respond(view.many(self._engine.reader.list(scope, query)))

    async def _watch(
        self, request: web.Request, query: dict[str, str], target: Target, entry: Entry
    ) -> web.StreamResponse:
        view = self._view(request, query, target)
        scope = Scope.read(target.resource, target.namespace, query)
        watch = self._engine.watch(scope, query)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        entry.status = response.status
        first = True
        try:
            async for kind, obj in watch.events():
                shown = view.event(kind, obj, first=first)
                await response.write(encode(shown) + b"\n")
                first = False
            await response.write_eof()
        except ConnectionError:
            pass
        return response

    async def _post(
        self, request: web.Request, query: dict[str, str], target: Target, entry: Entry
    ) -> web.StreamResponse:
        view = self._view(request, query, target)
        body = await self._body(request, target, entry)
        options = write_options(query, request, "CreateOptions")
        return written(
            view, self._engine.writer.create(target.resource, target.namespace or "", body, options)
        )

    async def _put(
        self, request: web.Request, query: dict[str, str], target: Target, entry: Entry
    ) -> web.StreamResponse:
        view = self._view(request, query, target)
        body = await self._body(request, target, entry)
        options = write_options(query, request, "UpdateOptions")
        done = self._engine.writer.replace(target.resource, target.key, body, options, target.subresource)
        return written(view, done)

    async def _patch(
        self, request: web.Request, query: dict[str, str], target: Target, entry: Entry
    ) -> web.StreamResponse:
        view = self._view(request, query, target)
        kind = request.content_type
        accepted = [each for each in _PATCHES if each != patch.STRATEGIC or not target.resource.custom]
        if kind not in accepted:
            raise unsupported_media(accepted)
        body = await self._body(request, target, entry, patching=True)
        options = write_options(query, request, "PatchOptions")
        if kind == patch.APPLY and not query.get("fieldManager"):
            raise bad_options("PatchOptions", required("fieldManager", "is required for apply patch"))
        if kind != patch.APPLY and "force" in query:
            raise bad_options(
                "PatchOptions", forbidden_field("force", "may not be specified for non-apply patch")
            )
        done = self._engine.writer.patch(
            target.resource, target.key, kind, body, options=options, subresource=target.subresource
        )
        return written(view, done)

    async def _delete(
        self, request: web.Request, query: dict[str, str], target: Target, entry: Entry
    ) -> web.StreamResponse:
        view = self._view(request, query, target)
        options = DeleteOptions.read(await self._options_body(request), query)
        obj, gone = self._engine.writer.delete(target.resource, target.key, options)
        if gone:
            return respond(success(target.resource.named, target.name, obj["metadata"]["uid"]))
        return respond(view.one(obj))

    async def _delete_collection(
        self, request: web.Request, query: dict[str, str], target: Target, entry: Entry
    ) -> web.StreamResponse:
        view = self._view(request, query, target, many=True)
        options = DeleteOptions.read(await self._options_body(request), query)
        scope = Scope.read(target.resource, target.namespace, query)
        page = self._engine.reader.list(scope, query)
        items = []
        for key in page.keys:
            try:
                items.append(self._engine.writer.delete(target.resource, key, options)[0])
            except ApiError as error:
                if error.code != 404:
                    raise
        return respond(view.many(Page(items, page.resource_version)))

    async def _options_body(self, request: web.Request) -> Any:
        raw = await request.read()
        if not raw.strip():
            return None
        try:
            return parse_body(raw)
        except ValueError:
            raise bad_request("couldn't get version/kind; json parse error") from None

    async def _body(
        self, request: web.Request, target: Target, entry: Entry, *, patching: bool = False
    ) -> Any:
        content_type = request.content_type if "Content-Type" in request.headers else ""
        if not patching and content_type not in ("", *_JSON_BODIES, protobuf.CONTENT_TYPE):
            raise unsupported_media([*_JSON_BODIES, protobuf.CONTENT_TYPE])
        raw = await request.read()
        try:
            body = protobuf.decode(raw) if content_type == protobuf.CONTENT_TYPE else parse_body(raw)
        except ValueError:
            if patching:
                raise bad_request("error decoding patch: unexpected end of JSON input") from None
            kind = target.resource.kind
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind;"
                " json parse error"
            ) from None
        if not target.resource.sensitive:
            entry.body = body
        return body
