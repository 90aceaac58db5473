"""Share programs that come again are known, and are what has come all the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.crypto.programs import share_lint
from syft.crypto.programs.local_operations import number_of
from syft.crypto.programs.share_lint import lint
from syft.crypto.programs.share_program import ShareCode, ShareProgram
from syft.program.program import Action, Slot
from syft.exceptions import MalformedMessage, ProgramError
from syft.serde.frame import decode_header, encode_header
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack
from syft.workers.wire import share_programs
from syft.workers.wire.references import REF
from tests.crypto.ring_programs import instruction, program_of

ADD = number_of(torch.ops.aten.add.Tensor)


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_programs, "_KNOWN", type(share_programs._KNOWN)())


def plus(plain: torch.Tensor, results: tuple[int, ...] = (2,)) -> ShareProgram:
    public = instruction(ShareCode.PUBLIC, (plain,), (1,))
    both = instruction(ShareCode.LOCAL, (ADD, (Slot(0), Slot(1)), ()), (2,))
    return program_of(1, (public, both), results)


def carried(program: ShareProgram) -> ShareProgram:
    """The program as a worker gets it."""
    packer = Packer()
    operand = decode_header(encode_header(pack(program, packer)))
    unpacker = Unpacker([buffer.clone() for buffer in packer.buffers])
    arrived: Any = unpack(operand, unpacker)
    unpacker.finish()
    return arrived  # type: ignore[no-any-return]


@pytest.mark.parametrize("size", [(), (3,), (100, 100)])
def test_what_comes_again_has_its_own_tensors(size: tuple[int, ...]) -> None:
    for value in (4, 5, 4):
        arrived = carried(plus(torch.full(size, value)))
        assert torch.equal(arrived.constants[0], torch.full(size, value))
        assert arrived.actions == plus(torch.tensor(0)).actions
        assert (arrived.inputs, arrived.results) == (1, (3,))
    assert len(share_programs._KNOWN) == 1


def test_programs_of_other_tensors_and_results_are_others() -> None:
    for program in (plus(torch.ones(2).long()), plus(torch.ones(3).long())):
        assert carried(program).constants[0].shape == program.constants[0].shape
    assert carried(plus(torch.ones(2).long(), (2, 1))).results == (3, 2)
    assert len(share_programs._KNOWN) == 3


def test_what_is_known_keeps_no_tensor() -> None:
    carried(plus(torch.ones(3).long()))
    (known,) = share_programs._KNOWN.values()
    assert known.constants == ()


def test_what_comes_again_is_checked_once_and_reveals_for_each_number_of_parties(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[int] = []
    check = share_lint.ShareScope.check

    def counted(self: Any, one: Action) -> None:
        check(self, one)
        checked.append(self.place)

    monkeypatch.setattr(share_lint.ShareScope, "check", counted)
    for _ in range(3):
        lint(carried(plus(torch.tensor(1))), 2)
    assert checked == [0, 1]
    reveal = instruction(ShareCode.REVEAL, (Slot(0), 2), (1,))
    lint(carried(program_of(1, (reveal,), (1,))), 3)
    with pytest.raises(ProgramError, match="party 2 of 2"):
        lint(carried(program_of(1, (reveal,), (1,))), 2)


def test_what_is_wrong_is_refused_as_often_as_it_comes() -> None:
    for _ in range(3):
        with pytest.raises(ProgramError, match="Slot.8."):
            lint(carried(plus(torch.tensor(1), (7,))), 2)
        with pytest.raises(ProgramError, match="int64"):
            lint(carried(plus(torch.tensor(1.0))), 2)
        with pytest.raises(MalformedMessage, match="stands on its own"):
            step = [int(ShareCode.PUBLIC), [[REF, 5]]]
            share_programs.unpack_share_program([70, 0, 0, [], [step], [2]], Unpacker([]))


def test_few_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_programs, "_MOST_KNOWN", 2)
    for size in range(5):
        carried(plus(torch.ones(size).long()))
    assert len(share_programs._KNOWN) == 2
    monkeypatch.setattr(share_programs, "_LONGEST", 10)
    carried(plus(torch.ones(9).long()))
    assert carried(plus(torch.ones(9).long())).results == (3,)
    assert len(share_programs._KNOWN) == 2
