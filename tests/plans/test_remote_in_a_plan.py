"""A plan that talks to workers while it is built: refused by name, before anything is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import CannotRecord
from tests.chain.refusal import refusal

ASKS = (
    "a plan asks nothing of workers. Send or fetch before it is built; to have it work there, send "
    "the plan (plan.send(worker)) and call that with pointers."
)
HAND_IN = "hand it in as an argument: record with plain tensors, and call the plan with these."


class Scene:
    """What functions that are recorded may use."""

    def __init__(self, hook: sy.TorchHook) -> None:
        self.me = hook.local_worker
        self.bob = sy.VirtualWorker(hook, id="bob")
        self.alice = sy.VirtualWorker(hook, id="alice")
        self.queued = sy.VirtualWorker(hook, id="queued", pipelined=True)
        self.pointer = torch.tensor([1.0, 2.0]).send(self.bob)
        self.later = torch.tensor([1.0, 2.0]).send(self.queued)
        self.both = torch.ones(2).send(self.bob, self.alice)
        self.outer = torch.ones(2).send(self.alice).send(self.bob)
        self.chain = sy.LoggingTensor().on(torch.ones(2)).send(self.bob)
        self.logger = sy.LoggingTensor().on(torch.ones(2))
        self.plan = sy.func2plan(args_shape=[(2,)], state=[torch.ones(2)])(inner)
        self.remote_plan = self.plan.send(self.bob)
        self.model = nn.Linear(2, 2)
        self.weight = torch.ones(2, requires_grad=True)
        self.remote_model = nn.Linear(2, 2).send(self.bob)
        self.integers = [torch.tensor([1]).send(place) for place in (self.bob, self.alice)]

    def objects(self) -> list[list[int]]:
        return [worker.list_objects() for worker in (self.bob, self.alice, self.queued, self.me)]


def inner(x: torch.Tensor, state: Any) -> torch.Tensor:
    return x + state.read()[0]


ASKED: dict[str, tuple[Callable[[Scene, torch.Tensor], Any], str]] = {
    "send": (lambda s, x: x.send(s.bob), "send() to worker 'bob'"),
    "send to a queued worker": (lambda s, x: x.send(s.queued), "send() to worker 'queued'"),
    "send home": (lambda s, x: x.send(s.me), "send() to worker 'me'"),
    "send and get": (lambda s, x: x.send(s.bob).get(), "send() to worker 'bob'"),
    "send to several": (lambda s, x: x.send(s.alice, s.bob), "send() to worker 'alice'"),
    "send what was computed": (lambda s, x: (x * s.weight).send(s.bob), "send() to worker 'bob'"),
    "send a tensor from outside": (lambda s, x: s.weight.send(s.bob), "send() to worker 'bob'"),
    "send a pointer": (lambda s, x: s.pointer.send(s.alice), "send() to worker 'alice'"),
    "send a constant": (
        lambda s, x: x.send(s.bob, id=sy.ids.content),
        "send() to worker 'bob'",
    ),
    "send a model": (lambda s, x: s.model.send(s.bob), "send() to worker 'bob'"),
    "send a plan": (lambda s, x: s.plan.send(s.bob), "send() to worker 'bob'"),
    "copy": (lambda s, x: s.pointer.copy(), "copy() at worker 'bob'"),
    "copy a plan": (lambda s, x: s.remote_plan.copy(), "copy() at worker 'bob'"),
    "get": (lambda s, x: x + s.pointer.get(), "get() from worker 'bob'"),
    "get from a queued worker": (lambda s, x: s.later.get(), "get() from worker 'queued'"),
    "get several": (lambda s, x: s.both.get(), "get() from worker 'bob'"),
    "get a model": (lambda s, x: s.remote_model.get(), "get() from worker 'bob'"),
    "get a plan": (lambda s, x: s.remote_plan.get(), "get() from worker 'bob'"),
    "move": (lambda s, x: s.pointer.move(s.alice), "move() from worker 'bob'"),
    "move home": (lambda s, x: s.pointer.move(s.me), "get() from worker 'bob'"),
    "move a plan": (lambda s, x: s.remote_plan.move(s.alice), "move() from worker 'bob'"),
    "remote_get": (
        lambda s, x: s.outer.remote_get(),
        "remote_send() or remote_get() at worker 'bob'",
    ),
    "remote_send": (
        lambda s, x: s.pointer.remote_send(s.alice),
        "remote_send() or remote_get() at worker 'bob'",
    ),
    "make": (lambda s, x: s.bob.torch.zeros(2), "torch.zeros at worker 'bob'"),
    "make and drop": (lambda s, x: (s.bob.torch.zeros(2), x)[1], "torch.zeros at worker 'bob'"),
    "make by size": (lambda s, x: s.bob.torch.rand(x.shape[0]), "torch.rand at worker 'bob'"),
    "make at a queued worker": (
        lambda s, x: s.queued.torch.zeros(2),
        "torch.zeros at worker 'queued'",
    ),
    "make in a branch": (
        lambda s, x: sy.cond(x.sum() > 0, lambda y: y + len(s.bob.torch.zeros(2)), abs, x),
        "torch.zeros at worker 'bob'",
    ),
    "send in a branch": (
        lambda s, x: sy.cond(x.sum() > 0, lambda y: y.send(s.bob).get(), lambda y: y, x),
        "send() to worker 'bob'",
    ),
    "promise": (lambda s, x: s.bob.promise(), "promise() of worker 'bob'"),
    "search": (lambda s, x: s.bob.search("#a"), "search() of worker 'bob'"),
    "tag": (lambda s, x: s.pointer.tag("#a"), "tag() or describe() at worker 'bob'"),
    "tags": (lambda s, x: s.pointer.tags, "reading tags at worker 'bob'"),
    "shape": (lambda s, x: x.view(s.pointer.shape), "torch.Tensor.shape.__get__ at worker 'bob'"),
    "len": (lambda s, x: x * len(s.pointer), "torch.Tensor.__len__ at worker 'bob'"),
    "fix_precision": (
        lambda s, x: s.pointer.fix_precision(),
        "fix_precision() or float_precision() at worker 'bob'",
    ),
    "call a plan": (
        lambda s, x: s.remote_plan(s.pointer),
        "a call of plan 'inner' at worker 'bob'",
    ),
    "call a plan with an argument": (
        lambda s, x: s.remote_plan(x),
        "a call of plan 'inner' at worker 'bob'",
    ),
    "state of a plan": (lambda s, x: s.remote_plan.state_dict(), "a call at worker 'bob'"),
    "collective": (
        lambda s, x: sy.sum_private(*s.integers),
        "a collective operation with worker 'bob'",
    ),
}

USED: dict[str, tuple[Callable[[Scene, torch.Tensor], Any], str]] = {
    "add": (lambda s, x: s.pointer + 1, "torch.Tensor.add of a pointer to worker 'bob'"),
    "added": (lambda s, x: x + s.pointer, "torch.Tensor.add of a pointer to worker 'bob'"),
    "queued": (lambda s, x: s.later + 1, "torch.Tensor.add of a pointer to worker 'queued'"),
    "keyword": (
        lambda s, x: torch.add(x, other=s.pointer),
        "torch.add of a pointer to worker 'bob'",
    ),
    "in a list": (lambda s, x: torch.cat([x, s.pointer]), "torch.cat of a pointer to worker 'bob'"),
    "in place": (lambda s, x: s.pointer.add_(x), "torch.Tensor.add_ of a pointer to worker 'bob'"),
    "index": (
        lambda s, x: x * s.pointer[0].item(),
        "torch.Tensor.__getitem__ of a pointer to worker 'bob'",
    ),
    "item": (lambda s, x: s.pointer.item(), "torch.Tensor.item of a pointer to worker 'bob'"),
    "backward": (
        lambda s, x: s.pointer.backward(),
        "torch.Tensor.backward of a pointer to worker 'bob'",
    ),
    "gradient": (
        lambda s, x: s.pointer.grad,
        "torch.Tensor.grad.__get__ of a pointer to worker 'bob'",
    ),
    "in a group": (
        lambda s, x: s.pointer.begin_msg_group().release_msg_group().add(1),
        "torch.Tensor.add of a pointer to worker 'bob'",
    ),
    "model": (
        lambda s, x: s.remote_model(x),
        "torch.nn.functional.linear of a pointer to worker 'bob'",
    ),
    "inside a chain": (
        lambda s, x: x + s.chain.child.child.child,
        "torch.Tensor.add of a pointer to worker 'bob'",
    ),
    "inside a chain, by a function": (
        lambda s, x: torch.abs(s.chain.child.child.child),
        "torch.abs of a pointer to worker 'bob'",
    ),
    "several": (lambda s, x: s.both + x, "torch.Tensor.add of a MultiPointerTensor"),
    "logging": (lambda s, x: x * s.logger, "torch.Tensor.mul of a LoggingTensor"),
    "in a branch": (
        lambda s, x: sy.cond(x.sum() > 0, lambda y: y + s.pointer, lambda y: y, x),
        "torch.Tensor.add of a pointer to worker 'bob'",
    ),
    "given to a branch": (
        lambda s, x: sy.cond(x.sum() > 0, lambda y: y, lambda y: y, s.pointer),
        "a pointer to worker 'bob'",
    ),
    "returned": (lambda s, x: s.pointer, "a pointer to worker 'bob'"),
}


@pytest.mark.parametrize("kind", [*ASKED, *USED])
def test_it_is_refused_and_nothing_is_sent(hook: sy.TorchHook, kind: str) -> None:
    s = Scene(hook)
    function, what = (ASKED | USED)[kind]
    before = s.objects()
    plan = sy.func2plan()(lambda x: function(s, x))
    with hook.record() as log:
        text = refusal(lambda: plan.build(torch.ones(2)))
        assert list(log) == []
    head, _, rest = text.partition(f" ({__file__}:")
    assert head == f"CannotRecord: A plan cannot keep {what}"
    assert rest.partition("): ")[2] == (ASKS if kind in ASKED else HAND_IN)
    assert s.objects() == before and not plan.is_built
    assert s.pointer.get().tolist() == [1.0, 2.0]


def test_it_is_refused_even_if_the_function_catches_it(hook: sy.TorchHook) -> None:
    s = Scene(hook)

    def careless(x: torch.Tensor) -> torch.Tensor:
        try:
            x.send(s.bob)
        except CannotRecord:
            pass
        return x

    assert refusal(lambda: sy.func2plan(args_shape=[(2,)])(careless)).startswith(
        "CannotRecord: A plan cannot keep send() to worker 'bob'"
    )


def test_what_was_asked_before_is_done_unseen(hook: sy.TorchHook) -> None:
    s = Scene(hook)
    total = s.later + 5

    def waits(x: torch.Tensor) -> torch.Tensor:
        total.child.handle.wait()
        sy.synchronize()
        return x * 2

    plan = sy.func2plan(args_shape=[(2,)])(waits)
    assert [action.name for action in plan.actions] == ["torch.Tensor.mul"]
    assert total.get().tolist() == [6.0, 7.0]


def test_a_pointer_may_die_or_be_looked_at(hook: sy.TorchHook) -> None:
    s = Scene(hook)

    def looks(x: torch.Tensor) -> torch.Tensor:
        s.places = [s.pointer.location.id, repr(s.pointer), s.pointer.id]  # type: ignore
        s.later = s.outer = s.pointer
        return x * 2

    plan = sy.func2plan(args_shape=[(2,)])(looks)
    assert [action.name for action in plan.actions] == ["torch.Tensor.mul"]
    assert s.pointer.get().tolist() == [1.0, 2.0]
