"""What can go wrong between us and the API server, safe to log.

    KubeError
    ├── ApiError              the server answered with a Status
    │   ├── BadRequest        400
    │   ├── Unauthorized      401
    │   ├── Forbidden         403  (``namespace_terminating`` tells the special case, rule H6)
    │   ├── NotFound          404
    │   ├── AlreadyExists     409 with reason AlreadyExists (F5)
    │   ├── Conflict          any other 409 (F3)
    │   ├── Gone              410: the version or the continue token expired (A2, B3)
    │   ├── Invalid           422 (a failed JSON patch ``test`` too, F2)
    │   ├── Throttled         429, or 503 with Retry-After (M1)
    │   └── ServerError       5xx
    ├── Unreachable           no answer: refused, reset, TLS, deadline
    └── ProtocolError         an answer that is no Kubernetes API answer
    ConfigurationError        we cannot even ask: no usable server address or credentials (exit code 2)

Messages are built from an allow-list (rule F8): the verb, the path and fields of a body whose kind is
Status; never another body, a header or a query. For resources marked ``sensitive`` the server's own
message is dropped as well, since it may quote whole objects (rule R2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MESSAGE_LIMIT = 512
"""Characters of a server's message that are kept."""


_DAY = 86400


class KubeError(Exception):
    """Base of everything that talking to the Kubernetes API raises."""


class Unreachable(KubeError):
    """No answer came. The request may or may not have been carried out."""


class ProtocolError(KubeError):
    """The answer was no answer of a Kubernetes API server."""


class ConfigurationError(Exception):
    """Where the API server is, or who we are, cannot be determined. One line; says what to do about it."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of ``details.causes``: a reason and the field it is about."""

    reason: str
    field: str


class ApiError(KubeError):
    """The API server refused or failed."""

    def __init__(
        self,
        request: str,
        code: int,
        *,
        reason: str = "",
        message: str = "",
        causes: Sequence[Cause] = (),
        retry_after: float | None = None,
    ) -> None:
        self.request = request
        """Verb and path, for example ``PATCH /api/v1/namespaces/a/secrets/b``."""
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = tuple(causes)
        self.retry_after = retry_after
        """Seconds the server asked us to wait, if it did."""
        detail = f": {message}" if message else ""
        fields = ", ".join(f"{cause.field or '?'} {cause.reason}".strip() for cause in self.causes)
        if fields and not message:
            detail = f": {fields}"
        super().__init__(f"{request} answered {code} {reason}".rstrip() + detail)

    @property
    def namespace_terminating(self) -> bool:
        """Whether the refusal is for a namespace that is being deleted (rule H6)."""
        return any(cause.reason == "NamespaceTerminating" for cause in self.causes)


class BadRequest(ApiError):
    """400."""


class Unauthorized(ApiError):
    """401: the server does not know who we are."""


class Forbidden(ApiError):
    """403: the server knows us and says no."""


class NotFound(ApiError):
    """404: the object or its whole type is absent."""


class AlreadyExists(ApiError):
    """409 on a create whose name is taken."""


class Conflict(ApiError):
    """409: what we read is no longer what is stored."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old."""


class Invalid(ApiError):
    """422."""


class Throttled(ApiError):
    """429, or 503 with Retry-After."""


class ServerError(ApiError):
    """5xx."""


def error_from_status(
    request: str,
    code: int,
    body: object,
    *,
    retry_after: float | None = None,
    sensitive: bool = False,
) -> ApiError:
    """The error for an answer with HTTP status ``code`` and parsed ``body`` (anything at all).

    ``sensitive`` drops the message of the Status, because the server quotes whole objects there.
    """
    status: Mapping[str, Any] = body if isinstance(body, Mapping) and body.get("kind") == "Status" else {}
    reason = _text(status.get("reason"))
    details = status.get("details")
    details = details if isinstance(details, Mapping) else {}
    raw_causes = details.get("causes")
    causes = [
        Cause(_text(cause.get("reason")), _text(cause.get("field")))
        for cause in (raw_causes if isinstance(raw_causes, list) else ())
        if isinstance(cause, Mapping)
    ]
    if retry_after is None and isinstance(details.get("retryAfterSeconds"), int):
        retry_after = float(max(0, min(details["retryAfterSeconds"], _DAY)))  # any number may stand there
    message = "" if sensitive else _text(status.get("message"))
    return _class_for(code, reason, retry_after)(
        request,
        code,
        reason=reason,
        message=message,
        causes=tuple(dict.fromkeys(causes)),  # a server may repeat a cause (rule R6)
        retry_after=retry_after,
    )


_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    410: Gone,
    422: Invalid,
    429: Throttled,
}


def _class_for(code: int, reason: str, retry_after: float | None) -> type[ApiError]:
    if code == 409:
        return AlreadyExists if reason == "AlreadyExists" else Conflict
    if code == 503 and retry_after is not None:
        return Throttled
    return _BY_CODE.get(code) or (ServerError if code >= 500 else ApiError)


def _text(value: object) -> str:
    return value[:MESSAGE_LIMIT] if isinstance(value, str) else ""
