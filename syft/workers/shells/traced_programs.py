"""What a trace says of programs on shared tensors: operations, rounds and bytes, never a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syft.codes import CollectiveCode
from syft.crypto.programs.share_cost import OperationCost, cost, costs_of_operations
from syft.crypto.programs.share_lint import lint
from syft.crypto.programs.share_program import ShareProgram
from syft.exceptions import SyftError
from syft.serde.frame import Frame
from syft.serde.packer import Unpacker
from syft.serde.registry import unpack_at
from syft.workers.wire.messages import Start

_COLLECTIVES = {int(code): code.name for code in CollectiveCode}
_PROGRAM = 2
"""The place of the program among the arguments of SHARES."""


@dataclass(frozen=True, slots=True)
class TracedProgram:
    """One program on shared tensors, which each party got: how long it is, and what it costs.

    ``sent`` are the bytes that a party sends to open what all may see; ``dealt`` those from the
    provider, which come ``ahead`` or online, or stay where they are if the last party deals.  What
    is revealed to one party is not counted.

    >>> print(TracedProgram(2, 4, 784, 4672, False, (OperationCost("POSITIVE", 1, 784, 4672),)))
    2 instructions, 4 rounds, 784 bytes sent by a party, 4,672 dealt
      1 x POSITIVE: 784 sent, 4,672 dealt
    """

    instructions: int
    rounds: int
    sent: int
    dealt: int
    ahead: bool
    operations: Sequence[OperationCost]

    def __str__(self) -> str:
        """A line, and one for each kind of operation that costs something."""
        ahead = " ahead" if self.ahead else ""
        lines = [
            f"{self.instructions:,} instructions, {self.rounds:,} rounds, {self.sent:,} bytes sent "
            f"by a party, {self.dealt:,} dealt{ahead}"
        ]
        lines += [
            f"  {one.count:,} x {one.name}: {one.sent:,} sent, {one.dealt:,} dealt"
            for one in self.operations
            if one.sent or one.dealt
        ]
        return "\n".join(lines)


def name_of_start(message: Start) -> str:
    """The collective operation that a message starts.

    >>> name_of_start(Start(1, 3, 5, ("a", "b"), 0, (), ()))
    'Start SHARES'
    """
    name = _COLLECTIVES.get(message.program)
    return "Start" if name is None else f"Start {name}"


def program_in(message: Start, frame: Frame, provided: bool = True) -> TracedProgram | None:
    """The program in the message to the first party; None in others, which hold the same one.

    ``provided``: a provider that is no party deals for it now, and is the last one named.

    >>> program_in(Start(1, 1, 5, ("a", "b"), 0, (), ()), None) is None
    True
    """
    if message.program != CollectiveCode.SHARES or message.rank or len(message.args) <= _PROGRAM:
        return None
    ahead = not isinstance(message.args[1], int)  # a reference to what was dealt
    others = len(message.parties) - (2 if provided else 1)
    try:
        program = unpack_at(message.args[_PROGRAM], Unpacker(frame.buffers), ".args[2]")
        if not isinstance(program, ShareProgram):
            return None
        lint(program, others + 1)
    except SyftError:  # the party will say what is wrong
        return None
    found = cost(program)
    operations = [
        OperationCost(one.name, one.count, one.sent * others, one.dealt)
        for one in costs_of_operations(program)
    ]
    return TracedProgram(
        len(program.actions),
        found.rounds,
        found.opened * others,
        found.dealt,
        ahead,
        tuple(operations),
    )
