"""How values flow through a share program: who reads which slot, and what must stay in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from syft.crypto.local_operations import LOCAL_OPERATIONS
from syft.crypto.share_program import Instruction, ShareCode, ShareProgram, ShareSlot


def operands_of(instruction: Instruction) -> list[int]:
    """The slots that an instruction reads, as often as it does.

    >>> operands_of(Instruction(ShareCode.LOCAL, (0, ((ShareSlot(4), ShareSlot(4)), 1), ()), (5,)))
    [4, 4]
    """
    found: list[int] = []
    _collect(instruction.args, found)
    return found


def _collect(values: tuple[Any, ...], found: list[int]) -> None:
    for value in values:
        kind = type(value)
        if kind is ShareSlot:
            found.append(value.number)
        elif kind is tuple:
            _collect(value, found)


def segments_of(program: ShareProgram) -> Iterator[Sequence[int]]:
    """The places between operations that write in place; each of those is alone.

    >>> from syft.crypto.local_operations import number_of
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

    >>> from syft.crypto.local_operations import number_of
    >>> zero = number_of(torch.ops.aten.zero_.default)
    >>> writes_in_place(Instruction(ShareCode.LOCAL, (zero, (ShareSlot(0),), ()), ()))
    True
    """
    return instruction.code is ShareCode.LOCAL and LOCAL_OPERATIONS[instruction.args[0]].in_place
