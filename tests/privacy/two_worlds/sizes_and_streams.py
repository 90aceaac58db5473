"""Actions of random programs on private sizes near a limit, and on generators that are given.

Sizes that follow from private values are made larger, cut, joined and dropped, while public memory
is asked for that just fits, or just does not.  A generator in a program is drawn from by private
actions, and then by public ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.workers.core.peer_limits import DEFAULT_PEER_LIMITS, PeerLimits
from syft.workers.wire import messages
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.observer import Failed
from tests.privacy.two_worlds.private_rows import use_rows
from tests.privacy.two_worlds.world import OBSERVER

if TYPE_CHECKING:
    from tests.privacy.two_worlds.generator import RandomProgram

LIMITED = 0.5
"""The share of programs with limits that small tensors meet."""


def limits_for(seed: str) -> PeerLimits:
    """The limits of the workers of a program."""
    rng = random.Random(f"limits {seed}")
    if rng.random() > LIMITED:
        return DEFAULT_PEER_LIMITS
    return PeerLimits(
        bytes=rng.choice((6000, 12_000, 30_000)),
        elements=rng.choice((500, 3000, 50_000)),
        results=rng.choice((5, 12, 1000)),
        objects=rng.choice((40, 100, 1 << 20)),
    )


def _mask(program: RandomProgram, it: Reference) -> Any:
    return program.observer.call("torch.gt", it, 0)


CHOOSING: tuple[Callable[[RandomProgram, Reference], Any], ...] = (
    lambda p, it: p.call("torch.masked_select", it, _mask(p, it)),
    lambda p, it: p.call("torch.Tensor.__getitem__", it, _mask(p, it)),
    lambda p, it: p.call("torch.nonzero", it),
    lambda p, it: p.call("torch.argwhere", it),
    lambda p, it: p.call("torch.unique", it),
    lambda p, it: p.call("torch.unique_consecutive", it),
)
"""What has a size that follows from the values of a tensor."""


def choose(program: RandomProgram) -> None:
    """A result of private size, of a tensor with another number of positive elements in each
    world."""
    rng, size = program.rng, program.rng.choice((4, 9, 30))
    one, other = (torch.arange(size) - rng.randrange(size + 1) for _ in range(2))
    kind = rng.choice((torch.float32, torch.int64, torch.uint8))
    if rng.random() < 0.5:
        one, other = one.clamp(min=0), other.clamp(min=0)
    it = program.observer.secret(one.to(kind), other.to(kind), "bob", program.destinations)
    made = rng.choice(CHOOSING)(program, it)
    if isinstance(made, Reference):
        program.private_sizes.append(made)


def _count(program: RandomProgram) -> int:
    """How often something is repeated: a little, far too often, or about as often as is allowed."""
    limits, rng = program.both.limits, program.rng
    if limits is DEFAULT_PEER_LIMITS:  # what just fits takes gigabytes
        return rng.choice((1, 2, 3, 20, 2**38))
    near = (limits.elements // rng.randint(1, 30), limits.bytes // rng.randint(1, 200))
    return rng.choice((2, 3, 2**38, *near, *near)) + rng.choice((-1, 0, 1))


CHANGING: tuple[Callable[[RandomProgram, Reference], Any], ...] = (
    lambda p, it: p.call("torch.Tensor.repeat", it, _count(p)),
    lambda p, it: p.call("torch.Tensor.expand", p.call("torch.unsqueeze", it, 0), _count(p), -1),
    lambda p, it: p.call("torch.nn.functional.pad", it, (_count(p), 0)),
    lambda p, it: p.call("torch.outer", it, it),
    lambda p, it: p.call("torch.cat", [it, _another(p)]),
    lambda p, it: p.call("torch.stack", [it, _another(p)]),
    lambda p, it: p.call("torch.add", it, _another(p)),
    lambda p, it: p.call("torch.add", it, p.some() or 1),
    lambda p, it: p.call("torch.mul", it, 2),
    lambda p, it: p.call("torch.Tensor.clone", it),
    lambda p, it: p.call("torch.Tensor.double", it),
    lambda p, it: p.call("torch.Tensor.split", it, 1),
    lambda p, it: p.call("torch.tensor_split", it, _count(p)),
    lambda p, it: p.call("torch.Tensor.chunk", it, _count(p)),
    lambda p, it: p.call("torch.Tensor.narrow", it, 0, 0, 1),
    lambda p, it: p.call("torch.Tensor.select", it, 0, 0),
    lambda p, it: p.call("torch.Tensor.reshape", it, -1),
    lambda p, it: p.call("torch.Tensor.contiguous", it),
    lambda p, it: p.call("torch.Tensor.unsqueeze_", it, 0, grad=False),
    lambda p, it: p.call("torch.Tensor.t_", it, grad=False),
    lambda p, it: p.call("torch.Tensor.expand_as", p.put(torch.ones(1), False), it),
    lambda p, it: p.call("torch.Tensor.copy_", p.put(torch.ones(3), False), it, grad=False),
    lambda p, it: p.call("torch.mul", it, 2, out=p.put(torch.ones(3), False), grad=False),
    lambda p, it: p.call("torch.nonzero", it),
    lambda p, it: p.call("torch.sum", it),
)
"""What is made of a tensor of private size."""


def _another(program: RandomProgram) -> Reference:
    return program.rng.choice(program.private_sizes)


def change(program: RandomProgram) -> None:
    """A command on a tensor of private size, alone or as a program."""
    if not program.private_sizes:
        return choose(program)
    it = _another(program)
    if program.rng.random() < 0.2:
        tile = Action(BY_NAME["torch.Tensor.repeat"], (Slot(0), _count(program)), {}, Slot(1))
        run = program.rng.choice((program.observer.group, program.observer.plan))
        made = run(Program(1, (tile,), (Slot(1),)), [it], 1)
        program.note("program", True, made, (it,))
        made = made if isinstance(made, Failed) else made[0]
    else:
        made = program.rng.choice(CHANGING)(program, it)
    if isinstance(made, Reference):
        program.private_sizes.append(made)


def allocate(program: RandomProgram) -> None:
    """Public memory of about as many bytes as the observer may still have."""
    world, rng = program.both.worlds[0], program.rng
    account = world.peers["bob", OBSERVER].session.account
    left = program.both.limits.bytes - account.bytes
    if left > 1 << 20:
        return choose(program)
    count = max(0, left + rng.choice((-4, -1, 0, 1, 8)))
    made = program.call_at_limit("torch.zeros", count, dtype=torch.uint8)
    if isinstance(made, Reference) and rng.random() < 0.9:
        program.observer.request(messages.Drop(0, (made.id,)))


def drop(program: RandomProgram) -> None:
    """A pointer dies."""
    among = program.private_sizes or [Reference(id) for id in program.observer.known["bob"][-9:]]
    it = program.rng.choice(among)
    program.observer.request(messages.Drop(0, (it.id,)))


def _action(name: str, *args: Any, out: int, **kwargs: Any) -> Action:
    return Action(BY_NAME[name], args, kwargs, Slot(out))


DRAWING: tuple[Callable[[Slot], Action], ...] = (
    lambda given: _action("torch.poisson", Slot(0), given, out=2),
    lambda given: _action("torch.bernoulli", Slot(0), generator=given, out=2),
    lambda given: _action("torch.multinomial", Slot(0), 1, generator=given, out=2),
    lambda given: _action("torch.binomial", Slot(0), Slot(0), generator=given, out=2),
    lambda given: _action("torch.normal", 0.0, Slot(0), generator=given, out=2),
    lambda given: _action("torch._standard_gamma", Slot(0), given, out=2),
)
"""What draws random numbers for the elements of a tensor."""


def draw(program: RandomProgram) -> None:
    """Private draws from a given generator, and public ones after them."""
    rng, observer = program.rng, program.observer
    given = torch.Generator().manual_seed(rng.randrange(2**63))
    rates = [torch.full((9,), rng.choice((0.5, 0.9, 20.0, 90.0, -1.0))) for _ in range(2)]
    it = observer.secret(rates[0], rates[1], "bob", program.destinations)
    actions = (
        rng.choice(DRAWING)(Slot(1)),
        _action("torch.rand", 3, generator=Slot(1), out=3),
    )
    run = rng.choice((observer.group, observer.plan))
    made = run(Program(2, actions, (Slot(2), Slot(3))), [it, given], 2)
    program.note("program", True, made, (it,))
    if not isinstance(made, Failed):
        observer.private.discard(made[1].id)
        observer.fetch(made[1].id)


ACTIONS: tuple[Callable[[RandomProgram], None], ...] = (
    *(choose, change, allocate, drop, draw, use_rows),
)
WEIGHTS = (2, 4, 2, 1, 2, 1)
