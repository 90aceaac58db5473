"""Actions of random programs that take things from one worker to another: sums, moves, gradients.

In half of the programs ann names bob and alice for all that is hers, so that it goes from one to
the other.  In the others she names nobody, and what would send it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from syft.ops.nested import leaves
from syft.workers.wire import messages
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.arrivals import BOTH, phase_of_eigenvectors
from tests.privacy.two_worlds.observer import Failed
from tests.privacy.two_worlds.vocabulary import VIEWS

if TYPE_CHECKING:
    from tests.privacy.two_worlds.generator import RandomProgram

NAMED: tuple[tuple[str, ...], ...] = ((), BOTH)
"""The destinations that ann names in a program."""


def collective(program: RandomProgram) -> None:
    """A sum with another worker, who may be the observer's own."""
    target = program.some()
    if target is None:
        return
    observer, rng = program.observer, program.rng
    tensor = program.here(target.id)
    assert tensor is not None
    partner = rng.choice(("alice", "eve"))
    shape = tensor.shape if tensor.layout is torch.strided else (1,)
    own = program.put(torch.ones(shape), rng.random() < 0.3, worker=partner)
    execution = observer.count() + 10**6
    parties = {"bob": target, partner: own}
    if rng.random() < 0.5:
        parties = dict(reversed(parties.items()))
    observer.sum_private(parties, execution)
    private = not {target.id, own.id}.isdisjoint(observer.private)
    program.note("sum_private", private, None)


def travel(program: RandomProgram) -> None:
    """Something goes to alice, is computed with there, and perhaps comes back."""
    target = program.some()
    if target is None or (not program.destinations and program.rng.random() < 0.7):
        return
    rng, it = program.rng, program.own(target)
    if rng.random() < 0.25:
        _by_a_pointer(program, it)
        return
    there = [it] if _move(program, it, "alice", "bob", rng.random() < 0.5) else []
    for _ in range(rng.randint(1, 3) if there else 0):
        there += _computed_at_alice(program, rng.choice(there))
    if there and rng.random() < 0.6:
        _move(program, rng.choice(there), "bob", "alice", rng.random() < 0.3)


def _move(program: RandomProgram, it: Reference, to: str, at: str, grad: bool) -> bool:
    answer = program.observer.move(it, to, at, grad)
    program.note("move", it.id in program.observer.private, answer, (it,), at)
    return not isinstance(answer, Failed)


def _by_a_pointer(program: RandomProgram, it: Reference) -> None:
    """The object goes to alice, and bob computes with it there by a pointer."""
    observer = program.observer
    for to in ("alice", None):
        relay = messages.Relay(observer.count(), it.id, to)
        answer = observer.request(relay, op="relay")
        program.note("relay", it.id in observer.private, answer, (it,))
        if isinstance(answer, Failed):
            return
        program.call("torch.mul", it, 2)


def _computed_at_alice(program: RandomProgram, it: Reference) -> list[Reference]:
    """What one command at alice makes of an object there."""
    rng = program.rng
    way = rng.random()
    if way < 0.4:
        name, args = rng.choice(VIEWS)
        result = program.call(name, it, *((it,) if name.endswith("_as") else args), worker="alice")
    elif way < 0.6:
        index = program.put(torch.tensor([0]), True, "alice", bad=0.6)
        result = program.call("torch.take", it, index, worker="alice")
    elif way < 0.8:
        result = program.call("torch.mul", it, it, worker="alice")
    else:
        total = program.call("torch.sum", it, worker="alice")
        result = program.call("torch.Tensor.backward", total, worker="alice")
    return [leaf for leaf in leaves(result) if isinstance(leaf, Reference)]


def follow(program: RandomProgram) -> None:
    """A backward pass at bob from which gradients go back to a leaf at alice."""
    observer, rng = program.observer, program.rng
    leaf = observer.public(torch.ones(2, 2, requires_grad=True), "alice")
    part: Any = observer.call("torch.mul", leaf, 2, worker="alice")
    part = observer.move(part, "bob", "alice", grad=True)
    way = rng.random()
    if way < 0.3:
        loss = phase_of_eigenvectors(observer, part, destinations=program.destinations)
    else:
        index = program.put(torch.tensor([0, 3]), True, bad=0.5)
        weights = program.put(torch.ones(2, 2), True)
        product = program.call("torch.mul", part, weights)
        loss = program.call("torch.sum", product if way < 0.6 else _taken(program, product, index))
    if rng.random() < 0.7:
        program.call("torch.Tensor.backward", loss)
    else:
        program.call("torch.autograd.grad", loss, part)
    observer.gradient(leaf.id, "alice")


def _taken(program: RandomProgram, product: Any, index: Reference) -> Any:
    return program.call("torch.take", product, index)
