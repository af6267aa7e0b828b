"""Notifications name the key of the object they are about."""

from __future__ import annotations

import pytest

from psono_operator.runtime.notifications import Added, Deleted, Notification, Updated
from tests.runtime.objects import key, make_object


@pytest.mark.parametrize(
    "notification",
    [
        Added(make_object("x")),
        Updated(make_object("x", 1), make_object("x", 2)),
        Deleted(make_object("x")),
        Deleted(make_object("x"), final_state_unknown=True),
    ],
)
def test_every_kind_of_notification_knows_its_key_tombstones_included(notification: Notification) -> None:
    """C1: handlers that crash on the tombstone are the other half of lost deletions."""
    assert notification.key == key("x")
