"""A kubeconfig file as endpoint and token source, and the order in which credentials are looked for.

Reading, merging (the first file that says something wins) and choosing a context are plain data work, done
here so that every mistake gets one clear line. What needs programs or protocols, exec plugins and
auth providers, is left to kubernetes_asyncio; that import costs 35 MiB and happens only for such users.
No message quotes a file's content or a plugin's output (rule F8), and no file of the user is written.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from psono_operator.runtime.clock import Clock
from psono_operator.runtime.credentials import (
    SERVICE_ACCOUNT_DIRECTORY,
    ApiEndpoint,
    Credentials,
    FileToken,
    InClusterCredentials,
    StaticToken,
    TokenSource,
    tls_context,
)
from psono_operator.runtime.errors import ConfigurationError
from psono_operator.runtime.plugintoken import PluginToken

log = logging.getLogger(__name__)


async def discover_credentials(
    *,
    clock: Clock,
    environ: Mapping[str, str],
    kubeconfig: str | None = None,
    context: str | None = None,
    service_account_directory: Path = SERVICE_ACCOUNT_DIRECTORY,
) -> Credentials:
    """The first that exists of: ``kubeconfig``, ``KUBECONFIG``, in-cluster files, ``~/.kube/config``.

    A ``context`` can only mean a kubeconfig, so the in-cluster files are passed over when one is given.
    Raises ConfigurationError, which names all places when none of them exists.
    """
    if kubeconfig:
        return await load_kubeconfig([kubeconfig], context, clock=clock)
    named = [path for path in environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if named:
        return await load_kubeconfig(named, context, clock=clock)
    pod = InClusterCredentials(environ, clock, service_account_directory)
    missing = pod.missing()
    if missing is None and context is None:
        return await pod.load()
    home = environ.get("HOME") or "~"
    default = os.path.join(home, ".kube", "config")
    if await asyncio.to_thread(os.path.isfile, default):
        return await load_kubeconfig([default], context, clock=clock)
    raise ConfigurationError(
        "no way to reach a Kubernetes API server: no --kubeconfig, KUBECONFIG is not set, not in a pod "
        f"({missing or 'a context was asked for'}), and there is no file {default}"
    )


async def load_kubeconfig(paths: Sequence[str], context: str | None = None, *, clock: Clock) -> Credentials:
    """Endpoint and token source of ``context``, or of the current context, in the files ``paths``.

    With several paths those that do not exist are passed over, as kubectl does. Raises ConfigurationError.
    """
    chosen = choose_context(await asyncio.to_thread(_read_files, paths), context)
    tls = await asyncio.to_thread(_tls, chosen)
    tokens = await _token_source(chosen, tls, clock)
    url = str(chosen.cluster["server"]).rstrip("/")
    server_name = chosen.cluster.get("tls-server-name") or None
    return Credentials(ApiEndpoint(url, tls, chosen.namespace, server_name), tokens)


@dataclass(frozen=True, slots=True)
class ChosenContext:
    """What one context refers to. Relative paths are relative to the file that holds the entry."""

    name: str
    namespace: str
    cluster_name: str
    cluster: Mapping[str, Any]
    cluster_directory: Path
    user_name: str
    user: Mapping[str, Any]
    user_directory: Path

    def __repr__(self) -> str:
        return f"ChosenContext({self.name!r})"


def choose_context(files: Mapping[str, Mapping[str, Any]], context: str | None = None) -> ChosenContext:
    """Pure: resolve a context in parsed files, in order of precedence. Raises ConfigurationError."""
    where = ", ".join(files)
    name = context or next((text for file in files.values() if (text := file.get("current-context"))), None)
    if not name:
        raise ConfigurationError(f"kubeconfig {where} has no current-context; name one with --context")
    entry, _ = _find(files, "contexts", name, f"kubeconfig {where} has no context {name!r}")
    cluster_name = str(entry.get("cluster") or "")
    cluster, cluster_file = _find(
        files, "clusters", cluster_name, f"context {name!r} refers to no known cluster ({cluster_name!r})"
    )
    server = cluster.get("server")
    if not isinstance(server, str) or not _is_url(server):
        raise ConfigurationError(f"cluster {cluster_name!r} needs a server of the form http(s)://host[:port]")
    if cluster.get("proxy-url"):
        raise ConfigurationError(f"cluster {cluster_name!r} uses proxy-url, which is not supported")
    user_name = str(entry.get("user") or "")
    user: Mapping[str, Any] = {}
    user_file = cluster_file
    if user_name:
        user, user_file = _find(
            files, "users", user_name, f"context {name!r} refers to no known user ({user_name!r})"
        )
    if any(user.get(field) for field in ("as", "as-uid", "as-groups", "as-user-extra")):
        # Going on without it would act with other rights than the user meant.
        raise ConfigurationError(f"user {user_name!r} asks for impersonation, which is not supported")
    return ChosenContext(
        name=name,
        namespace=str(entry.get("namespace") or "default"),
        cluster_name=cluster_name,
        cluster=cluster,
        cluster_directory=Path(cluster_file).absolute().parent,
        user_name=user_name,
        user=user,
        user_directory=Path(user_file).absolute().parent,
    )


def _find(
    files: Mapping[str, Mapping[str, Any]], section: str, name: str, otherwise: str
) -> tuple[Mapping[str, Any], str]:
    """The first entry called ``name`` and the file it is in."""
    known: list[str] = []
    for path, file in files.items():
        entries = file.get(section) or []
        if not isinstance(entries, list):
            raise ConfigurationError(f"kubeconfig {path} is not valid: {section} is not a list")
        for entry in entries:
            if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
                raise ConfigurationError(f"kubeconfig {path} is not valid: one of its {section} has no name")
            if entry["name"] == name:
                value = entry.get(section.removesuffix("s")) or {}
                if not isinstance(value, Mapping):
                    raise ConfigurationError(f"kubeconfig {path} is not valid: {section} {name!r}")
                return value, path
            known.append(entry["name"])
    raise ConfigurationError(f"{otherwise}; there is {', '.join(known) or 'none'}")


def _is_url(server: str) -> bool:
    try:
        parts = urlsplit(server)
        _ = parts.port  # parsed, and judged, only when asked for
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and not (parts.username or parts.password or parts.query or parts.fragment)
    )


def _read_files(paths: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    import yaml

    files: dict[str, Mapping[str, Any]] = {}
    for path in paths:
        try:
            text = Path(path).expanduser().read_text("utf-8")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigurationError(f"kubeconfig {path} cannot be read: {error.strerror}") from None
        except ValueError:
            raise ConfigurationError(f"kubeconfig {path} is not text") from None
        try:
            content = yaml.safe_load(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f" (line {mark.line + 1})" if mark else ""
            raise ConfigurationError(f"kubeconfig {path} is not valid YAML{line}") from None
        if not isinstance(content, Mapping):
            raise ConfigurationError(f"kubeconfig {path} is empty or no kubeconfig")
        files[str(Path(path).expanduser())] = content
    if not files:
        raise ConfigurationError(f"kubeconfig {', '.join(paths)} does not exist")
    return files


def _content(entry: Mapping[str, Any], field: str, directory: Path, what: str) -> tuple[bytes | None, str]:
    """The bytes of ``field`` (a path) or ``field-data`` (base64), and how to call their origin."""
    data, path = entry.get(f"{field}-data"), entry.get(field)
    if data:
        try:
            return base64.b64decode(str(data), validate=True), f"{field}-data of {what}"
        except binascii.Error:
            raise ConfigurationError(f"{field}-data of {what} is not base64") from None
    if path:
        origin = Path(directory, str(path))
        try:
            return origin.read_bytes(), str(origin)
        except OSError as error:
            raise ConfigurationError(f"{field} of {what}: {origin}: {error.strerror}") from None
    return None, ""


def _tls(chosen: ChosenContext) -> ssl.SSLContext | None:
    cluster, what = chosen.cluster, f"cluster {chosen.cluster_name!r}"
    if urlsplit(str(cluster["server"])).scheme == "http":
        return None
    bundle, origin = _content(cluster, "certificate-authority", chosen.cluster_directory, what)
    try:
        context = tls_context(None if bundle is None else bundle.decode("ascii"))
    except ValueError:
        raise ConfigurationError(f"{origin} holds no certificate in PEM") from None
    if cluster.get("insecure-skip-tls-verify") is True:
        log.warning("%s sets insecure-skip-tls-verify: the API server's certificate is not checked", what)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    user = f"user {chosen.user_name!r}"
    certificate, origin = _content(chosen.user, "client-certificate", chosen.user_directory, user)
    key, _ = _content(chosen.user, "client-key", chosen.user_directory, user)
    if (certificate is None) != (key is None):
        raise ConfigurationError(f"{user} needs both a client-certificate and a client-key")
    if certificate is not None and key is not None:
        try:
            load_client_certificate(context, certificate, key)
        except ValueError:
            raise ConfigurationError(f"{origin} and the client-key of {user} are no pair in PEM") from None
    return context


def load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Give ``context`` a client certificate held in memory. Raises ValueError if they are no pair in PEM.

    The ssl module takes files only, so both lie in a private temporary file for a moment.
    """
    with tempfile.NamedTemporaryFile(prefix="psono-operator-") as file:
        file.write(certificate.rstrip() + b"\n" + key)
        file.flush()
        try:
            # The password callback keeps OpenSSL from asking on the terminal.
            context.load_cert_chain(file.name, password=lambda: "")
        except (ssl.SSLError, ValueError):
            raise ValueError("certificate and key are no pair") from None


async def _token_source(chosen: ChosenContext, tls: ssl.SSLContext | None, clock: Clock) -> TokenSource:
    """In kubectl's order: tokenFile, token, basic authentication, then plugins."""
    user, what = chosen.user, f"user {chosen.user_name!r}"
    if user.get("tokenFile"):
        path = Path(chosen.user_directory, str(user["tokenFile"]))
        tokens = FileToken(path, clock)
        if await tokens.token() is None:
            raise ConfigurationError(f"tokenFile of {what}: {path} is missing, empty or unreadable")
        return tokens
    if user.get("token"):
        return StaticToken(str(user["token"]).strip())
    if user.get("username") and user.get("password"):
        pair = f"{user['username']}:{user['password']}".encode()
        return StaticToken(base64.b64encode(pair).decode("ascii"), "Basic")
    if user.get("exec") or user.get("auth-provider"):
        plugin = PluginToken(user, what, chosen.user_directory, tls, clock)
        await plugin.start()
        return plugin
    return StaticToken()
