"""Every knob of the operator: its flag, environment variable, unit, default and limits, in one table.

Pure: values come in as strings from the command line and the environment and leave as one frozen object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
ENVIRONMENT_PREFIX = "PSONO_OPERATOR_"


class SettingsError(Exception):
    """A setting has a value it cannot have; the message names the flag and what it takes."""


def _text(value: str) -> str:
    return value


def _names(value: str) -> tuple[str, ...]:
    if not value:
        return ()
    names = tuple(dict.fromkeys(name for name in (part.strip() for part in value.split(",")) if name))
    if not names or not all(_LABEL.fullmatch(name) for name in names):
        raise ValueError("the name of a namespace, or several with commas between them")
    return names


def _number(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = int(value) if value.strip().isdecimal() else -1
        if not low <= number <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return number

    return parse


def _choice(*allowed: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return value.lower()

    return parse


def _switch(value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise ValueError("true or false")
    return value.lower() == "true"


def _address(value: str) -> tuple[str, int]:
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError("HOST:PORT, for example 0.0.0.0:8080 or [::]:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting from the outside."""

    parse: Callable[[str], Any]
    default: str | None
    metavar: str
    help: str
    repeatable: bool = False

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value; its variable takes true or false."""
        return self.parse is _switch


def _knob(
    parse: Callable[[str], Any], default: str | None, metavar: str, text: str, *, repeatable: bool = False
) -> Any:
    return field(metadata={"knob": Knob(parse, default, metavar, text, repeatable)})


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything ``psono-operator run`` can be told."""

    kubeconfig: str | None = _knob(
        _text,
        None,
        "FILE",
        "kubeconfig to use instead of KUBECONFIG, the pod's own account, or ~/.kube/config",
    )
    context: str | None = _knob(_text, None, "NAME", "context of the kubeconfig")
    watch_namespace: tuple[str, ...] = _knob(
        _names,
        "",
        "NAMESPACE",
        "namespace to watch, instead of all; may be repeated (in the variable: separated by commas)",
        repeatable=True,
    )
    no_leader_elect: bool = _knob(
        _switch,
        "false",
        "",
        "work without a lease; only for a process that runs alone. Without it a lease is taken in a pod, "
        "and elsewhere when --leader-election-namespace is given",
    )
    leader_election_namespace: str | None = _knob(
        _text, None, "NAMESPACE", "namespace of the lease; in a pod, by default the pod's own"
    )
    http_address: tuple[str, int] = _knob(
        _address, "0.0.0.0:8080", "HOST:PORT", "where /healthz, /readyz and /metrics are served"
    )
    workers: int = _knob(_number(1, 256), "32", "N", "PsonoSecrets worked on at the same time")
    log_level: str = _knob(
        _choice("debug", "info", "warning", "error"), "info", "LEVEL", "debug, info, warning or error"
    )
    log_format: str = _knob(_choice("text", "json"), "text", "FORMAT", "text or json")


def knobs() -> dict[str, Knob]:
    """Field name → knob, in the order of ``--help``."""
    return {each.name: each.metadata["knob"] for each in fields(Settings)}


def flag(name: str) -> str:
    """The command line flag of a field."""
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    """The environment variable of a field."""
    return ENVIRONMENT_PREFIX + name.upper()


def resolve(given: Mapping[str, str | list[str] | None], environ: Mapping[str, str]) -> Settings:
    """Settings from flags, then environment variables, then defaults. Raises SettingsError."""
    values: dict[str, Any] = {}
    for name, knob in knobs().items():
        value = given.get(name)
        source = flag(name)
        if value is None:
            value, source = environ.get(variable(name)), variable(name)
        if value is None:
            value = knob.default
        if isinstance(value, list):
            value = ",".join(value) or " "  # a flag that was given empty is a mistake, not "all"
        try:
            values[name] = None if value is None else knob.parse(value)
        except ValueError as error:
            raise SettingsError(f"{source} must be {error}") from None
    return Settings(**values)
