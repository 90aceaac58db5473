"""The handler of ``Allow``: the owner of private data lets more users read it.

A guard never widens: what a graph saved, and what was computed before, keeps the one it had.  So
there is a new object, in new memory, with a wider guard.  The old one stays as it is.

Who may do that is said by the guard, not by whose the object is: a result that somebody computed
from private data is an object of theirs, and they may not release it.  The owners of the guard of a
result are those to whom all private inputs belong.  If there is nobody, only the owner of the
worker may release it, who has the memory in any case.
"""

from __future__ import annotations

from dataclasses import replace as changed
from functools import partial

from syft.exceptions import PermissionDenied
from syft.workers.core.access import Access
from syft.workers.core.peer import Peer
from syft.workers.core.pipeline import Call, Declaration, handles
from syft.workers.core.state_machine import WorkerCore
from syft.workers.execution.leaving import released
from syft.workers.labels.guards import Guard
from syft.workers.wire.messages import Allow, Reply

_ACTION = "allow"


@handles(
    Allow,
    Declaration(reads="id", makes="out", action=_ACTION, access=Access(fresh=True), walks=True),
)
def allow(call: Call, message: Allow) -> Reply:
    """Store a copy of an object (values and tags; no gradient, no graph) that more users may read,
    that may go to more workers, and for shares of which more may deal.

    Raises :class:`~syft.exceptions.PermissionDenied` for anybody but the owners of its guard and
    the owner of the worker, and :class:`~syft.exceptions.UnsupportedOperation` for a plan and for
    data at another worker.
    """
    widened = partial(_widened, call.core, message, call.peer)
    done = call.store(message.out, released(call.stored(message.id), widened))
    call.core.owners.share(call.peer, message.out, (), message.users)
    return done


def _widened(core: WorkerCore, message: Allow, peer: Peer, guard: Guard | None) -> Guard | None:
    """The guard of the copy; None if everybody may read the object."""
    if guard is None:
        return None
    owners = guard.owners or frozenset()
    if peer.identity is not None and peer.identity not in owners:
        (whose,) = owners if len(owners) == 1 else (None,)
        raise PermissionDenied(_ACTION, core.name, peer.identity, message.id, whose)
    providers = guard.providers
    return changed(
        guard,
        users=guard.users.union(message.users),
        destinations=guard.destinations.union(message.destinations),
        providers=None if providers is None else providers.union(message.providers),
    )
