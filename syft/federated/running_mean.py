"""A weighted mean of tables of tensors that come one after the other, or many at once.

Only the sums are kept, so the mean of a thousand models takes the memory of two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from syft.federated.memory_orders import order_of, restored


class RunningMean:
    """The mean of what is added, by name, in the dtype and on the device of what came first.

    Numbers narrower than float32 are added up in float32, integers in float64; the mean of integers
    is rounded.

    >>> mean = RunningMean()
    >>> mean.add({"x": torch.tensor([1.0])}, 1)
    >>> mean.add({"x": torch.tensor([4.0])}, 2)
    >>> mean.values()
    {'x': tensor([3.])}
    """

    def __init__(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        self._weights: dict[str, float] = {}
        self._dtypes: dict[str, torch.dtype] = {}

    def add(self, table: Mapping[str, Any], weight: float) -> None:
        """Add one table; what is no tensor in it is passed over."""
        for name, tensor in table.items():
            if isinstance(tensor, torch.Tensor):
                total = self._sum(name, tensor.shape, tensor, weight)
                total.add_(tensor.detach().to(total.device, total.dtype), alpha=weight)

    def add_stacked(self, table: Mapping[str, torch.Tensor], weights: Sequence[float]) -> None:
        """Add as many tables as there are weights, stacked along the first dimension.

        >>> mean = RunningMean()
        >>> mean.add_stacked({"x": torch.tensor([[1.0], [4.0]])}, [1, 2])
        >>> mean.values()
        {'x': tensor([3.])}
        """
        for name, stacked in table.items():
            total = self._sum(name, stacked.shape[1:], stacked, sum(weights))
            factors = torch.tensor(weights, dtype=total.dtype, device=total.device)
            order = order_of(stacked)
            rows = stacked.detach().to(total.dtype).permute(order)
            added = torch.tensordot(factors, rows, dims=1).unsqueeze(0)
            total.add_(restored(added, order).squeeze(0))

    def values(self) -> dict[str, torch.Tensor]:
        """The mean of what was added so far."""
        return {
            name: narrowed(total / self._weights[name], self._dtypes[name])
            for name, total in self._sums.items()
        }

    def _sum(self, name: str, shape: torch.Size, like: torch.Tensor, weight: float) -> torch.Tensor:
        """The sum under a name, to which something of that weight is about to be added."""
        if name not in self._sums:
            self._dtypes[name] = like.dtype
            dtype = wide_enough(like.dtype)
            self._sums[name] = torch.zeros(shape, dtype=dtype, device=like.device)
        self._weights[name] = self._weights.get(name, 0.0) + weight
        return self._sums[name]


def wide_enough(dtype: torch.dtype) -> torch.dtype:
    """The dtype to add up numbers of another one in.

    >>> wide_enough(torch.float16), wide_enough(torch.float64), wide_enough(torch.int64)
    (torch.float32, torch.float64, torch.float64)
    """
    if dtype.is_floating_point or dtype.is_complex:
        return torch.promote_types(dtype, torch.float32)
    return torch.float64


def narrowed(mean: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mean in the dtype of what it is the mean of.

    >>> narrowed(torch.tensor(1.75), torch.int64)
    tensor(2)
    """
    if dtype.is_floating_point or dtype.is_complex:
        return mean.to(dtype)
    return mean.round().to(dtype)
