"""Unmodified modules, losses and optimizers train on fixed tensors, to within a stated error."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from syft.exceptions import EncodingError
from syft.tensors.fixed.fixed_link import is_fixed
from syft.tensors.fixed.precision import (
    fix_precision,
    fix_precision_,
    float_precision,
    forbid_decoding,
)

STEPS = 30


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4, 4),
    )


def train(
    model: nn.Module,
    x: torch.Tensor,
    target: torch.Tensor,
    optimizer: torch.optim.Optimizer,
    loss_function: Callable[..., torch.Tensor] = F.cross_entropy,
) -> list[float]:
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_function(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def both_ways(
    model: nn.Module,
    x: torch.Tensor,
    target: torch.Tensor,
    make_optimizer: Callable[..., torch.optim.Optimizer],
    loss: Callable[..., torch.Tensor] = F.cross_entropy,
    bits: int = 16,
) -> tuple[list[float], float, float]:
    """Train in fixed precision and in float: the losses, and how far losses and weights differ."""
    duplicate = copy.deepcopy(model)
    optimizer = make_optimizer(model.parameters())  # made before: the parameters stay themselves
    for p in model.parameters():
        fix_precision_(p, bits, 2)
    fixed_target = fix_precision(target, bits, 2) if target.is_floating_point() else target
    losses = train(model, fix_precision(x, bits, 2), fixed_target, optimizer, loss)
    expected = train(duplicate, x, target, make_optimizer(duplicate.parameters()), loss)
    pairs = zip(model.parameters(), duplicate.parameters(), strict=True)
    weights_off = max((float_precision(p) - q).abs().max().item() for p, q in pairs)
    assert all(is_fixed(p) and is_fixed(p.grad) for p in model.parameters())
    losses_off = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
    return losses, losses_off, weights_off


# Optimizer, fractional bits, and how far losses and weights may be off after 30 steps.  A step of
# the 16-bit grid is 1.5e-5.
OPTIMIZERS = {
    "SGD": (lambda ps: torch.optim.SGD(ps, lr=0.1), 16, 1e-4, 1e-3),
    "momentum": (lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9), 16, 1e-3, 2e-3),
    "nesterov with weight decay": (
        lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-5),
        16,
        1e-3,
        2e-3,
    ),
    "foreach": (lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.5, foreach=True), 16, 1e-3, 2e-3),
    "Adam": (lambda ps: torch.optim.Adam(ps, lr=0.001), 16, 1e-3, 1e-2),
    "Adam on 24 bits": (lambda ps: torch.optim.Adam(ps, lr=0.001), 24, 1e-4, 1e-4),
    "RMSprop": (lambda ps: torch.optim.RMSprop(ps, lr=0.001), 16, 1e-3, 1e-2),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_sequential_trains_as_in_float(name):
    make_optimizer, bits, loss_bound, weight_bound = OPTIMIZERS[name]
    torch.manual_seed(0)
    x, target = torch.randn(32, 8), torch.randint(4, (32,))
    losses, losses_off, weights_off = both_ways(mlp(), x, target, make_optimizer, bits=bits)
    assert losses_off <= loss_bound and weights_off <= weight_bound
    assert losses[-1] < losses[0] - 0.02


def test_adam_trains_on_the_default_grid_with_its_own_eps_as_in_float():
    torch.manual_seed(0)
    x, target = torch.randn(32, 8), torch.randint(4, (32,))
    losses, losses_off, _ = both_ways(mlp(), x, target, lambda ps: torch.optim.Adam(ps, 0.001))
    assert losses_off < 1e-3 and losses[-1] < losses[0] - 0.02


def test_a_convolutional_network_trains_as_in_float():
    torch.manual_seed(0)
    x, target = torch.randn(16, 1, 8, 8), torch.randint(4, (16,))
    losses, losses_off, weights_off = both_ways(
        cnn(), x, target, lambda ps: torch.optim.SGD(ps, lr=0.1)
    )
    assert losses_off <= 2e-3 and weights_off <= 3e-3
    assert losses[-1] < losses[0] - 0.02


def without_decoding(result: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    with forbid_decoding():
        loss = F.mse_loss(result, target)
        torch.autograd.grad(loss, result, retain_graph=True)
    return loss


def test_the_squared_loss_trains_without_decoding_in_forward_and_backward():
    torch.manual_seed(0)
    x = torch.randn(32, 8)
    target = x @ torch.randn(8, 4)
    losses, losses_off, weights_off = both_ways(
        mlp(), x, target, lambda ps: torch.optim.SGD(ps, lr=0.05), without_decoding
    )
    assert losses_off <= 1e-3 and weights_off <= 1e-3
    assert losses[-1] < losses[0] * 0.6


def test_an_eps_below_the_grid_says_what_to_do():
    model = mlp()
    for p in model.parameters():
        fix_precision_(p)
    optimizer = torch.optim.Adamax(model.parameters())
    model(fix_precision(torch.zeros(2, 8))).sum().backward()
    with pytest.raises(
        EncodingError, match="an eps below half a step \\(Adamax's 1e-8\\) is 0 there"
    ):
        optimizer.step()


def test_a_float_model_feeds_a_fixed_one_and_back():
    torch.manual_seed(0)
    first, last = nn.Linear(3, 4), nn.Linear(4, 1)
    middle = nn.Linear(4, 4)
    duplicate = copy.deepcopy(nn.Sequential(first, middle, last))
    for p in middle.parameters():
        fix_precision_(p)
    x = torch.randn(5, 3)
    last(float_precision(middle(fix_precision(first(x))))).sum().backward()
    duplicate(x).sum().backward()
    for p, q in zip(first.parameters(), duplicate[0].parameters(), strict=True):
        assert not is_fixed(p.grad) and torch.allclose(p.grad, q.grad, atol=1e-3)
    for p, q in zip(middle.parameters(), duplicate[1].parameters(), strict=True):
        assert torch.allclose(float_precision(p.grad), q.grad, atol=1e-3)


def test_dropout_draws_the_same_numbers_as_in_float():
    x = torch.randn(100)
    torch.manual_seed(5)
    expected = F.dropout(x, 0.25)
    torch.manual_seed(5)
    got = F.dropout(fix_precision(x), 0.25)
    assert torch.allclose(float_precision(got), expected, atol=2**-15)
    for p, train in ((0.5, True), (1.0, True), (0.5, False)):
        dropped, mask = torch.ops.aten.native_dropout.default(fix_precision(x), p, train)
        kept = float_precision(dropped) * (1 - p if train else 1)
        assert torch.allclose(kept, x * mask, atol=2**-15)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_networks_run_forward_and_backward(kind):
    torch.manual_seed(0)
    model, x = kind(3, 4), torch.randn(5, 2, 3)
    expected = model(x)[0]
    plain = [p.detach().clone() for p in model.parameters()]
    fixed = [fix_precision(p).requires_grad_() for p in plain]
    names = [name for name, _ in model.named_parameters()]
    result = functional(model, dict(zip(names, fixed, strict=True)), fix_precision(x))
    assert torch.allclose(float_precision(result), expected, atol=1e-3)
    result.sum().backward()
    expected.sum().backward()
    for got, parameter in zip(fixed, model.parameters(), strict=True):
        assert torch.allclose(float_precision(got.grad), parameter.grad, atol=5e-3)


def functional(model: nn.Module, parameters: dict[str, torch.Tensor], x: torch.Tensor):
    return torch.func.functional_call(model, parameters, (x,))[0]


def test_attention_with_a_mask_runs():
    torch.manual_seed(0)
    model = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 5, 8)
    mask = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    with torch.no_grad():
        expected, _ = model(x, x, x, attn_mask=mask, need_weights=False)
    for p in model.parameters():
        fix_precision_(p)
    fixed = fix_precision(x)
    result, _ = model(fixed, fixed, fixed, attn_mask=mask, need_weights=False)
    assert torch.allclose(float_precision(result), expected, atol=1e-3)
    result.sum().backward()
