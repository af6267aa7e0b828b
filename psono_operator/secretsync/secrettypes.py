"""What Kubernetes demands of the keys of special Secret types. Pure.

The table is the API server's own validation of v1 Secrets; a type that is not in it may hold any keys.
"""

from __future__ import annotations

from collections.abc import Collection

_ALL_OF = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_ONE_OF = {"kubernetes.io/basic-auth": ("username", "password")}


def missing_keys(secret_type: str, keys: Collection[str]) -> str:
    """The keys a Secret of this type still needs, in words; empty when it has all."""
    missing = [f'"{key}"' for key in _ALL_OF.get(secret_type, ()) if key not in keys]
    if missing:
        return "key " + " and ".join(missing)
    choice = _ONE_OF.get(secret_type, ())
    if choice and not any(key in keys for key in choice):
        return "key " + " or ".join(f'"{key}"' for key in choice)
    return ""
