"""What the plans of a training are made from."""

from __future__ import annotations

import torch
from torch import nn

from syft.federated.sent_training import loss_in_order


def test_a_function_in_c_is_called_in_torchs_order() -> None:
    assert loss_in_order(torch.dot) is torch.dot


def test_a_module_may_name_its_parameters() -> None:
    class Late(nn.Module):
        def forward(self, target: torch.Tensor, pred: torch.Tensor) -> torch.Tensor:
            return target - pred

    assert loss_in_order(Late())(torch.ones(1), torch.zeros(1)).item() == -1
