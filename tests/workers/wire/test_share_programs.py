"""Share programs on the wire: what comes back, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.crypto.programs.share_program import ShareCode, ShareProgram
from syft.program.program import Slot
from syft.crypto.programs.share_lint import lint
from syft.exceptions import LimitExceeded, MalformedMessage, ProgramError
from syft.serde.limits import Limits
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack
from syft.workers.wire.references import Reference
from tests.crypto.ring_programs import instruction, program_of

SLOTS = st.integers(0, 2**20)
ARGUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.builds(Slot, SLOTS),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


@st.composite
def programs(draw: Any) -> ShareProgram:
    """Programs whose results have the numbers that they must, and that are wrong otherwise."""
    inputs, steps = draw(SLOTS.filter(lambda count: count < 1000)), []
    slot = inputs
    for count in draw(st.lists(st.integers(0, 3), max_size=4)):
        args = draw(st.lists(ARGUMENTS, max_size=4).map(tuple))
        outs = tuple(range(slot, slot + count))
        steps.append(instruction(draw(st.sampled_from(ShareCode)), args, outs))
        slot += count
    return program_of(inputs, steps, (draw(SLOTS),))


def returned(value: Any, **limits: Any) -> Any:
    packer = Packer()
    operand = pack(value, packer)
    return unpack(operand, Unpacker(packer.buffers, Limits(**limits), worker=Resolving()))


class Resolving:
    """A worker that would resolve any reference."""

    def resolve(self, id: int, depth: int = 0) -> torch.Tensor:
        return torch.zeros(1, dtype=torch.int64)


@given(programs())
def test_a_program_comes_back_as_it_was(program: ShareProgram) -> None:
    assert returned(program) == program


def test_tensors_texts_and_dtypes_travel_in_it() -> None:
    tensor = torch.arange(6).view(2, 3)
    args = (7, (Slot(0), tensor), (("dtype", torch.int64),))
    program = program_of(1, (instruction(ShareCode.LOCAL, args, (1,)),), (1,))
    back = returned(program)
    assert torch.equal(back.constants[0], tensor) and back.actions == program.actions


@pytest.mark.parametrize(
    "argument",
    [
        Reference(5),
        (1, (Reference(5),)),
        [1],
        {1: 2},
        b"bytes",
        torch.ones(2, requires_grad=True),
        torch.eye(2).to_sparse(),
        program_of(0, (), ()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nothing_else_is_an_argument(argument: Any) -> None:
    program = program_of(0, (instruction(ShareCode.PUBLIC, (argument,), (0,)),), (0,))
    with pytest.raises((MalformedMessage, ProgramError)):
        lint(returned(program), 2)


@pytest.mark.parametrize(
    "operand",
    [
        (70,),
        (70, 1, [], []),
        (70, 1, 0, [], [], [2], []),
        (70, "1", 0, [], [], [2]),
        (70, True, 0, [], [], [2]),
        (70, -1, 0, [], [], [2]),
        (70, 1, 1, [], [], [2]),
        (70, 1, 0, 5, [], [2]),
        (70, 1, 0, [5], [], [2]),
        (70, 1, 0, [[0, 5]], [], [2]),
        (70, 1, 0, [], 5, [2]),
        (70, 1, 0, [], [5], [2]),
        (70, 1, 0, [], [[1, []]], [2]),
        (70, 1, 0, [], [[0, []]], [2]),
        (70, 1, 0, [], [[99, []]], [2]),
        (70, 1, 0, [], [[True, []]], [2]),
        (70, 1, 0, [], [["x", []]], [2]),
        (70, 1, 0, [], [[1, 5]], [2]),
        (70, 1, 0, [], [[1, [], 1.5]], [2]),
        (70, 1, 0, [], [], 5),
        (70, 1, 0, [], [], [40, 0]),
        (70, 1, 0, [], [], [2, None]),
        (70, 1, 0, [], [], [2, [40, 0], [40, 0]]),
        (70, 1, 0, [], [], [2, [40, 1]]),
        (71, 1),
    ],
    ids=repr,
)
def test_what_is_no_program_is_refused(operand: Any) -> None:
    with pytest.raises((MalformedMessage, ProgramError)):
        lint(unpack(operand, Unpacker([])), 2)


def test_the_number_of_instructions_is_limited() -> None:
    program = program_of(0, (instruction(ShareCode.LOCAL, (), ()),) * 20, ())
    assert len(returned(program, max_items=40).actions) == 20
    with pytest.raises(LimitExceeded):
        returned(program, max_items=10)
