"""Share programs on the wire: what comes back, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.crypto.programs.share_program import Instruction, ShareCode, ShareProgram, ShareSlot
from syft.exceptions import LimitExceeded, MalformedMessage
from syft.serde.limits import Limits
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack
from syft.workers.wire.references import Reference

SLOTS = st.integers(0, 2**20)
ARGUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.builds(ShareSlot, SLOTS),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)
STEPS = st.builds(
    Instruction,
    st.sampled_from(ShareCode),
    st.lists(ARGUMENTS, max_size=4).map(tuple),
    st.lists(SLOTS, max_size=3).map(tuple),
)


def returned(value: Any, **limits: Any) -> Any:
    packer = Packer()
    operand = pack(value, packer)
    return unpack(operand, Unpacker(packer.buffers, Limits(**limits), worker=Resolving()))


class Resolving:
    """A worker that would resolve any reference."""

    def resolve(self, id: int, depth: int = 0) -> torch.Tensor:
        return torch.zeros(1, dtype=torch.int64)


@given(st.builds(ShareProgram, SLOTS, st.lists(STEPS, max_size=4).map(tuple), st.tuples(SLOTS)))
def test_a_program_comes_back_as_it_was(program: ShareProgram) -> None:
    assert returned(program) == program


def test_tensors_texts_and_dtypes_travel_in_it() -> None:
    tensor = torch.arange(6).view(2, 3)
    args = (7, (ShareSlot(0), tensor), (("dtype", torch.int64),))
    program = ShareProgram(1, (Instruction(ShareCode.LOCAL, args, (1,)),), (1,))
    (step,) = returned(program).instructions
    assert torch.equal(step.args[1][1], tensor) and step.args[2] == (("dtype", torch.int64),)


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
        ShareProgram(0, (), ()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nothing_else_is_an_argument(argument: Any) -> None:
    program = ShareProgram(0, (Instruction(ShareCode.PUBLIC, (argument,), (0,)),), (0,))
    with pytest.raises(MalformedMessage):
        returned(program)


@pytest.mark.parametrize(
    "operand",
    [
        (70,),
        (70, 1, [], [], []),
        (70, "1", [], []),
        (70, True, [], []),
        (70, 1, 5, []),
        (70, 1, [], 5),
        (70, 1, [], [None]),
        (70, 1, [5], []),
        (70, 1, [[1, []]], []),
        (70, 1, [[0, [], []]], []),
        (70, 1, [[99, [], []]], []),
        (70, 1, [[True, [], []]], []),
        (70, 1, [[1, 5, []]], []),
        (70, 1, [[1, [], [1.5]]], []),
        (71,),
        (71, -1),
        (71, "x"),
        (71, 1, 2),
    ],
    ids=repr,
)
def test_what_is_no_program_is_refused(operand: Any) -> None:
    with pytest.raises(MalformedMessage):
        unpack(operand, Unpacker([]))


def test_the_number_of_instructions_is_limited() -> None:
    program = ShareProgram(0, (Instruction(ShareCode.LOCAL, (), ()),) * 20, ())
    assert len(returned(program, max_items=40).instructions) == 20
    with pytest.raises(LimitExceeded):
        returned(program, max_items=10)
