"""Secrets, Leases, Events and Namespaces: what the server does to each (rule Q7, Q12, R5, R6, G6, I6)."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.conformance.rawapi import Api, secret

pytestmark = pytest.mark.asyncio


async def test_string_data_is_folded_into_data(api: Api) -> None:
    answer = await api.new_secret("a", stringData={"k": "v"}, data={"k": "eA==", "z": "eg=="})
    assert answer.body["data"] == {"k": "dg==", "z": "eg=="}
    assert "stringData" not in answer.body
    assert answer.body["type"] == "Opaque"


async def test_bad_base64_is_400_on_create_and_put(api: Api) -> None:
    answer = await api.create(api.secrets, secret("a", data={"k": "%%"}))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "illegal base64 data at input byte 0" in answer.message
    await api.new_secret("a")
    assert (await api.put(f"{api.secrets}/a", secret("a", data={"k": "a"}))).status == 400


async def test_values_of_the_wrong_shape_are_refused(api: Api) -> None:
    for body in ({"data": 3}, {"data": {"k": 3}}, {"stringData": {"k": 3}}, {"type": 3}, {"immutable": "x"}):
        assert (await api.create(api.secrets, secret("a", **body))).status == 400, body


@pytest.mark.parametrize("key", ["a/b", "b ad", "", ".", "..", "..a", "k" * 254])
async def test_key_names_are_validated(api: Api, key: str) -> None:
    answer = await api.create(api.secrets, secret("a", data={key: "dg=="}))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes[0]["field"] == f"data[{key}]"


@pytest.mark.parametrize("key", [".dockerconfigjson", "A-b_c.9", "k" * 253, "...a"[2:]])
async def test_good_key_names(api: Api, key: str) -> None:
    await api.new_secret("a", data={key: "dg=="})


async def test_the_type_is_immutable(api: Api) -> None:
    await api.new_secret("a")
    answer = await api.patch(f"{api.secrets}/a", {"type": "other"})
    assert (answer.status, answer.causes[0]["field"]) == (422, "type")
    assert 'type: Invalid value: "other": field is immutable' in answer.message
    assert (await api.put(f"{api.secrets}/a", secret("a", type="other"))).status == 422


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("kubernetes.io/tls", ["tls.crt", "tls.key"]),
        ("kubernetes.io/dockerconfigjson", [".dockerconfigjson"]),
        ("kubernetes.io/dockercfg", [".dockercfg"]),
        ("kubernetes.io/basic-auth", ["username", "password"]),
        ("kubernetes.io/ssh-auth", ["ssh-privatekey"]),
    ],
)
async def test_types_have_required_keys(api: Api, kind: str, keys: list[str]) -> None:
    answer = await api.create(api.secrets, secret("a", type=kind, stringData={"k": "v"}))
    assert answer.status == 422
    assert [cause["field"] for cause in answer.causes] == [f"data[{key}]" for key in keys]
    assert {cause["reason"] for cause in answer.causes} == {"FieldValueRequired"}
    await api.new_secret("a", type=kind, stringData=dict.fromkeys(keys, "{}"))


async def test_a_docker_config_must_be_json_and_is_never_quoted(api: Api) -> None:
    body = secret("a", type="kubernetes.io/dockerconfigjson", stringData={".dockerconfigjson": "canary"})
    answer = await api.create(api.secrets, body)
    assert answer.status == 422
    assert "<secret contents redacted>" in answer.message
    assert "canary" not in answer.message


async def test_a_service_account_token_needs_its_annotation(api: Api) -> None:
    answer = await api.create(api.secrets, secret("a", type="kubernetes.io/service-account-token"))
    assert answer.status == 422
    assert "metadata.annotations[kubernetes.io/service-account.name]" in answer.message


async def test_any_other_type_is_free(api: Api) -> None:
    assert (await api.new_secret("a", type="example.com/free")).body["type"] == "example.com/free"


async def test_an_immutable_secret_keeps_its_data_and_takes_metadata(api: Api) -> None:
    await api.new_secret("a", immutable=True, stringData={"k": "v"})
    for body, field in (
        ({"stringData": {"n": "w"}}, "data"),
        ({"immutable": False}, "immutable"),
        ({"immutable": None}, "immutable"),
    ):
        answer = await api.patch(f"{api.secrets}/a", body)
        assert (answer.status, answer.causes[0]["field"]) == (422, field)
        assert "field is immutable when `immutable` is set" in answer.message
    answer = await api.patch(f"{api.secrets}/a", {"metadata": {"labels": {"a": "b"}}})
    assert answer.status == 200
    assert (await api.delete(f"{api.secrets}/a")).status == 200


async def test_the_size_limit_counts_decoded_values(api: Api) -> None:
    """R5: exactly 1 MiB passes."""

    def of(size: int) -> str:
        return base64.b64encode(b"x" * size).decode()

    answer = await api.create(api.secrets, secret("big", data={"k": of(1048577)}))
    assert (answer.status, answer.causes[0]["reason"]) == (422, "FieldValueTooLong")
    assert answer.message == 'Secret "big" is invalid: data: Too long: may not be more than 1048576 bytes'
    assert (await api.create(api.secrets, secret("fits", data={"k": of(1048576)}))).status == 201
    both = secret("two", data={"k": of(1048570), "l": of(7)})
    assert (await api.create(api.secrets, both)).status == 422


async def test_strict_validation_names_unknown_fields_of_secrets(api: Api) -> None:
    answer = await api.create(api.secrets, secret("a", foo=1), fieldValidation="Strict")
    assert (answer.status, answer.message) == (
        400,
        'Secret in version "v1" cannot be handled as a Secret: strict decoding error: unknown field "foo"',
    )


def lease(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": spec,
    }


async def test_leases_take_micro_times_and_need_versions(api: Api) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"
    moment = "2026-12-01T12:00:00.123456Z"
    created = await api.create(
        path, lease("l", holderIdentity="a", leaseDurationSeconds=15, renewTime=moment, acquireTime=moment)
    )
    assert created.status == 201, created.body
    assert created.body["spec"]["renewTime"] == moment
    body = created.body
    body["spec"]["leaseTransitions"] = 1
    renewed = await api.put(f"{path}/l", body)
    assert renewed.status == 200
    assert (await api.put(f"{path}/l", body)).status == 409, "the loser of a race (K3)"
    assert (await api.put(f"{path}/l", lease("l", holderIdentity="b"))).status == 422
    assert (await api.create(path, lease("l"))).reason == "AlreadyExists"
    assert (await api.create(path, lease("m", renewTime="yesterday"))).status == 400
    answer = await api.create(path, lease("m", leaseDurationSeconds=0))
    assert (answer.status, answer.causes[0]["field"]) == (422, "spec.leaseDurationSeconds")


def event(api: Api, name: str, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": "2026-12-01T12:00:00.000000Z",
        "action": "Sync",
        "reason": "SecretSynchronized",
        "type": "Normal",
        "note": "Secret target was created",
        "regarding": {
            "apiVersion": "secrets.psono.com/v1alpha1",
            "kind": "PsonoSecret",
            "namespace": api.namespace,
            "name": "a",
            "uid": "some",
        },
        "reportingController": "psono-kubernetes-operator",
        "reportingInstance": "pod",
        **fields,
    }


async def test_an_event_of_the_new_api_is_seen_in_the_old_one(api: Api) -> None:
    """What kubectl describe relies on."""
    path = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"
    answer = await api.create(path, event(api, "e"))
    assert answer.status == 201, answer.body
    assert answer.body["note"] == "Secret target was created"
    old = (await api.get(f"/api/v1/namespaces/{api.namespace}/events/e")).body
    assert (old["firstTimestamp"], old["lastTimestamp"]) == (None, None)
    assert (old["apiVersion"], old["message"]) == ("v1", "Secret target was created")
    assert old["involvedObject"]["name"] == "a"
    assert old["reportingComponent"] == "psono-kubernetes-operator"
    query = "involvedObject.name=a,involvedObject.kind=PsonoSecret,involvedObject.uid=some"
    found = await api.get(f"/api/v1/namespaces/{api.namespace}/events", fieldSelector=query)
    assert found.names() == ["e"]


async def test_a_series_is_patched_into_an_event(api: Api) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"
    await api.create(path, event(api, "e"))
    series = {"count": 2, "lastObservedTime": "2026-12-01T12:01:00.000000Z"}
    answer = await api.patch(f"{path}/e", {"series": series})
    assert (answer.status, answer.body["series"]) == (200, series)
    answer = await api.patch(f"{path}/e", {"note": "another text"})
    assert answer.status == 422


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"eventTime": None}, "eventTime"),
        ({"reportingController": ""}, "reportingController"),
        ({"reportingInstance": ""}, "reportingInstance"),
        ({"action": ""}, "action"),
        ({"reason": ""}, "reason"),
        ({"type": "Odd"}, "type"),
        ({"note": "x" * 1025}, "message"),
    ],
)
async def test_the_new_event_api_is_strict(api: Api, fields: dict[str, Any], field: str) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"
    answer = await api.create(path, event(api, "e", **fields))
    assert answer.status == 422, answer.body
    assert field in {cause["field"] for cause in answer.causes}


async def test_an_event_must_be_in_the_namespace_of_its_object(api: Api) -> None:
    """With an eventTime the server only looks at events about objects of no namespace."""
    path = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"
    body = event(api, "e")
    del body["regarding"]["namespace"]
    assert (await api.create(path, body)).status == 422
    old = {
        "metadata": {"name": "f"},
        "involvedObject": {"namespace": "elsewhere", "kind": "PsonoSecret", "name": "a"},
    }
    path = f"/api/v1/namespaces/{api.namespace}/events"
    answer = await api.create(path, old)
    assert (answer.status, answer.causes[0]["field"]) == (422, "involvedObject.namespace")


async def test_a_namespace_is_labelled_with_its_name_and_active(api: Api) -> None:
    answer = await api.get(f"/api/v1/namespaces/{api.namespace}")
    assert answer.body["metadata"]["labels"]["kubernetes.io/metadata.name"] == api.namespace
    assert answer.body["status"] == {"phase": "Active"}
    assert (await api.create("/api/v1/namespaces", {"metadata": {"name": "dot.ted"}})).status == 422


async def test_configmaps_hold_text(api: Api) -> None:
    path = f"/api/v1/namespaces/{api.namespace}/configmaps"
    answer = await api.create(path, {"metadata": {"name": "c"}, "data": {"k": "v"}})
    assert (answer.status, answer.body["data"]) == (201, {"k": "v"})
    assert (await api.create(path, {"metadata": {"name": "d"}, "data": {"k": 1}})).status == 400
    assert (await api.create(path, {"metadata": {"name": "d"}, "data": {"a/b": "v"}})).status == 422
