"""What a function on shared tensors will cost, and dealing for it ahead of time.

The provider's work does not depend on any value.  It can be done when nobody waits: then a run
sends nothing to the provider and waits for nothing from it, which may be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from syft.exceptions import StockFull, UnusableSetting
from syft.ops.nested import leaves
from syft.tensors.shared.cells import Cell
from syft.tensors.shared.dealing_ahead import Run
from syft.tensors.shared.rehearsal import Rehearsal, RehearsedProgram, rehearse
from syft.tensors.shared.session_client import SessionClient
from syft.tensors.shared.sessions import sessions_of
from syft.tensors.shared.shared_values import shared_cell
from syft.tensors.shared.untouched_optimizers import UntouchedOptimizers, drop_unreal_gradient
from syft.tensors.shared.verification import RowsUsed
from syft.workers.client.transport import Owner

MOST_BYTES_AHEAD: Final = 1 << 30
"""The bytes that are dealt ahead for a session, if nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run of a function on shared tensors costs, once what it keeps is opened.

    ``rounds`` are messages that parties wait for, one after another.  ``sent`` are the bytes of
    tensors that a party sends to the others, the largest over the parties; ``once`` those that it
    sends besides in the first run, for what stays open behind its mask: weights.  ``dealt`` are
    the bytes that the provider sends the last party, online or ahead; a party that deals sends them
    besides ``sent``, and nobody if it is the last one.  ``programs`` is how many
    messages each party gets from the client, and ``instructions`` what they hold.

    >>> print(Cost(rounds=4, sent=1568, dealt=9000, instructions=2, programs=1, once=64))
    4 rounds, 1,568 bytes sent by a party (64 more the first time), 9,000 bytes dealt, \
2 instructions in 1 program
    """

    rounds: int
    sent: int
    dealt: int
    instructions: int
    programs: int
    once: int = 0
    functions: tuple[str, ...] = field(default=(), repr=False)
    """What each function that it uses is made for, and how far a result may be off; see
    ``docs/fixed_precision.md``."""

    def __str__(self) -> str:
        first = f" ({self.once:,} more the first time)" if self.once else ""
        return (
            f"{_counted(self.rounds, 'round')}, {self.sent:,} bytes sent by a party{first}, "
            f"{self.dealt:,} bytes dealt, {_counted(self.instructions, 'instruction')} in "
            f"{_counted(self.programs, 'program')}"
            + "".join(f"\n  {line}" for line in self.functions)
        )


@dataclass(frozen=True, slots=True)
class StockLevel:
    """What was dealt ahead and waits: for how many ``runs``, and its bytes at the last parties.

    >>> print(StockLevel(3, 12000))
    3 runs dealt ahead, 12,000 bytes
    """

    runs: int
    nbytes: int

    def __str__(self) -> str:
        return f"{_counted(self.runs, 'run')} dealt ahead, {self.nbytes:,} bytes"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def cost_of(owner: Owner, function: Callable[..., Any], args: Sequence[Any]) -> Cost:
    """What a function, a module or a plan costs on these arguments; nothing is sent for it.

    It is called twice, so that what is opened once is told apart, with the sessions that the
    ``owner`` has.

    >>> cost_of(hook.local_worker, len, [[1]])
    Cost(rounds=0, sent=0, dealt=0, instructions=0, programs=0, once=0)
    """
    with RowsUsed() as used:
        found = _rehearsed(sessions_of(owner), function, args)
    first, later = ([(one.session, run) for one in found for run in [one.runs[n]]] for n in (0, 1))
    total, opening = _sum(later), _sum(first)
    once = max(0, opening.sent - total.sent)
    counts = total.rounds, total.sent, total.dealt, total.instructions, total.programs
    return Cost(*counts, once, tuple(used.lines()))


def _sum(runs: Sequence[tuple[SessionClient, Sequence[RehearsedProgram]]]) -> Cost:
    rounds = sent = dealt = instructions = programs = 0
    for session, run in runs:
        for one in run:
            found = one.cost()
            rounds += found.rounds
            sent += found.opened * (len(session.parties) - 1)
            dealt += found.dealt
            instructions += len(one.program.actions)
            programs += 1
    return Cost(rounds, sent, dealt, instructions, programs)


def prepare_runs(
    owner: Owner,
    function: Callable[..., Any],
    args: Sequence[Any],
    n: int,
    most_bytes: int = MOST_BYTES_AHEAD,
) -> StockLevel:
    """Have what the next ``n`` runs of a function need dealt now; waits until it is there.

    What the function keeps, such as weights, is opened behind its mask first.  Raises
    :class:`~syft.exceptions.StockFull` if more than ``most_bytes`` would wait in a session, and
    :class:`~syft.exceptions.LimitExceeded` if the last party does not keep so much.

    >>> prepare_runs(hook.local_worker, len, [[1]], 5)
    StockLevel(runs=0, nbytes=0)
    """
    if type(n) is not int or n < 1:
        raise UnusableSetting("n", "a number of runs from 1 on", repr(n))
    sessions = sessions_of(owner)
    for one in _rehearsed(sessions, function, args):
        one.session.open(one.kept)
    found = _rehearsed(sessions, function, args)
    needs = [(one.session, _needs(one.runs[0]), _needs(one.runs[1])) for one in found]
    for session, first, later in needs:
        wanted = session.stock.nbytes + _bytes_of(first) + (n - 1) * _bytes_of(later)
        if wanted > most_bytes:
            raise StockFull(n, wanted, most_bytes)
    for session, first, later in needs:
        session.deal_ahead([first, *[later] * (n - 1)])
    return stock_level(owner)


def _needs(programs: Sequence[RehearsedProgram]) -> Run:
    """What the programs of a run need."""
    return [(one.counter, one.deals, one.cost().dealt) for one in programs]


def _bytes_of(run: Run) -> int:
    return sum(nbytes for _, _, nbytes in run)


def stock_level(owner: Owner) -> StockLevel:
    """What waits for the sessions of a worker; each last party is asked for its bytes.

    >>> stock_level(hook.local_worker)
    StockLevel(runs=0, nbytes=0)
    """
    levels = [one.stock_level() for one in sessions_of(owner)]
    return StockLevel(sum(runs for runs, _ in levels), sum(nbytes for _, nbytes in levels))


def _rehearsed(
    sessions: Sequence[SessionClient], function: Callable[..., Any], args: Sequence[Any]
) -> list[Rehearsal]:
    with UntouchedOptimizers():
        found = rehearse(sessions, function, args, _cells(args))
    for one in leaves(tuple(args)):
        if isinstance(one, torch.Tensor) and one.is_leaf:
            drop_unreal_gradient(one)
    return found


def _cells(args: Sequence[Any]) -> list[Cell]:
    """The cells of the shared tensors among arguments."""
    found = (shared_cell(one) for one in leaves(tuple(args)))
    return [cell for cell in found if cell is not None]
