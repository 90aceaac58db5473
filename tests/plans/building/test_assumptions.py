"""What decided a recording is watched: a plan is what its module or optimizer would do now."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from syft.exceptions import NotBuilt, ProgramError
from syft.plans.building.assumptions import Assumptions, modules_in, observe
from tests.chain.refusal import refusal


def test_assumptions_hold_until_something_changes() -> None:
    def changes() -> list[Any]:
        model = nn.Sequential(nn.Linear(2, 1), nn.Dropout())
        adam = torch.optim.Adam(model.parameters(), lr=0.1)
        adam.register_step_pre_hook(print)
        assumptions = Assumptions(observe([model, adam]))
        assert assumptions.holds() and assumptions.change() is None
        return [model, adam, assumptions]

    for change, words in (
        (lambda model, adam: model.eval(), "training of Sequential was True and is False now"),
        (lambda model, adam: model[1].eval(), "training of Dropout was True and is False now"),
        (lambda model, adam: model.__setitem__(0, nn.Linear(2, 1)), "0 of Sequential is another"),
        (lambda model, adam: model.__delitem__(1), "1 of Sequential is another one now"),
        (lambda model, adam: model.append(nn.ReLU()), "modules of Sequential was 2 and is 3 now"),
        (lambda model, adam: setattr(model[1], "p", 0.1), "p of Dropout was 0.5 and is 0.1 now"),
        (lambda model, adam: setattr(model, "new", 3), "attributes of Sequential was"),
        (
            lambda model, adam: model[0].register_forward_hook(print),
            "the number of forward_hooks of Linear was 0 and is 1 now",
        ),
        (
            lambda model, adam: adam.register_step_post_hook(print),
            "the number of optimizer_step_post_hooks of Adam was 0 and is 1 now",
        ),
        (lambda model, adam: adam.param_groups[0].update(lr=0.2), "lr of Adam was 0.1 and is 0.2"),
        (lambda model, adam: adam.param_groups[0].update(betas=(0.5, 0.6)), "betas of Adam was"),
        (
            lambda model, adam: adam.param_groups[0].update(lr=None),
            "lr of Adam was 0.1 and is None",
        ),
        (lambda model, adam: adam.load_state_dict(adam.state_dict()), "state of Adam is another"),
        (
            lambda model, adam: setattr(model[0], "bias", nn.Parameter(torch.ones(1))),
            "bias of Linear is another one now",
        ),
        (
            lambda model, adam: adam.param_groups[0]["params"].reverse(),
            "a parameter of an optimizer was another one",
        ),
        (
            lambda model, adam: adam.add_param_group({"params": [nn.Parameter(torch.ones(1))]}),
            "the number of param_groups of Adam was 1 and is 2 now",
        ),
    ):
        model, adam, assumptions = changes()
        change(model, adam)
        assert not assumptions.holds() and words in assumptions.change()
    model, adam, assumptions = changes()
    adam.param_groups[0]["lr"] = 10 * 0.01  # an equal number
    adam.param_groups[0]["betas"] = (0.9, 0.999)
    assert assumptions.holds()


def test_empty_assumptions_hold() -> None:
    assert Assumptions().holds() and Assumptions().change() is None


def test_each_part_is_looked_at_once() -> None:
    inner = nn.Sequential(nn.ReLU())
    assert len(list(modules_in([inner, nn.Sequential(inner), 3]))) == 3


CHANGES: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Any]]] = {
    "a rate": (lambda: nn.Sequential(nn.Dropout(1.0)), lambda m: setattr(m[0], "p", 0.0)),
    "a slope": (lambda: nn.LeakyReLU(0.1), lambda m: setattr(m, "negative_slope", 0.9)),
    "another layer": (lambda: nn.Sequential(nn.Linear(6, 6)), lambda m: m.append(nn.Linear(6, 2))),
    "a hook": (
        lambda: nn.Sequential(nn.Linear(6, 6)),
        lambda m: m[0].register_forward_hook(lambda module, args, out: out * 0),
    ),
    "a forward": (
        lambda: nn.Sequential(nn.Linear(6, 6)),
        lambda m: setattr(m[0], "forward", lambda x: x * 3),
    ),
    "no bias": (lambda: nn.Linear(6, 6), lambda m: setattr(m, "bias", None)),
    "a bias": (
        lambda: nn.Linear(6, 6, bias=False),
        lambda m: setattr(m, "bias", nn.Parameter(torch.ones(6))),
    ),
    "pruned": (
        lambda: nn.Linear(6, 6),
        lambda m: nn.utils.parametrizations.weight_norm(m).weight.mul(1),
    ),
    "an activation": (
        lambda: nn.TransformerEncoderLayer(6, 2, 4, dropout=0.0),
        lambda m: setattr(m, "activation", F.gelu),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_module_that_was_changed_is_recorded_anew(name: str) -> None:
    make, change = CHANGES[name]
    model, x = make(), -torch.ones(4, 6)
    plan = sy.func2plan(state=(model,))(lambda x, state: state.read()[0](x))
    plan.build(x)
    assert torch.equal(plan(x), model(x)) and plan.is_built
    change(model)
    assert not plan.is_built
    assert torch.equal(plan(x), model(x)) and plan.is_built


def test_a_momentum_that_was_changed_counts() -> None:
    norm, oracle, x = nn.BatchNorm1d(3), nn.BatchNorm1d(3), torch.randn(5, 3)
    plan = sy.func2plan(state=(norm,))(lambda x, state: state.read()[0](x))
    plan.build(x)
    for each in (norm, oracle):
        each.momentum = 0.5
    assert torch.equal(plan(x), oracle(x))
    assert torch.equal(norm.running_mean, oracle.running_mean)


def test_a_number_of_a_plan_class_counts() -> None:
    class Net(sy.Plan):
        def __init__(self) -> None:
            super().__init__()
            self.k = 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.k

    net = Net()
    net.build(torch.ones(1))
    net.k = 5
    assert net(torch.ones(1)) == 5


def train(model: nn.Module, optimizer: Any, x: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = model(x).pow(2).sum()
    loss.backward()
    optimizer.step()
    return loss.detach()


def pair() -> tuple[nn.Sequential, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def unfreeze(model: nn.Sequential) -> None:
    model[0].requires_grad_(True)


def freeze(model: nn.Sequential) -> None:
    model[2].bias.requires_grad_(False)


def swap(model: nn.Sequential) -> None:
    model[2].weight = nn.Parameter(torch.ones(2, 4))


@pytest.mark.parametrize("change", [unfreeze, freeze, swap])
def test_a_step_trains_what_eager_would(change: Callable[[Any], None]) -> None:
    results = []
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    for planned in (True, False):
        model, optimizer = pair()
        model[0].requires_grad_(False)
        step: Any = lambda x, state: train(*state.read(), x)  # noqa: E731
        if planned:
            step = sy.func2plan(state=(model, optimizer))(step)
            step.build(x)
        else:
            step = functools.partial(train, model, optimizer)
        losses = [step(x), step(x)]
        change(model)
        losses += [step(x), step(x)]
        results.append([*losses, *model.state_dict().values()])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_what_changed_is_named_and_the_old_code_stays(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    plan = sy.func2plan(state=(model,))(lambda x, state: state.read()[0](x))
    plan.build(torch.ones(1, 2))
    code = plan.code
    model.eval()
    with pytest.raises(NotBuilt) as caught:
        plan.send(bob)
    assert str(caught.value) == (
        "A plan needs to be built again before being sent to a worker: training of Sequential was "
        "True and is False now. A call of it builds it, and so does plan.build(...)."
    )
    assert plan.code == code and plan.program is not None and not plan.is_built
    plan(torch.ones(1, 2))
    assert "dropout" in code and "training=False" not in code and plan.code != code
    assert torch.equal(plan.send(bob).get()(torch.ones(1, 2)), model(torch.ones(1, 2)))


def test_a_fetched_plan_stays_in_its_mode(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    model = nn.Dropout(1.0)
    plan = sy.func2plan(state=(model,))(lambda x, state: state.read()[0](x))
    for mode in (True, False):
        model.train(mode)
        plan.build(torch.ones(2))
        fetched = plan.send(bob).get()
        assert fetched.training is mode and fetched.train(mode) is fetched
        assert torch.equal(fetched(torch.ones(2)), model(torch.ones(2)))
        words = f"was built in {'training' if mode else 'evaluation'} mode"
        with pytest.raises(ProgramError, match=words):
            fetched.train(not mode)
    plain = sy.func2plan(args_shape=[(2,)])(lambda x: x + x).send(bob).get()
    assert plain.eval().training is False and plain.train().training is True


def test_a_fetched_plan_knows_what_required_grad(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    model, optimizer = pair()
    plan = sy.func2plan(state=(model, optimizer))(lambda x, state: train(*state.read(), x))
    plan.build(torch.ones(4, 3))
    fetched = plan.send(bob).get()
    fetched(torch.ones(4, 3))
    next(fetched.parameters()).requires_grad_(False)
    assert refusal(lambda: fetched(torch.ones(4, 3))) == (
        "ProgramError: Plan '<lambda>': requires_grad of '0.weight' was True and is False now. It "
        "came without its function and only replays: put that back, or build it where its "
        "function is."
    )
    next(fetched.parameters()).requires_grad_(True)
    fetched(torch.ones(4, 3))


def test_a_program_may_say_what_requires_grad(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    weight = torch.ones(2)

    def function(x: torch.Tensor, state: Any) -> torch.Tensor:
        (weight,) = state.read()
        weight.requires_grad_(True)
        return (weight * x).detach()

    plan = sy.func2plan(args_shape=[(2,)], state=(weight,))(function)
    fetched = plan.send(bob).get()
    for each in (fetched, plan, plan.copy()):
        for factor in (2.0, 3.0):
            assert torch.equal(each(torch.full((2,), factor)), torch.full((2,), factor))


def test_a_changed_plan_inside_another_recording_is_no_plan(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    model = nn.Linear(2, 1)
    inner = sy.func2plan(args_shape=[(1, 2)])(lambda x: model(x)).send(bob).get()
    outer = sy.func2plan()(lambda x: inner(x))
    next(inner.parameters()).requires_grad_(False)
    assert "requires_grad of 'weight'" in refusal(lambda: outer.build(torch.ones(1, 2)))
