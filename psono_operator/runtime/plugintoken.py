"""Tokens and client certificates that a program or an identity provider hands out.

Exec plugins and the auth providers of kubeconfig files are run by kubernetes_asyncio; this module turns
them into a :class:`~psono_operator.runtime.credentials.TokenSource` and refuses to know where the server is.
The library quotes plugin output in its errors and log lines, so neither is passed on (rule F8).
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from psono_operator.runtime.clock import Clock
from psono_operator.runtime.errors import ConfigurationError

log = logging.getLogger(__name__)

ASK_AGAIN_AFTER = 60.0
"""Seconds between two looks at whether a token is about to expire."""
REFUSED_ASK_AFTER = 10.0
"""Seconds between two runs of a plugin whose tokens the server refuses."""
PLUGIN_TIMEOUT = 25.0
"""Seconds a plugin may take; a little less than an ordinary request, which may be waiting for it."""


class PluginToken:
    """The token of an ``exec`` or ``auth-provider`` user.

    The library keeps a token until five minutes before its expiry. A plugin's token without an expiry is
    kept until the server refuses it, as kubectl does. A plugin that answers with a client certificate has it
    loaded into ``tls``, where new connections find it.
    """

    scheme = "Bearer"

    def __init__(
        self,
        user: Mapping[str, Any],
        what: str,
        directory: Path,
        tls: ssl.SSLContext | None,
        clock: Clock,
    ) -> None:
        self._what = what
        self._clock = clock
        self._tls = tls
        self._user = _with_absolute_command(user, directory)
        self._loader: Any = None
        self._token: str | None = None
        self._asked_at = 0.0
        self._refused = False
        self._asking = asyncio.Lock()
        self._trouble = False

    async def start(self) -> None:
        """Import the library and get the first token. Raises ConfigurationError."""
        self._loader = await asyncio.to_thread(_loader, self._user, self._what)
        await self._ask()

    async def token(self) -> str | None:
        if self._is_due():
            async with self._asking:
                if self._is_due():
                    await self._renew()
        return self._token

    def invalidate(self) -> None:
        self._refused = True

    def _is_due(self) -> bool:
        age = self._clock.monotonic() - self._asked_at
        if self._refused:
            return age >= REFUSED_ASK_AFTER
        expires = "exec" not in self._user or hasattr(self._loader, "exec_plugin_expiry")
        return expires and age >= ASK_AGAIN_AFTER

    async def _renew(self) -> None:
        if self._refused and hasattr(self._loader, "exec_plugin_expiry"):
            del self._loader.exec_plugin_expiry  # or the library would hand out the refused token again
        try:
            await self._ask()
        except ConfigurationError as error:
            if not self._trouble:
                log.warning("%s; keeping the last token", error)
            self._trouble = True
        else:
            self._trouble = False

    async def _ask(self) -> None:
        self._asked_at = self._clock.monotonic()
        self._refused = False
        answer: Any = SimpleNamespace(api_key={})
        try:
            async with asyncio.timeout(PLUGIN_TIMEOUT):
                await self._loader.load_and_set(answer)
        except TimeoutError:
            raise ConfigurationError(f"{self._what}: {self._name} took over {PLUGIN_TIMEOUT:g} s") from None
        except Exception as error:  # noqa: BLE001 - plugins and providers fail in every way
            raise ConfigurationError(f"{self._what}: {self._name} failed{_why(error)}") from None
        token = str(answer.api_key.get("BearerToken") or "").removeprefix("Bearer ").strip()
        certificate, key = getattr(answer, "cert_file", None), getattr(answer, "key_file", None)
        if certificate and key and self._tls is not None:
            try:
                await asyncio.to_thread(self._tls.load_cert_chain, certificate, key, "")
            except (OSError, ValueError):
                raise ConfigurationError(f"{self._what}: {self._name} gave an unusable certificate") from None
        elif not token:
            raise ConfigurationError(f"{self._what}: {self._name} gave neither token nor certificate")
        self._token = token or None

    @property
    def _name(self) -> str:
        if "exec" in self._user:
            return f"exec plugin {self._user['exec'].get('command')!r}"
        return f"auth provider {self._user['auth-provider'].get('name')!r}"


def _loader(user: Mapping[str, Any], what: str) -> Any:
    from kubernetes_asyncio.config.config_exception import ConfigException
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

    # Its own lines repeat what plugins print.
    logging.getLogger("kubernetes_asyncio.config").setLevel(logging.CRITICAL)
    # The server is ours to reach, and an http one keeps the library from looking for certificate files.
    config = {
        "current-context": "only",
        "contexts": [{"name": "only", "context": {"cluster": "only", "user": "only"}}],
        "clusters": [{"name": "only", "cluster": {"server": "http://unused.invalid"}}],
        "users": [{"name": "only", "user": dict(user)}],
    }
    try:
        return KubeConfigLoader(config_dict=config, config_base_path=None)
    except (ConfigException, AttributeError, KeyError, TypeError, ValueError):
        raise ConfigurationError(f"{what}: exec or auth-provider is not valid") from None


def _with_absolute_command(user: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """A command with a slash is relative to the kubeconfig, one without is found through PATH."""
    kept = {name: user[name] for name in ("exec", "auth-provider") if user.get(name)}
    for section in kept.values():
        if not isinstance(section, Mapping):
            raise ConfigurationError("exec or auth-provider of a kubeconfig user is not valid")
    plugin = kept.get("exec")
    command = plugin.get("command") if plugin else None
    if plugin and isinstance(command, str) and "/" in command:
        kept["exec"] = {**plugin, "command": str(directory / command)}
    return kept


def _why(error: Exception) -> str:
    """What can be told of a failure without quoting anybody."""
    if isinstance(error, FileNotFoundError):
        return ": the command was not found"
    if isinstance(error, OSError):
        return f": {error.strerror}" if error.strerror else ""
    code = re.match(r"exec: process returned (-?\d+)", str(error))
    return f" with exit code {code[1]}" if code else ""
