"""A list of the messages between workers, to see what a line of code costs on a network.

A trace shows the sender, receiver, kind, size in bytes and delivery time of every message, and
what programs on shared tensors hold and cost.  It never shows a value;
:class:`~syft.workers.shells.message_trace.MessageLog` keeps whole messages, for tests.

A log of all messages between workers, for tests of which data was sent.

What a trace says of programs on shared tensors: operations, rounds and bytes, never a value.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from syft.codes import CollectiveCode
from syft.crypto.programs.share_cost import OperationCost, cost, costs_of_operations
from syft.crypto.programs.share_lint import lint
from syft.crypto.programs.share_program import ShareProgram
from syft.exceptions import SyftError
from syft.notebook_html import block, table
from syft.ops.table import NAMES
from syft.serde.frame import Frame
from syft.serde.packer import Unpacker
from syft.serde.registry import unpack_at
from syft.workers.shells.network import Network
from syft.workers.wire import messages
from syft.workers.wire.messages import Command, Message, Run, Start
from syft.workers.wire.sealed_bytes import is_sealed

_HEAD: Final = ("ms", "from", "to", "bytes", "what")
_RIGHT: Final = frozenset((0, 3))
"""The columns of numbers."""


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """One message of a trace: ``at`` is in seconds since the trace began.

    >>> TracedMessage("me", "bob", "torch.add", 24, 0.0005).cells()
    ('0.500', 'me', 'bob', '24', 'torch.add')
    """

    sender: str
    receiver: str
    what: str
    nbytes: int
    at: float

    def cells(self) -> tuple[str, ...]:
        """The cells of its row in the table."""
        return f"{self.at * 1e3:.3f}", self.sender, self.receiver, f"{self.nbytes:,}", self.what


class Trace:
    """Every message of a network while the ``with`` block runs; print it to see a table.

    >>> with sy.trace() as trace:
    ...     y = torch.ones(2).send(bob) + 1
    >>> [(line.sender, line.what) for line in trace]
    [('me', 'Put'), ('bob', 'Done'), ('me', 'torch.Tensor.add'), ('bob', 'Done')]
    """

    def __init__(self, network: Network, clock: Callable[[], float] = time.perf_counter) -> None:
        self._network = network
        self._clock = clock
        self._began = 0.0
        self._lines: list[TracedMessage] = []
        self._dealt: int | None = None
        """The execution for which a provider was asked last."""
        self.programs: list[TracedProgram] = []
        """The programs on shared tensors that parties got from this process."""

    def __enter__(self) -> Trace:
        self._began = self._clock()
        self._network.observers.append(self._observe)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._network.observers.remove(self._observe)

    def _observe(self, sender: str, receiver: str, frame: Frame) -> None:
        at = self._clock() - self._began
        sealed = is_sealed(frame)
        message = None if sealed else messages.decode(frame.header)
        what = "sealed, on its way" if message is None else _kind(message)
        if type(message) is Start:
            self._note_program(message, frame)
        self._lines.append(TracedMessage(sender, receiver, what, frame.nbytes, at))

    def _note_program(self, message: Start, frame: Frame) -> None:
        """Keep the program that a message starts; that to the provider comes first."""
        if message.program == CollectiveCode.DEAL:
            self._dealt = message.execution
        program = program_in(message, frame, message.execution == self._dealt)
        if program is not None:
            self.programs.append(program)

    @property
    def nbytes(self) -> int:
        """The total bytes of all messages.

        >>> with sy.trace() as trace:
        ...     x = torch.ones(1000).send(bob)
        >>> trace.nbytes > 4000
        True
        """
        return sum(line.nbytes for line in self._lines)

    def __iter__(self) -> Iterator[TracedMessage]:
        return iter(self._lines)

    def __getitem__(self, index: int) -> TracedMessage:
        return self._lines[index]

    def __len__(self) -> int:
        return len(self._lines)

    def _total(self) -> str:
        count = len(self._lines)
        messages = "1 message" if count == 1 else f"{count:,} messages"
        last = self._lines[-1].at if self._lines else 0.0
        return f"{messages}, {self.nbytes:,} bytes, {last * 1e3:.3f} ms"

    def __repr__(self) -> str:
        rows = [_HEAD, *(line.cells() for line in self._lines)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
        programs = [f"program {at}: {one}" for at, one in enumerate(self.programs, 1)]
        return "\n".join([*lines, self._total(), *programs])

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        shown = table(_HEAD, (line.cells() for line in self._lines))
        return f"{shown}<p>{self._total()}</p>{''.join(block(str(one)) for one in self.programs)}"


def _aligned(row: tuple[str, ...], widths: list[int]) -> list[str]:
    return [
        cell.rjust(width) if column in _RIGHT else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _kind(message: Message) -> str:
    """The operation of a command, or the kind of another message."""
    if type(message) is Command:
        return NAMES[message.op] if 0 <= message.op < len(NAMES) else f"op {message.op}"
    if type(message) is Run:
        return f"Run {message.number}" if message.define is None else f"Run {message.number}, new"
    return name_of_start(message) if type(message) is Start else type(message).__name__


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """One message with its sender, receiver, tensor data and size.

    >>> with hook.record() as log:
    ...     x = torch.ones(2).send(bob)
    >>> log[0].sender, log[0].receiver, log[0].buffers[0].nbytes
    ('me', 'bob', 8)
    """

    sender: str
    receiver: str
    message: messages.Message
    buffers: tuple[torch.Tensor, ...]
    nbytes: int


class MessageLog:
    """Every message of a network while the ``with`` block runs. Iterate over it, or index it.

    The tensor data of a message is copied, so that an entry shows the data at the time of sending.

    >>> with hook.record() as log:
    ...     x = torch.ones(2).send(bob) + 1
    >>> [type(entry.message).__name__ for entry in log.to("bob")]
    ['Put', 'Command']
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._entries: list[LoggedMessage] = []

    def __enter__(self) -> MessageLog:
        self._network.observers.append(self._observe)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._network.observers.remove(self._observe)

    def _observe(self, sender: str, receiver: str, frame: Frame) -> None:
        if is_sealed(frame):
            return  # nobody can read it here
        buffers = tuple(buffer.clone() for buffer in frame.buffers)
        message = messages.decode(frame.header)
        self._entries.append(LoggedMessage(sender, receiver, message, buffers, frame.nbytes))

    def to(self, receiver: str) -> list[LoggedMessage]:
        """The messages that reached one worker.

        >>> with hook.record() as log:
        ...     x = torch.ones(2).send(bob)
        >>> len(log), len(log.to("bob")), len(log.to("me"))
        (2, 1, 1)
        """
        return [entry for entry in self._entries if entry.receiver == receiver]

    def __iter__(self) -> Iterator[LoggedMessage]:
        return iter(self._entries)

    def __getitem__(self, index: int) -> LoggedMessage:
        return self._entries[index]

    def __len__(self) -> int:
        return len(self._entries)


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
