"""Running a private command for a user who may not see its values, so that he sees its forecast.

Whatever the values are, the user sees the same: the results have the shapes of the forecast, what
is written becomes private before it is written, and a failure that comes of values is sealed: the
results are zeros, and their guard holds the error for those who may read them.  Random numbers come
from a seed of their own, so the stream that public commands draw from does not tell what a private
one drew.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

import torch

from syft.ops.nested import container_class, leaves, replace
from syft.workers.execution.forecast import ANY, Forecast, Given, Made, tensors_in
from syft.workers.execution.moved_memory import Holdings, NoHoldings, move_written
from syft.workers.execution.permissions import (
    Guard,
    full_guard_of,
    protect,
    without_frames,
)
from syft.workers.execution.plain_tensors import is_plain, plain_copy

Function = Callable[..., Any]


class Unforeseen(Exception):
    """A result that is not as the forecast has it."""


def run_foreseen(
    function: Function,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    forecast: Forecast,
    guard: Guard,
    holdings: Holdings,
    admitted: bool = False,
) -> Any:
    """Call ``function`` on strided tensors guarded by ``guard``; returns results of the forecast's
    shapes, guarded and perhaps sealed.

    What is written is moved to private memory first, if it is not there: ``holdings`` are told.  A
    failure is raised if the caller is ``admitted`` to the values.  Raises
    :class:`~syft.workers.execution.moved_memory.Immovable` if something cannot be moved.

    >>> from syft.workers.execution.forecast import Forecasts
    >>> from syft.workers.execution.moved_memory import NoHoldings
    >>> x, index = torch.ones(2), torch.tensor([7])
    >>> call = torch.take, (x, index), {}
    >>> result = run_foreseen(*call, Forecasts().of(*call), Guard(frozenset()), NoHoldings())
    >>> result, type(full_guard_of(result).error)
    (tensor([0.]), <class 'IndexError'>)
    """
    inputs = tensors_in(args, kwargs)
    if forecast.writes:
        moves = move_written([inputs[place] for place in forecast.writes], guard, holdings)
        args, kwargs = moves.within((args, kwargs))
        if function in _JOINING:
            args = _apart(args, guard)
        inputs = tensors_in(args, kwargs)
    if admitted:
        guard.check_open()
    result, error = None, guard.error
    run = call_drawing if forecast.draws else _calling
    try:
        result = _fitted(run(function, args, kwargs), forecast, inputs)
        _check_writes(forecast, inputs)
    except Exception as failure:
        if admitted:
            raise
        error = error or without_frames(failure)
        guard = guard.sealed(error)
        result = _stand_ins(forecast, inputs, guard)
    return _guarded(result, inputs, guard)


_SET_DATA: Any = torch.Tensor.data
_JOINING: Final = frozenset((torch.Tensor.set_, _SET_DATA.__set__))
"""The functions after which their first argument lies in the memory of another one."""


def _apart(args: Sequence[Any], guard: Guard) -> Sequence[Any]:
    """The arguments of a joining function, with copies of those that lie in memory of another
    guard: two tensors in one memory have one guard."""
    others = [leaf for leaf in leaves(args[1:]) if isinstance(leaf, torch.Tensor)]
    copies = move_written(others, guard, NoHoldings())
    return args[0], *copies.within(tuple(args[1:]))


def _calling(function: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


def call_drawing(function: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a function that draws random numbers, and leave the public stream as it was.

    >>> before = torch.get_rng_state(); _ = call_drawing(torch.rand, (2,), {})
    >>> torch.equal(torch.get_rng_state(), before)
    True
    """
    indices = {tensor.device.index for tensor in tensors_in(args, kwargs) if tensor.is_cuda}
    there = [torch.cuda.default_generators[index] for index in indices]
    with torch.random.fork_rng(devices=list(indices)):
        for generator in (torch.default_generator, *there):
            generator.manual_seed(secrets.randbits(63))
        return function(*args, **kwargs)


# ------------------------------------------------------------------------------------------ results


def _fitted(result: Any, forecast: Forecast, inputs: Sequence[torch.Tensor]) -> Any:
    """The results, brought to the strides of the forecast; raises :class:`Unforeseen`."""
    expected = list(leaves(forecast.result))
    found = list(leaves(result))
    if len(found) != len(expected) or _container(result) is not _container(forecast.result):
        raise Unforeseen(f"{len(found)} results instead of {len(expected)}")
    fitted = iter([_fit(*pair, inputs) for pair in zip(found, expected, strict=True)])
    return replace(result, lambda leaf: next(fitted))


def _container(result: Any) -> type | None:
    return None if container_class(type(result)) is None else type(result)


def _fit(found: Any, expected: Any, inputs: Sequence[torch.Tensor]) -> Any:
    if type(expected) is Given:
        if found is not inputs[expected.place]:
            raise Unforeseen("another tensor instead of an input")
    elif type(expected) is Made:
        if not isinstance(found, torch.Tensor) or not _is_like(found, expected):
            raise Unforeseen("a result of another shape, dtype or layout")
        if expected.shares or expected.nbytes < 0 or is_as_made(found, expected):
            return found
        return plain_copy(found, expected.stride)
    elif found is not None:
        raise Unforeseen("a result instead of None")
    return found


def _is_like(tensor: torch.Tensor, made: Made) -> bool:
    same = has_shape(tensor, made) and tensor.dtype is made.dtype
    return same and tensor.requires_grad is made.requires_grad and tensor.layout is torch.strided


def is_as_made(tensor: torch.Tensor, made: Made) -> bool:
    """Whether a tensor of the right shape is laid out as all results are that share no memory."""
    return tensor.stride() == made.stride and is_plain(tensor, made.nbytes)


def has_shape(tensor: torch.Tensor, made: Made) -> bool:
    """Whether a tensor has the shape of a forecast, as far as that is known.

    >>> made = Made((-1, 3), (3, 1), torch.float32, torch.device("cpu"), False, (), False, -1)
    >>> has_shape(torch.ones(2, 3), made), has_shape(torch.ones(3), made)
    (True, False)
    """
    if tensor.shape == made.shape:
        return True
    pairs = zip(tensor.shape, made.shape, strict=False)
    return tensor.ndim == len(made.shape) and all(two in (one, ANY) for one, two in pairs)


def _check_writes(forecast: Forecast, inputs: Sequence[torch.Tensor]) -> None:
    for place, made in forecast.changed:
        tensor = inputs[place]
        if not _is_like(tensor, made):
            raise Unforeseen("what was written has another shape or dtype")
        if tensor.stride() != made.stride and made.nbytes >= 0:
            values = tensor.detach().clone()
            _lay_out(tensor, made)
            tensor.detach().copy_(values)


def _guarded(result: Any, inputs: Sequence[torch.Tensor], guard: Guard) -> Any:
    """Guard the results; one that lies in memory of a lower guard is copied first."""
    lower = {tensor.untyped_storage()._cdata for tensor in inputs if full_guard_of(tensor) != guard}

    def guarded(leaf: torch.Tensor | None) -> torch.Tensor | None:
        if leaf is None:
            return None
        if leaf.untyped_storage()._cdata in lower:
            leaf = leaf.clone()
        protect(leaf, guard)
        return leaf

    return replace(result, guarded)


# ---------------------------------------------------------------------------------------- stand-ins


class _StandIn(torch.autograd.Function):
    """Zeros with a graph that leads to some tensors."""

    @staticmethod
    def forward(ctx: Any, made: Made, *reached: torch.Tensor) -> torch.Tensor:
        ctx.reached = [(tensor.shape, tensor.dtype, tensor.device) for tensor in reached]
        return _zeros(made)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return None, *(
            torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.reached
        )


class _Overwritten(torch.autograd.Function):
    """A tensor as it is, with a graph that leads to some tensors."""

    @staticmethod
    def forward(ctx: Any, target: torch.Tensor, *reached: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(target)
        ctx.reached = [(tensor.shape, tensor.dtype, tensor.device) for tensor in reached]
        return target

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return _StandIn.backward(ctx)


def _stand_ins(forecast: Forecast, inputs: Sequence[torch.Tensor], guard: Guard) -> Any:
    """What stands for results that could not be computed; what was to be written is sealed."""
    for place, made in forecast.changed:
        _bring(inputs[place], made, inputs)
    for place in forecast.writes:
        protect(inputs[place], guard)

    def stand_in(expected: Made | Given | None) -> torch.Tensor | None:
        if expected is None:
            return None
        if type(expected) is Given:
            return inputs[expected.place]
        made = cast(Made, expected)
        return _with_graph(made, inputs) if made.requires_grad else _zeros(made)

    return replace(forecast.result, stand_in)


def _zeros(made: Made) -> torch.Tensor:
    kind: Any = {"dtype": made.dtype, "device": made.device}
    if made.nbytes < 0:
        return torch.zeros([max(size, 0) for size in made.shape], **kind)
    return torch.empty_strided(made.shape, made.stride, **kind).zero_()


def _with_graph(made: Made, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    with torch.enable_grad():
        reached = list(_reached(made, inputs))
        tensor = cast(torch.Tensor, _StandIn.apply(made, *reached))  # type: ignore[no-untyped-call]
        return tensor if tensor.requires_grad else tensor.requires_grad_()


def _reached(made: Made, inputs: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    return (inputs[place] for place in made.reaches if inputs[place].requires_grad)


def _bring(tensor: torch.Tensor, made: Made, inputs: Sequence[torch.Tensor]) -> None:
    """Give a tensor the shape and the graph that it would have if the command had succeeded."""
    known = made.nbytes >= 0
    there = (tensor.shape, tensor.stride()) == (made.shape, made.stride)
    if tensor.dtype is not made.dtype or not (known or has_shape(tensor, made)):
        tensor.data = _zeros(made)
    elif known and not there:
        _lay_out(tensor, made)
        tensor.detach().zero_()
    if made.requires_grad:
        _let_reach(tensor, made, inputs)


def _let_reach(tensor: torch.Tensor, made: Made, inputs: Sequence[torch.Tensor]) -> None:
    others = [other for other in _reached(made, inputs) if other is not tensor]
    if others:
        with torch.enable_grad():
            _Overwritten.apply(tensor, *others)  # type: ignore[no-untyped-call]
    elif not tensor.requires_grad:
        tensor.requires_grad_()


def _lay_out(tensor: torch.Tensor, made: Made) -> None:
    """Give a tensor this shape and these strides in its memory, which grows if need be, as memory
    does to which an operation writes its result."""
    memory, start = tensor.untyped_storage(), int(tensor.storage_offset())
    end = start * tensor.itemsize + made.nbytes
    if memory.nbytes() < end:
        memory.resize_(end)
    with torch.no_grad():
        there = torch.empty(0, dtype=made.dtype, device=made.device)
        tensor.data = there.set_(memory, start, made.shape, made.stride)
