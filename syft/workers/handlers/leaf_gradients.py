"""The handlers of what optimizers do with all leaves at once: read their gradients after each
backward pass, and take them away before the next.

They do what a read of ``.grad`` of each leaf does, or ``leaf.grad = None``, for a fraction of the
time.
"""

from __future__ import annotations

from functools import partial

import torch

from syft.exceptions import MalformedMessage
from syft.ops.control import NO_GRADIENT, gradient_kind
from syft.ops.returns import MOST
from syft.ops.table import BY_NAME, FLAGS, function_of
from syft.workers.core.access import Access
from syft.workers.core.peer import GRADIENTS
from syft.workers.core.pipeline import Call, Declaration, handles
from syft.workers.execution.public_facts import tells
from syft.workers.labels.cell import forget_gradient
from syft.workers.wire.messages import ClearGradients, Done, Gradients, Reply, Value

_KIND = gradient_kind, FLAGS[BY_NAME["syft.ops.control.gradient_kind"]]
_GET = BY_NAME["torch.Tensor.grad.__get__"]
_GRADIENT = function_of(_GET), FLAGS[_GET]


def _results(call: Call) -> range:
    """The ids of the gradients."""
    leaves, out = call.message.leaves, call.message.out
    if len(leaves) > MOST or not 0 < out < 2**63 - len(leaves):
        raise MalformedMessage("$.out", f"an id below 2**63, for at most {MOST} leaves", str(out))
    return range(out, out + len(leaves))


@handles(
    Gradients,
    Declaration(
        reads="leaves",
        returns="out",
        answers=(Value,),
        action="grad",
        reading=_results,
        outs=lambda call: call.read,
        access=Access(reads_attributes=True, gives_gradient=True),
    ),
)
def gradients(call: Call, message: Gradients) -> Reply:
    """Store the gradients of leaves, and reply with their kinds."""
    core, peer = call.core, call.peer
    kinds = bytearray()
    found: dict[int, torch.Tensor] = {}
    for id, leaf in enumerate(message.leaves, message.out):
        kind = call.run(*_KIND, leaf)
        kinds.append(kind)
        if kind != NO_GRADIENT:
            found[id] = call.run(*_GRADIENT, leaf)
    core.store.put_all(found)
    call.note_made(found)
    core.watch(peer)
    return call.tell(bytes(kinds), partial(tells, "gradient"))


@handles(ClearGradients, Declaration(sets="leaves", action="grad = None", alters=GRADIENTS))
def clear_gradients(call: Call, message: ClearGradients) -> Reply:
    """Take the gradients of leaves away."""
    for stored in [call.stored(leaf) for leaf in message.leaves]:
        forget_gradient(stored)
    for id in message.leaves:
        call.core.store.charges.graphs.gave(id)
    return Done(message.seq)
