"""Whatever differs between two programs, their digests do."""

from __future__ import annotations

import pytest
import torch

from syft.crypto.programs.share_program import ShareCode, ShareProgram
from syft.program.codec import digest_of
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from tests.crypto.ring_programs import instruction, program_of


def public(tensor: torch.Tensor, results: int = 1) -> ShareProgram:
    return program_of(0, (instruction(ShareCode.PUBLIC, (tensor,), (0,)),), (0,) * results)


def test_programs_that_differ_have_other_digests() -> None:
    mask = instruction(ShareCode.MASK, (Slot(0), (2,)), (1,))
    programs = [
        program_of(1, (), (0,)),
        program_of(2, (), (0,)),
        program_of(1, (), ()),
        program_of(1, (mask,), (1,)),
        program_of(1, (mask,), (0,)),
        program_of(1, (instruction(ShareCode.ZERO, mask.args, (1,)),), (1,)),
        program_of(1, (instruction(ShareCode.MASK, (Slot(0), (3,)), (1,)),), (1,)),
        public(torch.tensor([1, 2])),
        public(torch.tensor([1, 3])),
        public(torch.tensor([[1, 2]])),
        public(torch.tensor([1, 2]), 0),
    ]
    digests = {digest_of(program, about) for program in programs for about in ((), (1,), ("1",))}
    assert len(digests) == 3 * len(programs)


def test_equal_programs_have_one_digest_whatever_the_strides() -> None:
    dense = torch.arange(6).view(2, 3)
    strided = dense.t().contiguous().t()
    assert dense.stride() != strided.stride()
    assert digest_of(public(dense), ()) == digest_of(public(strided), ())
    assert digest_of(public(torch.empty(0, dtype=torch.int64)), ())


def with_branch(constant: torch.Tensor) -> Program:
    """A program with a branch that has a constant of its own."""
    scaled = Action(BY_NAME["torch.Tensor.mul"], (Slot(0), Slot(1)), {}, Slot(2))
    branch = Program(1, (scaled,), (Slot(2),), 0, (constant,))
    args = Slot(0), branch, branch, (Slot(0),)
    return Program(1, (Action(BY_NAME["syft.ops.control.cond"], args, {}, (Slot(1),)),), (Slot(1),))


def test_the_constants_of_a_branch_count() -> None:
    """Who approves a role that multiplies by zero in a branch approves none that does by one."""
    zero, one, again = (with_branch(torch.full((2,), number)) for number in (0.0, 1.0, 0.0))
    assert digest_of(zero, ()) != digest_of(one, ()), "both have the same form"
    assert digest_of(zero, ()) == digest_of(again, ())


@pytest.mark.parametrize(
    "constant",
    [
        torch.eye(2).to_sparse(),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.nn.Parameter(torch.ones(2)),
    ],
    ids=["sparse", "conjugate", "parameter"],
)
def test_a_program_has_a_digest_whatever_its_constants_are(constant: torch.Tensor) -> None:
    other = constant.detach() * 2
    programs = [Program(0, (), (Slot(0),), 0, (one,)) for one in (constant, other)]
    assert len({digest_of(program, ()) for program in programs}) == 2


def test_a_tensor_among_the_operands_of_a_plan_is_in_its_digest() -> None:
    def adding(*values: int) -> Program:
        add = Action(BY_NAME["torch.add"], (Slot(0), torch.tensor(values)), {}, Slot(1))
        return Program(1, (add,), (Slot(1),))

    assert digest_of(adding(1, 2), ()) == digest_of(adding(1, 2), ())
    assert digest_of(adding(1, 2), ()) != digest_of(adding(1, 3), ())
