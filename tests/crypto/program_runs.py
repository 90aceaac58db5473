"""Share programs in one process: written as calls, run by all parties in lock-step, counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from syft.crypto.kernels import Kernel
from syft.crypto.programs.beaver_products import MaskedValue
from syft.crypto.programs.local_operations import number_of
from syft.crypto.programs.share_dealing import deal_program, deals_of
from syft.crypto.programs.share_lint import lint, lint_deals
from syft.crypto.programs.share_joining import compacted
from syft.crypto.programs.share_program import ShareCode, ShareProgram, outs_of
from syft.program.program import Action, Slot
from syft.crypto.programs.share_running import JoinedRound, PartyContext, RoundOfShares, run_program
from tests.crypto.parties import KEYS, shared, zeros_of
from tests.crypto.ring_programs import as_written, instruction, program_of

aten = torch.ops.aten


class Recorded:
    """A program under construction over inputs of these shapes; methods return slots."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        self.inputs = len(shapes)
        self.instructions: list[Action] = []
        self.shapes: dict[int, tuple[int, ...]] = dict(enumerate(shapes))
        self.slots = self.inputs

    def add(self, code: ShareCode, args: tuple[Any, ...], *shapes: tuple[int, ...]) -> list[int]:
        outs = list(range(self.slots, self.slots + len(shapes)))
        self.slots += len(shapes)
        self.shapes.update(zip(outs, shapes, strict=True))
        self.instructions.append(instruction(code, args, tuple(outs)))
        return outs

    def local(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        """``args`` hold operands as ``Slot``s."""

        def stand_in(value: Any) -> Any:
            if isinstance(value, Slot):
                return torch.zeros(self.shapes[value.index], dtype=torch.int64)
            return [stand_in(item) for item in value] if isinstance(value, tuple) else value

        made = op(*map(stand_in, args), **kwargs)
        several = isinstance(made, (list, tuple))
        shapes = [tuple(one.shape) for one in (made if several else [made])]
        call = (number_of(op), args, tuple(kwargs.items()))
        outs = self.add(ShareCode.LOCAL, call, *shapes)
        return outs if several else outs[0]

    def write(self, op: Any, *args: Any) -> None:
        """An operation in place."""
        self.add(ShareCode.LOCAL, (number_of(op), args, ()))

    def public(self, tensor: torch.Tensor) -> int:
        return self.add(ShareCode.PUBLIC, (tensor,), tuple(tensor.shape))[0]

    def linear(self, kernel: Kernel, x: int) -> int:
        args = (int(kernel.code), kernel.settings, Slot(x))
        return self.add(ShareCode.LINEAR, args, tuple(kernel.shape(self.shapes[x])))[0]

    def scaled(self, kernel: Kernel, x: int, factor: torch.Tensor, first: bool) -> int:
        """A bilinear kernel with a public factor."""
        args = (int(kernel.code), kernel.settings, Slot(x), factor, first)
        shapes = [tuple(factor.shape), self.shapes[x]]
        shape = tuple(kernel.shape(*(shapes if first else reversed(shapes))))
        return self.add(ShareCode.LINEAR, args, shape)[0]

    def mask(self, x: int) -> int:
        shape = self.shapes[x]
        return self.add(ShareCode.MASK, (Slot(x), shape), shape)[0]

    def product(self, kernel: Kernel, x: int, y: int) -> int:
        """Of two masked slots of this program."""
        places = {outs_of(one)[0]: i for i, one in enumerate(self.instructions) if outs_of(one)}
        shapes = self.shapes[x], self.shapes[y]
        shape = tuple(kernel.shape(*shapes))
        names = (0, places[x]), (0, places[y])
        args = (int(kernel.code), kernel.settings, Slot(x), Slot(y))
        return self.add(
            ShareCode.PRODUCT, (*args, names[0], shapes[0], names[1], shapes[1], shape), shape
        )[0]

    def divide(self, x: int, factor: Any) -> int:
        shape = self.shapes[x]
        return self.add(ShareCode.DIVIDE, (Slot(x), factor, shape), shape)[0]

    def positive(self, x: int, bits: int = 0) -> list[int]:
        shape = self.shapes[x]
        return self.add(ShareCode.POSITIVE, (Slot(x), bits, shape), shape, shape)

    def compare(self, code: ShareCode, x: int) -> int:
        shape = self.shapes[x]
        return self.add(code, (Slot(x), shape), shape)[0]

    def reveal(self, x: int, party: int) -> int:
        return self.add(ShareCode.REVEAL, (Slot(x), party), self.shapes[x])[0]

    def program(self, *results: int) -> ShareProgram:
        return program_of(self.inputs, tuple(self.instructions), results)


@dataclass
class ProgramRuns:
    """What a run of all parties came to."""

    results: list[dict[int, Any]]
    rounds: int = 0
    sent: list[int] = field(default_factory=list)
    """Bytes that each party sent in all."""
    dealt: int = 0
    asked: list[tuple[int, ...]] = field(default_factory=list)
    """The places whose corrections the last party asked for, in this order."""

    def secret(self, slot: int) -> torch.Tensor:
        """What the parties' shares of a result sum to."""
        return torch.stack([result[slot] for result in self.results]).sum(0)


def run_all(
    program: ShareProgram,
    inputs: Sequence[Any],
    parties: int = 2,
    counter: int = 1,
    tamper: Callable[[int, JoinedRound], JoinedRound] = lambda rank, joined: joined,
    **settings: Any,
) -> ProgramRuns:
    """Run a program; an input is a secret tensor, or a list of what each party has.

    Results are by the slots that ``program_of`` was given, also those of a program with gaps.
    """
    whole, (program, moved) = program, compacted(program)
    lint(program, parties)
    deals = deals_of(program)
    lint_deals(deals)
    keys = KEYS[:parties]
    dealt = dict(deal_program(deals, keys, counter))
    each = [shared(one, parties) if isinstance(one, torch.Tensor) else one for one in inputs]
    contexts = [
        PartyContext(r, parties, keys[r], zeros_of(r, parties), counter, **settings)
        for r in range(parties)
    ]
    runs = [run_program(program, [one[c.rank] for one in each], c) for c in contexts]
    found = ProgramRuns([{} for _ in runs], sent=[0] * parties)
    found.dealt = sum(8 * one.numel() for tensors in dealt.values() for one in tensors)
    rounds = [advance(found, rank, run, None, dealt) for rank, run in enumerate(runs)]
    while any(rounds):
        assert all(rounds), "some parties are done and others are not"
        found.rounds += 1
        for rank, one in enumerate(rounds):
            found.sent[rank] += sent_bytes(rank, parties, one)
        joined = [tamper(rank, join(rounds, rank)) for rank in range(parties)]
        rounds = [advance(found, r, run, joined[r], dealt) for r, run in enumerate(runs)]
    written = {moved[slot].index: as_written(whole, slot) for slot in whole.results}
    found.results = [
        {written[slot]: value for slot, value in result.items()} for result in found.results
    ]
    return found


def advance(found: ProgramRuns, rank: int, run: Any, joined: Any, dealt: Any) -> Any:
    """To the next round of openings: corrections are handed over at once."""
    try:
        one = next(run) if joined is None else run.send(joined)
        while one.needs:
            assert rank == len(found.results) - 1 and not (one.additive or one.bits or one.reveals)
            found.asked.append(one.needs)
            one = run.send(JoinedRound(corrections={place: dealt[place] for place in one.needs}))
        return one
    except StopIteration as stop:
        found.results[rank] = stop.value
        return None


def sent_bytes(rank: int, parties: int, one: RoundOfShares) -> int:
    to_all = sum(8 * tensor.numel() for tensor in (*one.additive, *one.bits))
    to_one = sum(
        8 * tensor.numel()
        for party, tensors in one.reveals.items()
        for tensor in tensors
        if party != rank
    )
    return (parties - 1) * to_all + to_one


def join(rounds: Sequence[RoundOfShares], rank: int) -> JoinedRound:
    def added(lists: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
        return [torch.stack(shares).sum(0) for shares in zip(*lists, strict=True)]

    bits = [list(shares) for shares in zip(*(one.bits for one in rounds), strict=True)]
    joined_bits = []
    for shares in bits:
        whole = shares[0].clone()
        for share in shares[1:]:
            whole ^= share
        joined_bits.append(whole)
    revealed = added([one.reveals.get(rank, []) for one in rounds])
    return JoinedRound(added([one.additive for one in rounds]), joined_bits, revealed)


def unmasked(values: Sequence[MaskedValue]) -> torch.Tensor:
    """The tensor behind a mask, from what all parties have."""
    masks = torch.stack([value.mask for value in values]).sum(0)
    return values[0].opened + masks
