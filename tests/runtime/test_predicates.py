"""Which notifications are worth a reconcile (I4)."""

from __future__ import annotations

from typing import Any

import pytest

from psono_operator.runtime import predicates as p
from psono_operator.runtime.controller import Predicate
from psono_operator.runtime.notifications import Added, Deleted, Notification, Updated
from psono_operator.runtime.resources import KubeObject
from tests.runtime.objects import make_object

OURS = "example.com/ours"


def obj(
    version: int = 1,
    *,
    generation: int = 1,
    note: str | None = None,
    finalizer: bool = True,
    dying: bool = False,
    uid: str = "u",
) -> KubeObject:
    more: dict[str, Any] = {"generation": generation}
    if note is not None:
        more["annotations"] = {"note": note}
    if finalizer:
        more["finalizers"] = ["other", OURS]
    if dying:
        more["deletionTimestamp"] = "2026-12-01T12:00:00Z"
    return make_object("x", version, uid=uid, **more)


ADDED = Added(obj())
DELETED = Deleted(obj(), final_state_unknown=True)
STATUS_ONLY = Updated(obj(1), obj(2))
SPEC = Updated(obj(1), obj(2, generation=2))
DYING_BUMPED = Updated(obj(1), obj(2, generation=2, dying=True))
DYING_EQUAL = Updated(obj(1), obj(2, dying=True))
STILL_DYING = Updated(obj(1, dying=True), obj(2, dying=True))
ANNOTATED = Updated(obj(1), obj(2, note="now"))
OTHER_VALUE = Updated(obj(1, note="then"), obj(2, note="now"))
UNANNOTATED = Updated(obj(1, note="now"), obj(2))
STRIPPED = Updated(obj(1), obj(2, finalizer=False))
STRIPPED_DYING = Updated(obj(1), obj(2, finalizer=False, dying=True))

#: The predicate that a resource with a finalizer and one watched annotation uses.
worth_it = p.any_of(
    p.generation_changed, p.deletion_started, p.annotation_changed("note"), p.finalizer_missing(OURS)
)


@pytest.mark.parametrize(
    ("predicate", "notification", "expected"),
    [
        (p.generation_changed, ADDED, True),
        (p.generation_changed, DELETED, True),
        (p.generation_changed, STATUS_ONLY, False),
        (p.generation_changed, SPEC, True),
        (p.generation_changed, DYING_EQUAL, False),
        (p.resource_version_changed, STATUS_ONLY, True),
        (p.resource_version_changed, Updated(obj(1), obj(1)), False),
        (p.resource_version_changed, ADDED, True),
        (p.deletion_started, ADDED, False),
        (p.deletion_started, Added(obj(dying=True)), True),
        (p.deletion_started, DYING_EQUAL, True),
        (p.deletion_started, STILL_DYING, False),
        (p.deletion_started, DELETED, False),
        (p.annotation_changed("note"), STATUS_ONLY, False),
        (p.annotation_changed("note"), ANNOTATED, True),
        (p.annotation_changed("note"), OTHER_VALUE, True),
        (p.annotation_changed("note"), UNANNOTATED, True),
        (p.annotation_changed("note"), DELETED, True),
        (p.annotation_changed("else"), OTHER_VALUE, False),
        (p.finalizer_missing(OURS), ADDED, False),
        (p.finalizer_missing(OURS), STRIPPED, True),
        (p.finalizer_missing(OURS), STRIPPED_DYING, False),
        (p.finalizer_missing(OURS), Added(obj(finalizer=False)), True),
        (p.finalizer_missing(OURS), Deleted(obj(finalizer=False)), False),
        (p.appeared_or_went, ADDED, True),
        (p.appeared_or_went, STATUS_ONLY, False),
        (p.recreated_or_went, DELETED, True),
        (p.recreated_or_went, ADDED, False),
        (p.recreated_or_went, SPEC, False),
        (p.always, STATUS_ONLY, True),
        (p.never, ADDED, False),
        (p.not_(p.always), ADDED, False),
        (p.any_of(), ADDED, False),
        (p.all_of(), ADDED, True),
        (p.any_of(p.never, p.always), ADDED, True),
        (p.all_of(p.never, p.always), ADDED, False),
        (worth_it, STATUS_ONLY, False),
        (worth_it, SPEC, True),
        (worth_it, DYING_BUMPED, True),
        (worth_it, DYING_EQUAL, True),
        (worth_it, STILL_DYING, False),
        (worth_it, ANNOTATED, True),
        (worth_it, STRIPPED, True),
        (worth_it, DELETED, True),
    ],
)
def test_a_predicate_answers(predicate: Predicate, notification: Notification, expected: bool) -> None:
    """I4: own status writes enqueue nothing; a deletion does, with equal and with bumped generation."""
    assert predicate(notification) is expected
