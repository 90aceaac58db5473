"""``torch.func`` on tensors whose data is not here, and in plans: ``grad``, ``vjp``, ``jvp``,
``vmap``, ``linearize``, and what torch builds of them (``jacrev``, ``jacfwd``, ``hessian``).

Torch wraps operands for such a transform below all subclasses, where no link and no recording sees
what is done with them.  So each is computed by means that can travel.  A derivative is
one of autograd, which runs at the worker.  The derivative in a direction is that of the backward
pass, which is linear in the gradient that it starts from.  ``vmap`` calls its function once for
each row; with ``randomness="same"`` all rows are given what the first has drawn, and by default
what draws random numbers is refused.

A derivative has a graph if what it is computed from has one: the arguments, and whatever the
function uses besides them.  :class:`_Uses` sees the latter.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

from syft.chain.wrapper import Wrapper
from syft.exceptions import UnsupportedOperation
from syft.hooks.ledger import Ledger
from syft.ops.calls import argument, has_parameter
from syft.ops.control import RECORDING
from syft.ops.nested import Arguments, Keywords, every_tensor, leaves
from syft.ops.table import FLAGS, NAMES, NUMBERS, RANDOM, ops_with
from syft.torch_private import (
    batched_inputs,
    function_transforms,
    slice_arguments,
    spread,
    tree_flatten,
    tree_unflatten,
)

Function = Callable[..., Any]

_KNOWN: ContextVar[dict[int, tuple[Any, bool]] | None] = ContextVar("which have a graph")
"""What the outermost transform knows of tensors: whether they require grad, which is a question."""


def surround_transforms(ledger: Ledger) -> None:
    """Have the transforms of torch be computed here where they meet tensors that are elsewhere."""
    for (module, name), ours in zip(function_transforms(), _OURS, strict=True):
        ledger.surround(module, name, functools.partial(_choosing, ours))


def _choosing(ours: Function, torchs: Function) -> Function:
    must_be_ours = _is_wrapper if ours is _linearize else _is_seen

    def chosen(*args: Any, **kwargs: Any) -> Any:
        if RECORDING.get() is None and not any(map(must_be_ours, leaves((args, kwargs)))):
            return torchs(*args, **kwargs)
        if _KNOWN.get(None) is not None:
            return ours(*args, **kwargs)
        token = _KNOWN.set({})
        try:
            return ours(*args, **kwargs)
        finally:
            _KNOWN.reset(token)

    return chosen


def _is_seen(value: Any) -> bool:
    """Whether a value is a wrapper whose link sees calls above autograd."""
    return type(value) is Wrapper and value.child.at_function_level


def _is_wrapper(value: Any) -> bool:
    """The same for a transform that torch traces, which no wrapper takes part in."""
    return type(value) is Wrapper


# ------------------------------------------------------------------------------------ derivatives


class _Uses(TorchFunctionMode):
    """Sees which tensors a function takes from outside."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        super().__init__()
        self.made = {id(tensor): tensor for tensor in inputs}
        self.outside: dict[int, torch.Tensor] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        for tensor in every_tensor(args, kwargs):
            if id(tensor) not in self.made:
                self.outside[id(tensor)] = tensor
        result = func(*args, **(kwargs or {}))
        self.made.update((id(tensor), tensor) for tensor in every_tensor(result))
        return result


def _requires_grad(tensor: torch.Tensor) -> bool:
    known = _KNOWN.get(None)
    if known is None:
        return tensor.requires_grad
    if id(tensor) not in known:
        known[id(tensor)] = tensor, tensor.requires_grad
    return known[id(tensor)][1]


def _note(tensors: Sequence[torch.Tensor], requires_grad: bool) -> None:
    known = _KNOWN.get(None)
    if known is not None:
        known.update((id(tensor), (tensor, requires_grad)) for tensor in tensors)


def _variable(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers, for a derivative, behind the graph of the tensor if it has one."""
    fresh = tensor.view_as(tensor) if _requires_grad(tensor) else tensor.detach().requires_grad_()
    _note([fresh], True)
    return fresh


class _Evaluated:
    """A function at a point: what it returns, with the graph to its arguments."""

    def __init__(
        self, function: Function, args: Any, kwargs: Keywords, argnums: Any, has_aux: bool
    ) -> None:
        self.attached = torch.is_grad_enabled()
        chosen = args if argnums is None else slice_arguments(args, argnums, as_tuple=False)
        points, self.spec = tree_flatten(chosen)
        with torch.enable_grad():
            self.variables = [_variable(point) for point in points]
            variables = tree_unflatten(self.variables, self.spec)
            args = variables if argnums is None else _put(args, variables, argnums)
            with _Uses(self.variables) as uses:
                value = function(*args, **kwargs)
        self.aux: Any = None
        if has_aux:
            value, self.aux = value
        self.outputs, self.output_spec = tree_flatten(value)
        used = [*points, *uses.outside.values()]
        self.attached = self.attached and any(map(_requires_grad, used))

    def value(self) -> Any:
        """What the function returned."""
        return self._outside(self.outputs, self.output_spec)

    def auxiliary(self) -> Any:
        """What it returned besides."""
        flat, spec = tree_flatten(self.aux)
        return self._outside(flat, spec)

    def _outside(self, flat: Sequence[Any], spec: Any) -> Any:
        if not self.attached:
            flat = [x.detach() if isinstance(x, torch.Tensor) else x for x in flat]
            _note([x for x in flat if isinstance(x, torch.Tensor)], False)
        return tree_unflatten(flat, spec)

    def pulled(self, cotangents: Sequence[Any] | None, keep: bool, create: bool) -> list[Any]:
        """The gradients in the variables, with a graph of their own for ``create``."""
        with torch.enable_grad():
            gradients = torch.autograd.grad(
                self.outputs,
                self.variables,
                cotangents,
                retain_graph=keep or create,
                create_graph=create,
                allow_unused=True,
                materialize_grads=True,
            )
        _note(gradients, create)
        return list(gradients)


def _put(args: Any, values: Any, argnums: Any) -> tuple[Any, ...]:
    """The arguments with others in some places."""
    places = (argnums,) if isinstance(argnums, int) else argnums
    values = (values,) if isinstance(argnums, int) else values
    filled = list(args)
    for place, value in zip(places, values, strict=True):
        filled[place] = value
    return tuple(filled)


def _gradient_and_value(
    function: Function, argnums: Any, has_aux: bool, args: Any, kwargs: Keywords
) -> Any:
    at = _Evaluated(function, args, kwargs, argnums, has_aux)
    gradient = tree_unflatten(at.pulled(None, False, at.attached), at.spec)
    return gradient, (at.value(), at.auxiliary()) if has_aux else at.value()


def _vjp(function: Function, *primals: Any, argnums: Any = None, has_aux: bool = False) -> Any:
    at = _Evaluated(function, primals, {}, argnums, has_aux)

    def pull(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        flat, _ = tree_flatten(cotangents)
        attached = at.attached or any(map(_requires_grad, flat))
        create = attached and torch.is_grad_enabled() if create_graph is None else create_graph
        return tree_unflatten(at.pulled(flat, retain_graph, create), at.spec)

    return (at.value(), pull, at.auxiliary()) if has_aux else (at.value(), pull)


def _jvp(
    function: Function,
    primals: Any,
    tangents: Any,
    argnums: Any,
    *,
    strict: bool = False,
    has_aux: bool,
) -> Any:
    at = _Evaluated(function, primals, {}, argnums, has_aux)
    flat, _ = tree_flatten(tangents)
    attached = at.attached or (torch.is_grad_enabled() and any(map(_requires_grad, flat)))
    with torch.enable_grad():
        starts = [torch.zeros_like(output, requires_grad=True) for output in at.outputs]
        gradients = at.pulled(starts, True, True)
        along = torch.autograd.grad(
            gradients,
            starts,
            flat,
            create_graph=attached,
            allow_unused=True,
            materialize_grads=True,
        )
    _note(along, attached)
    result = at.value(), tree_unflatten(list(along), at.output_spec)
    return (*result, at.auxiliary()) if has_aux else result


def _linearize(function: Function, *primals: Any) -> Any:
    flat, spec = tree_flatten(primals)
    at = tree_unflatten([x.detach() for x in flat], spec)  # torch keeps numbers, and no graph

    def along(*tangents: Any) -> Any:
        return _jvp(function, at, tangents, None, has_aux=False)[1]

    return function(*primals), along


# ------------------------------------------------------------------------------------------- rows


def _vmap(
    function: Function,
    in_dims: Any,
    out_dims: Any,
    randomness: str,
    chunk_size: int | None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    count, dims, flat, spec = batched_inputs(in_dims, args, function)
    rows = [
        [value] * count if dim is None else _rows(value, dim)
        for value, dim in zip(flat, dims, strict=True)
    ]
    results = []
    with _DRAWS.get(randomness, contextlib.nullcontext)() as draws:
        for row in zip(*rows):
            if isinstance(draws, _SameDraws):
                draws.begin_row()
            results.append(function(*tree_unflatten(list(row), spec), **kwargs))
    flat_results = [tree_flatten(result) for result in results]
    out_spec = flat_results[0][1]
    columns = zip(*[values for values, _ in flat_results], strict=True)
    places: Any = spread(out_dims, out_spec)
    return tree_unflatten(list(map(_stacked, columns, places)), out_spec)


class _NoDraws(TorchFunctionMode):
    """Refuses what draws random numbers, as torch's own ``vmap`` does unless it is told how."""

    def __torch_function__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        kwargs = kwargs or {}
        number = NUMBERS.get(func)
        if number is not None and FLAGS[number] & RANDOM and _draws(number, args, kwargs):
            instead = "say randomness='different', or draw before, outside"
            raise UnsupportedOperation(NAMES[number], "vmap(randomness='error')", instead)
        return func(*args, **kwargs)


class _SameDraws(TorchFunctionMode):
    """Gives each row what the first one has drawn, of numbers that no row can be told by.

    >>> with _SameDraws() as draws:
    ...     one = draws.begin_row(), torch.rand(2)
    ...     other = draws.begin_row(), torch.rand(2)
    >>> torch.equal(one[1], other[1])
    True
    """

    def __init__(self) -> None:
        super().__init__()
        self._drawn: list[tuple[int, torch.Tensor]] = []
        self._left: list[tuple[int, torch.Tensor]] | None = None

    def begin_row(self) -> None:
        """The next draw is the first of a row."""
        self._left = None if self._left is None and not self._drawn else list(self._drawn)

    def __torch_function__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        kwargs = kwargs or {}
        number = NUMBERS.get(func)
        if number is None or not FLAGS[number] & RANDOM or not _draws(number, args, kwargs):
            return func(*args, **kwargs)
        if number not in _DRAWN_BY_SHAPE and every_tensor(args, kwargs):
            instead = "draw by torch.rand_like, or before, outside"
            raise UnsupportedOperation(NAMES[number], "vmap(randomness='same')", instead)
        if self._left is None:
            drawn = func(*args, **kwargs)
            self._drawn.append((number, drawn.detach().clone()))  # a row may write to its own
            return drawn
        if not self._left or self._left[0][0] != number:
            instead = "let each row draw what the first one does, in its order"
            raise UnsupportedOperation(NAMES[number], "vmap(randomness='same')", instead)
        return self._left.pop(0)[1].clone()


_DRAWN_BY_SHAPE: Final = {
    op for op in ops_with(RANDOM) if NAMES[op].startswith("torch.") and NAMES[op].endswith("_like")
}
_DRAWS: Final[dict[str, Callable[[], Any]]] = {"error": _NoDraws, "same": _SameDraws}


def _draws(number: int, args: Arguments, kwargs: Keywords) -> bool:
    """Whether an operation that can draw random numbers does, which those that drop may not."""
    for name in ("training", "train"):
        if argument(number, name, args, kwargs) is False:
            return False
    for name in ("p", "dropout", "dropout_p"):
        share = argument(number, name, args, kwargs)
        if type(share) in (int, float) and not share:
            return False
    unsaid = (
        has_parameter(number, "dropout_p") and argument(number, "dropout_p", args, kwargs) is None
    )
    return not unsaid  # attention drops nothing by default


def _rows(value: torch.Tensor, dim: int) -> tuple[torch.Tensor, ...]:
    rows = value.unbind(dim)
    _note(rows, _requires_grad(value))
    return rows


def _stacked(column: Sequence[Any], place: int | None) -> torch.Tensor:
    """The results of all rows as one tensor."""
    if not all(isinstance(value, torch.Tensor) for value in column):
        raise ValueError(
            f"vmap({type(column[0]).__name__}): the function must return nothing but tensors"
        )
    if place is None:
        raise UnsupportedOperation("vmap(out_dims=None)", "torch.func", "return it of one row")
    return torch.stack(list(column), place)


_OURS: Final[tuple[Function, ...]] = (_gradient_and_value, _vjp, _jvp, _vmap, _linearize)
"""What takes the places of torch's own, in the order of ``function_transforms``."""
