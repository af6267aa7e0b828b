"""Get and list: snapshots, pages, versions, selectors (rule Q2, Q10, A1, A2).

A continued list is answered from the state of its first page, rebuilt out of history, so that pages never
mix snapshots. A token whose state was compacted, or that was expired on command, is 410.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from psono_operator.sandbox.kube.objects import Obj
from psono_operator.sandbox.kube.registry import ResourceType
from psono_operator.sandbox.kube.selectors import Selector, field_selector, label_selector
from psono_operator.sandbox.kube.status import (
    ApiError,
    bad_options,
    bad_request,
    expired,
    forbidden_field,
    not_found,
    version_too_large,
)
from psono_operator.sandbox.kube.storage import CompactedError, Key, Storage

_TOKEN_VERSION = "meta.k8s.io/v1"
_TOKEN_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list"
    " without the continue parameter, or use the continue token in this response to retrieve the remainder of"
    " the results. Continuing with the provided token results in an inconsistent list. The current list may"
    " have changed since the last request."
)
_LIST_EXPIRED = "The resourceVersion for the provided list is too old."


@dataclass(frozen=True, slots=True)
class Scope:
    """What a list or watch is about: a namespace or all of them, and what the selectors leave."""

    resource: ResourceType
    namespace: str | None
    selector: Selector | None
    selective: bool = False

    @classmethod
    def read(cls, resource: ResourceType, namespace: str | None, query: Mapping[str, str]) -> Scope:
        """From a query; 400 for selectors that cannot be used."""
        labels = label_selector(query.get("labelSelector", ""))
        fields = field_selector(query.get("fieldSelector", ""), resource.fields)
        tests = [test for test in (labels, fields) if test is not None]
        if not tests:
            return cls(resource, namespace, None)
        return cls(resource, namespace, lambda obj: all(test(obj) for test in tests), True)

    def covers(self, key: Key, obj: Obj) -> bool:
        """Whether an object belongs to it."""
        if self.namespace is not None and key.namespace != self.namespace:
            return False
        return self.selector is None or self.selector(obj)


@dataclass(slots=True)
class Page:
    """A page of a list; ``remaining`` is None where the server does not say."""

    items: list[Obj]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None
    keys: list[Key] = field(default_factory=list)


@dataclass(slots=True)
class Reader:
    """All reads from ``storage`` but watches. Tokens of an earlier ``epoch`` are expired."""

    storage: Storage
    epoch: int = 0

    def get(self, resource: ResourceType, key: Key) -> Obj:
        """One object; 404."""
        found = self.storage.get(resource.storage, key)
        if found is None:
            raise not_found(resource.named, key.name)
        return resource.strategy.outward(found)

    def expire_continue_tokens(self) -> None:
        """Make every continue token handed out so far answer 410."""
        self.epoch += 1

    def list(self, scope: Scope, query: Mapping[str, str]) -> Page:
        """A page. The rules of resourceVersion, match, limit and continue are those of the API."""
        limit = number(query, "limit") or 0
        token = query.get("continue", "")
        version = query.get("resourceVersion", "")
        revision, start = self.storage.revision, None
        if token:
            if version not in ("", "0"):
                raise bad_request("specifying resource version is not allowed when using continue")
            revision, start = self._read_token(token)
        elif version:
            revision = self._revision(version, query.get("resourceVersionMatch", ""), limit)
            if version == "0":
                limit = 0
        rows = self._rows(scope.resource, revision)
        keys = sorted(key for key, obj in rows.items() if scope.covers(key, obj))
        if start is not None:
            keys = [key for key in keys if key >= start]
        page = keys[:limit] if limit > 0 else keys
        items = [scope.resource.strategy.outward(rows[key]) for key in page]
        if len(page) == len(keys):
            return Page(items, str(revision), keys=page)
        rest = None if scope.selective else len(keys) - len(page)
        return Page(items, str(revision), self._token(revision, keys[len(page)]), rest, keys=page)

    def _rows(self, resource: ResourceType, revision: int) -> Mapping[Key, Obj]:
        if revision == self.storage.revision:
            return self.storage.objects(resource.storage)
        try:
            return self.storage.at(resource.storage, revision)
        except CompactedError:
            raise expired(_LIST_EXPIRED) from None

    def _revision(self, version: str, match: str, limit: int) -> int:
        asked = parse_version(version)
        if match not in ("", "Exact", "NotOlderThan"):
            detail = f'unsupported resourceVersionMatch "{match}"'
            raise bad_options("ListOptions", forbidden_field("resourceVersionMatch", detail))
        if asked > self.storage.revision:
            raise version_too_large(asked, self.storage.revision)
        exact = match == "Exact" or (not match and limit > 0 and asked > 0)
        return asked if exact else self.storage.revision

    def _token(self, revision: int, start: Key) -> str:
        place = f"{start.namespace}/{start.name}"
        text = json.dumps({"v": _TOKEN_VERSION, "rv": revision, "start": place, "epoch": self.epoch})
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def _read_token(self, token: str) -> tuple[int, Key]:
        try:
            parsed = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            if parsed["v"] != _TOKEN_VERSION:
                raise ValueError
            namespace, _, name = parsed["start"].partition("/")
            revision, epoch = int(parsed["rv"]), parsed["epoch"]
        except (binascii.Error, ValueError, KeyError, TypeError, AttributeError):
            raise bad_request("invalid continue token: continue key is not valid") from None
        if revision < self.storage.compacted or epoch != self.epoch:
            fresh = self._token(self.storage.revision, Key(namespace, name))
            raise expired(_TOKEN_EXPIRED, **{"continue": fresh})
        return revision, Key(namespace, name)


def number(query: Mapping[str, str], name: str) -> int | None:
    """An integer parameter; 400 when it is none, None when it is absent."""
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def parse_version(text: str, *, watch: bool = False) -> int:
    """A resourceVersion parameter; a list answers 400 to text that is none, a watch 500."""
    if text.isascii() and text.isdigit():
        return int(text)
    detail = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
    if watch:
        raise ApiError(500, "", detail)
    raise bad_request(f"invalid resource version: {detail}")
