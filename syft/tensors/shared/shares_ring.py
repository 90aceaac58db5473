"""The ring of shared integers: each method is an instruction of a share program, or a few.

What is not said here is made of the seven methods that every ring has (``integer_ring``).
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from syft.crypto.gates.public_factors import Factor, nearest
from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.programs.share_program import ShareCode
from syft.crypto.ring_products import ring_product
from syft.exceptions import ProgramError
from syft.ops.nested import replace
from syft.tensors.fixed.rings.integer_ring import Ring
from syft.tensors.fixed.rings.ring_link import as_integers, is_ring
from syft.tensors.shared.additive_sharing import shared_tensor
from syft.tensors.shared.cells import Cell, dense
from syft.workers.client.monitor import exclusive
from syft.tensors.shared.session_client import SessionClient

MULTIPLY = Kernel(KernelCode.MULTIPLY, ())


class SharesRing(Ring):
    """The integers that the parties of a session share.

    A truncation gives the floor or one more, the likelier the nearer, and a whole number exactly;
    so a quotient is off by less than one.
    """

    def __init__(self, session: SessionClient) -> None:
        self._of = weakref.ref(session)  # the session has the ring
        self._workers = f"{', '.join(session.parties)} with provider {session.lines.provider}"

    @property
    def _session(self) -> SessionClient:
        session = self._of()
        assert session is not None  # a tensor of the ring has it
        return session

    @property
    def lock(self) -> Any:
        """That of the session."""
        return self._session.lock

    @property
    def name(self) -> str:
        """``"integers shared among"`` the parties, and who deals for them; whether it has ended."""
        ended = "" if self._session.ended is None else ", which has ended"
        return f"integers shared among {self._workers}{ended}"

    @exclusive
    def lift(self, integers: torch.Tensor) -> torch.Tensor:
        """The shares of public integers: party 0 has them, the others zeros."""
        return shared_tensor(self._session.public(integers), integers.dtype)

    # ----------------------------------------------------------------------------------- products

    def multiply(self, a: torch.Tensor, b: torch.Tensor, unit: int) -> torch.Tensor:
        """The elementwise product; a public factor multiplies each share."""
        a, b = _in_the_open(a, b)
        if not (is_ring(a) or is_ring(b)):
            return self.lift(as_integers(a) * as_integers(b))
        if not (is_ring(a) and is_ring(b)):
            product: torch.Tensor = as_integers(a) * as_integers(b)
            return product
        return self.product(MULTIPLY, a, b, unit)

    @exclusive
    def product(self, kernel: Kernel, a: torch.Tensor, b: torch.Tensor, unit: int) -> torch.Tensor:
        """A bilinear kernel: each operand is opened under a mask, once while it is not written to.

        A public operand is a factor in a linear map of each share, and a product of two is public.
        """
        a, b = _in_the_open(a, b)
        shape = _shape_of(kernel, a, b)
        if not (is_ring(a) or is_ring(b)):
            return self.lift(ring_product(kernel, a, b))
        session = self._session
        if is_ring(a) and is_ring(b):
            kernel, x, y = _unturned(kernel, cell_of(a), cell_of(b))
            return shared_tensor(session.product(kernel, x, y, shape))
        session.make_room()
        private, public = (a, b) if is_ring(a) else (b, a)
        factor = session.public_tensor(public)
        slot = session.slot(cell_of(private))
        args = (int(kernel.code), kernel.settings, slot, factor, public is a)
        return shared_tensor(session.made_by(ShareCode.LINEAR, args, shape, private.device))

    @exclusive
    def linear(self, kernel: Kernel, x: torch.Tensor, unit: int) -> torch.Tensor:
        """A linear kernel on each share."""
        session = self._session
        session.make_room()
        shape = _shape_of(kernel, x)
        args = (int(kernel.code), kernel.settings, session.slot(cell_of(x)))
        return shared_tensor(session.made_by(ShareCode.LINEAR, args, shape, x.device))

    @exclusive
    def state_product(self, x: torch.Tensor) -> torch.Tensor:
        """Have a relu of it take one opening less (``share_joining``)."""
        self._session.state_product(cell_of(x))
        return x

    # ----------------------------------------------------------------------------------- factors

    def scaled(self, x: torch.Tensor, factor: Factor) -> torch.Tensor:
        """Times a public number from 0 to 1, in one opening: the floor or one more.

        What everybody may see is multiplied by you.
        """
        known = cell_of(x).public
        if known is not None:
            return self.lift(nearest(known, factor))
        return shared_tensor(self._gate(ShareCode.DIVIDE, x, factor))

    # --------------------------------------------------------------------------------- comparisons

    def negative(self, x: torch.Tensor) -> torch.Tensor:
        """The bits of ``x < 0``."""
        return shared_tensor(self._gate(ShareCode.NEGATIVE, x), torch.bool)

    def zero(self, x: torch.Tensor) -> torch.Tensor:
        """The bits of ``x == 0``."""
        return shared_tensor(self._gate(ShareCode.ZERO, x), torch.bool)

    @exclusive
    def positive_part(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``max(x, 0)`` and the bits of ``x > 0``, by one gate.

        The gate tells ``x >= 0``, so it gets ``x - 1``, and the bit is added to its result.  The
        bits are kept with the result: a backward pass asks for them (:meth:`above_zero`).
        """
        below = cell_of(x + -1)  # an addition, so that it is joined to a division before it
        session = self._session
        session.make_room()
        part, bits = (session.new_cell(dense(x.shape), x.device) for _ in range(2))
        session.record(ShareCode.POSITIVE, (session.slot(below), 0, below.shape), (part, bits))
        result = shared_tensor(part) + shared_tensor(bits)
        cell = cell_of(result)
        cell.above = cell.memory.version, bits
        return result, shared_tensor(bits, torch.bool)

    def above_zero(self, x: torch.Tensor) -> torch.Tensor:
        """The bits of ``x > 0``; those of a positive part are known."""
        cell = cell_of(x)
        if cell.above is not None and cell.above[0] == cell.memory.version:
            return shared_tensor(cell.above[1], torch.bool)
        return self.negative(-x)

    def select(self, bits: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """``a`` where the bit is set, and ``b`` elsewhere; of two public ones without a message."""
        difference = as_integers(a) - as_integers(b)
        chosen: torch.Tensor = as_integers(b) + self.multiply(as_integers(bits), difference, 1)
        return chosen

    @exclusive
    def _gate(self, code: ShareCode, x: torch.Tensor, *settings: Factor) -> Cell:
        session = self._session
        session.make_room()
        cell = cell_of(x)

        def kept(number: Any) -> Any:
            return session.public_tensor(number) if isinstance(number, torch.Tensor) else number

        args = (session.slot(cell), *replace(settings, kept), cell.shape)
        return session.made_by(code, args, cell.shape, cell.device)


def cell_of(x: Any) -> Cell:
    """The cell of a shared tensor."""
    cell: Cell = x.child.cell
    return cell


def _shape_of(kernel: Kernel, *operands: Any) -> tuple[int, ...]:
    """The shape of a result; where there is none the error is of the class that torch's is."""
    try:
        return kernel.shape(*(tuple(operand.shape) for operand in operands))
    except ProgramError as error:
        raise RuntimeError(str(error)) from None


def _in_the_open(a: Any, b: Any) -> tuple[Any, Any]:
    """Two factors; one of them as a plain tensor where everybody may see it.

    Beside a plain tensor both are plain then.
    """
    for first, second in ((a, b), (b, a)):
        if is_ring(first) and cell_of(first).public is not None:
            plain = cell_of(first).public
            return (plain, second) if first is a else (second, plain)
    return a, b


def _unturned(kernel: Kernel, x: Cell, y: Cell) -> tuple[Kernel, Cell, Cell]:
    """A matrix product of transposed matrices as one of the matrices themselves: what was opened
    of a matrix serves its transpose too."""
    if kernel.code is not KernelCode.MATMUL or not (x.turned or y.turned):
        return kernel, x, y
    flags = kernel.settings or (False, False)
    turned = (x.turned is not None, y.turned is not None)
    settings = tuple(flag != other for flag, other in zip(flags, turned, strict=True))
    return Kernel(KernelCode.MATMUL, settings), x.turned or x, y.turned or y
