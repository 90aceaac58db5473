"""What a backward pass may touch, compared with what torch keeps alive and writes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from syft.workers.labels.reached_graph import reached_graph
from syft.workers.labels.walk import memory_of

MODULES: dict[str, tuple[nn.Module, torch.Tensor]] = {
    "linear": (nn.Linear(3, 2), torch.randn(4, 3)),
    "convolutions": (
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        torch.randn(2, 1, 6, 6),
    ),
    "normalized": (nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU()), torch.randn(4, 3)),
    "recurrent": (nn.LSTM(3, 2), torch.randn(4, 1, 3)),
    "attention": (nn.TransformerEncoderLayer(4, 2), torch.randn(3, 1, 4)),
}


@pytest.mark.parametrize("name", MODULES)
def test_the_leaves_are_the_parameters_and_the_input_is_saved(name: str) -> None:
    module, x = MODULES[name]
    result = module(x)
    result = result[0] if isinstance(result, tuple) else result
    reach = reached_graph([result])
    used = {id(parameter) for parameter in module.parameters()}
    assert {id(leaf) for leaf in reach.leaves} == used
    saved = set().union(*map(memory_of, reach.saved()))
    assert memory_of(x) <= saved and not reach.is_opaque()


def test_running_statistics_are_saved_in_evaluation_only() -> None:
    norm = nn.BatchNorm1d(3)
    x = torch.randn(4, 3, requires_grad=True)
    for training in (True, False):
        saved = set().union(*map(memory_of, reached_graph([norm.train(training)(x)]).saved()))
        assert (memory_of(norm.running_mean) <= saved) is not training


class Doubled(torch.autograd.Function):
    """A node of Python, which may keep anything."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


def test_a_graph_that_does_not_show_what_it_saved_is_opaque() -> None:
    leaf = torch.ones(4, requires_grad=True)
    assert reached_graph([Doubled.apply(leaf)]).is_opaque()
    written = leaf.clone()
    written[:2].mul_(3)
    assert reached_graph([written]).is_opaque()
    assert not reached_graph([leaf.clone()]).is_opaque()


def test_a_graph_that_was_freed_saves_nothing() -> None:
    leaf = torch.ones(4, requires_grad=True)
    loss = (leaf * leaf).sum()
    assert reached_graph([loss]).saved()
    loss.backward()
    assert not reached_graph([loss]).saved() and [*map(id, reached_graph([loss]).leaves)] == [
        id(leaf)
    ]


def test_hooks_on_leaves_lead_elsewhere() -> None:
    leaf = torch.ones(2, requires_grad=True)
    assert not reached_graph([leaf * 2]).elsewhere
    leaf.register_hook(lambda gradient: None)
    assert reached_graph([leaf * 2]).elsewhere and reached_graph([leaf]).elsewhere


def test_a_tensor_without_a_graph_reaches_nothing() -> None:
    reach = reached_graph([torch.ones(2), (torch.ones(2, requires_grad=True) * 2).detach()])
    assert not (reach.leaves or reach.saved() or reach.is_opaque() or reach.elsewhere)
