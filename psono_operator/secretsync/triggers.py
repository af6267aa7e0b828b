"""Which notification wakes which PsonoSecret (rules D4, I4).

Pure. A PsonoSecret wakes itself on what a user can change, never on its own status. A Secret wakes every
PsonoSecret that reads its credentials or writes it.
"""

from __future__ import annotations

from collections.abc import Iterable

from psono_operator.api import names
from psono_operator.runtime import predicates
from psono_operator.runtime.controller import Mapper, Predicate
from psono_operator.runtime.notifications import Added, Deleted, Notification, Updated
from psono_operator.runtime.resources import KubeObject, ObjectKey
from psono_operator.runtime.store import StoreView
from psono_operator.runtime.workqueue import Priority
from psono_operator.secretsync import indexes
from psono_operator.secretsync.indexes import BY_AUTH_SECRET, BY_TARGET, BY_UID

worth_a_look: Predicate = predicates.any_of(
    predicates.generation_changed,
    predicates.deletion_started,
    predicates.finalizer_missing(names.FINALIZER),
    predicates.annotation_changed(names.FORCE_SYNC_ANNOTATION),
)
"""For PsonoSecrets. A status update, ours above all, is none of these."""


makes_failures_meaningless: Predicate = predicates.any_of(
    predicates.generation_changed, predicates.recreated_or_went
)
"""For PsonoSecrets: what was wrong before says nothing about what comes now (rules E4, C3)."""


def after_the_first_list(notification: Notification) -> bool:
    """For Secrets: the first list concerns nobody, since every PsonoSecret is visited anyway."""
    return not (isinstance(notification, Added) and notification.initial)


def concerned_by_psono_secret(psono_secrets: StoreView) -> Mapper:
    """Maps a PsonoSecret to itself, and to those whose target is a Secret it has let go of.

    They may have waited for a key it managed, or for its credentials to be kept elsewhere.
    """

    def mapper(notification: Notification) -> Iterable[ObjectKey]:
        keys = {notification.key}
        for name in _left_secrets(notification):
            keys |= psono_secrets.by_index(BY_TARGET, name)
        return keys

    return mapper


def concerned_by_secret(psono_secrets: StoreView) -> Mapper:
    """Maps a Secret to the PsonoSecrets that use it: for authentication, as target, or as a former target."""

    def mapper(notification: Notification) -> Iterable[ObjectKey]:
        name = str(notification.key)
        keys = psono_secrets.by_index(BY_AUTH_SECRET, name) | psono_secrets.by_index(BY_TARGET, name)
        for state in _states(notification):
            for uid in indexes.claimants(state):
                keys |= psono_secrets.by_index(BY_UID, uid)
        return keys

    return mapper


def _left_secrets(notification: Notification) -> set[str]:
    match notification:
        case Updated(old=old, new=new):
            return _used(old) - _used(new)
        case Deleted(last=last):
            return _used(last)
    return set()


def _used(obj: KubeObject) -> set[str]:
    return {*indexes.target(obj), *indexes.auth_secret(obj)}


def _states(notification: Notification) -> tuple[KubeObject, ...]:
    match notification:
        case Added(new=new):
            return (new,)
        case Updated(old=old, new=new):
            return (old, new)
        case Deleted(last=last):
            return (last,)


def priority_of(notification: Notification) -> Priority:
    """The first list is a visit, everything else is somebody waiting (rule E5)."""
    first_list = isinstance(notification, Added) and notification.initial
    return Priority.LOW if first_list else Priority.HIGH
