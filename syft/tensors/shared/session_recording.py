"""What is to be done with shares is recorded, and sent later.

An operation adds instructions and returns a tensor at once, since shapes are public.  They are sent
when a value is asked for, or when the list has become long (:data:`MOST_INSTRUCTIONS`,
:data:`MOST_BYTES`).  Sending, and undoing what has failed, is the other half of a session.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakSet

import torch

from syft.crypto.kernels import Kernel
from syft.crypto.mask_stream import MaskStream, fresh_key
from syft.crypto.programs.local_operations import number_of
from syft.crypto.programs.share_program import ShareCode
from syft.exceptions import SessionEnded, UnsupportedOperation
from syft.program.program import Slot
from syft.tensors.shared.cells import Cell, Geometry, MaskedCell, Memory, SharedObject, dense
from syft.tensors.shared.instruction_list import FreshShares, InstructionList
from syft.tensors.shared.lost_results import LostResults
from syft.tensors.shared.party_lines import PartyLines
from syft.workers.client.monitor import exclusive
from syft.workers.labels.guards import Guard

MOST_INSTRUCTIONS: Final = 256
"""The instructions that wait before they are sent without being asked for."""

MOST_BYTES: Final = 64 << 20
"""The memory of public and fresh tensors that waits likewise."""


class SessionRecording(abc.ABC):
    """The part of a session that records: instructions, and what is known of their operands.

    Abstract: a session sends what was recorded.
    """

    def __init__(self, lines: PartyLines) -> None:
        self.lines = lines
        self.ended: str | None = None
        """Why the session has ended, if it has."""
        self.lock = threading.RLock()
        """Whoever records holds it (:mod:`~syft.workers.client.monitor`)."""
        self._list = InstructionList()
        self._masks: WeakSet[Cell] = WeakSet()
        self._unreal: set[int] = set()
        self._lost = LostResults()
        self._used: set[int] = set()

    @property
    def parties(self) -> tuple[str, ...]:
        """The names of the parties."""
        return self.lines.parties

    @abc.abstractmethod
    def flush(self, opening: bool = False) -> None:
        """Send what was recorded; what nobody has any more is left out.

        With ``opening`` all masked values are opened that somebody may use.
        """

    def new_cell(
        self, geometry: Geometry, device: torch.device, memory: Memory | None = None
    ) -> Cell:
        """A cell of this session that nothing fills yet."""
        return Cell(self, geometry, memory or Memory(), device)

    def made_by(
        self, code: ShareCode, args: tuple[Any, ...], shape: Sequence[int], device: torch.device
    ) -> Cell:
        """The result of an instruction with one result, in memory of its own."""
        cell = self.new_cell(dense(shape), device)
        self.record(code, args, (cell,))
        return cell

    def record(self, code: ShareCode, args: tuple[Any, ...], outs: Sequence[SharedObject]) -> int:
        """Add an instruction; returns its place in the list."""
        self.check_open()
        return self._list.add(code, args, outs)

    def state_product(self, cell: Cell) -> None:
        """Note that a tensor is below 2^62 on the grid of products, if it has just been made."""
        if cell.recording is self._list:
            self._list.stated.add(cell.slot.index)

    @exclusive
    def look(self, cell: Cell) -> Cell:
        """A copy of a tensor as it is now, made for a look alone: no program is another one for it,
        but that what nobody uses is computed all the same.  Nothing makes it if what is to be seen
        is joined away."""
        code, copied = ShareCode.LOCAL, (number_of(torch.ops.aten.clone.default),)
        made = self.made_by(code, (*copied, (self.slot(cell),), ()), cell.shape, cell.device)
        self._list.looks.add(made.slot.index)
        return made

    def slot(self, value: Cell | MaskedCell) -> Any:
        """The operand of an instruction that stands for a tensor of this session."""
        self.check_open()
        self._check_real(value)
        slot = self._list.operand(value)
        if value.id is not None:
            self._used.add(value.id)
        return slot

    def make_room(self) -> None:
        """Send the list if it is long: before the operands of the next instruction are named."""
        full = len(self._list.actions) - len(self._list.looks) >= MOST_INSTRUCTIONS
        if full or self._list.nbytes > MOST_BYTES:
            self.flush()

    @exclusive
    def share(self, values: torch.Tensor, guard: Guard | None = None) -> Cell:
        """Split an int64 tensor of this process among the parties.

        All parties but the last draw their shares from seeds of 32 bytes; the last gets the rest.
        """
        self.check_open()
        self.make_room()
        cell = self.new_cell(dense(values.shape), values.device)
        seeds = tuple(fresh_key() for _ in self.parties[1:])
        last = values.detach().to(torch.int64).contiguous().clone()
        for seed in seeds:
            last -= MaskStream(seed).draw(values.shape, values.device)
        self._list.fresh(cell, FreshShares(seeds, last, guard))
        return cell

    @exclusive
    def public(self, values: torch.Tensor) -> Cell:
        """A tensor that everybody may see, as shares: party 0 has it."""
        self.make_room()
        plain = values.detach().to(torch.int64, copy=True, memory_format=torch.contiguous_format)
        if plain.numel() > 1 and bool((plain == plain.view(-1)[0]).all()):
            cell = self._repeated(plain)
        else:
            args = (self._list.public(plain),)
            cell = self.made_by(ShareCode.PUBLIC, args, plain.shape, plain.device)
        cell.plain = plain
        return cell

    def _repeated(self, values: torch.Tensor) -> Cell:
        """A tensor of one number: the number is sent, and repeated by the parties."""
        number = self._list.public(values.view(-1)[0].clone())
        one = self.slot(self.made_by(ShareCode.PUBLIC, (number,), (), values.device))
        args = (number_of(torch.ops.aten.repeat.default), (one, tuple(values.shape)), ())
        return self.made_by(ShareCode.LOCAL, args, values.shape, values.device)

    def public_tensor(self, values: torch.Tensor) -> Slot:
        """The slot of a copy of a tensor that everybody may see."""
        return self._list.public(values.detach().clone(memory_format=torch.contiguous_format))

    def masked(self, cell: Cell) -> MaskedCell:
        """What was opened of a tensor under a mask: once, while it is not written to."""
        version = cell.memory.version
        if cell.masked is not None and cell.masked[0] == version:
            known = cell.masked[1]
            if self._is_there(known):  # or it was left out, or is lost
                return known
        value = MaskedCell(self, cell.shape)
        value.place = self.record(ShareCode.MASK, (self.slot(cell), cell.shape), (value,))
        cell.masked = version, value
        self._masks.add(cell)
        return value

    @exclusive
    def product(self, kernel: Kernel, x: Cell, y: Cell, shape: Sequence[int]) -> Cell:
        """A bilinear kernel of two tensors."""
        self.make_room()
        one, other = self.masked(x), self.masked(y)
        args = (
            int(kernel.code),
            kernel.settings,
            self.slot(one),
            self.slot(other),
            self._name_of(one),
            one.shape,
            self._name_of(other),
            other.shape,
            tuple(shape),
        )
        return self.made_by(ShareCode.PRODUCT, args, shape, x.device)

    def _name_of(self, value: MaskedCell) -> tuple[int, int]:
        return (0, value.place) if value.name is None else (value.name.counter, value.name.place)

    def masked_cells(self) -> list[Cell]:
        """The tensors that were opened behind a mask, or will be."""
        return list(self._masks)

    def is_real(self, value: Cell | MaskedCell) -> bool:
        """Whether the parties have it, or will: what a rehearsal has made is nowhere."""
        recorded = value.recording is self._list
        return recorded or (value.id is not None and value.id not in self._unreal)

    def _check_real(self, value: Cell | MaskedCell) -> None:
        """Raise :class:`~syft.exceptions.UnsupportedOperation` for what a rehearsal has made, and
        :class:`~syft.exceptions.SharedOperationFailed` for what a failed program was to make."""
        if value.recording is self._list:
            return
        self._lost.check(value.id, self.parties)
        if not self.is_real(value):
            what = "A tensor that was made to see what it costs"
            raise UnsupportedOperation("any use", what, "compute it again")

    def _is_there(self, value: MaskedCell) -> bool:
        """Whether the parties have a masked value, or will."""
        if value.recording is self._list:
            return True
        return value.id is not None and value.id not in self._lost

    def check_open(self) -> None:
        """Raise :class:`~syft.exceptions.SessionEnded` if the session has ended."""
        if self.ended is not None:
            raise SessionEnded(self.parties, self.ended)
