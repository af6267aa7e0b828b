"""Leases: MicroTime stamps and the few checks of ``ValidateLease`` (rule Q12, K7)."""

from __future__ import annotations

import re
from typing import Any

from psono_operator.sandbox.kube.objects import Obj, json_type, parse_timestamp
from psono_operator.sandbox.kube.registry import PlainStrategy
from psono_operator.sandbox.kube.status import Cause, DecodeError, invalid

MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
"""``metav1.MicroTime`` is read with exactly six digits of a second."""


def check_micro_time(value: Any) -> None:
    """DecodeError when ``value`` is neither absent nor a MicroTime."""
    if value is None:
        return
    if not isinstance(value, str) or not MICRO_TIME.fullmatch(value) or parse_timestamp(value) is None:
        raise DecodeError(f'parsing time {value!r} as "2006-01-02T15:04:05.000000Z07:00": cannot parse')


class LeaseStrategy(PlainStrategy):
    """``coordination.k8s.io/v1`` Lease."""

    def decode(self, new: Obj) -> list[str]:
        spec = new.setdefault("spec", {})
        if not isinstance(spec, dict):
            raise DecodeError("json: cannot unmarshal into Go struct field Lease.spec of type v1.LeaseSpec")
        for name in [name for name, value in spec.items() if value is None]:
            del spec[name]
        for name in ("acquireTime", "renewTime"):
            check_micro_time(spec.get(name))
        for name in ("leaseDurationSeconds", "leaseTransitions"):
            if name in spec and json_type(spec[name]) != "integer":
                raise DecodeError(
                    f"json: cannot unmarshal into Go struct field LeaseSpec.spec.{name} of type int32"
                )
        if not isinstance(spec.get("holderIdentity", ""), str):
            raise DecodeError(
                "json: cannot unmarshal into Go struct field LeaseSpec.spec.holderIdentity of type string"
            )
        return []

    def validate(self, new: Obj, old: Obj | None) -> tuple[list[Cause], list[str]]:
        spec, causes = new["spec"], []
        if spec.get("leaseDurationSeconds", 1) <= 0:
            causes.append(
                invalid("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0")
            )
        if spec.get("leaseTransitions", 0) < 0:
            detail = "must be greater than or equal to 0"
            causes.append(invalid("spec.leaseTransitions", spec["leaseTransitions"], detail))
        return causes, []
