"""Plans on shared tensors: their state is shared in place, and they run as they were recorded."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import EncodingError, HookError, NotBuilt, NotShareable, WrongParties
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


OPTIMIZERS = {
    "Adam": lambda ps: torch.optim.Adam(ps, lr=0.01),
    "Adam, amsgrad": lambda ps: torch.optim.Adam(ps, lr=0.01, amsgrad=True),
    "AdamW": lambda ps: torch.optim.AdamW(ps, lr=0.01),
    "NAdam": lambda ps: torch.optim.NAdam(ps, lr=0.01),
    "RMSprop": lambda ps: torch.optim.RMSprop(ps, lr=0.01),
    "SGD, momentum": lambda ps: torch.optim.SGD(ps, lr=0.01, momentum=0.9),
}


class Trained:
    """A small model with a factor of one number, and a plan of a step of its training."""

    def __init__(self, make: Any) -> None:
        torch.manual_seed(0)
        self.weight, self.scale = nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.tensor(0.5))
        self.x, self.y = torch.randn(6, 3), 8 + torch.randn(6, 2)  # gradients of about 1
        self.parameters = [self.weight, self.scale]
        self.optimizer = make(self.parameters)
        self.step = sy.func2plan(args_shape=[(6, 3), (6, 2)])(self.trained)

    def trained(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(x @ self.weight * self.scale, y)
        loss.backward()
        self.optimizer.step()
        return loss

    def off(self, other: Trained) -> float:
        pairs = zip(self.parameters, other.parameters, strict=True)
        return max(float((one - two).detach().abs().max()) for one, two in pairs)


CASES = [("Adam", 0, 12), ("Adam", 2, 2), *((name, 1, 2) for name in list(OPTIMIZERS)[1:])]


@pytest.mark.parametrize(("name", "before", "steps"), CASES)
def test_a_plan_trains_shared_parameters_with_every_optimizer(name, before, steps, share):
    """Also from the state that plain steps left, and plain steps go on from what comes back."""
    mine, duplicate = (Trained(OPTIMIZERS[name]) for _ in range(2))
    kept = {key: id(one) for key, one in mine.optimizer.state[mine.scale].items()}
    for _ in range(before):
        mine.step(mine.x, mine.y)
        duplicate.trained(duplicate.x, duplicate.y)
    share(mine.step)
    counts = {"step", "mu_product"}
    for state in mine.optimizer.state.values():
        assert all(is_shared(one) for key, one in state.items() if key not in counts)
        assert not any(is_shared(one) for key, one in state.items() if key in counts)
    x, y = share(mine.x), share(mine.y)
    for _ in range(steps):
        mine.step(x, y)
        duplicate.trained(duplicate.x, duplicate.y)
    mine.step.get().float_precision()
    # Twelve roundings of half a step, 9.2e-5; shares round at random: 2.6e-5 to 6.0e-5 were seen.
    assert mine.off(duplicate) < 1e-4
    for key, one in mine.optimizer.state[mine.scale].items():
        want = duplicate.optimizer.state[duplicate.scale][key]
        assert torch.allclose(one, want, rtol=2e-3, atol=5e-5) and type(one) is torch.Tensor
        assert not kept or kept[key] == id(one)
    mine.step(mine.x, mine.y)
    duplicate.trained(duplicate.x, duplicate.y)
    assert mine.off(duplicate) < 1e-4


def test_a_state_that_does_not_fit_leaves_a_plan_as_it_was(parties):
    trained = Trained(OPTIMIZERS["Adam"])
    state = trained.optimizer.state[trained.scale]
    state["exp_avg_sq"].fill_(1e9)
    for call in (trained.step.fix_precision, lambda: trained.step.encrypt(**parties)):
        with pytest.raises(EncodingError, match="1000000000.*-5.369e.08 to 5.369e.08"):
            call()
    state["exp_avg_sq"].fill_(1.0)
    with pytest.raises(WrongParties):
        trained.step.encrypt(workers=parties["workers"][:1])
    tensors = [one for state in trained.optimizer.state.values() for one in state.values()]
    assert {type(one) for one in tensors} == {torch.Tensor}
    trained.step.encrypt(**parties, precision_fractional=20, base=2)
    assert state["exp_avg"].child.grid.digits == 20 and is_shared(state["exp_avg"])
    assert (trained.step.decrypt() and state["exp_avg_sq"]).item() == 1.0


def test_a_cost_of_a_step_in_a_plan_leaves_its_counts(share):
    mine, duplicate = (Trained(OPTIMIZERS["Adam"]) for _ in range(2))
    share(mine.step)
    for _ in range(2):
        cost = sy.cost(mine.step, share(mine.x), share(mine.y))
        mine.step(share(mine.x), share(mine.y))
        duplicate.trained(duplicate.x, duplicate.y)
    assert cost.rounds > 20
    mine.step.get().float_precision()
    assert [mine.optimizer.state[one]["step"].item() for one in mine.parameters] == [2.0] * 2
    assert mine.off(duplicate) < 5e-5


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
