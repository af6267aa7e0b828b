"""Who wrote which field of an object last, as the ``managedFields`` of the API server tell it. Pure.

The managed-keys annotation says which keys are ours, and anybody with the right to can edit it. Before a key
is removed on the word of an edited list, this says whether the key itself is somebody else's work.
Refuses to guess: where nothing is recorded (the field is stripped by some tools) nothing is in doubt.

Wire: ``managedFields[].fieldsV1`` is a tree of ``f:<name>`` elements. An Update that changes a field takes it
from the managers who had it; one that leaves it as it is takes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from psono_operator.api.names import OPERATOR
from psono_operator.runtime.resources import KubeObject, metadata_of


def written_by_others(obj: KubeObject, *path: str) -> bool:
    """Whether the field at ``path`` is on record, and as the work of others alone."""
    managers = {
        str(each.get("manager", ""))
        for each in metadata_of(obj).get("managedFields") or ()
        if isinstance(each, Mapping) and _has(each.get("fieldsV1"), path)
    }
    return bool(managers) and OPERATOR not in managers


def _has(fields: object, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(fields, Mapping) or f"f:{name}" not in fields:
            return False
        fields = fields[f"f:{name}"]
    return True
