"""Plain tensors among a pointer's operands: torch's own travel, the caller's do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import syft as sy
from syft.exceptions import LocationMismatch


class Holder(nn.Module):
    """A module of the user's with a tensor in a place of its own."""

    def __init__(self, act: Callable[..., Any]) -> None:
        super().__init__()
        self.act = act
        self.kept = {"mask": torch.ones(2)}

    def forward(self, x: torch.Tensor) -> Any:
        return self.act(x, self.kept["mask"])


def test_what_a_layer_makes_in_its_forward_travels(bob: sy.VirtualWorker) -> None:
    x = torch.randn(3, 1, 2)
    layer = nn.GRU(2, 2)
    want = layer(x)[0].detach()
    assert torch.equal(layer.send(bob)(x.send(bob))[0].get().detach(), want)


def test_a_comparison_inside_a_layer_travels(bob: sy.VirtualWorker) -> None:
    x = torch.randn(4, 2, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    layer = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    want = encoder(x, mask=mask).detach()
    got = encoder.send(bob)(x.send(bob), mask=mask.send(bob))
    torch.testing.assert_close(got.get().detach(), want)


def test_what_a_masked_function_makes_travels(bob: sy.VirtualWorker) -> None:
    x = torch.tensor([[1.0, 3.0], [5.0, 7.0]])
    assert torch.equal(torch.masked.mean(x.send(bob), 0).get(), torch.tensor([3.0, 5.0]))


def test_it_travels_under_somebodys_function_mode(bob: sy.VirtualWorker) -> None:
    class Passing(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    with Passing():
        assert torch.masked.mean(torch.ones(2, 2).send(bob), 0).get().tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "act",
    [
        lambda x, plain: x + plain,
        lambda x, plain: nn.functional.mse_loss(x, plain),
        lambda x, plain: nn.MSELoss()(x, plain),
        lambda x, plain: nn.functional.multi_margin_loss(x[None], torch.tensor([1]), 1, 1, plain),
        lambda x, plain: nn.BatchNorm1d(2).eval().requires_grad_(False)(x[None]),
        lambda x, plain: Holder(torch.add)(x),
        lambda x, plain: nn.Sequential(Holder(nn.functional.mse_loss))(x),
        lambda x, plain: torch.stack([x, plain]),
    ],
)
def test_what_the_caller_has_stays(act: Callable[..., Any], bob: sy.VirtualWorker) -> None:
    plain = torch.ones(2)
    with pytest.raises(LocationMismatch, match="bob and me"):
        act(torch.zeros(2).send(bob), plain)


def test_a_module_left_behind_is_not_sent_piece_by_piece(bob: sy.VirtualWorker) -> None:
    layer = nn.Linear(2, 2)
    with torch.no_grad(), pytest.raises(LocationMismatch):
        layer(torch.zeros(1, 2).send(bob))
