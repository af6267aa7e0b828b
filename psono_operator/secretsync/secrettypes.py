"""What Kubernetes demands of the data of special Secret types. Pure.

The table is the API server's own validation of v1 Secrets (``ValidateSecret`` of its core API); a type that
is not in it may hold anything. Types that need annotations are refused by the spec's own rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NoReturn

_ALL_OF = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_ONE_OF = {"kubernetes.io/basic-auth": ("username", "password")}
_NOT_EMPTY = {"kubernetes.io/ssh-auth": "ssh-privatekey"}
_JSON_OBJECT = {
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
    "kubernetes.io/dockercfg": ".dockercfg",
}


def unmet_need(secret_type: str, data: Mapping[str, bytes]) -> str:
    """What a Secret of this type still needs, in words that hold no value; empty when it has all."""
    missing = [f'"{key}"' for key in _ALL_OF.get(secret_type, ()) if key not in data]
    if missing:
        return "key " + " and ".join(missing)
    choice = _ONE_OF.get(secret_type, ())
    if choice and not any(key in data for key in choice):
        return "key " + " or ".join(f'"{key}"' for key in choice)
    key = _NOT_EMPTY.get(secret_type)
    if key is not None and not data[key]:
        return f'a value that is not empty under key "{key}"'
    key = _JSON_OBJECT.get(secret_type)
    if key is not None and not _is_json_object(data[key]):
        return f'a JSON object under key "{key}"'
    return ""


def _is_json_object(value: bytes) -> bool:
    # Read as Go's encoding/json does: odd bytes are replaced, NaN and Infinity are no numbers, null passes.
    try:
        found = json.loads(value.decode(errors="replace"), parse_constant=_refuse_constant)
    except ValueError:
        return False
    except RecursionError:
        return True  # too deep for us to tell; the API server will
    return found is None or isinstance(found, dict)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
