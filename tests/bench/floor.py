"""The floor: the least work that can make N PsonoSecrets Ready.

One GET of the authentication Secret per namespace; per object one read from Psono, and then PATCH finalizer,
POST target, PATCH status; 64 objects at once. No cache, no watch, no check, no retry.

`python -m tests.bench.floor API_URL CA_FILE TOKEN`
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import ssl
import sys
from datetime import UTC, datetime
from typing import Any

import aiohttp
from nacl.secret import SecretBox

AT_ONCE = 64
GROUP = "/apis/secrets.psono.com/v1alpha1"


async def main(url: str, ca_file: str, token: str) -> None:
    context = ssl.create_default_context(cafile=ca_file)
    headers = {"Authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(limit=AT_ONCE, ssl=context)
    async with (
        aiohttp.ClientSession(url, connector=connector, headers=headers) as api,
        aiohttp.ClientSession() as psono,
    ):
        listed = await call(api, "GET", f"{GROUP}/psonosecrets")
        credentials = {}
        for namespace in {item["metadata"]["namespace"] for item in listed["items"]}:
            secret = await call(api, "GET", f"/api/v1/namespaces/{namespace}/secrets/psono-credentials")
            credentials[namespace] = {k: base64.b64decode(v).decode() for k, v in secret["data"].items()}
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(item: dict[str, Any]) -> None:
            async with slots:
                await synchronize(api, psono, item, credentials[item["metadata"]["namespace"]])

        await asyncio.gather(*(one(item) for item in listed["items"]))


async def synchronize(
    api: aiohttp.ClientSession, psono: aiohttp.ClientSession, item: dict[str, Any], auth: dict[str, str]
) -> None:
    metadata, spec = item["metadata"], item["spec"]
    path = f"{GROUP}/namespaces/{metadata['namespace']}/psonosecrets/{metadata['name']}"
    await call(api, "PATCH", path, {"metadata": {"finalizers": ["secrets.psono.com/finalizer"]}})
    secret_id = spec["data"][0]["remoteRef"]["secretId"]
    body = {"api_key_id": auth["apiKeyId"], "secret_id": secret_id}
    async with psono.post(auth["serverUrl"] + "/api-key-access/secret/", json=body) as answer:
        sealed = {k: bytes.fromhex(v) for k, v in (await answer.json()).items() if isinstance(v, str)}
    entry_key = SecretBox(bytes.fromhex(auth["apiSecretKey"])).decrypt(
        sealed["secret_key"], sealed["secret_key_nonce"]
    )
    entry = json.loads(
        SecretBox(bytes.fromhex(entry_key.decode())).decrypt(sealed["data"], sealed["data_nonce"])
    )
    values = {each["key"]: each["value"] for each in entry["environment_variables_variables"]}
    owner = {
        "apiVersion": "secrets.psono.com/v1alpha1", "kind": "PsonoSecret", "name": metadata["name"],
        "uid": metadata["uid"], "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    target = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": spec["target"]["name"], "ownerReferences": [owner]},
        "type": "Opaque",
        "data": {
            each["secretKey"]: base64.b64encode(
                values[each["remoteRef"]["environmentVariable"]].encode()
            ).decode()
            for each in spec["data"]
        },
    }
    await call(api, "POST", f"/api/v1/namespaces/{metadata['namespace']}/secrets", target)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": "Ready", "status": "True", "reason": "SecretSynchronized", "message": "", "lastTransitionTime": now,
    }  # fmt: skip
    status = {"observedGeneration": 1, "lastSyncTime": now, "conditions": [condition]}
    await call(api, "PATCH", path + "/status", {"status": status})


async def call(api: aiohttp.ClientSession, method: str, path: str, body: Any = None) -> Any:
    headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
    data = None if body is None else json.dumps(body).encode()
    async with api.request(method, path, data=data, headers=headers) as answer:
        raw = await answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path} answered {answer.status}")
        return json.loads(raw)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    signal.pause()  # stay until measured
