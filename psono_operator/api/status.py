"""What the operator reports: ``PsonoSecret.status`` as frozen models.

Reading is forgiving, because anyone with the right to may have edited a status: what cannot be read counts
as absent, and the next synchronization writes it anew. No field holds a value or a digest of one (rule G7).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from psono_operator.api.conditions import Reason, format_time, parse_time, shortened
from psono_operator.api.spec import CreationPolicy

READY = "Ready"

_CONDITION_TYPE = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
_REASON = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"

Generation = Annotated[int, Field(ge=0)]


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="ignore",
        alias_generator=to_camel,
        hide_input_in_errors=True,
        validate_by_name=True,
        validate_by_alias=True,
    )


class Condition(_Model):
    """One condition, as ``metav1.Condition`` has it."""

    type: Annotated[str, StringConstraints(max_length=316, pattern=_CONDITION_TYPE)]
    status: Literal["True", "False", "Unknown"]
    observed_generation: Generation | None = None
    last_transition_time: str
    reason: Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=_REASON)]
    message: Annotated[str, StringConstraints(max_length=32768)]


class SyncedTarget(_Model):
    """The target as last written or seen equal."""

    name: Annotated[str, StringConstraints(max_length=253)] | None = None
    creation_policy: CreationPolicy | None = None
    resource_version: Annotated[str, StringConstraints(max_length=64)] | None = None


class SyncedEntry(_Model):
    """An entry read at the last good synchronization; ``write_date`` as the server wrote it."""

    secret_id: Annotated[str, StringConstraints(max_length=64)]
    write_date: Annotated[str, StringConstraints(max_length=64)] | None = None


class PsonoSecretStatus(_Model):
    """The whole status."""

    observed_generation: Generation | None = None
    last_sync_time: str | None = None
    target: SyncedTarget | None = None
    entries: Annotated[tuple[SyncedEntry, ...], Field(max_length=1000, strict=False)] = ()
    last_handled_force_sync: Annotated[str, StringConstraints(max_length=1024)] | None = None
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16, strict=False)] = ()

    @property
    def ready(self) -> Condition | None:
        """The Ready condition, if there is one."""
        return next((each for each in self.conditions if each.type == READY), None)

    @property
    def synced_at(self) -> datetime | None:
        """When the last good synchronization was, if that can be told."""
        return parse_time(self.last_sync_time)

    def to_object(self) -> dict[str, Any]:
        """The status as the API has it: camel case, absent fields absent."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)


EMPTY_STATUS = PsonoSecretStatus()


def parse_status(obj: Mapping[str, Any]) -> PsonoSecretStatus:
    """The status of a raw PsonoSecret; an unreadable one counts as empty."""
    try:
        return PsonoSecretStatus.model_validate(obj.get("status") or {})
    except ValidationError:
        return EMPTY_STATUS


def ready_condition(
    previous: Condition | None, *, reason: Reason, message: str, generation: int, now: datetime
) -> Condition:
    """The Ready condition after an attempt; its transition time moves only with its status (rule I2)."""
    status: Literal["True", "False"] = "True" if reason is Reason.SECRET_SYNCHRONIZED else "False"
    same = previous is not None and previous.status == status and parse_time(previous.last_transition_time)
    return Condition(
        type=READY,
        status=status,
        observed_generation=generation,
        last_transition_time=previous.last_transition_time if previous and same else format_time(now),
        reason=reason.value,
        message=shortened(message),
    )
