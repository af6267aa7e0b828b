"""The seam to a backend: a handful of calls, so that another one can stand in for Psono.

Values leave a source only as ``SecretBytes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from psono_operator.api.spec import RemoteRef
from psono_operator.psono.secretbytes import SecretBytes

PATIENCE = 2.0
"""Seconds after which a source that gives nobody a turn counts as not answering."""


class SourceBusy(Exception):
    """Others wait for this source already, and it does not answer: come back soon, do other work first."""


class SourceEntry(Protocol):
    """A decrypted entry."""

    def select(self, ref: RemoteRef) -> SecretBytes:
        """The one value that ``ref`` selects. Raises an ExtractionError."""


class Unsupported(Exception):
    """The backend cannot tell versions; plain reads are the only way."""


class SecretSource(Protocol):
    """A backend opened with one set of credentials."""

    async def versions(self) -> Mapping[str, str]:
        """The version of every entry these credentials know, by reference. Raises Unsupported."""

    async def read(self, ref: str) -> SourceEntry:
        """Read and decrypt one entry. Raises the backend's typed errors, and SourceBusy."""

    async def close(self) -> None:
        """Give back what was opened."""
