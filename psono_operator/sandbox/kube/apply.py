"""Server-side apply and the bookkeeping of field managers (rule Q5, rule G2).

Every write records who set which field in ``metadata.managedFields``; an apply merges a configuration,
refuses to change what another manager holds unless forced, and removes what its own manager dropped.
Simpler than the real merge: sets are kept per manager and subresource, and API versions are not converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from psono_operator.sandbox.kube.fieldsets import (
    Fields,
    Path,
    child_schema,
    claimed,
    compare,
    decode,
    encode,
    list_elements,
    spell,
    tracked,
    walk,
)
from psono_operator.sandbox.kube.objects import Obj, clone
from psono_operator.sandbox.kube.schema import Schema
from psono_operator.sandbox.kube.status import ApiError


@dataclass(frozen=True, slots=True)
class Manager:
    """Who writes: the name, ``Apply`` or ``Update``, and through which subresource."""

    name: str
    operation: str
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a manager holds, with which API version it said so, and when."""

    fields: Fields
    api_version: str
    time: str


Claims = dict[Manager, Claim]


def read_claims(obj: Obj | None) -> Claims:
    """The claims in an object's managedFields."""
    claims: Claims = {}
    for entry in ((obj or {}).get("metadata") or {}).get("managedFields") or ():
        manager = Manager(entry.get("manager", ""), entry.get("operation", ""), entry.get("subresource", ""))
        fields = decode(entry.get("fieldsV1") or {})
        claims[manager] = Claim(fields, entry.get("apiVersion", ""), entry.get("time", ""))
    return claims


def write_claims(obj: Obj, claims: Claims) -> None:
    """Put ``claims`` into the object's managedFields, in the server's order; empty ones vanish."""
    entries = []
    order = sorted(claims.items(), key=lambda item: (item[0].operation, item[1].time, item[0].name))
    for manager, claim in order:
        if not claim.fields and manager.operation == "Update":
            continue
        entry: Obj = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": claim.api_version,
        }
        entry |= {"time": claim.time, "fieldsType": "FieldsV1", "fieldsV1": encode(claim.fields)}
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    obj["metadata"].pop("managedFields", None)
    if entries:
        obj["metadata"]["managedFields"] = entries


def note_update(
    old: Obj | None, new: Obj, schema: Schema | None, manager: Manager, *, api_version: str, now: str
) -> None:
    """Record an ordinary write in ``new``: the writer holds what it changed, whoever held it before.

    A client that sends ``managedFields: [{}]`` or an empty list resets them.
    """
    sent = (new["metadata"] or {}).get("managedFields")
    claims = {} if sent in ([], [{}]) else read_claims(old)
    changed, removed = compare(old or {}, new, schema)
    if not changed and not removed:
        write_claims(new, claims)
        return
    for other, claim in list(claims.items()):
        left = claim.fields - removed
        if other != manager:
            left -= {path for path in changed if not _has_children(path, claim.fields)}
        claims[other] = Claim(left, claim.api_version, claim.time)
    mine = claims.get(manager, Claim(frozenset(), api_version, now)).fields
    claims[manager] = Claim(mine | changed, api_version, now)
    write_claims(new, claims)


def _has_children(path: Path, fields: Fields) -> bool:
    return any(len(each) > len(path) and each[: len(path)] == path for each in fields)


def apply(
    live: Obj | None,
    config: Obj,
    schema: Schema | None,
    manager: Manager,
    *,
    force: bool,
    now: str,
    admit: Callable[[Obj], Obj] = lambda obj: obj,
) -> Obj:
    """``live`` with ``config`` applied by ``manager``; 409 for fields that others hold.

    ``admit`` brings the merged object into its stored shape (folding, defaults) before it is compared
    with what is live.
    """
    claims = read_claims(live)
    mine = claimed(config, schema)
    before = claims.get(manager)
    others = {other: claim for other, claim in claims.items() if other != manager}
    merged = _merge(clone(live) if live is not None else {}, config, schema, root=True)
    if before is not None:
        held = frozenset[Path]().union(*(claim.fields for claim in others.values()))
        _remove_dropped(merged, before.fields - mine, held | mine, schema)
    merged = admit(merged)
    changed, removed = compare(live or {}, merged, schema)
    conflicts = {other: claim.fields & changed for other, claim in others.items()}
    conflicts = {other: fields for other, fields in conflicts.items() if fields}
    if conflicts and not force:
        raise _conflict(conflicts, claims)
    kept: Claims = {}
    for other, claim in others.items():
        left = claim.fields - conflicts.get(other, frozenset()) - removed
        if left or claim.fields == left:
            kept[other] = Claim(left, claim.api_version, claim.time)
    version = config.get("apiVersion", "")
    same = before is not None and before.fields == mine and before.api_version == version
    moment = before.time if before is not None and same and not changed and not removed else now
    kept[manager] = Claim(mine, version, moment)
    write_claims(merged, kept)
    return merged


def _conflict(conflicts: Mapping[Manager, Fields], claims: Claims) -> ApiError:
    causes, parts = [], []
    for manager, fields in conflicts.items():
        who = f'conflict with "{manager.name}"'
        if manager.subresource:
            who += f' with subresource "{manager.subresource}"'
        if manager.operation == "Update":
            who += f" using {claims[manager].api_version}"
        places = sorted(spell(path) for path in fields)
        causes += [{"reason": "FieldManagerConflict", "message": who, "field": place} for place in places]
        parts.append(f"{who}: {places[0]}" if len(places) == 1 else "\n- ".join([f"{who}:", *places]))
    count = len(causes)
    message = f"Apply failed with {count} conflict{'s' if count > 1 else ''}: " + "\n".join(parts)
    return ApiError(409, "Conflict", message, {"causes": causes})


def _merge(target: Any, config: Any, schema: Schema | None, *, root: bool = False) -> Any:
    if isinstance(config, dict) and not (schema is not None and schema.atomic_map):
        result = dict(target) if isinstance(target, dict) else {}
        for name, value in config.items():
            result[name] = _merge(result.get(name), value, child_schema(schema, name, root=root))
        return result
    if isinstance(config, list) and isinstance(target, list):
        new, old = list_elements(config, schema), list_elements(target, schema)
        if new is not None and old is not None:
            item = schema.items if schema is not None else None
            merged = [
                _merge(value, new[element], item) if element in new else value
                for element, value in old.items()
            ]
            return merged + [clone(value) for element, value in new.items() if element not in old]
    return clone(config)


def _remove_dropped(merged: Obj, dropped: Fields, kept: Fields, schema: Schema | None) -> None:
    """Remove the fields that only this manager held and that its configuration no longer has."""
    present = walk(tracked(merged), schema, parents=True)
    for path in sorted(dropped, key=len):
        if path in kept or path not in present or _has_children(path, kept):
            continue
        _delete(merged, path, schema)


def _delete(value: Any, path: Path, schema: Schema | None, *, root: bool = True) -> None:
    element, rest = path[0], path[1:]
    if isinstance(value, dict):
        name = element.partition(":")[2]
        if not rest:
            value.pop(name, None)
        elif name in value:
            _delete(value[name], rest, child_schema(schema, name, root=root), root=False)
    elif isinstance(value, list):
        elements = list_elements(value, schema) or {}
        item = elements.get(element)
        if item is None:
            return
        if not rest:
            value[:] = [each for each in value if each is not item]
        else:
            _delete(item, rest, schema.items if schema is not None else None, root=False)
