"""Events: one table, two APIs (rule I6).

``events.k8s.io/v1`` and ``v1`` show the same objects under different field names; stored is the ``v1``
form, so that ``kubectl describe`` finds what a client of the new API wrote. The new API checks strictly.
"""

from __future__ import annotations

from psono_operator.sandbox.kube.admission.leases import check_micro_time
from psono_operator.sandbox.kube.objects import Obj, dig
from psono_operator.sandbox.kube.registry import PlainStrategy
from psono_operator.sandbox.kube.status import Cause, DecodeError, invalid, required, too_long

EVENTS_TABLE = "/events"
NOTE_LIMIT = 1024
_RENAMED = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {old: new for new, old in _RENAMED.items()}
_OBJECT_PARTS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
EVENT_FIELDS = {
    **{f"involvedObject.{part}": ("involvedObject", part) for part in _OBJECT_PARTS},
    "reason": ("reason",),
    "reportingComponent": ("reportingComponent",),
    "source": ("source", "component"),
    "type": ("type",),
}
NEW_EVENT_FIELDS = {
    **{f"regarding.{part}": ("involvedObject", part) for part in _OBJECT_PARTS},
    "reason": ("reason",),
    "reportingController": ("reportingComponent",),
    "type": ("type",),
}
_ALWAYS_WRITTEN = ("firstTimestamp", "lastTimestamp", "eventTime")
_MUTABLE = frozenset(("metadata", "apiVersion", "kind", "series", "count", "lastTimestamp"))


class CoreEventStrategy(PlainStrategy):
    """``v1`` Event, lenient as the old API is."""

    def decode(self, new: Obj) -> list[str]:
        _decode_times(new)
        return []

    def validate(self, new: Obj, old: Obj | None) -> tuple[list[Cause], list[str]]:
        return _validate_namespace(new), []

    def outward(self, obj: Obj) -> Obj:
        # Absent times are written as null, and kubectl sorts by them.
        return {**dict.fromkeys(_ALWAYS_WRITTEN), **obj, "apiVersion": "v1"}


class NewEventStrategy(CoreEventStrategy):
    """``events.k8s.io/v1`` Event."""

    def validate(self, new: Obj, old: Obj | None) -> tuple[list[Cause], list[str]]:
        causes = _validate_namespace(new)
        if old is None:
            for name in ("eventTime", "reportingComponent", "reportingInstance", "action", "reason"):
                if not new.get(name):
                    causes.append(required(_BACK.get(name, name)))
            if new.get("type") not in ("Normal", "Warning"):
                causes.append(invalid("type", new.get("type", ""), "has invalid value: %v"))
            causes += _validate_lengths(new)
        else:
            changed = {name for name in {*new, *old} if new.get(name) != old.get(name)} - _MUTABLE
            causes += [invalid(_BACK.get(name, name), "", "field is immutable") for name in sorted(changed)]
        return causes, []

    def outward(self, obj: Obj) -> Obj:
        shown = {_BACK.get(name, name): value for name, value in obj.items()}
        return {**shown, "apiVersion": "events.k8s.io/v1"}

    def inward(self, obj: Obj) -> Obj:
        stored = {_RENAMED.get(name, name): value for name, value in obj.items()}
        return {**stored, "apiVersion": "v1"}


def _decode_times(new: Obj) -> None:
    for name in [name for name, value in new.items() if value is None]:
        del new[name]
    check_micro_time(new.get("eventTime"))
    check_micro_time(dig(new, ("series", "lastObservedTime")))
    for name in ("series", "regarding", "involvedObject", "related"):
        if not isinstance(new.get(name, {}), dict):
            raise DecodeError(f"json: cannot unmarshal into Go struct field Event.{name}")
    if not isinstance(dig(new, ("series", "count")) or 0, int):
        raise DecodeError(
            "json: cannot unmarshal into Go struct field EventSeries.series.count of type int32"
        )


def _validate_namespace(new: Obj) -> list[Cause]:
    """An event is where its object is; with an eventTime only the object of no namespace is looked at."""
    named, own = dig(new, ("involvedObject", "namespace")) or "", new["metadata"].get("namespace")
    if new.get("eventTime"):
        fits = bool(named) or own in ("default", "kube-system")
    else:
        fits = own == (named or "default")
    return [] if fits else [invalid("involvedObject.namespace", named, "does not match event.namespace")]


def _validate_lengths(new: Obj) -> list[Cause]:
    causes: list[Cause] = []
    for name, limit in (
        ("message", NOTE_LIMIT),
        ("action", 128),
        ("reason", 128),
        ("reportingInstance", 128),
    ):
        if len(str(new.get(name, ""))) > limit:
            causes.append(too_long(name, limit))
    series = new.get("series")
    if isinstance(series, dict) and (series.get("count") or 0) < 2:
        causes.append(invalid("series.count", series.get("count"), "should be at least 2"))
    return causes
