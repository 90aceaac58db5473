"""Which results count as failed when a request fails.

A failed result gets a tombstone, so that whatever uses it, or waits for it, fails with that reason.
A request says how many results it expects, and a few bytes can claim any number.  Every tombstone
displaces an older one, which may be that of another caller's object.  So no more are written than
the caller can have meant.
"""

from __future__ import annotations

from syft.ops.returns import MOST
from syft.workers.wire.messages import COUNT_SHIFT, Command, Request, Run
from syft.workers.wire.numbering import Table

_IDS = 2**63
"""How many ids there are."""

MOST_MARKED = 64
"""The most results of a failed request that are marked on the word of its caller alone."""


def accepted_results(message: Request, numbers: Table | None) -> range:
    """The ids that are marked as failed with a request: no more than its caller can have meant.

    None is marked for a run of an unknown number, and otherwise no more than the number
    stands for, or ``MOST_MARKED``.  That many are marked for a command, whose results nobody can
    count before it has run; those of a parked one, which are promised, all are.  Invalid ids are
    not marked.

    >>> from syft.workers.wire.messages import COUNT_SHIFT, Command, Run
    >>> accepted_results(Command(1, 5, (), 70, 3 << COUNT_SHIFT), None)
    range(70, 73)
    >>> accepted_results(Run(1, 5, [], 70, 3 << COUNT_SHIFT), None)
    range(70, 70)
    """
    first: int = getattr(message, "out", 0)
    count = 1
    if isinstance(message, Command | Run):
        claimed = message.flags >> COUNT_SHIFT
        if isinstance(message, Run):
            entry = None if numbers is None else numbers.entries.get(message.number)
            count = 0 if entry is None else min(claimed, max(entry.what.results, MOST_MARKED))
        elif 0 <= claimed <= MOST:
            count = min(max(1, claimed), MOST_MARKED)
        else:
            count = 0
    return range(first, first + count) if 0 < first <= _IDS - count else range(0)
