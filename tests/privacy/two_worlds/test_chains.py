"""The attacks on chains: fixed precision, and a link that logs, at the worker that has the secret.

A chain is as private as the memory of its elements, and whether an operation on it fails is kept
from those who may not see them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import syft as sy
from syft.program.program import Program, Slot
from syft.tensors.fixed.precision import fix_precision
from syft.workers.wire.messages import Convert
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.attacks import ONE, OTHER, action, check, check_reaches
from tests.privacy.two_worlds.observer import Observer

Put = Callable[[torch.Tensor], torch.Tensor]


def logged(tensor: torch.Tensor) -> torch.Tensor:
    """A link that logs before a tensor."""
    return sy.LoggingTensor().on(tensor)


KINDS: dict[str, Put] = {"fixed": fix_precision, "logged": logged}


class Chains:
    """The observer, whose tensors are chains of one kind, and the secret, which may be plain."""

    def __init__(self, eve: Observer, put: Put, plain: bool) -> None:
        self.eve, self._put, self._plain = eve, put, plain
        self.call = eve.call

    def secret(self) -> Reference:
        if self._plain:
            return self.plain_secret()
        return self.eve.secret(self._put(ONE), self._put(OTHER))

    def plain_secret(self) -> Reference:
        return self.eve.secret(ONE, OTHER)

    def ones(self, *shape: int, grad: bool = False) -> Reference:
        made = self._put(torch.ones(shape or (3,)))
        return self.eve.public(made.requires_grad_() if grad else made)

    def place(self) -> Reference:
        """A private index: 9 in the first world, and 0 in the second one."""
        yes = self.call("torch.gt", self.call("torch.narrow", self.plain_secret(), 0, 0, 1), 0)
        found: Reference = self.call("torch.mul", self.call("torch.Tensor.long", yes), 9)
        return found

    def too_large(self) -> Reference:
        """A private number, which has a place on the grid in the second world only."""
        number = self.call("torch.Tensor.float", self.place())
        found: Reference = self.call("torch.mul", number, 1e20)
        return found

    def loss(self, *factors: Reference) -> Reference:
        """The sum of a product."""
        product = factors[0]
        for factor in factors[1:]:
            product = self.call("torch.mul", product, factor)
        found: Reference = self.call("torch.sum", product)
        return found


def added_to_a_public_gradient(c: Chains) -> None:
    leaf = c.ones(grad=True)
    c.call("torch.Tensor.backward", c.loss(leaf, c.ones()))
    gradient = c.call("torch.Tensor.grad.__get__", leaf)
    c.call("torch.Tensor.view", gradient, 3)
    c.call("torch.Tensor.detach", gradient)
    c.call("torch.Tensor.backward", c.loss(leaf, c.secret()))


def added_to_a_gradient_that_was_set(c: Chains) -> None:
    leaf, base = c.ones(grad=True), c.ones()
    c.call("torch.Tensor.grad.__set__", leaf, base)
    c.call("torch.Tensor.backward", c.loss(leaf, c.secret()))


def a_gradient_that_is_the_secret(c: Chains) -> None:
    leaf = c.ones(grad=True)
    c.call("torch.Tensor.grad.__set__", leaf, c.secret())
    c.call("torch.Tensor.backward", c.loss(leaf, c.ones()))
    c.call("torch.Tensor.grad.__get__", leaf)


def written_after_it_was_saved(c: Chains) -> None:
    leaf, weight = c.ones(grad=True), c.ones()
    loss = c.loss(leaf, weight)
    c.call("torch.Tensor.copy_", c.call("torch.Tensor.data.__get__", weight), c.secret())
    c.call("torch.Tensor.backward", loss)
    c.call("torch.Tensor.grad.__get__", leaf)


def put_in_the_place_of_data(c: Chains) -> None:
    leaf, weight = c.ones(grad=True), c.ones()
    loss = c.loss(leaf, weight)
    c.call("torch.Tensor.data.__set__", weight, c.secret())
    c.call("torch.Tensor.backward", loss)
    c.call("torch.Tensor.grad.__get__", leaf)


def written_in_place(c: Chains) -> None:
    target, view = c.ones(), c.ones()
    c.call("torch.Tensor.view", target, 3)
    c.call("torch.Tensor.add_", target, c.secret())
    c.call("torch.Tensor.__setitem__", view, slice(0, 2), c.call("torch.neg", c.secret()))


def written_to_what_is_plain(c: Chains) -> None:
    target = c.eve.public(torch.ones(3))
    c.call("torch.Tensor.mul_", target, c.secret())
    c.call("torch.add", c.secret(), 1, out=c.eve.public(torch.ones(3)))


def put_together(c: Chains) -> None:
    c.call("torch.cat", [c.ones(), c.secret()])
    c.call("torch.stack", [c.ones(), c.secret()])
    c.call("torch.where", c.eve.public(torch.tensor([True, False, True])), c.ones(), c.secret())
    c.call("torch._foreach_add_", [c.ones(), c.ones()], [c.secret(), c.ones()])


def looked_at(c: Chains) -> None:
    private = c.secret()
    c.call("torch.Tensor.view", private, 3)
    c.call("torch.Tensor.expand", private, 2, 3)
    c.call("torch.Tensor.item", c.call("torch.max", private))
    c.call("torch.Tensor.tolist", private)
    c.call("torch.Tensor.detach", private)
    c.call("torch.gt", private, 0)


def begun_with_the_secret(c: Chains) -> None:
    leaf = c.ones(grad=True)
    c.call("torch.Tensor.backward", c.call("torch.mul", leaf, c.ones()), c.secret())
    c.call("torch.Tensor.grad.__get__", leaf)


def begun_with_what_is_public(c: Chains) -> None:
    """The first gradient may become that of a leaf, to which a second pass adds."""
    leaf, start = c.ones(grad=True), c.ones()
    c.call("torch.Tensor.backward", c.call("torch.add", leaf, c.secret()), start)
    c.call("torch.Tensor.backward", c.loss(leaf, c.secret()))


def in_a_group(c: Chains) -> None:
    steps = (
        action("torch.mul", Slot(0), Slot(1), out=Slot(2)),
        action("torch.sum", Slot(2), out=Slot(3)),
        action("torch.Tensor.backward", Slot(3)),
        action("torch.Tensor.grad.__get__", Slot(0), out=Slot(4)),
        action("torch.Tensor.view", Slot(4), 3, out=Slot(5)),
    )
    c.eve.group(Program(2, steps, (Slot(4), Slot(5))), [c.ones(grad=True), c.secret()], 2)


def converted(c: Chains) -> None:
    private = c.plain_secret()
    out = c.eve.id()
    c.eve.request(Convert(c.eve.count(), private.id, 0, (2, 16), out))
    c.call("torch.add", Reference(out), 1)


STEALING: tuple[Callable[[Chains], None], ...] = (
    added_to_a_public_gradient,
    added_to_a_gradient_that_was_set,
    a_gradient_that_is_the_secret,
    written_after_it_was_saved,
    put_in_the_place_of_data,
    written_in_place,
    put_together,
    looked_at,
    begun_with_the_secret,
    begun_with_what_is_public,
    in_a_group,
)


def encoding(c: Chains) -> None:
    c.call("torch.add", c.ones(1), c.too_large())


def encoding_in_place(c: Chains) -> None:
    c.call("torch.Tensor.add_", c.call("torch.mul", c.secret(), 0), c.too_large())


def an_index(c: Chains) -> None:
    c.call("torch.Tensor.__getitem__", c.ones(), c.place())


def an_index_of_rows(c: Chains) -> None:
    leaf = c.ones(grad=True)
    found = c.call("torch.index_select", leaf, 0, c.place())
    c.call("torch.Tensor.backward", c.call("torch.sum", found))
    c.call("torch.Tensor.grad.__get__", leaf)


def an_index_of_two_rows(c: Chains) -> None:
    """Gradients come to the leaf whether the index is one or not."""
    leaf, place = c.ones(grad=True), c.place()
    found = c.call("torch.index_select", leaf, 0, c.call("torch.cat", [place, place]))
    c.call("torch.Tensor.backward", c.call("torch.sum", found))
    c.call("torch.Tensor.grad.__get__", leaf)


def an_index_that_is_written(c: Chains) -> None:
    target = c.call("torch.mul", c.secret(), 0)
    c.call("torch.Tensor.index_fill_", target, 0, c.place(), 0.0)
    c.call("torch.sum", target)


def in_a_plan(c: Chains) -> None:
    steps = (
        action("torch.index_select", Slot(0), 0, Slot(1), out=Slot(2)),
        action("torch.add", Slot(2), 1, out=Slot(3)),
    )
    c.eve.plan(Program(2, steps, (Slot(3),)), [c.ones(), c.place()], 1)


ASKING: tuple[Callable[[Chains], None], ...] = (
    encoding,
    encoding_in_place,
    an_index,
    an_index_of_rows,
    an_index_of_two_rows,
    an_index_that_is_written,
    in_a_plan,
)


HARMLESS: dict[tuple[str, Callable[[Chains], None]], str] = {
    ("logged", encoding): "only a grid has an end",
    ("logged", encoding_in_place): "only a grid has an end",
    (
        "fixed",
        put_in_the_place_of_data,
    ): "the object gets other integers, and the graph keeps its own",
}
SECRETS = pytest.mark.parametrize("plain", [False, True], ids=["a chain", "a plain secret"])


@SECRETS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attack", (*STEALING, *ASKING, written_to_what_is_plain, converted))
def test_attacks_through_chains(attack: Callable[[Chains], None], kind: str, plain: bool) -> None:
    check(lambda eve: attack(Chains(eve, KINDS[kind], plain)))


@SECRETS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attack", (*STEALING, *ASKING))
def test_the_attacks_come_to_the_secret(
    attack: Callable[[Chains], None], kind: str, plain: bool
) -> None:
    if (kind, attack) in HARMLESS:
        pytest.skip(HARMLESS[kind, attack])
    check_reaches(lambda eve: attack(Chains(eve, KINDS[kind], plain)))
