"""Party programs: what several workers compute together, round by round, without a message.

A *party program* is a generator.  It yields the letters that it sends to the other parties in a
round, and is resumed with those for which it asked.  A letter holds any values that can be packed.
Letters from one party to another are numbered, so a party may send several rounds ahead of what the
other has read.  A program handles no messages, so it reads like the protocol in a paper::

    @collective(CollectiveCode.SUM)
    def sum_private(party, x):
        received = yield party.round({...})     # rank -> values, to each other party
        return ...

Letters are immutable.  Nobody copies them: what is sent in one process is the sender's own memory.
So a program never writes to a tensor that it sent or received, nor returns one of them as a result.

Whether a program fails must not tell of private values.  On values that it cannot compute with it
fails before its first round; later it fails for reasons that follow from shapes and dtypes alone.

:mod:`syft.workers.handlers.collective` drives them.  It sees to guards: inputs go only where all of
them may go, and results meet the guards of all inputs and letters.  A program that is registered
with :func:`guarding` sees to guards itself; it has a :class:`HostedParty`, and takes any arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from syft.codes import CollectiveCode
from syft.exceptions import (
    HookError,
    InputRefused,
    MalformedMessage,
)
from syft.workers.core.access import Access
from syft.workers.core.pipeline import Call
from syft.workers.core.shares import SharingSession, Turns
from syft.workers.core.state_machine import WorkerCore
from syft.workers.handlers.guarded_run import Concealed
from syft.workers.labels.guards import Guard
from syft.workers.wire.messages import Start

LONGEST_CAUSE: Final = 1000
"""Characters of what is told of a failure."""

LetterName = tuple[int, int]
"""The rank of the sender, and the number of the letter among those from there to here."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A failure of an execution as all are told it: the packed ``error``, and a ``text``."""

    error: Any
    text: str
    found: Exception | None = None
    """What it was, if it was found at this worker, so that the other parties were not told."""
    size: int = 0
    """The bytes of the error, if another worker sent it."""

    @classmethod
    def of(
        cls, core: WorkerCore, error: Exception, where: str = "", cause: str | None = None
    ) -> Failed:
        """An error at a worker, ``where`` it was; what private data raised is its class alone."""
        hidden = isinstance(error, Concealed)
        raised = error.error if isinstance(error, Concealed) else error
        packed = core.failure(0, raised, hidden=hidden).error
        if where:
            packed = (*packed[:-1], (*packed[-1], f"{where} at worker {core.name!r}."))
        told = type(raised).__name__ if hidden else f"{type(raised).__name__}: {raised}"
        return cls(packed, cause or f"party {core.name} failed: {told}"[:LONGEST_CAUSE])


@dataclass(frozen=True, slots=True)
class Letter:
    """What one party sent another, and the guard of what is computed from it."""

    values: tuple[Any, ...]
    guard: Guard | None = None
    owned: bool = False
    """Whether nobody else has the memory of the values."""
    most: tuple[int, ...] | None = None
    """The sizes at most of a value whose shape is private, if its sender says so."""
    error: Failed | None = None
    """Why it will never come: then it stands for the letter, and has no values."""


@dataclass(frozen=True, slots=True)
class Round:
    """The letters that a party sends, by rank, and those for which it then waits: for all of them,
    or for ``any`` of them.

    ``guard`` is that of the letters, if the program sees to guards itself.
    """

    send: Mapping[int, Sequence[Any]]
    expect: frozenset[LetterName]
    guard: Guard | None = None
    any: bool = False


QUIETLY: Final = object()
"""What a program returns that has no results left, and of which nobody waits to hear that it has
ended well."""

Received = dict[LetterName, Letter]
PartyProgram = Generator[Round | Turns, Received, Any]
"""Yields rounds; or :class:`~syft.workers.core.shares.Turns`, to be resumed when its turn comes.
Returns its results, or what failed if it has told the others."""


@dataclass(frozen=True, slots=True)
class Party:
    """The rank of a party in an execution, and the number of parties."""

    rank: int
    size: int
    _asked: dict[int, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def others(self) -> list[int]:
        """The ranks of the other parties.

        >>> Party(1, 3).others
        [0, 2]
        """
        return [rank for rank in range(self.size) if rank != self.rank]

    def round(
        self,
        send: Mapping[int, Sequence[Any]],
        expect: Iterable[int] | None = None,
        guard: Guard | None = None,
    ) -> Round:
        """A round: send these letters, then wait for the next one from each of ``expect`` (all
        others).

        >>> party = Party(0, 2)
        >>> [sorted(party.round({}).expect) for _ in range(2)]
        [[(1, 0)], [(1, 1)]]
        """
        return Round(send, self.next_letters(self.others if expect is None else expect), guard)

    def next_letters(self, ranks: Iterable[int]) -> frozenset[LetterName]:
        """The names of the next letter from each of these; a rank may occur several times."""
        names = []
        for rank in ranks:
            number = self._asked.get(rank, 0)
            self._asked[rank] = number + 1
            names.append((rank, number))
        return frozenset(names)


@dataclass(frozen=True, slots=True)
class HostedParty(Party):
    """The place of a party at its worker, for programs that see to guards themselves.

    ``call`` is the request that started it, by which alone something is sent on; ``names`` are the
    parties by name.  What a program notes as ``sharing`` is interrupted or ends if it fails.
    """

    call: Call = field(kw_only=True)
    names: tuple[str, ...] = field(kw_only=True)
    execution: int = field(kw_only=True)
    sharing: list[SharingSession] = field(kw_only=True, default_factory=list)
    due: dict[LetterName, bool] = field(kw_only=True, default_factory=dict)
    """The letters of a program that takes them in any order, each of them once, and whether it has
    come.  No others are kept for it, and that one will never come ends nothing but what needs it.
    """
    kept: set[int] = field(kw_only=True, default_factory=set)
    """The results, by id, of which it has said itself what became of them."""
    waiting: dict[int, Any] = field(kw_only=True, default_factory=dict)
    """What it has and will use, by names of its own: what is moved to other memory is replaced."""

    def check_due(
        self, sender: str, rank: int | None, number: int, said: int, came: bool, lost: bool
    ) -> None:
        """Raise :class:`~syft.exceptions.InputRefused` for a letter of ``sender`` that is not due.

        The sender has this ``rank`` (None: it is no party) and has ``said`` that it has another
        one; the letter ``came`` already, or it was said that none of that party comes any more.
        """
        worker, what = self.names[self.rank], f"letter {number} of {sender!r}"
        if rank is None:
            raise InputRefused(worker, what, "it takes none from there")
        if came or self.due.get((rank, number), False):
            raise InputRefused(worker, what, "it has come already")
        if lost:
            raise InputRefused(worker, what, "it was said that it would not come")
        if (rank, number) not in self.due:
            places = [self.names[other] for other, known in self.due if known == number]
            why = f"it is to come from {places[0]!r}" if places else "it takes no such input"
            raise InputRefused(worker, what, why)
        if said != rank:
            raise InputRefused(worker, what, f"its sender has rank {rank}, and says {said}")


@dataclass(frozen=True, slots=True)
class Declared:
    """What a program says of its start that sees to guards itself: to which of the parties it
    ``sends``, what it does to the objects that its arguments name (``access``), and ``where`` it
    is, for errors."""

    sends: Callable[[WorkerCore, Start], Sequence[str]]
    access: Callable[[WorkerCore, Start], Access]
    where: Callable[[WorkerCore, Start], str]


PROGRAMS: dict[int, Callable[..., PartyProgram]] = {}
"""The programs on tensors, whose guards the driver sees to."""

GUARDING: dict[int, Callable[..., PartyProgram]] = {}
"""The programs that see to guards themselves.  They return the objects to be stored."""

DECLARED: dict[int, Declared] = {}
"""Those of them that do not send to all parties, or change what their first argument names."""

BEARING: set[int] = set()
"""The programs on tensors that go on when a party is lost: a letter of it has an error."""

NUMBERS: dict[int, int] = {}
"""How many numbers some programs on tensors take, after the tensors."""


def bears_losses(program: int) -> bool:
    """Whether a party that is lost ends only what needs it, as the program sees to.

    >>> bears_losses(CollectiveCode.SUM), bears_losses(CollectiveCode.ROLE)
    (False, True)
    """
    return program in DECLARED or program in BEARING


_Enter = Callable[[Callable[..., PartyProgram]], Callable[..., PartyProgram]]


def collective(code: CollectiveCode, numbers: int = 0, bears_losses: bool = False) -> _Enter:
    """Register a party program on tensors under its number; refuses duplicates.

    Its last arguments are ``numbers``.  With ``bears_losses`` it goes on when a party is lost.
    """
    if numbers:
        NUMBERS[int(code)] = numbers
    if bears_losses:
        BEARING.add(int(code))
    return _enter(code, PROGRAMS)


def guarding(code: CollectiveCode, declared: Declared | None = None) -> _Enter:
    """Register a party program that sees to guards itself; refuses duplicates."""
    if declared is not None:
        DECLARED[int(code)] = declared
    return _enter(code, GUARDING)


def _enter(code: CollectiveCode, table: dict[int, Callable[..., PartyProgram]]) -> _Enter:
    def enter(program: Callable[..., PartyProgram]) -> Callable[..., PartyProgram]:
        taken = int(code) in PROGRAMS or int(code) in GUARDING
        if taken or not inspect.isgeneratorfunction(program):
            raise HookError(
                f"cannot register {program.__name__} as collective {int(code)}",
                "use a free number and a generator function",
            )
        table[int(code)] = program
        return program

    return enter


def tensors_by_rank(received: Received) -> dict[int, torch.Tensor]:
    """The one tensor in each letter, by the rank of its sender.

    Raises :class:`~syft.exceptions.MalformedMessage` for a letter with anything else.

    >>> tensors_by_rank({(1, 0): Letter((torch.tensor(5),))})
    {1: tensor(5)}
    """
    found = {}
    for (rank, _), letter in received.items():
        if len(letter.values) != 1 or not isinstance(letter.values[0], torch.Tensor):
            raise MalformedMessage("$.values", f"one tensor from party {rank}", "something else")
        found[rank] = letter.values[0]
    return found
