"""Actions of random programs on shared tensors: shares of private data, and whole programs on them.

The observer opens the session, has her own worker deal, and has the parties run programs of
products, comparisons and linear maps.  Who may not read the data does not deal for it, so it is by
her second connection, of another name than her worker, that she computes.  What comes to her worker
is compared, and so is what the parties answer when she asks for results.  Shares are drawn from the
keys of a request's number, so that they differ between the worlds in what the secret makes of them
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from syft.codes import CollectiveCode
from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.programs.share_dealing import deals_of
from syft.crypto.programs.share_program import ShareCode, ShareProgram
from syft.program.program import Slot
from syft.ops.nested import leaves
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.tensors.fixed.precision import fix_precision
from syft.workers.wire import messages
from syft.workers.wire.references import Reference
from tests.crypto.program_runs import Recorded
from tests.privacy.two_worlds.observer import Failed, Observer
from tests.privacy.two_worlds.world import OBSERVER

if TYPE_CHECKING:
    from tests.privacy.two_worlds.generator import RandomProgram

PARTIES = "bob", "alice"
OTHER = "eve2"
"""The observer's connection that has another name than her worker."""
SHAPE = (2, 2)
aten = torch.ops.aten
MULTIPLY, MATMUL = Kernel(KernelCode.MULTIPLY, ()), Kernel(KernelCode.MATMUL, ())


# -------------------------------------------------------------------------------------- sessions


class Session:
    """A session at some workers, the last of which deals, opened by one of the observer's
    connections."""

    def __init__(self, observer: Observer, places: Sequence[str], sender: str = OTHER) -> None:
        self.observer, self.places, self.parties = observer, [*places], [*places[:-1]]
        self.sender = sender
        self.id = Reference(observer.id(places[0]))
        self.counter = 0
        self._know(self.id.id, places[1:])
        for rank in range(len(places)):
            self.start(CollectiveCode.OPEN_SESSION, places, rank, (), (self.id.id,), first=not rank)

    def _know(self, id: int, places: Sequence[str]) -> None:
        for place in places:
            self.observer.known.setdefault(place, []).append(id)

    def start(
        self,
        code: CollectiveCode,
        places: Sequence[str],
        rank: int,
        args: tuple[Any, ...],
        outs: tuple[int, ...],
        first: bool,
    ) -> Any:
        """Start one part of a collective operation, a new one if this is the ``first``."""
        observer, packer = self.observer, Packer()
        if first:
            self.execution = observer.count() + 10**6
        operands = tuple(pack(arg, packer) for arg in args)
        message = messages.Start(
            observer.count(), int(code), self.execution, tuple(places), rank, operands, outs
        )
        return observer.request(message, packer, worker=places[rank], sender=self.sender)

    def fetch(self, it: Reference, place: str, reading: int = 1) -> Any:
        """Ask a party for a share, with one of zero."""
        message = messages.Fetch(self.observer.count(), it.id, 0, True, reading=reading)
        return self.observer.request(message, worker=place, sender=self.sender)

    def split(self, it: Reference, owner: str = "bob", backwards: bool = False) -> tuple[Any, Any]:
        """Shares of what a party holds: the reference, and the owner's answer."""
        rank, out = self.parties.index(owner), self.observer.id(owner)
        self._know(out, [place for place in self.parties if place != owner])
        self.observer.private.add(out)
        answer = None
        order = [*range(len(self.parties))][:: -1 if backwards else 1]
        for place in order:
            given: tuple[Any, ...] = (self.id, rank, it) if place == rank else (self.id, rank)
            first = place == order[0]
            told = self.start(CollectiveCode.SPLIT, self.parties, place, given, (out,), first)
            answer = told if place == rank else answer
        return Reference(out), answer

    def run(
        self, program: ShareProgram, inputs: Sequence[Any]
    ) -> tuple[list[Reference], list[Any]]:
        """Run a program: its results, and what the parties answer.

        An input is a reference, or a share for each party.
        """
        self.counter += 1
        deals = deals_of(program)
        outs = [self.observer.id(self.parties[0]) for _ in program.results]
        for out in outs:
            self._know(out, self.parties[1:])
        places, begun = (self.places if deals else self.parties), False
        if deals:
            args = self.id, self.counter, deals
            self.start(CollectiveCode.DEAL, places, len(places) - 1, args, (), True)
            begun = True
        answers = []
        for rank in range(len(self.parties)):
            given = [it if isinstance(it, Reference) else it[rank] for it in inputs]
            here = (self.id, self.counter, program, *given)
            own = _outs_at(program, rank, outs)
            answers.append(
                self.start(CollectiveCode.SHARES, places, rank, here, own, not begun and not rank)
            )
        self.observer.private.update(outs)
        return [Reference(out) for out in outs], answers


def _outs_at(program: ShareProgram, rank: int, outs: Sequence[int]) -> tuple[int, ...]:
    """The results that a party keeps: those that are revealed to others are not there."""
    revealed = {
        step.out.index: step.args[1] for step in program.actions if step.op == ShareCode.REVEAL
    }
    pairs = zip(program.results, outs, strict=True)
    return tuple(out for slot, out in pairs if revealed.get(slot, rank) == rank)


# -------------------------------------------------------------------------------------- programs


def product(made: Recorded) -> list[int]:
    """The product of both inputs, and of the first with itself, behind one mask."""
    one, other = made.mask(0), made.mask(1)
    return [made.product(MULTIPLY, one, other), made.product(MULTIPLY, one, one), one]


def matrices(made: Recorded) -> list[int]:
    """A layer: a matrix product, a bias, and the digits that are dropped."""
    found = made.product(MATMUL, made.mask(0), made.mask(1))
    added = made.local(aten.add.Tensor, Slot(found), Slot(1))
    return [made.divide(added, 16), found]


def layer(made: Recorded) -> list[int]:
    """A layer of public weights."""
    weight = torch.tensor([[1, -2], [3, 0]])
    found = made.scaled(MATMUL, 0, weight, False)
    biased = made.local(aten.add.Tensor, Slot(found), Slot(made.public(weight)))
    return [found, *made.positive(biased)]


def signs(made: Recorded) -> list[int]:
    """Whether the difference of the inputs is negative, or zero."""
    less = made.local(aten.sub.Tensor, Slot(0), Slot(1))
    return [made.compare(code, less) for code in (ShareCode.NEGATIVE, ShareCode.ZERO)]


def greatest(made: Recorded) -> list[int]:
    """The larger one of both, by a comparison and a product."""
    less = made.local(aten.sub.Tensor, Slot(0), Slot(1))
    return [made.local(aten.add.Tensor, Slot(made.positive(less)[0]), Slot(1))]


def views(made: Recorded) -> list[int]:
    """Parts, sums and what stands beside one another."""
    row = made.local(aten.select.int, Slot(0), 0, 1)
    both = made.local(aten.cat.default, (Slot(0), Slot(1)), 0)
    return [row, made.local(aten.sum.default, Slot(both)), both]


def opened(made: Recorded) -> list[int]:
    """A sum that is opened at one party, and a product at the other."""
    found = made.product(MULTIPLY, made.mask(0), made.mask(1))
    added = made.local(aten.add.Tensor, Slot(0), Slot(1))
    return [made.reveal(added, 0), made.reveal(found, 1)]


PROGRAMS: tuple[Callable[[Recorded], list[int]], ...] = (
    *(product, matrices, layer, signs, greatest, views, opened),
)


def made_by(make: Callable[[Recorded], list[int]]) -> ShareProgram:
    """A program of two inputs."""
    made = Recorded(SHAPE, SHAPE)
    return made.program(*make(made))


def known_shares() -> list[Any]:
    """Shares of ones, which the observer has split."""
    rest = torch.arange(4).reshape(SHAPE)
    return [(1 - rest,), (rest,)]


# ---------------------------------------------------------------------------------------- actions


def deal(program: RandomProgram) -> None:
    """Shares of a private tensor, for parties and a provider that the observer names."""
    rng, observer = program.rng, program.observer
    ways = (*PARTIES, "eve"), ("bob", "eve", "alice"), ("alice", "bob", "eve")
    session = Session(observer, rng.choice(ways), rng.choice((OBSERVER, OTHER)))
    it = _on_a_grid(program) if rng.random() < 0.5 else _whole(program, program.destinations)
    out, answer = session.split(it, backwards=rng.random() < 0.5)
    program.note("split", True, answer, (it,))
    for place in session.parties:
        observer.describe(out.id, place)
        observer.fetch(out.id, place)


def compute(program: RandomProgram) -> None:
    """A private tensor is split, and one or two programs run on its shares; what is opened at bob
    is computed with, and all of it is asked for."""
    rng, observer = program.rng, program.observer
    session = Session(observer, (*(PARTIES if rng.random() < 0.7 else PARTIES[::-1]), "eve"))
    it = _secret(program)
    if not isinstance(it, Reference):
        return
    shares, answer = session.split(it, backwards=rng.random() < 0.5)
    program.note("split", True, answer, (it,))
    both: list[Any] = [shares, rng.choice((shares, known_shares()))]
    rng.shuffle(both)
    asked = [shares]
    for _ in range(rng.randint(1, 2)):
        run = made_by(rng.choice(PROGRAMS))
        results, answers = session.run(run, both)
        for told in answers:
            program.note("shares", True, told, (shares,))
        asked += results
        both[0] = results[0]
    for it in asked:
        place = rng.choice(session.parties)
        way = rng.randrange(4)
        if way == 0:
            observer.describe(it.id, place)
        elif way == 1:
            observer.gradient(it.id, place)
        else:
            session.fetch(it, place, rng.randint(1, 9))
        if rng.random() < 0.3:
            program.call("torch.mul", it, 2, worker=place, sender=OTHER)


def _secret(program: RandomProgram) -> Any:
    """Integers of ann's that may go to both parties, which perhaps follow from a failure."""
    if program.rng.random() < 0.75:
        return _whole(program, PARTIES)
    index = program.observer.secret(
        torch.tensor([0, 3]), torch.tensor([0, 9]), destinations=PARTIES
    )
    taken = program.call("torch.take", _whole(program, PARTIES), index)
    found = next((leaf for leaf in leaves(taken) if isinstance(leaf, Reference)), Failed(0))
    return program.call("torch.Tensor.expand", found, 2, 2)


def _whole(program: RandomProgram, destinations: tuple[str, ...]) -> Reference:
    worlds = [torch.randint(-9, 9, SHAPE, generator=program.numbers) for _ in range(2)]
    return program.observer.secret(*worlds, destinations=destinations)


def _on_a_grid(program: RandomProgram) -> Reference:
    worlds = [torch.randn(SHAPE, generator=program.numbers) for _ in range(2)]
    chains = [fix_precision(world) for world in worlds]
    return program.observer.secret(*chains, destinations=program.destinations)


ON_SHARES = ((deal, 1), (compute, 2))
"""The actions, with how often they are drawn; see ``WEIGHTS`` of the generator."""
