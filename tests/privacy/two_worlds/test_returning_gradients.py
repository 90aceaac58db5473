"""Attack 4, with gradients that follow a move to a worker that the owner has named.

The observer's leaf is at alice.  A part of its graph is moved to bob, where it meets ann's data,
which may go to alice.  So a backward pass at bob sends a private gradient to alice, on whose side
the pass goes on.  Whether one is sent, and what it looks like, follows from the graph: not from
values, not from a pass that fails half-way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.program.program import Program, Slot
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.arrivals import (
    Left,
    check_arrives,
    phase_of_eigenvectors,
    twice,
)
from tests.privacy.two_worlds.attacks import (
    action,
    check,
    check_reaches,
    named,
    ones,
    secret,
    succeeded,
)
from tests.privacy.two_worlds.observer import Observer

Attack = Callable[[Observer], list[Left]]


def leaf_and_part(
    eve: Observer, shape: tuple[int, ...] = (3,), at: str = "alice"
) -> tuple[Reference, Reference]:
    """A leaf of ones at a worker, and twice that leaf, which moved to bob with its graph behind."""
    leaf = eve.public(torch.ones(shape, requires_grad=True), at)
    part = succeeded(eve.call("torch.mul", leaf, 2, worker=at))
    return leaf, succeeded(eve.move(part, "bob", at, grad=True))


def backward(eve: Observer, value: Any, **options: Any) -> Any:
    return eve.call("torch.Tensor.backward", eve.call("torch.sum", value), **options)


def came(leaf: Reference | int, expected: Any, **about: Any) -> Left:
    """The gradient of a leaf at alice."""
    return Left(leaf, "alice", expected, gradient=True, **about)


def returns(eve: Observer) -> list[Left]:
    leaf, part = leaf_and_part(eve)
    succeeded(backward(eve, eve.call("torch.mul", part, named(eve))))
    return [came(leaf, twice), Left(part, "bob", lambda x: x, ("alice",), gradient=True)]


def returns_twice(eve: Observer) -> list[Left]:
    """Torch adds the second one to the first."""
    leaf, part = leaf_and_part(eve)
    product = eve.call("torch.mul", part, named(eve))
    succeeded(backward(eve, product, retain_graph=True))
    succeeded(backward(eve, product))
    return [came(leaf, lambda x: x * 4)]


def returns_to_a_public_gradient(eve: Observer) -> list[Left]:
    leaf, part = leaf_and_part(eve)
    succeeded(backward(eve, part))
    succeeded(backward(eve, eve.call("torch.mul", part, named(eve))))
    return [came(leaf, lambda x: x * 2 + 2)]


def returns_from_a_private_start(eve: Observer) -> list[Left]:
    leaf, part = leaf_and_part(eve)
    succeeded(eve.call("torch.Tensor.backward", eve.call("torch.mul", part, 1), named(eve)))
    return [came(leaf, twice)]


def stays_where_autograd_grad_was_asked(eve: Observer) -> list[Left]:
    """As in torch, it is a result, and is added to no leaf."""
    leaf, part = leaf_and_part(eve)
    loss = eve.call("torch.sum", eve.call("torch.mul", part, named(eve)))
    (gradient,) = succeeded(eve.call("torch.autograd.grad", loss, part))
    return [came(leaf, None), Left(gradient, "bob", lambda x: x, ("alice",))]


def limited_returns_to_nobody(eve: Observer) -> list[Left]:
    """A pass that is limited to one of two leaves adds to its gradient alone, as in torch."""
    leaf, part = leaf_and_part(eve)
    other, another = leaf_and_part(eve)
    product = eve.call("torch.mul", eve.call("torch.mul", part, another), named(eve))
    succeeded(backward(eve, product, inputs=[part]))
    eve.gradient(other.id, "alice")
    found = Left(part, "bob", twice, ("alice",), gradient=True)
    return [came(leaf, None), came(other, None), found]


def returns_in_a_group(eve: Observer) -> list[Left]:
    leaf, part = leaf_and_part(eve)
    program = Program(
        2,
        (
            action("torch.mul", Slot(0), Slot(1), out=Slot(2)),
            action("torch.sum", Slot(2), out=Slot(3)),
            action("torch.Tensor.backward", Slot(3), out=None),
        ),
        (Slot(3),),
    )
    succeeded(eve.group(program, [part, named(eve)], 1))
    return [came(leaf, twice)]


def returns_to_what_moved(eve: Observer) -> list[Left]:
    """The leaf at bob gets new memory, since something private was added to it."""
    leaf, part = leaf_and_part(eve)
    product = eve.call("torch.mul", part, named(eve))
    succeeded(eve.call("torch.Tensor.add_", part, named(eve), grad=False))
    backward(eve, product)
    succeeded(backward(eve, eve.call("torch.mul", part, named(eve))))
    return [came(leaf, lambda x: x * 4)]


def goes_out_and_returns(eve: Observer) -> list[Left]:
    """What was computed at bob with ann's data is a leaf at alice, whose gradient comes back."""
    leaf = ones(eve, grad=True)
    part = succeeded(eve.call("torch.mul", leaf, named(eve)))
    succeeded(eve.move(part, "alice", grad=True))
    loss = eve.call("torch.sum", part, worker="alice")
    succeeded(eve.call("torch.Tensor.backward", loss, worker="alice"))
    return [Left(leaf, "bob", lambda x: x, ("alice",), gradient=True)]


def a_private_shape(eve: Observer) -> list[Left]:
    """How many values are above one is not the size of what returns."""
    leaf, part = leaf_and_part(eve)
    private = named(eve)
    mask = eve.call("torch.gt", private, 1)
    backward(eve, eve.call("torch.masked_select", part, mask))
    eve.gradient(leaf.id, "alice")
    return []


# ---------------------------------------------------------------------------- where it may not go


def refused_for_what_may_go_nowhere(eve: Observer) -> list[Left]:
    leaf, part = leaf_and_part(eve)
    product = eve.call("torch.mul", part, named(eve))
    backward(eve, eve.call("torch.mul", product, secret(eve)))
    succeeded(backward(eve, eve.call("torch.mul", part, named(eve))))
    return [came(leaf, twice)]


def refused_for_one_of_two(eve: Observer) -> list[Left]:
    """One leaf is at alice and one at the observer's worker: neither gets anything."""
    leaf, part = leaf_and_part(eve)
    hers, other = leaf_and_part(eve, at="eve")
    product = eve.call("torch.mul", eve.call("torch.mul", part, other), named(eve))
    backward(eve, product)
    eve.gradient(hers.id, "eve")
    eve.gradient(leaf.id, "alice")
    succeeded(backward(eve, eve.call("torch.mul", part, named(eve))))
    return [came(leaf, twice)]


def goes_on_to_her_worker(eve: Observer) -> list[Left]:
    """The leaf is at the observer's worker, one part of it at alice, and one of that at bob."""
    hers = eve.public(torch.ones(3, requires_grad=True), "eve")
    part = succeeded(eve.call("torch.mul", hers, 2, worker="eve"))
    succeeded(eve.move(part, "alice", "eve", grad=True))
    leaf, again = leaf_and_part(eve)
    on = succeeded(eve.call("torch.mul", part, 2, worker="alice"))
    succeeded(eve.move(on, "bob", "alice", grad=True))
    backward(eve, eve.call("torch.mul", on, named(eve)))
    eve.gradient(hers.id, "eve")
    succeeded(backward(eve, eve.call("torch.mul", again, named(eve))))
    return [came(leaf, twice)]


def meets_alices_own(eve: Observer) -> list[Left]:
    """The graph at alice holds private data that may go to bob; its gradient is as private."""
    leaf = eve.public(torch.ones(3, requires_grad=True), "alice")
    here = named(eve, worker="alice", destinations=("bob",))
    part = succeeded(eve.call("torch.mul", leaf, here, worker="alice"))
    succeeded(eve.move(part, "bob", "alice", grad=True))
    succeeded(backward(eve, eve.call("torch.mul", part, named(eve))))
    return [came(leaf, lambda x: x * x, destinations=("bob",))]


# ------------------------------------------------------------------------------------ what failed


def failing_index(eve: Observer) -> Reference:
    """An index that is out of range in the first world."""
    return eve.secret(torch.tensor([9]), torch.tensor([1]), "bob", ("alice",))


def returns_from_what_failed(eve: Observer) -> list[Left]:
    """The result of a command that failed has a graph too, through which nothing real comes."""
    leaf, part = leaf_and_part(eve)
    backward(eve, eve.call("torch.take", part, failing_index(eve)))
    return [came(leaf, lambda x: torch.tensor([0.0, 2.0, 0.0]), failed=IndexError)]


def nothing(numbers: torch.Tensor) -> torch.Tensor:
    return torch.zeros(2, 2)


def returns_from_a_pass_that_fails(eve: Observer) -> list[Left]:
    leaf, part = leaf_and_part(eve, (2, 2))
    loss = phase_of_eigenvectors(eve, part)
    succeeded_if_private(eve, eve.call("torch.Tensor.backward", loss))
    return [came(leaf, nothing, failed=RuntimeError)]


def stays_where_autograd_grad_failed(eve: Observer) -> list[Left]:
    leaf, part = leaf_and_part(eve, (2, 2))
    loss = phase_of_eigenvectors(eve, part)
    succeeded_if_private(eve, eve.call("torch.autograd.grad", loss, part))
    return [came(leaf, None)]


def returns_from_a_pass_that_fails_half_way(eve: Observer) -> list[Left]:
    """What torch comes to before the failure, and what after it."""
    (early, one), (late, two) = leaf_and_part(eve), leaf_and_part(eve)
    leaf, part = leaf_and_part(eve, (2, 2))
    first = eve.call("torch.sum", eve.call("torch.mul", one, named(eve)))
    total = eve.call("torch.add", first, phase_of_eigenvectors(eve, part))
    last = eve.call("torch.sum", eve.call("torch.mul", two, named(eve)))
    total = eve.call("torch.add", total, last)
    succeeded_if_private(eve, eve.call("torch.Tensor.backward", total))
    each = (came(other, twice, failed=RuntimeError) for other in (early, late))
    return [came(leaf, nothing, failed=RuntimeError), *each]


def goes_out_and_a_pass_fails_there(eve: Observer) -> list[Left]:
    leaf = ones(eve, 2, 2, grad=True)
    part = succeeded(eve.call("torch.mul", leaf, named(eve, 2, 2)))
    succeeded(eve.move(part, "alice", grad=True))
    loss = phase_of_eigenvectors(eve, part, "alice")
    succeeded_if_private(eve, eve.call("torch.Tensor.backward", loss, worker="alice"))
    return [Left(leaf, "bob", nothing, ("alice",), gradient=True, failed=RuntimeError)]


def there_and_back(eve: Observer) -> Reference:
    """What was computed at bob from a leaf at alice, moved on to alice with its graph behind."""
    _, part = leaf_and_part(eve, (2, 2))
    product = succeeded(eve.call("torch.mul", part, named(eve, 2, 2)))
    found: Reference = succeeded(eve.move(product, "alice", grad=True))
    return found


def returns_by_way_of_bob(eve: Observer) -> list[Left]:
    """The pass begins at alice, goes on at bob, and ends at alice while the first part waits."""
    last = there_and_back(eve)
    leaf = next(id for id in eve.known["alice"])
    loss = eve.call("torch.sum", last, worker="alice")
    succeeded(eve.call("torch.Tensor.backward", loss, worker="alice"))
    return [came(leaf, lambda x: (x.repeat(2) * 2)[:4].view(2, 2))]


def fails_before_it_comes_to_bob(eve: Observer) -> list[Left]:
    last = there_and_back(eve)
    leaf = next(id for id in eve.known["alice"])
    loss = phase_of_eigenvectors(eve, last, "alice")
    succeeded_if_private(eve, eve.call("torch.Tensor.backward", loss, worker="alice"))
    return [came(leaf, nothing, failed=RuntimeError)]


def succeeded_if_private(eve: Observer, result: Any) -> None:
    """Nobody sees the failure of a private command; that of a public one is seen."""
    if eve.guarded:
        succeeded(result)


ATTACKS: tuple[Attack, ...] = (
    returns,
    returns_twice,
    returns_to_a_public_gradient,
    returns_from_a_private_start,
    stays_where_autograd_grad_was_asked,
    limited_returns_to_nobody,
    returns_in_a_group,
    returns_to_what_moved,
    goes_out_and_returns,
    a_private_shape,
    refused_for_what_may_go_nowhere,
    refused_for_one_of_two,
    goes_on_to_her_worker,
    meets_alices_own,
    returns_from_what_failed,
    returns_from_a_pass_that_fails,
    stays_where_autograd_grad_failed,
    returns_from_a_pass_that_fails_half_way,
    goes_out_and_a_pass_fails_there,
    returns_by_way_of_bob,
    fails_before_it_comes_to_bob,
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_gradients_that_return_teach_nothing(attack: Attack) -> None:
    check(attack)


@pytest.mark.parametrize("attack", ATTACKS)
def test_they_return(attack: Attack) -> None:
    check_arrives(attack)


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_attacks_come_to_the_secret(attack: Attack) -> None:
    check_reaches(attack)
