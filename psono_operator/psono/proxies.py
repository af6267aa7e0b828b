"""Which proxy a request to a Psono server goes through.

HTTP_PROXY, HTTPS_PROXY and NO_PROXY, either case, lower case first. The HTTP library could read them
itself, but only together with netrc, whose passwords Psono refuses as a foreign Authorization header; so
the rules are here, over a mapping handed in (rule L4; F3 and F4 of the public fault log). It refuses to
know the operating system's proxy settings and ALL_PROXY.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from aiohttp import encode_basic_auth
from yarl import URL

from psono_operator.psono.errors import ProxySettingsError

_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network
_BYPASS = re.compile(r"(?:\[(?P<literal>[^\]]+)\]|(?P<name>[^:]*))(?::(?P<port>[0-9]+))?")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy and, apart from its address so that it cannot be printed with it, its user and password."""

    url: URL
    authorization: str | None = field(default=None, repr=False)
    """Value of a Proxy-Authorization header."""


@dataclass(frozen=True, slots=True)
class _Bypass:
    name: str
    network: _Network | None
    port: int | None

    def covers(self, host: str, address: _Address | None, port: int) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.network is not None:
            return address is not None and address in self.network
        return host == self.name or (address is None and host.endswith(f".{self.name}"))


class ProxyRules:
    """The rules of one environment, read once.

    NO_PROXY is a list separated by commas or blanks: ``*`` for everything; a name, which covers its
    subdomains too, with or without a dot or ``*.`` before it; an address; a network in CIDR form, matched
    against addresses only, names are not resolved; each of them optionally with ``:port``.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        """:raises ProxySettingsError: a proxy is no http or https URL."""
        self._proxies = {
            scheme: _proxy(environment, f"{scheme}_proxy".upper()) for scheme in ("http", "https")
        }
        words = re.split(r"[,\s]+", _variable(environment, "NO_PROXY")[1])
        self._none = "*" in words
        self._bypasses = [rule for word in words if word and (rule := _bypass(word)) is not None]

    def proxy_for(self, url: URL) -> Proxy | None:
        """The proxy for ``url``, or None for a direct connection."""
        proxy = self._proxies.get(url.scheme)
        if proxy is None or self._none or url.raw_host is None or url.port is None:
            return None
        host, port = url.raw_host.rstrip(".").lower(), url.port
        address = _address(host)
        return None if any(rule.covers(host, address, port) for rule in self._bypasses) else proxy


def _variable(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    lower = name.lower()
    if lower in environment:
        return lower, environment[lower].strip()
    return name, environment.get(name, "").strip()


def _proxy(environment: Mapping[str, str], name: str) -> Proxy | None:
    variable, text = _variable(environment, name)
    if not text:
        return None
    try:
        url: URL | None = URL(text if "://" in text else f"http://{text}")
    except ValueError:
        url = None
    if url is None or url.scheme not in ("http", "https") or not url.host or not url.port:
        raise ProxySettingsError(variable, "is no http:// or https:// URL of a proxy; correct or unset it")
    authorization = None if url.user is None else encode_basic_auth(url.user, url.password or "", "utf-8")
    return Proxy(url.origin(), authorization)


def _bypass(word: str) -> _Bypass | None:
    network = _network(word)
    if network is not None:
        return _Bypass("", network, None)
    match = _BYPASS.fullmatch(word)
    if match is None:
        return None
    name = (match["literal"] or match["name"]).lower().removeprefix("*").strip(".")
    port = int(match["port"]) if match["port"] else None
    return _Bypass(name, _network(name), port) if name else None


def _network(text: str) -> _Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def _address(host: str) -> _Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
