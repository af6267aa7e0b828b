"""Sessions: whom they trust, which way they go, how long they live (F4, F6, K6 of the fault log; Q16)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from datetime import UTC, datetime
from ipaddress import ip_address

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from psono_operator.psono.client import PsonoClient
from psono_operator.psono.errors import Unreachable
from psono_operator.psono.sessions import SessionLease, SessionPool
from psono_operator.sandbox.psono import ApiKey, PsonoDouble
from tests.psono.recorded import assert_value_free
from tests.psono.wire import ForwardProxy, client_for, credentials, raw_server

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

CA, OTHER_CA = trustme.CA(), trustme.CA()
BUNDLE, OTHER_BUNDLE = CA.cert_pem.bytes(), OTHER_CA.cert_pem.bytes()


def serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@pytest.fixture(scope="module")
def good_tls() -> ssl.SSLContext:
    return serving(CA.issue_cert("127.0.0.1", "psono.test"))


async def test_a_private_ca_is_trusted_through_the_bundle(good_tls: ssl.SSLContext) -> None:
    double = PsonoDouble()
    key = double.add_key()
    async with double.serve(ssl_context=good_tls) as server:
        for bundle in (BUNDLE, b"# ours\r\n" + OTHER_BUNDLE + BUNDLE.replace(b"\n", b"\r\n")):
            async with client_for(server.url, key, ca_bundle=bundle) as client:
                await client.inspect()
    assert double.count("inspect") == 2


@pytest.mark.parametrize("bundle", [None, OTHER_BUNDLE])
async def test_a_certificate_that_nobody_vouches_for_is_refused(
    good_tls: ssl.SSLContext, bundle: bytes | None
) -> None:
    """Q16: there is no way around verification, and nothing is sent."""
    double = PsonoDouble()
    async with (
        double.serve(ssl_context=good_tls) as server,
        client_for(server.url, double.add_key(), ca_bundle=bundle) as client,
    ):
        with pytest.raises(
            Unreachable, match=r"certificate verification failed.*not trusted.*caBundleKey"
        ) as caught:
            await client.inspect()
        assert caught.value.__context__ is None
    assert double.requests == []


async def test_a_certificate_for_another_host_or_expired_is_refused_by_name() -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    for certificate, hint in (
        (CA.issue_cert("psono.test"), "for another"),
        (CA.issue_cert("127.0.0.1", not_before=past, not_after=past.replace(year=2021)), "expired"),
    ):
        double = PsonoDouble()
        async with (
            double.serve(ssl_context=serving(certificate)) as server,
            client_for(server.url, double.add_key(), ca_bundle=BUNDLE) as client,
        ):
            with pytest.raises(Unreachable, match=f"certificate verification failed.*{hint}"):
                await client.inspect()


async def test_an_intermediate_in_the_bundle_is_an_anchor_on_every_python() -> None:
    intermediate = CA.create_child_ca()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    intermediate.issue_cert("127.0.0.1").configure_cert(context)
    double = PsonoDouble()
    async with (
        double.serve(ssl_context=context) as server,
        client_for(server.url, double.add_key(), ca_bundle=intermediate.cert_pem.bytes()) as client,
    ):
        await client.inspect()


async def test_a_ca_that_keeps_rfc_5280_no_better_than_most_private_ones_is_trusted(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """No key identifiers, no key usage: from Python 3.13 on, the default context refuses it."""
    files = tmp_path_factory.mktemp("lax")
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer, subject = _name("Lax CA"), _name("psono")
    ca = _lax(issuer, issuer, ca_key.public_key()).add_extension(
        x509.BasicConstraints(True, None), critical=False
    )
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    leaf = _lax(issuer, subject, key.public_key()).add_extension(address, critical=False)
    (files / "leaf.pem").write_bytes(leaf.sign(ca_key, SHA256()).public_bytes(Encoding.PEM))
    (files / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "leaf.pem", files / "key.pem")
    bundle = ca.sign(ca_key, SHA256()).public_bytes(Encoding.PEM)
    double = PsonoDouble()
    async with (
        double.serve(ssl_context=context) as server,
        client_for(server.url, double.add_key(), ca_bundle=bundle) as client,
    ):
        await client.inspect()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _lax(issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2099, 1, 1, tzinfo=UTC))
    )


async def test_the_bundle_adds_to_the_systems_roots(
    good_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    roots = tmp_path_factory.mktemp("roots") / "roots.pem"
    roots.write_bytes(BUNDLE)
    monkeypatch.setenv("SSL_CERT_FILE", str(roots))
    double = PsonoDouble()
    key = double.add_key()
    async with double.serve(ssl_context=good_tls) as server:
        for bundle in (None, OTHER_BUNDLE):
            async with client_for(server.url, key, ca_bundle=bundle) as client:
                await client.inspect()


async def test_plain_http_on_a_tls_port_and_the_reverse_are_explained(good_tls: ssl.SSLContext) -> None:
    double = PsonoDouble()
    async with double.serve() as plain, client_for(plain.url.replace("http:", "https:")) as client:
        with pytest.raises(Unreachable, match="TLS handshake failed"):
            await client.inspect()


async def test_a_server_beyond_a_proxy_is_reached_over_tls(good_tls: ssl.SSLContext) -> None:
    """F4: the certificate is still checked against the server's name, and the password stays at the proxy."""
    double = PsonoDouble()
    key = double.add_key()
    async with double.serve(ssl_context=good_tls) as server:
        proxy = ForwardProxy(server.port)
        async with raw_server(proxy.talk) as port:
            environment = {"HTTPS_PROXY": f"http://user:pass@127.0.0.1:{port}"}
            url = "https://psono.test/"
            async with client_for(url, key, ca_bundle=BUNDLE, environment=environment) as client:
                await client.inspect()
            async with client_for(
                "https://else.test", key, ca_bundle=BUNDLE, environment=environment
            ) as client:
                with pytest.raises(Unreachable, match="for another host name"):
                    await client.inspect()
    assert proxy.targets == ["CONNECT psono.test:443", "CONNECT else.test:443"]
    assert "Proxy-Authorization: Basic dXNlcjpwYXNz" in proxy.heads[0]
    assert double.forbidden == []


async def test_a_server_beyond_a_proxy_is_reached_over_plain_http() -> None:
    double = PsonoDouble()
    key = double.add_key()
    async with double.serve() as server:
        proxy = ForwardProxy(server.port)
        async with raw_server(proxy.talk) as port:
            environment = {"http_proxy": f"user:pass@127.0.0.1:{port}"}
            async with client_for("http://psono.test:8080", key, environment=environment) as client:
                await client.inspect()
    assert proxy.targets == ["POST http://psono.test:8080/api-key-access/inspect/"]
    assert "Proxy-Authorization: Basic dXNlcjpwYXNz" in proxy.heads[0]
    assert double.forbidden == []


@pytest.mark.parametrize("no_proxy", ["127.0.0.1", "127.0.0.1:{port}", "127.0.0.0/8", "*"])
async def test_a_server_in_no_proxy_is_reached_directly(no_proxy: str) -> None:
    """F3."""
    double = PsonoDouble()
    key = double.add_key()
    async with double.serve() as server:
        proxy = ForwardProxy(server.port)
        async with raw_server(proxy.talk) as port:
            environment = {
                "HTTP_PROXY": f"http://127.0.0.1:{port}",
                "NO_PROXY": f"psono.svc,{no_proxy.format(port=server.port)}",
            }
            async with client_for(server.url, key, environment=environment) as client:
                await client.inspect()
    assert proxy.targets == []


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("status", [407, None])
async def test_a_proxy_that_refuses_or_is_absent_is_named_without_its_password(
    scheme: str, status: int | None
) -> None:
    proxy = ForwardProxy(9, refuse_with=status)
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        async with raw_server(proxy.talk) as port:
            reached = port if status else unheard.getsockname()[1]
            environment = {f"{scheme}_proxy": f"http://user-cAnArY:pass-cAnArY@127.0.0.1:{reached}"}
            async with client_for(f"{scheme}://psono.test", environment=environment) as client:
                with pytest.raises(Unreachable, match="the proxy") as caught:
                    await client.inspect()
    assert caught.value.__context__ is None
    assert_value_free(caught.value, "-cAn" + "ArY")


async def test_leases_share_a_session_per_server_and_bundle() -> None:
    """F6."""
    pool = SessionPool({})
    one = credentials("https://a.example/server", ApiKey("1" * 32, "11" * 32))
    leases = [
        pool.acquire(one),
        pool.acquire(credentials("https://a.example/other", ApiKey("2" * 32, "22" * 32))),
        pool.acquire(credentials("https://a.example", ca_bundle=BUNDLE)),
        pool.acquire(credentials("https://a.example:8443")),
        pool.acquire(credentials("http://a.example")),
    ]
    assert len(pool) == 4
    await leases[0].release()
    await leases[0].release()
    assert len(pool) == 4
    for lease in leases[1:]:
        await lease.release()
    assert len(pool) == 0
    await pool.close()


async def test_twenty_bundles_one_after_the_other_leave_nothing_open(good_tls: ssl.SSLContext) -> None:
    """F6 and K6: changed credentials drop the old connections with the old trust."""
    double = PsonoDouble()
    key = double.add_key()
    pool = SessionPool({})
    async with double.serve(ssl_context=good_tls) as server:
        for turn in range(20):
            wanted = credentials(server.url, key, BUNDLE + b"\n" * turn)
            lease = pool.acquire(wanted)
            client = PsonoClient(wanted, lease, monotonic=lambda: 0.0, now=lambda: datetime.now(UTC))
            await client.inspect()
            await lease.release()
            assert len(pool) == 0
    await pool.close()


async def test_a_request_in_flight_outlives_the_release_of_its_lease() -> None:
    double = PsonoDouble(sleep=asyncio.sleep)
    double.delay_seconds = 5
    key = double.add_key()
    pool = SessionPool({})
    async with double.serve() as server:
        wanted = credentials(server.url, key)
        lease = pool.acquire(wanted)
        client = PsonoClient(wanted, lease, monotonic=lambda: 0.0, now=lambda: datetime.now(UTC))
        running = asyncio.create_task(client.inspect())
        await asyncio.sleep(1)
        await lease.release()
        assert len(pool) == 1
        assert (await running).read
        assert len(pool) == 0
        with pytest.raises(Unreachable, match="given up"):
            await client.inspect()
    await pool.close()


async def test_closing_the_pool_ends_what_is_in_flight_and_what_comes_later() -> None:
    double = PsonoDouble(sleep=asyncio.sleep)
    double.delay_seconds = 5
    key = double.add_key()
    pool = SessionPool({})
    async with double.serve() as server:
        wanted = credentials(server.url, key)
        lease = pool.acquire(wanted)
        client = PsonoClient(wanted, lease, monotonic=lambda: 0.0, now=lambda: datetime.now(UTC))
        running = asyncio.create_task(client.inspect())
        await asyncio.sleep(1)
        await pool.close()
        with pytest.raises(Unreachable):
            await running
        with pytest.raises(Unreachable):
            await client.inspect()
        with pytest.raises(Unreachable):
            pool.acquire(wanted)
        await lease.release()


async def test_connections_to_a_server_are_limited() -> None:
    double = PsonoDouble(sleep=asyncio.sleep)
    double.delay_seconds = 2
    key = double.add_key()
    pool = SessionPool({}, connections_per_server=2)
    loop = asyncio.get_running_loop()
    async with double.serve() as server:
        wanted = credentials(server.url, key)
        lease: SessionLease = pool.acquire(wanted)
        client = PsonoClient(wanted, lease, monotonic=loop.time, now=lambda: datetime.now(UTC))
        begun = loop.time()
        await asyncio.gather(*[client.inspect() for _ in range(6)])
        assert 6 <= loop.time() - begun < 8
        await lease.release()
    await pool.close()
