"""What the demo plays on: an API server and a Psono server in memory, and a few words of kubectl.

The words speak plain HTTP to the API server, as any user would; nothing here reaches into the operator.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
import yaml

from psono_operator.api.crd import crd_text
from psono_operator.api.names import API_VERSION, GROUP, KIND, PLURAL, VERSION
from psono_operator.cli.table import rendered_table
from psono_operator.sandbox.kube import KubeSandbox
from psono_operator.sandbox.psono import ApiKey, PsonoDouble

NAMESPACE = "production"
NAME = "database-credentials"
AUTH = "psono-operator-credentials"
KEYS = ("DB_HOST", "DB_USER", "DB_PASSWORD")
PATIENCE = 5.0
"""Seconds after which something that should have happened counts as not happened."""

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class DemoFailed(Exception):
    """Something that the demo promises did not happen."""


@dataclass(frozen=True)
class Stage:
    """Both servers, running, with one Psono entry and an API key that may read it."""

    kube: KubeSandbox
    kube_url: str
    psono: PsonoDouble
    psono_url: str
    key: ApiKey
    entry: str
    values: dict[str, str]
    _http: aiohttp.ClientSession

    def rotate(self, name: str, value: str) -> None:
        """Change one variable of the entry in Psono."""
        self.values[name] = value
        self.psono.update_entry(self.entry, _entry(self.values))

    async def call(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", accept: str = ""
    ) -> Any:
        """One request; DemoFailed for anything but success, None for 404 to a GET."""
        headers = {"Content-Type": kind, "Accept": accept or "application/json"}
        data = None if body is None else json.dumps(body)
        async with self._http.request(method, self.kube_url + path, data=data, headers=headers) as answer:
            text = await answer.text()
            if answer.status == 404 and method == "GET":
                return None
            if answer.status >= 400:
                raise DemoFailed(f"{method} {path} answered {answer.status}")
            return json.loads(text)

    async def secret(self) -> dict[str, str] | None:
        """The target's values, decoded; None when there is no target."""
        found = await self.call("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}")
        if found is None:
            return None
        return {key: base64.b64decode(value).decode() for key, value in (found.get("data") or {}).items()}

    async def ready(self) -> dict[str, str]:
        """The Ready condition of the PsonoSecret; empty when there is none yet."""
        found = await self.call("GET", f"{collection()}/{NAME}") or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "Ready"), {})

    async def table(self) -> str:
        """What ``kubectl get psonosecrets`` prints."""
        return rendered_table(await self.call("GET", collection(), accept=_TABLE), datetime.now(UTC))

    async def until(self, what: str, check: Callable[[], Any]) -> float:
        """Wait until ``check`` (async) answers true; the seconds it took. DemoFailed names ``what``."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while not await check():
            if loop.time() - begun > PATIENCE:
                raise DemoFailed(f"not seen within {PATIENCE:.0f} s: {what}")
            await asyncio.sleep(0.02)
        return loop.time() - begun


def collection() -> str:
    """The path of the demo's PsonoSecrets."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/{PLURAL}"


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Set the stage: CRD installed, namespace made, entry stored. Everything is gone afterwards."""
    kube, psono = KubeSandbox(), PsonoDouble()
    kube.install_crd(yaml.safe_load(crd_text()))
    kube.create_namespace(NAMESPACE)
    key = psono.add_key()
    values = {
        "DB_HOST": "postgres.production.svc",
        "DB_USER": "application",
        "DB_PASSWORD": "a-first-password",
    }
    entry = psono.add_entry(_entry(values), [key])
    async with kube.serve() as kube_url, psono.serve() as served, aiohttp.ClientSession() as http:
        yield Stage(kube, kube_url, psono, served.url, key, entry, values, http)


def auth_secret(on: Stage) -> dict[str, Any]:
    """The authentication Secret."""
    text = {"serverUrl": on.psono_url, "apiKeyId": on.key.id, "apiSecretKey": on.key.secret_key_hex}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": AUTH}, "stringData": text}


def psono_secret(on: Stage) -> dict[str, Any]:
    """The PsonoSecret of the story: three values of one entry."""
    ref = {"secretId": on.entry}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "refreshInterval": "5m",
            "authentication": {"secretRef": {"name": AUTH}},
            "target": {"name": NAME},
            "data": [{"secretKey": key, "remoteRef": {**ref, "environmentVariable": key}} for key in KEYS],
        },
    }


def manifest(obj: Mapping[str, Any]) -> str:
    """The object as YAML for people."""
    return yaml.safe_dump(copy.deepcopy(dict(obj)), sort_keys=False).rstrip()


def _entry(values: Mapping[str, str]) -> dict[str, object]:
    return {
        "environment_variables_title": "shop database",
        "environment_variables_variables": [{"key": key, "value": value} for key, value in values.items()],
    }
