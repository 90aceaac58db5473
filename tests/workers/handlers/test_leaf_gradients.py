"""The gradients of many leaves at once, as the frames ask for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import MalformedMessage, ObjectIdTaken, ObjectNotFound, PermissionDenied
from syft.ops.control import LIKE_LEAF, NO_GRADIENT, OTHER_KIND
from syft.ops.returns import MOST
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.wire.messages import ClearGradients, Done, Gradients, Parked, Promise, Value
from tests.workers.core.peers import ask, error_in

HELD = [5, 1, 2, 3]
KINDS = [NO_GRADIENT, LIKE_LEAF, OTHER_KIND]


def leaves(core: WorkerCore) -> list[torch.Tensor]:
    """Three leaves with ids 1, 2 and 3: without a gradient, with a usual and with a sparse one."""
    tensors = [torch.ones(2, requires_grad=True) for _ in KINDS]
    tensors[1].grad = torch.tensor([3.0, 4.0])
    tensors[2].grad = torch.tensor([0.0, 5.0]).to_sparse()
    for id, tensor in enumerate(tensors, 1):
        core.store.put(id, tensor)
    return tensors


def values(reply: Any) -> list[int]:
    """The kinds in a reply."""
    assert type(reply) is Value
    return list(reply.value)


def test_each_gradient_gets_an_id(core: WorkerCore) -> None:
    tensors = leaves(core)
    assert values(ask(core, Gradients(1, (1, 2, 3), 10))) == KINDS
    assert core.store.objects[11] is tensors[1].grad and core.store.objects[12] is tensors[2].grad
    assert 10 not in core.store.objects


@pytest.mark.parametrize(
    "message, error",
    [
        (Gradients(1, (2, 7), 10), ObjectNotFound),
        (Gradients(1, (1, 2), 2), ObjectIdTaken),
        (Gradients(1, (1, 2), 0), MalformedMessage),
        (Gradients(1, (1, 2), -5), MalformedMessage),
        (Gradients(1, (1, 2), 2**63 - 2), MalformedMessage),
        (Gradients(1, (2,) * (MOST + 1), 10), MalformedMessage),
    ],
)
def test_if_one_cannot_be_stored_none_is(
    core: WorkerCore, message: Gradients, error: type[Exception]
) -> None:
    leaves(core)
    assert isinstance(error_in(ask(core, message)), error)
    assert list(core.store.objects) == HELD


def test_a_gradient_is_as_private_as_its_own_memory(core: WorkerCore) -> None:
    tensors = leaves(core)
    assert tensors[1].grad is not None
    protect(tensors[1].grad, Guard(frozenset(["ann"])))
    protect(tensors[2], Guard(frozenset(["ann"])))
    core.guard()
    assert values(ask(core, Gradients(1, (1, 2, 3), 10))) == KINDS
    assert core.store.objects[11] is tensors[1].grad
    guard = full_guard_of(core.store.objects[11])
    assert guard is not None and guard.users == {"ann"}
    assert full_guard_of(core.store.objects[12]) is None


@pytest.mark.parametrize("user, told", [(None, False), ("bea", False), ("ann", True)])
def test_whether_a_gradient_has_the_hidden_shape_is_told_to_those_who_may_know_it(
    core: WorkerCore, user: str | None, told: bool
) -> None:
    protect(leaves(core)[1], Guard(frozenset(["ann"]), shape_hidden=True))
    core.guard()
    reply = ask(core, Gradients(1, (1, 2), 10), peer=Peer("me", user))
    if told:
        assert values(reply) == KINDS[:2]
    else:
        assert isinstance(error_in(reply), PermissionDenied)
        assert list(core.store.objects) == HELD


def test_the_gradients_of_several_leaves_are_cleared(core: WorkerCore) -> None:
    tensors = leaves(core)
    assert type(ask(core, ClearGradients(1, (1, 3), (5,)))) is Done
    assert [tensor.grad is None for tensor in tensors] == [True, False, True]
    assert list(core.store.objects) == HELD[1:], "what was dropped is gone"


def test_if_one_is_missing_none_is_cleared(core: WorkerCore) -> None:
    tensors = leaves(core)
    assert isinstance(error_in(ask(core, ClearGradients(1, (2, 7)))), ObjectNotFound)
    assert [tensor.grad is None for tensor in tensors] == [True, False, False]


def test_clearing_waits_for_a_leaf_that_was_promised(core: WorkerCore) -> None:
    ask(core, Promise(1, (9,)))
    assert type(ask(core, ClearGradients(2, (9,)))) is Parked
    leaf = torch.ones(2, requires_grad=True)
    leaf.grad = torch.ones(2)
    core.hold(9, leaf)
    assert leaf.grad is None


def test_others_who_know_a_gradient_are_told_that_it_was_cleared(core: WorkerCore) -> None:
    leaves(core)
    me, she = Peer("me", None), Peer("ann", None)
    ask(core, Gradients(1, (2,), 10), peer=she)
    told: list[Peer] = []
    core.answer = lambda peer, reply: told.append(peer)  # type: ignore[method-assign]
    ask(core, ClearGradients(1, (2,)), peer=me)
    assert told == [she]


def test_an_answer_that_is_no_list_of_kinds_is_malformed(
    hook: sy.TorchHook, bob: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(2, requires_grad=True).send(bob)
    (x * 2).sum().backward()
    bob.collect()
    connection = hook.local_worker.connection_to(bob)
    for answer in (7, [1], b"\x01\x01"):
        monkeypatch.setattr(type(connection.requests), "send", lambda *args, wrong=answer: wrong)
        with pytest.raises(MalformedMessage, match="1 kinds as bytes"):
            x.grad  # noqa: B018
    monkeypatch.undo()
    assert x.grad.copy().get().tolist() == [2, 2]
