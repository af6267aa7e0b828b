"""The wrapper every secret travels in.

It shows its content to nobody who does not ask by name: no text form, no comparison with bytes, no copy,
no pickle (rule F8). Each way out is a call of :meth:`SecretBytes.reveal`, so all of them can be searched
for. It refuses to know what the bytes mean.
"""

from __future__ import annotations

import hmac
from typing import NoReturn, final

_SHOWN = "SecretBytes(…)"


@final
class SecretBytes:
    """Bytes that print as a constant text. Two wrappers are equal only when they are the same object."""

    __slots__ = ("__value",)

    def __init__(self, value: bytes) -> None:
        """Wrap ``value``; TypeError, without the value, for anything but bytes."""
        if not isinstance(value, bytes):
            raise TypeError("SecretBytes wraps bytes only")
        self.__value = value

    def reveal(self) -> bytes:
        """The bytes themselves. Use them at once and keep them nowhere."""
        return self.__value

    def same_as(self, other: SecretBytes) -> bool:
        """Whether both hold the same bytes, in time that does not depend on where they differ."""
        return hmac.compare_digest(self.__value, other.__value)

    def __repr__(self) -> str:
        return _SHOWN

    def __format__(self, spec: str) -> str:
        return _SHOWN

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("SecretBytes can be neither pickled nor copied")
