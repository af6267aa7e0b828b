"""The models and the CustomResourceDefinition say the same, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel

from psono_operator.api import names
from psono_operator.api.conditions import Reason
from psono_operator.api.crd import crd_text
from psono_operator.api.spec import PsonoSecretSpec
from psono_operator.api.status import PsonoSecretStatus
from tests.controlplane.cluster import ROOT

CRD = yaml.safe_load(crd_text())
VERSION = CRD["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]["properties"]
COMPARED = (
    "type",
    "default",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minimum",
    "required",
)


def flattened(model: type[BaseModel]) -> Any:
    """The model's JSON schema in the CRD's dialect: no references, no null."""
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs", {})

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(each) for each in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return walk(definitions[node["$ref"].rsplit("/", 1)[1]])
        if "anyOf" in node:
            (real,) = [each for each in node["anyOf"] if each != {"type": "null"}]
            return walk({**real, **{k: v for k, v in node.items() if k not in {"anyOf", "default"}}})
        return {name: walk(value) for name, value in node.items()}

    return walk(schema)


def differences(path: str, crd: Any, model: Any) -> Iterator[str]:
    for word in COMPARED:
        left, right = crd.get(word), model.get(word)
        if word == "required":
            left, right = sorted(left or []), sorted(right or [])
        if word == "default" and right == []:
            right = None  # an absent list is empty
        if left != right:
            yield f"{path}: {word} is {left!r} in the CRD and {right!r} in the models"
    crd_fields, model_fields = crd.get("properties", {}), model.get("properties", {})
    if set(crd_fields) != set(model_fields):
        yield f"{path}: fields differ: {sorted(set(crd_fields) ^ set(model_fields))}"
    for name in set(crd_fields) & set(model_fields):
        yield from differences(f"{path}.{name}", crd_fields[name], model_fields[name])
    if "items" in crd or "items" in model:
        yield from differences(f"{path}[]", crd.get("items", {}), model.get("items", {}))


def test_spec_agrees() -> None:
    assert list(differences("spec", SCHEMA["spec"], flattened(PsonoSecretSpec))) == []


def test_status_agrees() -> None:
    assert list(differences("status", SCHEMA["status"], flattened(PsonoSecretStatus))) == []


def test_names_agree() -> None:
    spec = CRD["spec"]
    assert CRD["metadata"]["name"] == names.CRD_NAME
    assert (spec["group"], spec["names"]["kind"], spec["names"]["plural"]) == (
        names.GROUP,
        names.KIND,
        names.PLURAL,
    )
    assert VERSION["name"] == names.VERSION
    assert VERSION["subresources"] == {"status": {}}


def test_the_documented_columns_are_printed() -> None:
    shown = [column["name"] for column in VERSION["additionalPrinterColumns"] if not column.get("priority")]
    assert shown == ["Ready", "Target", "Last Sync", "Age"]


def test_the_documented_reasons_exist() -> None:
    """Every reason of the product's troubleshooting table."""
    documented = {
        "InvalidRefreshInterval", "InvalidConfiguration", "AuthenticationSecretError", "ClientConfigurationError",
        "RemoteReadFailed", "ValueExtractionFailed", "TargetUpdateFailed", "PreviousTargetCleanupFailed",
        "SecretSynchronized",
    }  # fmt: skip
    assert documented | {"InternalError"} == {reason.value for reason in Reason}


def test_the_crd_is_the_charts_file_and_small_enough_to_apply() -> None:
    """K1: client-side apply stores the object in an annotation of at most 262 144 bytes."""
    text = (ROOT / "chart" / "crds" / "psonosecrets.secrets.psono.com.yaml").read_text()
    assert crd_text() == text
    assert len(text) < 200_000
