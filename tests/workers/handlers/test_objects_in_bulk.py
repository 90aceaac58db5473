"""Many objects in one message, frame by frame: all are stored or handed over, or none is."""

from __future__ import annotations

from typing import Any

import torch

from syft.exceptions import (
    MalformedMessage,
    ObjectIdTaken,
    ObjectNotFound,
    PermissionDenied,
)
from syft.serde import Bundle, Packer, pack
from syft.tensors.fixed.precision import FixedPrecisionTensor, fix_precision
from syft.tensors.logging import LoggingTensor
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.labels.memory_labels import full_guard_of
from syft.workers.wire.messages import Done, FetchAll, Parked, Promise, PutAll, Value
from tests.workers.core.peers import ME, ask, command, error_in, put, ref, sent, value_in

ANN = Peer("me", "ann")


def put_all(core: WorkerCore, first: int, *tensors: Any, peer: Peer = ME, **fields: Any) -> Any:
    """Store tensors by one message."""
    packer = Packer()
    message = PutAll(1, first, pack(Bundle(tensors), packer), **fields)
    return ask(core, message, *packer.buffers, peer=peer)


def test_all_are_stored_under_ids_that_follow(core: WorkerCore) -> None:
    leaf = torch.ones(2, requires_grad=True)
    assert put_all(core, 100, torch.ones(2), torch.zeros(3), leaf) == Done(1)
    assert list(core.store.objects) == [5, 100, 101, 102]
    assert core.store.open(101).tolist() == [0, 0, 0]
    assert list(core.store.origins) == [102], "only a leaf has gradients that somebody may ask for"
    assert core.store.origins[102].session is ME.session
    assert put_all(core, 200) == Done(1)


def test_none_is_stored_where_one_cannot_be(core: WorkerCore) -> None:
    for reply, kind in (
        (put_all(core, 3, *torch.ones(3, 2)), ObjectIdTaken),
        (put_all(core, 2**63 - 1, *torch.ones(2, 2)), MalformedMessage),
        (put_all(core, -1, *torch.ones(2, 2)), MalformedMessage),
        (put_all(core, 9, torch.ones(2), "text"), MalformedMessage),
        (put_all(core, 9, torch.ones(2), guards=((1, ("ann",), False, None),)), MalformedMessage),
        (put_all(core, 9, torch.ones(2), guards=((-1, ("ann",), False, None),)), MalformedMessage),
        (ask(core, PutAll(1, 9, (3, 5))), MalformedMessage),
        (ask(core, PutAll(1, 9, (38, None, (), ())), torch.ones(1).byte()), MalformedMessage),
    ):
        assert type(error_in(reply)) is kind
        assert list(core.store.objects) == [5]


def test_what_is_private_is_so_from_the_start(core: WorkerCore) -> None:
    assert put_all(core, 10, *torch.ones(3, 2), guards=((1, ("ann",), True, None),)) == Done(1)
    guards = [full_guard_of(core.store.open(id)) for id in (10, 11, 12)]
    assert guards[0] is None and guards[2] is None
    assert guards[1] is not None and guards[1].admits("ann") and guards[1].shape_hidden
    assert core.store.charges.guarded


def test_chains_are_stored_too(core: WorkerCore) -> None:
    encoded = fix_precision(torch.ones(2))
    assert put_all(core, 10, torch.ones(2), encoded) == Done(1)
    assert type(core.store.open(11).child) is FixedPrecisionTensor
    assert list(core.store.origins) == [11]


def test_what_waits_for_one_of_them_runs(core: WorkerCore) -> None:
    ask(core, Promise(1, (8, 9)))
    assert ask(core, command("torch.Tensor.neg", ref(9), out=40)) == Parked(1, (9,))
    assert ask(core, FetchAll(2, (5, 9), keep=True)) == Parked(2, (9,))
    packer = Packer()
    message = PutAll(3, 8, pack(Bundle([torch.ones(1), torch.ones(1)]), packer))
    replies = [reply for _, reply in sent(core, message, *packer.buffers)]
    assert [type(reply) for reply in replies] == [Done, Value, Done]
    assert core.store.open(40).tolist() == [-1]


def test_all_are_handed_over_in_order(core: WorkerCore) -> None:
    put_all(core, 10, *torch.arange(6.0).view(3, 2))
    kept = value_in(core, FetchAll(1, (12, 5, 10), keep=True))
    assert [value.tolist() for value in kept] == [[4, 5], [1, 2], [0, 1]]
    assert list(core.store.objects) == [5, 10, 11, 12]
    taken = value_in(core, FetchAll(1, (12, 5, 10)))
    assert [value.tolist() for value in taken] == [[4, 5], [1, 2], [0, 1]]
    assert list(core.store.objects) == [11]
    error = error_in(ask(core, FetchAll(1, (12,))))
    assert type(error) is ObjectNotFound and "me fetched it with get()" in str(error)


def test_what_the_owner_holds_stays(core: WorkerCore) -> None:
    core.hold(7, torch.ones(1))
    core.own(7)
    assert len(value_in(core, FetchAll(1, (5, 7)))) == 2
    assert list(core.store.objects) == [7]


def test_what_is_inside_a_chain_is_named_by_its_depth(core: WorkerCore) -> None:
    core.hold(7, LoggingTensor().on(torch.tensor([3.0])))
    outer, inner = value_in(core, FetchAll(1, (7, (7, 1)), keep=True))
    assert type(outer.child) is LoggingTensor and inner.tolist() == [3]
    (inner,) = value_in(core, FetchAll(1, ((7, 1),)))
    assert list(core.store.objects) == [5, 7], "a part of a chain is never removed"


def test_none_is_taken_where_one_cannot_be_read(core: WorkerCore) -> None:
    guards = ((1, ("ann",), False, None), (2, ("bea",), False, None))
    put_all(core, 10, *torch.ones(3, 2), guards=guards, writers=((1, ("ann",)),))
    for ids, number in (((5, 10, 11, 12), 11), ((12, 11), 12)):
        error = error_in(ask(core, FetchAll(1, ids)))
        assert type(error) is PermissionDenied
        assert str(error).startswith(f"get_all of object {number}: this value on 'bob' is private")
    error = error_in(ask(core, FetchAll(1, (5, 11, 12)), peer=ANN))
    assert str(error) == (
        "get_all of object 12: this value on 'bob' is private, and user 'ann' may not read it."
    )
    assert list(core.store.objects) == [5, 10, 11, 12]
    assert len(value_in(core, FetchAll(1, (5, 11)), peer=ANN)) == 2
    assert list(core.store.objects) == [5, 10, 12], "ann was named for object 11"
    assert len(value_in(core, FetchAll(1, (12,), user="bea"))) == 1
    assert list(core.store.objects) == [5, 10]


def test_a_private_gradient_keeps_its_leaf_here(core: WorkerCore) -> None:
    leaf = torch.ones(2, requires_grad=True)
    put_all(core, 10, leaf, torch.ones(2), guards=((1, ("ann",), False, None),))
    assert ask(core, command("torch.Tensor.dot", ref(10), ref(11), out=12)) == Done(1)
    assert ask(core, command("torch.Tensor.backward", ref(12))) == Done(1)
    error = error_in(ask(core, FetchAll(1, (5, 10))))
    assert str(error).startswith("get_all of object 10")
    assert 5 in core.store.objects


def test_an_object_is_asked_for_once(core: WorkerCore) -> None:
    for ids in ((5, 5), (5, (5, 0)), ((5, 1), (5, 1))):
        error = error_in(ask(core, FetchAll(1, ids)))
        assert str(error).startswith("Malformed message at $.ids: expected each object once")
    error = error_in(ask(core, FetchAll(1, (5, 6))))
    assert type(error) is ObjectNotFound and error.id == 6
    assert list(core.store.objects) == [5]


def test_drops_come_first(core: WorkerCore) -> None:
    put(core, 6, torch.ones(1))
    assert put_all(core, 10, torch.ones(1), drop=(6,)) == Done(1)
    assert value_in(core, FetchAll(1, (10,), drop=(5,)))[0].tolist() == [1]
    assert list(core.store.objects) == []
