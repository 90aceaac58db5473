"""Requests that their caller withdraws before their turn has come.

A caller that has asked for too much, or whose user has interrupted it, need not wait until all of
that is done.  What is running ends as it would.  What has not begun is not begun: it is answered by
``NotBegun``, and its results count as taken back, for whatever was to use them.  What it lists as
dropped is dropped.

``Cancel`` does the same to a request that is parked.

A shell decides which requests have not begun, and calls :func:`withdraw` for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from syft.exceptions import MalformedMessage
from syft.serde.frame import Frame
from syft.workers.core.accepted_results import MOST_MARKED, accepted_results
from syft.workers.core.peer import Peer
from syft.workers.core.pipeline import DECLARATIONS, Call, Declaration, handles
from syft.workers.core.state_machine import WorkerCore
from syft.workers.core.store import TAKEN_BACK
from syft.workers.handlers.collective import decline
from syft.workers.handlers.executions import serving
from syft.workers.wire import messages
from syft.workers.wire.messages import (
    COUNT_SHIFT,
    Cancel,
    Command,
    Done,
    Drop,
    NotBegun,
    Run,
    Start,
    encode,
)
from syft.workers.wire.references import expanded, ids_at

_IDS: Final = 2**63
"""How many ids there are."""


def may_be_withdrawn(frame: Frame) -> bool:
    """Whether a request that has not begun may be left out.

    >>> from syft.workers.wire.messages import Put
    >>> may_be_withdrawn(Frame(encode(Put(7, 5, None)), []))
    True
    >>> may_be_withdrawn(Frame(encode(Drop(0, (5,))), [])), may_be_withdrawn(Frame(b"", []))
    (False, False)
    """
    try:
        return not DECLARATIONS[type(messages.read_request(frame.header))].stays
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
    with serving(core, peer):
        if type(message) is Start:
            decline(core, message, peer)
        outs = _results(message, peer)
        if core.store.promised:
            outs = [out for out in outs if core.store.may_keep(out, peer.names)]
        core.fail_results(outs, why=TAKEN_BACK)
    return Frame(encode(NotBegun(message.seq)), [])


@handles(Cancel, Declaration(plain="request", waits=False, stays=True))
def cancel(call: Call, message: Cancel) -> Done:
    """Cancel a parked request; a request that has run is not changed."""
    core, peer = call.core, call.peer
    for execution, started in list(core.sessions.items()):
        if started.waits_for_inputs(peer, message.request):
            started.abandon(core, execution, "was taken back")
    core.store.listeners.remove(peer.session, message.request)
    core.fail_results(core.dataflow.cancel((peer.session, message.request)), why=TAKEN_BACK)
    return Done(message.seq)


def _forget_number(run: Run, peer: Peer) -> None:
    """What the run was to define, or to change, its sender takes for known."""
    table = peer.session.numbers
    if table is not None and table.user == peer.user:
        table.remove(run.number)


def _results(message: Any, peer: Peer) -> Sequence[int]:
    """The ids of what a request was to make, as far as they can be told without reading it all."""
    if type(message) is Command:
        return accepted_results(message, peer.session.numbers)
    if type(message) is Run:
        count = min(message.flags >> COUNT_SHIFT, MOST_MARKED)
        return range(message.out, message.out + count) if 0 < message.out < _IDS - count else ()
    declared = DECLARATIONS[type(message)]
    outs = ids_at(message, declared.makes or declared.returns)
    return [out for out in outs[:MOST_MARKED] if 0 < out < _IDS]
