"""Which promises a parked operation waits for, directly or through other parked operations.

A caller that cannot get an answer needs to know which promise to keep.  The inputs of a parked
operation are often results of other parked ones, and those of others.  What counts are the promises
at the bottom, which somebody outside made and no parked operation here will keep.

A long chain of parked operations must not make each new one dearer.  So each operation remembers
the first few promises that were found for it, and a later one looks those up.  Promises are only
ever added to what an operation waits for when it is parked, so what is remembered stays complete;
those kept meanwhile are left out.  Operations that wait for more promises than are named remember
too few of them, and are looked into again once one of those is kept.  What that finds is remembered
too, by every operation on the way (path compression): a chain is walked once for each promise
kept, and not for each operation on top of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from syft.workers.core.task import Task
from syft.workers.wire.messages import MOST_NAMED


def open_promises(task: Task, makers: Mapping[int, Task], promised: set[int]) -> tuple[int, ...]:
    """The ids of the promises for which a task waits; of more than ``MOST_NAMED`` one more than
    that.

    ``makers`` are the parked tasks by the ids of their results.

    >>> first, second = Task(1, outs=(7,)), Task(2)
    >>> first.missing, second.missing = {5}, {7}
    >>> first.awaits = open_promises(first, {}, {5, 7})
    >>> open_promises(second, {7: first}, {5, 7})
    (5,)
    """
    if len(task.missing) == 1 and not task.blockers:  # the usual case
        (id,) = task.missing
        if id not in makers:
            return (id,)
        if promised.issuperset(makers[id].awaits):
            return makers[id].awaits
    return _walk(_Step(task, makers), makers, promised)


class _Step:
    """One operation on the way of a walk: which before it are left to see, and what was found."""

    __slots__ = ("task", "found", "left")

    def __init__(self, task: Task, makers: Mapping[int, Task]) -> None:
        self.task = task
        self.found = {id for id in task.missing if id not in makers}
        self.left = set(task.blockers).union(makers[id] for id in task.missing if id in makers)

    def next_forgetful(self, promised: set[int]) -> Task | None:
        """Add what those before it remember, until one remembers too little, which is returned."""
        while self.left and len(self.found) <= MOST_NAMED:
            other = self.left.pop()
            still_open = [id for id in other.awaits if id in promised]
            self.found.update(still_open)
            if len(still_open) < len(other.awaits) > MOST_NAMED:
                return other
        return None

    @property
    def outcome(self) -> tuple[int, ...]:
        """What was found, of more than ``MOST_NAMED`` one more than that."""
        return tuple(sorted(self.found)[: MOST_NAMED + 1])


def _walk(first: _Step, makers: Mapping[int, Task], promised: set[int]) -> tuple[int, ...]:
    """What ``first`` waits for, through operations that remember too little.

    Two operations may each wait for the other, where one makes what the other was promised.  What
    was found behind one of them is then not complete, and not remembered.
    """
    seen, steps, circular = {first.task}, [first], False
    while True:
        step = steps[-1]
        other = step.next_forgetful(promised)
        if other is None:
            steps.pop()
            if not steps:
                return step.outcome
            if not circular:
                step.task.awaits = step.outcome
            steps[-1].found.update(step.outcome)
        elif other in seen:
            circular = True
        else:
            seen.add(other)
            steps.append(_Step(other, makers))


def named(
    promises: tuple[int, ...], promisers: Mapping[int, object], session: object
) -> tuple[tuple[int, ...], bool]:
    """The promises that a reply to ``session`` names, and whether there are others.

    Only those that the session made are named: whoever knows the id of a promise can keep it, so
    nobody learns one from a worker.

    >>> ann, eve = "ann's connection", "eve's connection"
    >>> named((5, 7), {5: ann, 7: ann}, ann), named((5, 7), {5: ann, 7: eve}, ann)
    (((5, 7), False), ((5,), True))
    """
    mine = (id for id in promises if id in promisers and promisers[id] is session)
    own = tuple(mine)[:MOST_NAMED]
    return own, len(own) < len(promises)
