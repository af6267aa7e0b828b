"""A decrypted entry, and the one value a selector asks for.

Only text can be selected; there is no array index and no default. An entry's own keys are taken as they
are, a selector for an environment variable without the blanks around it, and the first of equal keys
counts, whatever its value (quirks Q5 to Q9 of the fault log). A key that holds a dot itself cannot be
reached by a path. Pure; errors name the selector and the kind of what was found, never content (rule F8).
It refuses to know how the entry was read and what becomes of the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from psono_operator.psono.errors import DecryptionError, ExtractionError, Found, Stage
from psono_operator.psono.secretbytes import SecretBytes
from psono_operator.psono.strictjson import NotJson, NotUtf8, parse_json

_VARIABLES = "environment_variables_variables"
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    """A variable of an Environment Variables entry, by its key; exact in case."""

    name: str

    def __str__(self) -> str:
        return f"environment variable {self.name.strip()!r}"


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A text in an entry of any type, by its path: names of object members, separated by dots."""

    path: str

    def __str__(self) -> str:
        return f"field {self.path!r}"


Selector = EnvironmentVariable | FieldPath


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """The JSON object inside an entry. Prints nothing of it."""

    _content: Mapping[str, object] = field(repr=False)

    @classmethod
    def parse(cls, plaintext: bytes) -> Entry:
        """The entry in decrypted bytes.

        :raises DecryptionError: they are no UTF-8, no JSON or no object.
        """
        stage = Stage.PLAINTEXT_NOT_OBJECT
        try:
            content = parse_json(plaintext)
        except NotUtf8:
            content, stage = None, Stage.PLAINTEXT_NOT_UTF8
        except NotJson:
            content, stage = None, Stage.PLAINTEXT_NOT_JSON
        if not isinstance(content, dict):
            raise DecryptionError(stage)
        return cls(content)

    def select(self, selector: Selector) -> SecretBytes:
        """The selected text as UTF-8, unchanged, an empty one included.

        :raises ExtractionError: there is no such value, or it is no text.
        """
        if isinstance(selector, EnvironmentVariable):
            value = self._variable(selector)
        else:
            value = self._member(selector.path)
        if isinstance(value, str):
            try:
                return SecretBytes(value.encode("utf-8"))
            except UnicodeEncodeError:
                pass  # raised below, outside: the encoder's error carries the value
        raise ExtractionError(str(selector), _kind(value))

    def _variable(self, selector: EnvironmentVariable) -> object:
        variables = self._content.get(_VARIABLES)
        if not isinstance(variables, list):
            raise ExtractionError(str(selector), Found.NO_ENVIRONMENT_VARIABLES)
        name = selector.name.strip()
        for variable in variables:
            if isinstance(variable, dict) and variable.get("key", _ABSENT) == name:
                return variable.get("value", _ABSENT)
        return _ABSENT

    def _member(self, path: str) -> object:
        value: object = self._content
        for name in path.split("."):
            value = value.get(name, _ABSENT) if isinstance(value, dict) else _ABSENT
        return value


def _kind(value: object) -> Found:
    match value:
        case None:
            return Found.NULL
        case bool():
            return Found.BOOLEAN
        case float():
            return Found.NUMBER
        case str():
            return Found.NOT_UTF8
        case list():
            return Found.LIST
        case dict():
            return Found.OBJECT
    return Found.MISSING
