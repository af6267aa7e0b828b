"""Starts and ends a real control plane on free loopback ports.

`make control-plane` builds the binaries from Go modules, once, into a git-ignored cache; this module only
runs them. Everything a run needs lives in one directory, and every process is ended by its own id, also
when the parent dies without a word. It refuses to know what is tested with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BINARIES = ROOT / ".cache" / "control-plane"
NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
TOKEN = "admin-token-of-a-throw-away-cluster"
START_DEADLINE = 60.0
_CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "deployment-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
)


class ControlPlaneError(Exception):
    """The control plane is missing or did not start; the message says what to do."""


def missing_binaries() -> list[str]:
    """Names of the binaries that `make control-plane` still has to build."""
    return [name for name in NAMES if not os.access(BINARIES / name, os.X_OK)]


def free_ports(count: int) -> list[int]:
    """``count`` different TCP ports that were free on 127.0.0.1 a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@dataclass
class ControlPlane:
    """A running control plane. Paths and URLs are absolute; the token is a cluster administrator's."""

    directory: Path
    url: str
    etcd_url: str
    ca_file: Path
    kubeconfig: Path
    audit_log: Path | None = None
    token: str = TOKEN
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)

    def ssl_context(self) -> ssl.SSLContext:
        """A context that trusts this API server and nothing else."""
        return ssl.create_default_context(cafile=str(self.ca_file))

    def start(self, name: str) -> None:
        """Start (again) the process ``name`` with its own command line."""
        log = (self.directory / f"{name}.log").open("ab")
        with log:
            self.processes[name] = subprocess.Popen(
                self.commands[name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  (no threads are running here yet)
            )

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process ``name`` and wait for it."""
        process = self.processes.pop(name, None)
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=10)

    def stop_all(self) -> None:
        """End everything, last started first."""
        for name in reversed(list(self.processes)):
            self.stop(name, signal.SIGKILL)

    def wait_ready(self, deadline: float = START_DEADLINE) -> None:
        """Block until the API server says it is ready; ControlPlaneError after ``deadline`` seconds."""
        end = time.monotonic() + deadline
        while time.monotonic() < end:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise ControlPlaneError(f"{name} ended at once: {self._last_line(name)}")
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    return
            except (OSError, urllib.error.URLError):
                pass
            time.sleep(0.05)
        raise ControlPlaneError(f"kube-apiserver is not ready: {self._last_line('kube-apiserver')}")

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Any:
        """One call as administrator: (status, parsed or raw body)."""
        request = urllib.request.Request(  # noqa: S310  (the URL is our own loopback server)
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": content_type},
        )
        try:
            with urllib.request.urlopen(request, context=self.ssl_context(), timeout=10) as answer:  # noqa: S310
                return answer.status, _parsed(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _parsed(error.read())

    def compact(self) -> int:
        """Compact etcd up to its current revision, which is returned."""
        answer = self._etcd("/v3/kv/range", {"key": "AA==", "limit": "1"})
        revision = int(answer["header"]["revision"])
        self._etcd("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run the real kubectl against this control plane."""
        return subprocess.run(
            [str(BINARIES / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def _etcd(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(self.etcd_url + path, data=json.dumps(body).encode())  # noqa: S310
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return json.load(answer)

    def _last_line(self, name: str) -> str:
        lines = (self.directory / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no output"


@contextlib.contextmanager
def control_plane(
    directory: Path, *, audit: bool = False, apiserver_flags: Sequence[str] = (), controllers: bool = True
) -> Iterator[ControlPlane]:
    """A control plane in the empty ``directory``, ready, and gone when the block is left."""
    missing = missing_binaries()
    if missing:
        raise ControlPlaneError(f"not built yet: {', '.join(missing)}; run `make control-plane`")
    plane = _prepare(directory, audit=audit, apiserver_flags=apiserver_flags)
    try:
        plane.start("etcd")
        plane.start("kube-apiserver")
        plane.wait_ready()
        if controllers:
            plane.start("kube-controller-manager")
        yield plane
    finally:
        plane.stop_all()


def _prepare(directory: Path, *, audit: bool, apiserver_flags: Sequence[str]) -> ControlPlane:
    etcd_port, peer_port, api_port = free_ports(3)
    certificates = directory / "certs"
    plane = ControlPlane(
        directory=directory,
        url=f"https://127.0.0.1:{api_port}",
        etcd_url=f"http://127.0.0.1:{etcd_port}",
        ca_file=certificates / "apiserver.crt",
        kubeconfig=directory / "kubeconfig",
    )
    key = directory / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    tokens = directory / "tokens.csv"
    tokens.write_text(f"{TOKEN},admin,admin,system:masters\n")
    plane.kubeconfig.write_text(json.dumps(kubeconfig_document(plane.url, plane.ca_file, TOKEN)))
    plane.kubeconfig.chmod(0o600)
    audit_flags: list[str] = []
    if audit:
        policy = directory / "audit-policy.json"
        policy.write_text(
            json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]})
        )
        plane.audit_log = directory / "audit.log"
        audit_flags = [f"--audit-policy-file={policy}", f"--audit-log-path={plane.audit_log}"]
    plane.commands = {
        "etcd": [
            str(BINARIES / "etcd"),
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={plane.etcd_url}",
            f"--advertise-client-urls={plane.etcd_url}",
            f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
            "--unsafe-no-fsync",
        ],
        "kube-apiserver": [
            str(BINARIES / "kube-apiserver"),
            f"--etcd-servers={plane.etcd_url}",
            f"--secure-port={api_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--cert-dir={certificates}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            *audit_flags,
            *apiserver_flags,
        ],
        "kube-controller-manager": [
            str(BINARIES / "kube-controller-manager"),
            f"--kubeconfig={plane.kubeconfig}",
            f"--service-account-private-key-file={key}",
            "--leader-elect=false",
            "--secure-port=0",
            # Ending a namespace takes a call for each kind of resource; the default of 20 a second is for
            # clusters that have more to do.
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            f"--cert-dir={directory / 'kcm'}",
            f"--root-ca-file={plane.ca_file}",
            f"--controllers={','.join(_CONTROLLERS)}",
        ],
    }
    return plane


def kubeconfig_document(url: str, ca_file: Path, token: str) -> dict[str, Any]:
    """A kubeconfig (JSON is YAML) with one cluster, one user and one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(ca_file)}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")


def _die_with_parent() -> None:
    """Ask the kernel (Linux) to end this child when its parent ends, however it ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
