"""Attack 4: the observer takes part himself.

A private value that is sent to a worker of the observer's choice is his, whatever guard goes along
with it: the guard is kept by the worker that receives it.
"""

from __future__ import annotations

import pytest
import torch

from syft.program.program import Program, Slot
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.wire import messages
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.attacks import (
    Attack,
    action,
    check,
    check_reaches,
    ones,
    secret,
    succeeded,
)
from tests.privacy.two_worlds.observer import Observer
from tests.privacy.two_worlds.world import OWNER


def own(eve: Observer, *shape: int, worker: str = "eve") -> Reference:
    """A tensor of the observer's at a worker, his own if none is named."""
    return eve.public(torch.zeros(shape or (3,)), worker)


# -------------------------------------------------------------------------------- collectives


def sum_of_two(eve: Observer) -> None:
    eve.sum_private({"bob": secret(eve), "eve": own(eve)}, 1)


def sum_of_two_the_other_way_round(eve: Observer) -> None:
    eve.sum_private({"eve": own(eve), "bob": secret(eve)}, 1)


def sum_of_three(eve: Observer) -> None:
    inputs = {"bob": secret(eve), "eve": own(eve), "alice": own(eve, worker="alice")}
    eve.sum_private(inputs, 1)


def sum_of_what_was_computed(eve: Observer) -> None:
    private = eve.call("torch.mul", secret(eve), 2)
    eve.sum_private({"bob": private, "eve": own(eve)}, 1)


def sum_of_a_view(eve: Observer) -> None:
    base = ones(eve, 1, 3)
    view = eve.call("torch.Tensor.view", base, 3)
    eve.call("torch.Tensor.copy_", base, secret(eve, 1, 3), grad=False)
    eve.sum_private({"bob": view, "eve": own(eve)}, 1)


def sum_of_the_length(eve: Observer) -> None:
    """How many values are above one is the size of what is exchanged."""
    private = secret(eve)
    chosen = eve.call("torch.masked_select", private, eve.call("torch.gt", private, 1))
    eve.sum_private({"bob": chosen, "eve": own(eve)}, 1)


def sum_that_fails(eve: Observer) -> None:
    """Whether the sum fails depends on how many values are above one."""
    private = secret(eve)
    chosen = eve.call("torch.masked_select", private, eve.call("torch.gt", private, 1))
    eve.sum_private({"bob": chosen, "alice": own(eve, 5, worker="alice")}, 1)


def sum_among_friends(eve: Observer) -> None:
    totals = eve.sum_private({"bob": secret(eve), "alice": own(eve, worker="alice")}, 1)
    eve.call("torch.Tensor.add", Reference(totals[1]), 0, worker="alice")


# --------------------------------------------------------------------------- moves and pointers


def move(eve: Observer) -> None:
    eve.request(messages.Move(eve.count(), secret(eve).id, "eve"))


def move_a_view(eve: Observer) -> None:
    base = ones(eve, 1, 3)
    view = eve.call("torch.Tensor.view", base, 3)
    eve.call("torch.Tensor.copy_", base, secret(eve, 1, 3), grad=False)
    eve.request(messages.Move(eve.count(), view.id, "eve"))


def move_a_leaf_with_its_gradient(eve: Observer) -> None:
    leaf = ones(eve, grad=True)
    loss = eve.call("torch.sum", eve.call("torch.mul", leaf, secret(eve)))
    eve.call("torch.Tensor.backward", loss)
    eve.request(messages.Move(eve.count(), leaf.id, "eve"))


def move_and_back(eve: Observer) -> None:
    """A public view goes to another worker and comes back; the memory stays."""
    base = ones(eve)
    view = eve.call("torch.Tensor.view", base, 3)
    eve.request(messages.Move(eve.count(), view.id, "alice"))
    eve.call("torch.Tensor.copy_", base, secret(eve), grad=False)
    eve.request(messages.Move(eve.count(), view.id, "bob"), worker="alice")


def relay(eve: Observer) -> None:
    eve.request(messages.Relay(eve.count(), secret(eve).id, "eve"))


def relay_and_fetch(eve: Observer) -> None:
    private = eve.call("torch.mul", secret(eve), 1)
    eve.request(messages.Relay(eve.count(), private.id, "alice"))
    eve.fetch(private.id, "alice")
    eve.request(messages.Relay(eve.count(), private.id, None))


def written_through_a_pointer(eve: Observer) -> None:
    """A pointer to the observer's worker is stored at bob, and the secret is added to it."""
    target = ones(eve)
    eve.request(messages.Relay(eve.count(), target.id, "eve"))
    eve.call("torch.Tensor.add_", target, secret(eve), grad=False)
    eve.call("torch.Tensor.add", target, secret(eve))


def computed_with_a_pointer(eve: Observer) -> None:
    target = ones(eve)
    eve.request(messages.Relay(eve.count(), target.id, "eve"))
    private = secret(eve)
    eve.call("torch.mul", private, target)
    eve.call("torch.cat", [private, target])


def number_goes_along_to_a_pointer(eve: Observer) -> None:
    """A tensor without dimensions travels with a command to where a pointer leads."""
    target = ones(eve)
    eve.request(messages.Relay(eve.count(), target.id, "eve"))
    private = eve.call("torch.sum", eve.call("torch.mul", secret(eve), 2))
    eve.call("torch.Tensor.add_", target, private, grad=False)
    eve.call("torch.Tensor.mul", target, private)


def copied_to_a_pointer(eve: Observer) -> None:
    """So does the source of a copy."""
    target = ones(eve)
    eve.request(messages.Relay(eve.count(), target.id, "eve"))
    private = eve.call("torch.mul", eve.call("torch.mul", secret(eve), 2), 2)
    eve.call("torch.Tensor.copy_", target, private, grad=False)


def number_goes_along_in_a_group(eve: Observer) -> None:
    target = ones(eve)
    eve.request(messages.Relay(eve.count(), target.id, "eve"))
    program = Program(
        2,
        (
            action("torch.sum", Slot(0), out=Slot(2)),
            action("torch.Tensor.mul", Slot(1), Slot(2), out=Slot(3)),
        ),
        (Slot(3),),
    )
    eve.group(program, [secret(eve), target], 1)


# ------------------------------------------------------------------------ gradients over links


def gradient_follows(eve: Observer) -> None:
    """The observer's worker moved a leaf to bob, and asks for its gradients."""
    id, source, packer = eve.id(), own(eve).id, Packer()
    operand = pack(torch.ones(3, requires_grad=True), packer)
    succeeded(eve.request(messages.Put(eve.count(), id, operand, source=source), packer))
    leaf = Reference(id)
    loss = eve.call("torch.sum", eve.call("torch.mul", leaf, secret(eve)))
    eve.call("torch.Tensor.backward", loss)


def gradient_follows_from_his_worker(eve: Observer) -> None:
    """The same as it happens in earnest: a tensor with a graph is moved from his worker."""
    source = eve.public(torch.ones(3, requires_grad=True), "eve")
    part = succeeded(eve.call("torch.mul", source, 2, worker="eve"))
    eve.request(messages.Move(eve.count(), part.id, "bob", True), worker="eve")
    loss = eve.call("torch.sum", eve.call("torch.mul", part, secret(eve)))
    eve.call("torch.Tensor.backward", loss)
    eve.gradient(source.id, "eve")


def gradient_follows_a_private_start(eve: Observer) -> None:
    source = eve.public(torch.ones(3, requires_grad=True), "eve")
    part = succeeded(eve.call("torch.mul", source, 2, worker="eve"))
    eve.request(messages.Move(eve.count(), part.id, "bob", True), worker="eve")
    eve.call("torch.Tensor.backward", eve.call("torch.mul", part, 1), secret(eve))


def gradient_returns_in_a_backward_that_fails(eve: Observer) -> None:
    source = eve.public(torch.ones(3, requires_grad=True), "eve")
    part = succeeded(eve.call("torch.mul", source, 2, worker="eve"))
    eve.request(messages.Move(eve.count(), part.id, "bob", True), worker="eve")
    broken = eve.call("torch.exp", ones(eve, grad=True))
    eve.call("torch.Tensor.add_", broken, 1)
    loss = eve.call("torch.sum", eve.call("torch.mul", part, secret(eve)))
    eve.call("torch.autograd.backward", [loss, eve.call("torch.sum", broken)])


# ------------------------------------------------------------------------------------- promises


def promise_filled_by_the_owner(eve: Observer) -> None:
    """What waits for a private value runs as privately as if it had not waited."""
    promised, target = eve.id(), ones(eve)
    eve.request(messages.Promise(eve.count(), (promised,), OWNER))
    eve.call("torch.Tensor.add_", target, Reference(promised), grad=False)
    eve.call("torch.mul", Reference(promised), 2)
    packer, other = Packer(), Packer()
    operand = pack(torch.tensor([1.0, 2.0, 3.0]), packer)
    pack(torch.tensor([5.0, -2.0, 0.0]), other)
    users = ("ann",) if eve.guarded else None
    put = messages.Put(eve.count(), promised, operand, users)
    eve.request(put, packer, other.buffers, sender="ann")


HELD: tuple[Attack, ...] = (
    sum_of_two,
    sum_of_two_the_other_way_round,
    sum_of_three,
    sum_of_what_was_computed,
    sum_of_a_view,
    sum_of_the_length,
    sum_that_fails,
    gradient_follows,
    gradient_follows_from_his_worker,
    gradient_follows_a_private_start,
    gradient_returns_in_a_backward_that_fails,
    sum_among_friends,
    move,
    move_a_view,
    move_a_leaf_with_its_gradient,
    move_and_back,
    relay,
    relay_and_fetch,
    written_through_a_pointer,
    computed_with_a_pointer,
    number_goes_along_to_a_pointer,
    copied_to_a_pointer,
    number_goes_along_in_a_group,
    promise_filled_by_the_owner,
)


@pytest.mark.parametrize("attack", HELD)
def test_parties_of_the_strangers_choice(attack: Attack) -> None:
    check(attack)


REFUSED = (written_through_a_pointer, computed_with_a_pointer, move, relay)
"""A worker computes with a pointer only what is at the other worker, and a stranger moves nothing
of the owner's, so these reach nothing."""


@pytest.mark.parametrize("attack", [one for one in HELD if one not in REFUSED])
def test_the_parties_are_reached(attack: Attack) -> None:
    check_reaches(attack)
