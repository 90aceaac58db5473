"""Requests that their caller withdraws before their turn has come.

A caller that has asked for too much, or whose user has interrupted it, need not wait until all of
that is done.  What is running ends as it would.  What has not begun is not begun: it is answered by
``NotBegun``, and its results count as taken back, for whatever was to use them.  What it lists as
dropped is dropped.

``Cancel`` does the same to a request that is parked.

A shell decides which requests have not begun, and calls :func:`withdraw` for each of them.
"""

from __future__ import annotations

from typing import Any, Final

from syft.exceptions import MalformedMessage
from syft.serde.frame import Frame
from syft.workers.core.accepted_results import MOST_MARKED, accepted_results
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.handlers.collective import decline
from syft.workers.handlers.running import expanded
from syft.workers.wire import messages
from syft.workers.wire.messages import (
    COUNT_SHIFT,
    Abort,
    Await,
    Cancel,
    Done,
    Drop,
    Exchange,
    GiveUp,
    NotBegun,
    Put,
    PutAll,
    Run,
    Share,
    Start,
    encode,
)

_KEPT: Final = frozenset((Drop, Cancel, GiveUp, Await, Share, Exchange, Abort))
"""What is done in any case: it frees something, or others rely on it."""

_IDS: Final = 2**63
"""How many ids there are."""


def may_be_withdrawn(frame: Frame) -> bool:
    """Whether a request that has not begun may be left out.

    >>> may_be_withdrawn(Frame(encode(Put(7, 5, None)), []))
    True
    >>> may_be_withdrawn(Frame(encode(Drop(0, (5,))), [])), may_be_withdrawn(Frame(b"", []))
    (False, False)
    """
    try:
        return type(messages.read_request(frame.header)) not in _KEPT
    except messages.UNREADABLE:  # it is answered as what it is
        return False


def withdraw(core: WorkerCore, frame: Frame, peer: Peer) -> Frame:
    """Leave a request out that :func:`may_be_withdrawn`, and return the reply to it.

    Frames to others that follow from it are left in ``core.outbox``.
    """
    message: Any = messages.read_request(frame.header)
    try:
        dropped = tuple(expanded(getattr(message, "drop", ())))
    except MalformedMessage as error:
        return core.frame_of(core.failure(message.seq, error), peer)
    core.respond(Frame(encode(Drop(0, dropped)), []), peer)  # with its checks
    if type(message) is Run:
        _forget_number(message, peer)
    outer, core.serving = core.serving, peer
    try:
        if type(message) is Start:
            decline(core, message)
        outs = _results(message, peer)
        if core.store.promised:
            outs = [out for out in outs if core.store.may_keep(out, peer.names)]
        core.take_back_results(outs)
    finally:
        core.serving = outer
    return Frame(encode(NotBegun(message.seq)), [])


@WorkerCore.handles(Cancel)
def cancel(core: WorkerCore, message: Cancel, frame: Frame, peer: Peer) -> Done:
    """Cancel a parked request; a request that has run is not changed."""
    for execution, started in list(core.sessions.items()):
        if started.waits_for_inputs(peer, message.request):
            started.abandon(core, execution, "was taken back")
    core.store.listeners.remove(peer.session, message.request)
    core.take_back_results(core.dataflow.cancel((peer.session, message.request)))
    return Done(message.seq)


def _forget_number(run: Run, peer: Peer) -> None:
    """What the run was to define, or to change, its sender takes for known."""
    table = peer.session.numbers
    if table is not None and table.user == peer.user:
        table.remove(run.number)


def _results(message: Any, peer: Peer) -> list[int]:
    """The ids of what a request was to make, as far as they can be told without reading it all."""
    kind = type(message)
    if kind is Start:
        return [out for out in message.outs[:MOST_MARKED] if 0 < out < _IDS]
    if kind is Put or kind is PutAll:
        first, count = message.id if kind is Put else message.first, 1
    elif kind is Run:
        first, count = message.out, min(message.flags >> COUNT_SHIFT, MOST_MARKED)
    else:
        return list(accepted_results(message, peer.session.numbers))
    return list(range(first, first + count)) if 0 < first < _IDS - count else []
