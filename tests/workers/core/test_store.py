"""The store: every id is present, promised or gone."""

from __future__ import annotations

from itertools import islice

import pytest

from syft.exceptions import ObjectIdTaken, ObjectNotFound
from syft.workers.core.store import TOMBSTONES, ObjectStore


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore("bob")


def test_what_is_put_is_read_until_it_is_taken(store: ObjectStore) -> None:
    store.put(1, "a")
    assert store.open(1) == "a"
    assert store.take(1, "me fetched it") == "a"
    with pytest.raises(ObjectNotFound, match="holds no object 1: me fetched it"):
        store.open(1)
    with pytest.raises(ObjectNotFound, match="me fetched it"):
        store.take(1, "again")


def test_nothing_is_overwritten(store: ObjectStore) -> None:
    store.put(1, "a")
    for action in (store.check_free, store.promise, lambda id: store.put(id, "b")):
        with pytest.raises(ObjectIdTaken, match="holds an object 1 already"):
            action(1)
    assert store.open(1) == "a"


def test_a_promise_is_kept_or_broken(store: ObjectStore) -> None:
    store.promise(1)
    store.promise(2)
    with pytest.raises(ObjectNotFound, match="it is promised and has not come yet"):
        store.open(1)
    store.put(1, "a")
    store.mark_gone(2, "it failed")
    assert store.promised == set()
    assert store.open(1) == "a"
    assert store.why_missing(2) == "it failed"
    assert store.why_missing(3) is None


def test_dropping_what_is_not_there_leaves_no_tombstone(store: ObjectStore) -> None:
    store.drop(1, "dropped")
    store.drop_all([2, 3], "dropped")
    assert [store.why_missing(id) for id in (1, 2, 3)] == [None] * 3
    store.put(1, "a")
    store.put(2, "b")
    store.drop(1, "one by one")
    store.drop_all([2], "all together")
    assert [store.why_missing(id) for id in (1, 2)] == ["one by one", "all together"]


def test_clearing_says_why_to_all_that_was_there_or_expected(store: ObjectStore) -> None:
    store.put(1, "a")
    store.promise(2)
    store.clear("cleared by me")
    assert not store.objects and not store.promised
    assert [store.why_missing(id) for id in (1, 2)] == ["cleared by me"] * 2


def test_tombstones_are_bounded(store: ObjectStore) -> None:
    for id in range(5 * TOMBSTONES):
        store.put(id, "a")
    for id in range(2 * TOMBSTONES + 5):
        store.drop(id, "first")
    store.drop_all(range(2 * TOMBSTONES + 5, 5 * TOMBSTONES), "last")
    store.mark_gone(-1, "buried")
    latest = [*range(4 * TOMBSTONES, 5 * TOMBSTONES)]
    assert {store.why_missing(id) for id in latest} == {"last"}
    assert {store.why_missing(id) for id in range(4 * TOMBSTONES)} == {None}
    assert store.why_missing(-1) == "buried"
    assert len(store._gone) + len(store._gone_before) <= 2 * TOMBSTONES + 1


class Owner:
    """An object whose end is the end of others."""

    def __init__(self, store: ObjectStore, ids: range) -> None:
        self.store, self.ids = store, ids

    def __del__(self) -> None:
        self.store.drop_all(self.ids, "it went with its owner")


def test_what_a_finalizer_drops_meanwhile_is_remembered(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trimmed(items: object, count: int) -> object:
        store.put(1, "a")
        store.drop(1, "by a finalizer")
        return islice(items, count)

    monkeypatch.setattr("syft.workers.core.store.islice", trimmed)
    for id in range(10, 11 + TOMBSTONES):
        store.mark_gone(id, "earlier")
    assert store.why_missing(1) == "by a finalizer"
    assert store.why_missing(11) == store.why_missing(10 + TOMBSTONES) == "earlier"


@pytest.mark.parametrize("together", [False, True])
def test_what_is_dropped_may_drop_others(store: ObjectStore, together: bool) -> None:
    others = range(1000, 1001 + TOMBSTONES)
    store.put_all(dict.fromkeys(others, "a"))
    store.put(1, Owner(store, others))
    store.put(2, "b")
    if together:
        store.drop_all([1, 2], "dropped")
    else:
        for id in (1, 2):
            store.drop(id, "dropped")
    assert not store.objects
    assert [store.why_missing(id) for id in (1, 2)] == ["dropped", "dropped"]
    assert store.why_missing(others[-1]) == "it went with its owner"
