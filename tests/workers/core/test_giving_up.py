"""A promise that is given up: what waits for it fails with the reason, and nothing revives it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import (
    MalformedMessage,
    NothingToGet,
    ObjectNotFound,
    PermissionDenied,
    PromiseGivenUp,
)
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.core.store import TOMBSTONES, ObjectStore
from syft.workers.wire.messages import Done, Duplicate, Fetch, GiveUp, Parked, Promise
from tests.shells.owner import inspect
from tests.workers.core.peers import ask, command, error_in, lonely, put, ref, sent

pytestmark = pytest.mark.every_shell

REASON = "the sensor broke"


def test_what_waits_fails_with_the_reason(worker: sy.VirtualWorker, bob: sy.VirtualWorker) -> None:
    promise = worker.promise()
    later = promise + 1
    last = (later * 2).relu()
    with worker.group():
        grouped = last + promise
    duplicate = later.copy()
    worker.give_up(promise, REASON)
    for pointer in (later, last, grouped, duplicate, promise):
        with pytest.raises(PromiseGivenUp, match=REASON) as caught:
            pointer.tolist()
        assert caught.value.id == promise.id_at_location
    assert isinstance(last.child.handle.exception(), PromiseGivenUp)
    with pytest.raises(PromiseGivenUp, match=REASON):
        (promise * 3).tolist()
    assert not inspect(worker).objects and not inspect(worker).active


def test_a_late_value_is_refused(worker: sy.VirtualWorker) -> None:
    promise = worker.promise()
    later = promise + 1
    worker.give_up(promise, REASON)
    with pytest.raises(PromiseGivenUp, match=REASON):
        later.get()
    for name in (promise.id_at_location, later.id_at_location):
        with pytest.raises(PromiseGivenUp, match="make another promise"):
            late = torch.ones(2).send(worker, id=name)
            late.child.handle.wait()
    late = None
    with pytest.raises(PromiseGivenUp):
        promise.get()
    assert not inspect(worker).objects


def test_only_whoever_promised_can_give_up(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    promise, kept = bob.promise(), bob.promise()
    other = torch.ones(2).send(bob, id=kept.id_at_location)
    with pytest.raises(MalformedMessage, match="still to be kept"):
        bob.give_up(kept, REASON)
    for place, tensor in ((alice, promise), (bob, torch.ones(2))):
        with pytest.raises(NothingToGet):
            place.give_up(tensor, REASON)
    later = promise + 1
    with pytest.raises(PermissionDenied):
        bob.give_up(later, REASON)
    assert other.copy().get().tolist() == [1, 1]


def test_a_move_that_fails_is_given_up_at_its_destination(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    promise = worker.promise()
    moved = promise.move(alice)
    later = moved + 1
    worker.give_up(promise, REASON)
    with pytest.raises(PromiseGivenUp, match=REASON):
        moved.child.handle.wait()
    with pytest.raises(PromiseGivenUp, match=REASON):
        later.tolist()
    assert not inspect(alice).promised and not inspect(alice).active and not inspect(worker).active


# ------------------------------------------------------------------------------ the worker alone


@pytest.fixture
def core() -> WorkerCore:
    """A worker that holds 1, and expects 8."""
    core = lonely()
    put(core, 1, torch.ones(2))
    ask(core, Promise(1, (8,)))
    return core


def test_another_connection_cannot_give_up(core: WorkerCore) -> None:
    stranger = Peer("me")
    assert isinstance(error_in(ask(core, GiveUp(2, 8, "spite"), peer=stranger)), PermissionDenied)
    assert core.store.promised == {8}
    assert isinstance(error_in(ask(core, GiveUp(3, 9, REASON))), ObjectNotFound)
    assert ask(core, GiveUp(4, 8, REASON)) == Done(4)
    assert isinstance(error_in(ask(core, GiveUp(5, 8, REASON))), PromiseGivenUp)
    assert not core.store.promised and not core.store.promisers


def test_nothing_comes_under_an_id_that_was_given_up(core: WorkerCore) -> None:
    ask(core, GiveUp(2, 8, REASON))
    for message in (
        command("torch.Tensor.add", ref(1), ref(1), out=8),
        Duplicate(3, 1, 8),
        Promise(3, (8,)),
        Fetch(3, 8),
    ):
        assert isinstance(error_in(ask(core, message)), PromiseGivenUp)
    assert isinstance(error_in(put(core, 8, torch.ones(2))), PromiseGivenUp)
    assert list(core.store.objects) == [1]


def test_who_waits_gets_one_reply_each(core: WorkerCore) -> None:
    for seq, name in ((3, 8), (4, 10)):
        parked = command("torch.Tensor.add", ref(name), ref(1), out=seq + 7, seq=seq)
        assert ask(core, parked) == Parked(seq, (8,))
    replies: list[Any] = [reply for _, reply in sent(core, GiveUp(5, 8, REASON))]
    assert [reply.seq for reply in replies] == [3, 4, 5] and replies[-1] == Done(5)
    assert {str(error_in(reply)) for reply in replies[:-1]} == {
        str(PromiseGivenUp(8, "bob", REASON))
    }
    assert not core.dataflow.active


def test_a_store_remembers_the_last_ones_that_were_given_up() -> None:
    store = ObjectStore("bob")
    for id in range(TOMBSTONES + 1):
        store.give_up(id, id, REASON)
    store.check_free(0)
    with pytest.raises(PromiseGivenUp):
        store.check_free(1)
    store.clear("the worker was cleared")
    store.check_free(1)
