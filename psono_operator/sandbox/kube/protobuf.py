"""Reading the protobuf bodies in which kubectl creates built-in objects (rule Q12).

Since 1.36 ``kubectl create secret`` and ``create namespace`` send ``application/vnd.kubernetes.protobuf``.
Only the messages of a short table are read, and answers are always JSON, which kubectl accepts.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from psono_operator.sandbox.kube.objects import Obj

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_UNKNOWN_TYPE, _UNKNOWN_RAW = 1, 2

_TEXT, _BOOL, _TEXT_MAP, _BYTES_MAP, _TEXTS, _META = "text", "bool", "text map", "bytes map", "texts", "meta"
_METADATA: Mapping[int, tuple[str, str]] = {
    1: ("name", _TEXT),
    2: ("generateName", _TEXT),
    3: ("namespace", _TEXT),
    5: ("uid", _TEXT),
    6: ("resourceVersion", _TEXT),
    11: ("labels", _TEXT_MAP),
    12: ("annotations", _TEXT_MAP),
    14: ("finalizers", _TEXTS),
}
_MESSAGES: Mapping[str, Mapping[int, tuple[str, str]]] = {
    "Secret": {
        1: ("metadata", _META),
        2: ("data", _BYTES_MAP),
        3: ("type", _TEXT),
        4: ("stringData", _TEXT_MAP),
        5: ("immutable", _BOOL),
    },
    "ConfigMap": {
        1: ("metadata", _META),
        2: ("data", _TEXT_MAP),
        3: ("binaryData", _BYTES_MAP),
        4: ("immutable", _BOOL),
    },
    "Namespace": {1: ("metadata", _META)},
    "ServiceAccount": {1: ("metadata", _META)},
}


def decode(raw: bytes) -> Obj:
    """The object in a protobuf body; ValueError for one that this module cannot read."""
    if not raw.startswith(_MAGIC):
        raise ValueError("not a Kubernetes protobuf message")
    envelope = dict(_fields(raw[len(_MAGIC) :]))
    type_meta = dict(_fields(_bytes(envelope.get(_UNKNOWN_TYPE, b""))))
    version, kind = (_bytes(type_meta.get(number, b"")).decode() for number in (1, 2))
    if kind not in _MESSAGES or version != "v1":
        raise ValueError(f"the sandbox does not read {kind} as protobuf")
    return {"apiVersion": version, "kind": kind, **_message(_bytes(envelope[_UNKNOWN_RAW]), _MESSAGES[kind])}


def _message(raw: bytes, table: Mapping[int, tuple[str, str]]) -> Obj:
    found: Obj = {}
    for number, value in _fields(raw):
        name, kind = table.get(number, ("", ""))
        if kind == _META:
            found[name] = _message(_bytes(value), _METADATA)
        elif kind == _TEXT and value:
            found[name] = _bytes(value).decode()
        elif kind == _TEXTS:
            found.setdefault(name, []).append(_bytes(value).decode())
        elif kind == _BOOL:
            found[name] = bool(value)
        elif kind in (_TEXT_MAP, _BYTES_MAP):
            pair = dict(_fields(_bytes(value)))
            item = _bytes(pair.get(2, b""))
            text = base64.b64encode(item).decode() if kind == _BYTES_MAP else item.decode()
            found.setdefault(name, {})[_bytes(pair.get(1, b"")).decode()] = text
    return found


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a length-delimited field was expected")
    return value


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(raw):
        tag, position = _varint(raw, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(raw, position)
            yield number, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(wire, 0)
        if wire == _BYTES:
            size, position = _varint(raw, position)
        elif not size:
            raise ValueError("unknown wire type")
        if position + size > len(raw):
            raise ValueError("the message ends too early")
        yield number, raw[position : position + size]
        position += size


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(raw):
        byte = raw[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("the message ends too early")
