"""Forecasts of commands on tensors whose shapes are private.

A shape that follows from private values is private too (``x[x > 0]``).  How many dimensions there
are, the dtype and the graph follow from the program, and everybody may know them.  So a command on
such a tensor is forecast with a tensor of one element in its place, which fits wherever torch
extends sizes of one.  Of what comes out, the number of dimensions counts, and not the sizes.

A command that only runs for some sizes (``x[x > 0].view(2, 3)``) has no such forecast, and is
refused for those who may not know the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace as changed
from typing import Any

import torch

from syft.ops.nested import replace
from syft.workers.execution.forecast import ANY, Forecast, Forecasts, Made, Verdict
from syft.workers.execution.permissions import full_guard_of

NO_FORECAST = Forecast(Verdict.UNKNOWN)
"""What is known of a command that has no forecast."""


def hidden_forecast(
    forecasts: Forecasts, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Forecast:
    """The forecast of a call with strided tensors, the shapes of some of which are private.

    Its verdict is ``RESIZES``, or ``UNKNOWN`` if it cannot be told without the sizes.

    >>> from syft.workers.execution.permissions import Guard, protect
    >>> x = torch.ones(7); protect(x, Guard(frozenset(), shape_hidden=True))
    >>> hidden_forecast(Forecasts(), torch.mul, (x, 2), {}).result.shape
    (-1,)
    >>> hidden_forecast(Forecasts(), torch.Tensor.view, (x, 7), {}).verdict.name
    'UNKNOWN'
    """
    standing: dict[int, torch.Tensor] = {}

    def stand_in(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not _is_hidden(leaf):
            return leaf
        return standing.setdefault(id(leaf), _of_one_element(leaf))

    forecast = forecasts.of(function, *replace((tuple(args), kwargs), stand_in))
    if not forecast.is_complete:
        return NO_FORECAST
    return changed(
        forecast,
        verdict=Verdict.RESIZES,
        result=replace(forecast.result, _without_sizes),
        changed=tuple((place, _without_sizes(after)) for place, after in forecast.changed),
    )


def _is_hidden(tensor: torch.Tensor) -> bool:
    guard = full_guard_of(tensor)
    return guard is not None and guard.shape_hidden


def _of_one_element(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.zeros([1] * tensor.ndim, dtype=tensor.dtype, device=tensor.device)
    return made.requires_grad_() if tensor.requires_grad else made


def _without_sizes(leaf: Any) -> Any:
    if type(leaf) is not Made:
        return leaf
    any_sizes = (ANY,) * len(leaf.shape)
    return changed(leaf, shape=any_sizes, stride=any_sizes, nbytes=-1)
