"""The handler of what optimizers ask after each backward pass: the gradients of all leaves at once.

It does what a read of ``.grad`` of each leaf does, for a fraction of the time.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.exceptions import MalformedMessage
from syft.ops.control import NO_GRADIENT, gradient_kind
from syft.ops.returns import MOST
from syft.ops.table import BY_NAME, FLAGS, function_of
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.core.access import Access
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import HeldInputs, WorkerCore
from syft.workers.execution.operation import Function, guard_for, run_guarded
from syft.workers.wire.messages import Gradients, Reply, Value

_KIND = gradient_kind, FLAGS[BY_NAME["syft.ops.control.gradient_kind"]]
_GET = BY_NAME["torch.Tensor.grad.__get__"]
_GRADIENT = function_of(_GET), FLAGS[_GET]


@WorkerCore.handles(Gradients)
def gradients(core: WorkerCore, message: Gradients, frame: Frame, peer: Peer) -> Any:
    """Store the gradients of leaves, and reply with their kinds."""
    core.forget(message.drop, peer)
    leaves, out = message.leaves, message.out
    if len(leaves) > MOST or not 0 < out < 2**63 - len(leaves):
        raise MalformedMessage("$.out", f"an id below 2**63, for at most {MOST} leaves", str(out))
    outs = tuple(range(out, out + len(leaves)))
    return core.when_ready(
        message.seq,
        peer,
        lambda held: _gradients(core, message, peer, held),
        leaves,
        outs,
        Access(reads_attributes=True, gives_gradient=True),
    )


def _gradients(core: WorkerCore, message: Gradients, peer: Peer, held: HeldInputs) -> Reply:
    kinds: list[int] = []
    found: dict[int, torch.Tensor] = {}
    for id, leaf in enumerate(message.leaves, message.out):
        tensor = core.resolve(leaf, 0, held)
        kinds.append(_read(core, _KIND, tensor, peer))
        if kinds[-1] != NO_GRADIENT:
            found[id] = _read(core, _GRADIENT, tensor, peer)
    for id in found:
        core.store.check_free(id)
    for id, gradient in found.items():
        core.store.put(id, gradient)
    core.watch(peer)
    return Value(message.seq, pack(kinds, Packer()))


def _read(core: WorkerCore, read: tuple[Function, int], leaf: torch.Tensor, peer: Peer) -> Any:
    """What an operation tells of a leaf, which is as private as the leaf."""
    function, flags = read
    guard = guard_for([leaf], {}) if core.guarded else None
    if guard is None:
        return function(leaf)
    acting, core.acting_guard = core.acting_guard, guard
    try:
        shown = core.store.graphs_of_owner()
        return run_guarded(function, [leaf], {}, flags, guard, shown, core.name, peer.user)
    finally:
        core.acting_guard = acting
