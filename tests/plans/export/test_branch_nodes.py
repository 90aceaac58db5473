"""Branches and loops of a program in torch.fx, torch.export and ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from tqdm import tqdm

from syft.exceptions import UnsupportedOperation
from syft.plans.export.fx import to_fx
from syft.plans.export.torch_export import to_exported, to_onnx
from syft.program.program import Action, Mode, Program
from syft.ops.nested import leaves
from tests.plans.export.exported import S, act, replayed

COND, LOOP = "syft.ops.control.cond", "syft.ops.control.while_loop"
W = {"w": torch.tensor([2.0, 3.0])}
INPUTS = [torch.ones(3, 2), torch.zeros(4, 2), -torch.ones(1, 2), torch.tensor([[0.5, 0.75]])]


@pytest.fixture(autouse=True)
def no_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's interpreter makes a progress bar, and its package starts a thread to watch it."""
    monkeypatch.setattr(tqdm, "monitor_interval", 0)


def scaled(*extra: Any) -> Program:
    """``a * b``, of as many inputs as are handed over."""
    return Program(2, (act("torch.mul", S(0), S(1), out=S(2)),), (S(2), *extra))


def condition(pred: Any, then: Program, otherwise: Program, operands: tuple[Any, ...]) -> Program:
    """Branch on ``pred``, slot 2, which is the sum of the input; slot 1 is the state."""
    branch = act(COND, pred, then, otherwise, operands, out=(S(3),))
    return Program(1, (act("torch.Tensor.sum", S(0), out=S(2)), branch), {"y": S(3)}, state=1)


SAME = Program(2, (), (S(0),))
VIEWED = Program(2, (act("torch.Tensor.view_as", S(0), S(0), out=S(2)),), (S(2),))
IN_PLACE = Program(
    2,
    (act("torch.Tensor.clone", S(0), out=S(2)), act("torch.Tensor.add_", S(2), S(1))),
    (S(2),),
)
NO_GRAD = Program(2, (act("torch.mul", S(0), 3, out=S(2), mode=Mode(False)),), (S(2),))
INNER = Program(
    2,
    (
        act("torch.Tensor.mean", S(0), out=S(2)),
        act("torch.Tensor.gt", S(2), 0.6, out=S(3)),
        act(COND, S(3), scaled(), SAME, (S(0), S(1)), out=(S(4),)),
    ),
    (S(4),),
)
CONDITIONS = {
    "the operand itself": condition(S(2), scaled(), SAME, (S(0), S(1))),
    "a view": condition(S(2), VIEWED, scaled(), (S(0), S(1))),
    "a number as operand": condition(S(2), scaled(), SAME, (S(0), 2.5)),
    "in place on a value of its own": condition(S(2), IN_PLACE, SAME, (S(0), S(1))),
    "nested": condition(S(2), INNER, SAME, (S(0), S(1))),
    "a mode": condition(S(2), NO_GRAD, SAME, (S(0), S(1))),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_take_the_path_that_the_value_says(name: str) -> None:
    program = CONDITIONS[name]
    module = to_fx(program, "x", W)
    exported = to_exported(program, "x", W, [torch.ones(3, 2)]).module()
    for x in INPUTS:
        expected = replayed(program, [x], W)["y"]
        assert torch.equal(module(x)["y"], expected)
        assert torch.equal(exported(x)["y"], expected)


@pytest.mark.parametrize("name", ["a condition in a condition", "a loop"])
def test_onnx_does_both(name: str, tmp_path: Path) -> None:
    program, state = (LOOPS["two tensors"], {}) if "loop" in name else (CONDITIONS["nested"], W)
    path = tmp_path / "branch.onnx"
    to_onnx(program, "x", state, [torch.ones(3, 2)], path)
    runtime = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for x in INPUTS:
        expected = [value.numpy() for value in leaves(replayed(program, [x], state))]
        for got, wanted in zip(runtime.run(None, {"x": x.numpy()}), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", ["the operand itself", "a view"])
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
def test_branches_return_new_tensors_as_torch_demands(name: str) -> None:
    """Torch looks at that when it takes an exported program apart."""
    exported = to_exported(CONDITIONS[name], "x", W, [torch.ones(3, 2)]).run_decompositions()
    for x in INPUTS:
        assert torch.equal(exported.module()(x)["y"], replayed(CONDITIONS[name], [x], W)["y"])


def test_gradients_flow_through_a_condition() -> None:
    program = CONDITIONS["the operand itself"]
    module = to_fx(program, "x", W)
    for x in INPUTS:
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        module(ours)["y"].sum().backward()
        replayed(program, [theirs], W)["y"].sum().backward()
        assert ours.grad is not None and theirs.grad is not None
        assert torch.equal(ours.grad, theirs.grad)


def test_a_condition_without_a_tuple_and_with_results_nobody_reads() -> None:
    pair = Program(2, (act("torch.add", S(0), S(1), out=S(2)),), (S(2), S(0), S(1)))
    other = Program(2, (), (S(0), S(1), S(1)))
    branch = act(COND, S(0), pair, other, (S(1), S(2)), out=(S(3), None, None))
    unread = act(COND, S(0), pair, other, (S(1), S(2)), out=None)
    single = act(COND, S(0), Program(1, (), S(0)), Program(1, (), S(0)), (S(3),), out=S(4))
    program = Program(3, (branch, unread, single), S(4))
    module = to_fx(program, "pab", {})
    a, b = torch.ones(2), torch.full((2,), 2.0)
    for pred in (torch.tensor([True]), torch.tensor([[0.0]])):
        assert torch.equal(module(pred, a, b), replayed(program, [pred, a, b], {}))


def test_a_plain_value_decides_once() -> None:
    for pred in (0, 1.5):
        program = condition(pred, scaled(), SAME, (S(0), S(1)))
        x = torch.ones(2, 2)
        assert torch.equal(to_fx(program, "x", W)(x)["y"], replayed(program, [x], W)["y"])


def test_a_number_decides() -> None:
    size = act("torch.Tensor.size", S(0), 0, out=S(2))
    less = act("syft.ops.numbers.sub", S(2), 3, out=S(3))
    branch = act(COND, S(3), scaled(), SAME, (S(0), S(1)), out=(S(4),))
    program = Program(1, (size, less, branch), S(4), state=1)
    module = to_fx(program, "x", W)
    given = Program(2, (act(COND, S(1), scaled(), SAME, (S(0), S(0)), out=(S(2),)),), S(2))
    by_number = to_fx(given, ["x", "n"], {}, numbers=[1])
    for rows in (2, 3):
        x = torch.full((rows, 2), 2.0)
        assert torch.equal(module(x), replayed(program, [x], W))
        assert torch.equal(by_number(x, rows - 2), replayed(given, [x, rows - 2], {}))


def test_a_random_branch_is_exported() -> None:
    dropout = act("torch.nn.functional.dropout", S(0), 0.5, True, out=S(2))
    program = condition(S(2), Program(2, (dropout,), (S(2),)), SAME, (S(0), S(1)))
    exported = to_exported(program, "x", W, [torch.ones(3, 2)]).module()
    assert set(exported(torch.ones(50, 2))["y"].unique().tolist()) == {0.0, 2.0}
    assert torch.equal(exported(torch.zeros(5, 2))["y"], torch.zeros(5, 2))


def test_a_branch_that_computes_gradients_is_refused() -> None:
    backward = Program(2, (act("torch.Tensor.backward", S(0)),), (S(0),))
    with pytest.raises(UnsupportedOperation, match="action 0, torch.Tensor.backward"):
        to_exported(condition(S(2), backward, SAME, (S(0), S(1))), "x", W, [torch.ones(3, 2)])


# ------------------------------------------------------------------------------------------ loops

BELOW = (act("torch.lt", S(0), S(1), out=S(2)), act("torch.Tensor.any", S(2), out=S(3)))
TEST = Program(2, BELOW, S(3))
DOUBLE = Program(2, (act("torch.Tensor.mul", S(0), 2, out=S(2)),), (S(2), S(1)))


def loop(test: Program, body: Program, operands: tuple[Any, ...], outputs: Any) -> Program:
    """A loop over slot 1, the absolute value of the input and one more."""
    actions = (
        act("torch.abs", S(0), out=S(1)),
        act("torch.add", S(1), 1, out=S(2)),
        act(LOOP, test, body, operands, out=(S(3), S(4))),
    )
    return Program(1, actions, outputs)


SMALL = Program(
    2,
    (
        act("torch.Tensor.sum", S(0), 1, out=S(2)),
        act("torch.Tensor.amax", S(2), 0, True, out=S(3)),
        act("torch.Tensor.lt", S(3), 20, out=S(4)),
    ),
    S(4),
)
LOOPS = {
    "two tensors": loop(TEST, DOUBLE, (S(2), S(1)), (S(3), S(4))),
    "a number handed through": loop(TEST, DOUBLE, (S(2), 9.0), S(3)),
    "a test of one element": loop(SMALL, DOUBLE, (S(2), S(1)), S(3)),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_turn_as_often_as_the_value_says(name: str) -> None:
    program = LOOPS[name]
    module = to_fx(program, "x", {})
    exported = to_exported(program, "x", {}, [torch.ones(3, 2)]).module()
    for x in (*INPUTS, torch.full((2, 2), 20.0)):
        expected = replayed(program, [x], {})
        for got in (module(x), exported(x)):
            assert all(map(torch.equal, leaves(got), leaves(expected)))


def test_a_loop_that_counts() -> None:
    """An int is carried: the test is a number, and a plain value comes out of the loop."""
    test = Program(3, (), S(0))
    body = Program(
        3,
        (
            act("syft.ops.numbers.sub", S(0), 1, out=S(3)),
            act("torch.Tensor.mul", S(1), S(2), out=S(4)),
        ),
        (S(3), S(4), S(2)),
    )
    turn = act(LOOP, test, body, (S(1), S(0), 1.5), out=(S(2), S(3), S(4)))
    by_rows = Program(1, (act("torch.Tensor.size", S(0), 0, out=S(1)), turn), (S(2), S(3), S(4)))
    four = act(LOOP, test, body, (4, S(0), 1.5), out=(S(1), S(2), S(3)))
    for program in (by_rows, Program(1, (four,), (S(1), S(2), S(3)))):
        module = to_fx(program, "x", {})
        for rows in (1, 3):
            x = torch.ones(rows, 2)
            got, expected = module(x), replayed(program, [x], {})
            assert got[0] == expected[0] == 0 and got[2] == expected[2] == 1.5
            assert torch.equal(got[1], expected[1])


def test_a_loop_of_which_nobody_reads_the_results() -> None:
    unread = act(LOOP, TEST, DOUBLE, (S(0), 9.0), out=None)
    module = to_fx(Program(1, (unread,), S(0)), "x", {})
    assert torch.equal(module(torch.ones(2)), torch.ones(2))


# --------------------------------------------------------------------------------------- refusals

WRITES = Program(2, (act("torch.Tensor.add_", S(0), 1),), (S(0), S(1)))
NESTED_WRITES = Program(2, (act(COND, S(0), WRITES, WRITES, (S(0), S(1))),), (S(0), S(1)))
REFUSED: dict[str, tuple[Action, str]] = {
    "writes": (
        act(COND, S(0), WRITES, WRITES, (S(1), S(2)), out=(S(3), None)),
        f"{COND} with a branch that writes to an operand (torch.Tensor.add_): "
        "return the new value instead",
    ),
    "nested writes": (
        act(LOOP, TEST, NESTED_WRITES, (S(1), S(2)), out=(S(3), None)),
        f"{LOOP} with a branch that writes to an operand (torch.Tensor.add_): "
        "return the new value instead",
    ),
    "structures": (
        act(COND, S(0), SAME, scaled(S(0)), (S(1), S(2))),
        f"{COND} with results of two structures: return the same from both",
    ),
    "changing float": (
        act(LOOP, TEST, Program(2, (), (S(0), S(0))), (S(1), 0.5), out=(S(3), None)),
        f"{LOOP} with a float among its values: give it as a tensor",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_cannot_do_is_refused_by_name(name: str) -> None:
    action, reason = REFUSED[name]
    with pytest.raises(UnsupportedOperation) as caught:
        to_fx(Program(3, (action,), S(0)), "pab", {})
    assert str(caught.value) == f"Export has no rule for action 0, {reason}."


def test_numbers_as_operands_of_a_condition_are_refused() -> None:
    size = act("torch.Tensor.size", S(0), 0, out=S(1))
    program = Program(1, (size, act(COND, S(1), SAME, SAME, (S(0), S(1)), out=(S(2),))), S(2))
    with pytest.raises(UnsupportedOperation, match="action 1.*with a number as an operand: give"):
        to_fx(program, "x", {})
