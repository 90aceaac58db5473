"""Programs that were sent and may still fail, and what it takes to undo them.

A program has ended well when every worker that has a part in it says so.  Until then the parties
keep what it has overwritten, and the client the shares that it sent with it.  Parties refuse what
comes after a program that has failed, so what has to be undone is the first one that did not end
well and all after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from syft.crypto.programs.share_flow import places_of_writes, written_inputs
from syft.crypto.programs.share_program import ShareProgram
from syft.exceptions import ObjectNotReady, RemoteFailure, SessionEnded, SharedOperationFailed
from syft.tensors.shared.instruction_list import ProgramInput
from syft.workers.client.connection import Connection, Pending

_TOLD: Final = RemoteFailure, SessionEnded, SharedOperationFailed, ObjectNotReady
"""What a worker raises because another one has failed, or is gone."""


@dataclass(slots=True)
class SentProgram:
    """A program that was sent: what it takes and makes, and who has not said that it is done.

    ``left`` counts the parts that have not ended.  Under the id in ``kept``, if there is one,
    the parties keep what the program has overwritten.
    """

    program: ShareProgram
    inputs: Sequence[ProgramInput]
    ids: Sequence[int]
    left: int = 0
    kept: tuple[int, ...] = ()
    parts: list[tuple[Connection, Pending]] = field(default_factory=list)
    done: list[Connection] = field(default_factory=list)
    """The parties that have ended theirs well."""
    failed: bool = False
    dealt: bool = False
    """Whether the provider has dealt for it when it was sent."""

    @property
    def fresh(self) -> list[tuple[int, ProgramInput]]:
        """The results that are shares which came with the program: their ids, and the shares.

        >>> from syft.program.program import Slot
        >>> SentProgram(ShareProgram(1, (), (Slot(0),)), [77], [5]).fresh
        [(5, 77)]
        """
        count = self.program.inputs
        results = zip(self.program.results, self.ids, strict=True)
        return [(id, self.inputs[slot]) for slot, id in results if slot < count]


class SentPrograms:
    """The programs of a session that may still fail, in the order in which they were sent.

    >>> sent = SentPrograms(); sent.under_way, sent.errors
    (deque([]), [])
    """

    def __init__(self) -> None:
        self.under_way: deque[SentProgram] = deque()
        self.errors: list[Exception] = []
        """What parts have failed with, and other requests of the session."""

    def watch(self, sent: SentProgram, line: Connection, pending: Pending, deals: bool) -> None:
        """Note that a worker was sent its part of a program under way; the provider ``deals``."""
        sent.parts.append((line, pending))

        def settled() -> None:
            sent.left -= 1
            try:
                line.replies.take(pending)
            except Exception as error:  # whatever the worker's torch raised
                sent.failed = True
                self.errors.append(error.with_traceback(None))
            else:
                if not deals:
                    sent.done.append(line)
                self._forget_done()

        line.replies.when_settled(pending, settled)

    def _forget_done(self) -> None:
        """Forget the oldest programs, as far as they have ended well; the parties do too."""
        under_way = self.under_way
        while under_way and not under_way[0].left and not under_way[0].failed:
            drop_overwritten([under_way.popleft()])


def overwrites(program: ShareProgram, inputs: Sequence[ProgramInput]) -> bool:
    """Whether a program writes in place to what the parties have stored.

    >>> from syft.program.program import Slot
    >>> overwrites(ShareProgram(1, (), (Slot(0),)), [77])
    False
    """
    if not places_of_writes(program):
        return False
    return any(isinstance(inputs[place], int) for place in written_inputs(program))


def drop_overwritten(programs: Sequence[SentProgram]) -> None:
    """Have what programs have overwritten dropped with the next requests.

    >>> drop_overwritten([])
    """
    for sent in programs:
        for line in sent.done:
            line.garbage.extend(sent.kept)


def collect(line: Connection, pending: Pending, errors: list[Exception]) -> None:
    """Put what a request raises into a list; it is not raised over the line then."""

    def settled() -> None:
        try:
            line.replies.take(pending)
        except Exception as error:  # whatever the worker's torch raised
            errors.append(error.with_traceback(None))

    line.replies.when_settled(pending, settled)


def first_cause(errors: list[Exception]) -> Exception:
    """Take from the errors of several workers that of the one who failed: others only tell of it.

    >>> first_cause([RemoteFailure("collective", "bob failed"), ValueError("bob is full")])
    ValueError('bob is full')
    """
    cause = min(errors, key=lambda error: isinstance(error, _TOLD))
    errors.clear()  # a list in the frame that raises one would keep that frame
    return cause
