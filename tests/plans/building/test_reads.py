"""What a function reads in its closure and around it is watched: a later change counts."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import CannotRecord
from syft.plans.building.reads import MOST_ITEMS, Surroundings
from tests.chain.refusal import refusal

X = torch.ones(4)
FACTOR, NESTED = 2.0, {"deep": {"factor": 2.0}}


class Config:
    """A class, and instances with attributes, slots and a property."""

    shared = 2.0

    def __init__(self) -> None:
        self.factor, self.items, self.model = 2.0, [2.0], nn.Dropout(1.0)
        self.optimizer = torch.optim.SGD([torch.ones(1)], lr=2.0)

    @property
    def half(self) -> float:
        return self.factor / 2

    def scaled(self, x: Any) -> Any:
        return x * self.factor


class Slotted:
    __slots__ = ("factor",)

    def __init__(self) -> None:
        self.factor = 2.0


def _factor() -> float:
    return FACTOR


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    global FACTOR
    shared = Config.shared
    yield
    FACTOR, Config.shared = 2.0, shared
    NESTED["deep"]["factor"] = 2.0


Case = tuple[Callable[[Any], Any], Callable[[], Any]]


def _global() -> Case:
    return lambda x: x * FACTOR, lambda: globals().update(FACTOR=3.0)


def _inner() -> Case:
    return lambda x: x * _factor(), lambda: globals().update(FACTOR=3.0)


def _nested() -> Case:
    return lambda x: x * NESTED["deep"]["factor"], lambda: NESTED["deep"].update(factor=3.0)


def _cell() -> Case:
    factor = 2.0

    def change() -> None:
        nonlocal factor
        factor = 3.0

    return lambda x: x * factor, change


def _local_function() -> Case:
    def run(x: Any) -> Any:
        return [each * FACTOR for each in [x]][0]

    return lambda x: run(x), lambda: globals().update(FACTOR=3.0)


def _attribute(change: Callable[[Config], Any], run: Callable[..., Any]) -> Case:
    config = Config()
    return functools.partial(run, config), lambda: change(config)


def _method() -> Case:
    config = Config()
    return config.scaled, lambda: setattr(config, "factor", 3.0)


def _slot() -> Case:
    slotted = Slotted()
    return lambda x: x * slotted.factor, lambda: setattr(slotted, "factor", 3.0)


def _class() -> Case:
    return lambda x: x * Config.shared, lambda: setattr(Config, "shared", 3.0)


def _list() -> Case:
    factors = [2.0, 4.0]
    return lambda x: x * factors[1], lambda: factors.__setitem__(1, 3.0)


def _added() -> Case:
    factors: dict[str, float] = {}
    return lambda x: x * factors.get("late", 1.0), lambda: factors.update(late=3.0)


def _function() -> Case:
    run = torch.abs

    def change() -> None:
        nonlocal run
        run = torch.neg

    return lambda x: run(x), change


def _tensor(change: Callable[[torch.Tensor], Any]) -> Case:
    weight = torch.ones(4)
    return lambda x: x * weight, lambda: change(weight)


def _other_tensor() -> Case:
    weight = torch.ones(4)

    def change() -> None:
        nonlocal weight
        weight = torch.zeros(4)

    return lambda x: x * weight, change


def _other_model() -> Case:
    model: Any = nn.Threshold(0.0, 1.0)

    def change() -> None:
        nonlocal model
        model = nn.Threshold(5.0, 7.0)

    return lambda x: model(x), change


def _model_in(container: Any) -> Case:
    return lambda x: container["model"](x), container["model"].eval


def _inner_plan() -> Case:
    model = nn.Dropout(1.0)
    inner = sy.func2plan(args_shape=[(4,)])(lambda x: model(x))
    return lambda x: inner(x), model.eval


def _own_module() -> Case:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factors = [2.0]

        def forward(self, x: Any) -> Any:
            return x * self.factors[0]

    model = nn.Sequential(Scaled())
    return lambda x: model(x), lambda: model[0].factors.__setitem__(0, 3.0)


def _buffer() -> Case:
    norm = nn.BatchNorm1d(2).eval()
    return lambda x: norm(x.view(2, 2)), lambda: norm.running_mean.fill_(3.0)


def _key_of_a_group() -> Case:
    optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0)
    group = optimizer.param_groups[0]
    return (
        lambda x: x * optimizer.param_groups[0].get("scale", 1.0),
        lambda: group.update(scale=3.0),
    )


CASES: dict[str, Callable[[], Case]] = {
    "a number of the module around it": _global,
    "one that an inner function reads": _inner,
    "one in a dict of a dict": _nested,
    "a number of the closure": _cell,
    "one that a local function reads": _local_function,
    "an attribute": lambda: _attribute(
        lambda c: setattr(c, "factor", 3.0), lambda c, x: x * c.factor
    ),
    "an attribute by name": lambda: _attribute(
        lambda c: setattr(c, "factor", 3.0), lambda c, x: x * getattr(c, "factor")  # noqa: B009
    ),
    "a property": lambda: _attribute(lambda c: setattr(c, "factor", 3.0), lambda c, x: x * c.half),
    "an item of an attribute": lambda: _attribute(
        lambda c: c.items.append(3.0), lambda c, x: x * c.items[-1]
    ),
    "a model that is an attribute": lambda: _attribute(
        lambda c: c.model.eval(), lambda c, x: c.model(x)
    ),
    "an option through an attribute": lambda: _attribute(
        lambda c: c.optimizer.param_groups[0].update(lr=3.0),
        lambda c, x: x * c.optimizer.param_groups[0]["lr"],
    ),
    "an attribute of a method's object": _method,
    "a slot": _slot,
    "an attribute of a class": _class,
    "an item of a list": _list,
    "an item that was not there": _added,
    "another function": _function,
    "a write to a constant": lambda: _tensor(lambda weight: weight.mul_(3)),
    "another constant": _other_tensor,
    "another model": _other_model,
    "a model in a container": lambda: _model_in({"model": nn.Dropout(1.0)}),
    "what an inner plan reads": _inner_plan,
    "a list of a module": _own_module,
    "a buffer": _buffer,
    "a key of a group": _key_of_a_group,
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_function_reads_is_as_it_is_now(name: str) -> None:
    function, change = CASES[name]()
    plan = sy.func2plan()(function)
    assert torch.equal(plan.build(X), function(X))
    before = function(X)
    is_same = isinstance(function, types.FunctionType)  # a copied method has an object of its own
    duplicate = plan.copy() if is_same and not plan._record.built.replays_only else None
    assert plan.is_built and torch.equal(plan(X), before)
    change()
    expected = function(X)
    assert not torch.equal(expected, before)  # or nothing would be seen
    assert torch.equal(plan(X), expected) and plan.is_built
    assert duplicate is None or torch.equal(duplicate(X), expected)


def test_a_constant_that_requires_grad_later_gets_its_gradient() -> None:
    function, change = _tensor(lambda weight: weight.requires_grad_())
    plan = sy.func2plan(args_shape=[(4,)])(function)
    change()
    assert plan(X).requires_grad


def test_a_copy_at_a_worker_is_refused_once_a_number_has_changed(bob: sy.VirtualWorker) -> None:
    factor, weight = 2.0, torch.ones(4)
    plan = sy.func2plan(args_shape=[(4,)])(lambda x: x * factor * weight)
    pointer, x = plan.send(bob), X.send(bob)
    weight.mul_(5)  # it has a copy of this
    assert torch.equal(pointer(x).get(), X * 2)
    factor = 3.0
    assert refusal(lambda: pointer(x)) == (
        "ProgramError: Plan '<lambda>': factor of <lambda>() was 2.0 and is 3.0 now, and its copy "
        "at 'bob' is the recording of what was when it was sent: send it again"
    )
    assert refusal(lambda: plan.send(bob)).startswith("NotBuilt")
    plan(X)
    assert torch.equal(plan.send(bob)(x).get(), X * 15)
    factor = 2.0
    assert torch.equal(pointer(x).get(), X * 2)


def test_what_a_run_changes_itself_is_not_a_change() -> None:
    runs, seen = 0, []

    def counting(x: Any) -> Any:
        nonlocal runs
        runs += 1
        seen.append(x.shape)
        return x + len([])

    plan = sy.func2plan()(counting)
    plan.build(X)
    before = runs
    assert torch.equal(plan(X), plan(X))
    assert plan.is_built and runs == before


def test_a_plan_of_its_arguments_alone_reads_nothing() -> None:
    plan = sy.func2plan(args_shape=[(4,)])(lambda x: torch.abs(x) + 1)
    assert plan._record.built.is_stateless


def test_what_is_large_is_not_compared() -> None:
    few, many = [1.0] * MOST_ITEMS, [1.0] * (MOST_ITEMS + 1)
    reads = Surroundings(lambda x: x * few[0] * many[0])
    assert [fact.value for fact in reads.facts if fact.key == "items"] == [tuple(few)]


def test_a_cell_that_is_empty_is_no_error() -> None:
    def run(x: Any) -> Any:
        return x if x is not None else late

    reads = Surroundings(run)
    late = 1.0
    assert [(fact.key, fact.value) for fact in reads.facts] == [("late", None)] and late


def test_a_plan_is_not_built_inside_a_recording() -> None:
    inner = sy.func2plan()(lambda x, factor: x * factor)

    def around(x: Any, factor: float) -> Any:
        inner.build(x, factor)
        return inner(x, factor)

    with pytest.raises(CannotRecord, match="the building of plan '<lambda>'.*build it before"):
        sy.func2plan()(around).build(X, 2.0)
    outer = sy.func2plan()(lambda x, factor: inner(x, factor))
    outer.build(X, 2.0)
    assert torch.equal(outer(X, 3.0), X * 3)


def test_a_scheduler_inside_is_refused_where_torch_is_not_hooked() -> None:
    """Its first steps change no rate, so that nothing else tells of them."""
    assert sy.TorchHook._current is None
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)

    def step(x: Any) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        scheduler.step()

    with pytest.raises(CannotRecord, match="a step of StepLR"):
        sy.func2plan()(step).build(X)
    assert scheduler.last_epoch == 0 and scheduler._step_count == 1


def test_what_stands_in_a_module_of_the_users_is_watched() -> None:
    """Of a library it is not, which is the control."""
    mine, library = types.ModuleType("mine"), types.ModuleType("theirs")
    mine.__file__, library.__file__ = "/home/ann/mine.py", torch.__file__
    for module in (mine, library):
        vars(module)["RATE"] = 3.0
        reads = Surroundings(lambda x, module=module: x * module.RATE, (module,))
        found = [(fact.key, fact.value) for fact in reads.facts if fact.key == "RATE"]
        assert found == ([("RATE", 3.0)] if module is mine else [])
