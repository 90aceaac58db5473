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
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace as changed
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.exceptions import PermissionDenied
from syft.ops.control import RECORDING
from syft.ops.nested import EXACT_TENSOR_TYPES, leaves
from syft.ops.table import (
    BY_NAME,
    FACTORY,
    FUNCTIONS,
    GRADIENT,
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
from syft.workers.execution.forecast import Forecast, Forecasts, Verdict
from syft.workers.execution.foreseen import run_foreseen
from syft.workers.execution.leaving import check_gradients_leave
from syft.workers.execution.permissions import (
    Guard,
    combined,
    full_guard_of,
    innermost,
    protect,
    storages_of,
)
from syft.workers.execution.public_facts import asks_only, is_told
from syft.workers.execution.retained import recorded_of, retaining
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
            memory = torch.empty(0, dtype=torch.uint8, device=storage.device)
            memory.set_(storage)[written:].zero_()
        return result

    return call


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
    shown: Iterable[torch.Tensor],
    worker: str,
    user: str | None,
) -> Any:
    """Call ``function`` on inputs guarded by ``guard``, and guard its results and effects.

    ``shown`` are results in which the owner's program may keep gradients. Raises
    :class:`~syft.exceptions.PermissionDenied` when the operation would return a value to a ``user``
    who may not read it.
    """
    if guard.admits(user):
        guard.check_open()
    else:
        if op_flags & METADATA and not (
            is_told(function, guard) and asks_only(function, args, kwargs)
        ):
            raise PermissionDenied("a question without a public answer", worker, user)
        if op_flags & GRADIENT:
            check_gradients_leave(function, args, kwargs, guard, worker, user)
        forecast = _forecast_of(function, args, kwargs, op_flags, guard)
        if forecast.verdict is Verdict.RUNS:
            return run_foreseen(function, args, kwargs, forecast, guard)
        _check_runs(forecast, worker, user)
        if guard.shape_hidden and function in _COUNTED:
            raise PermissionDenied("an operation that tells its size", worker, user)
    result = _run_and_see(function, args, kwargs, op_flags, guard, shown)
    if _shape_depends(function, op_flags, args, kwargs):
        guard = changed(guard, shape_hidden=True)
    _protect_results(result, function, guard, worker, user)
    return result


def _forecast_of(
    function: Function, args: list[Any], kwargs: dict[str, Any], op_flags: int, guard: Guard
) -> Forecast:
    """The forecast of a command, as far as there are forecasts: of ordinary tensors of known
    shapes, and neither of metadata nor of backward passes, which have rules of their own."""
    if guard.shape_hidden or op_flags & (METADATA | GRADIENT):
        return _NO_FORECAST
    if not _all_strided(_tensors_in(args, kwargs)):
        return _NO_FORECAST
    return _FORECASTS.of(function, args, kwargs, _is_public)


def _run_and_see(
    function: Function,
    args: list[Any],
    kwargs: dict[str, Any],
    op_flags: int,
    guard: Guard,
    shown: Iterable[torch.Tensor],
) -> Any:
    """Call a function, and guard what it is found to have written."""
    inputs = _tensors_in(args, kwargs)
    before = [(tensor, _version(tensor), _contents(tensor, op_flags)) for tensor in inputs]
    if op_flags & GRADIENT:
        result = run_backward(function, args, kwargs, guard, shown)
    else:
        result = function(*args, **kwargs)
    _protect_written(before, guard)
    return result


def _protect_results(
    result: Any, function: Function, guard: Guard, worker: str, user: str | None
) -> None:
    admitted = guard.admits(user)
    for leaf in leaves(result):
        if isinstance(leaf, torch.Tensor):
            protect(leaf, guard)
        elif not (admitted or tells_nothing(leaf, function, guard)):
            raise PermissionDenied("an operation that returns its value", worker, user)


def _check_runs(forecast: Forecast, worker: str, user: str | None) -> None:
    """Raise what a forecast says that the command comes to, if that is known."""
    if forecast.verdict is Verdict.FAILS:
        raise foreseen_failure(*forecast.failure)
    if forecast.verdict is Verdict.READS:
        raise PermissionDenied("an operation that reads its value", worker, user)


def foreseen_failure(kind: type[Exception], text: str) -> Exception:
    """An error that a command raises whatever the values are, so that everybody may see it.

    >>> is_foreseen(foreseen_failure(ValueError, "a wrong shape")), is_foreseen(ValueError())
    (True, False)
    """
    error = kind(text)
    error.__dict__["foreseen"] = True
    return error


def is_foreseen(error: Exception) -> bool:
    """Whether an error was made by :func:`foreseen_failure`.

    >>> is_foreseen(IndexError("1234 is out of range"))
    False
    """
    return "foreseen" in error.__dict__


def _is_public(tensor: torch.Tensor) -> bool:
    return full_guard_of(tensor) is None


_FORECASTS: Final = Forecasts()
_NO_FORECAST: Final = Forecast(Verdict.UNKNOWN)


def _all_strided(inputs: list[torch.Tensor]) -> bool:
    """Whether all are ordinary tensors, which forecasts understand."""
    return all(
        type(tensor) in EXACT_TENSOR_TYPES
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        for tensor in inputs
    )


def _tensors_in(args: list[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    return [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]


def _protect_written(
    before: list[tuple[torch.Tensor, object, torch.Tensor | None]], guard: Guard
) -> None:
    """Guard the inputs whose version counter or contents differ from those before the call."""
    for tensor, version, values in before:
        if _version(tensor) != version or not _unchanged(tensor, values):
            protect(tensor, guard)


def _contents(tensor: torch.Tensor, op_flags: int) -> torch.Tensor | None:
    """A copy of an input that the operation might change without raising its version counter
    (the running statistics of a normalization)."""
    plain = innermost(tensor)
    if plain is None or not op_flags & MUTATES_OTHERS or full_guard_of(tensor) is not None:
        return None
    return plain.detach().clone()


def _unchanged(tensor: torch.Tensor, values: torch.Tensor | None) -> bool:
    plain = innermost(tensor)
    return values is None or plain is None or torch.equal(plain, values)


def run_backward(
    function: Function,
    args: list[Any],
    kwargs: dict[str, Any],
    guard: Guard | None,
    shown: Iterable[torch.Tensor],
) -> Any:
    """Call a function that runs backward, and guard every gradient it leaves.

    A gradient is guarded by ``guard`` (of the loss) and by what guarded the gradient to which it
    was added, which torch may have replaced.

    Gradients are left in the arguments, in the leaves of their graph wherever these are stored, and
    in results that retain them: those whose ``retain_grad`` was called through the worker, and
    those of ``shown``, on which the owner's program may have called it.  The other objects of the
    worker are not looked at.
    """
    retained = [tensor for tensor in shown if tensor.retains_grad]
    before = [
        (tensor, gradient := _gradient_of(tensor), _version(gradient), full_guard_of(gradient))
        for tensor in _reached_by(_tensors_in(args, kwargs)) + retained + retaining()
    ]
    result = function(*args, **kwargs)
    for tensor, gradient, version, present in before:
        now = _gradient_of(tensor)
        if now is not None and (now is not gradient or _version(now) != version):
            protect(now, guard)
            protect(now, present)
    return result


def _gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
    with warnings.catch_warnings():  # torch warns that a non-leaf tensor has no gradient
        warnings.simplefilter("ignore")
        return tensor.grad


def _reached_by(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors in which a backward pass over these inputs may leave a gradient."""
    tensors = [recorded_of(tensor) for tensor in inputs]
    found = [tensor for tensor in tensors if tensor is not None]
    seen: set[Any] = set()
    stack = [tensor.grad_fn for tensor in found]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)  # only AccumulateGrad nodes have one
        if leaf is not None:
            found.append(leaf)
        stack.extend(parent for parent, _ in node.next_functions)
    return found


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
