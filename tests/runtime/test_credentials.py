"""L1: where the API server is and who we are, from files that somebody else renews."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest
import trustme

from psono_operator.runtime.credentials import (
    FileToken,
    FileTrust,
    InClusterCredentials,
    StaticToken,
    tls_context,
)
from psono_operator.runtime.errors import ConfigurationError
from tests.virtualtime import VirtualClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def account(tmp_path: Path, authority: trustme.CA) -> Path:
    """A service account directory as the kubelet mounts it."""
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "namespace").write_text("operators\n")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    return tmp_path


async def test_a_rotated_token_is_used_a_minute_later_at_most(account: Path) -> None:
    clock = VirtualClock()
    tokens = FileToken(account / "token", clock)
    assert await tokens.token() == "first", "stripped"
    (account / "token").write_text("second")
    assert await tokens.token() == "first"
    await clock.sleep(61)
    assert await tokens.token() == "second"


@pytest.mark.parametrize("content", ["", " \n", "\udcff", None])
async def test_an_empty_or_unreadable_file_does_not_cost_the_token_we_have(
    account: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock()
    tokens = FileToken(account / "token", clock)
    await tokens.token()
    if content is None:
        (account / "token").unlink()
    else:
        (account / "token").write_text(content, errors="surrogateescape")
    for _ in range(3):
        await clock.sleep(61)
        assert await tokens.token() == "first"
    assert len(caplog.records) == 1, "one line for the whole trouble"
    (account / "token").write_text("second")
    await clock.sleep(61)
    assert await tokens.token() == "second"


async def test_a_refused_token_is_read_again_at_once(account: Path) -> None:
    tokens = FileToken(account / "token", VirtualClock())
    await tokens.token()
    (account / "token").write_text("second")
    tokens.invalidate()
    assert await tokens.token() == "second"


async def test_many_callers_share_one_reading(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = 0
    read_text = Path.read_text

    def counting(self: Path, encoding: str | None = None) -> str:
        nonlocal readings
        readings += 1
        return read_text(self, encoding)

    monkeypatch.setattr(Path, "read_text", counting)
    tokens = FileToken(account / "token", VirtualClock())
    assert set(await asyncio.gather(*(tokens.token() for _ in range(20)))) == {"first"}
    assert readings == 1


async def test_in_a_pod_the_endpoint_comes_from_environment_and_files(account: Path) -> None:
    pod = InClusterCredentials(POD, VirtualClock(), account)
    assert pod.missing() is None
    credentials = await pod.load()
    endpoint = credentials.endpoint
    assert (endpoint.url, endpoint.default_namespace) == ("https://10.0.0.1:443", "operators")
    assert endpoint.ssl_context is not None
    assert endpoint.ssl_context.verify_mode is ssl.CERT_REQUIRED
    assert len(endpoint.ssl_context.get_ca_certs()) == 1, "the cluster's CA and no other"
    assert (credentials.tokens.scheme, await credentials.tokens.token()) == ("Bearer", "first")


async def test_an_ipv6_address_is_put_in_brackets(account: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    endpoint = (await InClusterCredentials(environ, VirtualClock(), account).load()).endpoint
    assert endpoint.url == "https://[fd00::1]:6443"


async def test_without_a_namespace_file_it_is_default(account: Path) -> None:
    (account / "namespace").unlink()
    credentials = await InClusterCredentials(POD, VirtualClock(), account).load()
    assert credentials.endpoint.default_namespace == "default"


async def test_a_changed_bundle_is_noticed_after_five_minutes_or_in_doubt(
    account: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """L2: the context is a new object only when the content is; what is no bundle changes nothing."""
    clock = VirtualClock()
    trust = FileTrust(account / "ca.crt", clock)
    first = await trust.context()
    assert first is not None
    (account / "ca.crt").write_bytes(trustme.CA().cert_pem.bytes())
    await asyncio.sleep(290)
    assert await trust.context() is first
    await asyncio.sleep(11)
    second = await trust.context()
    assert second is not None
    assert second is not first
    for content in ("", "no pem", "\N{SNOWMAN}"):
        (account / "ca.crt").write_text(content, "utf-8")
        trust.doubt()
        assert await trust.context() is second
    (account / "ca.crt").unlink()
    trust.doubt()
    assert await trust.context() is second
    assert [record.levelno for record in caplog.records if record.levelno > logging.INFO] == [logging.WARNING]
    (account / "ca.crt").write_bytes(trustme.CA().cert_pem.bytes())
    trust.doubt()
    assert await trust.context() not in (first, second)


@pytest.mark.parametrize(("file", "content"), [("token", ""), ("ca.crt", ""), ("ca.crt", "no pem")])
async def test_broken_files_are_told_in_one_line_that_does_not_quote_them(
    account: Path, file: str, content: str
) -> None:
    (account / file).write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        await InClusterCredentials(POD, VirtualClock(), account).load()
    message = str(caught.value)
    assert file in message
    assert "\n" not in message
    assert "no pem" not in message
    assert caught.value.__cause__ is None


async def test_what_is_missing_for_in_cluster_use_is_named(tmp_path: Path) -> None:
    assert (
        InClusterCredentials({}, VirtualClock(), tmp_path).missing() == "KUBERNETES_SERVICE_HOST is not set"
    )
    missing = InClusterCredentials(POD, VirtualClock(), tmp_path).missing()
    assert missing == f"there is no token file {tmp_path / 'token'}"


async def test_certificates_are_judged_alike_on_all_python_versions(authority: trustme.CA) -> None:
    """Python 3.13 turned the strict flag on, which the CAs of many clusters do not survive."""
    context = tls_context(authority.cert_pem.bytes().decode())
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.check_hostname


async def test_an_empty_bundle_does_not_mean_the_systems_authorities() -> None:
    with pytest.raises(ValueError, match="no certificate"):
        tls_context(" \n")


async def test_tokens_do_not_show(account: Path, caplog: pytest.LogCaptureFixture) -> None:
    """F8."""
    caplog.set_level(logging.DEBUG)
    credentials = await InClusterCredentials(POD, VirtualClock(), account).load()
    static = StaticToken("first")
    static.invalidate()
    assert await static.token() == "first"
    assert "first" not in f"{credentials!r} {credentials.tokens!r} {static!r} {caplog.text}"
