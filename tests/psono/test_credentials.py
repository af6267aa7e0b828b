"""Parsing an authentication Secret: what is accepted, what is refused, and that no refusal shows a value."""

from __future__ import annotations

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.psono.credentials import (
    CredentialKeys,
    PsonoCredentials,
    canonical_uuid,
    parse_credentials,
)
from psono_operator.psono.errors import CredentialsError, InvalidCredential, MissingCredential, Role
from tests.psono.recorded import assert_value_free

KEY_ID = "28b1d99d-0bc3-49f3-8889-92460064a423"
HEX = "0123456789abcdef" * 4
GOOD = {
    "serverUrl": b"https://psono.example.com/server",
    "apiKeyId": KEY_ID.encode(),
    "apiSecretKey": HEX.encode(),
}
WITH_BUNDLE = CredentialKeys(ca_bundle="ca.crt")
CA = trustme.CA()
CANARY = "cAnArY-c4"
PEM = CA.cert_pem.bytes()
OTHER_PEM = trustme.CA().cert_pem.bytes()


def parse(keys: CredentialKeys | None = None, **changed: bytes) -> PsonoCredentials:
    data = {**GOOD, **{name.replace("ca_crt", "ca.crt"): value for name, value in changed.items()}}
    return parse_credentials(data, keys or CredentialKeys())


def test_the_documented_keys_are_read() -> None:
    credentials = parse()
    assert credentials.server_url == "https://psono.example.com/server"
    assert credentials.api_key_id == KEY_ID
    assert credentials.api_secret_key.reveal() == bytes.fromhex(HEX)
    assert credentials.ca_bundle is None


def test_other_key_names_can_be_chosen() -> None:
    keys = CredentialKeys("psono-url", "psono-api-key-id", "psono-api-secret-key")
    data = dict(zip((keys.server_url, keys.api_key_id, keys.api_secret_key), GOOD.values(), strict=True))
    assert parse_credentials(data, keys).same_as(parse())


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("https://psono.example.com/server/", "https://psono.example.com/server"),
        ("https://psono.example.com/server///", "https://psono.example.com/server"),
        ("  https://psono.example.com/server\r\n", "https://psono.example.com/server"),
        ("HTTPS://PSONO.example.com:443/", "https://psono.example.com"),
        ("http://psono:80", "http://psono"),
        ("http://psono.psono.svc:10100/", "http://psono.psono.svc:10100"),
        ("https://[2001:db8::1]:8443/a/b/", "https://[2001:db8::1]:8443/a/b"),
        ("https://müller.example/", "https://xn--mller-kva.example"),
        ("https://psono.example.com/@here", "https://psono.example.com/@here"),
        ("https://psono.example.com./", "https://psono.example.com."),
    ],
)
def test_a_server_url_is_normalised(written: str, meant: str) -> None:
    assert parse(serverUrl=written.encode()).server_url == meant


@pytest.mark.parametrize(
    "written",
    [
        "psono.example.com/server",
        "ftp://psono.example.com",
        "https:/psono.example.com",
        "https://",
        "https:///server",
        "https://user:canary@psono.example.com",
        "https://canary@psono.example.com",
        "https://@psono.example.com",
        "https://psono.example.com/server?token=canary",
        "https://psono.example.com/server?",
        "https://psono.example.com/#canary",
        "https://psono.example.com:0",
        "https://psono.example.com:65536",
        "https://psono.example.com:port",
        "https://[::1",
        "https://psono example.com",
        "https://psono.example.com/ser\tver",
        "https://psono.example.com/ser\nver",
        "https://psono.example.com\\server",
        "https://psono.example.com/\x00",
        "https://psono..example.com",
        "https://" + "a" * 64 + ".example.com",
        "https://<your-server>",
    ],
)
def test_an_unusable_server_url_is_refused_without_being_shown(written: str) -> None:
    with pytest.raises(InvalidCredential) as caught:
        parse(serverUrl=written.encode())
    assert caught.value.role is Role.SERVER_URL
    assert "'serverUrl'" in str(caught.value)
    assert_value_free(caught.value, "canary", *[written] * (len(written) > 8))


@pytest.mark.parametrize(
    "written",
    [
        KEY_ID,
        KEY_ID.upper(),
        KEY_ID.replace("-", ""),
        f"urn:uuid:{KEY_ID}",
        f"  {KEY_ID}\n",
    ],
)
def test_every_form_of_an_id_that_the_server_takes_means_the_same(written: str) -> None:
    assert parse(apiKeyId=written.encode()).api_key_id == KEY_ID


@pytest.mark.parametrize(
    "written",
    [
        "nope",
        KEY_ID[:-1],
        f"{KEY_ID}0",
        KEY_ID.replace("-", " "),
        f"{KEY_ID[:8]}\n{KEY_ID[8:]}",
        "1" * 31 + "_",
    ],
)
def test_an_id_that_is_no_uuid_is_refused_without_being_shown(written: str) -> None:
    with pytest.raises(InvalidCredential) as caught:
        parse(apiKeyId=written.encode())
    assert caught.value.role is Role.API_KEY_ID
    assert_value_free(caught.value, written)


@pytest.mark.parametrize("written", [HEX, HEX.upper(), f" {HEX}\n", f"\t{HEX}\r\n", f"\ufeff{HEX}"])
def test_a_secret_key_is_64_hexadecimal_digits_of_either_case(written: str) -> None:
    """Quirk Q17, and B5 of the fault log for the last newline."""
    assert parse(apiSecretKey=written.encode()).api_secret_key.reveal() == bytes.fromhex(HEX)


@pytest.mark.parametrize(
    "written", [HEX[:-1], f"{HEX}0", HEX[:-1] + "g", f"{HEX[:32]} {HEX[32:]}", "٣" * 64, f"0x{HEX[2:]}"]
)
def test_any_other_secret_key_is_refused_without_being_shown(written: str) -> None:
    with pytest.raises(InvalidCredential) as caught:
        parse(apiSecretKey=written.encode())
    assert caught.value.role is Role.API_SECRET_KEY
    assert "64" in str(caught.value)
    assert_value_free(caught.value, written, HEX[:32])


@pytest.mark.parametrize("key", ["serverUrl", "apiKeyId", "apiSecretKey", "ca.crt"])
@pytest.mark.parametrize("value", [None, b"", b" \n"])
def test_an_absent_or_empty_value_is_missing_and_its_key_is_named(key: str, value: bytes | None) -> None:
    data = {**GOOD, "ca.crt": PEM}
    if value is None:
        del data[key]
    else:
        data[key] = value
    with pytest.raises(MissingCredential) as caught:
        parse_credentials(data, WITH_BUNDLE)
    assert caught.value.key == key
    assert repr(key) in str(caught.value)


@pytest.mark.parametrize("key", ["serverUrl", "apiKeyId", "apiSecretKey"])
def test_a_value_that_is_no_text_counts_as_missing(key: str) -> None:
    with pytest.raises(MissingCredential) as caught:
        parse_credentials({**GOOD, key: CANARY.encode() + b"\xff"}, CredentialKeys())
    assert caught.value.key == key
    assert_value_free(caught.value, CANARY)


@pytest.mark.parametrize(
    "bundle",
    [
        PEM,
        PEM + OTHER_PEM,
        b"# our roots\n" + PEM + b"\nsubject=CN = second\n" + OTHER_PEM + b"the end",
        PEM.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + PEM,
        "# Für Müller\n".encode() + PEM,
        PEM.rstrip(),
    ],
)
def test_a_bundle_may_hold_several_certificates_and_text_around_them(bundle: bytes) -> None:
    """K5 of the fault log."""
    assert parse(WITH_BUNDLE, ca_crt=bundle).ca_bundle == bundle


@pytest.mark.parametrize(
    "bundle",
    [
        b"no certificate",
        PEM[: len(PEM) // 2],
        PEM + OTHER_PEM[: len(OTHER_PEM) // 2],
        PEM.replace(b"M", b"!", 5),
        b"-----BEGIN CERTIFICATE-----\nY2FuYXJ5\n-----END CERTIFICATE-----\n",
        PEM.decode().encode("utf-16"),
        bytes(range(256)),
        PEM + CA.private_key_pem.bytes(),
    ],
)
def test_a_bundle_without_a_certificate_or_with_a_private_key_is_refused(bundle: bytes) -> None:
    """K5 of the fault log, quirk Q16."""
    with pytest.raises(InvalidCredential) as caught:
        parse(WITH_BUNDLE, ca_crt=bundle)
    assert caught.value.role is Role.CA_BUNDLE
    assert caught.value.key == "ca.crt"
    assert_value_free(caught.value, "Y2FuYXJ5", PEM.decode()[40:60])


def test_a_bundle_that_is_not_asked_for_is_not_looked_at() -> None:
    assert parse(ca_crt=b"no certificate").ca_bundle is None


def test_credentials_print_the_address_and_nothing_else() -> None:
    text = repr(parse(WITH_BUNDLE, ca_crt=PEM))
    assert text == "PsonoCredentials(server_url='https://psono.example.com/server')"


def test_credentials_of_the_same_meaning_are_the_same() -> None:
    written = parse(
        serverUrl=b"https://PSONO.example.com/server/\n", apiKeyId=KEY_ID.upper().encode(), note=b"else"
    )
    assert written.same_as(parse())


@pytest.mark.parametrize(
    "changed",
    [
        {"serverUrl": b"https://psono.example.com"},
        {"apiKeyId": KEY_ID.replace("2", "3").encode()},
        {"apiSecretKey": HEX[::-1].encode()},
        {"ca_crt": OTHER_PEM},
    ],
)
def test_credentials_that_differ_in_one_value_differ(changed: dict[str, bytes]) -> None:
    assert not parse(WITH_BUNDLE, **{"ca_crt": PEM, **changed}).same_as(parse(WITH_BUNDLE, ca_crt=PEM))


def test_with_and_without_a_bundle_differ() -> None:
    assert not parse(WITH_BUNDLE, ca_crt=PEM).same_as(parse())


@given(st.dictionaries(st.sampled_from([*GOOD, "ca.crt"]), st.binary() | st.text().map(str.encode)))
def test_whatever_a_secret_holds_it_parses_or_is_refused(data: dict[str, bytes]) -> None:
    """I1 of the fault log."""
    try:
        credentials = parse_credentials({**GOOD, "ca.crt": PEM, **data}, WITH_BUNDLE)
    except CredentialsError as error:
        assert error.key in data
        assert error.__cause__ is None
        assert error.__context__ is None
    else:
        assert canonical_uuid(credentials.api_key_id) == credentials.api_key_id


@given(st.text(alphabet="0123456789abcdefABCDEF-{} _:urnid", max_size=48))
def test_a_canonical_id_is_its_own_canonical_form(text: str) -> None:
    canonical = canonical_uuid(text)
    if canonical is not None:
        assert canonical_uuid(canonical) == canonical
        assert len(canonical) == 36
