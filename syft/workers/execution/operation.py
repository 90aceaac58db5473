"""Running one operation for a caller: under the caller's modes and the guards of its inputs.

Without private inputs an operation is a function call.  With private inputs everything computed
from a private value gets the guard of that value: results, gradients, and all tensors that the
operation wrote.  A command of somebody who may not see the values does what its forecast says
(:mod:`syft.workers.execution.foreseen`).

Where there is no forecast (a backward pass, layouts other than strided, chains, shapes that are
private themselves), and for those who may see the values, it is a function call, and a written
tensor is found by its version counter.  The few operations that write without raising the counter
have a flag in the op table, and their inputs are compared.  A backward pass writes to tensors that
are not among its arguments, so the gradients it may leave are looked up in the graph before it
runs.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import replace as changed
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.exceptions import PermissionDenied
from syft.ops.control import RECORDING
from syft.ops.nested import EXACT_TENSOR_TYPES, leaves, replace
from syft.ops.table import (
    BY_NAME,
    FACTORY,
    FUNCTIONS,
    GRADIENT,
    INPLACE,
    METADATA,
    MUTATES_OTHERS,
    SHAPE_FROM_VALUES,
)
from syft.torch_private import (
    any_autocast_enabled,
    any_function_mode,
    no_function_modes,
    set_grad_enabled,
)
from syft.workers.execution.backward_passes import run_private_pass
from syft.workers.execution.forecast import Forecast, Verdict
from syft.workers.execution.foreseen import run_foreseen
from syft.workers.execution.foreseen_failures import foreseen_failure
from syft.workers.execution.hidden_shapes import NO_FORECAST, hidden_forecast
from syft.workers.execution.leaving import check_gradients_leave
from syft.workers.execution.moved_memory import Holdings, Immovable, move_written
from syft.workers.execution.permissions import (
    Guard,
    combined,
    full_guard_of,
    innermost,
    protect,
    storages_of,
)
from syft.workers.execution.private_results import (
    FORECASTS,
    NOTHING,
    UNCLEAR,
    common_guard,
    private_result,
)
from syft.workers.execution.public_facts import asks_only, is_told
from syft.workers.wire.messages import GRAD_MODE, INFERENCE_MODE

Function = Callable[..., Any]


def run_in_mode(
    function: Function,
    args: Any,
    kwargs: dict[str, Any],
    flags: int,
    autocast: Iterable[tuple[str, torch.dtype]],
) -> Any:
    """Call ``function`` under the caller's grad mode, inference mode and autocast.

    >>> run_in_mode(torch.is_grad_enabled, (), {}, 0, ())
    False
    >>> run_in_mode(torch.is_grad_enabled, (), {}, GRAD_MODE, ())
    True
    """
    before = torch.is_grad_enabled()
    set_grad_enabled(bool(flags & GRAD_MODE))
    try:
        with contextlib.ExitStack() as modes:
            if flags & INFERENCE_MODE:
                modes.enter_context(torch.inference_mode())
            wanted = dict(autocast)
            for device in ("cpu", "cuda"):
                if device in wanted:
                    modes.enter_context(torch.autocast(device, dtype=wanted[device]))
                elif torch.is_autocast_enabled(device):
                    modes.enter_context(torch.autocast(device, enabled=False))
            return function(*args, **kwargs)
    finally:
        set_grad_enabled(before)


_NEUTRAL: Final = contextlib.nullcontext()


def neutral_mode() -> contextlib.AbstractContextManager[Any]:
    """A context without inference mode, autocast and function modes, in which a worker handles
    queued messages.

    A queued command runs while some caller waits for a result, under the modes of that caller.
    The modes of the command itself are in its message.
    A plan that is being recorded by that caller does not see the command.
    """
    recording = RECORDING.get()
    outer = torch.is_inference_mode_enabled() or any_autocast_enabled() or any_function_mode()
    if recording is None and not outer:
        return _NEUTRAL
    modes = contextlib.ExitStack()
    if recording is not None:
        modes.enter_context(recording.paused())
    modes.enter_context(no_function_modes())
    if torch.is_inference_mode_enabled():
        modes.enter_context(torch.inference_mode(False))
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            modes.enter_context(torch.autocast(device, enabled=False))
    return modes


@functools.cache
def clearing(function: Function) -> Function:
    """The same function, with zeros in all memory that it allocates and does not write.

    Freed memory may contain private values of other users.

    >>> clearing(torch.empty)(2)
    tensor([0., 0.])
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        known = {id(storage): (storage, storage.nbytes()) for storage in _memory((args, kwargs))}
        result = function(*args, **kwargs)
        if function is torch.Tensor.new and _is_data(args[1:]):
            return result
        for storage in _memory(result):
            _, written = known.get(id(storage), (storage, 0))
            _clear(storage, written)
        return result

    return call


def clearing_if_it_fails(function: Function) -> Function:
    """The same function, with zeros in all memory that its arguments get and that is not written,
    because it fails.

    A call with ``out=`` gives that its size first, and computes then.

    >>> x = torch.ones(2)
    >>> def grow_and_fail(out):
    ...     out.resize_(4); raise ValueError("too late")
    >>> clearing_if_it_fails(grow_and_fail)(out=x)
    Traceback (most recent call last):
    ...
    ValueError: too late
    >>> x
    tensor([1., 1., 0., 0.])
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        before = [(storage, storage.nbytes()) for storage in _memory((args, kwargs))]
        try:
            return function(*args, **kwargs)
        except Exception:
            for storage, written in before:
                _clear(storage, written)
            raise

    return call


def _clear(storage: torch.UntypedStorage, written: int) -> None:
    """Put zeros behind the bytes of a storage that were written."""
    memory = torch.empty(0, dtype=torch.uint8, device=storage.device)
    memory.set_(storage)[written:].zero_()


def _memory(values: Any) -> list[torch.UntypedStorage]:
    return [storage for value in leaves(values) for storage in storages_of(value)]


def _is_data(args: tuple[Any, ...]) -> bool:
    """Whether these arguments of ``x.new`` are the elements of the new tensor, and not its size."""
    return any(not isinstance(arg, (int, torch.Size)) for arg in args)


def run_guarded(
    function: Function,
    args: list[Any],
    kwargs: dict[str, Any],
    op_flags: int,
    guard: Guard,
    holdings: Holdings,
    worker: str,
    user: str | None,
) -> Any:
    """Call ``function`` on inputs guarded by ``guard``, and guard its results and effects.

    ``holdings`` are told of tensors that the call moves to new memory.  Raises
    :class:`~syft.exceptions.PermissionDenied` when the operation would return a value to a ``user``
    who may not read it.
    """
    admitted = guard.admits(user)
    if not admitted:
        _check_may_ask(function, args, kwargs, op_flags, guard, worker, user)
    if op_flags & GRADIENT:
        return run_private_pass(function, args, kwargs, guard, holdings, worker, user)
    if function in _GRADIENT_READERS and type(args[0]) is not Wrapper:
        return function(*args, **kwargs)  # a gradient is as private as its own memory
    result = _quick_result(function, args, kwargs, guard)
    if result is not NOTHING:
        return result
    forecast = _forecast_of(function, args, kwargs, op_flags, guard)
    try:
        if forecast.is_complete:
            if forecast.verdict is Verdict.RESIZES:
                guard = changed(guard, shape_hidden=True)
            return run_foreseen(function, args, kwargs, forecast, guard, holdings, admitted)
        if admitted:
            guard.check_open()
            args, kwargs = _moved(args, kwargs, op_flags, guard, holdings)
        else:
            _check_may_be_seen(function, args, kwargs, op_flags, forecast, guard, worker, user)
    except Immovable:
        raise PermissionDenied(_SHARED, worker, user) from None
    return _run_and_see(function, args, kwargs, op_flags, guard, worker, user)


def _check_may_ask(
    function: Function,
    args: list[Any],
    kwargs: dict[str, Any],
    op_flags: int,
    guard: Guard,
    worker: str,
    user: str | None,
) -> None:
    """Raise if a command asks what is not told of private tensors, or sends their gradients where
    they may not go."""
    if op_flags & METADATA and not (is_told(function, guard) and asks_only(function, args, kwargs)):
        raise PermissionDenied("a question without a public answer", worker, user)
    if op_flags & GRADIENT:
        check_gradients_leave(function, args, kwargs, guard, worker, user)


def _quick_result(function: Function, args: list[Any], kwargs: dict[str, Any], guard: Guard) -> Any:
    """What a command makes or writes that is for the fast way; ``NOTHING`` if it is not."""
    found = common_guard((*args, *kwargs.values()))
    if found is UNCLEAR or found != guard or guard.error is not None:
        return NOTHING
    return private_result(function, args, kwargs, guard)


def _moved(
    args: list[Any], kwargs: dict[str, Any], op_flags: int, guard: Guard, holdings: Holdings
) -> Any:
    """The arguments after what an operation without a forecast may write was moved."""
    written: list[Any] = [kwargs.get("out")]
    if op_flags & MUTATES_OTHERS:
        written += (args, kwargs)
    elif op_flags & INPLACE:
        written += args[:1]
    targets = [each for each in _tensors_in(written, {}) if full_guard_of(each) != guard]
    if not _all_strided(targets):
        raise Immovable
    return move_written(targets, guard, holdings).within((args, kwargs))


def _run_and_see(
    function: Function,
    args: list[Any],
    kwargs: dict[str, Any],
    op_flags: int,
    guard: Guard,
    worker: str,
    user: str | None,
) -> Any:
    """Call a function, and guard what it is found to have written and what it returns."""
    inputs = _tensors_in(args, kwargs)
    before = [(tensor, _version(tensor)) for tensor in inputs]
    result = function(*args, **kwargs)
    _protect_written(before, guard)
    result = _apart(result, inputs, guard)
    if _shape_depends(function, op_flags, args, kwargs):
        guard = changed(guard, shape_hidden=True)
    _protect_results(result, function, guard, worker, user)
    return result


def _forecast_of(
    function: Function, args: list[Any], kwargs: dict[str, Any], op_flags: int, guard: Guard
) -> Forecast:
    """The forecast of a command, as far as there are forecasts: of ordinary tensors, and not of
    what tells metadata, which has rules of its own."""
    if op_flags & METADATA or not _all_strided(_tensors_in(args, kwargs)):
        return NO_FORECAST
    if guard.shape_hidden:
        return (
            NO_FORECAST
            if function in _COUNTED
            else hidden_forecast(FORECASTS, function, args, kwargs)
        )
    return FORECASTS.of(function, args, kwargs, _is_public)


def _protect_results(
    result: Any, function: Function, guard: Guard, worker: str, user: str | None
) -> None:
    admitted = guard.admits(user)
    for leaf in leaves(result):
        if isinstance(leaf, torch.Tensor):
            protect(leaf, guard)
        elif not (admitted or tells_nothing(leaf, function, guard)):
            raise PermissionDenied("an operation that returns its value", worker, user)


def _check_may_be_seen(
    function: Function,
    args: list[Any],
    kwargs: dict[str, Any],
    op_flags: int,
    forecast: Forecast,
    guard: Guard,
    worker: str,
    user: str | None,
) -> None:
    """Raise what a command comes to that has no complete forecast: what it does would be seen.

    What tells metadata may run, and so may what computes with chains.
    """
    if forecast.verdict is Verdict.FAILS:
        raise foreseen_failure(*forecast.failure)
    if op_flags & METADATA:
        return
    refused = _refusal(function, args, kwargs, op_flags, forecast, guard)
    if refused is not None:
        raise PermissionDenied(refused, worker, user)


def _refusal(
    function: Function,
    args: list[Any],
    kwargs: dict[str, Any],
    op_flags: int,
    forecast: Forecast,
    guard: Guard,
) -> str | None:
    """What a command is that may not run because what it does would be seen; None if it may."""
    if forecast.verdict is Verdict.READS:
        return "an operation that reads its value"
    if guard.shape_hidden and function in _COUNTED:
        return "an operation that tells its size"
    inputs = _tensors_in(args, kwargs)
    if any(map(_is_of_other_layout, inputs)):
        return "an operation on a tensor of another layout"
    if not any(type(tensor) is Wrapper for tensor in inputs):
        return "an operation whose effects cannot be told without the values"
    if _writes(op_flags, kwargs) and any(full_guard_of(tensor) != guard for tensor in inputs):
        return "an operation that writes private values to a chain of public ones"
    return None


def _writes(op_flags: int, kwargs: dict[str, Any]) -> bool:
    return bool(op_flags & (INPLACE | MUTATES_OTHERS) or "out" in kwargs)


def _is_public(tensor: torch.Tensor) -> bool:
    return full_guard_of(tensor) is None


_SHARED: Final = "a write to memory that a chain or a tensor of another kind shares"
_GRADIENT_READERS: Final = frozenset(
    FUNCTIONS[BY_NAME[f"torch.Tensor.{name}.__get__"]] for name in ("grad", "_grad")
)


def _all_strided(inputs: list[torch.Tensor]) -> bool:
    """Whether all are ordinary tensors, which forecasts understand."""
    return all(
        type(tensor) in EXACT_TENSOR_TYPES
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        for tensor in inputs
    )


def _is_of_other_layout(tensor: torch.Tensor) -> bool:
    """Whether the elements of a tensor are not all there is to it, as in one array of numbers."""
    return type(tensor) is not Wrapper and not _all_strided([tensor])


def _tensors_in(args: list[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    return [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]


def _protect_written(before: list[tuple[torch.Tensor, object]], guard: Guard) -> None:
    """Guard the inputs whose version counter differs from that before the call."""
    for tensor, version in before:
        if _version(tensor) != version:
            protect(tensor, guard)


def _apart(result: Any, inputs: list[torch.Tensor], guard: Guard) -> Any:
    """The results, with copies of those that lie in memory of another guard."""
    lower = [tensor for tensor in inputs if full_guard_of(tensor) != guard]
    places = {storage._cdata for tensor in lower for storage in storages_of(tensor)}

    def apart(leaf: Any) -> Any:
        shares = any(storage._cdata in places for storage in storages_of(leaf))
        return leaf.clone() if shares else leaf

    return replace(result, apart) if places else result


def guard_for(args: list[Any], kwargs: dict[str, Any]) -> Guard | None:
    """The guard of what is computed from these arguments."""
    return combined(leaves((args, kwargs)))


def tells_nothing(value: Any, function: Function, guard: Guard) -> bool:
    """Whether a result of a function that is no tensor reveals only what the program reveals.

    >>> private = Guard(frozenset())
    >>> tells_nothing(None, torch.Tensor.backward, private)
    True
    >>> tells_nothing(3, torch.Tensor.item, private), tells_nothing(3, torch.Tensor.dim, private)
    (False, True)
    """
    return value is None or is_told(function, guard)


def _shape_depends(
    function: Function, op_flags: int, args: list[Any], kwargs: dict[str, Any]
) -> bool:
    """Whether the shape of a result may reveal values: that of a flagged operation, or a size taken
    from a tensor (``x[:n]``, ``x.expand(n)``, ``zeros(n)``).

    The offset of a result in the memory it shares with an input (``x[n]``) counts as its shape.
    """
    if function is torch.Tensor.__getitem__:
        return any(map(_selects_by_value, leaves(args[1:]))) or _slices_by_value(args[1])
    if op_flags & SHAPE_FROM_VALUES:
        return True
    sizes = args if op_flags & FACTORY else args[1:]
    return any(map(_is_size, leaves((sizes, kwargs)))) and function not in _ARITHMETIC


def _selects_by_value(index: Any) -> bool:
    if not isinstance(index, torch.Tensor):
        return False
    if index.dtype in (torch.bool, torch.uint8):
        return True
    return index.ndim == 0 and full_guard_of(index) is not None  # a view whose offset is private


def _slices_by_value(index: Any) -> bool:
    parts = index if isinstance(index, (tuple, list)) else [index]
    return any(
        isinstance(leaf, torch.Tensor)
        for part in parts
        if isinstance(part, slice)
        for leaf in leaves(part)
    )


def _is_size(value: Any) -> bool:
    """Whether torch accepts a value, if it is a tensor, in the place of an integer."""
    if not isinstance(value, torch.Tensor) or type(value) is Wrapper or value.numel() != 1:
        return False
    return not (value.is_floating_point() or value.is_complex())


# The number of results of these functions follows from the shape of their input.
_COUNTED = frozenset(
    FUNCTIONS[number]
    for name, number in BY_NAME.items()
    if re.fullmatch(r"(unsafe_|tensor_)?(split|chunk|unbind)(_copy)?", name.rpartition(".")[2])
) - {None}

# In these functions a 0-dimensional integer is an ordinary operand, never a size.
_ARITHMETIC = frozenset(
    getattr(space, name)
    for space in (torch, torch.Tensor)
    for name in (
        *("add", "sub", "mul", "div", "true_divide", "floor_divide", "remainder", "fmod", "pow"),
        *("eq", "ne", "lt", "le", "gt", "ge", "where", "maximum", "minimum", "clamp"),
        *("add_", "sub_", "mul_", "div_", "copy_", "__rsub__", "__rpow__", "__eq__", "__ne__"),
        *("tensor", "as_tensor", "asarray", "scalar_tensor"),
    )
    if hasattr(space, name)
)


def _version(tensor: torch.Tensor | None) -> object:
    """The version counter; an inference tensor has none, and always counts as written."""
    plain = innermost(tensor)
    if plain is None:
        return None
    return object() if plain.is_inference() else plain._version
