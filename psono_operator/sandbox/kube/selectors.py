"""Label and field selectors (rule Q10).

Parsing follows apimachinery's ``labels.Parse`` and ``fields.ParseSelector``; a selector is a predicate
over one object. Which fields a type can be selected by is told by the type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from psono_operator.sandbox.kube.objects import Obj, dig, metadata
from psono_operator.sandbox.kube.status import bad_request

Selector = Callable[[Obj], bool]

_SET = re.compile(r"\s*(?P<key>[^\s!=,()]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)\s*(?P<end>,|$)")
_PLAIN = re.compile(
    r"\s*(?:(?P<absent>!)\s*(?P<missing>[^\s!=,()]+)"
    r"|(?P<key>[^\s!=,()]+)\s*(?:(?P<op>==|=|!=)\s*(?P<value>[^\s!=,()]*))?)\s*(?P<end>,|$)"
)


def label_selector(text: str) -> Selector | None:
    """The predicate for a ``labelSelector`` parameter, None when it selects everything; 400 if malformed."""
    tests: list[Callable[[Mapping[str, str]], bool]] = []
    position = 0
    while position < len(text):
        match = _SET.match(text, position) or _PLAIN.match(text, position)
        if match is None:
            raise bad_request(f"unable to parse requirement: {text[position:]!r}")
        tests.append(_label_test(match.groupdict()))
        position = match.end()
        if match["end"] == "," and position >= len(text):
            raise bad_request("found '', expected: identifier after ','")
    if not tests:
        return None
    return lambda obj: all(test(metadata(obj).get("labels") or {}) for test in tests)


def _label_test(parts: Mapping[str, str | None]) -> Callable[[Mapping[str, str]], bool]:
    if parts.get("absent"):
        missing = parts["missing"] or ""
        return lambda labels: missing not in labels
    key = parts["key"] or ""
    operator = parts.get("op")
    if operator in ("in", "notin"):
        values = {value.strip() for value in (parts["values"] or "").split(",")}
        if operator == "in":
            return lambda labels: key in labels and labels[key] in values
        return lambda labels: labels.get(key) not in values
    value = parts.get("value") or ""
    if operator is None:
        return lambda labels: key in labels
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def field_selector(text: str, selectable: Mapping[str, tuple[str, ...]]) -> Selector | None:
    """The predicate for a ``fieldSelector`` parameter; 400 for a field that ``selectable`` does not name."""
    tests: list[Selector] = []
    for term in filter(None, text.split(",")):
        match = re.fullmatch(r"(.*?)(!=|==|=)(.*)", term)
        if match is None:
            raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
        label, operator, value = match.groups()
        if label not in selectable:
            raise bad_request(f"field label not supported: {label}")
        tests.append(_field_test(selectable[label], operator, value))
    return (lambda obj: all(test(obj) for test in tests)) if tests else None


def _field_test(path: tuple[str, ...], operator: str, value: str) -> Selector:
    def matches(obj: Obj) -> bool:
        found = dig(obj, path)
        text = "" if found is None else str(found)
        return (text == value) is (operator != "!=")

    return matches
