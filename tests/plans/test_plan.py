"""Classes that are plans: built once, replayed, with their state where it was."""

from __future__ import annotations

import ast
import copy
import gc
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.exceptions import NotBuilt, StateMismatch
from syft.plans.plan import Plan
from tests.chain.refusal import refusal, shown


class Net(Plan):
    """Parameters, a buffer, a plain tensor; a batch norm, which writes to its buffers."""

    def __init__(self, id: int | str | None = None) -> None:
        super().__init__(id)
        self.fc1 = nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)
        self.fc2 = nn.Linear(3, 2)
        self.register_buffer("offset", torch.ones(2))
        self.scale = torch.tensor(2.0)
        self.calls = 0

    def forward(self, x: torch.Tensor, double: bool = False) -> torch.Tensor:
        self.calls += 1
        y = self.fc2(F.relu(self.norm(self.fc1(x))))
        y = y * self.scale + self.offset
        return y + y if double else y


def plain_of(net: Net) -> nn.Module:
    """An ordinary module with the same tensors of its own."""

    class Plain(nn.Module):
        forward = Net.forward

    plain = Plain()
    plain.__dict__.update(copy.deepcopy(net.__dict__))
    return plain


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


def data(rows: int = 4) -> torch.Tensor:
    return torch.randn(rows, 2, generator=torch.Generator().manual_seed(rows))


def test_a_built_plan_does_what_the_module_does(net: Net) -> None:
    oracle = plain_of(net)
    net.build(data())
    for rows in (4, 3, 9, 2):
        assert torch.equal(net(data(rows)), oracle(data(rows)))
    for (name, mine), theirs in zip(net.state_dict().items(), oracle.state_dict().values()):
        assert torch.equal(mine, theirs), name  # the running statistics too


def test_building_returns_the_result_and_changes_nothing(net: Net) -> None:
    before = copy.deepcopy(net.state_dict())
    expected = plain_of(net)(data())
    random = torch.random.get_rng_state()
    assert torch.equal(net.build(data()), expected)
    assert all(torch.equal(before[name], now) for name, now in net.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), random)


def test_a_built_plan_never_calls_python_again(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = plain_of(net)(data())
    net.build(data())

    def boom(self: Net, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("called")

    calls = net.calls
    for kind in (nn.Linear, type(net)):
        monkeypatch.setattr(kind, "forward", boom)
    assert torch.equal(net(data()), expected)
    assert net.calls == calls


def test_the_first_call_builds(net: Net) -> None:
    oracle = plain_of(net)
    assert not net.is_built and net.actions == ()
    assert torch.equal(net(data()), oracle(data()))
    assert net.is_built and len(net.actions) == len(net.program.actions) > 0
    assert torch.equal(net.norm.running_mean, oracle.norm.running_mean)  # ran once


def test_gradients_reach_the_parameters(net: Net) -> None:
    oracle = plain_of(net)
    net(data()).sum().backward()
    oracle(data()).sum().backward()
    for mine, theirs in zip(net.parameters(), oracle.parameters(), strict=True):
        assert mine.grad is not None and torch.equal(mine.grad, theirs.grad)


def test_instances_have_state_of_their_own(net: Net) -> None:
    other = Net()
    net.build(data())
    other.build(data())
    assert net.id != other.id
    assert not torch.equal(net(data()), other(data()))


def test_the_mode_is_part_of_what_is_built(net: Net) -> None:
    net.build(data())
    net.eval()
    assert not net.is_built
    assert torch.equal(net(data(3)), plain_of(net).eval()(data(3)))
    assert net.is_built
    net.norm.train()
    assert not net.is_built
    net.norm.eval()
    assert net.is_built


def test_a_flag_is_part_of_what_is_built(net: Net) -> None:
    net.eval()
    oracle = plain_of(net)
    net.build(data(), double=True)
    assert torch.equal(net(data(3), True), oracle(data(3), True))
    assert "takes double=True, as it was built" in refusal(lambda: net(data()))
    net.build(data())
    assert torch.equal(net(data(3)), oracle(data(3)))


def test_parameters_that_were_replaced_are_used(net: Net) -> None:
    net.build(data())
    net.fc1.weight = nn.Parameter(torch.zeros(3, 2))
    net.scale = torch.tensor(5.0)
    assert torch.equal(net(data()), plain_of(net)(data()))
    net.load_state_dict(Net().state_dict())
    assert torch.equal(net(data()), plain_of(net)(data()))


def test_parameters_of_another_shape_are_refused(net: Net) -> None:
    net.build(data())
    net.fc1.weight = nn.Parameter(torch.zeros(5, 2))
    with pytest.raises(StateMismatch) as caught:
        net(data())
    assert str(caught.value).startswith(
        "Plan 'Net': state 'fc1.weight' was recorded as float32 (3, 2) and is now float32 (5, 2)."
    )


def test_a_replaced_module_is_recorded_again(net: Net) -> None:
    net.build(data())
    net.fc2 = nn.Linear(3, 2)
    assert not net.is_built
    assert torch.equal(net(data()), plain_of(net)(data()))


def test_the_repr_says_what_it_is(hook: sy.TorchHook, net: Net) -> None:
    assert shown(net) == "<Net Net id:N owner:me>"
    net.eval().build(data())
    first, *code = shown(net).split("\n")
    assert first == "<Net Net id:N owner:me built>"
    assert "\n".join(code) == net.code
    ast.parse(net.code)
    assert code[0] == "def Net(x, state):"
    assert all(f"# {index}: {action.name}" in net.code for index, action in enumerate(net.actions))


def test_an_id_may_be_a_name() -> None:
    net = Net("convnet")
    assert net.id == "convnet" and repr(net) == "<Net Net id:convnet owner:nobody>"


def test_nothing_to_read_before_it_is_built(net: Net) -> None:
    for read in (lambda: net.code, lambda: net.program, lambda: net.to_fx(), lambda: net.export()):
        with pytest.raises(NotBuilt):
            read()


def test_a_copy_is_a_plan_of_its_own(net: Net) -> None:
    net.tag("#net").describe("a net").build(data())
    duplicate = net.copy()
    assert type(duplicate) is Net and duplicate.is_built and duplicate.id != net.id
    assert duplicate.tags == {"#net"} and duplicate.description == "a net"
    assert duplicate.program is not None and duplicate.actions == net.actions
    with torch.no_grad():
        net.fc1.weight.zero_()
        net.scale.zero_()
    assert torch.equal(duplicate(data()), plain_of(duplicate)(data()))
    assert duplicate.fc1.weight.any() and duplicate.scale == 2
    duplicate.eval()
    assert not duplicate.is_built and net.is_built
    assert not Net().copy().is_built


def test_a_plan_in_torch_save_is_its_module(net: Net) -> None:
    net.build(data())
    again = Net.__new__(Net)
    again.__setstate__(net.__getstate__())
    assert not again.is_built and again.fc1 is net.fc1


def test_names_of_the_plan_are_not_overwritten(net: Net) -> None:
    for value in (nn.Linear(1, 1), nn.Parameter(torch.ones(1)), torch.ones(1)):
        text = refusal(lambda value=value: setattr(net, "location", value))
        assert text == (
            "AttributeError: 'location' is an attribute of every plan: choose another name"
        )


def test_what_a_plan_does_not_do_says_what_to_do_instead(net: Net) -> None:
    assert "plan.send(worker)" in refusal(lambda: net.move("bob"))
    assert net.get() is net and net.location is None


def test_a_class_is_a_module_like_any_other(net: Net) -> None:
    assert [name for name, _ in net.named_buffers()][-1] == "norm.num_batches_tracked"
    net.build(data())
    net.double()
    assert net.fc1.weight.dtype is torch.float64
    net.scale = net.scale.float()
    assert "state 'scale'" not in refusal(lambda: net(data(), 1, 2, 3))
    assert sy.Plan().name == "Plan"


def test_plans_call_plans_and_modules(hook: sy.TorchHook) -> None:
    @sy.func2plan()
    def inner(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        return x * factor

    class Outer(sy.Plan):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net().eval()

        def forward(self, x: torch.Tensor) -> Any:
            return inner(self.net(x)) + inner(x, factor=3.0)

    outer = Outer()
    expected = plain_of(outer.net)(data()) * 2 + data() * 3
    outer.build(data())
    assert torch.equal(outer(data()), expected) and not inner.is_built
    inner.build(torch.ones(1))
    again = Outer()
    again.net = outer.net
    outer.net.build(data())
    again.build(data())
    assert torch.equal(again(data()), expected)
    assert len(again.actions) == len(outer.actions)
    inner._function = None  # it replays, inside another plan too
    again.build(data(3))
    assert torch.equal(again(data()), expected)


def test_a_class_without_forward_says_so() -> None:
    class Empty(Plan):
        pass

    assert "forward" in refusal(lambda: Empty().build(torch.ones(1)))


def test_a_plan_leaves_no_cycle() -> None:
    net = Net()
    net.build(data())
    net(data())
    weak = weakref.ref(net)
    del net
    assert weak() is None
    assert not gc.isenabled()


def test_torch_as_a_default_argument(bob: sy.VirtualWorker) -> None:
    """Tutorials of earlier versions gave a plan its torch in this way."""

    class Scaled(Plan):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([2.0]))

        def forward(self, x: torch.Tensor, torch: Any = torch) -> torch.Tensor:
            result: torch.Tensor = torch.abs(x * self.weight)
            return result

        @sy.method2plan
        def shifted(self, x: torch.Tensor, torch: Any = torch) -> torch.Tensor:
            result: torch.Tensor = torch.add(x, self.weight)
            return result

    @sy.func2plan(args_shape=[(-1,)])
    def doubled(x: torch.Tensor, torch: Any = torch) -> torch.Tensor:
        result: torch.Tensor = torch.add(x, x)
        return result

    net, x = Scaled(), torch.tensor([-3.0])
    for plan, expected in ((net, 6.0), (net.shifted, -1.0), (doubled, -6.0)):
        assert plan(x).item() == expected
        sent = plan.send(bob)
        assert sent(x.send(bob)).item() == sent.get()(x).item() == expected


def test_parameters_have_a_length(bob: sy.VirtualWorker) -> None:
    net, stateless = Net(), sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
    net.build(torch.ones(2, 2))
    for plan in (net, net.send(bob)):
        parameters = plan.parameters()
        assert (
            next(parameters).shape == (3, 2) and len(parameters) == 6 == len(list(parameters)) + 1
        )
    assert [*net.parameters()] == [parameter for _, parameter in net.named_parameters()]
    assert len(net.parameters(recurse=False)) == 0 == len(stateless.parameters())


def test_what_earlier_versions_took_is_taken() -> None:
    plan = sy.func2plan(args_shape=(), trace_autograd=True)(lambda: torch.ones(2))
    assert plan.is_built and plan().tolist() == [1.0, 1.0]
    net = Net()
    assert net.build(torch.ones(2, 2), trace_autograd=True).shape == (2, 2)

    @sy.func2plan()
    def own(x: torch.Tensor, trace_autograd: int) -> torch.Tensor:
        return x * trace_autograd

    assert own.build(torch.ones(1), trace_autograd=3).item() == 3
