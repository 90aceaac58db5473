"""Share programs: what the parties of a session compute, as a list of instructions.

All parties run the same list on their own shares.  It holds numbers, shapes and public tensors
only, so that everybody may see it: also the provider, which deals for it without any input.

Slots are numbered.  The first ones are the inputs; each instruction fills the slots named in
``outs``.  An operand is a :class:`ShareSlot`; anything else in ``args`` is public.  What an
instruction of each code takes and makes stands at :class:`ShareCode`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from syft.crypto.dealing import StreamName
from syft.crypto.gates.public_factors import named_factor


class ShareCode(IntEnum):
    """The instructions of a share program: wire numbers, only ever added to."""

    LOCAL = 1
    """``args = (operation, positional, keywords)``: a linear operation of torch on each share.

    ``operation`` is its number in ``local_operations``, ``positional`` a tuple and ``keywords`` a
    tuple of (name, value); both hold slots, numbers, public tensors and nested tuples.  One slot
    in ``outs`` for each tensor that the operation returns.  An operation that writes in place
    fills no slot, or one with the tensor that it wrote to."""
    PUBLIC = 2
    """``args = (tensor,)``: shares of a public int64 tensor, party 0 has it and others zeros."""
    LINEAR = 3
    """``args = (kernel, settings, x)``: a linear kernel (``kernels``) on each share.  Or ``args =
    (kernel, settings, x, public, first)``: a bilinear one with a public int64 tensor, which is the
    first factor if ``first``."""
    MASK = 4
    """``args = (x, shape)``: opens x less a fresh mask; makes a masked value."""
    PRODUCT = 5
    """``args = (kernel, settings, x, y, x_mask, x_shape, y_mask, y_shape, shape)``: a bilinear
    kernel on two masked values.  The masks are (counter, place) of the MASK that drew them, with
    counter 0 for this program, so that the provider knows them; ``shape`` is that of the result."""
    DIVIDE = 6
    """``args = (x, factor, shape)``: the factor times x.  ``factor`` (``gates.public_factors``) is
    bits for x / 2^bits, ``(d,)`` for x / d, or ``(n, bits)`` for x n / 2^bits, the numbers of a
    tuple being tensors where they are not the same for all elements."""
    NEGATIVE = 7
    """``args = (x, shape)``: 1 where x < 0, else 0."""
    POSITIVE = 8
    """``args = (x, factor, shape)``, two outs: the factor times max(x, 0), and 1 where x >= 0,
    else 0."""
    ZERO = 9
    """``args = (x, shape)``: 1 where x = 0, else 0."""
    REVEAL = 10
    """``args = (x, party)``: the plain tensor, in the slot of that party; None at the others."""


DEALT = frozenset(
    {
        ShareCode.MASK,
        ShareCode.PRODUCT,
        ShareCode.DIVIDE,
        ShareCode.NEGATIVE,
        ShareCode.POSITIVE,
        ShareCode.ZERO,
    }
)
"""The instructions that use randomness of the provider."""


@dataclass(frozen=True, slots=True)
class ShareSlot:
    """An operand that is computed: the number of its slot."""

    number: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step of a program; its place in the list names its randomness."""

    code: ShareCode
    args: tuple[Any, ...]
    outs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShareProgram:
    """Instructions over the slots ``0 … inputs - 1``, and the slots that are its results.

    >>> double = Instruction(ShareCode.LOCAL, (0, (ShareSlot(0), ShareSlot(0)), ()), (1,))
    >>> ShareProgram(1, (double,), (1,)).results
    (1,)
    """

    inputs: int
    instructions: tuple[Instruction, ...]
    results: tuple[int, ...]
    sound_for: set[int] = field(default_factory=set, compare=False, repr=False)
    """For how many parties it has been found well formed, or one that differs from it only in what
    the elements of public tensors are."""
    operands: list[list[int]] = field(default_factory=list, compare=False, repr=False)
    """The slots that each instruction reads, once somebody has asked (``share_flow``); alike for
    the same programs."""


def stream_of(code: ShareCode, public: Sequence[Any], counter: int, place: int) -> StreamName:
    """The stream of an instruction, by all that is public of it: its arguments without slots.

    >>> stream_of(ShareCode.MASK, ((2, 3),), 7, 0)
    StreamName(counter=7, place=0, use='4 (2 3)')
    """
    return StreamName(counter, place, _use_of(code, tuple(map(named_factor, public))))


def stream_of_mask(mask: tuple[int, int], shape: Sequence[int], counter: int) -> StreamName:
    """The stream of a mask that an instruction of the program ``counter`` names.

    >>> stream_of_mask((0, 2), (3,), 7) == stream_of(ShareCode.MASK, ((3,),), 7, 2)
    True
    """
    return stream_of(ShareCode.MASK, (tuple(shape),), mask[0] or counter, mask[1])


@functools.lru_cache(maxsize=1024)
def _use_of(code: ShareCode, public: tuple[Any, ...]) -> str:
    return f"{int(code)} {' '.join(map(_text, public))}"


def _text(value: Any) -> str:
    """An argument as a text: equal ones of two processes have equal texts, others do not."""
    if isinstance(value, tuple):
        return f"({' '.join(map(_text, value))})"
    if isinstance(value, str):
        return value
    return str(value if value is None else int(value))
