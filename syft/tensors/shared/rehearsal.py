"""Running a function on shared tensors to see which programs it makes, while nothing is sent.

Shapes are public, so the programs of a run are known before it.  What they cost, and what can be
dealt for them ahead, follows from them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from syft.chain.wrapper import Wrapper
from syft.crypto.programs.share_cost import ProgramCost, cost
from syft.crypto.programs.share_dealing import deals_of
from syft.crypto.programs.share_program import ShareProgram
from syft.exceptions import UnsupportedOperation
from syft.ops.calls import written_arguments
from syft.ops.nested import Arguments, Keywords, leaves
from syft.tensors.fixed.fixed_link import argument
from syft.tensors.shared.cells import Cell
from syft.tensors.shared.instruction_list import ProgramInput
from syft.tensors.shared.party_lines import PartyLines
from syft.tensors.shared.session_client import SessionClient
from syft.tensors.shared.stock import Deals, masks_in
from syft.torch_private import TorchDispatchMode


@dataclass(frozen=True, slots=True)
class RehearsedProgram:
    """A program that would have been sent, with the counter under which others name its masks."""

    counter: int
    program: ShareProgram

    @property
    def deals(self) -> Deals:
        """What has to be dealt for it."""
        return deals_of(self.program)

    def cost(self) -> ProgramCost:
        """What it costs."""
        return cost(self.program)


class Rehearsal(PartyLines):
    """Lines of a session that keep its programs; ``runs`` has those of each call."""

    def __init__(self, session: SessionClient) -> None:
        self.session, self._real = session, session.lines
        self.owner, self.parties = self._real.owner, self._real.parties
        self.provider = self._real.provider
        self.runs: list[list[RehearsedProgram]] = []
        self.made: set[int] = set()
        """The ids under which the parties would have what was made, and somebody still has it."""
        self.kept: list[Cell] = []
        """What the first call has opened, and later ones use as it was opened: weights."""

    def run(
        self,
        counter: int,
        program: ShareProgram,
        inputs: Sequence[ProgramInput],
        ids: Sequence[int],
        material: int | None = None,
    ) -> None:
        """Keep the program."""
        self.runs[-1].append(RehearsedProgram(counter, program))
        self.made.update(ids)

    def note_kept(self) -> None:
        """Find what the last call names of that which the first one has opened."""
        counters = {one.counter for one in self.runs[0]}
        named = set().union(*(masks_in(one.deals) for one in self.runs[-1]))
        self.kept = [
            cell
            for cell in self.session.masked_cells()
            if cell.id not in self.made
            and _mask_of(cell) in named
            and _mask_of(cell)[0] in counters
        ]

    def _refuse(self, *args: Any) -> NoReturn:
        """Refused: there is nothing to be fetched, and nobody to ask."""
        raise UnsupportedOperation(
            "fetching, splitting or revealing values",
            "a rehearsal",
            "have the function return the shared tensor, and get() it afterwards",
        )

    fetch: Any = _refuse
    pointer: Any = _refuse
    split: Any = _refuse
    deal_ahead: Any = _refuse
    waiting_bytes: Any = _refuse
    settle: Any = _refuse
    roll_back: Any = _refuse

    def failure(self) -> None:
        """None: nothing is sent."""

    def discard(self, id: int) -> None:
        """Pass on what is stored at the parties."""
        if id in self.made:
            self.made.discard(id)
        else:
            self._real.discard(id)


def _mask_of(cell: Cell) -> tuple[int, int]:
    """The mask behind which a tensor was opened: counter and place; (0, 0) if it was not sent."""
    name = None if cell.masked is None else cell.masked[1].name
    return (0, 0) if name is None else (name.counter, name.place)


class UnwrittenTensors(TorchDispatchMode):
    """A context after which plain tensors that were written to in it are as they were before.

    What a plan replays counts steps of optimizers, and a layer the batches that it has seen.

    >>> steps = torch.zeros(())
    >>> with UnwrittenTensors():
    ...     _ = steps.add_(1)
    >>> steps
    tensor(0.)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for target in leaves(
            tuple(argument(*place, args, kwargs) for place in written_arguments(func))
        ):
            if isinstance(target, torch.Tensor) and type(target) is not Wrapper:
                self._before.append((target.detach(), target.detach().clone()))
        return func(*args, **kwargs)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for target, before in reversed(self._before):
            target.copy_(before)


def rehearse(
    sessions: Sequence[SessionClient],
    function: Callable[..., Any],
    args: Sequence[Any],
    cells: Sequence[Cell],
    calls: int = 2,
) -> list[Rehearsal]:
    """The programs of so many calls of a function, for each session.

    What was recorded before is sent first.  ``cells`` are those of the arguments, which are opened
    in every run, as those of later runs will be.

    >>> rehearse([], len, [[]], [])
    []
    """
    rehearsals = [Rehearsal(session) for session in sessions]
    with contextlib.ExitStack() as stack:
        for one in rehearsals:
            stack.enter_context(one.session.rehearsing(one, one.made))
        stack.enter_context(UnwrittenTensors())
        for _ in range(calls):
            for cell in cells:
                cell.masked = None
            for one in rehearsals:
                one.runs.append([])
            result = function(*args)
            for session in sessions:
                session.flush()
            del result
        for one in rehearsals:
            one.note_kept()
    return rehearsals
