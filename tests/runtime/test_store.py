"""The store against a plain dictionary, its indexes against recomputation (C1 to C5, D3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psono_operator.runtime.notifications import Added, Deleted, Notification, Updated
from psono_operator.runtime.resources import KubeObject, ObjectKey, key_of, uid_of, version_of
from psono_operator.runtime.store import MutatedObject, Store
from tests.runtime.objects import key, make_object


def colours(obj: KubeObject) -> Iterable[str]:
    return list(obj["spec"].get("colours", ()))


def coloured(
    name: str, version: int, *values: str, namespace: str = "a", uid: str | None = None
) -> KubeObject:
    return make_object(name, version, namespace=namespace, uid=uid, spec={"colours": list(values)})


def make_store() -> Store:
    return Store({"colour": colours}, detect_mutations=True)


def test_a_replace_is_a_diff_and_vanished_objects_are_tombstones() -> None:
    """C1: one delete notification for what vanished while disconnected, its index entry gone."""
    store = make_store()
    stays, changes, goes = (
        coloured("stays", 1, "red"),
        coloured("changes", 2, "red"),
        coloured("goes", 3, "red"),
    )
    assert store.replace([stays, changes, goes], initial=True) == [
        Added(stays, initial=True),
        Added(changes, initial=True),
        Added(goes, initial=True),
    ]
    changed, new = coloured("changes", 5, "blue"), coloured("new", 6)
    assert store.replace([coloured("stays", 1, "red"), changed, new]) == [
        Deleted(goes, final_state_unknown=True),
        Updated(changes, changed),
        Added(new),
    ]
    assert store.by_index("colour", "red") == {key("stays")}
    assert store.by_index("colour", "blue") == {key("changes")}
    assert len(store) == 3


def test_a_relist_of_unchanged_objects_says_nothing() -> None:
    """C4, and faults E9: a hundred relists are no news."""
    store = make_store()
    store.replace([coloured("x", 1, "red"), coloured("y", 2)])
    for _ in range(100):
        assert store.replace([coloured("x", 1, "red"), coloured("y", 2)]) == []
    assert store.apply_upsert(coloured("x", 1, "red")) == []


def test_another_uid_at_the_same_key_is_a_deletion_and_a_creation() -> None:
    """C3."""
    store = make_store()
    old, new, third = (coloured("x", n, f"c{n}", uid=f"u{n}") for n in (1, 2, 3))
    store.apply_upsert(old)
    assert store.apply_upsert(new) == [Deleted(old), Added(new)]
    assert store.replace([third]) == [Deleted(new, final_state_unknown=True), Added(third)]
    assert store.by_index("colour", "c1") == store.by_index("colour", "c2") == frozenset()
    assert store.by_index("colour", "c3") == {key("x")}
    assert len(store) == 1


def test_deletions_of_unknown_objects_and_of_earlier_uids_are_ignored() -> None:
    """C2, C3."""
    store = make_store()
    assert store.apply_delete(make_object("x")) == []
    store.apply_upsert(make_object("x", 5, uid="new"))
    assert store.apply_delete(make_object("x", 4, uid="old")) == []
    assert store.get(key("x")) is not None


def test_a_replace_of_one_namespace_leaves_the_others_alone() -> None:
    store = make_store()
    mine, other = make_object("x", namespace="a"), make_object("x", namespace="b")
    store.replace([mine], namespace="a")
    store.replace([other, make_object("stray", namespace="c")], namespace="b")
    assert len(store) == 2
    assert store.replace([], namespace="a") == [Deleted(mine, final_state_unknown=True)]
    assert list(store.list()) == list(store.list("b")) == [other]
    assert list(store.list("a")) == []


def test_an_object_without_a_version_is_always_news() -> None:
    store = make_store()
    first, second = make_object("x", ""), make_object("x", "")
    store.apply_upsert(first)
    assert store.apply_upsert(second) == [Updated(first, second)]


def test_an_object_without_a_name_is_left_out() -> None:
    """B2: whatever a bookmark may be called, it is no object."""
    store = make_store()
    assert store.apply_upsert({"kind": "Thing", "metadata": {"resourceVersion": "9"}}) == []
    assert store.replace([{"kind": "Thing", "metadata": {}}]) == []


def test_a_listing_is_the_state_at_the_time_of_the_call() -> None:
    store = make_store()
    store.replace([make_object("x"), make_object("y")])
    listing, of_namespace = store.list(), store.list("a")
    store.replace([])
    assert len(list(listing)) == len(list(of_namespace)) == 2


def test_an_index_that_cannot_read_one_object_serves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """N1, F8: one odd object is one object's problem, and its content is not logged."""

    def strict(obj: KubeObject) -> Iterable[str]:
        return [obj["spec"]["value"].strip()]

    store = Store({"strict": strict})
    store.replace([make_object("good", spec={"value": "v"}), make_object("odd", spec={"value": 77665544})])
    assert store.by_index("strict", "v") == {key("good")}
    assert "a/odd" in caplog.text
    assert "AttributeError" in caplog.text
    assert "77665544" not in caplog.text
    store.replace([])
    assert store.by_index("strict", "v") == frozenset()


def test_an_unknown_index_is_an_error() -> None:
    with pytest.raises(KeyError):
        make_store().by_index("shape", "round")


@pytest.mark.parametrize(
    "act",
    [
        Store.verify,
        lambda store: store.replace([]),
        lambda store: store.apply_upsert(make_object("x", 2)),
        lambda store: store.apply_delete(make_object("x", 2)),
    ],
)
def test_a_changed_cached_object_is_detected(act: Callable[[Store], object]) -> None:
    """C5."""
    store = make_store()
    store.replace([make_object("x", spec={"list": [1]})])
    cached = store.get(key("x"))
    assert cached is not None
    store.verify()
    cached["spec"]["list"].append(2)
    with pytest.raises(MutatedObject, match="a/x"):
        act(store)


objects = st.builds(
    lambda name, namespace, version, uid, values: coloured(
        name, version, *values, namespace=namespace, uid=uid
    ),
    st.sampled_from("xyz"),
    st.sampled_from("ab"),
    st.integers(1, 4),
    st.sampled_from(["u1", "u2"]),
    st.lists(st.sampled_from(["red", "blue", "green"]), max_size=10),
)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), objects),
        st.tuples(st.just("delete"), objects),
        st.tuples(st.just("replace"), st.lists(objects, max_size=6, unique_by=key_of)),
        st.tuples(st.just("replace a"), st.lists(objects, max_size=6, unique_by=key_of)),
    ),
    max_size=30,
)


def same(left: KubeObject, right: KubeObject) -> bool:
    return (uid_of(left), version_of(left)) == (uid_of(right), version_of(right))


@given(operations)
@settings(max_examples=300, deadline=None)
def test_random_operations_agree_with_a_dictionary(steps: list[tuple[str, object]]) -> None:
    """C1, C2, C3, D3: content, indexes and the notifications, replayed into a dictionary, all agree."""
    store = make_store()
    model: dict[ObjectKey, KubeObject] = {}
    heard: dict[ObjectKey, KubeObject] = {}
    for what, argument in steps:
        before = dict(model)
        if what == "upsert":
            assert isinstance(argument, dict)
            model[key_of(argument)] = argument
            told = store.apply_upsert(argument)
        elif what == "delete":
            assert isinstance(argument, dict)
            held = model.get(key_of(argument))
            if held is not None and uid_of(held) == uid_of(argument):
                del model[key_of(argument)]
            told = store.apply_delete(argument)
        else:
            assert isinstance(argument, list)
            namespace = "a" if what == "replace a" else None
            kept = {k: o for k, o in model.items() if namespace is not None and k.namespace != namespace}
            model = kept | {key_of(o): o for o in argument if namespace in (None, key_of(o).namespace)}
            told = store.replace(argument, namespace=namespace)
        # What has the same uid and version is the same object, whatever else the random one says.
        for k, held in before.items():
            if k in model and same(held, model[k]):
                model[k] = held

        replay(heard, told)
        assert {key_of(o): o for o in store.list()} == model == heard
        assert {k: store.get(k) for k in model} == model
        assert len(store) == len(model)
        for colour in ("red", "blue", "green"):
            expected = {k for k, o in model.items() if colour in o["spec"]["colours"]}
            assert store.by_index("colour", colour) == expected
        for namespace in "ab":
            expected = {k for k in model if k.namespace == namespace}
            assert {key_of(o) for o in store.list(namespace)} == expected
    store.verify()


def replay(heard: dict[ObjectKey, KubeObject], told: list[Notification]) -> None:
    for notification in told:
        match notification:
            case Added(new=new):
                assert notification.key not in heard
                heard[notification.key] = new
            case Updated(old=old, new=new):
                assert heard[notification.key] is old
                assert uid_of(old) == uid_of(new)
                assert version_of(old) != version_of(new)
                heard[notification.key] = new
            case Deleted(last=last):
                assert heard.pop(notification.key) is last


# -- N6: in slices ----------------------------------------------------------------------------------------


def several(count: int, version: int = 1, *, colour: str = "red") -> list[KubeObject]:
    return [coloured(f"x{number}", version, colour) for number in range(count)]


@pytest.mark.parametrize("namespace", [None, "a"])
@pytest.mark.parametrize("changed", [0, 3, 900])
def test_a_replace_in_slices_shows_the_old_content_until_its_last_step(
    namespace: str | None, changed: int
) -> None:
    """C1, N6: few changes and many, a whole store and one of its namespaces."""
    store = make_store()
    old = several(1000)
    store.replace(old, namespace=namespace)
    if namespace:
        store.replace([make_object("other", namespace="b")], namespace="b")
    vanished = min(changed, 50)
    new = several(changed, 2, colour="blue") + old[changed : 1000 - vanished]
    steps = store.replacing(new, namespace=namespace)
    slices, changes = 0, None
    reds = store.by_index("colour", "red")
    while changes is None:
        try:
            next(steps)
        except StopIteration as end:
            changes = end.value
            break
        slices += 1
        assert store.by_index("colour", "red") == reds
        assert store.by_index("colour", "blue") == frozenset()
        assert len(list(store.list("a"))) == 1000
    assert slices >= 4
    assert len(changes) == changed + vanished
    assert len(store.by_index("colour", "blue")) == changed
    assert len(list(store.list("a"))) == 1000 - vanished
    assert len(store) == 1000 - vanished + (1 if namespace else 0)
    assert store.get(ObjectKey("a", f"x{changed}")) is old[changed], "unchanged is the same object as before"
    store.verify()


def test_a_replace_that_was_given_up_half_way_has_changed_nothing() -> None:
    """F6: a cancelled informer leaves a store that is whole."""
    store = make_store()
    store.replace(several(1000))
    steps = store.replacing(several(1000, 2, colour="blue"))
    for _ in range(8):
        next(steps)
    steps.close()
    assert len(store.by_index("colour", "red")) == 1000
    assert store.by_index("colour", "blue") == frozenset()
