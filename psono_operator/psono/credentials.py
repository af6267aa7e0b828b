"""The authentication Secret's bytes, parsed into credentials that can be used.

Pure: bytes in, a value or a typed error out, with no word of content in either's text (rule F8). Blanks
around the three texts are dropped, since an editor's last newline is no part of a key; an empty value
counts as missing. It refuses to know where the bytes came from and how they will be sent.
"""

from __future__ import annotations

import hmac
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from uuid import UUID

from yarl import URL

from psono_operator.psono.errors import InvalidCredential, MissingCredential, Role
from psono_operator.psono.secretbytes import SecretBytes

_HEX_KEY = re.compile(r"[0-9a-fA-F]{64}")
_UUID = re.compile(r"(?:urn:uuid:)?([0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.IGNORECASE)
_HOST = re.compile(r"(?=.{1,253}\.?$)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?", re.IGNORECASE)
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")


@dataclass(frozen=True, slots=True)
class CredentialKeys:
    """Under which keys of the authentication Secret the values stand; no CA bundle when None."""

    server_url: str = "serverUrl"
    api_key_id: str = "apiKeyId"
    api_secret_key: str = "apiSecretKey"
    ca_bundle: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PsonoCredentials:
    """Where a Psono server is, whom to trust for it, and the API key. Prints the address only."""

    server_url: str
    """Without a trailing slash, for example ``https://psono.example.com/server``."""
    api_key_id: str = field(repr=False)
    """Canonical UUID. It alone lets one read ciphertext and change dates, so it counts as sensitive."""
    api_secret_key: SecretBytes = field(repr=False)
    """32 bytes. They decrypt, and are never sent."""
    ca_bundle: bytes | None = field(default=None, repr=False)
    """PEM certificates trusted in addition to the system's."""

    def same_as(self, other: PsonoCredentials) -> bool:
        """Whether both would make the same requests and open the same entries; secrets in constant time."""
        return (
            self.server_url == other.server_url
            and self.ca_bundle == other.ca_bundle
            and hmac.compare_digest(self.api_key_id, other.api_key_id)
            and self.api_secret_key.same_as(other.api_secret_key)
        )


def parse_credentials(data: Mapping[str, bytes], keys: CredentialKeys) -> PsonoCredentials:
    """Credentials from the decoded ``data`` of an authentication Secret.

    :raises MissingCredential: a value is absent, empty or no text.
    :raises InvalidCredential: a value is no URL, id, key or PEM bundle.
    """
    return PsonoCredentials(
        server_url=_server_url(_text(data, keys.server_url, Role.SERVER_URL), keys.server_url),
        api_key_id=_api_key_id(_text(data, keys.api_key_id, Role.API_KEY_ID), keys.api_key_id),
        api_secret_key=_secret_key(
            _text(data, keys.api_secret_key, Role.API_SECRET_KEY), keys.api_secret_key
        ),
        ca_bundle=None if keys.ca_bundle is None else _ca_bundle(data, keys.ca_bundle),
    )


def canonical_uuid(text: str) -> str | None:
    """``text`` in lower case with dashes, or None where a Psono server would see no UUID.

    The server takes dashes or none, either case and ``urn:uuid:``; it refuses blanks around them.
    """
    match = _UUID.fullmatch(text)
    return str(UUID(match[1])) if match else None


def trusting(context: ssl.SSLContext, ca_bundle: bytes) -> ssl.SSLContext:
    """``context`` with the bundle's certificates added to what it trusts.

    :raises ssl.SSLError: no certificate inside, or a broken one.
    """
    ascii_only = re.sub(rb"[^\x00-\x7f]", b"?", ca_bundle.removeprefix(b"\xef\xbb\xbf"))
    context.load_verify_locations(cadata=ascii_only.decode("ascii"))
    return context


def _text(data: Mapping[str, bytes], key: str, role: Role) -> str:
    value = data.get(key)
    if value is None:
        raise MissingCredential(role, key, "is missing; add it")
    try:
        text: str | None = value.decode("utf-8-sig").strip()  # some editors put a mark there
    except UnicodeDecodeError:
        text = None
    if text is None:
        raise MissingCredential(role, key, "is no UTF-8 text; write it again as plain text")
    if not text:
        raise MissingCredential(role, key, "is empty; fill it in")
    return text


def _server_url(text: str, key: str) -> str:
    problem = _url_problem(text)
    if problem:
        raise InvalidCredential(Role.SERVER_URL, key, problem)
    url = URL(text)
    return str(url.with_port(None) if url.is_default_port() else url).rstrip("/")


def _url_problem(text: str) -> str | None:
    if not text.lower().startswith(("https://", "http://")):
        return "does not begin with https:// or http://; write the whole URL"
    if any(character.isspace() or not character.isprintable() or character == "\\" for character in text):
        return "contains blanks, control characters or backslashes; remove them"
    if "?" in text or "#" in text:
        return "contains a query or a fragment; write only scheme, host, port and path"
    if "@" in text.partition("//")[2].partition("/")[0]:
        return "contains a user name or password, which Psono refuses; remove everything up to the @"
    try:
        url: URL | None = URL(text)
    except ValueError:
        url = None
    if url is None or not url.port or not _is_host(url.raw_host or ""):
        return "has no valid host or port; write it like https://psono.example.com/server"
    return None


def _is_host(host: str) -> bool:
    # a name that DNS cannot hold would surface as an untyped error in the resolver
    try:
        ip_address(host)
    except ValueError:
        return _HOST.fullmatch(host) is not None
    return True


def _api_key_id(text: str, key: str) -> str:
    canonical = canonical_uuid(text)
    if canonical is None:
        raise InvalidCredential(Role.API_KEY_ID, key, "is no UUID; copy the API key's id from Psono")
    return canonical


def _secret_key(text: str, key: str) -> SecretBytes:
    if _HEX_KEY.fullmatch(text) is None:
        raise InvalidCredential(
            Role.API_SECRET_KEY,
            key,
            "is not made of exactly 64 hexadecimal digits; copy the API secret key (not the private key) "
            "from Psono",
        )
    return SecretBytes(bytes.fromhex(text))


def _ca_bundle(data: Mapping[str, bytes], key: str) -> bytes:
    bundle = data.get(key)
    if bundle is None:
        raise MissingCredential(Role.CA_BUNDLE, key, "is missing; add it or remove caBundleKey")
    if not bundle.strip():
        raise MissingCredential(Role.CA_BUNDLE, key, "is empty; fill it in or remove caBundleKey")
    if _PRIVATE_KEY.search(bundle):
        raise InvalidCredential(
            Role.CA_BUNDLE,
            key,
            "contains a private key, which has no place there; keep the certificates only",
        )
    try:
        trusting(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), bundle)
        valid = True
    except (ssl.SSLError, ValueError):
        valid = False
    if not valid:
        raise InvalidCredential(
            Role.CA_BUNDLE, key, "holds no certificate or a broken one; it must be PEM certificates only"
        )
    return bundle
