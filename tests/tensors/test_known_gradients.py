"""What is known of gradients and kinds is right or asked again, in whatever order it is read, and
whoever changes it: programs drawn at random, beside the same ones of plain torch.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.tensors.pointer import make_pointer

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "SGD one by one": lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=False),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True),
    "Adam": lambda parameters: torch.optim.Adam(parameters),
    "Adam one by one": lambda parameters: torch.optim.Adam(parameters, foreach=False),
}
KINDS = ("shape", "dtype", "layout", "is_sparse", "ndim", "is_leaf", "requires_grad")


class Here:
    """Two parameters in this process, and an optimizer of them."""

    def __init__(self, kind: str) -> None:
        self.leaves: list[Any] = [
            nn.Parameter(torch.tensor([1.0, -2.0])),
            nn.Parameter(torch.tensor([0.5])),
        ]
        self.optimizer = OPTIMIZERS[kind](self.leaves)

    def tensor(self, *values: float) -> Any:
        """A tensor where the parameters are."""
        return torch.tensor(values)

    def leaf(self, place: int, way: str) -> Any:
        """A parameter, as one reaches it in some way."""
        leaf = self.leaves[place]
        return leaf.contiguous() if way == "through an operation" else leaf

    @staticmethod
    def seen(value: Any) -> Any:
        """A gradient as numbers."""
        return None if value is None else value.tolist()


class There(Here):
    """The same at a worker, which somebody else uses too."""

    def __init__(self, kind: str, bob: sy.VirtualWorker, carol: sy.VirtualWorker) -> None:
        super().__init__(kind)
        self.bob = bob
        self.leaves = [leaf.send(bob, allow_writes=["alice"]) for leaf in self.leaves]
        self.optimizer = OPTIMIZERS[kind](self.leaves)
        self.theirs = carol.connection_to(bob)

    def tensor(self, *values: float) -> Any:
        return torch.tensor(values).send(self.bob)

    def leaf(self, place: int, way: str) -> Any:
        link = self.leaves[place].child
        if way == "through another pointer":
            return make_pointer(link.connection, link.id_at_location, False)
        if way == "of another caller":
            return make_pointer(self.theirs, link.id_at_location, False)
        return super().leaf(place, way)


WAYS = (
    "itself",
    "itself",
    "itself",
    "through an operation",
    "through another pointer",
    "of another caller",
)
ACTIONS: dict[str, Callable[[Here, int, str], Any]] = {}


def action(act: Callable[[Here, int, str], Any]) -> Callable[[Here, int, str], Any]:
    """Enter one thing that a program may do; it returns what is seen of it."""
    ACTIONS[act.__name__] = act
    return act


@action
def read(at: Here, place: int, way: str) -> Any:
    return at.seen(at.leaf(place, way).grad)


@action
def read_twice(at: Here, place: int, way: str) -> Any:
    leaf = at.leaf(place, way)
    return [leaf.grad is None, at.seen(leaf.grad), leaf.grad is None]


@action
def read_all(at: Here, place: int, way: str) -> Any:
    return [at.seen(leaf.grad) for leaf in at.leaves]


@action
def kinds(at: Here, place: int, way: str) -> Any:
    leaf = at.leaf(place, way)
    return [getattr(leaf, name) for name in KINDS] + [leaf.size(), leaf.dim(), leaf.numel()]


@action
def kinds_of_a_gradient(at: Here, place: int, way: str) -> Any:
    gradient = at.leaf(place, way).grad
    return None if gradient is None else [gradient.shape, gradient.dtype, gradient.is_leaf]


@action
def backward(at: Here, place: int, way: str) -> None:
    if way == "of another caller":
        way = "itself"  # a pass of two callers' pointers is refused
    (at.leaf(place, way) ** 2).sum().backward()


@action
def backward_of_both(at: Here, place: int, way: str) -> None:
    (at.leaves[0] * at.leaves[1] * 3).sum().backward()


@action
def their_backward(at: Here, place: int, way: str) -> None:
    theirs = "of another caller" if way == "of another caller" else "through another pointer"
    (at.leaf(place, theirs) ** 3).sum().backward()


@action
def step(at: Here, place: int, way: str) -> None:
    at.optimizer.step()


@action
def zero_grad(at: Here, place: int, way: str) -> None:
    at.optimizer.zero_grad()


@action
def zero_grad_in_place(at: Here, place: int, way: str) -> None:
    at.optimizer.zero_grad(set_to_none=False)


@action
def take_away(at: Here, place: int, way: str) -> None:
    at.leaf(place, way).grad = None


@action
def delete(at: Here, place: int, way: str) -> None:
    del at.leaf(place, way).grad


@action
def replace(at: Here, place: int, way: str) -> None:
    if way == "of another caller":
        way = "through another pointer"
    at.leaf(place, way).grad = at.tensor(*([2.0, 3.0][: 2 - place]))


@action
def write_to(at: Here, place: int, way: str) -> None:
    gradient = at.leaf(place, way).grad
    if gradient is not None:
        gradient.mul_(2).add_(1)


@action
def write_to_the_leaf(at: Here, place: int, way: str) -> None:
    with torch.no_grad():
        at.leaf(place, way).mul_(0.5)


@action
def step_of_the_user(at: Here, place: int, way: str) -> None:
    leaf = at.leaf(place, "itself")
    if leaf.grad is not None:
        leaf.data = leaf.data - leaf.grad * 0.1


def values(at: Here) -> Any:
    """All that there is at the end."""
    return [(leaf.tolist(), at.seen(leaf.grad)) for leaf in at.leaves]


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("part", range(4))
def test_what_is_read_is_what_torch_reads(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, kind: str, part: int
) -> None:
    for seed in range(5 * part, 5 * part + 5):
        draw, here, there = random.Random(f"{kind} {seed}"), Here(kind), There(kind, bob, alice)
        did = []
        for _ in range(30):
            name, place = draw.choice(list(ACTIONS)), draw.randrange(2)
            way = draw.choice(WAYS if seed % 2 else WAYS[:-1])
            did.append((name, place, way))
            expected = ACTIONS[name](here, place, way)
            assert ACTIONS[name](there, place, way) == expected, did
        assert values(there) == values(here), did


def test_a_gradient_that_was_fetched_is_asked_for_again(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob).requires_grad_()
    (x * x).sum().backward()
    first = x.grad
    assert x.grad is first
    assert first.get().tolist() == [2, 2]
    assert x.grad is not first and x.grad.tolist() == [2, 2]
    kept = x.grad
    kept.child.gc = False
    assert x.grad is not kept and x.grad.tolist() == [2, 2]
    bob.core.store.drop(kept.id_at_location, "nobody wants it")


def test_what_is_known_is_not_for_another_user(bob: sy.VirtualWorker, me: Any) -> None:
    x = torch.ones(2).send(bob).requires_grad_()
    (x * x).sum().backward()
    assert x.grad is x.grad and x.dim() == 1
    passes = x.child.connection.facts._backward_passes
    me.user = "ann"
    try:
        assert x.grad is not None
        assert x.child.connection.facts._backward_passes > passes
    finally:
        me.user = None
    assert x.grad.tolist() == [2, 2]


def test_what_is_known_of_a_closed_worker_is_not_told(hook: sy.TorchHook) -> None:
    bob = sy.VirtualWorker(hook, id="bob")
    x = torch.ones(2).send(bob).requires_grad_()
    (x * x).sum().backward()
    assert x.grad is not None and x.dim() == 1
    bob.close()
    for ask in (lambda: x.grad, lambda: x.dim()):
        with pytest.raises(sy.exceptions.WorkerClosed):
            ask()


def test_modes_see_what_is_known(bob: sy.VirtualWorker) -> None:
    class Seeing(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x, seen = torch.ones(2).send(bob).requires_grad_(), list[Any]()
    assert x.grad is None and x.grad is None and x.dim() == x.dim() == 1
    with Seeing():
        assert x.grad is None and x.dim() == 1
    assert seen == [torch.Tensor.grad.__get__, torch.Tensor.dim]  # type: ignore[attr-defined]
