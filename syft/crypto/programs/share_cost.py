"""What a share program costs: rounds and bytes, known before anything is sent.

All that can be opened is opened in a round, so the rounds are those of the longest chain.  What a
gate sends is linear in its elements and in the words of 64 bits that hold a bit of each; the two
factors are found by running it once on 1 and on 64 elements.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from syft.crypto.dealing import ProviderDealer, StreamName
from syft.crypto.kernels import kernel_from
from syft.crypto.programs.local_operations import LOCAL_OPERATIONS, LocalOperation, on_meta
from syft.crypto.programs.share_flow import segments_of
from syft.crypto.programs.share_gates import GATES
from syft.crypto.programs.share_program import (
    ShareCode,
    ShareProgram,
    opened_constants,
    outs_of,
)
from syft.program.flow import reads_in
from syft.program.program import Action, Slot


@dataclass(slots=True)
class ProgramCost:
    """Rounds, and bytes of tensors, of one run of a program.

    >>> ProgramCost(rounds=4).opened
    0
    """

    rounds: int = 0
    opened: int = 0
    """Bytes that each party sends to each other party."""
    revealed: dict[int, int] = field(default_factory=dict)
    """Bytes that each other party sends to this one besides."""
    dealt: int = 0
    """Bytes that the provider sends to the last party."""


def cost(program: ShareProgram, shapes: Sequence[tuple[int, ...]] = ()) -> ProgramCost:
    """The cost of a program that has passed ``lint``, on inputs of these shapes.

    Without shapes of its inputs, what it reveals counts no bytes.

    >>> relu = Action(ShareCode.POSITIVE, (Slot(0), 16, (64,)), {}, (Slot(1), Slot(2)))
    >>> found = cost(ShareProgram(1, (relu,), (Slot(1),)), [(64,)])
    >>> found.rounds, found.opened, found.revealed
    (4, 784, {})
    """
    found = ProgramCost()
    metas = _Metas(shapes) if len(shapes) == program.inputs and _reveals(program) else None
    finished: dict[int, int] = dict.fromkeys(range(program.inputs), 0)
    actions, reads = opened_constants(program), reads_in(program)
    barrier = 0
    for segment in segments_of(program):
        for place in segment:
            instruction = actions[place]
            rounds = _add(found, instruction, metas)
            start = max((finished[slot] for slot in reads[place]), default=0)
            done = max(start, barrier) + rounds
            found.rounds = max(found.rounds, done)
            finished.update(dict.fromkeys(outs_of(instruction), done))
            if metas is not None:
                metas.step(instruction)
        barrier = found.rounds
    return found


@dataclass(frozen=True, slots=True)
class OperationCost:
    """What all instructions of one kind send: to each other party, and from the provider.

    >>> OperationCost("MASK", count=2, sent=160, dealt=0).count
    2
    """

    name: str
    count: int
    sent: int
    dealt: int


def costs_of_operations(program: ShareProgram) -> list[OperationCost]:
    """The cost of a program by the kind of its instructions, in the order in which they occur.

    What is revealed counts no bytes.

    >>> relu = Action(ShareCode.POSITIVE, (Slot(0), 16, (64,)), {}, (Slot(1), Slot(2)))
    >>> costs_of_operations(ShareProgram(1, (relu,), (Slot(1),)))[0].sent
    784
    """
    found: dict[str, list[ProgramCost]] = {}
    for instruction in program.actions:
        one = ProgramCost()
        _add(one, instruction, None)
        found.setdefault(_name_of(instruction), []).append(one)
    return [
        OperationCost(name, len(all), sum(one.opened for one in all), sum(one.dealt for one in all))
        for name, all in found.items()
    ]


def _name_of(instruction: Action) -> str:
    """The name of an operation: of a local one that of torch's."""
    if instruction.op == ShareCode.LOCAL:
        operation: LocalOperation = LOCAL_OPERATIONS[instruction.args[0]]
        return operation.name
    return ShareCode(instruction.op).name


def _reveals(program: ShareProgram) -> bool:
    return any(one.op == ShareCode.REVEAL for one in program.actions)


def _add(found: ProgramCost, instruction: Action, metas: _Metas | None) -> int:
    """Add what an instruction sends; returns its rounds."""
    code, args = instruction.op, instruction.args
    if code == ShareCode.REVEAL:
        size = 0 if metas is None else 8 * metas.of(args[0]).numel()
        found.revealed[args[1]] = found.revealed.get(args[1], 0) + size
        return 1
    if code == ShareCode.MASK:
        found.opened += 8 * torch.Size(args[-1]).numel()
        return 1
    if code == ShareCode.PRODUCT:
        found.dealt += 8 * torch.Size(args[-1]).numel()
    if code not in GATES:
        return 0
    # Which factor it is makes no difference, but for that of 1.
    profile = _profile(code, tuple(0 if value == 0 else 1 for value in args[1:-1]))
    elements = torch.Size(args[-1]).numel()
    words = -(-elements // 64)
    found.opened += elements * profile.opened[0] + words * profile.opened[1]
    found.dealt += elements * profile.dealt[0] + words * profile.dealt[1]
    return profile.rounds


@dataclass(frozen=True, slots=True)
class _Profile:
    """The rounds of a gate, and its bytes for an element and for a word of bits."""

    rounds: int
    opened: tuple[int, int]
    dealt: tuple[int, int]


_KEYS: Final = [bytes(32), bytes(32)]


@functools.cache
def _profile(code: int, settings: tuple[Any, ...]) -> _Profile:
    rounds, one, one_dealt = _measured(code, settings, 1)
    _, many, many_dealt = _measured(code, settings, 64)
    return _Profile(rounds, _factors(one, many), _factors(one_dealt, many_dealt))


def _factors(one: int, many: int) -> tuple[int, int]:
    """The bytes for an element and for a word, from those of 1 and of 64 elements."""
    element = (many - one) // 63
    return element, one - element


def _measured(code: int, settings: tuple[Any, ...], elements: int) -> tuple[int, int, int]:
    """Rounds, opened bytes and dealt bytes of a gate, run by one party that holds everything."""
    dealer = ProviderDealer(_KEYS, StreamName(0, 0))
    material = GATES[code].deal(dealer, *settings, (elements,))
    dealt = sum(8 * one.numel() for one in dealer.corrections)
    protocol = GATES[code].run(0, material, torch.zeros(elements, dtype=torch.int64, device="cpu"))
    rounds = opened = 0
    try:
        opening = next(protocol)
        while True:
            rounds += 1
            opened += sum(8 * share.numel() for share in opening.shares)
            opening = protocol.send([share.clone() for share in opening.shares])
    except StopIteration:
        return rounds, opened, dealt


class _Metas:
    """The tensors in slots, without memory: for the sizes of what is revealed."""

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self._known = {slot: _empty(shape) for slot, shape in enumerate(shapes)}

    def of(self, slot: Slot) -> torch.Tensor:
        return self._known[slot.index]

    def step(self, instruction: Action) -> None:
        """Note what an instruction makes."""
        made = self._made(instruction)
        self._known.update(zip(outs_of(instruction), made, strict=False))

    def _made(self, instruction: Action) -> Sequence[torch.Tensor]:
        code, args = instruction.op, instruction.args
        if code == ShareCode.LOCAL:
            operation = LOCAL_OPERATIONS[args[0]]
            made = operation.run(*(self._given(value) for value in args[1]), **dict(args[2]))
            return tuple(made) if operation.several else (made,)
        if code == ShareCode.LINEAR:
            number, settings, x, *factor = args
            shapes = [tuple(self.of(x).shape)]
            if factor:
                shapes.insert(0 if factor[1] else 1, tuple(factor[0].shape))
            return (_empty(kernel_from(number, settings).shape(*shapes)),)
        if code == ShareCode.PUBLIC:
            return (_empty(args[0].shape),)
        if code == ShareCode.REVEAL:
            return (self.of(args[0]),)
        return tuple(_empty(args[-1]) for _ in outs_of(instruction))

    def _given(self, value: Any) -> Any:
        if type(value) is Slot:
            return self.of(value)
        if type(value) is tuple and any(type(item) is Slot for item in value):
            return tuple(map(self._given, value))
        return on_meta(value)


def _empty(shape: Sequence[int]) -> torch.Tensor:
    return torch.empty(tuple(shape), dtype=torch.int64, device="meta")
