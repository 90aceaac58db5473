"""Gradients that cross workers: the graph stays at its worker, and the gradient travels back.

``ptr.move(bob)`` leaves a source tensor that has a graph at the old worker, under a hidden id, and
makes a leaf at the new one.  A hook on the leaf sends each gradient it receives to the old worker
and runs ``source.backward(gradient)`` there.  The hook is deleted with the leaf, and its deletion
drops the source.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from syft.exceptions import MalformedMessage, WorkerClosed
from syft.ids import new_id
from syft.ops.table import BY_NAME
from syft.workers.core.claim import Claim
from syft.workers.core.outgoing import Outgoing
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.execution.followed_leaves import Follower
from syft.workers.execution.leaving import follow, may_leave
from syft.workers.execution.permissions import Guard, meet_guards
from syft.workers.wire.references import REF

_BACKWARD = BY_NAME["torch.Tensor.backward"]


def send_followed(
    core: WorkerCore,
    connection: Outgoing,
    id: int,
    source: torch.Tensor,
    guard: Guard | None,
    origin: Claim,
    to: str,
) -> None:
    """Put ``source`` at worker ``to`` as a leaf, keep it here too, and have its gradients returned.

    ``origin`` says whose it is; worker ``to`` runs backward passes over what is kept.
    """
    hidden = new_id()
    core.store.put(hidden, source)
    core.store.origins[hidden] = Claim(origin.owner, origin.name, {*origin.writers, to})
    leaf = source.detach().requires_grad_()
    try:
        connection.put(leaf, id, guard=guard, writers=origin.names(), source=hidden)
    except BaseException:
        core.store.drop(hidden, "its moved leaf does not exist")
        raise


def return_gradients(core: WorkerCore, leaf: Any, source: int, peer: Peer) -> None:
    """Put the hook on a leaf that ``peer`` puts here; the gradients go to its object ``source``."""
    if not isinstance(leaf, torch.Tensor) or not (leaf.requires_grad and leaf.is_leaf):
        raise MalformedMessage("$.source", "nil for what is no leaf that requires grad", "an id")
    place = core.place_of_caller(peer)
    hook = GradientHook(core, core.connect(peer), source, place)
    leaf.register_hook(hook)  # type: ignore[no-untyped-call]
    follow(leaf, place)


class GradientHook(Follower):
    """The hook on a moved leaf: it sends each gradient over ``connection`` to object ``source`` at
    worker ``place``.

    A backward pass that would send one where it may not go was refused before it started
    (:func:`~syft.workers.execution.leaving.check_gradients_leave`).  The hook sends none in any
    case.
    """

    __slots__ = ("core", "connection", "source", "place")

    def __init__(self, core: WorkerCore, connection: Outgoing, source: int, place: str) -> None:
        super().__init__()
        self.core = core
        self.connection = connection
        self.source = source
        self.place = place

    def came(self, gradient: torch.Tensor, guard: Guard | None) -> None:
        """Send a gradient: after the request that runs the pass, if it is not the owner's own."""
        core = self.core
        if core.serving is None:
            self.send(gradient, guard)
        else:
            guard = meet_guards(core.acting_guard, guard)
            core.to_return.append(partial(self.send, gradient, guard))

    def send(self, gradient: torch.Tensor, guard: Guard | None) -> None:
        """Send a gradient, and run a backward pass there, unless it may not go."""
        guard = meet_guards(self.core.acting_guard, guard)
        serving = self.core.serving
        if not may_leave(guard, self.place, None if serving is None else serving.user):
            return
        id = new_id()
        try:
            self.connection.put(gradient.detach(), id, guard=guard)
        except WorkerClosed:  # its graph is gone, and nobody can ask for what it would have got
            return  # the backward pass goes on for all other leaves
        # Several backward passes may reach the leaf; the source's graph is freed with the leaf.
        self.connection.command(
            _BACKWARD,
            ((REF, self.source), (REF, id)),
            {"retain_graph": True},
            0,
            [],
            expected=None,
        )
        self.connection.garbage.append(id)

    def __del__(self) -> None:
        self.connection.garbage.append(self.source)
