"""The sandbox: an in-process Kubernetes API server, in memory (rules Q).

:class:`KubeSandbox` puts the parts together, serves them, and offers what no real server does on command:
compaction, expired tokens, bookmarks, a garbage collector that can be stepped. Where it is simpler than
the real thing on purpose is listed in docs/sandbox.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from psono_operator.sandbox.kube import garbage
from psono_operator.sandbox.kube.builtin_types import BUILTIN_TYPES, CRD_GROUP
from psono_operator.sandbox.kube.clock import Clock, SystemClock
from psono_operator.sandbox.kube.crds import resource_types
from psono_operator.sandbox.kube.deletion import DeleteOptions
from psono_operator.sandbox.kube.http import make_app
from psono_operator.sandbox.kube.journal import Journal
from psono_operator.sandbox.kube.listing import Reader, Scope
from psono_operator.sandbox.kube.objects import Obj, clone
from psono_operator.sandbox.kube.registry import Registry, ResourceType
from psono_operator.sandbox.kube.schema import SchemaError
from psono_operator.sandbox.kube.storage import Key, Storage
from psono_operator.sandbox.kube.watch import Watch, WatchOptions
from psono_operator.sandbox.kube.writing import WriteOptions, Writer

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_ROUNDS = 100
_SECONDS_PER_OBJECT = 5e-5
"""Added to the collector's delay for each stored object, so that it stays a small part of the load."""


class KubeSandbox:
    """A Kubernetes API server in memory.

    ``clock`` is the clock of the program under test; ``rng`` makes uids, generated names and watch
    timeouts. With ``token``, requests need that bearer token; else any will do. ``initial_events`` False
    refuses ``sendInitialEvents`` as a server without that feature does. ``garbage_collector`` runs the
    garbage collector and the namespace controller in the background while serving, ``collect_delay``
    seconds after a change; switched off, :meth:`collect` does their work.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        *,
        token: str | None = None,
        initial_events: bool = True,
        garbage_collector: bool = True,
        collect_delay: float = 0.02,
        bookmark_interval: float = 60.0,
        history_limit: int = 50_000,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.token = token
        self.initial_events = initial_events
        self.garbage_collector = garbage_collector
        self.journal = Journal()
        self.registry = Registry(BUILTIN_TYPES)
        self.storage = Storage(history_limit=history_limit)
        self.reader = Reader(self.storage)
        self._random = rng or random.Random()
        self.writer = Writer(self.storage, self.clock, self._random, self._committed)
        self._collect_delay = collect_delay
        self._bookmark_interval = bookmark_interval
        self._options = WriteOptions(manager="kube-sandbox")
        self._ready = False
        self._garbage = asyncio.Event()

    def install_crd(self, crd: Mapping[str, Any]) -> None:
        """Create or replace a CustomResourceDefinition and serve its resource.

        Raises SchemaError when the sandbox cannot serve it faithfully, ApiError when it is no valid object.
        """
        self._bootstrap()
        body = clone(dict(crd))
        resource_types(body)
        resource = self._crds()
        key = Key("", body["metadata"]["name"])
        if self.storage.get(resource.storage, key) is None:
            self.writer.create(resource, "", body, self._options)
        else:
            self.writer.replace(resource, key, body, self._options)

    def create_namespace(self, name: str) -> None:
        """Create a namespace unless it is there."""
        self._bootstrap()
        namespaces = self._namespaces()
        if self.storage.get(namespaces.storage, Key("", name)) is None:
            self.writer.create(namespaces, "", {"metadata": {"name": name}}, self._options)

    def app(self) -> web.Application:
        """The server as an aiohttp application, with the background collector under its care."""
        app = make_app(self)
        app.cleanup_ctx.append(self._background)
        return app

    @asynccontextmanager
    async def serve(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Serve plain HTTP; the value is the base URL. Open watches end when the block is left."""
        runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=1.0, handle_signals=False)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port)
            await site.start()
            address = runner.addresses[0]
            yield f"http://{address[0]}:{address[1]}"
        finally:
            self.close_watches()
            await runner.cleanup()

    def watch(self, scope: Scope, query: dict[str, str]) -> Watch:
        """A watch for HTTP to send."""
        options = WatchOptions.read(query, self._random, initial_events=self.initial_events)
        return Watch(self.storage, self.clock, scope, options, bookmark_interval=self._bookmark_interval)

    def compact(self, revision: int | None = None) -> int:
        """Forget history up to ``revision`` (None: all): older watches, pages and versions are 410."""
        return self.storage.compact(revision)

    def expire_continue_tokens(self) -> None:
        """Make every continue token handed out so far answer 410, as compaction does with old ones."""
        self.reader.expire_continue_tokens()

    def send_bookmarks(self) -> None:
        """Let every watch that asked for bookmarks send one now."""
        for subscription in self.storage.subscriptions():
            subscription.ask_bookmark()

    def close_watches(self) -> None:
        """End every open watch as if its timeout had come."""
        for subscription in self.storage.subscriptions():
            subscription.close()

    def collect(self, *, rounds: int = _ROUNDS) -> int:
        """Run garbage collector and namespace controller for at most ``rounds`` rounds.

        Answers how many actions were taken. One round does what is due now; what that makes due (the
        finalizer of an owner whose dependents just went) waits for the next.
        """
        done = 0
        for _ in range(rounds):
            actions = garbage.plan(self._items(), self.registry)
            for action in actions:
                self._act(action)
            done += len(actions)
            if not actions:
                break
        return done

    def kubeconfig(self, url: str) -> dict[str, Any]:
        """A kubeconfig for this server, to be written as YAML or JSON."""
        user = {"token": self.token or "sandbox"}
        context = {"cluster": "sandbox", "user": "sandbox", "namespace": "default"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": {"server": url}}],
            "users": [{"name": "sandbox", "user": user}],
            "contexts": [{"name": "sandbox", "context": context}],
            "current-context": "sandbox",
        }

    def _bootstrap(self) -> None:
        if not self._ready:
            self._ready = True
            for name in NAMESPACES:
                self.create_namespace(name)

    async def _background(self, app: web.Application) -> AsyncIterator[None]:
        self._bootstrap()
        if self.garbage_collector:
            self.collect()
        self._garbage.clear()  # no timer runs yet: a test's clock may start later than its fixtures
        task = asyncio.create_task(self._collect_forever(), name="sandbox-garbage-collector")
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _collect_forever(self) -> None:
        while True:
            await self._garbage.wait()
            objects = sum(len(self.storage.objects(each.storage)) for each in self.registry.all())
            await self.clock.sleep(self._collect_delay + objects * _SECONDS_PER_OBJECT)
            self._garbage.clear()
            if self.garbage_collector:
                self.collect()

    def _items(self) -> list[garbage.Item]:
        tables: dict[str, ResourceType] = {}
        for resource in self.registry.all():
            tables.setdefault(resource.storage, resource)
        return [
            garbage.Item(resource, key, obj)
            for table, resource in tables.items()
            for key, obj in self.storage.objects(table).items()
        ]

    def _act(self, action: garbage.Action) -> None:
        item = action.item
        current = self.storage.get(item.resource.storage, item.key)
        if current is not item.object:
            return  # changed since the plan was made; the next round looks again
        if isinstance(action, garbage.Delete):
            self.writer.delete(item.resource, item.key, DeleteOptions(propagation=action.propagation))
        elif isinstance(action, garbage.Update):
            self.writer.store(item.resource, item.key, action.object)
        else:
            self.writer.remove(item.resource, item.key)

    def _committed(self, resource: ResourceType, obj: Obj, removed: bool) -> None:
        meta = obj["metadata"]
        if removed or "deletionTimestamp" in meta or "ownerReferences" in meta:
            self._garbage.set()
        if resource.group != CRD_GROUP:
            return
        for each in resource_types(obj):
            if not removed:
                self.registry.add(each)
                continue
            for key in list(self.storage.objects(each.storage)):
                self.storage.remove(each.storage, key)
            self.registry.remove(each)

    def _crds(self) -> ResourceType:
        return self._known(CRD_GROUP, "customresourcedefinitions")

    def _namespaces(self) -> ResourceType:
        return self._known("", "namespaces")

    def _known(self, group: str, plural: str) -> ResourceType:
        found = self.registry.find(group, "v1", plural)
        if found is None:
            raise SchemaError(f"{plural} is not served")
        return found
