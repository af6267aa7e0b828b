"""Proxy rules: F3 and F4 of the public fault log, rule L4."""

from __future__ import annotations

from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from psono_operator.psono.errors import ProxySettingsError
from psono_operator.psono.proxies import ProxyRules
from tests.psono.recorded import assert_value_free

BOTH = {"HTTP_PROXY": "http://plain.proxy:3128", "HTTPS_PROXY": "http://secure.proxy:3128"}


def proxy_for(url: str, **environment: str) -> str | None:
    proxy = ProxyRules(environment).proxy_for(URL(url))
    return str(proxy.url) if proxy else None


def test_each_scheme_has_its_own_proxy() -> None:
    assert proxy_for("http://psono.example", **BOTH) == "http://plain.proxy:3128"
    assert proxy_for("https://psono.example", **BOTH) == "http://secure.proxy:3128"
    assert proxy_for("http://psono.example", HTTPS_PROXY="http://secure.proxy") is None


def test_without_variables_there_is_no_proxy() -> None:
    assert proxy_for("https://psono.example") is None
    assert proxy_for("https://psono.example", HTTPS_PROXY="", https_proxy=" ") is None


def test_lower_case_wins_and_may_switch_off() -> None:
    assert (
        proxy_for("https://a.example", HTTPS_PROXY="http://upper", https_proxy="http://lower")
        == "http://lower"
    )
    assert proxy_for("https://a.example", HTTPS_PROXY="http://upper", https_proxy="") is None
    assert proxy_for("https://a.example", HTTPS_PROXY="http://upper", no_proxy="a.example") is None


def test_a_proxy_may_be_written_without_scheme() -> None:
    assert proxy_for("https://a.example", HTTPS_PROXY="proxy.example:3128") == "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("no_proxy", "url"),
    [
        ("*", "https://psono.example"),
        ("psono.example", "https://psono.example"),
        ("PSONO.example", "https://psono.EXAMPLE./server"),
        ("psono.example.", "https://psono.example"),
        ("example", "https://psono.example"),
        (".example", "https://psono.example"),
        ("*.example", "https://psono.example"),
        (".psono.example", "https://psono.example"),
        (".svc", "https://psono.psono.svc:8443"),
        (".svc,.cluster.local", "http://psono.psono.svc.cluster.local"),
        ("psono.example:443", "https://psono.example"),
        ("psono.example:8443", "https://psono.example:8443"),
        (".example:8443", "https://psono.example:8443"),
        ("10.96.0.0/12", "https://10.96.0.7"),
        ("10.96.0.7", "https://10.96.0.7:8443"),
        ("10.96.0.7:8443", "https://10.96.0.7:8443"),
        ("10.96.0.7/12", "https://10.97.0.1"),
        ("fd00::/8", "https://[fd00::1]"),
        ("::1", "https://[::1]:8443"),
        ("[::1]:8443", "https://[::1]:8443"),
        ("other, psono.example ,more", "https://psono.example"),
        ("other psono.example\tmore", "https://psono.example"),
        ("other,,*", "https://psono.example"),
    ],
)
def test_no_proxy_covers(no_proxy: str, url: str) -> None:
    """F3: host, suffix, host:port, network, ``*``."""
    assert proxy_for(url, **BOTH, NO_PROXY=no_proxy) is None
    assert proxy_for(url, **BOTH) is not None


@pytest.mark.parametrize(
    ("no_proxy", "url"),
    [
        ("", "https://psono.example"),
        (",", "https://psono.example"),
        ("ample", "https://psono.example"),
        ("no.example", "https://psono.example"),
        ("www.psono.example", "https://psono.example"),
        ("psono.example:8443", "https://psono.example"),
        ("psono.example:http", "https://psono.example"),
        ("10.96.0.0/16", "https://10.97.0.1"),
        ("0.1", "https://10.97.0.1"),
        ("97.0.1", "https://10.97.0.1"),
        ("10.0.0.0/8", "https://ten.example"),
        ("10.0.0.0/99", "https://10.0.0.1"),
        ("fd00::/8", "https://10.0.0.1"),
        (":443", "https://psono.example"),
        ("[", "https://psono.example"),
    ],
)
def test_no_proxy_does_not_cover(no_proxy: str, url: str) -> None:
    assert proxy_for(url, **BOTH, NO_PROXY=no_proxy) is not None


def test_user_and_password_are_taken_out_of_the_address_and_not_printed() -> None:
    """F4."""
    proxy = ProxyRules({"HTTPS_PROXY": "http://us%40er:p%3Aäss@proxy:3128/"}).proxy_for(
        URL("https://a.example")
    )
    assert proxy is not None
    assert str(proxy.url) == "http://proxy:3128"
    assert b64decode((proxy.authorization or "").removeprefix("Basic ")).decode() == "us@er:p:äss"
    assert repr(proxy) == "Proxy(url=URL('http://proxy:3128'))"


@pytest.mark.parametrize(
    "text", ["socks5://canary:1080", "http://:80", "http://[canary", "http://canary:99999", "http://canary:0"]
)
def test_a_malformed_proxy_is_refused_by_the_name_of_its_variable(text: str) -> None:
    with pytest.raises(ProxySettingsError, match="https_proxy") as caught:
        ProxyRules({"https_proxy": text})
    assert_value_free(caught.value, text)


@given(st.text(max_size=40) | st.text("*.:[]/,0123456789abcdef ", max_size=40))
def test_no_text_in_no_proxy_breaks_the_rules(text: str) -> None:
    rules = ProxyRules({**BOTH, "NO_PROXY": text})
    for url in ("https://psono.example", "http://10.0.0.1:8080", "https://[::1]"):
        rules.proxy_for(URL(url))
