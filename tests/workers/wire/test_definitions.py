"""What a number of a connection can stand for, as it travels: packed, read, and refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.exceptions import LimitExceeded, MalformedMessage
from syft.ops.table import BY_NAME
from syft.program.program import Action, Mode, Program, Slot
from syft.serde.limits import Limits
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack, unpack_at
from syft.workers.wire.definitions import Definition, Group, InputKind, size_of, unpack_kinds

R, N, V = InputKind
_X, _Y, _Z = Slot(0), Slot(1), Slot(2)


def action(name: str, *args: Any, out: Any = None, **kwargs: Any) -> Action:
    return Action(BY_NAME[name], args, kwargs, out)


GROUPS = [
    Group((), Program(0, (), ())),
    Group((R,), Program(1, (action("torch.neg", _X, out=_Y),), (_Y,))),
    Group((R, N), Program(2, (action("torch.mul", _X, _Y, out=_Z),), (None, _Z, _X))),
    Group((V, R), Program(2, (action("torch.add", _X, _Y, alpha=2, out=_Z),), (_Z, None))),
]
NEGATIVE: Any = pack(GROUPS[1], Packer())
PROGRAM = NEGATIVE[2]
CONSTANT = (41, 1, 0, (pack(torch.empty(0, device="meta"), Packer()),), (), (2, (40, 0)))


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.kinds)
def test_a_group_arrives_as_it_was(group: Group) -> None:
    packer = Packer()
    operand = pack(group, packer)
    assert packer.buffers == []
    assert operand[:2] == (42, bytes(group.kinds)) and type(operand[1]) is bytes
    arrived = unpack(operand, Unpacker([]))
    assert type(arrived) is Group and isinstance(arrived, Definition)
    assert arrived.kinds == group.kinds and set(map(type, arrived.kinds)) <= {InputKind}
    assert arrived.program == group.program
    assert arrived.actions == group.actions, "both ends count the same"
    assert pack(arrived, Packer()) == operand


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x01\x02", b"\x02" * 100], ids=repr)
def test_kinds_are_bytes(data: bytes) -> None:
    assert bytes(unpack_kinds(data)) == data


def giving(output: Any) -> Any:
    """A group that gives something else than a slot."""
    return (42, b"\x00", (41, 1, 0, (), (), (2, output)))


@pytest.mark.parametrize(
    "operand, path, text",
    [
        ((42,), "", "2 fields after type code 42"),
        ((42, b"\x00"), "", "2 fields after type code 42"),
        ((42, b"\x00", PROGRAM, 0), "", "2 fields after type code 42"),
        ((42, "\x00", PROGRAM), ".kinds", "expected bytes"),
        ((42, [0], PROGRAM), ".kinds", "expected bytes"),
        ((42, None, PROGRAM), ".kinds", "expected bytes"),
        ((42, b"\x03", PROGRAM), ".kinds", "expected kinds of inputs, from 0 to 2, got 3"),
        ((42, b"\x00\xff", PROGRAM), ".kinds", "expected kinds of inputs, from 0 to 2, got 255"),
        ((42, b"\x00", 0), ".program", "expected a program, got an int"),
        ((42, b"\x00", (2, 1)), ".program", "expected a program, got an array of 2"),
        ((42, b"\x00", (99, 1)), ".program", "type code"),
        ((42, b"", PROGRAM), ".program", "0 inputs and no state, got 1 inputs and 0 state"),
        ((42, b"\x00\x00", PROGRAM), ".program", "2 inputs and no state, got 1 inputs and 0"),
        ((42, b"\x00", (41, 0, 1, *PROGRAM[3:])), ".program", "got 0 inputs and 1 state tensors"),
        ((42, b"\x00", CONSTANT), ".program.constants", "none: what goes along is an input, got 1"),
        ((42, b"\x00", (*PROGRAM[:5], 5)), ".program.outputs", "a flat tuple of slots"),
        ((42, b"\x00", (*PROGRAM[:5], (40, 0))), ".program.outputs", "a flat tuple of slots"),
        ((42, b"\x00", (*PROGRAM[:5], (3, (40, 0)))), ".program.outputs", "a flat tuple of slots"),
        (giving(1.5), ".program.outputs[0]", "expected a slot or nil"),
        (giving((2, (40, 0))), ".program.outputs[0]", "expected a slot or nil"),
    ],
    ids=repr,
)
def test_what_is_no_group_is_refused(operand: Any, path: str, text: str) -> None:
    for place in ("", ".define"):
        with pytest.raises(MalformedMessage) as caught:
            unpack_at(operand, Unpacker([]), place)
        assert caught.value.path.startswith(f"${place}{path}") and text in str(caught.value)
        del caught


def test_a_group_has_as_many_inputs_as_a_program_may_have() -> None:
    with pytest.raises(LimitExceeded) as caught:
        unpack_at((42, bytes(10**6), PROGRAM), Unpacker([]), ".define")
    assert (caught.value.path, caught.value.limit) == ("$.define.kinds", "max_actions")
    limits = Limits(max_actions=3)
    assert unpack_kinds(bytes(3), limits) == (R, R, R)
    with pytest.raises(LimitExceeded, match="max_actions is 3, got 4"):
        unpack_kinds(bytes(4), limits)


def test_whatever_takes_memory_counts() -> None:
    def size(*operands: Any, **kwargs: Any) -> int:
        return size_of(Program(1, (action("torch.add", *operands, **kwargs),), ()))

    plain = size(_X)
    assert size(_X, "x" * 1000) > plain + 1000
    assert size(_X, 1 << 64000) > plain + 1000
    assert size(_X, [()] * 1000) > plain + 1000
    assert size(_X, **{"a" * 1000: 1}) > plain + 1000
    assert size(_X, b"x" * 1000) > plain + 1000
    assert size(_X, slice([()] * 1000)) > plain + 1000
    assert size(_X, out=tuple(map(Slot, range(1, 1001)))) >= plain + 1000
    branch = Program(1, (), (1,) * 1000)
    cond = action("syft.ops.control.cond", 1, branch, branch, (_X,))
    assert size_of(Program(1, (cond,), ())) > plain + 2000
    cast = Action(BY_NAME["torch.neg"], (_X,), {}, None, Mode(True, autocast=(("cpu", None),)))
    bare = Action(BY_NAME["torch.neg"], (_X,), {}, None)
    assert size_of(Program(1, (cast,), ())) == size_of(Program(1, (bare,), ())) + 3
    nothing = Program(1000, (), ())
    assert Group((R,) * 1000, nothing).actions == size_of(nothing) + 1000
