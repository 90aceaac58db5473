"""How values flow through a share program: what must stay in order, and what comes from where."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from syft.crypto.programs.local_operations import LOCAL_OPERATIONS
from syft.crypto.programs.share_program import ShareCode, ShareProgram, outs_of
from syft.program.flow import reads_in
from syft.program.program import Action


def segments_of(program: ShareProgram) -> Sequence[Sequence[int]]:
    """The places between operations that write in place; each of those is alone.  Found once.

    >>> from syft.crypto.programs.local_operations import number_of
    >>> from syft.program.program import Slot
    >>> zero = number_of(torch.ops.aten.zero_.default)
    >>> write = Action(ShareCode.LOCAL, (zero, (Slot(0),), ()), {}, None)
    >>> read = Action(ShareCode.REVEAL, (Slot(0), 0), {}, Slot(1))
    >>> [list(part) for part in segments_of(ShareProgram(1, (read, read, write, read), ()))]
    [[0, 1], [2], [3]]
    """
    found: list[Sequence[int]] | None = program.facts.get("segments")
    if found is not None:
        return found
    found, start = [], 0
    for place in [*places_of_writes(program), len(program.actions)]:
        parts = range(start, place), range(place, min(place + 1, len(program.actions)))
        found += filter(None, parts)
        start = place + 1
    program.facts["segments"] = found
    return found


def places_of_writes(program: ShareProgram) -> Sequence[int]:
    """The places of operations that write in place; found once.

    >>> places_of_writes(ShareProgram(1, (), ()))
    []
    """
    found: list[int] | None = program.facts.get("writes")
    if found is None:
        found = [place for place, one in enumerate(program.actions) if writes_in_place(one)]
        program.facts["writes"] = found
    return found


def writes_in_place(instruction: Action) -> bool:
    """Whether an instruction writes to a tensor that it got.

    >>> from syft.crypto.programs.local_operations import number_of
    >>> from syft.program.program import Slot
    >>> zero = number_of(torch.ops.aten.zero_.default)
    >>> writes_in_place(Action(ShareCode.LOCAL, (zero, (Slot(0),), ()), {}, None))
    True
    """
    return instruction.op == ShareCode.LOCAL and LOCAL_OPERATIONS[instruction.args[0]].in_place


def origins(
    program: ShareProgram, memory: Sequence[Hashable] | None = None
) -> dict[int, frozenset[int]]:
    """The inputs from which each result, and each input after the program, was computed.

    Views share what is written to any of them.  Inputs of the same ``memory`` do so from the start;
    without it, no two inputs share any.

    >>> from syft.program.program import Slot
    >>> divide = Action(ShareCode.DIVIDE, (Slot(0), 16, (2,)), {}, Slot(2))
    >>> origins(ShareProgram(2, (divide,), (Slot(2),)))
    {0: frozenset({0}), 1: frozenset({1}), 2: frozenset({0})}
    """
    traced = _traced(program, memory)
    return {slot: traced.of(slot) for slot in (*range(program.inputs), *program.results)}


def written_inputs(
    program: ShareProgram, memory: Sequence[Hashable] | None = None
) -> frozenset[int]:
    """The inputs whose memory a program writes to.

    >>> from syft.crypto.programs.local_operations import number_of
    >>> from syft.program.program import Slot
    >>> zero = number_of(torch.ops.aten.zero_.default)
    >>> write = Action(ShareCode.LOCAL, (zero, (Slot(1),), ()), {}, None)
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

    def step(self, place: int, instruction: Action, operands: Sequence[int]) -> None:
        sources = frozenset().union(*map(self.of, operands))
        block: Hashable = place
        if instruction.op == ShareCode.LOCAL:
            operation = LOCAL_OPERATIONS[instruction.args[0]]
            if operation.view or operation.in_place:
                block = self.block[operands[0]]
            if operation.in_place:
                self.written.add(block)
        self.sources[block] = sources
        self.block.update(dict.fromkeys(outs_of(instruction), block))


def _traced(program: ShareProgram, memory: Sequence[Hashable] | None) -> _Origins:
    traced = _Origins(range(program.inputs) if memory is None else memory)
    for place, operands in enumerate(reads_in(program)):
        traced.step(place, program.actions[place], operands)
    return traced
