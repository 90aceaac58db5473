"""Programs travel as few bytes, and come back equal and checked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings

from syft.program.codec import pack_program
from syft.program.lowered import Lowered
from syft.ops.table import BY_NAME
from syft.program.program import Action, Mode, Program, Slot
from syft.exceptions import NotSendable
from syft.serde import Packer, deserialize, encode_header, serialize
from tests.program.random_programs import Case, cases


def act(name: str, *args: Any, out: Any = None, mode: Mode | None = None, **kwargs: Any) -> Action:
    return Action(BY_NAME[name], args, kwargs, out, mode)


@given(case=cases(modes=True))
@settings(max_examples=100, deadline=None)
def test_a_program_comes_back_equal_and_runs(case: Case) -> None:
    arrived = deserialize(serialize(case.program))
    assert arrived == case.program
    if not any(action.mode for action in case.program.actions):
        expected, got = case.plain(case.values()), Lowered(arrived).run(case.values())
        assert got["last"].equal(expected["last"])


MODES = [
    Mode(grad=False),
    Mode(grad=True),
    Mode(grad=False, inference=True),
    Mode(grad=True, inference=True),
    Mode(grad=True, autocast=(("cpu", torch.bfloat16),)),
    Mode(grad=False, autocast=(("cpu", torch.float16), ("cuda", None))),
]


@pytest.mark.parametrize("mode", MODES, ids=repr)
@pytest.mark.parametrize("kwargs", [{}, {"alpha": 2}])
@pytest.mark.parametrize("out", [None, Slot(1), (Slot(1), (None, Slot(2)), ()), ()], ids=repr)
def test_modes_keywords_and_patterns(mode: Mode, kwargs: dict[str, Any], out: Any) -> None:
    for chosen in (mode, None):
        action = act("torch.Tensor.add", Slot(0), 1, out=out, mode=chosen, **kwargs)
        program = Program(1, (action,), Slot(0))
        assert deserialize(serialize(program)) == program


def test_what_is_usual_takes_no_bytes() -> None:
    neg = act("torch.Tensor.neg", Slot(0), out=Slot(1))
    program = Program(1, (neg,), Slot(1), lines=("train.py:1",))
    add = act("torch.Tensor.add_", Slot(1), 1, alpha=2, mode=Mode(grad=False))
    assert actions_of(program) == ((neg.op, ((40, 0),)),)
    both = Program(1, (neg, add), Slot(1))
    assert actions_of(both) == (
        (neg.op, ((40, 0),)),
        (add.op, ((40, 1), 1), None, ("alpha", 2), 0),
    )


def actions_of(program: Program) -> Any:
    operand: Any = pack_program(program, Packer())
    return operand[4]


def test_twenty_operations_are_a_few_hundred_bytes() -> None:
    names = ("torch.Tensor.add", "torch.Tensor.mul", "torch.nn.functional.relu", "torch.Tensor.sum")
    actions = tuple(
        act(names[i % 4], *(Slot(i + 1), Slot(0))[: 2 - (i % 4 > 1)], out=Slot(i + 2))
        for i in range(20)
    )
    size = len(encode_header(pack_program(Program(2, actions, Slot(21)), Packer())))
    assert size < 240


def test_slots_beyond_those_made_once() -> None:
    actions = tuple(act("torch.neg", Slot(i), out=Slot(i + 1)) for i in range(1500))
    program = Program(1, actions, (Slot(1500), Slot(1023), Slot(1024)))
    assert deserialize(serialize(program)) == program


def test_constants_travel_as_tensors() -> None:
    constants = (torch.arange(3.0), torch.eye(3).to_sparse(), torch.ones(2).to(torch.int8))
    program = Program(0, (), [Slot(0), Slot(2)], constants=constants)
    arrived = deserialize(serialize(program))
    assert arrived == program and arrived.constants[0].equal(constants[0])


def test_what_no_worker_could_read_is_not_sent() -> None:
    with pytest.raises(NotSendable):
        serialize(Program(1, (act("torch.neg", Slot(0), print, out=Slot(1)),), Slot(1)))
    program = Program(1, (), Slot(0))
    for _ in range(20):
        cond = act("syft.ops.control.cond", 1, program, program, [Slot(0)], out=Slot(1))
        program = Program(1, (cond,), Slot(1))
    with pytest.raises(NotSendable, match="nested more than 64 levels"):
        pack_program(program, Packer())
