"""Plans on shared tensors: their state is shared in place, and they run as they were recorded."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import HookError, NotBuilt, NotShareable
from syft.plans.shared_state import HeldState
from syft.tensors.shared.shared_values import is_shared

STEP = 2.0**-16


@pytest.fixture
def carol(hook: sy.TorchHook) -> sy.VirtualWorker:
    return sy.VirtualWorker(hook, id="carol")


@pytest.fixture
def parties(alice: Any, bob: Any, carol: Any) -> dict[str, Any]:
    return {"workers": (alice, bob), "crypto_provider": carol}


@pytest.fixture
def share(parties: dict[str, Any]) -> Any:
    def shared(x: Any) -> Any:
        x = x.fix_precision()
        return x.share(*parties["workers"], crypto_provider=parties["crypto_provider"])

    return shared


class Scaled(sy.Plan):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3).eval()
        self.factor = torch.tensor([1.5])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.fc(x)).relu() * self.factor

    @sy.method2plan
    def raw(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)


def near(x: Any, want: torch.Tensor, steps: float = 64.0) -> bool:
    return bool((x.get().float_precision() - want).abs().max() <= steps * STEP)


def states(net: Scaled) -> list[torch.Tensor]:
    return [*net.parameters(), net.norm.running_mean, net.norm.running_var, net.factor]


def test_a_plan_of_a_module_is_shared_and_comes_back(share):
    net, x = Scaled().eval(), torch.randn(5, 4)
    want = net(x).detach()
    values = [value.detach().clone() for value in states(net)]
    kept = [id(value) for value in states(net)]
    assert share(net) is net
    assert all(map(is_shared, states(net))) and net.is_built
    assert net.norm.num_batches_tracked.dtype is torch.int64
    assert near(net(share(x)), want)
    assert net.get() is net and not any(map(is_shared, states(net)))
    assert net.float_precision() is net
    for value, before in zip(states(net), values, strict=True):
        assert (value - before).abs().max() <= STEP
    assert [id(value) for value in states(net)] == kept
    assert (net(x) - want).abs().max() < 64 * STEP


def test_a_plan_of_a_function_shares_the_model_that_it_uses(share):
    model, bias = nn.LSTM(2, 3), torch.ones(3)
    plain = copy.deepcopy(model)

    @sy.func2plan(args_shape=[(4, 1, 2)], state=[bias])
    def plan(x, state):
        (bias,) = state.read()
        return model(x)[0] + bias

    share(plan)
    assert all(map(is_shared, model.parameters())) and is_shared(bias)
    x = torch.randn(4, 1, 2)
    assert near(plan(share(x)), plain(x)[0] + 1, 6000)
    plan.get().float_prec()
    assert (plan(x) - plain(x)[0] - 1).abs().max() < 64 * STEP


def test_encrypt_and_decrypt(parties):
    net, x = Scaled().eval(), torch.randn(2, 4)
    want = net(x).detach()
    assert net.encrypt(**parties) is net and all(map(is_shared, states(net)))
    assert near(net(x.encrypt(**parties)), want)
    assert net.decrypt() is net and (net(x) - want).abs().max() < 64 * STEP


def test_a_method_shares_the_state_of_its_instance(share):
    net, x = Scaled().eval(), torch.randn(2, 4)
    want = net.raw(x).detach()
    share(net.raw)
    assert is_shared(net.fc.weight) and near(net.raw(share(x)), want)
    assert net.raw.get().float_precision() is not None and not is_shared(net.fc.weight)


def test_a_function_is_recorded_by_a_call_with_shared_tensors(share):
    calls = []

    @sy.func2plan
    def plan(x, factor):
        calls.append(type(x))
        return (x * x - 1).relu() * factor

    x = torch.tensor([0.5, 3.0])
    assert near(plan(share(x), 2), torch.tensor([0.0, 16.0]))
    recorded = len(calls)
    assert plan.is_built and near(plan(share(2 * x), 2), torch.tensor([0.0, 70.0]))
    assert len(calls) == recorded
    assert torch.equal(plan(x, 2), torch.tensor([0.0, 16.0]))


def test_gradients_of_shared_state(share):
    model, x = nn.Linear(2, 1), torch.randn(3, 2)
    plain = copy.deepcopy(model)
    plan = sy.func2plan(args_shape=[(3, 2)])(lambda x: model(x))
    share(plan)
    plan(share(x)).sum().backward()
    plain(x).sum().backward()
    assert near(model.weight.grad, plain.weight.grad)


def test_the_state_of_an_optimizer_stays_as_it_is(share):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)

    @sy.func2plan(args_shape=[(3, 2)], state=[model, optimizer])
    def step(x, state):
        model, optimizer = state.read()
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    step(torch.ones(3, 2))
    share(step)
    assert is_shared(model.weight)
    momentum, _ = (optimizer.state[p]["momentum_buffer"] for p in model.parameters())
    assert type(momentum) is torch.Tensor


def test_what_was_not_built_has_no_state(parties):
    plan = sy.func2plan()(lambda x: x)
    for call in (plan.fix_precision, plan.share, plan.float_precision, plan.decrypt):
        with pytest.raises(NotBuilt):
            call()
    assert plan.get() is plan
    built = sy.func2plan(args_shape=[(2,)], state=[torch.ones(2)])(lambda x, state: x)
    with pytest.raises(NotShareable, match="fix_precision"):
        built.share(*parties["workers"], crypto_provider=parties["crypto_provider"])


def test_conversions_need_the_hook(hook):
    plan = sy.func2plan(args_shape=[(2,)])(lambda x: x)
    held = HeldState(plan._record.built, plan._recipe())
    hook.close()
    with pytest.raises(HookError):
        held.convert("share")


def test_prepared_calls_of_a_plan(share, carol):
    net, x = Scaled().eval(), torch.randn(2, 4)
    want = net(x).detach()
    share(net)
    level = net.prepare(2, share(x))
    assert level.runs == 2 and sy.cost(net, share(x)).dealt * 2 == level.nbytes
    asked = carol.stats.messages_in
    for _ in range(2):
        assert near(net(share(x)), want)
    assert carol.stats.messages_in == asked
