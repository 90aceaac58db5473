"""What the client knows of a shared tensor: its geometry, and the name of its shares.

A *cell* stands for one tensor at every party.  While the instruction that makes it waits to be
sent, its shares have the number of a slot; afterwards they are stored objects, with the same id at
all parties.  When the last tensor over a cell dies, the shares are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from syft.crypto.dealing import StreamName
from syft.program.program import Slot


@dataclass(frozen=True, slots=True)
class Geometry:
    """Shape, strides and offset of a tensor in its memory.

    >>> Geometry.of(torch.ones(2, 3).t())
    Geometry(shape=(3, 2), strides=(1, 3), offset=0)
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @staticmethod
    def of(tensor: torch.Tensor) -> Geometry:
        """The geometry of a tensor."""
        return Geometry(tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))

    @property
    def extent(self) -> int:
        """How many elements of memory a tensor of this geometry needs.

        >>> Geometry((2, 2), (2, 1), 4).extent
        8
        """
        pairs = zip(self.shape, self.strides, strict=True)
        return self.offset + max(sum((size - 1) * stride for size, stride in pairs), 0) + 1

    def stand_in(self, device: str) -> torch.Tensor:
        """A tensor of zeros that has this geometry, or one without values on the device meta.

        >>> Geometry((2, 2), (2, 1), 4).stand_in("meta")
        tensor(..., device='meta', size=(2, 2), dtype=torch.int64)
        """
        room = torch.zeros(self.extent, dtype=torch.int64, device=device)
        return room.as_strided(self.shape, self.strides, self.offset)


def dense(shape: Sequence[int]) -> Geometry:
    """The geometry of a contiguous tensor.

    >>> dense([2, 3])
    Geometry(shape=(2, 3), strides=(3, 1), offset=0)
    """
    strides, reach = [], 1
    for size in reversed(shape):
        strides.append(reach)
        reach *= max(size, 1)
    return Geometry(tuple(shape), tuple(reversed(strides)))


class Memory:
    """The memory that a tensor and its views share; ``version`` counts what was written to it, and
    ``refined`` is a note that whatever is written takes away."""

    __slots__ = ("version", "refined")

    def __init__(self) -> None:
        self.version = 0
        self.refined: Any = None


class SharedObject:
    """What each party holds under one name: a share, or a masked value. Abstract.

    ``recording`` and ``slot`` name it among the instructions that were not sent yet, ``id`` at the
    parties once they were.
    """

    __slots__ = ("session", "recording", "slot", "id", "__weakref__")

    def __init__(self, session: Any) -> None:
        self.session = session
        self.recording: Any = None
        self.slot = Slot(0)
        self.id: int | None = None

    def __del__(self) -> None:
        if self.id is not None:
            self.session.discard(self.id)

    def drop(self) -> None:
        """Have what the parties hold under the present id dropped, and have none."""
        self.__del__()
        self.id = None


class Cell(SharedObject):
    """A share at each party, and what is known of it."""

    __slots__ = ("geometry", "memory", "device", "masked", "turned", "above", "plain")

    def __init__(
        self, session: Any, geometry: Geometry, memory: Memory, device: torch.device
    ) -> None:
        super().__init__(session)
        self.geometry = geometry
        self.memory = memory
        self.device = device
        self.masked: tuple[int, MaskedCell] | None = None
        """The version of the memory, and what was opened of it under a mask."""
        self.turned: Cell | None = None
        """The matrix of which this is the transpose."""
        self.above: tuple[int, Cell] | None = None
        """The version of the memory, and a cell of 1 where it is above zero, and else 0."""
        self.plain: torch.Tensor | None = None
        """The values, where everybody may see them and the memory was never written to."""

    @property
    def public(self) -> torch.Tensor | None:
        """The values if everybody may see them; None if they are shared."""
        return None if self.memory.version else self.plain

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return self.geometry.shape


class MaskedCell(SharedObject):
    """A masked value at each party: what was opened, under a mask that the provider can name."""

    __slots__ = ("name", "place", "shape")

    def __init__(self, session: Any, shape: tuple[int, ...]) -> None:
        super().__init__(session)
        self.shape = shape
        self.place = 0
        """The place of the instruction that draws the mask, until it is sent."""
        self.name: StreamName | None = None
        """The program and the instruction that drew the mask, once it was sent."""


def sum_of(shares: Sequence[torch.Tensor]) -> torch.Tensor:
    """What shares add up to, modulo 2^64.

    >>> sum_of([torch.tensor([2**62]), torch.tensor([-(2**62) + 5])])
    tensor([5])
    """
    total = shares[0].clone()
    for share in shares[1:]:
        total += share
    return total
