"""The handlers of what optimizers do with all leaves at once: read their gradients after each
backward pass, and take them away before the next.

They do what a read of ``.grad`` of each leaf does, or ``leaf.grad = None``, for a fraction of the
time.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.exceptions import MalformedMessage
from syft.ops.control import NO_GRADIENT, gradient_kind
from syft.ops.returns import MOST
from syft.ops.table import BY_NAME, FLAGS, function_of
from syft.serde.frame import Frame
from syft.workers.core.access import Access
from syft.workers.core.owners import Permit
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import HeldInputs, WorkerCore
from syft.workers.execution.operation import Function
from syft.workers.execution.private_commands import guard_for, run_guarded
from syft.workers.labels.claim import Claim
from syft.workers.wire.messages import ClearGradients, Done, Gradients, Reply, Value

_KIND = gradient_kind, FLAGS[BY_NAME["syft.ops.control.gradient_kind"]]
_GET = BY_NAME["torch.Tensor.grad.__get__"]
_GRADIENT = function_of(_GET), FLAGS[_GET]


@WorkerCore.handles(Gradients)
def gradients(core: WorkerCore, message: Gradients, frame: Frame, peer: Peer) -> Any:
    """Store the gradients of leaves, and reply with their kinds."""
    if message.drop:
        core.forget(message.drop, peer)
    leaves, out = message.leaves, message.out
    if len(leaves) > MOST or not 0 < out < 2**63 - len(leaves):
        raise MalformedMessage("$.out", f"an id below 2**63, for at most {MOST} leaves", str(out))
    access = Access(reads_attributes=True, gives_gradient=True)
    permit = core.permit(peer, leaves, access, "grad")
    if not core.dataflow.active:
        return _gradients(core, message, peer, None, permit)
    return core.when_ready(
        message.seq,
        peer,
        lambda held: _gradients(core, message, peer, held, permit),
        leaves,
        tuple(range(out, out + len(leaves))),
        access,
    )


def _gradients(
    core: WorkerCore,
    message: Gradients,
    peer: Peer,
    held: HeldInputs | None,
    permit: Permit | None,
) -> Reply:
    behind = None if permit is None else _checked(core, permit, held)
    kinds = bytearray()
    found: dict[int, torch.Tensor] = {}
    for id, leaf in enumerate(message.leaves, message.out):
        tensor = core.resolve(leaf, 0, held)
        kind = _read(core, _KIND, tensor, peer)
        kinds.append(kind)
        if kind != NO_GRADIENT:
            found[id] = _read(core, _GRADIENT, tensor, peer)
    core.store.put_new(found)
    core.note_made(found, behind)
    core.watch(peer)
    return Value(message.seq, bytes(kinds))


def _checked(core: WorkerCore, permit: Permit, held: HeldInputs | None) -> Claim | None:
    """Check the memory of leaves; returns where their gradients come from, if that is not seen."""

    def leaf(id: int) -> Any:
        return core.resolve(id, 0, held)

    permit.check_memory(leaf)
    return permit.behind(leaf)


def _read(core: WorkerCore, read: tuple[Function, int], leaf: torch.Tensor, peer: Peer) -> Any:
    """What an operation tells of a leaf, which is as private as the leaf or its gradient."""
    function, flags = read
    guard = guard_for([leaf], {}) if core.guarded else None
    if guard is None:
        return function(leaf)
    acting, core.acting_guard = core.acting_guard, guard
    try:
        holdings = core.holdings
        return run_guarded(function, [leaf], {}, flags, guard, holdings, core.name, peer.user)
    finally:
        core.acting_guard = acting


@WorkerCore.handles(ClearGradients)
def clear_gradients(core: WorkerCore, message: ClearGradients, frame: Frame, peer: Peer) -> Any:
    """Take the gradients of leaves away."""
    if message.drop:
        core.forget(message.drop, peer)
    leaves = message.leaves
    permit = core.permit(peer, leaves, Access(sets=leaves), "grad = None")
    if not core.dataflow.active:
        return _clear(core, message, peer, None, permit)
    return core.when_ready(
        message.seq,
        peer,
        lambda held: _clear(core, message, peer, held, permit),
        leaves,
        access=Access(sets=leaves),
    )


def _clear(
    core: WorkerCore,
    message: ClearGradients,
    peer: Peer,
    held: HeldInputs | None,
    permit: Permit | None,
) -> Reply:
    if permit is not None:
        _checked(core, permit, held)
    for tensor in [core.resolve(leaf, 0, held) for leaf in message.leaves]:
        tensor.grad = None
    if core.watched:
        core.altered(peer, gradients=True)
    return Done(message.seq)
