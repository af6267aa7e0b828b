"""One table: what was raised → the documented reason, the wait before the next attempt, the words.

Everything a step of the reconcile can raise about the user's configuration or about Psono stands here.
Trouble with the API server itself does not: it is retried by the queue, because it could not be reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from psono_operator.api.conditions import Reason
from psono_operator.api.spec import InvalidSpec
from psono_operator.psono import errors as psono
from psono_operator.secretsync.fetch import EntryReadFailed, ReadsTooSlow
from psono_operator.secretsync.finalizer import FinalizerRefused
from psono_operator.secretsync.merge_policy import TooManyManagedKeys
from psono_operator.secretsync.releaser import ReleaseFailed
from psono_operator.secretsync.render import MappingFailed, TooMuchData
from psono_operator.secretsync.sources import AuthSecretForbidden, AuthSecretUnavailable
from psono_operator.secretsync.writer import NamespaceTerminating, TargetRefused, TargetWriteFailed


class Retry(Enum):
    """When to try again unless an input changes before (docs/architecture.md)."""

    ON_CHANGE = "on change"
    INTERVAL = "interval"
    BACKOFF = "backoff"
    SLOW_BACKOFF = "slow backoff"
    """For refusals, wrong keys and maintenance: none of them ends within a second (J4)."""


FIRST_DELAY = {Retry.BACKOFF: 1.0, Retry.SLOW_BACKOFF: 15.0}
"""Seconds before the first retry."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt in the words of the status."""

    reason: Reason
    message: str
    retry: Retry
    not_before: float = 0.0
    """Seconds the server asked us to wait at least."""
    quiet: bool = False
    """No event: the namespace is going away (rule H6)."""


_TABLE: tuple[tuple[type[Exception], Reason, Retry], ...] = (
    (InvalidSpec, Reason.INVALID_CONFIGURATION, Retry.ON_CHANGE),
    (TooManyManagedKeys, Reason.INVALID_CONFIGURATION, Retry.INTERVAL),
    (FinalizerRefused, Reason.TARGET_UPDATE_FAILED, Retry.BACKOFF),
    (AuthSecretForbidden, Reason.AUTHENTICATION_SECRET_ERROR, Retry.BACKOFF),
    (AuthSecretUnavailable, Reason.AUTHENTICATION_SECRET_ERROR, Retry.INTERVAL),
    (psono.MissingCredential, Reason.AUTHENTICATION_SECRET_ERROR, Retry.INTERVAL),
    (psono.CredentialsError, Reason.CLIENT_CONFIGURATION_ERROR, Retry.ON_CHANGE),
    (EntryReadFailed, Reason.REMOTE_READ_FAILED, Retry.BACKOFF),
    (ReadsTooSlow, Reason.REMOTE_READ_FAILED, Retry.BACKOFF),
    (MappingFailed, Reason.VALUE_EXTRACTION_FAILED, Retry.INTERVAL),
    (TooMuchData, Reason.TARGET_UPDATE_FAILED, Retry.INTERVAL),
    (NamespaceTerminating, Reason.TARGET_UPDATE_FAILED, Retry.INTERVAL),
    (TargetRefused, Reason.TARGET_UPDATE_FAILED, Retry.BACKOFF),
    (TargetWriteFailed, Reason.TARGET_UPDATE_FAILED, Retry.BACKOFF),
    (ReleaseFailed, Reason.PREVIOUS_TARGET_CLEANUP_FAILED, Retry.BACKOFF),
)

_SLOW = (psono.Refused, psono.DecryptionError, psono.Maintenance)

REPORTED = tuple(kind for kind, _, _ in _TABLE)
"""The exceptions that become a status."""


def failure_of(error: Exception) -> Failure:
    """The failure an exception of the table stands for; InternalError for any other."""
    row = next((row for row in _TABLE if isinstance(error, row[0])), None)
    if row is None:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        message = f"unexpected {type(error).__name__}; the operator's log has more"
        return Failure(Reason.INTERNAL_ERROR, message, Retry.BACKOFF)
    _, reason, retry = row
    if isinstance(error, InvalidSpec) and error.only_interval:
        reason = Reason.INVALID_REFRESH_INTERVAL
    not_before = 0.0
    if isinstance(error, EntryReadFailed):
        if isinstance(error.error, _SLOW):
            retry = Retry.SLOW_BACKOFF
        if isinstance(error.error, psono.Throttled):
            not_before = error.error.retry_after
    return Failure(reason, str(error), retry, not_before, quiet=isinstance(error, NamespaceTerminating))
