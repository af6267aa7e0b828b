"""Lists: order, snapshots, pages, versions, selectors (rule Q2, Q10, rules A1 to A3)."""

from __future__ import annotations

import pytest

from tests.conformance.rawapi import GROUP, Api

pytestmark = pytest.mark.asyncio


async def test_an_empty_list_is_a_list_with_a_version(api: Api) -> None:
    answer = await api.get(api.secrets)
    assert answer.body["kind"] == "SecretList"
    assert answer.body["items"] == []
    assert int(answer.version) > 0
    assert (await api.get(api.psono)).body["kind"] == "PsonoSecretList"


async def test_items_are_sorted_and_only_custom_ones_name_their_kind(api: Api) -> None:
    for name in ("b", "c", "a"):
        await api.new_secret(name)
        await api.new_psono(name)
    secrets, resources = await api.get(api.secrets), await api.get(api.psono)
    assert secrets.names() == resources.names() == ["a", "b", "c"]
    assert "kind" not in secrets.body["items"][0]
    assert resources.body["items"][0]["kind"] == "PsonoSecret"


async def test_a_list_of_all_namespaces_contains_ours(api: Api) -> None:
    await api.new_psono("a")
    answer = await api.get(f"{GROUP}/psonosecrets")
    assert (api.namespace, "a") in [
        (item["metadata"]["namespace"], item["metadata"]["name"]) for item in answer.body["items"]
    ]


async def test_the_lists_version_is_not_older_than_its_newest_item(api: Api) -> None:
    created = await api.new_psono("a")
    await api.new_secret("unrelated")
    assert int((await api.get(api.psono)).version) >= int(created.version)


async def test_pages_show_one_snapshot(api: Api) -> None:
    for name in "abcde":
        await api.new_secret(name)
    first = await api.get(api.secrets, limit="2")
    assert first.names() == ["a", "b"]
    assert first.body["metadata"]["remainingItemCount"] == 3
    await api.delete(f"{api.secrets}/d")
    await api.new_secret("bb")
    token = first.body["metadata"]["continue"]
    second = await api.get(api.secrets, limit="2", **{"continue": token})
    assert second.names() == ["c", "d"], "as it was when the first page was read"
    assert second.version == first.version
    last = await api.get(api.secrets, limit="2", **{"continue": second.body["metadata"]["continue"]})
    assert last.names() == ["e"]
    assert not last.body["metadata"].get("continue")
    assert "remainingItemCount" not in last.body["metadata"]


async def test_selective_pages_do_not_count_the_rest(api: Api) -> None:
    for name in "abc":
        await api.new_secret(name, metadata={"labels": {"app": "x"}})
    answer = await api.get(api.secrets, limit="1", labelSelector="app=x")
    assert answer.body["metadata"]["continue"]
    assert "remainingItemCount" not in answer.body["metadata"]


async def test_version_0_ignores_the_limit(api: Api) -> None:
    for name in "abc":
        await api.new_secret(name)

    async def all_at_once() -> bool:
        answer = await api.get(api.secrets, limit="1", resourceVersion="0")
        return answer.names() == ["a", "b", "c"]

    await api.eventually(all_at_once)


async def test_an_exact_version_is_an_old_state(api: Api) -> None:
    before = await api.new_secret("a")
    await api.new_secret("b")
    query = {"resourceVersion": before.version, "resourceVersionMatch": "Exact"}
    answer = await api.get(api.secrets, **query)
    assert (answer.names(), answer.version) == (["a"], before.version)


async def test_malformed_list_parameters(api: Api) -> None:
    for query in (
        {"limit": "x"},
        {"continue": "zz", "limit": "1"},
        {"resourceVersion": "zz"},
        {"labelSelector": "a,,b"},
        {"labelSelector": "a in x"},
        {"fieldSelector": "spec.nothing=1"},
    ):
        answer = await api.get(api.psono, **query)
        assert (answer.status, answer.reason) == (400, "BadRequest"), query


async def test_a_version_from_the_future_is_a_timeout_with_its_cause(api: Api) -> None:
    """Rule B4."""
    answer = await api.get(api.psono, resourceVersion="999999999")
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.causes == [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=x", ["a"]),
        ("app==x", ["a"]),
        ("app!=x", ["b", "c"]),
        ("app in (x, y)", ["a", "b"]),
        ("app notin (x)", ["b", "c"]),
        ("app", ["a", "b"]),
        ("!app", ["c"]),
        ("app,tier=db", ["b"]),
        ("tier=", []),
    ],
)
async def test_label_selectors(api: Api, selector: str, names: list[str]) -> None:
    await api.new_secret("a", metadata={"labels": {"app": "x"}})
    await api.new_secret("b", metadata={"labels": {"app": "y", "tier": "db"}})
    await api.new_secret("c")
    assert (await api.get(api.secrets, labelSelector=selector)).names() == names


async def test_field_selectors(api: Api) -> None:
    await api.new_secret("a")
    await api.new_secret("b", type="example.com/b")
    await api.new_psono("a")
    await api.new_psono("b", spec={"target": {"name": "other"}})
    assert (await api.get(api.secrets, fieldSelector="metadata.name=b")).names() == ["b"]
    assert (await api.get(api.secrets, fieldSelector="metadata.name!=b")).names() == ["a"]
    assert (await api.get(api.secrets, fieldSelector="type=example.com/b")).names() == ["b"]
    query = f"metadata.namespace={api.namespace}"
    assert (await api.get("/api/v1/secrets", fieldSelector=query)).names() == ["a", "b"]
    assert (await api.get(api.psono, fieldSelector="spec.target.name=other")).names() == ["b"]
    query = "spec.authentication.secretRef.name=credentials,metadata.name=a"
    assert (await api.get(api.psono, fieldSelector=query)).names() == ["a"]
