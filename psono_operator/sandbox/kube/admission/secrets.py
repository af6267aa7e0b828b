"""Secrets and ConfigMaps: folding, encoding, types, immutability, size (rule Q7, R5, R6).

The checks of the real ``ValidateSecret``; values are never quoted by a check of this module.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

from psono_operator.sandbox.kube.objects import Obj, json_type, metadata
from psono_operator.sandbox.kube.registry import PlainStrategy
from psono_operator.sandbox.kube.status import (
    Cause,
    DecodeError,
    forbidden_field,
    invalid,
    required,
    too_long,
)

LIMIT = 1024 * 1024
"""Bytes of all decoded values together; key names do not count (R5)."""

_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_HINT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or"
    " 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_REDACTED = "<secret contents redacted>"
_SECRET_FIELDS = frozenset(("apiVersion", "kind", "metadata", "data", "stringData", "type", "immutable"))
_CONFIG_FIELDS = frozenset(("apiVersion", "kind", "metadata", "data", "binaryData", "immutable"))
_REQUIRED_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_ACCOUNT = "kubernetes.io/service-account.name"


class SecretStrategy(PlainStrategy):
    """``v1`` Secret."""

    def decode(self, new: Obj) -> list[str]:
        unknown = _drop_unknown(new, _SECRET_FIELDS)
        _check_map(new, "Secret", "data", encoded=True)
        _check_map(new, "Secret", "stringData", encoded=False)
        _check_scalars(new, "Secret")
        return unknown

    def prepare(self, new: Obj, old: Obj | None) -> None:
        plain = new.pop("stringData", None) or {}
        if plain:
            data = dict(new.get("data") or {})
            data.update({key: base64.b64encode(value.encode()).decode() for key, value in plain.items()})
            new["data"] = data
        if not new.get("data"):
            new.pop("data", None)
        if not new.get("type"):
            new["type"] = old["type"] if old and not new.get("type") and old.get("type") else "Opaque"

    def validate(self, new: Obj, old: Obj | None) -> tuple[list[Cause], list[str]]:
        causes: list[Cause] = []
        if old is not None:
            if new["type"] != old["type"]:
                causes.append(invalid("type", new["type"], "field is immutable"))
            causes += _validate_immutable(new, old, "data")
        data: dict[str, str] = new.get("data") or {}
        causes += _validate_keys(data)
        if _decoded_size(data) > LIMIT:
            causes.append(too_long("data", LIMIT))
        return causes + _validate_type(new, data), []


class ConfigMapStrategy(PlainStrategy):
    """``v1`` ConfigMap."""

    def decode(self, new: Obj) -> list[str]:
        unknown = _drop_unknown(new, _CONFIG_FIELDS)
        _check_map(new, "ConfigMap", "data", encoded=False)
        _check_map(new, "ConfigMap", "binaryData", encoded=True)
        _check_scalars(new, "ConfigMap")
        return unknown

    def validate(self, new: Obj, old: Obj | None) -> tuple[list[Cause], list[str]]:
        causes: list[Cause] = [] if old is None else _validate_immutable(new, old, "data", "binaryData")
        causes += _validate_keys(new.get("data") or {}) + _validate_keys(
            new.get("binaryData") or {}, "binaryData"
        )
        size = _decoded_size(new.get("binaryData") or {})
        if size + sum(len(value.encode()) for value in (new.get("data") or {}).values()) > LIMIT:
            causes.append(too_long("", LIMIT))
        return causes, []


def _drop_unknown(new: Obj, known: frozenset[str]) -> list[str]:
    unknown = [name for name in new if name not in known]
    for name in unknown:
        del new[name]
    for name in [name for name, value in new.items() if value is None]:
        del new[name]
    return unknown


def _check_map(new: Obj, kind: str, name: str, *, encoded: bool) -> None:
    found = new.get(name)
    if found is None:
        return
    shape = "map[string][]uint8" if encoded else "map[string]string"
    if not isinstance(found, dict):
        raise DecodeError(_cannot(found, kind, name, shape))
    for key, value in found.items():
        if value is None:
            found[key] = ""
        elif not isinstance(value, str):
            raise DecodeError(_cannot(value, kind, name, "[]uint8" if encoded else "string"))
        elif encoded:
            _check_base64(value)


def _check_base64(value: str) -> None:
    text = value.replace("\r", "").replace("\n", "")
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        match = re.search(r"[^A-Za-z0-9+/]", text)
        offset = match.start() if match else len(text) - len(text) % 4
        raise DecodeError(f"illegal base64 data at input byte {offset}") from None


def _check_scalars(new: Obj, kind: str) -> None:
    for name, wanted, word in (("type", str, "string"), ("immutable", bool, "bool")):
        if name in new and not isinstance(new[name], wanted):
            raise DecodeError(
                _cannot(new[name], kind, name, f"core.SecretType of {word}" if name == "type" else word)
            )


def _cannot(value: Any, kind: str, name: str, wanted: str) -> str:
    word = {"integer": "number", "boolean": "bool"}.get(json_type(value), json_type(value))
    return f"json: cannot unmarshal {word} into Go struct field {kind}.{name} of type {wanted}"


def _validate_immutable(new: Obj, old: Obj, *contents: str) -> list[Cause]:
    if old.get("immutable") is not True:
        return []
    detail = "field is immutable when `immutable` is set"
    causes = [] if new.get("immutable") is True else [forbidden_field("immutable", detail)]
    changed = [name for name in contents if (new.get(name) or {}) != (old.get(name) or {})]
    return causes + [forbidden_field(name, detail) for name in changed]


def _validate_keys(data: dict[str, str], field: str = "data") -> list[Cause]:
    causes: list[Cause] = []
    for key in data:
        place = f"{field}[{key}]"
        if len(key) > 253:
            causes.append(invalid(place, key, "must be no more than 253 characters"))
        if _KEY.fullmatch(key) is None:
            causes.append(invalid(place, key, _KEY_HINT))
        elif key in (".", ".."):
            causes.append(invalid(place, key, f"must not be '{key}'"))
        elif key.startswith(".."):
            causes.append(invalid(place, key, "must not start with '..'"))
    return causes


def _decoded_size(data: dict[str, str]) -> int:
    return sum(len(value.rstrip("=")) * 3 // 4 for value in data.values())


def _validate_type(new: Obj, data: dict[str, str]) -> list[Cause]:
    kind = new["type"]
    missing = [required(f"data[{key}]") for key in _REQUIRED_KEYS.get(kind, ()) if key not in data]
    if missing:
        return missing
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        return [required("data[username]"), required("data[password]")]
    if kind == "kubernetes.io/ssh-auth" and not data["ssh-privatekey"]:
        return [required("data[ssh-privatekey]")]
    if kind == "kubernetes.io/service-account-token":
        name = (metadata(new).get("annotations") or {}).get(_ACCOUNT)
        return [] if name else [required(f"metadata.annotations[{_ACCOUNT}]")]
    if kind in ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"):
        key = _REQUIRED_KEYS[kind][0]
        try:
            json.loads(base64.b64decode(data[key]))
        except ValueError:
            return [invalid(f"data[{key}]", _REDACTED, "invalid character looking for beginning of value")]
    return []
