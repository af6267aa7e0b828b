"""The ``api`` fixture: the same test against the sandbox and against a real control plane."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from psono_operator.sandbox.kube import KubeSandbox
from tests.conformance.rawapi import Api
from tests.controlplane.cluster import ControlPlane
from tests.controlplane_fixture import CRD_FILE

_numbers = itertools.count(1)
SERVERS = ["sandbox", pytest.param("controlplane", marks=pytest.mark.controlplane)]


@pytest_asyncio.fixture(params=SERVERS)
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """A server with the CRD, and a fresh namespace in it."""
    namespace = f"conformance-{next(_numbers)}"
    async with AsyncExitStack() as stack:
        if request.param == "sandbox":
            sandbox = KubeSandbox(rng=random.Random(namespace))
            sandbox.install_crd(yaml.safe_load(CRD_FILE.read_text()))
            url = await stack.enter_async_context(sandbox.serve())
            session = await stack.enter_async_context(aiohttp.ClientSession())
            server = Api("sandbox", url, session, namespace, sandbox.compact)
        else:
            plane: ControlPlane = request.getfixturevalue("control_plane")
            arguments: dict[str, Any] = {
                "connector": aiohttp.TCPConnector(ssl=plane.ssl_context()),
                "headers": {"Authorization": f"Bearer {plane.token}"},
            }
            session = await stack.enter_async_context(aiohttp.ClientSession(**arguments))
            server = Api("controlplane", plane.url, session, namespace, plane.compact)
        answer = await server.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        assert answer.status == 201, answer.body
        yield server
        await server.delete(f"/api/v1/namespaces/{namespace}")
