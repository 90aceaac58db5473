"""Lint passes what can run, and names the action that cannot."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch.overrides import TorchFunctionMode

from syft.exceptions import MalformedMessage, ProgramError
from syft.program.lint import MOST_OPERANDS, check, lint
from syft.ops.table import BY_NAME, FUNCTIONS, NAMES, NUMBERS
from syft.program.program import Action, Mode, Program, Slot
from tests.program.random_programs import Case, cases

HAS_VALUE = "a slot that has its value already"


def act(name: str, *args: Any, out: Any = None, mode: Any = None, **kwargs: Any) -> Action:
    return Action(BY_NAME[name], args, kwargs, out, mode)


ADD, NEG = "torch.Tensor.add", "torch.neg"
ABSENT = next(
    name
    for name, function in zip(NAMES, FUNCTIONS, strict=True)
    if function is None and not name.startswith("syft.")
)
"""A numbered op that this torch does not have."""

COND, LOOP = "syft.ops.control.cond", "syft.ops.control.while_loop"
SAME = Program(1, (), Slot(0))


@given(case=cases(modes=True))
@settings(max_examples=100, deadline=None)
def test_what_runs_passes(case: Case) -> None:
    lint(case.program)


class Colour(enum.IntEnum):
    RED = 1


PAIR: Any = torch.return_types.max((1, 2))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "operand",
    [None, True, 3, 2.5, 1j, "x", b"x", ..., int, range(3), torch.Size([1]), torch.float32]
    + [torch.device("cpu"), torch.strided, torch.channels_last, torch.per_tensor_affine]
    + [torch.Generator(), torch.nn.attention.SDPBackend.MATH, Colour.RED, np.float32(2), np.int8(1)]
    + [[1, (Slot(0), {"a": Slot(0)})], slice(Slot(0), None), PAIR],
    ids=lambda operand: repr(operand).partition(" at 0x")[0],  # each process has other addresses
)
def test_plain_values_pass(operand: Any) -> None:
    lint(Program(1, (act(ADD, Slot(0), operand, alpha=operand, out=Slot(1)),), [operand, Slot(1)]))


def nested(levels: int) -> Program:
    program = SAME
    for _ in range(levels):
        program = Program(1, (act(COND, 1, program, program, [Slot(0)], out=Slot(1)),), Slot(1))
    return program


def GIVES(outputs: Any) -> Program:
    return Program(1, (), outputs)


SIMPLE = "a slot or a plain value"
TWICE = (("cpu", None), ("cuda", None), ("cpu", torch.bfloat16))

PROBLEMS: dict[str, tuple[Program, str, str, str]] = {
    "forward reference": (
        Program(1, (act(ADD, Slot(0), Slot(1), out=Slot(1)),), Slot(1)),
        "$.actions[0].args[1]",
        HAS_VALUE,
        "Slot(1)",
    ),
    "negative slot": (
        Program(1, (act(ADD, Slot(0), Slot(-1), out=Slot(1)),), Slot(1)),
        "$.actions[0].args[1]",
        HAS_VALUE,
        "Slot(-1)",
    ),
    "huge slot": (
        Program(1, (act("torch.stack", [Slot(0), Slot(10**18)], out=Slot(1)),), Slot(1)),
        "$.actions[0].args[0][1]",
        HAS_VALUE,
        "Slot(1000000000000000000)",
    ),
    "in a keyword": (
        Program(1, (act(ADD, Slot(0), 1, alpha=Slot(9), out=Slot(1)),), Slot(1)),
        "$.actions[0].kwargs['alpha']",
        HAS_VALUE,
        "Slot(9)",
    ),
    "in a dict": (
        Program(1, (act(ADD, Slot(0), {"a": Slot(9)}, out=Slot(1)),), Slot(1)),
        "$.actions[0].args[1]['a']",
        HAS_VALUE,
        "Slot(9)",
    ),
    "in a slice": (
        Program(1, (act(ADD, Slot(0), slice(1, Slot(9)), out=Slot(1)),), Slot(1)),
        "$.actions[0].args[1][1]",
        HAS_VALUE,
        "Slot(9)",
    ),
    "in the outputs": (Program(1, (), (1, Slot(2))), "$.outputs[1]", HAS_VALUE, "Slot(2)"),
    "alone in the outputs": (Program(1, (), Slot(1)), "$.outputs", HAS_VALUE, "Slot(1)"),
    "the same result twice": (
        Program(1, (act(NEG, Slot(0), out=Slot(1)), act(NEG, Slot(0), out=Slot(1))), Slot(1)),
        "$.actions[1].out",
        "Slot(2)",
        "Slot(1)",
    ),
    "a gap": (
        Program(1, (act("torch.sort", Slot(0), out=(Slot(1), Slot(3))),), Slot(1)),
        "$.actions[0].out[1]",
        "Slot(2)",
        "Slot(3)",
    ),
    "a result that is a number": (
        Program(1, (act("torch.sort", Slot(0), out=(None, 3)),), Slot(0)),
        "$.actions[0].out[1]",
        "a slot, a tuple of these or None",
        "an int",
    ),
    "an unknown op": (
        Program(1, (Action(10**6, (Slot(0),), {}, Slot(1)),), Slot(1)),
        "$.actions[0].op",
        "an op of the table that this torch has",
        "op 1000000",
    ),
    "an op that is no number": (
        Program(1, (Action("os.system", ("ls",), {}, Slot(1)),), Slot(1)),  # type: ignore[arg-type]
        "$.actions[0].op",
        "an op of the table that this torch has",
        "a str",
    ),
    "an op of another torch": (
        Program(1, (act(ABSENT, Slot(0), out=Slot(1)),), Slot(1)),
        "$.actions[0].op",
        "an op of the table that this torch has",
        ABSENT,
    ),
    "too many operands": (
        Program(1, (act("torch.Tensor.shape.__get__", *[Slot(0)] * 3, out=Slot(1)),), Slot(1)),
        "$.actions[0].args",
        "at most 2 operands",
        "3",
    ),
    "too many operands for any": (
        Program(1, (act(NEG, *[Slot(0)] * (MOST_OPERANDS + 1), out=Slot(1)),), Slot(1)),
        "$.actions[0].args",
        f"at most {MOST_OPERANDS} operands",
        str(MOST_OPERANDS + 1),
    ),
    "too few operands": (
        Program(1, (act("torch.nn.functional.softmax", out=Slot(1)),), Slot(1)),
        "$.actions[0].args",
        "the operand 'input'",
        "0 operands without it",
    ),
    "an unknown keyword": (
        Program(1, (act("torch.nn.functional.softmax", Slot(0), axes=1, out=Slot(1)),), Slot(1)),
        "$.actions[0].args",
        "keywords that the function has",
        "'axes'",
    ),
    "a tensor among the operands": (
        Program(1, (act(ADD, Slot(0), torch.ones(1), out=Slot(1)),), Slot(1)),
        "$.actions[0].args[1]",
        "a slot or a plain value",
        "a tensor (its place is among the constants)",
    ),
    "a function": (
        Program(1, (act(ADD, Slot(0), print, out=Slot(1)),), Slot(1)),
        "$.actions[0].args[1]",
        "a slot or a plain value",
        "a builtin_function_or_method",
    ),
    "a program where none is taken": (
        Program(1, (act(ADD, Slot(0), SAME, out=Slot(1)),), Slot(1)),
        "$.actions[0].args[1]",
        "a slot or a plain value",
        "a Program",
    ),
    "a program among the outputs": (
        Program(1, (), [SAME]),
        "$.outputs[0]",
        "a slot or a plain value",
        "a Program",
    ),
    "a constant that is no tensor": (
        Program(1, (), Slot(0), constants=(1,)),  # type: ignore[arg-type]
        "$.constants[0]",
        "a tensor",
        "an int",
    ),
    "a text in arithmetic": (
        Program(1, (act("syft.ops.numbers.add", Slot(0), "1", out=Slot(1)),), Slot(1)),
        "$.actions[0].args[1]",
        "a slot or a number",
        "a str",
    ),
    "keywords in arithmetic": (
        Program(1, (act("syft.ops.numbers.neg", a=Slot(0), out=Slot(1)),), Slot(1)),
        "$.actions[0].kwargs",
        "no keywords",
        "1",
    ),
    "a number op with one operand": (
        Program(1, (act("syft.ops.numbers.add", Slot(0), out=Slot(1)),), Slot(1)),
        "$.actions[0].args",
        "the operand 'b'",
        "1 operands without it",
    ),
    "an expectation of no relation": (
        Program(1, (act("syft.ops.numbers.expect", "near", Slot(0), 2, True),), Slot(0)),
        "$.actions[0].args[0]",
        "a relation",
        "a str",
    ),
    "an expectation of a number": (
        Program(1, (act("syft.ops.numbers.expect", 5, Slot(0), 2, True),), Slot(0)),
        "$.actions[0].args[0]",
        "a relation",
        "an int",
    ),
    "an expectation of a text": (
        Program(1, (act("syft.ops.numbers.expect", "lt", Slot(0), "2", True),), Slot(0)),
        "$.actions[0].args[2]",
        "a slot or a number",
        "a str",
    ),
    "a condition that is a text": (
        Program(1, (act(COND, "yes", SAME, SAME, [Slot(0)], out=Slot(1)),), Slot(1)),
        "$.actions[0].args[0]",
        "a slot or a number",
        "a str",
    ),
    "a condition without value": (
        Program(1, (act(COND, Slot(5), SAME, SAME, [Slot(0)], out=Slot(1)),), Slot(1)),
        "$.actions[0].args[0]",
        HAS_VALUE,
        "Slot(5)",
    ),
    "a branch that is none": (
        Program(1, (act(COND, 1, SAME, 3, [Slot(0)], out=Slot(1)),), Slot(1)),
        "$.actions[0].args[2]",
        "a program",
        "an int",
    ),
    "a branch of other inputs": (
        Program(1, (act(COND, 1, SAME, SAME, [], out=Slot(1)),), Slot(1)),
        "$.actions[0].args[1]",
        "a program of 0 inputs",
        "1 inputs and 0 values of its own",
    ),
    "a branch with constants": (
        Program(
            1,
            (
                act(
                    COND,
                    1,
                    SAME,
                    Program(1, (), Slot(0), constants=(torch.ones(1),)),
                    [Slot(0)],
                    out=Slot(1),
                ),
            ),
            Slot(1),
        ),
        "$.actions[0].args[2]",
        "a program of 1 inputs",
        "1 inputs and 1 values of its own",
    ),
    "operands that are no list": (
        Program(1, (act(COND, 1, SAME, SAME, Slot(0), out=Slot(1)),), Slot(1)),
        "$.actions[0].args[3]",
        "a list of operands",
        "a Slot",
    ),
    "a wrong action in a branch": (
        Program(
            1,
            (act(COND, 1, SAME, Program(1, (), Slot(3)), (Slot(0),), out=Slot(1)),),
            Slot(1),
        ),
        "$.actions[0].args[2].outputs",
        HAS_VALUE,
        "Slot(3)",
    ),
    "a body that gives one value": (
        Program(1, (act(LOOP, SAME, SAME, [Slot(0)], out=(Slot(1),)),), Slot(1)),
        "$.actions[0].args[1].outputs",
        "1 values for 1 operands",
        "a Slot",
    ),
    **{
        f"a branch with {what}": (
            Program(1, (act(COND, 1, SAME, then, operands, out=out),), Slot(0)),
            f"$.actions[0].{path}",
            expected,
            got,
        )
        for what, then, operands, out, path, expected, got in (
            ("a tuple in its tuple", GIVES(((Slot(0),),)), [Slot(0)], None)
            + ("args[2].outputs[0]", SIMPLE, "an array of 1"),
            ("a list for one slot", GIVES([Slot(0)]), [Slot(0)], Slot(1))
            + ("out", "a tuple of 1 slots", "a Slot"),
            ("a dict", GIVES({"a": Slot(0)}), [Slot(0)], None)
            + ("args[2].outputs", SIMPLE, "a map"),
            ("a list among its operands", SAME, [[Slot(0), Slot(0)]], None)
            + ("args[3][0]", SIMPLE, "an array of 2"),
            ("a slice among its operands", SAME, (slice(Slot(0)),), None)
            + ("args[3][0]", SIMPLE, "a slice"),
            ("a tuple for one slot", GIVES((Slot(0), Slot(0))), [Slot(0)], Slot(1))
            + ("out", "a tuple of 2 slots", "a Slot"),
            ("a value for a tuple", SAME, [Slot(0)], (Slot(1),))
            + ("out", "a slot or None", "an array of 1"),
        )
    },
    **{
        f"a loop with {what}": (
            Program(1, (act(LOOP, GIVES(answer), GIVES(outputs), [Slot(0)], out=out),), Slot(0)),
            f"$.actions[0].{path}",
            expected,
            got,
        )
        for what, answer, outputs, out, path, expected, got in (
            ("a tuple for an answer", (Slot(0),), (Slot(0),), None)
            + ("args[0].outputs", SIMPLE, "an array of 1"),
            ("a body of lists", Slot(0), ([Slot(0), Slot(0)],), None)
            + ("args[1].outputs[0]", SIMPLE, "an array of 2"),
            ("its values in one slot", Slot(0), (Slot(0),), Slot(1))
            + ("out", "a tuple of 1 slots", "a Slot"),
            ("a value taken apart", Slot(0), (Slot(0),), ((Slot(1),),))
            + ("out[0]", SIMPLE, "an array of 1"),
            ("too many results", Slot(0), (Slot(0),), (Slot(1), Slot(2)))
            + ("out", "a tuple of 1 slots", "an array of 2"),
        )
    },
    **{
        f"the keyword {shown}": (
            Program(1, (Action(BY_NAME[ADD], (Slot(0), 1), {keyword: 1}, Slot(1)),), Slot(1)),
            "$.actions[0].kwargs",
            "keywords that are identifiers",
            shown,
        )
        for keyword, shown in (
            ("alpha=1)\nopen('x', 'w')\n#", repr("alpha=1)\nopen('x', 'w')\n#")),
            ("", "''"),
            ("a b", "'a b'"),
            ("1" * 100, repr("1" * 40 + "...")),
            (3, "an int"),
        )
    },
    "a device twice": (
        Program(1, (act(NEG, Slot(0), out=Slot(1), mode=Mode(True, autocast=TWICE)),), Slot(1)),
        "$.actions[0].mode.autocast",
        "each device once",
        "cpu twice",
    ),
    "too many levels": (
        nested(9),
        "$" + ".actions[0].args[1]" * 9,
        "at most 8 levels of programs",
        "more",
    ),
    "a mode that is none": (
        Program(1, (act(NEG, Slot(0), out=Slot(1), mode=True),), Slot(1)),
        "$.actions[0].mode",
        "a Mode of booleans",
        "a bool",
    ),
    "a mode of numbers": (
        Program(1, (act(NEG, Slot(0), out=Slot(1), mode=Mode(grad=1)),), Slot(1)),  # type: ignore
        "$.actions[0].mode",
        "a Mode of booleans",
        "a Mode",
    ),
    "autocast of a strange device": (
        Program(
            1,
            (act(NEG, Slot(0), out=Slot(1), mode=Mode(True, autocast=(("xla", None),))),),
            Slot(1),
        ),
        "$.actions[0].mode.autocast",
        "cpu or cuda, and a dtype",
        "'xla'",
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems(name: str) -> None:
    program, path, expected, got = PROBLEMS[name]
    with pytest.raises(MalformedMessage) as caught:
        check(program)
    assert caught.value.args == (path, expected, got)
    with pytest.raises(ProgramError) as told:
        lint(program)
    assert str(told.value).endswith(f"{got}, where {expected} was expected")
    if path.startswith("$.actions"):
        index = int(path.split("[")[1].split("]")[0])
        assert str(told.value).startswith(f"action {index}, ") and ", has at ." in str(told.value)
    else:
        assert str(told.value).startswith(f"the program has at {path[1:]}: ")


def test_branches_and_loops_pass() -> None:
    body = Program(2, (act(NEG, Slot(0), out=Slot(2)),), (Slot(2), Slot(1)))
    test = Program(2, (), Slot(1))
    loop = act(LOOP, test, body, (Slot(0), 1), out=(Slot(1), None))
    branch = act(COND, Slot(1), SAME, SAME, [Slot(0)], out=Slot(2))
    lint(Program(1, (loop, branch), [Slot(1), Slot(2)]))
    pair = Program(1, (), (Slot(0), 2.5))
    lint(Program(1, (act(COND, 1, pair, pair, (Slot(0),), out=(Slot(1), None)),), Slot(1)))
    lint(Program(1, (act(COND, 1, pair, SAME, (Slot(0),)),), Slot(0)))
    lint(Program(1, (act("torch.Tensor.random_", Slot(0), **{"from": 1}),), Slot(0)))
    lint(nested(8))


class Counting(TorchFunctionMode):
    """Asks of every call of torch's own modules whether it would have passed."""

    def __init__(self) -> None:
        self.calls = 0
        self.refused: set[str] = set()
        super().__init__()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        number = NUMBERS.get(func)
        if number is not None:
            self.calls += 1
            plain = tuple(0 for _ in args)
            named = {name: 0 for name in kwargs or {}}
            try:
                check(Program(0, (Action(number, plain, named, None),), None))
            except MalformedMessage as error:
                self.refused.add(f"{NAMES[number]}: {error}")
        return func(*args, **(kwargs or {}))


def test_no_call_of_torch_has_too_many_operands() -> None:
    with Counting() as counting:
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16)
        layer(torch.ones(3, 1, 8)).sum().backward()
        torch.nn.Conv2d(1, 2, 3)(torch.ones(1, 1, 5, 5)).relu().view(-1)
        torch.nn.LSTM(3, 4)(torch.ones(2, 1, 3))
        torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1]))
        torch.einsum("ij,jk->ik", torch.ones(2, 2), torch.ones(2, 2))
        torch.nn.init.xavier_normal_(torch.ones(3, 3))
        torch.ones(2, 2)[0, 1] = torch.ones(2).norm(dim=0).item()
        optimizer = torch.optim.Adam(layer.parameters())
        optimizer.step()
        torch.meshgrid(torch.ones(2), torch.ones(3), indexing="ij")
    assert counting.calls > 200 and counting.refused == set()
