"""Conditions: the documented reasons, and the rules for changing a condition.

``lastTransitionTime`` moves only when ``status`` flips (rule I2), timestamps are RFC 3339 in whole seconds,
UTC. Messages are stable: the same failure twice gives the same bytes (rule I5).
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

MESSAGE_LIMIT = 1024
"""Characters of a condition message."""


class Reason(StrEnum):
    """Reasons of the Ready condition: the documented list, plus the one for our own faults."""

    SECRET_SYNCHRONIZED = "SecretSynchronized"
    INVALID_REFRESH_INTERVAL = "InvalidRefreshInterval"
    INVALID_CONFIGURATION = "InvalidConfiguration"
    AUTHENTICATION_SECRET_ERROR = "AuthenticationSecretError"
    CLIENT_CONFIGURATION_ERROR = "ClientConfigurationError"
    REMOTE_READ_FAILED = "RemoteReadFailed"
    VALUE_EXTRACTION_FAILED = "ValueExtractionFailed"
    TARGET_UPDATE_FAILED = "TargetUpdateFailed"
    PREVIOUS_TARGET_CLEANUP_FAILED = "PreviousTargetCleanupFailed"
    INTERNAL_ERROR = "InternalError"


def format_time(moment: datetime) -> str:
    """RFC 3339, UTC, whole seconds, as ``metav1.Time`` is written."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: object) -> datetime | None:
    """An aware datetime, or None for anything that is no RFC 3339 time with an offset (rule J3)."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def one_line(text: str) -> str:
    """The text with its control characters escaped, so that nobody's name can forge a line of a log."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def shortened(message: str) -> str:
    """The message as one line within the limit; the cut is marked."""
    message = one_line(message)
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…"
