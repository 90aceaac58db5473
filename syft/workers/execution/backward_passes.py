"""Backward passes at a worker that holds private values: what they leave is known before they run.

A pass writes to the gradients of tensors that are not among its arguments.  Which ones these are
follows from the graph, and so from the requests made, not from values.  So before a pass over
private values, the gradients that are there already are moved to private memory
(:mod:`~syft.workers.execution.moved_memory`).  After it, every tensor that the pass reaches has a
private gradient of its own, of zeros if none came.  Both are so whether the pass succeeds or not.
That it failed is sealed, as the failure of any command is; what does not fit together is found
beforehand and told to everybody.

A pass over public values may add to private gradients, which stay private.

Three functions run passes: ``tensor.backward``, ``torch.autograd.backward`` and
``torch.autograd.grad``.  Whether their arguments fit together follows from shapes, dtypes and
graphs.  What goes wrong later may follow from values.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import PermissionDenied, UnsupportedOperation
from syft.ops.nested import Function, leaves
from syft.ops.outcome import size_of_memory
from syft.torch_private import tensors_on
from syft.workers.execution.followed_leaves import FollowedLeaves
from syft.workers.execution.moved_memory import Holdings, move_written
from syft.workers.execution.plain_tensors import is_plain, plain_copy
from syft.workers.execution.predicted_failures import PRIVATE_PASS, predicted_failure, refusal
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


@dataclass(frozen=True, slots=True)
class _Names:
    """How the arguments of a function are called that several functions have."""

    roots: str
    starts: str
    inputs: str = "inputs"


_NAMES: Final[dict[Any, _Names]] = {
    torch.Tensor.backward: _Names("self", "gradient"),
    torch.autograd.backward: _Names("tensors", "grad_tensors"),
    torch.autograd.grad: _Names("outputs", "grad_outputs"),
}
_MISSING: Final = Parameter.empty
_SIGNATURES: Final = {function: signature(function) for function in _NAMES}
_DEFAULTS: Final = {
    function: {name: parameter.default for name, parameter in found.parameters.items()}
    for function, found in _SIGNATURES.items()
}
_OTHER_STARTS: Final = "grad_variables"
"""The name that ``grad_tensors`` once had."""
_FLAGS: Final = {
    function: [
        name for name in defaults if name not in (of.roots, of.starts, of.inputs, _OTHER_STARTS)
    ]
    for (function, of), defaults in zip(_NAMES.items(), _DEFAULTS.values(), strict=True)
}
"""The arguments of each function that are no tensors by their meaning."""


@dataclass(frozen=True, slots=True)
class BackwardCall:
    """A call of a function that runs a backward pass, by what its arguments are for.

    ``starts`` are the gradients of the roots, None for the implicit one; ``inputs`` are the tensors
    to whose gradients the pass is limited, None for all leaves; ``flags`` are the other arguments.

    >>> x = torch.ones((), requires_grad=True)
    >>> call = backward_call(torch.autograd.grad, (x * 2, [x]), {})
    >>> len(call.roots), call.starts, call.inputs, call.flags["allow_unused"], call.returns
    (1, (None,), (tensor(1., requires_grad=True),), None, True)
    """

    function: Callable[..., Any]
    arguments: dict[str, Any]
    roots: tuple[Any, ...]
    starts: tuple[Any, ...]
    inputs: tuple[Any, ...] | None
    flags: dict[str, Any]

    @property
    def returns(self) -> bool:
        """Whether gradients are returned, and not left in the leaves."""
        return self.function == torch.autograd.grad

    @property
    def creates(self) -> bool:
        """Whether gradients get a graph of their own."""
        return bool(self.flags["create_graph"])

    @property
    def retains(self) -> bool:
        """Whether the graph can be used again afterwards."""
        retains = self.flags["retain_graph"]
        return self.creates if retains is None else bool(retains)

    def with_tensors(self, starts: Sequence[Any], inputs: Sequence[Any] | None) -> BackwardCall:
        """The same call with other gradients of the roots, and other inputs."""
        if inputs is None and all(start is None for start in starts):
            return self
        names = _NAMES[self.function]
        given = {**self.arguments, names.starts: _like(self.arguments[names.starts], starts)}
        given.pop(_OTHER_STARTS, None)
        if inputs is not None:
            given[names.inputs] = list(inputs)
        inputs = None if inputs is None else tuple(inputs)
        return replace(self, arguments=given, starts=tuple(starts), inputs=inputs)

    def run(self) -> Any:
        """Run the pass; returns gradients as a tuple, or None."""
        return self.function(**self.arguments)

    def shaped(self, gradients: Sequence[Any]) -> Any:
        """Gradients as the function returns them: by name if its inputs have names."""
        names = self.arguments[_NAMES[self.function].inputs]
        return dict(zip(names, gradients, strict=True)) if type(names) is dict else tuple(gradients)

    def misfit(self) -> str | None:
        """Why the pass cannot begin, whatever the values are; None if nothing is wrong."""
        if len(self.starts) != len(self.roots):
            return f"got {len(self.roots)} tensors and {len(self.starts)} gradients"
        pairs = enumerate(zip(self.roots, self.starts, strict=True))
        found = (_misfit_of(index, *pair) for index, pair in pairs)
        wrong = next((text for text in found if text is not None), None)
        return self._misfit_of_inputs() if wrong is None else wrong

    def _misfit_of_inputs(self) -> str | None:
        if self.inputs is None:
            return None
        if not self.inputs:
            return "`inputs` argument cannot be empty."
        if not all(isinstance(one, torch.Tensor) for one in self.inputs):
            return "`inputs` must be tensors"
        if not all(one.requires_grad for one in self.inputs):
            return "One of the differentiated Tensors does not require grad"
        return None


def backward_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> BackwardCall:
    """The call by the meaning of its arguments; raises TypeError if they are not the function's.

    >>> backward_call(torch.Tensor.backward, (torch.ones(1),), {"graph": True})
    Traceback (most recent call last):
    ...
    TypeError: got an unexpected keyword argument 'graph'
    """
    given, names = _given(function, args, kwargs), _NAMES[function]
    roots = _several(given[names.roots])
    starts = given[names.starts]
    if starts is None:
        starts = given.get(_OTHER_STARTS)
    inputs = given[names.inputs]
    return BackwardCall(
        function,
        given,
        roots,
        (None,) * len(roots) if starts is None else _several(starts),
        None if inputs is None else _several(inputs),
        {name: given[name] for name in _FLAGS[function]},
    )


def frees_all(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """The tensors behind which a pass frees everything by its arguments; none if it keeps the
    graph, or comes to a part of it alone.

    >>> x = torch.ones((), requires_grad=True); frees_all(torch.Tensor.backward, (x,), {})
    (tensor(1., requires_grad=True),)
    >>> frees_all(torch.Tensor.backward, (x,), {"retain_graph": True})
    ()
    """
    if function not in _NAMES or kwargs.get("retain_graph") is True:
        return ()
    call = backward_call(function, args, kwargs)
    flags = call.flags["retain_graph"], call.flags["create_graph"]
    usual = call.inputs is None and not any(isinstance(flag, torch.Tensor) for flag in flags)
    return call.roots if usual and not call.retains else ()


def _given(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments by name, with the defaults of those that are not given."""
    defaults = _DEFAULTS[function]
    by_place = dict(zip(defaults, args, strict=False))
    given = {**defaults, **by_place, **kwargs}
    fits = len(by_place) == len(args) and by_place.keys().isdisjoint(kwargs)
    if not fits or len(given) > len(defaults) or any(each is _MISSING for each in given.values()):
        _SIGNATURES[function].bind(*args, **kwargs)  # it raises what is wrong
    return given


def _several(value: Any) -> tuple[Any, ...]:
    if isinstance(value, dict):
        return tuple(value.values())
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _like(before: Any, starts: Sequence[Any]) -> Any:
    """The gradients of the roots as the function takes them: one, or a list."""
    if all(start is None for start in starts):
        return None
    return starts[0] if isinstance(before, torch.Tensor) else list(starts)


def _misfit_of(index: int, root: Any, start: Any) -> str | None:
    """Why no pass can begin at a root with this gradient."""
    if not isinstance(root, torch.Tensor) or not isinstance(start, torch.Tensor | None):
        return "a backward pass takes tensors, and gradients that are tensors or None"
    recorded = recorded_of(root)
    if recorded is not None and not recorded.requires_grad:
        return f"element {index} of tensors does not require grad and does not have a grad_fn"
    if start is None:
        return _implicit_misfit(root)
    if start.shape != root.shape:
        shapes = f"{start.shape} and output[{index}] has a shape of {root.shape}"
        return f"Mismatch in shape: grad_output[{index}] has a shape of {shapes}."
    if start.dtype.is_complex != root.dtype.is_complex or start.device != root.device:
        kinds = f"{start.dtype} on {start.device} for an output of {root.dtype} on {root.device}"
        return f"Mismatch: grad_output[{index}] is {kinds}."
    return None


def _implicit_misfit(root: torch.Tensor) -> str | None:
    if root.numel() != 1:
        return "grad can be implicitly created only for scalar outputs"
    if not root.dtype.is_floating_point:
        return f"grad can be implicitly created only for real scalar outputs but got {root.dtype}"
    return None


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
        raise predicted_failure(TypeError, str(error)) from None
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
        raise predicted_failure(UnsupportedOperation, *error.args) from None
    misfit = call.misfit()
    if misfit is not None:
        raise predicted_failure(RuntimeError, misfit)


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
                raise predicted_failure(ValueError, f"{text}, but got: allow_unused=False.")
        elif not flags["allow_unused"] and not all(map(self.graph.reaches, self.inputs or ())):
            raise predicted_failure(RuntimeError, _UNUSED)

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
        changes_guards = self.call.creates or self.guard.error is not None
        if gradient is not None and gradient is before and not changes_guards:
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
        guard = self.guard
        if not guard.shape_hidden and hides_shape(like):
            guard = replace(guard, shape_hidden=True)
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
    """Whether a gradient of a tensor can be laid out as predicted; chains do that themselves."""
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
    return gradient if plain and tensors_on(gradient) == 1 else plain_copy(gradient, strides)


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
