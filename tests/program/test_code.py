"""The source of a program is Python that does what the program does, and says nothing else."""

from __future__ import annotations

import ast
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies

from syft.program.code import code_of
from syft.program.lint import lint
from syft.program.lowered import Lowered
from syft.ops.table import BY_NAME
from syft.program.program import Action, Mode, Program, Slot
from tests.program.random_programs import Case, cases


def act(name: str, *args: Any, out: Any = None, mode: Mode | None = None, **kwargs: Any) -> Action:
    return Action(BY_NAME[name], args, kwargs, out, mode)


class State:
    """What the source reads its state from."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def read(self) -> list[Any]:
        return self.values


class Control:
    """``sy.cond`` and ``sy.while_loop``, as far as this module needs them."""

    @staticmethod
    def cond(pred: Any, then: Any, otherwise: Any, *operands: Any) -> Any:
        return (then if pred else otherwise)(*operands)

    @staticmethod
    def while_loop(test: Any, body: Any, *operands: Any) -> Any:
        while test(*operands):
            operands = tuple(body(*operands))
        return operands


def function_of(source: str, name: str, constants: dict[str, Any]) -> Any:
    space: dict[str, Any] = {"torch": torch, "math": math, "sy": Control} | constants
    exec(compile(ast.parse(source), "<source>", "exec"), space)  # the test's own program
    return space[name]


def body(source: str) -> list[str]:
    return [line.strip() for line in source.splitlines()[1:]]


@given(case=cases(modes=True))
@settings(max_examples=150, deadline=None)
def test_the_source_does_what_the_program_does(case: Case) -> None:
    program = case.program
    names = [f"x{index}" for index in range(program.inputs)]
    source = code_of(program, "f", names, ["bias"], ["table"])
    lines = source.splitlines()
    assert lines[0] == f"def f({', '.join(names)}, state):"
    assert lines[1] == "    bias, = state.read()"
    assert lines[2] == "    # table: float32 (3, 3), a constant"
    function = function_of(source, "f", {"table": program.constants[0]})
    values = case.values()
    before = [value.clone() for value in values]
    got = function(*values[: program.inputs], State(values[program.inputs :]))
    expected_values = before
    expected = Lowered(program).run(expected_values)
    assert got["last"].equal(expected["last"]) and got["plain"] == (1, None)
    for one, other in zip(got["some"], expected["some"], strict=True):
        assert one.equal(other) and one.requires_grad == other.requires_grad
    for one, other in zip(values, expected_values, strict=True):
        assert one.equal(other)
    numbers = [line.split("  # ")[1] for line in lines if ": torch." in line]
    assert numbers == [f"{index}: {action.name}" for index, action in enumerate(program.actions)]


def test_the_whole_of_a_small_one() -> None:
    actions = (
        act("torch.Tensor.add", Slot(0), Slot(1), out=Slot(3)),
        act("torch.abs", Slot(3), out=Slot(4), mode=Mode(grad=False)),
        act("torch.Tensor.mul_", Slot(4), Slot(2), mode=Mode(grad=False)),
        act("torch.max", Slot(4), dim=0, out=(Slot(5), None)),
    )
    program = Program(1, actions, {"out": Slot(5)}, 1, (torch.tensor([6.25]),))
    assert code_of(program, "double abs", ["x"], ["fc1.bias"]) == """\
def double_abs(x, state):
    fc1_bias, = state.read()
    # constant_0: float32 (1,), a constant
    _3 = x.add(fc1_bias)  # 0: torch.Tensor.add
    with torch.no_grad():
        _4 = torch.abs(_3)  # 1: torch.abs
        _4.mul_(constant_0)  # 2: torch.Tensor.mul_
    _5, _ = torch.max(_4, dim=0)  # 3: torch.max
    return {'out': _5}"""


LINES: list[tuple[Action, str]] = [
    (act("torch.Tensor.shape.__get__", Slot(0), out=Slot(2)), "_2 = x.shape"),
    (act("torch.Tensor.shape.__get__", Slot(0), out=(Slot(2),)), "_2, = x.shape"),
    (act("torch.Tensor.shape.__get__", Slot(0), out=()), "() = x.shape"),
    (act("torch.Tensor.grad.__set__", Slot(0), None), "x.grad = None"),
    (act("torch.Tensor.grad.__delete__", Slot(0)), "del x.grad"),
    (
        act("torch.Tensor.grad.__set__", Slot(0), None, out=Slot(2)),
        "_2 = torch.Tensor.grad.__set__(x, None)",
    ),
    (act("torch.Tensor.__getitem__", Slot(0), 1, out=Slot(2)), "_2 = x[1]"),
    (
        act("torch.Tensor.__getitem__", Slot(0), (slice(None), slice(1, None, 2)), out=Slot(2)),
        "_2 = x[:, 1::2]",
    ),
    (act("torch.Tensor.__getitem__", Slot(0), (..., None), out=Slot(2)), "_2 = x[..., None]"),
    (act("torch.Tensor.__getitem__", Slot(0), slice(Slot(1)), out=Slot(2)), "_2 = x[:y]"),
    (act("torch.Tensor.__getitem__", Slot(0), (Slot(1),), out=Slot(2)), "_2 = x[y,]"),
    (act("torch.Tensor.__getitem__", Slot(0), (), out=Slot(2)), "_2 = x[()]"),
    (act("torch.Tensor.__setitem__", Slot(0), [0, 2], -1.5), "x[[0, 2]] = -1.5"),
    (act("torch.Tensor.__rsub__", Slot(0), 2, out=Slot(2)), "_2 = 2 - x"),
    (act("torch.Tensor.__rsub__", Slot(0), -2, out=Slot(2)), "_2 = (-2) - x"),
    (act("torch.Tensor.__rdiv__", Slot(0), 1, out=Slot(2)), "_2 = 1 / x"),
    (act("torch.Tensor.__pow__", Slot(0), 2, out=Slot(2)), "_2 = x ** 2"),
    (act("torch.Tensor.__eq__", Slot(0), Slot(1), out=Slot(2)), "_2 = x == y"),
    (act("torch.Tensor.__invert__", Slot(0), out=Slot(2)), "_2 = ~x"),
    (act("torch.Tensor.__iadd__", Slot(0), 1), "x.__iadd__(1)"),
    (act("torch.Tensor.__pow__", Slot(0), out=Slot(2)), "_2 = x.__pow__()"),
    (act("torch.Tensor.add", 1, Slot(0), out=Slot(2)), "_2 = torch.Tensor.add(1, x)"),
    (act("torch.Tensor.neg", out=Slot(2)), "_2 = torch.Tensor.neg()"),
    (
        Action(BY_NAME["torch.Tensor.random_"], (Slot(0),), {"from": 0, "to": 3}, None),
        "x.random_(to=3, **{'from': 0})",
    ),
    (
        act("torch.zeros", 2, 3, dtype=torch.int64, out=Slot(2)),
        "_2 = torch.zeros(2, 3, dtype=torch.int64)",
    ),
    (
        act("torch.full", (2,), math.inf, device=torch.device("cpu"), out=Slot(2)),
        "_2 = torch.full((2,), float('inf'), device=torch.device('cpu'))",
    ),
    (act("torch.full", [], -math.nan, out=Slot(2)), "_2 = torch.full([], float('nan'))"),
    (act("torch.full", (), 1j, out=Slot(2)), "_2 = torch.full((), complex(0.0, 1.0))"),
    (
        act(
            "torch.lstm_cell",
            Slot(0),
            (Slot(1), Slot(1)),
            Slot(0),
            Slot(0),
            out=(Slot(2), (None, Slot(3)), ()),
        ),
        "_2, (_, _3), () = torch.lstm_cell(x, (y, y), x, x)",
    ),
    (act("syft.ops.numbers.add", Slot(0), 1, out=Slot(2)), "_2 = x + 1"),
    (act("syft.ops.numbers.pow", 0.5, -1, out=Slot(2)), "_2 = 0.5 ** (-1)"),
    (act("syft.ops.numbers.neg", -2, out=Slot(2)), "_2 = -(-2)"),
    (act("syft.ops.numbers.pos", Slot(0), out=Slot(2)), "_2 = +x"),
    (act("syft.ops.numbers.floor", Slot(0), out=Slot(2)), "_2 = math.floor(x)"),
    (act("syft.ops.numbers.round", Slot(0), 2, out=Slot(2)), "_2 = round(x, 2)"),
    (
        act("syft.ops.control.ensure_grad", Slot(0)),
        "x.grad = torch.zeros_like(x) if x.grad is None else x.grad",
    ),
    (
        act(
            "torch.nn.functional.scaled_dot_product_attention",
            Slot(0),
            torch.Generator(),
            out=Slot(2),
        ),
        "_2 = torch.nn.functional.scaled_dot_product_attention(x, torch.Generator('cpu'))",
    ),
]


@pytest.mark.parametrize(("action", "line"), LINES, ids=[line for _, line in LINES])
def test_lines(action: Action, line: str) -> None:
    source = code_of(Program(2, (action,), None), "f", ["x", "y"])
    ast.parse(source)
    assert source == f"def f(x, y):\n    {line}  # 0: {action.name}\n    return None"


CONTEXTS: list[tuple[Mode, str]] = [
    (Mode(False), "torch.no_grad()"),
    (Mode(True), "torch.enable_grad()"),
    (Mode(False, inference=True), "torch.inference_mode()"),
    (Mode(True, inference=True), "torch.inference_mode(), torch.enable_grad()"),
    (
        Mode(False, autocast=(("cpu", torch.bfloat16), ("cuda", None))),
        "torch.no_grad(), torch.autocast('cpu', dtype=torch.bfloat16), "
        "torch.autocast('cuda', enabled=False)",
    ),
]


@pytest.mark.parametrize(("mode", "contexts"), CONTEXTS, ids=[text for _, text in CONTEXTS])
def test_modes_are_blocks(mode: Mode, contexts: str) -> None:
    neg = act("torch.neg", Slot(0), out=Slot(1), mode=mode)
    more = act("torch.neg", Slot(1), out=Slot(2), mode=mode)
    last = act("torch.neg", Slot(2), out=Slot(3))
    program = Program(1, (neg, more, last), Slot(3))
    assert body(code_of(program, "f", ["x"])) == [
        f"with {contexts}:",
        "_1 = torch.neg(x)  # 0: torch.neg",
        "_2 = torch.neg(_1)  # 1: torch.neg",
        "_3 = torch.neg(_2)  # 2: torch.neg",
        "return _3",
    ]


NUMBER = strategies.integers(0, 5) | strategies.floats(0, 5)


@given(flag=strategies.booleans(), start=strategies.integers(0, 6))
@settings(max_examples=30, deadline=None)
def test_branches_and_loops_are_functions_inside(flag: bool, start: int) -> None:
    numbers = "syft.ops.numbers."
    less = Program(1, (act(f"{numbers}sub", Slot(0), 1, out=Slot(1)),), [Slot(1)])
    inner = act(
        "syft.ops.control.while_loop", Program(1, (), Slot(0)), less, [Slot(0)], out=(Slot(1),)
    )
    then = Program(1, (inner,), Slot(1))
    double = Program(1, (act(f"{numbers}mul", Slot(0), 2, out=Slot(1)),), Slot(1))
    cond = act("syft.ops.control.cond", Slot(0), then, double, [Slot(1)], out=Slot(2))
    program = Program(2, (cond,), Slot(2))
    lint(program)
    source = code_of(program, "f", ["then_0", "x"])
    assert source == """\
def f(x_then_0, x):
    def then_0(x0):
        def test_0(x0):
            return x0
        def body_0(x0):
            _1 = x0 - 1  # then_0, body_0, 0: syft.ops.numbers.sub
            return [_1]
        _1, = sy.while_loop(test_0, body_0, x0)  # then_0, 0: syft.ops.control.while_loop
        return _1
    def otherwise_0(x0):
        _1 = x0 * 2  # otherwise_0, 0: syft.ops.numbers.mul
        return _1
    _2 = sy.cond(x_then_0, then_0, otherwise_0, x)  # 0: syft.ops.control.cond
    return _2"""
    expected = 0 if flag else 2 * start
    assert function_of(source, "f", {})(flag, start) == expected
    assert Lowered(program).run([flag, start]) == expected


# ------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (["x", "x", "x_2"], ["x", "x_2", "x_2_2"]),
        (["lambda", "None", "1st", ""], ["x_lambda", "x_None", "x_1st", "x_"]),
        (["_3", "then_4", "body_0", "_30_"], ["x_3", "x_then_4", "x_body_0", "_30_"]),
        (["torch", "sy", "state", "float"], ["x_torch", "x_sy", "x_state", "x_float"]),
        (["0.weight", "fc1.bias"], ["x_0_weight", "fc1_bias"]),
        (["ſ", "x): import os\nf(x"], ["x_", "x___import_os_f_x"]),
    ],
)
def test_names_are_identifiers_and_each_another(wanted: list[str], names: list[str]) -> None:
    program = Program(len(wanted), (), Slot(0))
    source = code_of(program, "f", wanted)
    assert source == f"def f({', '.join(names)}):\n    return {names[0]}"
    ast.parse(source)


@given(names=strategies.lists(strategies.text(max_size=4), max_size=6), name=strategies.text())
def test_any_names_give_a_function(names: list[str], name: str) -> None:
    tree = ast.parse(code_of(Program(len(names), (), None), name, names))
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    assert len({argument.arg for argument in function.args.args}) == len(names)


def test_text_of_a_stranger_stays_text() -> None:
    nasty = "'); import os; os.system('ls') #\n"
    action = Action(BY_NAME["torch.einsum"], (nasty, Slot(0)), {nasty: nasty}, Slot(1))
    source = code_of(Program(1, (action,), {nasty: Slot(1)}), nasty, [nasty])
    tree = ast.parse(source)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    assert len(tree.body) == 1


def test_much_state_takes_several_lines() -> None:
    names = [f"layer{index}.weight" for index in range(10)]
    source = code_of(Program(0, (), Slot(3), 10), "f", [], names)
    lines = source.splitlines()
    assert lines[:3] == ["def f(state):", "    (", "        layer0_weight,"]
    assert lines[11:] == [
        "        layer9_weight,",
        "    ) = state.read()",
        "    return layer3_weight",
    ]
    assert function_of(source, "f", {})(State(list(range(10)))) == 3


def test_values_of_constants_are_not_shown() -> None:
    program = Program(0, (), Slot(0), constants=(torch.tensor([12345.0]), torch.ones(2).bool()))
    source = code_of(program, "f", [])
    assert "12345" not in source
    assert "    # constant_1: bool (2,), a constant" in source.splitlines()
