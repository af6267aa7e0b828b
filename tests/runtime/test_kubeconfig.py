"""Kubeconfig files, and the order in which credentials are looked for (docs/architecture.md)."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import ssl
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from psono_operator.runtime.credentials import Credentials, FileToken
from psono_operator.runtime.errors import ConfigurationError
from psono_operator.runtime.kubeconfig import discover_credentials, load_kubeconfig
from psono_operator.runtime.plugintoken import PluginToken
from tests.virtualtime import VirtualClock

CANARY = "c4n4ry"
HTTPS = "https://127.0.0.1:1"

pytestmark = pytest.mark.asyncio


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def client_pair(authority: trustme.CA) -> tuple[bytes, bytes]:
    issued = authority.issue_cert("somebody@example.com")
    return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def config(
    user: dict[str, Any] | None = None,
    *,
    server: str = "http://127.0.0.1:1",
    cluster: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A kubeconfig with one context, ``here``."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }


def write(path: Path, content: object) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


async def load(tmp_path: Path, content: object, context: str | None = None) -> Credentials:
    return await load_kubeconfig([write(tmp_path / "config", content)], context, clock=VirtualClock())


async def test_an_http_server_needs_nothing_else(tmp_path: Path) -> None:
    """The sandbox is one."""
    credentials = await load(tmp_path, config(server="http://127.0.0.1:8001/"))
    endpoint = credentials.endpoint
    assert (endpoint.url, endpoint.ssl_context, endpoint.default_namespace) == (
        "http://127.0.0.1:8001",
        None,
        "ns",
    )
    assert await credentials.tokens.token() is None


@pytest.mark.parametrize(
    ("user", "scheme", "token"),
    [
        ({"token": " t "}, "Bearer", "t"),
        ({"username": "u", "password": "p"}, "Basic", encoded(b"u:p")),
        ({"username": "u"}, "Bearer", None),
    ],
)
async def test_static_credentials(
    tmp_path: Path, user: dict[str, Any], scheme: str, token: str | None
) -> None:
    tokens = (await load(tmp_path, config(user))).tokens
    assert (tokens.scheme, await tokens.token()) == (scheme, token)


async def test_a_token_file_is_relative_to_the_kubeconfig_and_read_again(tmp_path: Path) -> None:
    write(tmp_path / "secrets" / "token", "t\n")
    tokens = (await load(tmp_path, config({"tokenFile": "secrets/token", "token": "other"}))).tokens
    assert isinstance(tokens, FileToken)
    assert await tokens.token() == "t"


@pytest.mark.parametrize("inline", [True, False])
async def test_certificates_come_from_data_or_files(
    tmp_path: Path, inline: bool, authority: trustme.CA, client_pair: tuple[bytes, bytes]
) -> None:
    certificate, key = client_pair
    if inline:
        cluster = {"certificate-authority-data": encoded(authority.cert_pem.bytes())}
        user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    else:
        authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
        (tmp_path / "c.crt").write_bytes(certificate)
        (tmp_path / "c.key").write_bytes(key)
        cluster = {"certificate-authority": "ca.crt"}
        user = {"client-certificate": "c.crt", "client-key": "c.key"}
    content = config(user, server=HTTPS, cluster={**cluster, "tls-server-name": "kube"})
    endpoint = (await load(tmp_path, content)).endpoint
    assert endpoint.ssl_context is not None
    assert len(endpoint.ssl_context.get_ca_certs()) == 1
    assert endpoint.ssl_context.check_hostname
    assert endpoint.server_name == "kube"


async def test_skipping_verification_is_done_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = config(server="https://127.0.0.1:1", cluster={"insecure-skip-tls-verify": True})
    context = (await load(tmp_path, content)).endpoint.ssl_context
    assert context is not None
    assert context.verify_mode is ssl.CERT_NONE
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_context_can_be_chosen_and_may_have_no_user(tmp_path: Path) -> None:
    content = config()
    content["contexts"].append({"name": "there", "context": {"cluster": "d"}})
    content["clusters"].append({"name": "d", "cluster": {"server": "https://example.com/k8s/clusters/d"}})
    endpoint = (await load(tmp_path, content, "there")).endpoint
    assert (endpoint.url, endpoint.default_namespace) == ("https://example.com/k8s/clusters/d", "default")
    assert endpoint.ssl_context is not None


async def test_of_several_files_the_first_to_say_something_wins(tmp_path: Path) -> None:
    """kubectl's rule; paths in a file are relative to that file."""
    first = write(tmp_path / "one" / "config", {"users": [{"name": "u", "user": {"tokenFile": "token"}}]})
    write(tmp_path / "one" / "token", "from-one")
    second_content = config({"token": "from-two"})
    second = write(tmp_path / "two" / "config", second_content)
    third = write(tmp_path / "three" / "config", {**config(), "current-context": "elsewhere"})
    missing = str(tmp_path / "none")
    credentials = await load_kubeconfig([first, missing, second, third], clock=VirtualClock())
    assert credentials.endpoint.default_namespace == "ns"
    assert await credentials.tokens.token() == "from-one"


def broken(**changes: Any) -> dict[str, Any]:
    return {**config({"token": CANARY}), **changes}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("users: [" + CANARY, r"not valid YAML \(line 1\)"),
        ("", "empty or no kubeconfig"),
        (CANARY, "empty or no kubeconfig"),
        ([CANARY], "empty or no kubeconfig"),
        (broken(**{"current-context": ""}), "has no current-context; name one with --context"),
        (broken(**{"current-context": "x"}), "has no context 'x'; there is here"),
        (broken(contexts=CANARY), "contexts is not a list"),
        (broken(contexts=[CANARY]), "one of its contexts has no name"),
        (
            broken(contexts=[{"name": "here", "context": {"cluster": "x"}}]),
            r"no known cluster \('x'\); there is c",
        ),
        (broken(contexts=[{"name": "here", "context": {"cluster": "c", "user": "x"}}]), "no known user"),
        (broken(clusters=[]), "no known cluster .* there is none"),
        (broken(clusters=[{"name": "c", "cluster": CANARY}]), "clusters 'c'"),
        (broken(clusters=[{"name": "c", "cluster": {}}]), "needs a server"),
        (config(server="ftp://x"), "needs a server"),
        (config(server=f"https://u:{CANARY}@x"), "needs a server"),
        (config(server="http://x:port"), "needs a server"),
        (config(cluster={"proxy-url": f"http://u:{CANARY}@x"}), "proxy-url, which is not supported"),
        (config({"as": "somebody"}), "impersonation, which is not supported"),
        (config({"tokenFile": "absent"}), "tokenFile of user 'u': .*absent is missing"),
        (
            config(server=HTTPS, cluster={"certificate-authority": "absent"}),
            "certificate-authority of cluster 'c': .*absent: No",
        ),
        (
            config(server=HTTPS, cluster={"certificate-authority-data": CANARY + "!"}),
            "certificate-authority-data .*not base64",
        ),
        (
            config(server=HTTPS, cluster={"certificate-authority-data": encoded(CANARY.encode())}),
            "no certificate in PEM",
        ),
        (config({"client-certificate-data": encoded(b"x")}, server=HTTPS), "both a client-certificate and"),
        (
            config(
                {"client-certificate-data": encoded(b"x"), "client-key-data": encoded(CANARY.encode())},
                server=HTTPS,
            ),
            "are no pair in PEM",
        ),
        (
            config({"client-certificate": "absent", "client-key": "absent"}, server=HTTPS),
            "client-certificate of user 'u'",
        ),
        (config({"exec": CANARY}), "not valid"),
        (
            config({"exec": {"command": "absent-command", "apiVersion": "x"}}),
            "'absent-command' failed: the command was not",
        ),
        (config({"exec": {"command": "true"}}), "exec plugin 'true' failed"),
        (
            config({"auth-provider": {"name": "oidc", "config": {"id-token": CANARY}}}),
            "auth provider 'oidc' failed",
        ),
    ],
)
async def test_every_mistake_gets_one_clear_line_without_any_content(
    tmp_path: Path, content: object, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Exit code 2 is one line that says what to do; F8 keeps content out of it."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ConfigurationError, match=message) as caught:
        await load(tmp_path, content)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert CANARY not in f"{caught.value} {caught.value!r} {caplog.text}"


async def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "absent")
    with pytest.raises(ConfigurationError, match=f"kubeconfig {path} does not exist"):
        await load_kubeconfig([path], clock=VirtualClock())
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        await load_kubeconfig([str(tmp_path)], clock=VirtualClock())


def plugin(tmp_path: Path, status: dict[str, Any], *, exit_code: int = 0) -> dict[str, Any]:
    """An exec plugin that answers with ``status``; every run adds a dot to the file ``runs``."""
    answer = json.dumps(
        {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    )
    script = tmp_path / "plugin"
    script.write_text(
        f"#!/bin/sh\nprintf . >> '{tmp_path}/runs'\necho '{CANARY}' >&2\ncat <<'X'\n{answer}\nX\nexit {exit_code}\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}}


class HandClock(VirtualClock):
    """A clock set by hand: a virtual loop would not wait for the plugin's process."""

    time = 0.0

    def monotonic(self) -> float:
        return self.time


async def test_a_plugins_token_is_kept_until_the_server_refuses_it(tmp_path: Path) -> None:
    clock = HandClock()
    path = write(tmp_path / "config", config(plugin(tmp_path, {"token": "t1"})))
    tokens = (await load_kubeconfig([path], clock=clock)).tokens
    assert isinstance(tokens, PluginToken)
    plugin(tmp_path, {"token": "t2"})
    clock.time = 7200
    assert (tokens.scheme, await tokens.token()) == ("Bearer", "t1")
    tokens.invalidate()
    assert await tokens.token() == "t2"
    tokens.invalidate()
    assert await tokens.token() == "t2"
    assert (tmp_path / "runs").read_text() == "..", "a plugin is not run for every refused request"


@pytest.mark.filterwarnings("ignore:datetime.datetime.utc:DeprecationWarning")
async def test_a_plugins_token_is_renewed_before_it_expires(tmp_path: Path) -> None:
    clock = HandClock()
    status = {"token": "t1", "expirationTimestamp": "2020-01-01T00:00:00Z"}
    path = write(tmp_path / "config", config(plugin(tmp_path, status)))
    tokens = (await load_kubeconfig([path], clock=clock)).tokens
    plugin(tmp_path, {"token": "t2", "expirationTimestamp": "2999-01-01T00:00:00Z"})
    assert await tokens.token() == "t1", "not asked more than once a minute"
    clock.time = 61
    assert await tokens.token() == "t2"
    clock.time = 1000
    assert await tokens.token() == "t2"
    assert (tmp_path / "runs").read_text() == ".."


async def test_a_failing_plugin_costs_no_token_that_we_have(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HandClock()
    path = write(tmp_path / "config", config(plugin(tmp_path, {"token": "t1"})))
    tokens = (await load_kubeconfig([path], clock=clock)).tokens
    plugin(tmp_path, {}, exit_code=3)
    for clock.time in (100, 200):
        tokens.invalidate()
        assert await tokens.token() == "t1"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "exit code 3" in caplog.text
    assert CANARY not in caplog.text


@pytest.mark.parametrize(
    ("status", "exit_code", "message"),
    [({}, 3, "failed with exit code 3"), ({}, 0, "neither token nor certificate")],
)
async def test_a_plugin_that_fails_at_the_start_is_a_mistake_of_the_configuration(
    tmp_path: Path, status: dict[str, Any], exit_code: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        await load(tmp_path, config(plugin(tmp_path, status, exit_code=exit_code)))
    assert CANARY not in f"{caught.value} {caplog.text}"


async def test_a_plugin_may_give_a_client_certificate(
    tmp_path: Path, client_pair: tuple[bytes, bytes]
) -> None:
    certificate, key = (part.decode() for part in client_pair)
    status = {"clientCertificateData": certificate, "clientKeyData": key}
    credentials = await load(tmp_path, config(plugin(tmp_path, status), server=HTTPS))
    assert await credentials.tokens.token() is None
    assert credentials.endpoint.ssl_context is not None


async def discover(tmp_path: Path, environ: dict[str, str], **arguments: Any) -> Credentials:
    return await discover_credentials(
        clock=VirtualClock(),
        environ={"HOME": str(tmp_path / "home"), **environ},
        service_account_directory=tmp_path / "account",
        **arguments,
    )


async def test_the_order_is_flag_then_variable_then_pod_then_home(
    tmp_path: Path, authority: trustme.CA
) -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "pod", "KUBERNETES_SERVICE_PORT": "443"}
    flag = write(tmp_path / "flag", config(server="http://flag"))
    variable = write(tmp_path / "variable", config(server="http://variable"))
    write(tmp_path / "home" / ".kube" / "config", config(server="http://home"))
    write(tmp_path / "account" / "token", "t")
    write(tmp_path / "account" / "ca.crt", authority.cert_pem.bytes().decode())
    environ = {**pod, "KUBECONFIG": f"{tmp_path / 'absent'}{os.pathsep}{variable}"}

    async def url(environ: dict[str, str], **arguments: Any) -> str:
        return (await discover(tmp_path, environ, **arguments)).endpoint.url

    assert await url(environ, kubeconfig=flag) == "http://flag"
    assert await url(environ) == "http://variable"
    assert await url({**pod, "KUBECONFIG": ""}) == "https://pod:443"
    assert await url(pod, context="here") == "http://home", "a context can only mean a kubeconfig"
    assert await url({}) == "http://home"


async def test_a_variable_naming_no_file_is_a_mistake_and_no_reason_to_look_further(tmp_path: Path) -> None:
    write(tmp_path / "home" / ".kube" / "config", config(server="http://home"))
    with pytest.raises(ConfigurationError, match=r"absent does not exist"):
        await discover(tmp_path, {"KUBECONFIG": str(tmp_path / "absent")})


async def test_when_there_is_nothing_the_message_names_all_places(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await discover(tmp_path, {})
    for place in ("--kubeconfig", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", f"{tmp_path}/home/.kube/config"):
        assert place in str(caught.value)


async def test_only_plugins_import_the_kubernetes_library(tmp_path: Path) -> None:
    """It costs 35 MiB."""
    path = write(tmp_path / "config", config({"token": "t"}))
    code = (
        "import asyncio, sys\n"
        "from psono_operator.runtime.clock import LoopClock\n"
        "from psono_operator.runtime.kubeconfig import load_kubeconfig\n"
        f"asyncio.run(load_kubeconfig([{path!r}], clock=LoopClock()))\n"
        "sys.exit('kubernetes_asyncio' in sys.modules)\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == 0
