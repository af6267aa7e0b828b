"""The pytest fixtures around ``tests.controlplane.cluster``: one control plane per test session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.controlplane.cluster import ROOT, ControlPlane, control_plane, missing_binaries

CRD_FILE = ROOT / "chart" / "crds" / "psonosecrets.secrets.psono.com.yaml"


def require_control_plane() -> None:
    """Skip where the control plane is not built; fail there when CI=true."""
    missing = missing_binaries()
    if not missing:
        return
    reason = f"the control plane is not built ({', '.join(missing)}); run `make control-plane`"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session", name="control_plane")
def _control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running control plane with the project's CRD established, shared by the whole session."""
    require_control_plane()
    with control_plane(Path(tmp_path_factory.mktemp("control-plane")), audit=True) as plane:
        install_crd(plane)
        yield plane


def install_crd(plane: ControlPlane) -> None:
    """Create the CRD and wait until the API server serves it."""
    crd = yaml.safe_load(CRD_FILE.read_text())
    status, answer = plane.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    assert status == 201, answer
    done = plane.kubectl(
        "wait", "--for=condition=Established", f"crd/{crd['metadata']['name']}", "--timeout=30s"
    )
    assert done.returncode == 0, done.stderr
