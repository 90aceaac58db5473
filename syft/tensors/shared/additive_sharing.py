"""A tensor of integers that several workers share: each holds a share, and nobody reads it alone.

Whatever acts on each share alone becomes one instruction of the session, with the same torch
operation; products and comparisons are asked of the ring (``shares_ring``).  Fixed precision stands
above this link, so that numbers with fractions are shared too::

    (Wrapper)>FixedPrecisionTensor>[AdditiveSharingTensor]
        -> [PointerTensor | me:5 -> alice:5]
        -> [PointerTensor | me:5 -> bob:5]
        *crypto provider: carol*
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.notebook_html import kind_shown, line
from syft.ops.nested import Arguments, Keywords, leaves
from syft.serde.registry import register_hint
from syft.tensors.fixed.rings.integer_ring import Ring
from syft.tensors.fixed.rings.ring_link import RingLink, is_ring
from syft.tensors.shared.cells import Cell
from syft.tensors.shared.local_calls import run_locally
from syft.torch_private import make_wrapper


class SharePointer:
    """Where one share of a tensor is: at which worker, and under which id.

    >>> SharePointer("me", "bob", 7)
    [PointerTensor | me:7 -> bob:7]
    """

    __slots__ = ("owner", "location", "id_at_location")

    def __init__(self, owner: str, location: str, id_at_location: int) -> None:
        self.owner = owner
        self.location = location
        self.id_at_location = id_at_location

    def __repr__(self) -> str:
        id = self.id_at_location
        return f"[PointerTensor | {self.owner}:{id} -> {self.location}:{id}]"


class AdditiveSharingTensor(RingLink):
    """A tensor of integers modulo 2^64 that are the sums of shares, one at each party.

    As a mapping it goes from the name of a party to where its share is.

    >>> x = torch.tensor([1, 2]).share(alice, bob, crypto_provider=carol)
    >>> isinstance(x.child, AdditiveSharingTensor), x.child.place(), x.child["bob"].location
    (True, 'alice, bob', 'bob')
    """

    __slots__ = ("cell",)

    field: Final = 2**64
    """Shares are added modulo this number, always."""

    instead = "its values are shared; get() it first, or compute with comparisons, where() and sums"

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    @property
    def ring(self) -> Ring:
        """The ring of the session."""
        ring: Ring = self.cell.session.ring
        return ring

    @property
    def refined(self) -> Any:
        """What was noted of the memory since it was written to."""
        return self.cell.memory.refined

    @refined.setter
    def refined(self, note: Any) -> None:
        self.cell.memory.refined = note

    @classmethod
    def componentwise(cls, op: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Record the operation for the share of every party."""
        first = next(one for one in leaves((*args, *kwargs.values())) if is_ring(one))
        out = run_locally(first.child.cell.session, op, args, kwargs, _cell_of)
        if isinstance(out, list):
            return [shared_tensor(cell) for cell in out]
        return shared_tensor(out)

    # ------------------------------------------------------------------------- where the shares are

    @property
    def child(self) -> dict[str, SharePointer]:
        """Where the share of each party is, by its name."""
        session = self.cell.session
        if self.cell.id is None:
            session.flush()
        id, owner = self.cell.id, session.lines.owner
        assert id is not None  # the flush has stored it
        return {party: SharePointer(owner, party, id) for party in session.parties}

    def keys(self) -> Iterator[str]:
        """The names of the parties."""
        return iter(self.cell.session.parties)

    def __getitem__(self, party: str) -> SharePointer:
        return self.child[party]

    def show(self) -> str:
        """The shares, a line each, and who deals."""
        if self.cell.session.ended is not None:
            return f"[AdditiveSharingTensor | {self.place()}: ended]"
        lines = [f"\n\t-> {pointer!r}" for pointer in self.child.values()]
        provider = f"\n\t*crypto provider: {self.cell.session.lines.provider}*"
        return "[AdditiveSharingTensor]" + "".join(lines) + provider

    def _repr_html_(self) -> str:
        """What a notebook shows: who has shares, and who deals. Nothing is sent for it."""
        session = self.cell.session
        kind = kind_shown(torch.int64, self.cell.shape)
        deals = "ended" if session.ended is not None else f"{session.lines.provider} deals"
        return line(self.place(), "shared", kind, deals, before="→ ")

    def shared_cell(self) -> Cell:
        """The handle of the shares."""
        return self.cell

    def place(self) -> str:
        """The names of the parties."""
        return ", ".join(self.cell.session.parties)


def _cell_of(tensor: Any) -> Cell:
    cell: Cell = tensor.child.cell
    return cell


def revealed(cells: list[Cell], user: str | None = None) -> list[torch.Tensor]:
    """The integers of cells, which may belong to several sessions, in the same order."""
    found: dict[int, torch.Tensor] = {}
    for session in {id(cell.session): cell.session for cell in cells}.values():
        own = [cell for cell in cells if cell.session is session]
        for cell, values in zip(own, session.values(own, user), strict=True):
            found[id(cell)] = values
    return [found[id(cell)] for cell in cells]


register_hint(
    AdditiveSharingTensor,
    "its shares are at the workers that hold them already: compute with it as it is, or get() it",
)


def shared_tensor(cell: Cell, dtype: torch.dtype = torch.int64) -> Wrapper:
    """A tensor over a cell; it reports int64, or bool for bits."""
    geometry = cell.geometry
    wrapper: Wrapper = make_wrapper(
        Wrapper,
        geometry.shape,
        strides=geometry.strides,
        storage_offset=geometry.offset,
        dtype=dtype,
        device=cell.device,
    )
    wrapper.child = AdditiveSharingTensor(cell)
    return wrapper
