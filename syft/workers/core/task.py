"""One operation that waits: what for, what it will make, and what waits for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from syft.workers.core.access import READS, Access
from syft.workers.core.peer_limits import Account

Run = Callable[[dict[int, Any] | None], None]


def _nothing(held: dict[int, Any] | None) -> None:
    """The work of a task that has none."""


class Task:
    """One parked operation.

    ``run`` is called with the inputs by id: those present when the task was parked and those that
    arrived since.  They stay usable even if their pointers are dropped meanwhile.  ``run`` is
    called with None when all pointers to the results were dropped.  ``request`` identifies the task
    for :meth:`Dataflow.cancel`.

    >>> Task(1) < Task(2)
    True
    """

    __slots__ = (
        "number",
        "request",
        "run",
        "inputs",
        "outs",
        "access",
        "missing",
        "awaits",
        "held",
        "graphs",
        "unheld",
        "followers",
        "blockers",
        "blocks",
        "usages",
        "payer",
    )

    def __init__(
        self,
        number: int,
        run: Run = _nothing,
        inputs: tuple[int, ...] = (),
        outs: tuple[int, ...] = (),
        access: Access = READS,
        request: Hashable = None,
    ) -> None:
        self.number = number
        self.request = request
        self.run = run
        self.inputs = inputs
        self.outs = outs
        self.access = access
        self.missing: set[int] = set()
        self.awaits: tuple[int, ...] = ()
        """The promises from outside for which it waited when it was parked; see
        :mod:`~syft.workers.core.open_promises`."""
        self.held: dict[int, Any] = {}
        self.graphs: dict[int, Any] = {}
        """What leads to the graphs of these (:mod:`~syft.workers.core.graphs`)."""
        self.unheld: set[int] = set()
        """The inputs that an earlier parked task takes out of the store."""
        self.followers: list[Task] = []
        """The later tasks that name what this one takes out of the store."""
        self.blockers: set[Task] = set()
        self.blocks: set[Task] = set()
        self.usages: set[Any] = set()
        """Where the scoreboard keeps it."""
        self.payer: Account | None = None
        """The account of the caller, while it is charged for this operation."""

    def __lt__(self, other: Task) -> bool:
        return self.number < other.number

    @property
    def ready(self) -> bool:
        """Whether nothing is left for which it waits.

        >>> Task(1).ready
        True
        """
        return not (self.missing or self.blockers)

    def step_aside(self) -> None:
        """Make those that wait for this task wait for what it waits for: it will not run."""
        for blocked in self.blocks:
            blocked.blockers.discard(self)
            blocked.blockers |= self.blockers
        for blocker in self.blockers:
            blocker.blocks.discard(self)
            blocker.blocks |= self.blocks
