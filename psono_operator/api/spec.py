"""What a user asks for: ``PsonoSecret.spec`` as frozen models.

The rules are those of the CustomResourceDefinition, applied a second time, because an object may be older
than the rules (an API server does not judge stored objects again). A test compares both field by field
and runs one table of cases through both.

Messages name the field and the rule and never repeat what was entered, since people do paste secrets into
the wrong field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from psono_operator.api.duration import parse_duration

MINIMUM_INTERVAL = 30.0
"""Seconds; the documented minimum of ``refreshInterval``."""

_DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_DATA_KEY = r"^[-._a-zA-Z0-9]+$"
_SECRET_ID = r"^[^\s/?#]+$"
_NOT_BLANK = r"\S"
_FIELD_PATH = r"^[^.]+(\.[^.]+)*$"
_DURATION = r"^\+?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+$"

ObjectName = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=_DNS_SUBDOMAIN)]
DataKey = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=_DATA_KEY)]
CreationPolicy = Literal["Owner", "Merge"]


class InvalidSpec(Exception):
    """The spec breaks rules; ``findings`` are (path, rule) pairs, the message is fit for a condition."""

    def __init__(self, findings: Sequence[tuple[str, str]]) -> None:
        self.findings = tuple(findings)
        shown = [f"{path} {rule}" for path, rule in self.findings[:5]]
        if len(self.findings) > len(shown):
            shown.append(f"and {len(self.findings) - len(shown)} more")
        super().__init__("; ".join(shown))

    @property
    def only_interval(self) -> bool:
        """Whether nothing but the refresh interval is wrong."""
        return all(path == "spec.refreshInterval" for path, _ in self.findings)


class _Model(BaseModel):
    # Unknown fields are ignored: the API server prunes them, and a newer CRD may know more than we do.
    model_config = ConfigDict(
        frozen=True, strict=True, extra="ignore", alias_generator=to_camel, hide_input_in_errors=True
    )


class SecretRef(_Model):
    """The authentication Secret and the names of its keys."""

    name: ObjectName
    server_url_key: DataKey = "serverUrl"
    api_key_id_key: DataKey = "apiKeyId"
    api_secret_key_key: DataKey = "apiSecretKey"
    ca_bundle_key: DataKey | None = None


class Authentication(_Model):
    """Where the credentials are."""

    secret_ref: SecretRef


class Target(_Model):
    """The Secret to write."""

    name: ObjectName
    creation_policy: CreationPolicy = "Owner"
    type: Annotated[str, StringConstraints(min_length=1, max_length=317)] = "Opaque"

    @model_validator(mode="after")
    def _supported_type(self) -> Target:
        if self.type == "kubernetes.io/service-account-token":
            raise _broken(
                "type", "is a Secret type that needs annotations or another controller, not supported"
            )
        return self


class RemoteRef(_Model):
    """One value of one Psono entry."""

    secret_id: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=_SECRET_ID)]
    environment_variable: (
        Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=_NOT_BLANK)] | None
    ) = None
    field: Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=_FIELD_PATH)] | None = None

    @model_validator(mode="after")
    def _one_selector(self) -> RemoteRef:
        if (self.field is None) == (self.environment_variable is None):
            raise _broken("", "must have exactly one of field and environmentVariable")
        return self


class Mapped(_Model):
    """One key of the target and where its value comes from."""

    secret_key: DataKey
    remote_ref: RemoteRef

    @model_validator(mode="after")
    def _writable_key(self) -> Mapped:
        if self.secret_key == "." or self.secret_key.startswith(".."):
            raise _broken("secretKey", "must not be '.' and must not start with '..'")
        return self


class PsonoSecretSpec(_Model):
    """The whole spec."""

    refresh_interval: Annotated[str, StringConstraints(min_length=2, max_length=64, pattern=_DURATION)] = "5m"
    authentication: Authentication
    target: Target
    data: Annotated[tuple[Mapped, ...], Field(min_length=1, max_length=1000, strict=False)]

    @model_validator(mode="after")
    def _whole(self) -> PsonoSecretSpec:
        try:
            long_enough = parse_duration(self.refresh_interval) >= MINIMUM_INTERVAL
        except ValueError:
            long_enough = False
        if not long_enough:
            raise _broken("refreshInterval", _INTERVAL_RULE)
        if self.target.name == self.authentication.secret_ref.name:
            raise _broken("target.name", "must differ from spec.authentication.secretRef.name")
        seen: set[str] = set()
        for index, mapped in enumerate(self.data):
            if mapped.secret_key in seen:
                raise _broken(f"data[{index}].secretKey", "must be unique: an earlier mapping has the same")
            seen.add(mapped.secret_key)
        return self

    @property
    def interval(self) -> float:
        """Seconds between two refreshes."""
        return parse_duration(self.refresh_interval)

    @property
    def secret_ids(self) -> tuple[str, ...]:
        """The distinct entries to read, in the order of their first mapping."""
        return tuple(dict.fromkeys(mapped.remote_ref.secret_id for mapped in self.data))


_PATTERN_RULES = {
    _DNS_SUBDOMAIN: "must be a name of lower-case letters, digits, '-' and '.', as Kubernetes names are",
    _DATA_KEY: "must consist of letters, digits, '-', '_' and '.'",
    _SECRET_ID: "must not contain blanks, '/', '?' or '#'",
    _FIELD_PATH: "must be a path of names separated by single dots",
    _NOT_BLANK: "must not be blank",
}
_INTERVAL_RULE = "must be a Go duration such as 30s, 5m or 1h, and at least 30s"


def parse_spec(obj: Mapping[str, Any]) -> PsonoSecretSpec:
    """The spec of a raw PsonoSecret. Raises InvalidSpec."""
    try:
        return PsonoSecretSpec.model_validate(obj.get("spec"))
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=True, include_input=False)
    findings = {_finding(each) for each in found}
    # pydantic counts only the valid items: a list whose only item is wrong is not also too short.
    inside_data = any(path.startswith("spec.data[") for path, _ in findings)
    raise InvalidSpec(sorted(each for each in findings if not (inside_data and each[0] == "spec.data")))


def _broken(path: str, rule: str) -> PydanticCustomError:
    return PydanticCustomError("rule", "{rule}", {"path": path, "rule": rule})


def _finding(error: ErrorDetails) -> tuple[str, str]:
    path = "spec"
    for part in error["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    context = error.get("ctx") or {}
    if error["type"] == "rule":
        return f"{path}.{context['path']}" if context["path"] else path, str(context["rule"])
    if path == "spec.refreshInterval":
        return path, _INTERVAL_RULE
    return path, _rule(error["type"], context, error["msg"])


def _rule(kind: str, context: Mapping[str, Any], message: str) -> str:
    match kind:
        case "missing":
            return "is required"
        case "string_type":
            return "must be a string"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "must be an object"
        case "tuple_type":
            return "must be a list"
        case "too_short":
            return f"must have at least {context['min_length']} item"
        case "too_long":
            return f"must have at most {context['max_length']} items"
        case "string_too_short":
            return "must not be empty"
        case "string_too_long":
            return f"must have at most {context['max_length']} characters"
        case "string_pattern_mismatch":
            return _PATTERN_RULES.get(context["pattern"], f"must match {context['pattern']}")
        case "literal_error":
            return f"must be one of {context['expected']}"
    return message
