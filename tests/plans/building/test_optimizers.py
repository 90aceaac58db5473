"""The state that optimizers make before a recording is the state their first step would make."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.testing._internal.common_optimizers import optim_db

from syft.exceptions import CannotRecord
from syft.plans.building.optimizers import PreparedOptimizers, prepare, state_of
from syft.program.recording.symbolic import Origin
from syft.program.recording.symbolic import RecorderHandle as Tape
from syft.program.recording.symbolic import SymbolicFloat as TracedFloat

REFUSED = {"RAdam", "ASGD", "Adafactor", "LBFGS", "SparseAdam"}
PREPARED = [info for info in optim_db if info.optim_cls.__name__ not in REFUSED]


def linear(bias: bool = True) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4, bias=bias), nn.ReLU(), nn.Linear(4, 2, bias=bias))


def cases() -> list[Any]:
    """Every optimizer of torch's own database that plans take, with every set of options."""
    return [
        pytest.param(
            info.optim_cls,
            {**given.kwargs, **options},
            id=f"{info.optim_cls.__name__}-{given.desc}-{kind}",
        )
        for info in PREPARED
        for given in info.optim_inputs_func(device="cpu")
        for kind, options in [("plain", {}), ("foreach", {"foreach": True})]
        if not options or "foreach" in info.supported_impls
    ]


def step(model: nn.Module, optimizer: optim.Optimizer, seed: int) -> None:
    optimizer.zero_grad()
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))
    model(x).square().sum().backward()
    optimizer.step()


def states(optimizer: optim.Optimizer) -> list[dict[str, Any]]:
    return [
        dict(optimizer.state[parameter])
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]


@pytest.mark.parametrize("kind, options", cases())
def test_training_goes_on_as_if_it_had_not_been_prepared(
    kind: type[optim.Optimizer], options: dict[str, Any]
) -> None:
    model = linear(bias=kind is not optim.Muon)
    duplicate = copy.deepcopy(model)
    optimizer = kind(model.parameters(), **copy.deepcopy(options))
    oracle = kind(duplicate.parameters(), **copy.deepcopy(options))
    if options.get("dampening"):
        step(model, optimizer, 7)
        step(duplicate, oracle, 7)
    prepare(optimizer)
    for seed in range(3):
        step(model, optimizer, seed)
        step(duplicate, oracle, seed)
        torch.testing.assert_close(states(optimizer), states(oracle), rtol=0, atol=0)
    torch.testing.assert_close(model.state_dict(), duplicate.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("kind, options", cases())
def test_it_makes_all_the_state_there_will_be_and_nothing_else(
    kind: type[optim.Optimizer], options: dict[str, Any]
) -> None:
    model = linear(bias=kind is not optim.Muon)
    optimizer = kind(model.parameters(), **copy.deepcopy(options))
    if options.get("dampening"):
        step(model, optimizer, 7)
        optimizer.zero_grad()
    before = copy.deepcopy(model.state_dict())
    prepare(optimizer)
    made = state_of(optimizer)
    assert all(parameter.grad is None for parameter in model.parameters())
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    step(model, optimizer, 0)
    after = state_of(optimizer)
    assert [place.name for place in made] == [place.name for place in after]
    assert all(place.container is later.container for place, later in zip(made, after, strict=True))


def test_what_exists_stays() -> None:
    model = linear()
    optimizer = optim.Adam(model.parameters())
    step(model, optimizer, 0)
    tensors = [place.container[place.key] for place in state_of(optimizer)]
    values = [tensor.clone() for tensor in tensors]
    grads = [parameter.grad for parameter in model.parameters()]
    prepare(optimizer)
    again = [place.container[place.key] for place in state_of(optimizer)]
    assert all(new is old for new, old in zip(again, tensors, strict=True))
    assert all(map(torch.equal, again, values))
    kept = [parameter.grad for parameter in model.parameters()]
    assert all(new is old for new, old in zip(kept, grads, strict=True))


def test_parameters_that_are_not_trained_get_no_state() -> None:
    model = linear()
    model[0].requires_grad_(False)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    prepare(optimizer)
    assert [place.name for place in state_of(optimizer)] == [
        "2.momentum_buffer",
        "3.momentum_buffer",
    ]


def test_groups_and_tensor_options_are_named() -> None:
    first, second = linear(bias=False).parameters()
    groups = [{"params": [first]}, {"params": [second], "lr": torch.tensor(0.1)}]
    optimizer = optim.Adam(groups, lr=0.01)
    prepare(optimizer)
    names = [place.name for place in state_of(optimizer)]
    assert names == [
        "0.step",
        "0.exp_avg",
        "0.exp_avg_sq",
        "1.step",
        "1.exp_avg",
        "1.exp_avg_sq",
        "groups.1.lr",
    ]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_those_that_decide_by_values_are_refused_by_name(name: str) -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = getattr(optim, name)([weight])
    with pytest.raises(CannotRecord) as caught:
        prepare(optimizer, "train.py:3")
    assert str(caught.value).startswith(
        f"A plan cannot keep torch.optim.{name} (train.py:3): it {reason(name)}"
    )
    assert "Adam" in str(caught.value)
    assert weight.grad is None and not optimizer.state


def reason(name: str) -> str:
    return {
        "RAdam": "decides by the number of its steps which formula to use; ",
        "ASGD": "decides by the number of its steps which formula to use; ",
        "Adafactor": "decides by the sizes of its updates how far to go; ",
        "LBFGS": "decides by the losses how often to evaluate the model; ",
        "SparseAdam": "counts its steps in Python; ",
    }[name]


def test_a_subclass_is_refused_with_its_own_name() -> None:
    class Mine(optim.RAdam):
        pass

    with pytest.raises(CannotRecord, match="Mine"):
        prepare(Mine([nn.Parameter(torch.ones(2))]))


def test_with_capturable_the_tensors_decide() -> None:
    optimizer = optim.RAdam([nn.Parameter(torch.ones(2))], capturable=True)
    prepare(optimizer)
    assert len(state_of(optimizer)) == 3


def test_a_dampened_first_step_is_refused() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = optim.SGD([weight], lr=0.1, momentum=0.9, dampening=0.5)
    with pytest.raises(CannotRecord) as caught:
        prepare(optimizer)
    assert str(caught.value) == (
        "A plan cannot keep the first step of torch.optim.SGD (state of the plan): it differs from "
        "the later steps; take one step before you build the plan."
    )
    assert weight.grad is None
    weight.grad = torch.ones(2)
    optimizer.step()
    prepare(optimizer)


class Homemade(optim.Optimizer):
    """An optimizer of somebody's own, which makes its state in its step."""

    def __init__(self, params: Any, counts: bool = False) -> None:
        super().__init__(params, {"lr": 0.1})
        self.counts = counts

    def step(self, closure: Any = None) -> None:
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    state = self.state[parameter]
                    average = state.setdefault("average", torch.zeros_like(parameter))
                    if self.counts:
                        state["steps"] = state.get("steps", 0) + 1
                    average.add_(parameter.grad, alpha=group["lr"])
                    parameter.sub_(average)


def test_an_optimizer_of_ones_own_has_to_step_first() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = Homemade([weight])
    with pytest.raises(
        CannotRecord,
        match="the first step of tests.plans.building.test_optimizers.Homemade .*take one",
    ):
        prepare(optimizer)
    weight.grad = torch.ones(2)
    optimizer.step()
    prepare(optimizer)
    assert [place.name for place in state_of(optimizer)] == ["0.average"]


# ------------------------------------------------------------------------- around the recording


def test_options_are_put_back_and_numbers_are_plain() -> None:
    def traced(value: float) -> TracedFloat:
        return TracedFloat(value, Tape(None), None, Origin.VALUE)

    optimizer = optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    optimizer.param_groups[0]["momentum"] = traced(0.5)
    with PreparedOptimizers([optimizer]):
        optimizer.param_groups[0]["lr"] = traced(0.3)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert type(optimizer.param_groups[0]["lr"]) is float
    assert type(optimizer.param_groups[0]["momentum"]) is float


def test_options_are_put_back_after_an_error_too() -> None:
    optimizer = optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    with pytest.raises(ZeroDivisionError):
        with PreparedOptimizers([optimizer]):
            optimizer.param_groups[0]["lr"] = 1 / 0
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_an_optimizer_that_is_met_is_prepared_before_it_steps() -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = optim.SGD([weight], lr=0.1, momentum=0.9)
    with PreparedOptimizers() as prepared:
        seen = []
        optimizer.register_step_pre_hook(lambda *_: seen.append(len(state_of(optimizer))))
        optimizer.step()
        optimizer.step()
    assert seen == [1, 1] and prepared.stepped == {optimizer: None}
    torch.testing.assert_close(weight.detach(), torch.full((2,), 1 - 0.1 - 0.19))


def test_afterwards_nothing_is_watched() -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    with PreparedOptimizers() as prepared:
        pass
    optim.SGD([weight], lr=0.1, momentum=0.9).step()
    assert prepared.stepped == {}


def test_one_that_is_refused_is_refused_where_it_steps() -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = optim.RAdam([weight])
    with pytest.raises(CannotRecord, match=r"torch.optim.RAdam \(.*test_optimizers.py:\d+\)"):
        with PreparedOptimizers():
            optimizer.step()
    assert torch.equal(weight.detach(), torch.ones(2))


def test_a_number_that_a_step_counts_in_python_is_refused() -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = Homemade([weight], counts=True)
    optimizer.step()
    with pytest.raises(CannotRecord, match="keeps 'steps' as a Python number, which a step change"):
        with PreparedOptimizers([optimizer]):
            optimizer.step()
    assert optimizer.state[weight]["steps"] == 1
