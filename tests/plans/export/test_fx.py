"""A program as a torch.fx module does what the program does, whatever it is made of."""

from __future__ import annotations

import ast
import copy
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from syft.exceptions import ProgramError, UnsupportedOperation
from syft.plans.export.fx import attribute_names, to_fx
from syft.plans.export.graph import GraphBuilder
from syft.program.lowered import Lowered
from syft.ops.table import BY_NAME
from syft.program.program import Action, Mode, Program
from syft.ops.nested import leaves
from tests.plans.export.exported import S, act, replayed
from tests.program.random_programs import Case, cases


def same(got: Any, expected: Any) -> bool:
    """Whether two results are equal, and need a gradient or not alike."""
    return all(
        (
            torch.equal(ours, theirs) and ours.requires_grad == theirs.requires_grad
            if isinstance(theirs, torch.Tensor)
            else ours == theirs
        )
        for ours, theirs in zip(leaves(got), leaves(expected), strict=True)
    )


@given(cases())
def test_random_programs_do_as_plain_torch(case: Case) -> None:
    values = case.values()
    *inputs, state = values
    module = to_fx(case.program, [f"x{i}" for i in range(len(inputs))], {"s": state})
    expected = case.plain([value.clone() for value in values])
    assert same(module(*[value.clone() for value in inputs]), expected)


@given(cases(in_place=False, modes=True))
def test_random_programs_in_random_modes(case: Case) -> None:
    *inputs, state = values = case.values(requires_grad=True)
    module = to_fx(case.program, [f"x{i}" for i in range(len(inputs))], {"s": state})
    for surrounding in (True, False):
        with torch.set_grad_enabled(surrounding):
            assert same(module(*inputs), case.plain(values))
            assert torch.is_grad_enabled() is surrounding


MODES = (
    None,
    Mode(True),
    Mode(False),
    Mode(False, inference=True),
    Mode(True, autocast=(("cpu", torch.bfloat16),)),
    Mode(False, autocast=(("cpu", None),)),
)


@pytest.mark.parametrize("first", MODES)
@pytest.mark.parametrize("second", MODES)
def test_every_change_of_modes(first: Mode | None, second: Mode | None) -> None:
    """Each operation runs under its own mode and the surrounding one is there afterwards."""
    actions = tuple(
        act("torch.matmul", S(0), S(0), out=S(1 + place), mode=mode)
        for place, mode in enumerate((first, second, first, None))
    )
    program = Program(1, actions, tuple(S(1 + place) for place in range(4)))
    x = torch.randn(3, 3, requires_grad=True)
    got, expected = to_fx(program, "x", {})(x), Lowered(program).run([x])
    for ours, theirs in zip(got, expected, strict=True):
        assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype
        assert ours.requires_grad == theirs.requires_grad
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("mode", MODES[1:])
def test_an_operation_that_fails_leaves_no_mode_behind(mode: Mode) -> None:
    program = Program(1, (act("torch.matmul", S(0), S(0), out=S(1), mode=mode),), S(1))
    module = to_fx(program, "x", {})
    for surrounding in (True, False):
        with torch.set_grad_enabled(surrounding):
            with pytest.raises(RuntimeError, match="cannot be multiplied"):
                module(torch.ones(3, 2))
            assert torch.is_grad_enabled() is surrounding
        assert not torch.is_autocast_enabled("cpu")
        assert torch.autocast_increment_nesting() == 1
        assert torch.autocast_decrement_nesting() == 0
    with torch.autocast("cpu", torch.float16):
        with pytest.raises(RuntimeError):
            module(torch.ones(3, 2))
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == torch.float16
    assert torch.equal(copy.deepcopy(module)(torch.eye(2)).float(), torch.eye(2))


def test_a_whole_training_step() -> None:
    """torch.fx has no trouble with a training step; it is torch.export that has."""
    actions = (
        act("torch.Tensor.grad.__set__", S(2), None),
        act("torch.matmul", S(0), S(2), out=S(3)),
        act("torch.nn.functional.mse_loss", S(3), S(1), out=S(4)),
        act("torch.Tensor.backward", S(4)),
        act("torch.Tensor.grad.__get__", S(2), out=S(5), mode=Mode(False)),
        act("torch.Tensor.sub_", S(2), S(5), alpha=0.1, mode=Mode(False)),
        act("torch.Tensor.detach", S(4), out=S(6)),
    )
    program = Program(2, actions, S(6), state=1)
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    ours, theirs = (nn.Parameter(torch.ones(3, 1)) for _ in range(2))
    module = to_fx(program, "xy", {"weight": ours})
    for _ in range(5):
        assert torch.equal(module(x, y), replayed(program, [x, y], {"weight": theirs}))
        assert torch.equal(ours, theirs) and ours.grad is not None
    assert ours[0] != 1


def test_what_was_written_in_place_is_read_from_the_node_that_wrote_it() -> None:
    """So that a tool that removes dead code removes none of it."""
    actions = (
        act("torch.Tensor.add_", S(0), 1),
        act("torch.nn.functional.relu", S(0), inplace=True),
        act("torch.Tensor.mul", S(0), 2, out=S(1)),
    )
    module = to_fx(Program(1, actions, S(1)), "x", {})
    module.graph.eliminate_dead_code()
    module.recompile()
    assert module(torch.tensor([-3.0, 1.0])).tolist() == [0.0, 4.0]


def test_results_are_taken_apart_where_somebody_reads_them() -> None:
    program = Program(
        1,
        (
            act("torch.sort", S(0), out=(S(1), S(2))),
            act("torch.Tensor.split", S(0), 2, out=(S(3), None)),
        ),
        S(2),
    )
    module = to_fx(program, "x", {})
    assert module.code.count("[1]") == 1 and "[0]" not in module.code
    assert module(torch.tensor([2.0, 1.0, 3.0])).tolist() == [1, 0, 2]


def test_plain_operands_of_every_kind() -> None:
    calls: list[Action] = [
        act("torch.Tensor.to", S(0), dtype=float, out=S(1)),
        act("torch.Tensor.mul", S(1), np.float64(2.5), out=S(2)),
        act("torch.Tensor.to", S(2), torch.device("cpu"), torch.float32, out=S(3)),
        act("torch.Tensor.clamp", S(3), -float("inf"), float("inf"), out=S(4)),
        act("torch.full", (2, 2), float("nan"), dtype=torch.float32, out=S(5)),
        act("torch.Tensor.__getitem__", S(5), (slice(None, 1), ..., None), out=S(6)),
        act("torch.Tensor.contiguous", S(6), memory_format=torch.preserve_format, out=S(7)),
        act("torch.Tensor.view", S(4), torch.Size([2, 2]), out=S(8)),
        act("torch.einsum", "ij,jk->ik", S(8), S(8), out=S(9)),
        act("torch.Tensor.to", S(9), torch.complex64, out=S(10)),
        act("torch.add", S(10), 2 + 1j, out=S(11)),
    ]
    program = Program(1, tuple(calls), [S(7), S(11)])
    x = torch.arange(4.0)
    got, expected = to_fx(program, "x", {})(x), Lowered(program).run([x])
    assert torch.equal(got[0], expected[0]) or bool(got[0].isnan().all())
    assert torch.equal(got[1], expected[1])


def test_a_generator_among_the_operands() -> None:
    draw = act("torch.rand", 3, generator=torch.Generator().manual_seed(1), out=S(0))
    expected = torch.rand(3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(to_fx(Program(0, (draw,), S(0)), "", {})(), expected)


def test_packed_sequences_as_results() -> None:
    pack = act("torch._pack_padded_sequence", S(0), S(1), False, out=(S(2), S(3)))
    outputs = tuple.__new__(PackedSequence, (S(2), S(3), None, None))
    module = to_fx(Program(2, (pack,), outputs), ["x", "lengths"], {})
    got = module(torch.arange(6.0).reshape(3, 2), torch.tensor([3, 1]))
    assert type(got) is PackedSequence and got.data.tolist() == [0, 1, 2, 4]


# -------------------------------------------------------------------------------- state and names


def test_state_keeps_its_names_and_its_tensors() -> None:
    state = OrderedDict(
        {
            "layer.weight": nn.Parameter(torch.ones(2)),
            "layer.running": torch.zeros(2),
            "optimizer.0.step": torch.tensor(3.0),
            "unused": torch.ones(1),
        }
    )
    add = act("torch.add", S(1), S(2), out=S(6))
    program = Program(1, (add,), (S(6), S(5)), 4, (torch.full((2,), 7.0),))
    module = to_fx(program, "x", state)
    assert [name for name, _ in module.named_parameters()] == ["layer.weight"]
    held = dict(module.named_parameters()) | dict(module.named_buffers())
    assert all(held[name] is tensor for name, tensor in state.items())
    assert held["constant_0"] is program.constants[0]
    again = to_fx(program, "x", {name: torch.zeros_like(t) for name, t in state.items()})
    again.load_state_dict(module.state_dict())
    assert torch.equal(again(torch.ones(2))[0], module(torch.ones(2))[0])
    assert torch.equal(copy.deepcopy(module)(torch.ones(2))[1], torch.full((2,), 7.0))


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["a", "a.b", "b"], ["a_", "a.b", "b"]),
        (["train", "train_", "graph"], ["train_", "train__", "graph_"]),
        (["x.forward", "x..y", ""], ["x.forward_", "x._.y", "_"]),
        (["constant_0", "0", "class"], ["constant_0", "0", "class_"]),
        (["a-b", "a b", "größe", "a.0\n"], ["a_b", "a_b_", "größe", "a.0_"]),
    ],
)
def test_names_that_a_module_cannot_keep_are_changed(names: list[str], kept: list[str]) -> None:
    state = {name: torch.full((1,), float(index)) for index, name in enumerate(names)}
    found = list(attribute_names(state, 1))
    assert found[:-1] == kept and len(set(found)) == len(found)
    slots = [S(index) for index in range(len(names) + 1)]
    program = Program(0, (), slots, len(names), (torch.full((1,), 9.0),))
    values = to_fx(program, "", state)()
    assert [value.item() for value in values] == [*range(len(names)), 9]


RAN: list[str] = []
HOSTILE = [
    '{quote}, RAN.append("x")) #',
    '{quote}, [].append(__import__("tests.plans.export.test_fx").RAN)) if 1 else (0,{quote}',
    "\\",
    "x\nimport os\n",
    "x = 1; y",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("quote", ['"', "'"])
def test_no_name_of_the_state_becomes_source(text: str, quote: str) -> None:
    """Whatever its name is, the code reads one attribute, and calls nothing but the operation."""
    name = text.format(quote=quote) if "{" in text else text
    add = act("torch.add", S(0), S(1), out=S(2))
    module = to_fx(Program(1, (add,), S(2), state=1), "x", {name: torch.ones(1)})
    assert module(torch.ones(1)).item() == 2
    calls = [node for node in ast.walk(ast.parse(module.code.strip())) if type(node) is ast.Call]
    assert [ast.unparse(call.func) for call in calls] == ["torch.add"]


@pytest.mark.parametrize("name", ["alpha=1)\nRAN.append('x')\n#", "alpha=1, out", ""])
def test_no_keyword_becomes_source(name: str) -> None:
    add = Action(BY_NAME["torch.add"], (S(0), 1), {name: 1}, S(1))
    program = Program(1, (add,), S(1))
    with pytest.raises(ProgramError, match="keywords that are identifiers"):
        to_fx(program, "x", {})
    builder = GraphBuilder(program)  # as if lint had let it through
    builder.values[0] = builder.graph.placeholder("x")
    with pytest.raises(UnsupportedOperation):
        builder.write()


def test_a_keyword_that_python_keeps_for_itself() -> None:
    draw = act("torch.Tensor.random_", S(0), **{"from": 1, "to": 5})
    with pytest.raises(UnsupportedOperation) as caught:
        to_fx(Program(1, (draw,), S(0)), "x", {})
    assert str(caught.value) == (
        "Export has no rule for action 0, torch.Tensor.random_ with 'from' for a keyword: give the "
        "operand by its position."
    )


def test_a_branch_and_a_state_tensor_of_one_name() -> None:
    then = Program(1, (act("torch.neg", S(0), out=S(1)),), (S(1),))
    cond = act("syft.ops.control.cond", S(0), then, then, (S(0),), out=(S(2),))
    program = Program(1, (cond,), S(2), state=1)
    module = to_fx(program, "x", {"then_0": torch.ones(1)})
    assert torch.equal(module(torch.ones(1)), -torch.ones(1))
    assert torch.equal(module.get_buffer("then_0"), torch.ones(1))


@pytest.mark.parametrize("names", [["x"], ["x", "x"], ["x", "y", "z"], {"x": S(0), "y": S(0)}, []])
def test_arguments_that_do_not_name_each_input_once(names: Any) -> None:
    with pytest.raises(ProgramError, match="the program has 2 inputs, and the arguments name"):
        to_fx(Program(2, (), S(0)), names, {})


@pytest.mark.parametrize("name", ["self", "class", "a b", "1"])
def test_names_that_python_cannot_take(name: str) -> None:
    with pytest.raises(ProgramError) as caught:
        to_fx(Program(1, (), S(0)), [name], {})
    assert str(caught.value) == f"{name!r} cannot be the name of an argument"


def test_a_state_of_another_size() -> None:
    with pytest.raises(ProgramError) as caught:
        to_fx(Program(1, (), S(0), state=2), "x", {"only": torch.ones(1)})
    assert str(caught.value) == "the state has 2 tensors, and 1 came"


def test_a_malformed_program_is_refused_before_anything_is_made() -> None:
    with pytest.raises(ProgramError, match="action 0, torch.neg, has at"):
        to_fx(Program(1, (act("torch.neg", S(5), out=S(1)),), S(1)), "x", {})


# -------------------------------------------------------------------------------------- for tools


def test_the_code_is_python_and_says_where_it_was_recorded() -> None:
    lines = ("/home/me/train.py:12", "C:\\me\\train.py:13")
    program = Program(
        1,
        (act("torch.neg", S(0), out=S(1)), act("torch.Tensor.abs", S(1), out=S(2))),
        S(2),
        lines=lines,
    )
    module = to_fx(program, "x", {}, name="Net")
    ast.parse(module.code)
    traces = [node.stack_trace for node in module.graph.nodes if node.stack_trace]
    assert traces == [
        'File "/home/me/train.py", line 12, in plan\n    torch.neg',
        'File "C:\\me\\train.py", line 13, in plan\n    torch.Tensor.abs',
    ]
    assert "# File: /home/me/train.py:12 in plan" in module.print_readable(print_output=False)


def test_a_module_can_be_saved_as_code(tmp_path: Path) -> None:
    state = {"layer.weight": nn.Parameter(torch.ones(2))}
    program = Program(1, (act("torch.mul", S(0), S(1), out=S(2)),), S(2), state=1)
    module = to_fx(program, "x", state)
    torch.save(module, tmp_path / "module.pt")
    back = torch.load(tmp_path / "module.pt", weights_only=False)
    assert torch.equal(back(torch.ones(2)), torch.ones(2))
