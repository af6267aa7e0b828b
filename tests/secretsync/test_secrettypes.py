"""What special Secret types need. A behaviour test asks a real API server about the same table."""

from __future__ import annotations

import pytest

from psono_operator.secretsync.secrettypes import unmet_need

TLS, SSH, BASIC = "kubernetes.io/tls", "kubernetes.io/ssh-auth", "kubernetes.io/basic-auth"
DOCKER, OLD_DOCKER = "kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"

CASES = [
    ("Opaque", {}, ""),
    ("example.com/anything", {}, ""),
    ("bootstrap.kubernetes.io/token", {}, ""),
    (TLS, {"tls.crt": b"c", "tls.key": b"k"}, ""),
    (TLS, {"tls.crt": b"", "tls.key": b"", "ca.crt": b"x"}, ""),
    (TLS, {"tls.crt": b"c"}, 'key "tls.key"'),
    (TLS, {}, 'key "tls.crt" and "tls.key"'),
    (SSH, {"ssh-privatekey": b"k"}, ""),
    (SSH, {"ssh-privatekey": b""}, 'a value that is not empty under key "ssh-privatekey"'),
    (SSH, {"id_rsa": b"k"}, 'key "ssh-privatekey"'),
    (BASIC, {"username": b"u"}, ""),
    (BASIC, {"password": b"p"}, ""),
    (BASIC, {"username": b""}, ""),
    (BASIC, {"user": b"u"}, 'key "username" or "password"'),
    (DOCKER, {".dockerconfigjson": b'{"auths":{}}'}, ""),
    (DOCKER, {".dockerconfigjson": b"null"}, ""),
    (DOCKER, {".dockerconfigjson": b'{"a":"\xff"}'}, ""),
    (DOCKER, {".dockerconfigjson": b"[]"}, 'a JSON object under key ".dockerconfigjson"'),
    (DOCKER, {".dockerconfigjson": b"canary"}, 'a JSON object under key ".dockerconfigjson"'),
    (DOCKER, {".dockerconfigjson": b""}, 'a JSON object under key ".dockerconfigjson"'),
    (DOCKER, {".dockerconfigjson": b'{"a":NaN}'}, 'a JSON object under key ".dockerconfigjson"'),
    (DOCKER, {".dockerconfigjson": b"\xef\xbb\xbf{}"}, 'a JSON object under key ".dockerconfigjson"'),
    (DOCKER, {"config.json": b"{}"}, 'key ".dockerconfigjson"'),
    (OLD_DOCKER, {".dockercfg": b"{}"}, ""),
    (OLD_DOCKER, {".dockercfg": b"7"}, 'a JSON object under key ".dockercfg"'),
]


@pytest.mark.parametrize(("secret_type", "data", "need"), CASES)
def test_the_table(secret_type: str, data: dict[str, bytes], need: str) -> None:
    """The words name keys and never a value (F8)."""
    assert unmet_need(secret_type, data) == need


DEEP = b'{"a":' * 100_000


def test_a_value_too_deep_to_judge_is_left_to_the_api_server() -> None:
    assert unmet_need(DOCKER, {".dockerconfigjson": DEEP}) == ""
