"""The errors of the API and the Status bodies they travel in (rule Q12).

One exception, :class:`ApiError`, carries the HTTP code and the body. Message forms are those of a
Kubernetes 1.36 API server. An ApiError's ``str`` names only the code and the reason, so that a traceback
shows no object (bodies about Secrets can quote values, as those of a real server do, rule F8).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psono_operator.sandbox.kube.objects import Obj, compact_json

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass(frozen=True, slots=True)
class Cause:
    """One field error: its machine-readable reason, its text and the field it is about."""

    reason: str
    message: str
    field: str

    def line(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def _quoted(value: Any) -> str:
    """A value as ``%q`` writes it when it is text, as JSON when it is not."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else compact_json(value)


def invalid(field: str, value: Any, detail: str) -> Cause:
    """``field.Invalid`` of apimachinery."""
    return Cause("FieldValueInvalid", f"Invalid value: {_quoted(value)}: {detail}", field)


def required(field: str, detail: str = "") -> Cause:
    """``field.Required``."""
    return Cause("FieldValueRequired", f"Required value: {detail}" if detail else "Required value", field)


def forbidden_field(field: str, detail: str) -> Cause:
    """``field.Forbidden``."""
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def unsupported(field: str, value: Any, supported: Sequence[Any]) -> Cause:
    """``field.NotSupported``."""
    choices = ", ".join(compact_json(each) for each in supported)
    message = f"Unsupported value: {compact_json(value)}: supported values: {choices}"
    return Cause("FieldValueNotSupported", message, field)


def duplicate(field: str, value: Any) -> Cause:
    """``field.Duplicate``."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {compact_json(value)}", field)


def too_long(field: str, limit: int) -> Cause:
    """``field.TooLong``; the value is never quoted."""
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)


def too_many(field: str, count: int, limit: int) -> Cause:
    """``field.TooMany``."""
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {limit} items", field)


def type_invalid(field: str, value: Any, detail: str) -> Cause:
    """``field.TypeInvalid``."""
    return Cause("FieldValueTypeInvalid", f"Invalid value: {compact_json(value)}: {detail}", field)


def failure(
    code: int, reason: str, message: str, details: Mapping[str, Any] | None = None, **metadata: Any
) -> Obj:
    """A Status body of a failed request."""
    body: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure"}
    body["message"] = message
    if reason:
        body["reason"] = reason
    if details is not None:
        body["details"] = dict(details)
    body["code"] = code
    return body


class ApiError(Exception):
    """A request that ends with a Status body."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        warnings: Sequence[str] = (),
        **metadata: Any,
    ) -> None:
        super().__init__(f"{code} {reason}")
        self.code = code
        self.reason = reason
        self.body = failure(code, reason, message, details, **metadata)
        self.warnings = tuple(warnings)


class DecodeError(Exception):
    """A body that cannot become an object of its type; becomes 400 on create and PUT, 422 on PATCH (R2)."""


@dataclass(frozen=True, slots=True)
class Named:
    """What an error message calls the thing it is about."""

    group: str
    plural: str
    kind: str

    @property
    def resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def details(self, name: str, kind: str | None = None, **more: Any) -> Obj:
        details: Obj = {"name": name} if name else {}
        if self.group:
            details["group"] = self.group
        details["kind"] = kind or self.plural
        return details | more


def not_found(what: Named, name: str) -> ApiError:
    """404 for an object."""
    return ApiError(404, "NotFound", f'{what.resource} "{name}" not found', what.details(name))


def no_such_resource() -> ApiError:
    """404 for a path of the legacy group that no resource answers."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(what: Named, name: str) -> ApiError:
    """409 on create."""
    return ApiError(409, "AlreadyExists", f'{what.resource} "{name}" already exists', what.details(name))


def conflict(what: Named, name: str, detail: str = MODIFIED, *, by_kind: bool = False) -> ApiError:
    """409: a stale resourceVersion or a failed precondition (which names the kind: ``by_kind``)."""
    word = what.qualified_kind if by_kind else what.resource
    details = what.details(name, what.kind if by_kind else None)
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {word} "{name}": {detail}', details)


def unprocessable(
    what: Named,
    name: str,
    causes: Sequence[Cause],
    *,
    by_resource: bool = False,
    warnings: Sequence[str] = (),
) -> ApiError:
    """422 with causes; the message lists them all."""
    lines = [cause.line() for cause in dict.fromkeys(causes)]
    text = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    word = what.resource if by_resource else what.qualified_kind
    listed = [{"reason": each.reason, "message": each.message, "field": each.field} for each in causes]
    details = what.details(name, what.plural if by_resource else what.kind, causes=listed)
    message = f'{word} "{name}" is invalid: {text}'
    return ApiError(422, "Invalid", message, details, warnings=warnings)


def bad_patch(patched: Any, detail: str) -> ApiError:
    """422 for a patch whose result cannot be decoded. It quotes the whole merged object (R2)."""
    cause = invalid("patch", compact_json(patched), detail)
    listed = {"causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field}]}
    return ApiError(422, "Invalid", f' "" is invalid: {cause.line()}', listed)


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message)


def bad_options(kind: str, cause: Cause) -> ApiError:
    """422 about query parameters or DeleteOptions."""
    return unprocessable(Named("meta.k8s.io", kind.lower(), kind), "", [cause])


def method_not_allowed() -> ApiError:
    """405."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def unauthorized() -> ApiError:
    """401."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def namespace_terminating(what: Named, name: str, namespace: str) -> ApiError:
    """403 with the cause by which a controller recognises the end of a namespace (rule H6)."""
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    message = (
        f'{what.resource} "{name}" is forbidden: unable to create new content in namespace {namespace}'
        " because it is being terminated"
    )
    return ApiError(403, "Forbidden", message, what.details(name, causes=[cause]))


def expired(message: str, **metadata: Any) -> ApiError:
    """410, reason Expired."""
    return ApiError(410, "Expired", message, None, **metadata)


def version_too_large(asked: int, current: int) -> ApiError:
    """504: a resourceVersion from the future (rule B4)."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def success(what: Named, name: str, uid: str) -> Obj:
    """The answer to a DELETE that removed the object at once."""
    details = what.details(name, uid=uid)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
