"""Whatever differs between two programs, their digests do."""

from __future__ import annotations

import torch

from syft.crypto.programs.program_digest import digest_of
from syft.crypto.programs.share_program import Instruction, ShareCode, ShareProgram, ShareSlot


def public(tensor: torch.Tensor, out: int = 0) -> ShareProgram:
    return ShareProgram(0, (Instruction(ShareCode.PUBLIC, (tensor,), (out,)),), (out,))


def test_programs_that_differ_have_other_digests() -> None:
    mask = Instruction(ShareCode.MASK, (ShareSlot(0), (2,)), (1,))
    programs = [
        ShareProgram(1, (), (0,)),
        ShareProgram(2, (), (0,)),
        ShareProgram(1, (), ()),
        ShareProgram(1, (mask,), (1,)),
        ShareProgram(1, (mask,), (0,)),
        ShareProgram(1, (Instruction(ShareCode.ZERO, mask.args, (1,)),), (1,)),
        ShareProgram(1, (Instruction(ShareCode.MASK, (ShareSlot(0), (3,)), (1,)),), (1,)),
        public(torch.tensor([1, 2])),
        public(torch.tensor([1, 3])),
        public(torch.tensor([[1, 2]])),
        public(torch.tensor([1, 2]), 1),
    ]
    digests = {digest_of(program, about) for program in programs for about in ((), (1,), ("1",))}
    assert len(digests) == 3 * len(programs)


def test_equal_programs_have_one_digest_whatever_the_strides() -> None:
    dense = torch.arange(6).view(2, 3)
    strided = dense.t().contiguous().t()
    assert dense.stride() != strided.stride()
    assert digest_of(public(dense), ()) == digest_of(public(strided), ())
    assert digest_of(public(torch.empty(0, dtype=torch.int64)), ())
