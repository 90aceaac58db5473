"""Functions that are plans."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from tqdm import tqdm

import syft as sy
from syft.exceptions import FrozenPath, ProgramError, WrongArguments
from syft.ops.nested import replace
from tests.chain.refusal import refusal, shown

pytestmark = pytest.mark.every_shell

X = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
Pair = namedtuple("Pair", "left right")


def test_a_function_becomes_a_plan(hook: sy.TorchHook) -> None:
    @sy.func2plan()
    def double_abs(x: torch.Tensor) -> torch.Tensor:
        """Twice as far from zero."""
        return torch.abs(x + x)

    assert isinstance(double_abs, sy.Plan) and double_abs.name == "double_abs"
    assert double_abs.__doc__ == "Twice as far from zero."
    assert str(inspect.signature(double_abs)).startswith("(x")
    assert shown(double_abs) == "<Plan double_abs id:N owner:me>"
    assert torch.equal(double_abs.build(X), (X + X).abs())
    assert shown(double_abs) == (
        "<Plan double_abs id:N owner:me built>\n"
        "def double_abs(x):\n"
        "    _1 = x.add(x)  # 0: torch.Tensor.add\n"
        "    _2 = torch.abs(_1)  # 1: torch.abs\n"
        "    return _2"
    )


def structures(x: Any, opts: Any) -> Any:
    (a, b), scale = opts["pair"], opts["scale"]
    return {
        "sum": [x + a * scale, (b, None)],
        "rows": x.shape[0],
        "text": "done",
        "pair": Pair(a, b),
    }


CASES: list[tuple[Callable[..., Any], Callable[[torch.Tensor], tuple[Any, ...]]]] = [
    (lambda x: x + 1, lambda x: (x,)),
    (lambda x, y: (x + y, x - y), lambda x: (x, x * 2)),
    (lambda xs: [v * 2 for v in xs], lambda x: ([x, x + 1],)),
    (lambda x, n: x[:n] * n, lambda x: (x, x.shape[0] - 1)),
    (lambda x, lr: x * lr + lr, lambda x: (x, float(x.shape[0]))),
    (structures, lambda x: (x, {"pair": (x * 3, x.sum()), "scale": 0.5})),
    (lambda x: None, lambda x: (x,)),
    (lambda x: x, lambda x: (x,)),
    (lambda x: torch.zeros(x.shape[0], 2).add_(x), lambda x: (x,)),
    (lambda p: p.left @ p.right.T, lambda x: (Pair(x, x + 1),)),
    (lambda x: slice(x, None, x.shape[0]), lambda x: (x,)),
]


def same(got: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return torch.equal(got, expected)
    if isinstance(expected, dict):
        return list(got) == list(expected) and all(same(got[k], expected[k]) for k in expected)
    if isinstance(expected, (list, tuple)):
        return type(got) is type(expected) and all(map(same, got, expected))
    if isinstance(expected, slice):
        ends = ("start", "stop", "step")
        return all(same(getattr(got, end), getattr(expected, end)) for end in ends)
    return type(got) is type(expected) and got == expected


@pytest.mark.parametrize("function, arguments", CASES)
def test_replay_does_what_the_function_does(
    function: Callable[..., Any], arguments: Callable[[torch.Tensor], tuple[Any, ...]]
) -> None:
    plan = sy.func2plan()(function)
    plan.build(*arguments(torch.randn(4, 2)))
    for rows in (4, 2, 7):
        x = torch.randn(rows, 2)
        assert same(plan(*arguments(x)), function(*arguments(x)))


@pytest.mark.parametrize("function, arguments", CASES)
def test_so_does_a_plan_at_a_worker(
    hook: sy.TorchHook,
    worker: sy.VirtualWorker,
    function: Callable[..., Any],
    arguments: Callable[[torch.Tensor], tuple[Any, ...]],
) -> None:
    plan = sy.func2plan()(function)
    plan.build(*arguments(torch.randn(4, 2)))
    pointer = plan.send(worker)
    for rows in (4, 2, 7):
        x = torch.randn(rows, 2)
        sent = sent_to(worker, arguments(x))
        assert same(fetched(pointer(*sent)), function(*arguments(x)))


def sent_to(worker: sy.VirtualWorker, value: Any) -> Any:
    return replace(
        value, lambda leaf: leaf.send(worker) if isinstance(leaf, torch.Tensor) else leaf
    )


def fetched(value: Any) -> Any:
    return replace(value, lambda leaf: leaf.get() if isinstance(leaf, torch.Tensor) else leaf)


def test_shapes_build_it_where_it_is_defined() -> None:
    @sy.func2plan(args_shape=[(1, 2), ((-1,), torch.int64)])
    def pick(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x[:, index]

    assert pick.is_built
    assert torch.equal(pick(X, torch.tensor([1])), X[:, [1]])
    assert torch.equal(pick(X, torch.tensor([1, 0, 1])), X[:, [1, 0, 1]])


def test_the_function_gets_its_state() -> None:
    model, bias = nn.Linear(2, 1), torch.tensor([1])

    @sy.func2plan(args_shape=[(-1, 2)], state=(bias, model))
    def shift(x: torch.Tensor, state: sy.State) -> torch.Tensor:
        offset, layer = state.read()
        assert layer is model
        return layer(x) + offset

    assert torch.equal(shift(X), model(X) + 1)
    bias.fill_(5)
    with torch.no_grad():
        model.weight.zero_()
    assert torch.equal(shift(X), model(X) + 5)
    assert list(shift.state_dict()) == ["state.0", "weight", "bias"]
    assert [id(p) for p in shift.parameters()] == [id(model.weight), id(model.bias)]
    assert [name for name, _ in shift.named_buffers("its")] == ["its.state.0"]
    assert str(inspect.signature(shift.build)) == "(*args: 'Any', **kwargs: 'Any') -> 'Any'"
    assert "takes (x), and got 2 arguments" in refusal(lambda: shift(X, 3))


def test_an_argument_called_state_is_one_where_no_state_is_given() -> None:
    @sy.func2plan()
    def cell(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return x + state

    assert torch.equal(cell(X, X), X + X)


def test_what_a_function_names_is_state() -> None:
    model = nn.Linear(2, 1)
    counter = torch.zeros(1)

    @sy.func2plan(args_shape=[(-1, 2)])
    def step(x: torch.Tensor) -> torch.Tensor:
        counter.add_(1)
        return model(x)

    assert counter == 0
    assert torch.equal(step(X), model(X)) and counter == 1
    assert list(step.state_dict()) == ["weight", "bias", "captured.0"] or list(
        step.state_dict()
    ) == ["captured.0", "weight", "bias"]
    model.weight = nn.Parameter(torch.zeros(1, 2))
    assert torch.equal(step(X), model(X))
    model.eval()
    assert not step.is_built


def test_state_is_loaded_by_name() -> None:
    model = nn.Linear(2, 1)
    plan = sy.func2plan(args_shape=[(-1, 2)])(lambda x: model(x))
    other = nn.Linear(2, 1)
    plan.load_state_dict(other.state_dict())
    assert torch.equal(model.weight, other.weight)
    short = {"weight": other.weight}
    assert "state 'bias' was recorded as (1,) and is now nothing." in refusal(
        lambda: plan.load_state_dict(short)
    )
    long = {**other.state_dict(), "more": torch.ones(1)}
    assert "state 'more' was recorded as nothing and is now (1,)." in refusal(
        lambda: plan.load_state_dict(long)
    )


def test_before_it_is_built_a_plan_has_no_state() -> None:
    plan = sy.func2plan(state=(torch.ones(1),))(lambda x, state: x)
    assert plan.state_dict() == {} and list(plan.parameters()) == []
    assert "NotBuilt" in refusal(lambda: plan.load_state_dict({}))


def test_a_model_in_the_state_takes_the_mode_of_the_plan() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())

    @sy.func2plan(args_shape=[(-1, 2)], state=(model, torch.ones(1)))
    def run(x: torch.Tensor, state: sy.State) -> torch.Tensor:
        return state.read()[0](x)

    run.eval()
    assert not model.training and not run.is_built
    assert torch.equal(run(X), model(X))
    assert "convert the model" in refusal(run.double)


def test_wrong_shapes_name_the_action_and_the_line() -> None:
    @sy.func2plan(args_shape=[(-1, 2)])
    def product(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return y @ torch.ones(2, 3)

    with pytest.raises(RuntimeError) as caught:
        product(torch.ones(4, 5))
    (note,) = caught.value.__notes__
    assert note.startswith("In action ") and "torch.Tensor.matmul, recorded at " in note
    assert f"{__file__}:" in note


def test_a_branch_on_a_value_warns_that_it_is_frozen() -> None:
    def positive(x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x

    line = inspect.getsourcelines(positive)[1] + 1
    with pytest.warns(FrozenPath, match=f"{__file__}:{line}"):
        plan = sy.func2plan(args_shape=[(2,)])(positive)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(plan(torch.tensor([-1.0])), torch.tensor([-1.0]))


def test_both_ways_are_kept_where_asked_for() -> None:
    @sy.func2plan(args_shape=[(2,)])
    def positive(x: torch.Tensor) -> torch.Tensor:
        return sy.cond(x.sum() > 0, lambda v: v * 1, lambda v: -v, x)

    for value in (-3.0, 3.0):
        assert torch.equal(positive(torch.tensor([value])), torch.tensor([3.0]))


def test_state_and_shapes_are_checked() -> None:
    with pytest.raises(WrongArguments):
        sy.func2plan(state=(3,))(lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(WrongArguments):
        sy.func2plan(args_shape=[(1,), (1,)])(lambda x: x)


def test_a_copy_has_state_of_its_own() -> None:
    bias = torch.zeros(1)

    @sy.func2plan(args_shape=[(1,)], state=(bias,))
    def count(x: torch.Tensor, state: sy.State) -> torch.Tensor:
        (total,) = state.read()
        return total.add_(x).clone()

    duplicate = count.copy()
    assert count(torch.ones(1)) == 1 and count(torch.ones(1)) == 2
    assert duplicate(torch.ones(1)) == 1 and bias == 2
    duplicate.build(torch.ones(1))
    assert duplicate(torch.ones(1)) == 2 and bias == 2


def test_a_copy_of_a_closure_only_replays() -> None:
    model = nn.Linear(2, 1)
    plan = sy.func2plan(args_shape=[(-1, 2)])(lambda x: model(x))
    duplicate = plan.copy()
    with torch.no_grad():
        model.weight.zero_()
    assert not torch.equal(duplicate(X), plan(X))
    with pytest.raises(ProgramError, match="came without its function"):
        duplicate.build(X)
    assert plan.copy().copy().is_built


def test_a_plan_on_pointers_runs_op_by_op(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    plan = sy.func2plan(args_shape=[(2,)])(lambda x: (x + x).abs())
    with hook.record() as log:
        result = plan(torch.tensor([-1.0]).send(bob))
    assert [type(entry.message).__name__ for entry in log.to("bob")] == [
        "Put",
        "Command",
        "Command",
    ]
    assert torch.equal(result.get(), torch.tensor([2.0]))


def test_export_is_of_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tqdm, "monitor_interval", 0)  # torch's export shows its progress
    model = nn.Linear(2, 1)

    @sy.func2plan(args_shape=[(-1, 2)])
    def run(x: torch.Tensor) -> torch.Tensor:
        return model(x).relu()

    x = torch.randn(5, 2)
    assert torch.equal(run.to_fx()(x), run(x))
    assert torch.allclose(run.export().module()(x), run(x))
    assert torch.allclose(run.export(x).module()(x), run(x))
    with pytest.warns(DeprecationWarning):
        script = run.torchscript
    assert torch.allclose(script(x), run(x))
    run.to_onnx(tmp_path / "run.onnx")
    assert (tmp_path / "run.onnx").stat().st_size > 0


def test_whatever_can_be_called_becomes_a_plan() -> None:
    model = nn.Linear(2, 1)
    whole = sy.func2plan(args_shape=[(-1, 2)])(model)
    assert whole.name == "Linear" and list(whole.state_dict()) == ["weight", "bias"]
    assert torch.equal(whole(X), model(X))
    part = sy.func2plan()(functools.partial(torch.add, X))
    assert torch.equal(part(X), X + X)


def test_a_plan_with_state_inside_another_one() -> None:
    @sy.func2plan(state=(torch.ones(1),))
    def shift(x: torch.Tensor, state: sy.State) -> torch.Tensor:
        return x + state.read()[0]

    twice = sy.func2plan(args_shape=[(-1, 2)])(lambda x: shift(shift(x)))
    assert torch.equal(twice(X), X + 2) and not shift.is_built
    empty = sy.Plan()
    assert "came without its function" in refusal(lambda: empty(X))
    nothing = sy.func2plan()(lambda x: empty(x))
    assert "NotBuilt: A plan needs to be built before being called." in refusal(lambda: nothing(X))


def test_the_parentheses_may_be_left_out() -> None:
    @sy.func2plan
    def double(x: torch.Tensor) -> torch.Tensor:
        return x + x

    double.build(torch.ones(2))
    assert torch.equal(double(torch.ones(3)), torch.full((3,), 2.0))
    assert double.name == "double"
    model = nn.Linear(2, 1)
    assert torch.equal(sy.func2plan(model)(torch.ones(1, 2)), model(torch.ones(1, 2)))


def test_state_needs_a_parameter() -> None:
    make: Any = sy.func2plan(state=(torch.ones(1),))
    assert refusal(lambda: make(lambda x: x)) == (
        "WrongArguments: Plan '<lambda>' takes its state from a parameter 'state', and got state= "
        "for a function without that parameter."
    )
