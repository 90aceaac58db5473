"""How values flow through a share program: who reads which slot, and what must stay in order."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from syft.crypto.programs.local_operations import LOCAL_OPERATIONS
from syft.crypto.programs.share_program import Instruction, ShareCode, ShareProgram, ShareSlot


def operands_of(instruction: Instruction) -> list[int]:
    """The slots that an instruction reads, as often as it does.

    >>> operands_of(Instruction(ShareCode.LOCAL, (0, ((ShareSlot(4), ShareSlot(4)), 1), ()), (5,)))
    [4, 4]
    """
    found: list[int] = []
    _collect(instruction.args, found)
    return found


def operands_in(program: ShareProgram) -> Sequence[Sequence[int]]:
    """The slots that each instruction of a program reads; found once.

    >>> operands_in(ShareProgram(1, (Instruction(ShareCode.REVEAL, (ShareSlot(0), 0), (1,)),), ()))
    [[0]]
    """
    if not program.operands:
        program.operands[:] = map(operands_of, program.instructions)
    return program.operands


def _collect(values: tuple[Any, ...], found: list[int]) -> None:
    for value in values:
        kind = type(value)
        if kind is ShareSlot:
            found.append(value.number)
        elif kind is tuple:
            _collect(value, found)


def segments_of(program: ShareProgram) -> Iterator[Sequence[int]]:
    """The places between operations that write in place; each of those is alone.

    >>> from syft.crypto.programs.local_operations import number_of
    >>> zero = number_of(torch.ops.aten.zero_.default)
    >>> write = Instruction(ShareCode.LOCAL, (zero, (ShareSlot(0),), ()), ())
    >>> read = Instruction(ShareCode.REVEAL, (ShareSlot(0), 0), (1,))
    >>> [list(part) for part in segments_of(ShareProgram(1, (read, read, write, read), ()))]
    [[0, 1], [2], [3]]
    """
    start = 0
    for place, instruction in enumerate(program.instructions):
        if writes_in_place(instruction):
            if start < place:
                yield range(start, place)
            yield (place,)
            start = place + 1
    if start < len(program.instructions):
        yield range(start, len(program.instructions))


def writes_in_place(instruction: Instruction) -> bool:
    """Whether an instruction writes to a tensor that it got.

    >>> from syft.crypto.programs.local_operations import number_of
    >>> zero = number_of(torch.ops.aten.zero_.default)
    >>> writes_in_place(Instruction(ShareCode.LOCAL, (zero, (ShareSlot(0),), ()), ()))
    True
    """
    return instruction.code is ShareCode.LOCAL and LOCAL_OPERATIONS[instruction.args[0]].in_place


def origins(
    program: ShareProgram, memory: Sequence[Hashable] | None = None
) -> dict[int, frozenset[int]]:
    """The inputs from which each result, and each input after the program, was computed.

    Views share what is written to any of them.  Inputs of the same ``memory`` do so from the start;
    without it, no two inputs share any.

    >>> divide = Instruction(ShareCode.DIVIDE, (ShareSlot(0), 16, (2,)), (2,))
    >>> origins(ShareProgram(2, (divide,), (2,)))
    {0: frozenset({0}), 1: frozenset({1}), 2: frozenset({0})}
    """
    traced = _traced(program, memory)
    return {slot: traced.of(slot) for slot in (*range(program.inputs), *program.results)}


def written_inputs(
    program: ShareProgram, memory: Sequence[Hashable] | None = None
) -> frozenset[int]:
    """The inputs whose memory a program writes to.

    >>> from syft.crypto.programs.local_operations import number_of
    >>> zero = number_of(torch.ops.aten.zero_.default)
    >>> write = Instruction(ShareCode.LOCAL, (zero, (ShareSlot(1),), ()), ())
    >>> written_inputs(ShareProgram(2, (write,), ()))
    frozenset({1})
    """
    traced = _traced(program, memory)
    return frozenset(i for i in range(program.inputs) if traced.block[i] in traced.written)


class _Origins:
    """Blocks of memory: which slots lie in which, and from which inputs each was computed."""

    def __init__(self, memory: Sequence[Hashable]) -> None:
        self.block: dict[int, Hashable] = {}
        self.sources: dict[Hashable, frozenset[int]] = {}
        self.written: set[Hashable] = set()
        for number, key in enumerate(memory):
            self.block[number] = block = ("input", key)
            self.sources[block] = self.sources.get(block, frozenset()) | {number}

    def of(self, slot: int) -> frozenset[int]:
        return self.sources[self.block[slot]]

    def step(self, place: int, instruction: Instruction) -> None:
        operands = operands_of(instruction)
        sources = frozenset().union(*map(self.of, operands))
        block: Hashable = place
        if instruction.code is ShareCode.LOCAL:
            operation = LOCAL_OPERATIONS[instruction.args[0]]
            if operation.view or operation.in_place:
                block = self.block[operands[0]]
            if operation.in_place:
                self.written.add(block)
        self.sources[block] = sources
        self.block.update(dict.fromkeys(instruction.outs, block))


def _traced(program: ShareProgram, memory: Sequence[Hashable] | None) -> _Origins:
    traced = _Origins(range(program.inputs) if memory is None else memory)
    for place, instruction in enumerate(program.instructions):
        traced.step(place, instruction)
    return traced
