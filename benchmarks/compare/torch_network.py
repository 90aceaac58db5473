"""A case as a module of torch: what CrypTen's results are checked against, and what syft shares."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.compare.cases import Case, drawn_parameters


class Network(nn.Module):
    """The parameters of a case, and the layers over them in plain torch."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        for name, array in drawn_parameters(case).items():
            self.register_parameter(name, nn.Parameter(torch.from_numpy(array)))

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Run the case."""
        return self.case.run(self, *inputs)

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """Return ``x @ weight.T + bias``."""
        return functional.linear(x, getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias"))

    def conv(self, x: torch.Tensor, name: str, stride: int = 1, padding: int = 0) -> torch.Tensor:
        """Return the convolution plus bias."""
        weight, bias = getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias")
        return functional.conv2d(x, weight, bias, stride, padding)

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        """Return the positive part."""
        return functional.relu(x)

    def max_pool(self, x: torch.Tensor, size: int, stride: int, padding: int = 0) -> torch.Tensor:
        """Return the maximum of each window."""
        return functional.max_pool2d(x, size, stride, padding)

    def average(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean over height and width."""
        return x.mean((2, 3))

    def flat(self, x: torch.Tensor) -> torch.Tensor:
        """Return all but the batch as one dimension."""
        return x.flatten(1)
