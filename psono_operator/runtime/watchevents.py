"""What a watch stream says, and what follows when it fails. Pure functions.

:func:`read_line` gives a line of the stream its meaning, in all the shapes in which servers and proxies say
"expired" (B2, B3); :func:`after_watch_failure` is the table of rule B4. Who watches, when and for whom is
not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from psono_operator.runtime.errors import (
    ApiError,
    BadRequest,
    Gone,
    KubeError,
    NotFound,
    ProtocolError,
    ServerError,
    Unreachable,
    error_from_status,
)
from psono_operator.runtime.resources import KubeObject, metadata_of, version_of

FAILURES_BEFORE_RELIST = 5
"""Watches that failed on the server's side in a row until the version itself is suspected (B4)."""


class ChangeKind(Enum):
    """The kinds of watch events that say something about an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change:
    """One object as it is now, or as it was last when it was deleted."""

    kind: ChangeKind
    object: KubeObject = field(repr=False)


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The stream is at this version; nothing changed (B2)."""

    version: str


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event of a type that we do not know."""

    type: str


class WatchEndedEarly(Unreachable):
    """The server ended a watch at once and without news."""


class AfterFailure(Enum):
    """What follows a failed watch, after the delay."""

    SAME_VERSION = "watch from the same version"
    RELIST = "list again"


def read_line(
    line: Mapping[str, Any], request: str = "WATCH", *, sensitive: bool = False
) -> Change | Bookmark | UnknownEvent | KubeError:
    """Pure: what one line of a watch stream means; errors are returned, not raised.

    A Status, bare or as the object of an ERROR event, is the error it describes (B3 b and c).
    """
    kind, obj = line.get("type"), line.get("object")
    if kind is None and line.get("kind") == "Status":
        kind, obj = "ERROR", dict(line)
    if not isinstance(kind, str) or not isinstance(obj, dict):
        return ProtocolError(f"{request} sent a line that is no watch event")
    if kind == "ERROR":
        code = obj.get("code")
        if not isinstance(code, int) or code < 400:
            code = 410 if obj.get("reason") in ("Expired", "Gone") else 500
        return error_from_status(request, code, obj, sensitive=sensitive)
    version = version_of(obj)
    if kind == "BOOKMARK":
        return Bookmark(version)
    if kind not in ChangeKind.__members__:
        return UnknownEvent(kind)
    if not version or not metadata_of(obj).get("name"):
        return ProtocolError(f"{request} sent an object without name or resourceVersion")
    return Change(ChangeKind[kind], obj)


def after_watch_failure(error: KubeError, in_a_row: int) -> AfterFailure:
    """Pure: the table of rule B4. ``in_a_row`` counts failures on the server's side, this one included."""
    if isinstance(error, Gone | BadRequest | NotFound):
        # 404: whatever comes back under this name may be another type with other objects.
        return AfterFailure.RELIST
    if isinstance(error, ApiError) and any(
        cause.reason == "ResourceVersionTooLarge" for cause in error.causes
    ):
        return AfterFailure.RELIST
    if is_servers_fault(error) and in_a_row >= FAILURES_BEFORE_RELIST:
        return AfterFailure.RELIST
    return AfterFailure.SAME_VERSION


def is_servers_fault(error: KubeError) -> bool:
    """Whether a server answered and failed, so that our version may be the cause.

    A watch that ends at once and without news counts: nobody says why, and a list may be the way out.
    """
    return isinstance(error, ServerError | ProtocolError | WatchEndedEarly)
