"""The fast way of private commands that only make one tensor: most of them.

If all private operands have one guard, and the forecast says that the result is a new tensor in
memory of its own, there is nothing to write, to draw or to join.  Such a command is a function
call, a comparison of the result with what was forecast, and a guard.  Whatever is unlike that, a
failure too, is left to :mod:`syft.workers.execution.operation`, which runs the command again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import torch

from syft.ops.nested import EXACT_TENSOR_TYPES, SCALAR_TYPES
from syft.workers.execution.forecast import Forecasts, Made, Verdict
from syft.workers.execution.permissions import Guard, guard_of_memory, protect_memory

UNCLEAR: Final = Guard(frozenset())
"""What :func:`common_guard` returns if the general path has to look."""

_MOST_KEPT: Final = 4096
_KEPT: Final[dict[Hashable, Made | None]] = {}
"""What commands make, by all that it depends on; None for those that are not for this path."""
_FORECASTS: Final = Forecasts()


def common_guard(values: Sequence[Any]) -> Guard | None:
    """The one guard of the private ones among strided tensors and numbers; None if all are public.

    ``UNCLEAR`` if guards differ, an earlier command failed, a shape is hidden, or there is anything
    else among the values.

    >>> common_guard([torch.ones(2), 3]), common_guard([torch.eye(2).to_sparse()]) is UNCLEAR
    (None, True)
    """
    found: Guard | None = None
    for value in values:
        kind = type(value)
        if kind in EXACT_TENSOR_TYPES and value.layout is torch.strided:
            guard = guard_of_memory(value)
            if guard is not None and guard is not found:
                if _is_strange(guard) or (found is not None and guard != found):
                    return UNCLEAR
                found = guard
        elif kind not in SCALAR_TYPES:
            return UNCLEAR
    return found


def _is_strange(guard: Guard) -> bool:
    return guard.error is not None or guard.shape_hidden


def private_result(
    function: Callable[..., torch.Tensor], values: Sequence[Any], guard: Guard
) -> torch.Tensor | None:
    """What a function makes of these values, guarded; None if this path is not for them.

    The private ones among the values have this guard; see :func:`common_guard`.

    >>> x = torch.ones(2)
    >>> private_result(torch.add, (x, 1), Guard(frozenset()))
    tensor([2., 2.])
    >>> private_result(torch.Tensor.add_, (x, 1), Guard(frozenset())) is None
    True
    """
    key = _key(function, values)
    made = _KEPT[key] if key in _KEPT else _learned(key, function, values)
    if made is None:
        return None
    try:
        result = function(*values)
    except Exception:
        return None
    if type(result) is not torch.Tensor or not _is_as_forecast(result, made):
        return None
    protect_memory(result, guard)
    return result


def _key(function: Any, values: Sequence[Any]) -> Hashable:
    key = [function, torch.is_grad_enabled(), torch.get_default_dtype()]
    for value in values:
        if isinstance(value, torch.Tensor):
            key += (value.shape, value.stride(), value.dtype, value.device, value.requires_grad)
            key += (value.is_inference(), value.is_conj(), value.is_neg())
        else:
            key += (type(value), value)
    return tuple(key)


def _learned(key: Hashable, function: Any, values: Sequence[Any]) -> Made | None:
    """Forecast a command for the first time."""
    forecast = _FORECASTS.of(function, tuple(values), {})
    alone = forecast.verdict is Verdict.RUNS and not (forecast.writes or forecast.draws)
    result = forecast.result
    made = result if alone and type(result) is Made and not result.shares else None
    if len(_KEPT) >= _MOST_KEPT:
        _KEPT.clear()
    _KEPT[key] = made
    return made


def _is_as_forecast(result: torch.Tensor, made: Made) -> bool:
    same = result.shape == made.shape and result.stride() == made.stride
    return same and result.dtype is made.dtype and result.requires_grad is made.requires_grad
