"""Which notifications are worth a reconcile.

Pure functions from a notification to yes or no, and ways to join them (rule I4). They read metadata only and
know no resource by name. Predicates about a change let Added and Deleted through: those are always news.
"""

from __future__ import annotations

from psono_operator.runtime.controller import Predicate
from psono_operator.runtime.notifications import Added, Deleted, Notification, Updated
from psono_operator.runtime.resources import (
    annotations_of,
    generation_of,
    is_deleting,
    metadata_of,
    uid_of,
    version_of,
)


def generation_changed(notification: Notification) -> bool:
    """The spec changed; a status write does not count. Setting deletionTimestamp bumps generation too."""
    if isinstance(notification, Updated):
        return generation_of(notification.old) != generation_of(notification.new)
    return True


def resource_version_changed(notification: Notification) -> bool:
    """Anything at all changed."""
    if isinstance(notification, Updated):
        return version_of(notification.old) != version_of(notification.new)
    return True


def deletion_started(notification: Notification) -> bool:
    """deletionTimestamp appeared, or the object was first seen with one."""
    match notification:
        case Added(new=new):
            return is_deleting(new)
        case Updated(old=old, new=new):
            return is_deleting(new) and not is_deleting(old)
        case _:
            return False


def annotation_changed(name: str) -> Predicate:
    """The value of annotation ``name`` changed, appeared or went."""

    def predicate(notification: Notification) -> bool:
        if isinstance(notification, Updated):
            return annotations_of(notification.old).get(name) != annotations_of(notification.new).get(name)
        return True

    return predicate


def finalizer_missing(name: str) -> Predicate:
    """The object lacks finalizer ``name`` and can still get it (rule H1: not once deletion has begun)."""

    def predicate(notification: Notification) -> bool:
        if isinstance(notification, Deleted) or is_deleting(notification.new):
            return False
        return name not in (metadata_of(notification.new).get("finalizers") or ())

    return predicate


def appeared_or_went(notification: Notification) -> bool:
    """The object is new or gone."""
    return not isinstance(notification, Updated)


def recreated_or_went(notification: Notification) -> bool:
    """The uid known so far is gone (rule C3): what was remembered about the key is about another object."""
    if isinstance(notification, Updated):
        return uid_of(notification.old) != uid_of(notification.new)
    return isinstance(notification, Deleted)


def always(notification: Notification) -> bool:
    """Everything."""
    return True


def never(notification: Notification) -> bool:
    """Nothing."""
    return False


def any_of(*predicates: Predicate) -> Predicate:
    """At least one says yes."""
    return lambda notification: any(predicate(notification) for predicate in predicates)


def all_of(*predicates: Predicate) -> Predicate:
    """All say yes."""
    return lambda notification: all(predicate(notification) for predicate in predicates)


def not_(predicate: Predicate) -> Predicate:
    """The opposite."""
    return lambda notification: not predicate(notification)
