"""Which promises a parked operation waits for, directly or through other parked operations.

A caller that cannot get an answer needs to know which promise to keep.  The inputs of a parked
operation are often results of other parked ones, and those of others.  What counts are the promises
at the bottom, which somebody outside made and no parked operation here will keep.

A long chain of parked operations must not make each new one dearer.  So each operation remembers
the first few promises that were found for it, and a later one looks those up.  Promises are only
ever added to what an operation waits for when it is parked, so what is remembered stays complete;
those kept meanwhile are left out.  Operations that wait for more promises than are named remember
too few of them, and are looked into again once one of those is kept.
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
    found: set[int] = set()
    seen, stack = {task}, [task]
    while stack and len(found) <= MOST_NAMED:
        current = stack.pop()
        before = set(current.blockers)
        for id in current.missing:
            if id in makers:
                before.add(makers[id])
            else:
                found.add(id)
        for other in before - seen:
            seen.add(other)
            still_open = [id for id in other.awaits if id in promised]
            found.update(still_open)
            if len(still_open) < len(other.awaits) > MOST_NAMED:
                stack.append(other)
    return tuple(sorted(found)[: MOST_NAMED + 1])


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
