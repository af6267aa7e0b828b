"""Metadata-only answers, Tables, and what the server says about itself (rule Q9, R1, rule D2)."""

from __future__ import annotations

import pytest

from tests.conformance.rawapi import GROUP, PARTIAL, PARTIAL_LIST, TABLE, Api

pytestmark = pytest.mark.asyncio
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


async def test_an_empty_metadata_list_has_null_items(api: Api) -> None:
    answer = await api.call("GET", api.secrets, accept=PARTIAL_LIST)
    assert answer.body["kind"] == "PartialObjectMetadataList"
    assert answer.body["apiVersion"] == "meta.k8s.io/v1"
    assert answer.body["items"] is None
    assert int(answer.version) > 0


async def test_metadata_only_keeps_every_annotation(api: Api) -> None:
    created = await api.new_secret("a", stringData={"k": "v"}, metadata={"annotations": {LAST_APPLIED: "{}"}})
    one = await api.call("GET", f"{api.secrets}/a", accept=PARTIAL)
    assert one.body["kind"] == "PartialObjectMetadata"
    assert one.body.keys() == {"kind", "apiVersion", "metadata"}
    many = await api.call("GET", api.secrets, accept=PARTIAL_LIST)
    (item,) = many.body["items"]
    assert item["metadata"]["annotations"] == {LAST_APPLIED: "{}"}
    assert item["metadata"]["resourceVersion"] == created.version
    assert "data" not in item


async def test_metadata_only_has_pages_and_selectors(api: Api) -> None:
    for name in "abc":
        await api.new_psono(name, metadata={"labels": {"app": "x"}})
    query = {"limit": "2", "labelSelector": "app=x"}
    answer = await api.call("GET", api.psono, accept=PARTIAL_LIST, query=query)
    assert answer.names() == ["a", "b"]
    query["continue"] = answer.body["metadata"]["continue"]
    answer = await api.call("GET", api.psono, accept=PARTIAL_LIST, query=query)
    assert answer.names() == ["c"]


async def test_the_table_of_psonosecrets_has_the_documented_columns(api: Api) -> None:
    await api.new_psono("a")
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "SecretSynchronized",
        "message": "",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }
    status = {"conditions": [condition], "lastSyncTime": "2020-01-01T00:00:00Z"}
    await api.patch(f"{api.psono}/a/status", {"status": status})
    answer = await api.call("GET", api.psono, accept=TABLE)
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [(c["name"], c["type"], c["priority"]) for c in answer.body["columnDefinitions"]]
    assert columns == [
        ("Name", "string", 0),
        ("Ready", "string", 0),
        ("Target", "string", 0),
        ("Last Sync", "date", 0),
        ("Age", "date", 0),
        ("Reason", "string", 1),
        ("Policy", "string", 1),
        ("Interval", "string", 1),
    ]
    (row,) = answer.body["rows"]
    name, ready, target, last, age, *wide = row["cells"]
    assert (name, ready, target, wide) == ("a", "True", "target", ["SecretSynchronized", "Owner", "5m"])
    assert last.endswith(("y", "d"))
    assert age.endswith("s")
    assert row["object"]["kind"] == "PartialObjectMetadata"


async def test_missing_cells_are_null(api: Api) -> None:
    await api.new_psono("a")
    answer = await api.call("GET", f"{api.psono}/a", accept=TABLE)
    cells = answer.body["rows"][0]["cells"]
    assert (cells[1], cells[3]) == (None, None)


async def test_the_table_of_secrets_counts_the_data(api: Api) -> None:
    await api.new_secret("a", stringData={"k": "v", "l": "w"})
    answer = await api.call("GET", api.secrets, accept=TABLE)
    assert [c["name"] for c in answer.body["columnDefinitions"]] == ["Name", "Type", "Data", "Age"]
    assert answer.body["rows"][0]["cells"][:3] == ["a", "Opaque", 2]
    whole = await api.call("GET", api.secrets, accept=TABLE, query={"includeObject": "None"})
    assert whole.body["rows"][0]["object"] is None
    whole = await api.call("GET", api.secrets, accept=TABLE, query={"includeObject": "Object"})
    assert whole.body["rows"][0]["object"]["data"]


async def test_an_unknown_transformation_is_406(api: Api) -> None:
    accept = "application/json;as=Foo;g=meta.k8s.io;v=v1"
    assert (await api.call("GET", api.secrets, accept=accept)).status == 406
    accept += ",application/json"
    assert (await api.call("GET", api.secrets, accept=accept)).status == 200


async def test_discovery_names_the_resource_and_its_status(api: Api) -> None:
    answer = await api.get(GROUP)
    assert answer.body["kind"] == "APIResourceList"
    resources = {each["name"]: each for each in answer.body["resources"]}
    assert resources.keys() == {"psonosecrets", "psonosecrets/status"}
    assert resources["psonosecrets"]["kind"] == "PsonoSecret"
    assert resources["psonosecrets"]["namespaced"] is True
    assert {"get", "list", "watch", "create", "update", "patch", "delete"} <= set(
        resources["psonosecrets"]["verbs"]
    )
    assert set(resources["psonosecrets/status"]["verbs"]) == {"get", "patch", "update"}


async def test_discovery_of_groups_and_version(api: Api) -> None:
    groups = await api.get("/apis")
    assert "secrets.psono.com" in [group["name"] for group in groups.body["groups"]]
    group = await api.get("/apis/secrets.psono.com")
    assert group.body["preferredVersion"] == {
        "groupVersion": "secrets.psono.com/v1alpha1",
        "version": "v1alpha1",
    }
    assert (await api.get("/api")).body["versions"] == ["v1"]
    assert (await api.get("/version")).body["major"] == "1"
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    aggregated = await api.call("GET", "/apis", accept=accept)
    assert aggregated.body["kind"] == "APIGroupDiscoveryList"


async def test_openapi_tells_that_patches_validate_fields(api: Api) -> None:
    index = await api.get("/openapi/v3")
    path = index.body["paths"]["apis/secrets.psono.com/v1alpha1"]["serverRelativeURL"]
    document = (await api.get(path)).body
    item = document["paths"][f"{GROUP}/namespaces/{{namespace}}/psonosecrets/{{name}}"]
    assert "fieldValidation" in [each["name"] for each in item["patch"]["parameters"]]
    kind = {"group": "secrets.psono.com", "version": "v1alpha1", "kind": "PsonoSecret"}
    schemas = document["components"]["schemas"].values()
    assert any(kind in schema.get("x-kubernetes-group-version-kind", []) for schema in schemas)
