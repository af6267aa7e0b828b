"""The stage for behaviour tests: API server, Psono double, operator, and words to say what should happen.

``@behaviour`` runs a test on the sandbox, whose time is virtual, and on the real control plane. A test talks
to the API server as a user does, over HTTP, and looks only at what a user can see. When it ends, nothing
that was logged at any level, and no status and no event, may hold one of the values it used (rule F8).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import inspect
import json
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
import yaml

from psono_operator.app import Operator
from psono_operator.logs import JsonFormatter, TextFormatter
from psono_operator.runtime.clock import Clock, LoopClock
from psono_operator.runtime.credentials import ApiEndpoint, Credentials, StaticToken
from psono_operator.sandbox.kube import KubeSandbox
from psono_operator.sandbox.psono import ApiKey, PsonoDouble
from psono_operator.settings import resolve
from tests.controlplane.cluster import ControlPlane
from tests.controlplane_fixture import CRD_FILE
from tests.virtualtime import VirtualClock

GROUP = "/apis/secrets.psono.com/v1alpha1"
MERGE = "application/merge-patch+json"
AUTH = "psono-credentials"
CANARY = "canary"
"""Part of every value that must not be seen anywhere but in a target."""

_numbers = iter(range(1_000_000))


@dataclass
class World:
    """One namespace of one API server, one Psono double, and at most one running operator."""

    clock: Clock
    http: aiohttp.ClientSession
    url: str
    credentials: Credentials
    psono: PsonoDouble
    psono_url: str
    key: ApiKey
    namespace: str
    sandbox: KubeSandbox | None = None
    control_plane: ControlPlane | None = None
    operator: Operator | None = None
    _task: asyncio.Task[int] | None = None
    _secrets: set[str] = field(default_factory=set)

    # -- the operator -------------------------------------------------------------------------------

    def start(self, **settings: str) -> None:
        """Start the operator for this namespace."""
        assert self._task is None
        given = {"http_address": "127.0.0.1:0", "watch_namespace": self.namespace, **settings}
        self.operator = Operator(
            resolve(given, {}), self.credentials, clock=self.clock, rng=random.Random(7), environ={}
        )
        self._task = asyncio.create_task(self.operator.run())

    async def stop(self) -> int:
        """Stop the operator in good order; its exit code."""
        assert self.operator is not None
        assert self._task is not None
        self.operator.stop()
        code = await self._task
        self.operator = self._task = None
        return code

    async def kill(self) -> None:
        """End the operator as SIGKILL would: no order, no goodbye."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        self.operator = self._task = None

    async def restart(self) -> None:
        """A new process in the place of the old one."""
        await self.stop()
        self.start()

    # -- Kubernetes, as a user ----------------------------------------------------------------------

    async def call(self, method: str, path: str, body: Any = None, *, kind: str = "", ok: bool = True) -> Any:
        """One request; (status, body). ``ok``: fail the test unless it succeeds."""
        headers = {"Content-Type": kind or "application/json"}
        data = None if body is None else json.dumps(body)
        async with self.http.request(method, self.url + path, data=data, headers=headers) as answer:
            raw = await answer.json(content_type=None)
            assert not ok or answer.status < 300, f"{method} {path}: {answer.status} {raw}"
            return answer.status, raw

    def secrets_path(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/secrets" + (f"/{name}" if name else "")

    def psono_secrets_path(self, name: str = "") -> str:
        return f"{GROUP}/namespaces/{self.namespace}/psonosecrets" + (f"/{name}" if name else "")

    async def get(self, path: str) -> Any:
        """The object, or None."""
        status, found = await self.call("GET", path, ok=False)
        assert status in {200, 404}, found
        return found if status == 200 else None

    async def psono_secret(self, name: str = "db") -> Any:
        return await self.get(self.psono_secrets_path(name))

    async def secret(self, name: str = "db") -> Any:
        return await self.get(self.secrets_path(name))

    async def data(self, name: str = "db") -> dict[str, str] | None:
        """The decoded values of a Secret, or None."""
        found = await self.secret(name)
        return None if found is None else decoded(found)

    async def create_secret(self, name: str, values: Mapping[str, str], **more: Any) -> Any:
        metadata = {"name": name, **more.pop("metadata", {})}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "stringData": dict(values),
            **more,
        }
        return (await self.call("POST", self.secrets_path(), body))[1]

    async def patch(self, path: str, body: Any) -> Any:
        return (await self.call("PATCH", path, body, kind=MERGE))[1]

    async def patch_spec(self, name: str = "db", **spec: Any) -> Any:
        return await self.patch(self.psono_secrets_path(name), {"spec": spec})

    async def annotate(self, path: str, **annotations: str | None) -> Any:
        return await self.patch(path, {"metadata": {"annotations": annotations}})

    async def force_sync(self, value: str, name: str = "db") -> None:
        await self.annotate(self.psono_secrets_path(name), **{"secrets.psono.com/force-sync": value})

    async def delete(self, path: str, propagation: str = "Background") -> None:
        await self.call("DELETE", path, {"propagationPolicy": propagation})

    async def create_auth(self, name: str = AUTH, **changes: str) -> None:
        """The authentication Secret for ``self.key``; ``changes`` replace single values."""
        values = {
            "serverUrl": self.psono_url,
            "apiKeyId": self.key.id,
            "apiSecretKey": self.key.secret_key_hex,
        }
        self._secrets.add(self.key.secret_key_hex)
        await self.create_secret(name, {**values, **changes})

    def entry(self, **values: str) -> str:
        """A Psono entry of environment variables, assigned to ``self.key``; its id."""
        return self.psono.add_entry(variables(values), [self.key])

    def rotate(self, entry: str, **values: str) -> None:
        """New content for an entry."""
        self.psono.update_entry(entry, variables(values))

    async def create(self, entry: str, *keys: str, name: str = "db", target: str = "db", **spec: Any) -> Any:
        """A PsonoSecret that maps ``keys`` of ``entry`` one to one."""
        body = {
            "apiVersion": "secrets.psono.com/v1alpha1",
            "kind": "PsonoSecret",
            "metadata": {"name": name, **spec.pop("metadata", {})},
            "spec": {
                "authentication": {"secretRef": {"name": AUTH}},
                "target": {"name": target, **spec.pop("target_options", {})},
                "data": [mapping(key, entry) for key in keys],
                **spec,
            },
        }
        return (await self.call("POST", self.psono_secrets_path(), body))[1]

    # -- waiting ------------------------------------------------------------------------------------

    async def eventually(self, check: Callable[[], Awaitable[Any]], within: float = 5.0) -> Any:
        """Poll until ``check`` answers something true, and answer that; fail after ``within`` seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        while True:
            found = await check()
            if found:
                return found
            assert loop.time() < end, f"not within {within} s: {check.__qualname__}; {await self.picture()}"
            await asyncio.sleep(0.02)

    async def condition(self, name: str = "db") -> dict[str, Any]:
        """The Ready condition for the current generation; empty when there is none yet."""
        found = await self.psono_secret(name) or {}
        for each in found.get("status", {}).get("conditions", []):
            if each["type"] == "Ready" and each["observedGeneration"] == found["metadata"]["generation"]:
                return dict(each)
        return {}

    async def ready(self, name: str = "db", within: float = 5.0) -> Any:
        """The PsonoSecret, once it is Ready for its current generation."""

        async def is_ready() -> Any:
            return (await self.condition(name)).get("status") == "True" and await self.psono_secret(name)

        return await self.eventually(is_ready, within)

    async def failing(self, reason: str, name: str = "db", within: float = 5.0) -> str:
        """The condition's message, once it is not Ready for ``reason``."""

        async def is_failing() -> Any:
            condition = await self.condition(name)
            return (
                condition.get("status") == "False" and condition["reason"] == reason and condition["message"]
            )

        return str(await self.eventually(is_failing, within))

    async def target(self, wanted: Mapping[str, str] | None, name: str = "db", within: float = 5.0) -> None:
        """Wait until the Secret ``name`` holds exactly ``wanted`` (None: until it is gone)."""

        async def is_so() -> bool:
            return await self.data(name) == wanted

        await self.eventually(is_so, within)

    async def gone(self, path: str, within: float = 10.0) -> None:
        async def is_gone() -> bool:
            return await self.get(path) is None

        await self.eventually(is_gone, within)

    async def quiet(self) -> None:
        """Return when the operator has nothing to do and has seen everything there is."""
        for _ in range(3):
            await self.eventually(self._idle, within=10)

    async def _idle(self) -> bool:
        await asyncio.sleep(0.05)
        assert self.operator is not None
        return self.operator.idle

    async def events(self, name: str = "db") -> list[tuple[str, str, str]]:
        """(type, reason, note) of the events about a PsonoSecret."""
        found = await self.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [
            (each["type"], each["reason"], each["note"])
            for each in found["items"]
            if each["regarding"]["name"] == name
        ]

    async def picture(self) -> str:
        """For a failed test: statuses of all PsonoSecrets and names of all Secrets."""
        listed = await self.get(self.psono_secrets_path())
        statuses = {each["metadata"]["name"]: each.get("status") for each in listed["items"]}
        present = await self.get(self.secrets_path())
        return f"statuses {statuses}; Secrets {[each['metadata']['name'] for each in present['items']]}"


def decoded(secret: Mapping[str, Any]) -> dict[str, str]:
    """The values of a Secret."""
    return {name: base64.b64decode(value).decode() for name, value in (secret.get("data") or {}).items()}


def variables(values: Mapping[str, str]) -> dict[str, object]:
    """The content of an Environment Variables entry."""
    listed = [{"key": key, "value": value} for key, value in values.items()]
    return {"environment_variables_title": "test", "environment_variables_variables": listed}


def mapping(key: str, entry: str, variable: str | None = None) -> dict[str, Any]:
    """One item of ``spec.data``."""
    return {"secretKey": key, "remoteRef": {"secretId": entry, "environmentVariable": variable or key}}


SANDBOX = pytest.param("sandbox", marks=pytest.mark.looptime)
CONTROL_PLANE = pytest.param("controlplane", marks=pytest.mark.controlplane)


Test = Callable[..., Awaitable[None]]


def behaviour(test: Test) -> Test:
    """Run ``test(world, ...)`` on both API servers, with the operator running."""
    return _behaviour(test, (SANDBOX, CONTROL_PLANE), start=True)


def behaviour_with(*, only: str | None = None, start: bool = True) -> Callable[[Test], Test]:
    """The same ``only`` on one API server, or without starting the operator and making its credentials."""
    backends = [each for each in (SANDBOX, CONTROL_PLANE) if only in {None, each.values[0]}]
    return lambda test: _behaviour(test, backends, start=start)


def _behaviour(test: Test, backends: Sequence[Any], *, start: bool) -> Test:

    async def run(backend: str, request: pytest.FixtureRequest, **parameters: Any) -> None:
        async with world(backend, request) as stage:
            if start:
                await stage.create_auth()
                stage.start()
            await test(stage, **parameters)

    run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
    run.__module__ = test.__module__
    own = list(inspect.signature(test).parameters.values())[1:]
    fixed = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in ("backend", "request")]
    run.__signature__ = inspect.Signature([*fixed, *own])  # type: ignore[attr-defined]
    run.pytestmark = list(getattr(test, "pytestmark", []))  # type: ignore[attr-defined]
    marked: Test = pytest.mark.asyncio(pytest.mark.parametrize("backend", backends)(run))
    return marked


@contextlib.asynccontextmanager
async def world(backend: str, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A fresh namespace on the API server ``backend``, checked for leaks at the end."""
    namespace = f"test-{next(_numbers)}"
    async with contextlib.AsyncExitStack() as stack:
        clock: Clock
        if backend == "sandbox":
            clock = virtual = VirtualClock()
            sandbox, plane = KubeSandbox(virtual, random.Random(5)), None
            sandbox.install_crd(yaml.safe_load(CRD_FILE.read_text()))
            url = await stack.enter_async_context(sandbox.serve())
            http = await stack.enter_async_context(aiohttp.ClientSession())
            credentials = Credentials(ApiEndpoint(url), StaticToken())
            psono = PsonoDouble(now=virtual.now, sleep=virtual.sleep)
        else:
            clock, sandbox = LoopClock(), None
            plane = request.getfixturevalue("control_plane")
            url, tls = plane.url, plane.ssl_context()
            headers = {"Authorization": f"Bearer {plane.token}"}
            http = await stack.enter_async_context(
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), headers=headers)
            )
            credentials = Credentials(ApiEndpoint(url, tls), StaticToken(plane.token))
            psono = PsonoDouble()
        served = await stack.enter_async_context(psono.serve())
        stage = World(
            clock, http, url, credentials, psono, served.url, psono.add_key(), namespace, sandbox, plane
        )
        await stage.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        with listening() as lines:
            try:
                yield stage
                if stage.operator is not None:  # its last words count too
                    assert await stage.stop() == 0
                await _check_for_leaks(stage, lines)
            finally:
                if stage.operator is not None:
                    assert await stage.stop() == 0
                # The namespace is left to the end of the control plane: deleting it with finalizers in it
                # and no operator would keep the namespace controller busy for the rest of the session.
        assert psono.forbidden == [], "nothing but reads (K9)"


@contextlib.contextmanager
def listening() -> Any:
    """Everything that is logged in the block, at any level, in both forms an administrator may see."""
    lines: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.extend(each.format(record) for each in (TextFormatter(), JsonFormatter()))

    ear, root = Ear(logging.DEBUG), logging.getLogger()
    before = root.level
    root.addHandler(ear)
    root.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.removeHandler(ear)
        root.setLevel(before)


async def _check_for_leaks(stage: World, lines: list[str]) -> None:
    """Rule F8, fault I1."""
    seen = "\n".join(lines)
    for path in (stage.psono_secrets_path(), f"/apis/events.k8s.io/v1/namespaces/{stage.namespace}/events"):
        listed = await stage.get(path)
        if listed is not None:
            for each in listed["items"]:
                each.get("metadata", {}).pop("managedFields", None)
            seen += json.dumps(listed)
    for secret in {CANARY, *stage._secrets}:
        shown = leaked(secret, seen)
        assert not shown, f"a value was seen in a log line, a status or an event, {shown}"


def leaked(secret: str, text: str) -> str:
    """In which form ``text`` holds the secret: plain, or within base64 at any offset; empty when it does not."""
    if secret in text:
        return "plain"
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + secret.encode()).decode().rstrip("=")
        # Its first and last characters depend on what stands around it.
        inner = encoded[4 if offset else 0 : -1]
        if inner in text:
            return f"in base64 (offset {offset})"
    return ""
