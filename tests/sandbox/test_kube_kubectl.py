"""Real kubectl against the served sandbox: what a person types in the demo must work (rule Q12)."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from psono_operator.sandbox.kube import KubeSandbox

ROOT = Path(__file__).resolve().parents[2]
BINARY = ROOT / ".cache" / "control-plane" / "kubectl"
CRD_FILE = ROOT / "chart" / "crds" / "psonosecrets.secrets.psono.com.yaml"
DEADLINE = 30.0

pytestmark = pytest.mark.asyncio

MANIFEST = """
apiVersion: secrets.psono.com/v1alpha1
kind: PsonoSecret
metadata: {name: demo}
spec:
  authentication: {secretRef: {name: credentials}}
  target: {name: database}
  data:
  - {secretKey: A, remoteRef: {secretId: id, field: f}}
"""
READY = {
    "type": "Ready",
    "status": "True",
    "observedGeneration": 1,
    "reason": "SecretSynchronized",
    "message": "",
    "lastTransitionTime": "2020-01-01T00:00:00Z",
}


def require_binary(path: Path) -> None:
    """Skip where a tool is missing; fail there when CI=true."""
    if os.access(path, os.X_OK):
        return
    reason = f"{path.name} is not there; run `make control-plane`"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


async def until(check: Callable[[], bool]) -> None:
    """Return when ``check`` holds; fails after a while."""
    for _ in range(int(DEADLINE * 100)):
        if check():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not happen in time")


@dataclass
class Kubectl:
    """kubectl with a kubeconfig and a cache of its own."""

    sandbox: KubeSandbox
    directory: Path

    def command(self, *arguments: str) -> list[str]:
        cache = f"--cache-dir={self.directory / 'cache'}"
        return [str(BINARY), f"--kubeconfig={self.directory / 'config'}", cache, *arguments]

    async def run(self, *arguments: str, stdin: str | None = None, editor: str = "false") -> tuple[int, str]:
        """Exit code and both outputs in one text."""
        process = await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], "HOME": str(self.directory), "KUBE_EDITOR": editor},
        )
        try:
            async with asyncio.timeout(DEADLINE):
                output, _ = await process.communicate(stdin.encode() if stdin is not None else None)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        return process.returncode or 0, output.decode()

    async def ok(self, *arguments: str, stdin: str | None = None, editor: str = "false") -> str:
        """The output of a command that must succeed."""
        code, output = await self.run(*arguments, stdin=stdin, editor=editor)
        assert code == 0, output
        return output

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self.ok(*arguments, "-o", "json"))


@pytest_asyncio.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    require_binary(BINARY)
    sandbox = KubeSandbox(rng=random.Random(1))
    sandbox.install_crd(yaml.safe_load(CRD_FILE.read_text()))
    async with sandbox.serve() as url:
        (tmp_path / "config").write_text(json.dumps(sandbox.kubeconfig(url)))
        yield Kubectl(sandbox, tmp_path)


async def test_get_prints_the_documented_columns(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=MANIFEST)
    status = json.dumps({"status": {"conditions": [READY], "lastSyncTime": "2020-01-01T00:00:00Z"}})
    await kubectl.ok("patch", "psonosecret", "demo", "--subresource=status", "--type=merge", "-p", status)
    head, row = (line.split() for line in (await kubectl.ok("get", "psonosecrets")).splitlines())
    assert head == ["NAME", "READY", "TARGET", "LAST", "SYNC", "AGE"]
    assert row[:3] == ["demo", "True", "database"]
    wide = await kubectl.ok("get", "psonosecrets", "-A", "-o", "wide")
    assert wide.splitlines()[0].split()[-3:] == ["REASON", "POLICY", "INTERVAL"]
    assert "demo" in await kubectl.ok("get", "psono"), "the category works"


async def test_get_yaml_and_json(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=MANIFEST)
    as_yaml = yaml.safe_load(await kubectl.ok("get", "psonosecret", "demo", "-o", "yaml"))
    assert as_yaml["spec"]["refreshInterval"] == "5m"
    as_json = await kubectl.json("get", "psonosecrets")
    assert [item["metadata"]["name"] for item in as_json["items"]] == ["demo"]


async def test_get_watches(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=MANIFEST)
    process = await asyncio.create_subprocess_exec(
        *kubectl.command("get", "psonosecrets", "-w"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE):
            assert (await process.stdout.readline()).split()[0] == b"NAME"
            assert (await process.stdout.readline()).split()[0] == b"demo"
            await until(lambda: any(entry.watch and entry.status for entry in kubectl.sandbox.journal))
            patch = '{"spec":{"target":{"name":"other"}}}'
            await kubectl.ok("patch", "psonosecret", "demo", "--type=merge", "-p", patch)
            assert b"other" in await process.stdout.readline()
    finally:
        process.kill()
        await process.communicate()


async def test_describe_a_psonosecret_with_its_events_and_a_secret(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=MANIFEST)
    uid = (await kubectl.json("get", "psonosecret", "demo"))["metadata"]["uid"]
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "demo.1", "namespace": "default"},
        "eventTime": "2026-12-01T12:00:00.000000Z",
        "action": "Sync",
        "reason": "TargetUpdateFailed",
        "type": "Warning",
        "note": "the target has another owner",
        "reportingController": "psono-kubernetes-operator",
        "reportingInstance": "pod",
        "regarding": {
            "apiVersion": "secrets.psono.com/v1alpha1",
            "kind": "PsonoSecret",
            "namespace": "default",
            "name": "demo",
            "uid": uid,
        },
    }
    await kubectl.ok("create", "-f", "-", stdin=json.dumps(event))
    text = await kubectl.ok("describe", "psonosecret", "demo")
    assert "TargetUpdateFailed" in text
    assert "the target has another owner" in text
    assert "TargetUpdateFailed" in await kubectl.ok("get", "events")
    await kubectl.ok("create", "secret", "generic", "s", "--from-literal=password=canary")
    text = await kubectl.ok("describe", "secret", "s")
    assert "password:  6 bytes" in text
    assert "canary" not in text


async def test_apply_twice_changes_nothing_the_second_time(kubectl: Kubectl) -> None:
    assert "created" in await kubectl.ok("apply", "-f", "-", stdin=MANIFEST)
    assert "unchanged" in await kubectl.ok("apply", "-f", "-", stdin=MANIFEST)
    changed = MANIFEST.replace("database", "other")
    assert "configured" in await kubectl.ok("apply", "-f", "-", stdin=changed)
    assert (await kubectl.json("get", "psonosecret", "demo"))["metadata"]["generation"] == 2


async def test_apply_refuses_a_misspelt_field_and_a_bad_value(kubectl: Kubectl) -> None:
    code, text = await kubectl.run("apply", "-f", "-", stdin=MANIFEST.replace("target:", "targett:"))
    assert code == 1
    assert 'unknown field "spec.targett"' in text or "spec.target: Required value" in text
    bad = MANIFEST.replace("spec:", "spec:\n  refreshInterval: 5s")
    code, text = await kubectl.run("apply", "-f", "-", stdin=bad)
    assert code == 1
    assert "refreshInterval must be a Go duration of at least 30s" in text


async def test_apply_of_a_secret_twice_and_a_removed_key(kubectl: Kubectl) -> None:
    manifest = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b, c: d}\n"
    assert "created" in await kubectl.ok("apply", "-f", "-", stdin=manifest)
    assert "unchanged" not in await kubectl.ok("apply", "-f", "-", stdin=manifest.replace("a: b", "a: x"))
    assert (await kubectl.json("get", "secret", "s"))["data"] == {"a": "eA==", "c": "ZA=="}


async def test_server_side_apply_and_its_conflict(kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    assert "serverside-applied" in await kubectl.ok(*apply, stdin=MANIFEST)
    changed = MANIFEST.replace("database", "other")
    code, text = await kubectl.run(*apply, "--field-manager=another", stdin=changed)
    assert code == 1
    assert 'conflict with "kubectl"' in text
    await kubectl.ok(*apply, "--field-manager=another", "--force-conflicts", stdin=changed)
    assert (await kubectl.json("get", "psonosecret", "demo"))["spec"]["target"]["name"] == "other"


async def test_annotate_label_and_three_kinds_of_patch(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=MANIFEST)
    await kubectl.ok("annotate", "psonosecret", "demo", "secrets.psono.com/force-sync=now")
    await kubectl.ok("label", "psonosecret", "demo", "team=a")
    merge = '{"spec":{"refreshInterval":"10m"}}'
    await kubectl.ok("patch", "psonosecret", "demo", "--type=merge", "-p", merge)
    operations = '[{"op":"replace","path":"/spec/target/name","value":"other"}]'
    await kubectl.ok("patch", "psonosecret", "demo", "--type=json", "-p", operations)
    await kubectl.ok("create", "secret", "generic", "s", "--from-literal=a=b")
    await kubectl.ok("patch", "secret", "s", "-p", '{"stringData":{"c":"d"}}')
    obj = await kubectl.json("get", "psonosecret", "demo")
    assert obj["metadata"]["annotations"]["secrets.psono.com/force-sync"] == "now"
    assert obj["metadata"]["labels"] == {"team": "a"}
    assert (obj["spec"]["refreshInterval"], obj["spec"]["target"]["name"]) == ("10m", "other")
    assert (await kubectl.json("get", "secret", "s"))["data"] == {"a": "Yg==", "c": "ZA=="}
    await kubectl.ok("annotate", "psonosecret", "demo", "secrets.psono.com/force-sync-")
    assert "annotations" not in (await kubectl.json("get", "psonosecret", "demo"))["metadata"]


async def test_edit_with_an_editor(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=MANIFEST)
    text = await kubectl.ok("edit", "psonosecret", "demo", editor="sed -i s/database/edited/")
    assert "edited" in text
    assert (await kubectl.json("get", "psonosecret", "demo"))["spec"]["target"]["name"] == "edited"
    await kubectl.ok("create", "secret", "generic", "s", "--from-literal=a=b")
    await kubectl.ok("edit", "secret", "s", editor="sed -i s/Yg==/Yw==/")
    assert (await kubectl.json("get", "secret", "s"))["data"] == {"a": "Yw=="}


async def test_delete_waits_until_it_is_gone(kubectl: Kubectl) -> None:
    held = MANIFEST.replace("{name: demo}", "{name: demo, finalizers: [example.com/f]}")
    await kubectl.ok("create", "-f", "-", stdin=held)
    waiting = asyncio.create_task(kubectl.ok("delete", "psonosecret", "demo"))
    await until(lambda: bool(kubectl.sandbox.journal.find("DELETE")))
    assert not waiting.done()
    patch = '{"metadata":{"finalizers":null}}'
    await kubectl.ok("patch", "psonosecret", "demo", "--type=merge", "-p", patch)
    assert "deleted" in await waiting
    code, text = await kubectl.run("get", "psonosecret", "demo")
    assert (code, "NotFound" in text) == (1, True)


@pytest.mark.parametrize("cascade", ["orphan", "background", "foreground"])
async def test_delete_cascades(kubectl: Kubectl, cascade: str) -> None:
    await kubectl.ok("create", "-f", "-", stdin=MANIFEST)
    uid = (await kubectl.json("get", "psonosecret", "demo"))["metadata"]["uid"]
    owner = {
        "apiVersion": "secrets.psono.com/v1alpha1",
        "kind": "PsonoSecret",
        "name": "demo",
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    child = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "ownerReferences": [owner]}}
    await kubectl.ok("create", "-f", "-", stdin=json.dumps(child))
    await kubectl.ok("delete", "psonosecret", "demo", f"--cascade={cascade}")
    if cascade == "orphan":
        left = await kubectl.json("get", "secret", "s")
        assert not left["metadata"].get("ownerReferences")
    else:
        await kubectl.ok("wait", "--for=delete", "secret/s", "--timeout=10s")


async def test_wait_for_the_condition(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=MANIFEST)
    wait = ("wait", "--for=condition=Ready", "psonosecret/demo", "--timeout=20s")
    waiting = asyncio.create_task(kubectl.ok(*wait))
    status = json.dumps({"status": {"conditions": [READY]}})
    await kubectl.ok("patch", "psonosecret", "demo", "--subresource=status", "--type=merge", "-p", status)
    assert "condition met" in await waiting


async def test_namespaces_come_and_go(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "namespace", "team-a")
    await kubectl.ok("create", "-n", "team-a", "-f", "-", stdin=MANIFEST)
    assert "Active" in await kubectl.ok("get", "namespace", "team-a")
    await kubectl.ok("delete", "namespace", "team-a")
    assert "team-a" not in await kubectl.ok("get", "namespaces")
    assert await kubectl.ok("get", "psonosecrets", "-A") == "No resources found\n"


async def test_api_resources_and_explain(kubectl: Kubectl) -> None:
    text = await kubectl.ok("api-resources", "--api-group=secrets.psono.com")
    assert text.splitlines()[1].split() == [
        "psonosecrets",
        "secrets.psono.com/v1alpha1",
        "true",
        "PsonoSecret",
    ]
    text = await kubectl.ok("explain", "psonosecret.spec.target.creationPolicy")
    assert "Owner replaces the whole Secret" in text
    assert "enum" in text.lower()
    assert "v1.36" in await kubectl.ok("version")


async def test_the_crd_can_be_applied_again(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=MANIFEST)
    await kubectl.ok("apply", "--server-side", "--force-conflicts", "-f", str(CRD_FILE))
    await kubectl.ok(
        "wait", "--for=condition=Established", "crd/psonosecrets.secrets.psono.com", "--timeout=5s"
    )
    assert "demo" in await kubectl.ok("get", "psonosecrets")


async def test_a_dry_run_and_a_diff(kubectl: Kubectl) -> None:
    assert "server dry run" in await kubectl.ok("create", "-f", "-", "--dry-run=server", stdin=MANIFEST)
    assert "No resources found" in await kubectl.ok("get", "psonosecrets")
    await kubectl.ok("apply", "-f", "-", stdin=MANIFEST)
    assert await kubectl.run("diff", "-f", "-", stdin=MANIFEST) == (0, "")
    code, text = await kubectl.run("diff", "-f", "-", stdin=MANIFEST.replace("database", "other"))
    assert (code, "+    name: other" in text) == (1, True)
