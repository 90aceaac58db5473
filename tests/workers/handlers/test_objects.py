"""Handlers for whole objects, frame by frame and through pointers."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
import torch

import syft as sy
from syft.codes import ConversionCode
from syft.exceptions import (
    MalformedMessage,
    ObjectIdTaken,
    ObjectNotFound,
    ObjectNotReady,
    UnknownWorker,
)
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.serde.tensors.bundle import Bundle
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import copy_of, full_guard_of, protect
from syft.workers.wire.messages import (
    Annotate,
    Cancel,
    Convert,
    Describe,
    Done,
    Drop,
    Duplicate,
    Fetch,
    Move,
    Parked,
    Promise,
    Put,
    PutAll,
    Relay,
    Search,
    Stale,
)
from tests.shells.owner import inspect
from tests.workers.core.peers import ask, error_in, put, said, sent, value_in

pytestmark = pytest.mark.every_shell


def test_put_stores_and_fetch_takes(core: WorkerCore) -> None:
    assert value_in(core, Fetch(1, 5, keep=True)).tolist() == [1, 2]
    assert value_in(core, Fetch(1, 5)).tolist() == [1, 2]
    assert isinstance(error_in(ask(core, Fetch(1, 5))), ObjectNotFound)


def test_put_refuses_a_taken_id_a_value_and_data_it_does_not_name(core: WorkerCore) -> None:
    assert isinstance(error_in(put(core, 5, torch.ones(1))), ObjectIdTaken)
    for value in (5, None, "text", (2, 1)):
        error = error_in(ask(core, Put(1, 6, value)))
        assert isinstance(error, MalformedMessage) and error.path == "$.value"
    packer = Packer()
    operand = pack(torch.ones(1), packer)
    error = error_in(ask(core, Put(1, 6, operand), *packer.buffers, torch.zeros(4).byte()))
    assert isinstance(error, MalformedMessage)
    assert list(core.store.objects) == [5]


def test_every_request_carries_the_ids_of_dropped_objects(core: WorkerCore) -> None:
    requests: list[Any] = [
        lambda drop: Put(1, 99, pack(torch.empty(0), Packer()), drop=drop),
        lambda drop: Fetch(1, 5, keep=True, drop=drop),
        lambda drop: Drop(1, drop),
        lambda drop: Move(1, 404, "x", drop=drop),
        lambda drop: Duplicate(1, 5, 100 + drop[0], drop=drop),
        lambda drop: Search(1, ("#a",), drop=drop),
        lambda drop: Annotate(1, 5, ("#b",), drop=drop),
        lambda drop: Describe(1, 5, drop=drop),
        lambda drop: Promise(1, (), drop=drop),
    ]
    for number, request in enumerate(requests):
        put(core, 1000 + number, torch.ones(1))
        ask(core, request((1000 + number,)))
        assert 1000 + number not in core.store.objects, request
        assert core.store.why_missing(1000 + number) == "me dropped its last pointer to it"


def test_a_copy_shares_nothing(core: WorkerCore) -> None:
    original = core.store.objects[5]
    original.requires_grad_()
    original.grad = torch.ones(2)
    ask(core, Annotate(1, 5, ("#a",), "text"))
    assert ask(core, Duplicate(1, 5, 6)) == Done(1)
    duplicate = core.store.objects[6]
    assert duplicate.requires_grad and duplicate.is_leaf and duplicate.grad is not original.grad
    assert duplicate.__dict__["_tags"] == {"#a"} and duplicate.__dict__["_description"] == "text"
    ask(core, Annotate(1, 6, ("#b",)))
    assert original.__dict__["_tags"] == {"#a"}
    with torch.no_grad():
        original += 1
        original.grad += 1
    assert duplicate.tolist() == [1, 2] and duplicate.grad.tolist() == [1, 1]
    assert isinstance(error_in(ask(core, Duplicate(1, 5, 6))), ObjectIdTaken)
    assert isinstance(error_in(ask(core, Duplicate(1, 404, 7))), ObjectNotFound)


def test_a_copy_is_a_parameter_if_the_original_is() -> None:
    parameter = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    assert type(copy_of(parameter)) is torch.nn.Parameter and not copy_of(parameter).requires_grad
    result = torch.ones(2, requires_grad=True) * 2
    assert copy_of(result).is_leaf and copy_of(result).requires_grad
    private = torch.ones(2, requires_grad=True)
    private.grad = torch.ones(2)
    protect(private.grad, Guard(frozenset({"ann"})))
    assert full_guard_of(copy_of(private).grad) == Guard(frozenset({"ann"}))


def test_a_copy_of_a_wrapped_parameter_is_one(worker: sy.VirtualWorker) -> None:
    model = torch.nn.Linear(2, 1).fix_precision().send(worker)
    duplicate = model.weight.copy()
    assert isinstance(duplicate, torch.nn.Parameter)
    assert isinstance(duplicate.get(), torch.nn.Parameter)


def test_search_finds_what_carries_every_word(worker: sy.VirtualWorker) -> None:
    first = torch.ones(2).tag("#x", "#toy").describe("the first").send(worker)
    second = torch.zeros(3).send(worker).tag("#x")
    (found,) = worker.search(["#x", "#toy"])
    assert found.id_at_location == first.id_at_location
    assert "#toy" in repr(found) and "the first" in repr(found) and "[2]" in repr(found)
    assert len(worker.search("#x")) == 2 and worker.search("#nothing") == []
    (by_id,) = worker.search(str(second.id_at_location))
    assert by_id.id_at_location == second.id_at_location
    del found, by_id
    assert len(inspect(worker)) == 2, "pointers that were found do not delete"
    assert first.tags == {"#x", "#toy"} and first.description == "the first"
    assert second.tags == {"#x"} and second.description is None


def test_search_asks_no_other_worker(
    hook: sy.TorchHook, bob: sy.VirtualWorker, worker: sy.VirtualWorker
) -> None:
    away = torch.ones(2).send(worker).send(bob).tag("#x")
    logged = sy.LoggingTensor().on(torch.ones(3)).send(bob).tag("#x")
    behind = sy.LoggingTensor().on(torch.ones(2).send(worker)).send(bob).tag("#x")
    worker.clear_objects()
    with hook.record() as log:
        found = bob.search("#x")
    assert {entry.receiver for entry in log} == {"me", "bob"}
    shapes = {pointer.id_at_location: "[3]" in repr(pointer) for pointer in found}
    assert shapes == {
        away.id_at_location: False,
        logged.id_at_location: True,
        behind.id_at_location: False,
    }
    assert "Shape" not in repr(away) and away.tags == {"#x"}


def test_annotations_add_up(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(worker).tag("#a").tag("#b", "#a").describe("one").describe("two")
    assert x.tags == {"#a", "#b"} and x.description == "two"
    fetched = x.get()
    assert fetched.tags == {"#a", "#b"} and fetched.description == "two"


@pytest.mark.parametrize(
    "message", [Annotate(1, 404, ("#a",)), Describe(1, 404), Move(1, 404, "alice"), Fetch(1, 404)]
)
def test_what_is_not_there(core: WorkerCore, message: Any) -> None:
    error = error_in(ask(core, message))
    assert isinstance(error, ObjectNotFound) and error.id == 404


def test_what_is_promised_is_not_there_yet(core: WorkerCore) -> None:
    assert ask(core, Promise(1, (7, 8))) == Done(1)
    for message in (
        Move(2, 7, "alice"),
        Fetch(2, 7),
        Duplicate(2, 7, 9),
        Describe(2, 7),
        Annotate(2, 7, ("#a",)),
        Relay(2, 7, "alice"),
        Relay(2, 7, None),
    ):
        assert ask(core, message) == Parked(2, (7,))
        assert ask(core, Cancel(3, 2)) == Done(3)
    assert core.store.promised == {7, 8}
    assert isinstance(error_in(ask(core, Promise(1, (5,)))), ObjectIdTaken)
    assert ask(core, Drop(1, (7, 8))) == Done(1)
    assert not core.dataflow.active and not core.dataflow._unwanted


def test_what_the_data_owner_holds_is_not_dropped_by_others(hook: sy.TorchHook) -> None:
    bob = sy.VirtualWorker(hook, id="bob", data=[torch.ones(2)])
    (held,) = bob.core.store.objects
    put(bob.core, 5, torch.zeros(1))
    put(bob.core, 6, torch.zeros(1))
    assert ask(bob.core, Drop(1, (held, 5))) == Done(1)
    assert ask(bob.core, Promise(1, (7,), drop=(held, 6))) == Done(1)
    assert ask(bob.core, Search(1, (), drop=(held, 7))).seq == 1
    assert list(bob.core.store.objects) == [held]
    (found,) = bob.search([])
    assert found.get().tolist() == [1, 1]
    assert list(bob.core.store.objects) == [held], "it is read, and not taken away"
    bob.clear_objects()
    assert not bob.core.store.origins
    bob.hold(torch.ones(1), allow_writes=("me",))
    (found,) = bob.search([])
    assert found.get().tolist() == [1]
    assert not bob.core.store.origins, "it is forgotten with the object"


def test_nobody_lists_or_removes_everything(core: WorkerCore) -> None:
    (reply,) = said(core, msgpack.packb([10, 1, True]))
    assert isinstance(error_in(reply), MalformedMessage)
    assert list(core.store.objects) == [5]


# --------------------------------------------------------------------------------------------- move


def test_a_move_keeps_id_tags_and_gradient(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.zeros(2)
    pointer = x.tag("#a").send(worker)
    id = pointer.id_at_location
    moved = pointer.move(alice)
    assert moved.location is alice and moved.id_at_location == id
    assert list(inspect(alice).objects) == [id] and not inspect(worker).objects
    home = moved.get()
    assert home.requires_grad and home.grad.tolist() == [0, 0] and home.tags == {"#a"}


def test_a_move_that_fails_changes_nothing(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    with pytest.raises(UnknownWorker):
        x.move("nobody")
    with pytest.raises(UnknownWorker):
        x.child.connection.ask(Move, x.id_at_location, "nobody")
    taken = torch.zeros(1).send(alice, id=x.id_at_location)
    with pytest.raises(ObjectIdTaken):
        x.move(alice)
    del taken
    assert x.get().tolist() == [1, 1]


def test_a_move_waits_for_nothing_that_still_writes(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x = torch.ones(2).send(worker)
    promise = worker.promise()
    x.add_(promise)
    for early in (lambda: x.get(), lambda: x.tolist()):
        with pytest.raises(ObjectNotReady):
            early()
    duplicate = x.copy()
    moved = x.move(alice)
    later = moved + 1
    assert moved.location is alice and not (moved.child.handle.done() or later.child.handle.done())
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    assert later.get().tolist() == [3, 3]
    assert moved.child.handle.exception() is None and moved.child.handle.done()
    assert (moved.get().tolist(), duplicate.get().tolist()) == ([2, 2], [2, 2])
    del kept


def test_a_promise_and_what_keeps_it_own_the_object_together(worker: sy.VirtualWorker) -> None:
    for first in (True, False):
        promise = worker.promise()
        kept = torch.ones(2).send(worker, id=promise.id_at_location)
        if first:
            del promise
            assert kept.copy().get().tolist() == [1, 1]
            del kept
        else:
            del kept
            assert promise.copy().get().tolist() == [1, 1]
            del promise
        assert not inspect(worker).objects
    assert not worker.network.local.connection_to(worker).garbage.owners


def test_a_pointer_that_does_not_collect(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(worker, garbage_collect_data=False)
    id = x.id_at_location
    del x
    assert list(inspect(worker).objects) == [id]
    worker.clear_objects()
    assert not inspect(worker).objects


def stored_again(way: str) -> tuple[Any, list[torch.Tensor]]:
    """A request that stores an object under 9, and its buffers."""
    packer = Packer()
    if way == "put":
        return Put(20, 9, pack(torch.zeros(3), packer)), packer.buffers
    if way == "put all":
        return PutAll(20, 8, pack(Bundle([torch.ones(2), torch.zeros(3)]), packer)), packer.buffers
    if way == "convert":
        return Convert(20, 5, int(ConversionCode.FIX_PRECISION), pack((), packer), 9), []
    return Duplicate(20, 5, 9), []


@pytest.mark.parametrize("way", ["put", "put all", "duplicate", "convert"])
@pytest.mark.parametrize("waiting", [False, True])
def test_who_knew_an_object_is_told_of_another_under_its_id(
    core: WorkerCore, way: str, waiting: bool
) -> None:
    ann, eve = Peer("ann"), Peer("eve")
    put(core, 9, torch.ones(2), peer=ann, writers=("eve",))
    put(core, 100, torch.ones(2), peer=eve)
    if waiting:
        ask(core, Promise(2, (11,)))
    message, buffers = stored_again(way)
    ask(core, Drop(3, (9,)), peer=eve)
    told = sent(core, message, *buffers, peer=eve)
    assert told[-1] == (eve, Done(20))
    assert (ann, Stale(False)) in told and (eve, Stale(False)) not in told
    ask(core, Drop(4, (8, 9)), peer=ann)


def test_callers_are_told_in_the_order_in_which_they_came(core: WorkerCore) -> None:
    """Not in that of their addresses, which differ from one process to the next."""
    callers, eve = [Peer(f"caller {number}") for number in range(40)], Peer("eve")
    put(core, 9, torch.ones(2), peer=callers[0], writers=("eve",))
    for number, caller in enumerate(callers):
        put(core, 100 + number, torch.ones(2), peer=caller)
    ask(core, Drop(3, (9,)), peer=eve)
    message, buffers = stored_again("put")
    *told, last = sent(core, message, *buffers, peer=eve)
    told = [(peer, reply) for peer, reply in told if peer.name != "me"]  # may have stored 5
    assert told == [(caller, Stale(False)) for caller in callers] and last == (eve, Done(20))
    for number, caller in enumerate(callers):
        ask(core, Drop(4, (100 + number,)), peer=caller)
    ask(core, Drop(5, (9,)), peer=eve)


@pytest.mark.parametrize("way", ["put", "put all", "duplicate"])
def test_nobody_is_told_of_an_object_under_a_new_id(core: WorkerCore, way: str) -> None:
    ann = Peer("ann")
    put(core, 100, torch.ones(2), peer=ann)
    message, buffers = stored_again(way)
    eve = Peer("eve")
    assert core.watched and sent(core, message, *buffers, peer=eve) == [(eve, Done(20))]
