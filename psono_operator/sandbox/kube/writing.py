"""Create, replace, patch, delete: every write goes through here (rule Q1, Q5 to Q8, R3).

One pipeline for all kinds: decode, let the kind fold and default, validate, compare with what is stored,
stamp, store. It refuses to know HTTP; errors are :class:`ApiError`.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from psono_operator.sandbox.kube import apply as server_side_apply
from psono_operator.sandbox.kube import patch as patches
from psono_operator.sandbox.kube.admission.namespaces import is_terminating
from psono_operator.sandbox.kube.apply import Manager, note_update
from psono_operator.sandbox.kube.clock import Clock
from psono_operator.sandbox.kube.deletion import DeleteOptions, can_go, check_preconditions, marked
from psono_operator.sandbox.kube.kinds import read_object
from psono_operator.sandbox.kube.object_metadata import (
    carry_over,
    decode_metadata,
    generate_name,
    validate_metadata,
    validate_metadata_update,
)
from psono_operator.sandbox.kube.objects import Obj, clone, timestamp
from psono_operator.sandbox.kube.registry import ResourceType
from psono_operator.sandbox.kube.status import (
    ApiError,
    DecodeError,
    already_exists,
    bad_patch,
    bad_request,
    conflict,
    invalid,
    namespace_terminating,
    not_found,
    unprocessable,
)
from psono_operator.sandbox.kube.storage import Key, Storage
from psono_operator.sandbox.kube.strategic import strategic_merge

NAMESPACES_TABLE = "/namespaces"
Committed = Callable[[ResourceType, Obj, bool], None]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What the query of a write says."""

    manager: str = "unknown"
    dry_run: bool = False
    validation: str = "Warn"
    force: bool = False


@dataclass(slots=True)
class Written:
    """The outcome of a write: the object as its API version shows it."""

    object: Obj
    created: bool = False
    warnings: list[str] = field(default_factory=list)


class Writer:
    """All writes to ``storage``. ``committed`` is told of every stored or removed object."""

    def __init__(self, storage: Storage, clock: Clock, rng: random.Random, committed: Committed) -> None:
        self._storage = storage
        self._clock = clock
        self._random = rng
        self._committed = committed

    def create(self, resource: ResourceType, namespace: str, body: Any, options: WriteOptions) -> Written:
        """POST to a collection."""
        new = read_object(resource, namespace, "", body)
        warnings = self._decode(resource, new, options)
        new = resource.strategy.inward(new)
        meta = new["metadata"]
        if "resourceVersion" in meta:
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = generate_name(meta["generateName"], self._random)
        self._check_namespace(resource, namespace, meta.get("name", ""))
        return self._store_new(resource, Key(namespace, meta.get("name", "")), new, options, warnings)

    def replace(
        self, resource: ResourceType, key: Key, body: Any, options: WriteOptions, subresource: str = ""
    ) -> Written:
        """PUT of an object or its status."""
        new = read_object(resource, key.namespace, key.name, body)
        warnings = self._decode(resource, new, options)
        new = resource.strategy.inward(new)
        old = self._storage.get(resource.storage, key)
        if old is None:
            if not resource.create_on_update or subresource:
                raise not_found(resource.named, key.name)
            new["metadata"].pop("resourceVersion", None)
            self._check_namespace(resource, key.namespace, key.name)
            return self._store_new(resource, key, new, options, warnings)
        meta, before = new["metadata"], old["metadata"]
        if meta.get("resourceVersion", "0") == "0" and not resource.unconditional_update:
            cause = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise unprocessable(resource.named, key.name, [cause], by_resource=True)
        if meta.get("uid", before["uid"]) != before["uid"]:
            uids = f"UID in precondition: {meta['uid']}, UID in object meta: {before['uid']}"
            detail = f"Precondition failed: {uids}"
            raise conflict(resource.named, key.name, detail)
        return self._update(
            resource, key, old, new, options=options, subresource=subresource, warnings=warnings
        )

    def patch(
        self,
        resource: ResourceType,
        key: Key,
        kind: str,
        body: Any,
        *,
        options: WriteOptions,
        subresource: str = "",
    ) -> Written:
        """PATCH, by content type."""
        if kind == patches.APPLY:
            return self._apply(resource, key, body, options, subresource)
        stored = self._storage.get(resource.storage, key)
        if stored is None:
            raise not_found(resource.named, key.name)
        shown = resource.strategy.outward(stored)
        if kind == patches.JSON:
            new = patches.json_patch(shown, body)
        elif not isinstance(body, dict):
            raise bad_request("error decoding patch: json: cannot unmarshal array into Go value of type map")
        elif kind == patches.MERGE:
            new = clone(patches.merge(shown, body))
        else:
            new = clone(strategic_merge(shown, body))
        if not isinstance(new, dict):
            raise bad_patch(new, "json: cannot unmarshal into Go value")
        new.setdefault("apiVersion", resource.api_version)
        new.setdefault("kind", resource.kind)
        warnings = self._decode(resource, new, options, patched=True)
        new = resource.strategy.inward(new)
        return self._update(
            resource, key, stored, new, options=options, subresource=subresource, warnings=warnings
        )

    def delete(self, resource: ResourceType, key: Key, options: DeleteOptions) -> tuple[Obj, bool]:
        """DELETE; the object as it was or is now, and whether it is gone."""
        old = self._storage.get(resource.storage, key)
        if old is None:
            raise not_found(resource.named, key.name)
        check_preconditions(old, options, resource.named)
        if resource.storage == NAMESPACES_TABLE:
            return self._terminate_namespace(resource, key, old, options), False
        new = marked(old, options, timestamp(self._clock.now()))
        if options.dry_run:
            return resource.strategy.outward(new or old), new is None
        if new is None:
            self.remove(resource, key)
            return resource.strategy.outward(old), True
        if new != old:
            old = self._put(resource, key, new)
        return resource.strategy.outward(old), False

    def remove(self, resource: ResourceType, key: Key) -> None:
        """Remove an object from storage, whatever holds it."""
        self._committed(resource, self._storage.remove(resource.storage, key), True)

    def store(self, resource: ResourceType, key: Key, obj: Obj) -> None:
        """Store what a controller of the control plane made of an object, and let it go if it can."""
        if can_go(obj):
            self.remove(resource, key)
        else:
            self._put(resource, key, obj)

    def _put(self, resource: ResourceType, key: Key, obj: Obj) -> Obj:
        stored = self._storage.put(resource.storage, key, obj)
        self._committed(resource, stored, False)
        return stored

    def _terminate_namespace(self, resource: ResourceType, key: Key, old: Obj, options: DeleteOptions) -> Obj:
        if is_terminating(old) or options.dry_run:
            return old
        new = clone(old)
        new["metadata"]["deletionTimestamp"] = timestamp(self._clock.now())
        new["status"] = {**(new.get("status") or {}), "phase": "Terminating"}
        return self._put(resource, key, new)

    def _decode(
        self, resource: ResourceType, new: Obj, options: WriteOptions, *, patched: bool = False
    ) -> list[str]:
        merged = clone(new) if patched else None
        try:
            unknown = resource.strategy.decode(new) + decode_metadata(new)
            if unknown and options.validation == "Strict":
                listed = ", ".join(f'unknown field "{path}"' for path in unknown)
                raise DecodeError(f"strict decoding error: {listed}")
        except DecodeError as error:
            if merged is not None:
                raise bad_patch(merged, str(error)) from None
            kind = resource.kind
            raise bad_request(
                f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {error}'
            ) from None
        return [f'unknown field "{path}"' for path in unknown] if options.validation == "Warn" else []

    def _check_namespace(self, resource: ResourceType, namespace: str, name: str) -> None:
        if not resource.namespaced:
            return
        found = self._storage.get(NAMESPACES_TABLE, Key("", namespace))
        if found is None:
            raise ApiError(
                404,
                "NotFound",
                f'namespaces "{namespace}" not found',
                {"name": namespace, "kind": "namespaces"},
            )
        if is_terminating(found):
            raise namespace_terminating(resource.named, name, namespace)

    def _store_new(
        self,
        resource: ResourceType,
        key: Key,
        new: Obj,
        options: WriteOptions,
        warnings: list[str],
        *,
        applied: bool = False,
    ) -> Written:
        meta, now = new["metadata"], timestamp(self._clock.now())
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
            meta.pop(name, None)
        meta["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        meta["creationTimestamp"] = now
        if resource.generations:
            meta["generation"] = 1
        if resource.status:
            new.pop("status", None)
        resource.strategy.prepare(new, None)
        causes, more = resource.strategy.validate(new, None)
        causes = validate_metadata(new, label_name=resource.label_name) + causes
        if causes:
            raise unprocessable(resource.named, meta.get("name", ""), causes, warnings=warnings + more)
        if self._storage.get(resource.storage, key) is not None:
            raise already_exists(resource.named, key.name)
        if not applied:
            manager = Manager(options.manager, "Update")
            note_update(None, new, resource.schema, manager, api_version=resource.api_version, now=now)
        if not options.dry_run:
            new = self._put(resource, key, new)
        return Written(resource.strategy.outward(new), True, warnings + more)

    def _update(
        self,
        resource: ResourceType,
        key: Key,
        old: Obj,
        new: Obj,
        *,
        options: WriteOptions,
        subresource: str,
        warnings: list[str],
        applied: bool = False,
    ) -> Written:
        version = new["metadata"].get("resourceVersion", "0")
        if version not in ("0", old["metadata"]["resourceVersion"]):
            raise conflict(resource.named, key.name)
        new = _restrict(resource, old, new, subresource)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        carry_over(new, old)
        resource.strategy.prepare(new, old)
        causes = validate_metadata_update(new, old) + validate_metadata(new, label_name=resource.label_name)
        more, ratcheted = resource.strategy.validate(new, old)
        warnings = warnings + ratcheted
        if causes or more:
            raise unprocessable(resource.named, key.name, causes + more, warnings=warnings)
        if resource.generations and _spec_changed(new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if not applied:
            manager = Manager(options.manager, "Update", subresource)
            now = timestamp(self._clock.now())
            note_update(old, new, resource.schema, manager, api_version=resource.api_version, now=now)
        if new == old:
            return Written(resource.strategy.outward(old), warnings=warnings)
        if options.dry_run:
            return Written(resource.strategy.outward(new), warnings=warnings)
        if can_go(new):
            self.remove(resource, key)
            return Written(resource.strategy.outward(new), warnings=warnings)
        return Written(resource.strategy.outward(self._put(resource, key, new)), warnings=warnings)

    def _apply(
        self, resource: ResourceType, key: Key, body: Any, options: WriteOptions, subresource: str
    ) -> Written:
        if not isinstance(body, dict) or not body.get("kind") or not body.get("apiVersion"):
            raise bad_request("invalid object type: /, Kind=")
        config = read_object(resource, key.namespace, key.name, body)
        warnings = self._decode(resource, config, options)
        if config["metadata"].get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        config = resource.strategy.inward(config)
        old = self._storage.get(resource.storage, key)
        meta = config["metadata"]
        if old is None:
            if subresource:
                raise not_found(resource.named, key.name)
            if meta.get("uid"):
                given = f"the provided object specified uid {meta['uid']}, and no existing object was found"
                raise conflict(resource.named, key.name, f"uid mismatch: {given}")
            meta.pop("resourceVersion", None)
            self._check_namespace(resource, key.namespace, key.name)
        if subresource:
            config = {
                name: config[name] for name in ("apiVersion", "kind", "metadata", "status") if name in config
            }
            config["metadata"] = {
                name: meta[name] for name in ("name", "namespace", "resourceVersion") if name in meta
            }
        elif resource.status:
            config.pop("status", None)

        def admit(merged: Obj) -> Obj:
            merged.setdefault("apiVersion", resource.api_version)
            if old is not None:
                resource.strategy.prepare(merged, old)
            return merged

        merged = server_side_apply.apply(
            old,
            config,
            resource.schema,
            Manager(options.manager, "Apply", subresource),
            force=options.force,
            now=timestamp(self._clock.now()),
            admit=admit,
        )
        if old is None:
            return self._store_new(resource, key, merged, options, warnings, applied=True)
        return self._update(
            resource,
            key,
            old,
            merged,
            options=options,
            subresource=subresource,
            warnings=warnings,
            applied=True,
        )


def _restrict(resource: ResourceType, old: Obj, new: Obj, subresource: str) -> Obj:
    """Only what the endpoint may change: the status alone, or all but the status (rule Q6)."""
    if subresource:
        restricted: Obj = clone(old)
        restricted.pop("status", None)
        if new.get("status") is not None:
            restricted["status"] = new["status"]
        managed = new["metadata"].get("managedFields")
        if managed is not None:
            restricted["metadata"]["managedFields"] = managed
        return restricted
    if resource.status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = clone(old["status"])
    return new


def _spec_changed(new: Obj, old: Obj) -> bool:
    names = {*new, *old} - {"metadata", "status", "apiVersion", "kind"}
    return any(new.get(name) != old.get(name) for name in names)
