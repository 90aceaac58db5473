"""Parties that compute on the values themselves: an oracle for what a client records.

Each program is run as it was sent, instruction by instruction, on plain integers, with truncation
that rounds up or down at random as masked truncation does.  Nothing is hidden here.  It counts
programs, openings and instructions, so that tests can say what an operation costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from syft.crypto.gates.bit_planes import tensor_of, words_of
from syft.crypto.gates.public_factors import factor_for, products
from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.mask_stream import MaskStream
from syft.crypto.programs.local_operations import LOCAL_OPERATIONS, check_local, run_local
from syft.crypto.programs.share_program import (
    ShareCode,
    ShareProgram,
    opened_constants,
    outs_of,
)
from syft.program.program import Slot
from syft.tensors.shared.instruction_list import FreshShares
from syft.tensors.shared.party_lines import PartyLines
from syft.tensors.shared.sent_programs import SentProgram
from syft.tensors.shared.session_client import SessionClient
from syft.tensors.shared.shares_ring import SharesRing


class ClearParties(PartyLines):
    """Lines to parties that are not there: every object is a plain tensor of this process."""

    owner = "me"
    parties = ("alice", "bob")
    provider = "carol"

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        self.programs: list[ShareProgram] = []
        self.counters: list[int] = []
        self.counts: Counter[str] = Counter()
        self.users: list[str | None] = []
        self.pointers: list[tuple[str, int]] = []
        self.error: Exception | None = None
        """What programs fail with; it is told when somebody asks."""
        self.undone: set[int] = set()
        """What they were to make."""
        self.failed: list[SentProgram] = []
        """What has failed since."""
        self.lost: Exception | None = None
        """What sending fails with."""

    def run(
        self, counter: int, program: Any, inputs: Any, ids: Any, material: int | None = None
    ) -> None:
        if self.lost is not None:
            raise self.lost
        if self.error is not None:
            self.failed.append(SentProgram(program, inputs, ids))
            return
        self.programs.append(program)
        self.counters.append(counter)
        slots: dict[int, Any] = dict(enumerate(map(self._input, inputs)))
        for one in opened_constants(program):
            self.counts[one.op.name] += 1
            if one.op == ShareCode.LOCAL:
                check_local(*one.args)
            made = _RUN[one.op](self, _open(one.args, slots))
            slots.update(zip(outs_of(one), made if type(made) is tuple else (made,), strict=True))
        for slot, id in zip(program.results, ids, strict=True):
            assert id not in self.objects
            self.objects[id] = slots[slot]

    def _input(self, value: Any) -> Any:
        if not isinstance(value, FreshShares):
            return self.objects[value]
        total = value.last.clone()
        for seed in value.seeds:
            total += MaskStream(seed).draw(total.shape, total.device)
        return total

    def fetch(self, ids: Sequence[int], user: str | None) -> list[list[torch.Tensor]]:
        self.users.append(user)
        if self.error is not None:
            raise RuntimeError("what follows from it")
        return [[self.objects[id].clone(), torch.zeros_like(self.objects[id])] for id in ids]

    def pointer(self, party: str, id: int) -> torch.Tensor:
        self.pointers.append((party, id))
        return self.objects[id]  # type: ignore[no-any-return]

    def split(self, pointer: Any, depth: int, id: int) -> None:
        self.objects[id] = pointer

    def deal_ahead(self, counter: int, deals: Any, id: int) -> Callable[[], None]:
        self.objects[id] = counter, deals
        return lambda: None

    def waiting_bytes(self) -> int:
        return 0

    def settle(self) -> None:
        """Everything has ended."""

    def roll_back(self) -> Sequence[SentProgram]:
        if self.lost is not None:
            raise self.lost
        failed, self.failed, self.error = self.failed, [], None
        self.undone.update(id for one in failed for id in one.ids)
        return failed

    def failure(self) -> Exception | None:
        return self.error

    def discard(self, id: int) -> None:
        assert id in self.objects or id in self.undone or self.lost is not None
        self.objects.pop(id, None)


def _open(value: Any, slots: dict[int, Any]) -> Any:
    if type(value) is Slot:
        return slots[value.index]
    return tuple(_open(item, slots) for item in value) if type(value) is tuple else value


def _local(lines: ClearParties, args: Any) -> Any:
    number, positional, keywords = args
    operation = LOCAL_OPERATIONS[number]
    lines.counts[operation.name] += 1
    made = run_local(operation, positional, keywords, 1 << 24)
    return made if operation.several else made[0]


def _linear(lines: ClearParties, args: Any) -> torch.Tensor:
    code, settings, x, *factor = args
    kernel = Kernel(KernelCode(code), settings)
    if factor:
        given = (factor[0], x) if factor[1] else (x, factor[0])
        return kernel(*(one.cpu() for one in given)).to(x.device)
    return kernel(x.double()).round().long()


def _product(lines: ClearParties, args: Any) -> torch.Tensor:
    code, settings, x, y, x_mask, x_shape, y_mask, y_shape, shape = args
    out = Kernel(KernelCode(code), settings)(x.cpu(), y.cpu()).contiguous().to(x.device)
    assert (tuple(x.shape), tuple(y.shape), tuple(out.shape)) == (x_shape, y_shape, shape)
    return out


def _divide(lines: ClearParties, args: Any, offset: int = 1 << 62) -> torch.Tensor:
    """Behind a mask that is drawn here, so it rounds as the parties do."""
    x, factor, shape = args
    assert x.shape == shape
    factor = factor_for(factor, shape, x.device)
    r = torch.randint(-(1 << 63), (1 << 63) - 1, (x.numel(),), device=x.device)
    c = x.reshape(-1) + offset + r
    opened, masks = words_of(c), words_of(r)
    wrap = products(masks, factor, 1 << 64), products(masks, factor)
    less = torch.where((c < 0) & (r >= 0), *map(tensor_of, wrap))
    return (tensor_of(products(opened, factor, offset)) - less).view(shape)


def _positive(lines: ClearParties, args: Any) -> Any:
    x, factor, shape = args
    return _divide(lines, (x.clamp(min=0), factor, shape), 0), (x >= 0).long()


_RUN: dict[ShareCode, Any] = {
    ShareCode.LOCAL: _local,
    ShareCode.PUBLIC: lambda lines, args: args[0].clone(),
    ShareCode.LINEAR: _linear,
    ShareCode.MASK: lambda lines, args: args[0].clone().view(args[1]),
    ShareCode.PRODUCT: _product,
    ShareCode.DIVIDE: _divide,
    ShareCode.NEGATIVE: lambda lines, args: (args[0] < 0).long(),
    ShareCode.ZERO: lambda lines, args: (args[0] == 0).long(),
    ShareCode.POSITIVE: _positive,
    ShareCode.REVEAL: lambda lines, args: args[0].clone(),
}


def clear_session() -> SessionClient:
    """A session whose parties compute on the values."""
    return SessionClient(ClearParties(), SharesRing)
