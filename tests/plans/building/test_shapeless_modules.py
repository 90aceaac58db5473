"""Lazy modules get the shape and the values of their first call, and are recorded then."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import CannotRecord

X = torch.randn(2, 5, generator=torch.Generator().manual_seed(1))


def layers() -> nn.Sequential:
    return nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2))


class Lazy(sy.Plan):
    """A plan class that holds lazy modules, of which one may be left out."""

    def __init__(self, whole: bool = True) -> None:
        super().__init__()
        self.first, self.last, self.whole = nn.LazyLinear(3), nn.LazyLinear(2), whole

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        return self.last(y) if self.whole else y


def test_a_plan_draws_what_the_first_call_draws(bob: sy.VirtualWorker) -> None:
    plain, model, plan = layers(), layers(), Lazy()
    torch.manual_seed(3)
    want = plain(X)
    state = torch.get_rng_state()
    for built in (sy.func2plan()(model), plan):
        torch.manual_seed(3)
        built.build(X)
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(built(X), want) and torch.equal(built(X), want)
        assert torch.equal(built.send(bob)(X.send(bob)).get(), want)
    assert type(model[0]) is type(plan.first) is nn.Linear and not model[0]._forward_pre_hooks


def test_a_module_that_is_not_called_has_no_shape_to_send() -> None:
    plan = Lazy(whole=False)
    with pytest.raises(CannotRecord, match="a lazy module"):
        plan.build(X)
    assert plan.first.weight.shape == (3, 5) and plan.last.in_features == 0
