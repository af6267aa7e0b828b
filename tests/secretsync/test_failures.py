"""One table: exception → documented reason, wait, words (docs/architecture.md)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from psono_operator.api.conditions import MESSAGE_LIMIT, Reason
from psono_operator.api.spec import InvalidSpec, parse_spec
from psono_operator.psono import errors as psono
from psono_operator.secretsync import failures
from psono_operator.secretsync.failures import REPORTED, Retry, failure_of
from psono_operator.secretsync.fetch import EntryReadFailed, ReadsTooSlow
from psono_operator.secretsync.finalizer import FinalizerRefused
from psono_operator.secretsync.merge_policy import TooManyManagedKeys
from psono_operator.secretsync.releaser import ReleaseFailed
from psono_operator.secretsync.render import MappingFailed, TooMuchData
from psono_operator.secretsync.sources import AuthSecretForbidden, AuthSecretUnavailable
from psono_operator.secretsync.writer import NamespaceTerminating, TargetRefused, TargetWriteFailed
from tests.secretsync.objects import mapping, psono_secret

GONE = psono.ExtractionError("field 'a.b'", psono.Found.MISSING)
MAPPED = parse_spec(psono_secret(data=[mapping("A", path="a.b")])).data[0]


def read(error: psono.PsonoError) -> EntryReadFailed:
    return EntryReadFailed("some-id", error)


Make = Callable[[], Exception]
CASES: list[tuple[Make, Reason, Retry]] = [
    (
        lambda: InvalidSpec([("spec.refreshInterval", "must be longer")]),
        Reason.INVALID_REFRESH_INTERVAL,
        Retry.ON_CHANGE,
    ),
    (
        lambda: InvalidSpec([("spec.data", "is required"), ("spec.refreshInterval", "x")]),
        Reason.INVALID_CONFIGURATION,
        Retry.ON_CHANGE,
    ),
    (lambda: TooManyManagedKeys("db"), Reason.INVALID_CONFIGURATION, Retry.INTERVAL),
    (lambda: AuthSecretUnavailable("gone"), Reason.AUTHENTICATION_SECRET_ERROR, Retry.INTERVAL),
    (lambda: AuthSecretForbidden("no"), Reason.AUTHENTICATION_SECRET_ERROR, Retry.BACKOFF),
    (
        lambda: psono.MissingCredential(psono.Role.SERVER_URL, "serverUrl", "is missing"),
        Reason.AUTHENTICATION_SECRET_ERROR,
        Retry.INTERVAL,
    ),
    (
        lambda: psono.InvalidCredential(psono.Role.SERVER_URL, "serverUrl", "is none"),
        Reason.CLIENT_CONFIGURATION_ERROR,
        Retry.ON_CHANGE,
    ),
    (lambda: read(psono.Unreachable("no route")), Reason.REMOTE_READ_FAILED, Retry.BACKOFF),
    (lambda: read(psono.ServerFault(502)), Reason.REMOTE_READ_FAILED, Retry.BACKOFF),
    (lambda: read(psono.TooLarge(8)), Reason.REMOTE_READ_FAILED, Retry.BACKOFF),
    (lambda: read(psono.ProtocolError(200, "x")), Reason.REMOTE_READ_FAILED, Retry.BACKOFF),
    (lambda: read(psono.Throttled(60)), Reason.REMOTE_READ_FAILED, Retry.BACKOFF),
    (lambda: read(psono.Maintenance(disabled=False)), Reason.REMOTE_READ_FAILED, Retry.SLOW_BACKOFF),
    (
        lambda: read(psono.Refused(400, psono.Meaning.READ)),
        Reason.REMOTE_READ_FAILED,
        Retry.SLOW_BACKOFF,
    ),
    (
        lambda: read(psono.DecryptionError(psono.Stage.ENTRY_KEY_AUTHENTICATION)),
        Reason.REMOTE_READ_FAILED,
        Retry.SLOW_BACKOFF,
    ),
    (lambda: ReadsTooSlow(20), Reason.REMOTE_READ_FAILED, Retry.BACKOFF),
    (lambda: MappingFailed(MAPPED, GONE), Reason.VALUE_EXTRACTION_FAILED, Retry.INTERVAL),
    (lambda: TooMuchData(2_000_000, "A"), Reason.TARGET_UPDATE_FAILED, Retry.INTERVAL),
    (lambda: FinalizerRefused("no"), Reason.TARGET_UPDATE_FAILED, Retry.BACKOFF),
    (lambda: NamespaceTerminating("going"), Reason.TARGET_UPDATE_FAILED, Retry.INTERVAL),
    (lambda: TargetRefused("no"), Reason.TARGET_UPDATE_FAILED, Retry.BACKOFF),
    (lambda: TargetWriteFailed("no"), Reason.TARGET_UPDATE_FAILED, Retry.BACKOFF),
    (lambda: ReleaseFailed("no"), Reason.PREVIOUS_TARGET_CLEANUP_FAILED, Retry.BACKOFF),
]


@pytest.mark.parametrize(("make", "reason", "retry"), CASES)
def test_every_failure_has_its_reason_and_its_wait(make: Make, reason: Reason, retry: Retry) -> None:
    error = make()
    failure = failure_of(error)
    assert (failure.reason, failure.retry) == (reason, retry)
    assert failure == failure_of(make()), "the same failure is the same message (I5)"
    assert failure.message == str(error)
    assert 0 < len(failure.message) <= MESSAGE_LIMIT
    assert failure.quiet == isinstance(error, NamespaceTerminating)


def test_every_row_of_the_table_is_tried_here() -> None:
    made = [make() for make, _, _ in CASES]
    first_rows = {next(row[0] for row in failures._TABLE if isinstance(each, row[0])) for each in made}
    assert first_rows == set(REPORTED), "and no row is hidden behind another"


def test_a_throttled_read_is_not_repeated_before_the_server_said() -> None:
    """D2."""
    assert failure_of(read(psono.Throttled(600))).not_before == 600


@pytest.mark.parametrize("group", [False, True])
def test_anything_else_is_our_own_fault_and_says_no_more_than_its_class(group: bool) -> None:
    """F8: what an unexpected exception says may be a value."""
    error: Exception = KeyError("canary")
    if group:
        error = ExceptionGroup("canary", [ExceptionGroup("canary", [error])])
    failure = failure_of(error)
    assert (failure.reason, failure.retry) == (Reason.INTERNAL_ERROR, Retry.BACKOFF)
    assert "KeyError" in failure.message
    assert "canary" not in failure.message


def test_a_selector_is_named_and_what_it_found_is_not() -> None:
    message = failure_of(MappingFailed(MAPPED, GONE)).message
    assert 'key "A"' in message
    assert "field 'a.b'" in message
