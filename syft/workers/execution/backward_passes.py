"""Backward passes at a worker that holds private values: what they leave is known before they run.

A pass writes to the gradients of tensors that are not among its arguments.  Which ones these are
follows from the graph, and so from the requests made, not from values.  So before a pass over
private values, the gradients that are there already are moved to private memory
(:mod:`~syft.workers.execution.moved_memory`).  After it, every tensor that the pass reaches has a
private gradient of its own, of zeros if none came.  Both are so whether the pass succeeds or not.
That it failed is sealed, as the failure of any command is; what does not fit together is found
beforehand and told to everybody.

A pass over public values may add to private gradients, which stay private.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import PermissionDenied, UnsupportedOperation
from syft.ops.nested import Function, leaves
from syft.ops.outcome import size_of_memory
from syft.torch_private import is_only_user
from syft.workers.execution.backward_calls import BackwardCall, backward_call
from syft.workers.execution.followed_leaves import FollowedLeaves
from syft.workers.execution.foreseen_failures import PRIVATE_PASS, foreseen_failure, refusal
from syft.workers.execution.moved_memory import Holdings, move_written
from syft.workers.execution.plain_tensors import is_plain, plain_copy
from syft.workers.execution.public_sizes import hides_shape
from syft.workers.execution.successors import (
    in_graph,
    lend_gradients,
    receiver_of,
    take_back_gradients,
)
from syft.workers.labels.crossings import limits_of
from syft.workers.labels.guards import Guard, meet_guards, without_frames
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.labels.reached_graph import AGAIN, ReachedGraph, reached_graph
from syft.workers.labels.walk import recorded_of

_UNUSED: Final = (
    "One of the differentiated Tensors appears to not have been used in the graph. "
    "Set allow_unused=True if this is the desired behavior."
)


def run_public_pass(
    function: Function, args: Sequence[Any], kwargs: dict[str, Any], holdings: Holdings
) -> Any:
    """Call a function that runs a backward pass over public values.

    A private gradient to which it adds stays private.  Raises RuntimeError if an earlier pass over
    private values has used the graph up.
    """
    try:
        call = backward_call(function, args, kwargs)
    except TypeError:
        return function(*args, **kwargs)  # which says what is wrong with its arguments
    graph = reached_graph(call.roots)
    inputs = _in_graph(call.inputs, graph)
    if graph.is_spent():
        raise RuntimeError(AGAIN)
    lent = lend_gradients(graph.leaves)
    receivers = [*map(receiver_of, graph.leaves), *graph.keeping(holdings.shown())]
    private = [
        (tensor, guard)
        for tensor in receivers
        if (guard := full_guard_of(_gradient_of(tensor))) is not None
    ]
    try:
        return call.with_tensors(call.starts, inputs).run()
    finally:
        take_back_gradients(lent)
        for tensor, guard in private:
            gradient = _gradient_of(tensor)
            if gradient is not None:
                protect(gradient, guard)


def run_private_pass(
    function: Function,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    guard: Guard,
    holdings: Holdings,
    worker: str,
    user: str | None,
) -> Any:
    """Call a function that runs a backward pass over values guarded by ``guard``.

    Raises :class:`~syft.exceptions.PermissionDenied` if a flag is private, and what does not fit
    together as torch does.  Any other failure is sealed; one who may see the values gets it.
    """
    try:
        call = backward_call(function, args, kwargs)
    except TypeError as error:
        raise foreseen_failure(TypeError, str(error)) from None
    admitted = guard.admits(user)

    def denied(what: str) -> PermissionDenied:
        return refusal(what, function, args, kwargs, worker, user)

    refused = None if admitted else _refused(call, guard)
    if refused is not None:
        raise denied(refused)
    _check_fit(call, function, args, kwargs)
    a_pass = _PrivatePass(call, guard, holdings)
    others = *a_pass.receivers(), *a_pass.followed.leaves
    refused = None if admitted else a_pass.refused(others)
    if refused is not None:
        raise denied(refused)
    if not all(map(_is_strided, (*call.roots, *call.starts, *others))):
        raise denied("a backward pass over a tensor of another layout")
    result = a_pass.run()
    if admitted:
        a_pass.guard.check_open()
    return result


def _check_fit(
    call: BackwardCall, function: Function, args: Sequence[Any], kwargs: dict[str, Any]
) -> None:
    """Raise what does not fit together, whatever the values are."""
    try:
        limits_of(function, args, kwargs)
    except UnsupportedOperation as error:
        raise foreseen_failure(UnsupportedOperation, *error.args) from None
    misfit = call.misfit()
    if misfit is not None:
        raise foreseen_failure(RuntimeError, misfit)


def _refused(call: BackwardCall, guard: Guard) -> str | None:
    """What a stranger may not run: a private value decides what it leaves, or that is not told."""
    for name, value in call.flags.items():
        if any(full_guard_of(leaf) is not None for leaf in leaves(value)):
            return f"a backward pass with a private {name}"
    if any(recorded_of(root) is None for root in call.roots):
        return "a backward pass of another worker's tensor"
    if call.flags.get("is_grads_batched"):
        return "a backward pass with is_grads_batched"
    return PRIVATE_PASS if guard.shape_hidden else None


class _PrivatePass:
    """One pass over private values."""

    def __init__(self, call: BackwardCall, guard: Guard, holdings: Holdings) -> None:
        self.guard = guard
        self.call = call
        self.graph = reached_graph(call.roots)
        self.inputs = _in_graph(call.inputs, self.graph)
        self._holdings = holdings
        if call.returns:
            self._check_used()
        everywhere = call.inputs is None  # a limited pass goes on nowhere
        self.followed = FollowedLeaves(self.graph, self.graph.leaves if everywhere else ())

    def refused(self, others: Sequence[torch.Tensor]) -> str | None:
        """What of the tensors that get gradients a stranger may not have."""
        if self.followed.has_chains:
            return "a backward pass to a chain that was moved"
        return PRIVATE_PASS if any(map(hides_shape, others)) else None

    def _check_used(self) -> None:
        """Raise if a gradient is wanted of what the graph does not reach, as torch does."""
        flags = self.call.flags
        if flags["materialize_grads"]:
            if flags["allow_unused"] is False:
                text = "Expected allow_unused to be True or not passed when materialize_grads=True"
                raise foreseen_failure(ValueError, f"{text}, but got: allow_unused=False.")
        elif not flags["allow_unused"] and not all(map(self.graph.reaches, self.inputs or ())):
            raise foreseen_failure(RuntimeError, _UNUSED)

    def run(self) -> Any:
        """Run the pass; returns the gradients if its function does, and seals a failure."""
        receivers = self.receivers()
        before = [self._made_private(receiver) for receiver in receivers]
        lent = lend_gradients(self.graph.leaves)
        starts = [_private_copy(start, self.guard) for start in self.call.starts]
        call = self.call.with_tensors(starts, self.inputs)
        if call.returns:
            call.arguments.update(allow_unused=True, materialize_grads=False)
        gradients: Any = ()
        try:
            with self.followed.silent():
                gradients = call.run() or ()
            self._check_kinds(receivers, gradients)
        except Exception as error:
            self.guard = self.guard.sealed(without_frames(error))
        self._send_on()
        if not call.retains:
            self.graph.spend(self.inputs)
        take_back_gradients(lent)
        for receiver, there in zip(receivers, before, strict=True):
            receiver.grad = self._finished(_gradient_of(receiver), receiver, there)
        return self._returned(gradients) if call.returns else None

    def _check_kinds(self, receivers: Sequence[torch.Tensor], gradients: Any) -> None:
        """Raise if a gradient is of another kind than the tensor that it belongs to."""
        found = gradients.values() if isinstance(gradients, dict) else gradients
        left = ((_gradient_of(receiver), receiver) for receiver in receivers)
        for pair in (*left, *zip(found, self.inputs or (), strict=False)):
            _check_kind(*pair)

    def _send_on(self) -> None:
        """Send the gradients that go to other workers, as private as the pass."""
        try:
            self.followed.send(self.guard)
        except Exception as error:  # another worker could not go on: that is sealed here, too
            self.guard = self.guard.sealed(without_frames(error))

    def receivers(self) -> list[torch.Tensor]:
        """The tensors in which the pass leaves gradients."""
        kept = self.graph.keeping(self._holdings.shown())
        reached = filter(self.graph.reaches, (*self._chosen(), *kept))
        return list({id(each): each for each in map(receiver_of, reached)}.values())

    def _chosen(self) -> Sequence[torch.Tensor]:
        """The tensors to whose gradients the pass adds, if it reaches them."""
        if self.call.returns:
            return ()
        return self.graph.leaves if self.inputs is None else self.inputs

    def _made_private(self, receiver: torch.Tensor) -> torch.Tensor | None:
        """The gradient that is there, moved to private memory."""
        gradient = _gradient_of(receiver)
        if gradient is None:
            return None
        chain = type(gradient) is Wrapper
        there = full_guard_of(gradient)
        if there == self.guard:
            return gradient
        guard = self.guard.meet(there or self.guard)
        if gradient.layout is not torch.strided and not chain:
            gradient = gradient.detach().to_dense()
            protect(gradient, guard)
        receiver.grad = move_written([gradient], guard, self._holdings).of(gradient)
        return receiver.grad

    @property
    def _changes_guards(self) -> bool:
        """Whether gradients that were private before it are not as they should be after it."""
        return self.call.creates or self.guard.error is not None

    def _returned(self, gradients: Sequence[Any]) -> Any:
        """The gradients that a function returns, of the shapes that follow from its inputs."""
        inputs = self.inputs or ()
        values = gradients.values() if isinstance(gradients, dict) else gradients
        found = list(values) or [None] * len(inputs)
        made: list[torch.Tensor | None] = []
        for gradient, wanted in zip(found, inputs, strict=True):
            if self.call.flags["materialize_grads"] or self.graph.reaches(wanted):
                made.append(self._finished(gradient, wanted, None))
            else:
                made.append(None)
        return self.call.shaped(made)

    def _finished(
        self, gradient: torch.Tensor | None, like: torch.Tensor, before: torch.Tensor | None
    ) -> torch.Tensor:
        """A guarded gradient, in memory of its own and of known strides; zeros if none came.

        ``before`` is what was there, whose guard it keeps.  Torch adds to the gradient of a leaf in
        place, unless it makes a graph of that.
        """
        if gradient is not None and gradient is before and not self._changes_guards:
            return gradient
        guard = self._guard_of(like, before)
        gradient = _or_zeros(gradient, like)
        in_place = like.is_leaf and gradient is before and not self.call.creates
        if type(gradient) is not Wrapper and not in_place:
            gradient = _laid_out(gradient, _strides_of_gradient(like))
        if self.call.creates:
            gradient = _with_edges(gradient, self.graph.leaves)
        protect(gradient, guard)
        return gradient

    def _guard_of(self, like: torch.Tensor, before: torch.Tensor | None) -> Guard | None:
        """The guard of the gradient of a tensor, whose shape it has."""
        guard = replace(self.guard, shape_hidden=self.guard.shape_hidden or hides_shape(like))
        return meet_guards(guard, full_guard_of(before))


def _is_of_kind(gradient: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether a gradient is a chain of the kind of its tensor, or plain as that is."""
    return type(first_link(gradient)) is type(first_link(tensor))


def _or_zeros(gradient: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """A gradient, or zeros if there is none of the kind of its tensor."""
    if gradient is not None and _is_of_kind(gradient, like):
        return gradient
    return torch.zeros_like(like.detach())


def _check_kind(gradient: torch.Tensor | None, tensor: torch.Tensor) -> None:
    """Raise if torch leaves a gradient of another kind than that which stands for none."""
    if gradient is not None and not _is_of_kind(gradient, tensor):
        instead = "encode it (fix_precision()) before a computation with what is encoded"
        raise UnsupportedOperation("backward", "a leaf with a gradient of another kind", instead)


def _is_strided(value: Any) -> bool:
    """Whether a gradient of a tensor can be laid out as forecast; chains do that themselves."""
    plain = isinstance(value, torch.Tensor) and type(value) is not Wrapper
    return not plain or value.layout is torch.strided


def _in_graph(inputs: Sequence[Any] | None, graph: ReachedGraph) -> list[torch.Tensor] | None:
    """The tensors of a graph that stand for those to which a pass is limited."""
    return None if inputs is None else [in_graph(one, graph.leaves) for one in inputs]


def _gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.is_leaf or tensor.retains_grad:
        return tensor.grad
    with warnings.catch_warnings(action="ignore"):  # a non-leaf tensor usually has no gradient
        return tensor.grad


def _private_copy(start: torch.Tensor | None, guard: Guard) -> torch.Tensor | None:
    """A first gradient in private memory: torch may make its memory that of another gradient."""
    if start is None or full_guard_of(start) == guard:
        return start
    copy = start.clone()
    protect(copy, guard)
    return copy


def _strides_of_gradient(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides that torch gives to the gradient of a tensor: its own if it is dense."""
    if tensor.is_contiguous():
        return tensor.stride()
    return torch.empty_like(tensor.detach(), device="meta").stride()


def _laid_out(gradient: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """A gradient in dense memory of its own, with these strides."""
    if gradient.layout is not torch.strided:
        gradient = gradient.to_dense()
    nbytes = size_of_memory(gradient.shape, strides, gradient.itemsize)
    plain = gradient.stride() == strides and is_plain(gradient, nbytes)
    return gradient if plain and is_only_user(gradient) else plain_copy(gradient, strides)


class _Edges(torch.autograd.Function):
    """A copy of a tensor, with a graph that leads to others too."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, *reached: torch.Tensor) -> torch.Tensor:
        ctx.reached = len(reached)
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return *gradients, *(None for _ in range(ctx.reached))


def _with_edges(gradient: torch.Tensor, reached: Sequence[torch.Tensor]) -> torch.Tensor:
    """A gradient whose graph leads to all that its pass reached, whatever its values are.

    Whether a gradient has a graph follows from formulas; that of a sealed result has none.
    """
    with torch.enable_grad():
        made: torch.Tensor = _Edges.apply(gradient, *reached)  # type: ignore[no-untyped-call]
        return made
