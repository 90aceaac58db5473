"""Gradients that cross workers: the graph stays at its worker, and the gradient travels back.

``ptr.move(bob)`` leaves a source tensor that has a graph at the old worker, under a hidden id, and
makes a leaf at the new one.  A hook on the leaf sends each gradient it receives to the old worker
and runs ``source.backward(gradient)`` there.  The hook is deleted with the leaf, and its deletion
drops the source.

A leaf that is moved while graphs here end at it is followed in the other direction, by the same
hook: what these graphs send to the old leaf goes after it.  The source is a view of the leaf at the
new worker, which stays there until the graphs here are gone.  If the leaf is moved on, the view is
a graph that ends at it, so the next worker is told in the same way.  A leaf that comes back is
again the tensor that these graphs know.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

from syft.exceptions import MalformedMessage, UnsupportedOperation, WorkerClosed
from syft.ids import new_id
from syft.ops.returns import ONE_TENSOR
from syft.ops.table import BY_NAME
from syft.torch_private import as_leaf
from syft.workers.core.outgoing import Outgoing
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.execution.leaving import may_leave, reached_leaves, takes_over
from syft.workers.execution.successors import and_before, successor_of
from syft.workers.labels.crossings import Follower, followers, hooks_of, note_entry
from syft.workers.labels.guards import Guard, meet_guards
from syft.workers.labels.origin import ObjectOrigin
from syft.workers.wire.references import REF

_BACKWARD = BY_NAME["torch.Tensor.backward"]
_FREEZE = BY_NAME["torch.Tensor.requires_grad_"]
_VIEW = BY_NAME["torch.Tensor.view_as"]
_CLONE = BY_NAME["torch.Tensor.clone"]


def send_followed(
    core: WorkerCore,
    connection: Outgoing,
    id: int,
    source: torch.Tensor,
    guard: Guard | None,
    origin: ObjectOrigin,
    to: str,
) -> None:
    """Put ``source`` at worker ``to`` as a leaf, keep it here too, and have its gradients returned.

    ``origin`` says whose it is; worker ``to`` runs backward passes over what is kept.
    """
    hidden = new_id()
    core.store.put(hidden, source)
    core.store.origins[hidden] = ObjectOrigin(
        origin.owner, origin.name, {*origin.writers, to}, closed=origin.closed
    )
    note_entry(source)
    leaf = source.detach().requires_grad_()
    try:
        connection.put(leaf, id, guard=guard, writers=origin.names(), source=hidden)
    except BaseException:
        core.store.drop(hidden, "its moved leaf does not exist")
        raise


def send_after(
    core: WorkerCore,
    connection: Outgoing,
    id: int,
    leaf: Any,
    place: str,
    writers: ObjectOrigin,
    frozen: bool = False,
) -> None:
    """Have the gradients that graphs here send to a leaf go to the object ``id`` that it is now, at
    worker ``place``; ``writers`` may send the leaf back.  It is ``frozen`` there again, if so.

    >>> w = torch.ones(2, requires_grad=True).send(bob)
    >>> loss = (w * 3).sum()
    >>> moved = w.move(alice)
    >>> loss.backward()
    >>> moved.grad.get()
    tensor([3., 3.])
    """
    source, op = new_id(), _VIEW if leaf.layout is torch.strided else _CLONE
    try:
        with torch.enable_grad():
            args = ((REF, id), (REF, id)) if op == _VIEW else ((REF, id),)
            connection.operations.command(op, args, {}, source, [], expected=ONE_TENSOR)
    except BaseException:
        connection.garbage.append(id)
        raise
    hook = GradientHook(core, connection, source, place, writers)
    for known in reached_leaves(leaf):
        with as_leaf(known):
            hook.follow(known)
    core.store.departed[id] = leaf
    if frozen:
        connection.operations.command(_FREEZE, ((REF, id), False), {}, 0, [], expected=None)


def come_back(core: WorkerCore, id: int, value: Any, peer: Peer) -> Any:
    """What is stored of a leaf that another worker sends here: the tensor that left under this id,
    as it is now, if graphs here still end at that, and ``peer`` may change it.

    >>> w = torch.ones(2, requires_grad=True).send(bob); loss = (w * 3).sum()
    >>> w = w.move(alice).move(bob)
    >>> loss.backward(inputs=[w]); w.grad.get()
    tensor([3., 3.])
    """
    left = core.store.departed.get(id)
    hooks = [] if left is None else _hooks_after(left, peer)
    if left is None or not (hooks and takes_over(left, value)):
        note_entry(value)
        return value
    for leaf, hook in hooks:
        _remove(hook, leaf)
    del core.store.departed[id]
    return left


def _hooks_after(left: torch.Tensor, peer: Peer) -> list[tuple[torch.Tensor, GradientHook]]:
    """The hooks that follow a leaf which has left, each with where it is, if ``peer`` may change
    the leaf."""
    found = ((known, hook) for known in and_before(left) for hook in hooks_of(known))
    return [
        (known, hook)
        for known, hook in found
        if isinstance(hook, GradientHook) and hook.admits(peer)
    ]


def _remove(hook: GradientHook, leaf: torch.Tensor) -> None:
    hooks: dict[int, Any] = leaf._backward_hooks  # type: ignore[assignment]
    for key in [key for key, value in hooks.items() if value is hook]:
        del hooks[key]


def return_gradients(core: WorkerCore, leaf: Any, source: int, peer: Peer) -> None:
    """Put the hook on a leaf that ``peer`` puts here; the gradients go to its object ``source``."""
    if not isinstance(leaf, torch.Tensor) or not (leaf.requires_grad and leaf.is_leaf):
        raise MalformedMessage("$.source", "nil for what is no leaf that requires grad", "an id")
    place = core.place_of_caller(peer)
    hook = GradientHook(core, core.connect(peer), source, place)
    hook.follow(leaf)


def note_fetched(core: WorkerCore, ids: Iterable[int], values: Iterable[Any]) -> None:
    """Have passes fail that would lose the gradients of leaves which are fetched and then dropped.

    They come to the tensors that graphs here know the leaves by.  Where the leaves are now, nothing
    is known of these graphs.

    >>> w = torch.ones(2, requires_grad=True).send(bob); loss = (w * 3).sum()
    >>> here = w.get(); loss.backward()
    Traceback (most recent call last):
    ...
    syft.exceptions.UnsupportedOperation: A leaf that was fetched has no rule for backward: ...
    """
    for id, value in zip(ids, values, strict=True):
        for known in reached_leaves(value):
            hooks = map(type, (known._backward_hooks or {}).values())
            if FetchedLeaf not in hooks:
                hook = FetchedLeaf(core, id, known)
                with as_leaf(known):
                    known.register_hook(hook)  # type: ignore[no-untyped-call]


class FetchedLeaf:
    """The hook on a leaf that was fetched: raises when its object is neither here nor followed."""

    __slots__ = ("core", "id", "leaf")

    def __init__(self, core: WorkerCore, id: int, leaf: torch.Tensor) -> None:
        self.core, self.id, self.leaf = core, id, weakref.ref(leaf)

    def __call__(self, gradient: torch.Tensor) -> None:
        """Raise :class:`~syft.exceptions.UnsupportedOperation` for a gradient that is lost."""
        leaf, store = self.leaf(), self.core.store
        if leaf is None or self.id in store or followers(leaf):
            return
        if not store.ids_of(successor_of(leaf)):  # under another id
            instead = "those of one that requires grad follow it to x.move(sy.local_worker)"
            raise UnsupportedOperation("backward", "A leaf that was fetched", instead)


class GradientHook(Follower):
    """The hook on a moved leaf: it sends each gradient over ``connection`` to object ``source`` at
    worker ``place``.

    A backward pass that would send one where it may not go was refused before it started
    (:func:`~syft.workers.execution.leaving.check_gradients_leave`).  The hook sends none in any
    case.
    """

    __slots__ = ("core", "connection", "source", "writers")

    def __init__(
        self,
        core: WorkerCore,
        connection: Outgoing,
        source: int,
        place: str,
        writers: ObjectOrigin | None = None,
    ) -> None:
        super().__init__(place)
        self.writers = writers
        """Who may change the leaf, if that has left and is followed."""
        self.core = core
        self.connection = connection
        self.source = source

    def admits(self, peer: Peer) -> bool:
        """Whether it follows a leaf that has left, and a caller is one who may change that."""
        return self.writers is not None and self.writers.admits(peer.identity)

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
        args, kwargs = ((REF, self.source), (REF, id)), {"retain_graph": True}
        try:
            self.connection.operations.command(_BACKWARD, args, kwargs, 0, [], expected=None)
        finally:
            self.connection.garbage.append(id)

    def __del__(self) -> None:
        self.connection.garbage.append(self.source)
