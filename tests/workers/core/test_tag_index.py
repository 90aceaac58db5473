"""Search by tag finds what a look at every object would find."""

from __future__ import annotations

import gc
import random
from typing import Any

import pytest
import torch

import syft as sy
from syft.workers.core.state_machine import WorkerCore
from syft.workers.core.store import ObjectStore
from syft.workers.core.tag_index import TagIndex, tags_of
from syft.workers.labels.origin import ObjectOrigin
from syft.workers.wire.messages import Annotate, Done, Search
from tests.workers.core.peers import ask, lonely, put, value_in
from tests.workers.core.test_stored_tensors import Box

WORDS = ["#a", "#b", "7", "12"]
QUERIES: list[tuple[str, ...]] = [(), ("#a",), ("#b", "#a"), ("7",), ("7", "#a"), ("12", "7")]
QUERIES += [("#none",), ("#a", "#none"), ("007",), ("9" * 30,), ("٣",), ("-1",)]


def looked_for(objects: dict[int, Any], words: tuple[str, ...]) -> set[int]:
    """What a search means."""
    return {id for id, value in objects.items() if set(words) <= tags_of(value) | {str(id)}}


def check(core: WorkerCore) -> None:
    for words in QUERIES:
        found = [id for id, *_ in value_in(core, Search(1, words))]
        assert len(found) == len(set(found))
        assert set(found) == looked_for(core.store.objects, words), words


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_to_objects(seed: int) -> None:
    draw = random.Random(seed)
    core = lonely()
    store = core.store
    for _ in range(60):
        id = draw.randrange(15)
        here = id in store.objects
        tensor: Any = torch.ones(1)
        tags = {word for word in WORDS if draw.random() < 0.3}
        if tags:
            tensor._tags = tags
        action = draw.randrange(6)
        if action == 0 and not here:
            store.put(id, tensor)
        elif action == 1 and not here:
            put(core, id, tensor)
        elif action == 2 and not here:
            store.put_all({id: tensor})
        elif action == 3 and here:
            assert ask(core, Annotate(1, id, tuple(tags))) == Done(1)
        elif action == 4:
            held = ObjectOrigin(None, "bob", held=True)
            store.origins.update({id: held} if here and draw.random() < 0.2 else {})
            draw.choice([store.drop, lambda id, why: store.drop_all([id], why)])(id, "dropped")
        elif action == 5 and here:
            store.take(id, "taken")
        check(core)
    store.clear("cleared")
    check(core)
    assert not store.tags.noted and not store.tags._ids, "nothing is kept of what is gone"


def test_the_order_is_that_in_which_the_tag_came() -> None:
    core = lonely()
    for id in (9, 3, 5):
        put(core, id, torch.ones(1))
    for id in (5, 9, 3):
        ask(core, Annotate(1, id, ("#a",)))
    assert [id for id, *_ in value_in(core, Search(1, ("#a",)))] == [5, 9, 3]


def test_what_the_owner_tags_after_it_is_held(bob: sy.VirtualWorker) -> None:
    x: Any = torch.ones(2)
    y: Any = torch.zeros(2)
    (id,) = bob.hold(x)
    assert bob.search("#a") == []
    x.tag("#a")
    assert [found.id_at_location for found in bob.search("#a")] == [id]
    y = y.send(bob)
    (mine,) = (value for number, value in bob._objects.items() if number != id)
    mine.tag("#a", "#b")
    assert len(bob.search("#a")) == 2 and len(bob.search(["#a", "#b"])) == 1
    del y, mine
    bob.clear_objects()


def test_what_the_local_worker_offers(hook: sy.TorchHook) -> None:
    me = hook.local_worker
    me.is_client_worker = False
    x: Any = torch.ones(2)
    x.tag("#a")
    x.tag("#b")
    assert len(me.search(["#a", "#b"])) == 1
    plan: Any = sy.func2plan(args_shape=[(2,)])(torch.abs).tag("#plan")
    plan.tag("#more")
    assert len(me.search(["#plan", "#more"])) == 1
    me.clear_objects()


def test_a_tagged_tensor_that_comes_with_an_operation(bob: sy.VirtualWorker) -> None:
    x: Any = torch.tensor(2.0)
    with bob.group():
        grouped = x.tag("#a").send(bob)
    assert len(bob.search("#a")) == 1
    with bob.group():
        one, two = sy.send_all([torch.ones(1), x], bob)
    assert len(bob.search("#a")) == 2
    same = bob.torch.as_tensor(x)
    assert len(bob.search("#a")) == 3
    again = same.contiguous()
    assert len(bob.search("#a")) == 4
    del same
    assert len(bob.search("#a")) == 3
    del grouped, one, two, again


def test_a_relayed_object_loses_its_tags_here(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x: Any = torch.ones(2)
    x = x.tag("#a").send(bob).remote_send(alice)
    assert bob.search("#a") == [] and len(alice.search("#a")) == 1
    x.remote_get()
    assert len(bob.search("#a")) == 1


def test_a_stale_entry_does_not_count() -> None:
    objects: dict[int, Any] = {5: torch.ones(1)}
    index = TagIndex(objects)
    objects[5]._tags = {"#a"}
    index.note(5)
    index.note(5)
    objects[5]._tags = {"#b"}
    assert index.find({"#a"}) == []
    index.note(5)
    assert index.find({"#b"}) == [5]


def test_no_operation_is_watched_for_what_none_returns() -> None:
    store = ObjectStore("bob")
    store.put_all({1: Box(torch.ones(1)), 2: torch.ones(1)})
    store.objects[1]._tags = {"#plan"}
    store.tags.note(1)
    assert store.tags.find({"#plan"}) == [1] and not store.tags.watched
    store.objects[2]._tags = {"#data"}
    store.tags.note(2)
    assert store.tags.watched
    store.drop_all([1], "dropped")
    assert store.tags.find({"#plan"}) == [] and store.tags.find({"#data"}) == [2]


def test_an_untagged_object_costs_nothing() -> None:
    store = ObjectStore("bob")
    store.put_all({id: torch.ones(1) for id in range(100)})
    assert not store.tags.noted and not store.tags.watched
    referents = gc.get_referents(*store.objects.values())
    assert not any(isinstance(referent, dict) for referent in referents), "not even a dict"


@pytest.mark.parametrize("count", [0, 3])
def test_the_count_in_the_repr(hook: sy.TorchHook, count: int) -> None:
    dan = sy.VirtualWorker(hook, id="dan", data=[torch.ones(1)] * count)
    assert repr(dan) == f"<VirtualWorker id:dan #objects:{count}>"
    assert len(dan.list_objects()) == count and not dan.core.store._all_shown
    dan.clear_objects()
