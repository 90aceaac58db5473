"""A list of the messages between workers, to see what a line of code costs on a network.

A trace shows the sender, receiver, kind, size in bytes and delivery time of every message, and
what programs on shared tensors hold and cost.  It never shows a value;
:class:`~syft.workers.shells.message_log.MessageLog` keeps whole messages, for tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from syft.codes import CollectiveCode
from syft.notebook_html import block, table
from syft.ops.table import NAMES
from syft.serde.frame import Frame
from syft.workers.shells.network import Network
from syft.workers.shells.traced_programs import TracedProgram, name_of_start, program_in
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
