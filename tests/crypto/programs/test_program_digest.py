"""Whatever differs between two programs, their digests do."""

from __future__ import annotations

import torch

from syft.program.codec import digest_of
from syft.crypto.programs.share_program import ShareCode, ShareProgram
from syft.program.program import Slot
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
