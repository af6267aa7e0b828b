"""The sandbox as a whole: CRDs, tokens, the journal, its promises about values (rule Q11, Q12)."""

from __future__ import annotations

import ast
import copy
import io
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from psono_operator.sandbox.kube import KubeSandbox, SchemaError
from psono_operator.sandbox.kube.schema import compile_schema
from tests.controlplane_fixture import CRD_FILE
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
CRD = yaml.safe_load(CRD_FILE.read_text())
SECRETS = "/api/v1/namespaces/default/secrets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "/apis/secrets.psono.com/v1alpha1"
ROOM = Path(__file__).parents[2] / "psono_operator" / "sandbox"


@asynccontextmanager
async def served(
    sandbox: KubeSandbox, headers: dict[str, str] | None = None
) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    async with sandbox.serve() as url, aiohttp.ClientSession(headers=headers) as session:
        yield url, session


def sandbox(**arguments: Any) -> KubeSandbox:
    return KubeSandbox(VirtualClock(), random.Random(1), **arguments)


async def test_a_fresh_sandbox_has_the_namespaces_of_a_cluster_and_no_custom_resource() -> None:
    async with served(sandbox()) as (url, session):
        async with session.get(f"{url}/api/v1/namespaces") as response:
            names = [item["metadata"]["name"] for item in (await response.json())["items"]]
        assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
        async with session.get(f"{url}{GROUP}/psonosecrets") as response:
            assert response.status == 404


async def test_a_crd_created_over_http_is_served_and_established() -> None:
    async with served(sandbox()) as (url, session):
        async with session.post(url + CRDS, json=CRD) as response:
            assert response.status == 201
            body = await response.json()
        conditions = {each["type"]: each["status"] for each in body["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}
        async with session.get(f"{url}{GROUP}/psonosecrets") as response:
            assert response.status == 200


async def test_a_removed_crd_takes_its_objects_and_its_path_with_it() -> None:
    """Rule F4: 404 for the resource type."""
    kube = sandbox()
    kube.install_crd(CRD)
    async with served(kube) as (url, session):
        async with session.delete(f"{url}{CRDS}/psonosecrets.secrets.psono.com") as response:
            assert response.status == 200
        async with session.get(f"{url}{GROUP}/psonosecrets") as response:
            assert response.status == 404


async def test_installing_a_crd_twice_is_an_update() -> None:
    kube = sandbox()
    kube.install_crd(CRD)
    loose = copy.deepcopy(CRD)
    spec = loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["refreshInterval"].pop("x-kubernetes-validations")
    kube.install_crd(loose)
    resource = kube.registry.find("secrets.psono.com", "v1alpha1", "psonosecrets")
    assert resource is not None
    assert resource.schema is not None
    assert not resource.schema.properties["spec"].properties["refreshInterval"].rules


async def test_what_was_stored_under_a_looser_crd_can_still_be_changed_elsewhere() -> None:
    """Ratcheting, as seen on a real server: unchanged errors are warnings."""
    kube = sandbox()
    loose = copy.deepcopy(CRD)
    spec = loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["refreshInterval"].pop("x-kubernetes-validations")
    kube.install_crd(loose)
    path = f"{GROUP}/namespaces/default/psonosecrets"
    body = {
        "apiVersion": "secrets.psono.com/v1alpha1",
        "kind": "PsonoSecret",
        "metadata": {"name": "a"},
        "spec": {
            "refreshInterval": "10s",
            "authentication": {"secretRef": {"name": "credentials"}},
            "target": {"name": "target"},
            "data": [{"secretKey": "A", "remoteRef": {"secretId": "id", "field": "f"}}],
        },
    }
    merge = {"Content-Type": "application/merge-patch+json"}
    async with served(kube) as (url, session):
        async with session.post(url + path, json=body) as response:
            assert response.status == 201
        kube.install_crd(CRD)
        patch: dict[str, Any] = {"spec": {"target": {"name": "other"}}, "metadata": {"labels": {"a": "b"}}}
        async with session.patch(f"{url}{path}/a", json=patch, headers=merge) as response:
            assert response.status == 200
            assert "at least 30s" in response.headers["Warning"]
        patch = {"spec": {"refreshInterval": "11s"}}
        async with session.patch(f"{url}{path}/a", json=patch, headers=merge) as response:
            assert response.status == 422


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"x-kubernetes-validations": [{"rule": "self.size() > 3"}]},
            "no stand-in for the rule 'self.size() > 3'",
        ),
        ({"oneOf": []}, "does not know oneOf"),
        ({"pattern": "("}, "pattern does not compile"),
    ],
)
async def test_a_schema_that_would_be_judged_wrongly_is_refused(change: dict[str, Any], text: str) -> None:
    broken = copy.deepcopy(CRD)
    root = broken["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"]["spec"]["properties"]["refreshInterval"] |= change
    kube = sandbox()
    with pytest.raises(SchemaError) as caught:
        kube.install_crd(broken)
    assert text in str(caught.value)
    assert ".spec.refreshInterval" in str(caught.value)
    async with served(kube) as (url, session), session.post(url + CRDS, json=broken) as response:
        assert response.status == 422
        assert text in (await response.json())["message"]


async def test_a_type_is_required_in_a_structural_schema() -> None:
    with pytest.raises(SchemaError):
        compile_schema({"properties": {}})


async def test_a_required_token_is_required() -> None:
    kube = sandbox(token="right")
    async with served(kube) as (url, session):
        async with session.get(url + SECRETS, headers={"Authorization": "Bearer wrong"}) as response:
            assert response.status == 401
            assert (await response.json())["reason"] == "Unauthorized"
        async with session.get(url + SECRETS, headers={"Authorization": "Bearer right"}) as response:
            assert response.status == 200


async def test_without_one_any_token_will_do() -> None:
    async with (
        served(sandbox(), {"Authorization": "Bearer anything"}) as (url, session),
        session.get(url + SECRETS) as response,
    ):
        assert response.status == 200


async def test_the_journal_keeps_requests_and_no_body_of_a_secret() -> None:
    kube = sandbox()
    headers = {"User-Agent": "operator/1"}
    async with served(kube, headers) as (url, session):
        body = {"metadata": {"name": "a"}, "stringData": {"k": "canary"}}
        async with session.post(url + SECRETS, json=body, params={"fieldManager": "m"}) as response:
            assert response.status == 201
        async with session.post(f"{url}/api/v1/namespaces", json={"metadata": {"name": "n"}}) as response:
            assert response.status == 201
        async with session.get(f"{url}{SECRETS}/b") as response:
            assert response.status == 404
    secret, namespace, get = kube.journal
    assert (secret.method, secret.path, secret.status) == ("POST", SECRETS, 201)
    assert (secret.query, secret.content_type) == ({"fieldManager": "m"}, "application/json")
    assert secret.user_agent == "operator/1"
    assert secret.body is None
    assert namespace.body == {"metadata": {"name": "n"}}
    assert get.status == 404
    assert [entry.path for entry in kube.journal.writes()] == [SECRETS, "/api/v1/namespaces"]
    assert "canary" not in repr(list(kube.journal))
    kube.journal.clear()
    assert len(kube.journal) == 0


async def test_the_journal_says_that_a_watch_has_begun() -> None:
    kube = sandbox()
    async with (
        served(kube) as (url, session),
        session.get(url + SECRETS, params={"watch": "true", "resourceVersion": "1"}) as response,
    ):
        assert response.status == 200
        (entry,) = kube.journal
        assert (entry.watch, entry.status) == (True, 200)


async def test_a_body_over_3_mib_is_413() -> None:
    kube = sandbox()
    async with served(kube) as (url, session):
        data = io.BytesIO(b"{}" + b" " * (3 * 1024 * 1024))
        headers = {"Content-Type": "application/json"}
        async with session.post(url + SECRETS, data=data, headers=headers) as response:
            assert response.status == 413
            assert (await response.json())["reason"] == "RequestEntityTooLarge"


async def test_the_kubeconfig_names_the_url_and_the_token() -> None:
    config = sandbox(token="t").kubeconfig("http://127.0.0.1:1")
    assert config["clusters"][0]["cluster"] == {"server": "http://127.0.0.1:1"}
    assert config["users"][0]["user"] == {"token": "t"}


async def test_the_same_seed_gives_the_same_uids() -> None:
    def uids() -> list[str]:
        kube = sandbox()
        kube.create_namespace("a")
        return [obj["metadata"]["uid"] for obj in kube.storage.objects("/namespaces").values()]

    assert uids() == uids()


async def test_the_sandbox_imports_nothing_of_the_operator() -> None:
    """A mistake cannot be made once on both sides of a wire."""
    allowed = ("psono_operator.sandbox", "aiohttp", "yaml")
    for file in (ROOM / "kube").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                if name.startswith("psono_operator"):
                    assert name.startswith(allowed), f"{file.name} imports {name}"
