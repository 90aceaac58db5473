"""Share programs: what the parties of a session compute, in the vocabulary of their ring.

A share program is a program as any other (:mod:`syft.program.program`) whose actions are
*instructions* on shares.  All parties run the same list on their own shares.  It holds numbers,
shapes and public tensors only, so that everybody may see it: also the provider, which deals for it
without any input.

Public tensors are the constants of the program.  A slot that is no constant stands for something
that is computed; anything else in ``args`` is public.  What an instruction of each code takes and
makes stands at :class:`ShareCode`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch

from syft.crypto.dealing import StreamName
from syft.crypto.gates.public_factors import named_factor
from syft.program.program import Action, Program, Slot, slots_in


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


_OF_FACTORS = frozenset({ShareCode.DIVIDE, ShareCode.POSITIVE})
"""The instructions whose first public argument is a factor, which may hold tensors."""

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


@dataclass(frozen=True, slots=True, eq=False)
class ShareProgram(Program):
    """A program whose actions are instructions on shares; its results are a tuple of slots.

    >>> double = Action(ShareCode.LOCAL, (0, (Slot(0), Slot(0)), ()), {}, Slot(1))
    >>> ShareProgram(1, (double,), (Slot(1),)).results
    (1,)
    """

    @property
    def results(self) -> tuple[int, ...]:
        """The numbers of the slots that it returns."""
        return tuple([slot.index for slot in self.outputs])


def outs_of(instruction: Action) -> tuple[int, ...]:
    """The slots that an instruction fills.

    >>> outs_of(Action(ShareCode.POSITIVE, (Slot(0), 0, (2,)), {}, (Slot(1), Slot(2))))
    (1, 2)
    """
    out = instruction.out
    return (out.index,) if type(out) is Slot else tuple([slot.index for slot in slots_in(out)])


def opened_constants(program: Program) -> tuple[Action, ...]:
    """The instructions with public tensors in the places of their slots.

    >>> public = Action(ShareCode.PUBLIC, (Slot(0),), {}, Slot(1))
    >>> opened_constants(ShareProgram(0, (public,), (), constants=(torch.tensor(5),)))[0].args
    (tensor(5),)
    """
    if not program.constants:
        return program.actions
    values = dict(enumerate(program.constants, program.given - len(program.constants)))
    actions = [*program.actions]
    for place in places_of_constants(program):
        one = actions[place]
        actions[place] = Action(one.op, _opened(one.args, values), one.kwargs, one.out)
    return tuple(actions)


def _opened(args: tuple[Any, ...], values: dict[int, torch.Tensor]) -> tuple[Any, ...]:
    opened: list[Any] = []
    for arg in args:
        if type(arg) is Slot:
            arg = values.get(arg.index, arg)
        elif type(arg) is tuple:
            arg = _opened(arg, values)
        opened.append(arg)
    return tuple(opened)


def places_of_constants(program: Program) -> Sequence[int]:
    """The places of the instructions that use a public tensor; found once.

    >>> public = Action(ShareCode.PUBLIC, (Slot(0),), {}, Slot(1))
    >>> places_of_constants(ShareProgram(0, (public,), (), constants=(torch.tensor(5),)))
    [0]
    """
    found: list[int] | None = program.facts.get("public")
    if found is None:
        constants = range(program.given - len(program.constants), program.given)
        found = program.facts["public"] = [
            place
            for place, one in enumerate(program.actions)
            if any(slot.index in constants for slot in slots_in(one.args))
        ]
    return found


def divides_by_tensors(program: Program) -> bool:
    """Whether a factor holds a public tensor: then what is checked of a program, and dealt for it,
    depends on the elements of its constants, and must not be kept in ``facts``.

    >>> divide = Action(ShareCode.DIVIDE, (Slot(0), (Slot(1),), (2,)), {}, Slot(2))
    >>> divides_by_tensors(ShareProgram(1, (divide,), (Slot(2),), constants=(torch.tensor([3]),)))
    True
    """
    return any(program.actions[place].op in _OF_FACTORS for place in places_of_constants(program))


def stream_of(code: int, public: Sequence[Any], counter: int, place: int) -> StreamName:
    """The stream of an instruction, by all that is public of it: its arguments without slots.

    >>> stream_of(ShareCode.MASK, ((2, 3),), 7, 0)
    StreamName(counter=7, place=0, use='4 (2 3)')
    """
    if code in _OF_FACTORS:
        public = (named_factor(public[0]), *public[1:])
    return StreamName(counter, place, _use_of(code, tuple(public)))


def stream_of_mask(mask: tuple[int, int], shape: Sequence[int], counter: int) -> StreamName:
    """The stream of a mask that an instruction of the program ``counter`` names.

    >>> stream_of_mask((0, 2), (3,), 7) == stream_of(ShareCode.MASK, ((3,),), 7, 2)
    True
    """
    return stream_of(ShareCode.MASK, (tuple(shape),), mask[0] or counter, mask[1])


@functools.lru_cache(maxsize=1024)
def _use_of(code: int, public: tuple[Any, ...]) -> str:
    return f"{code:d} {' '.join(map(_text, public))}"


def _text(value: Any) -> str:
    """An argument as a text: equal ones of two processes have equal texts, others do not."""
    if isinstance(value, tuple):
        return f"({' '.join(map(_text, value))})"
    if isinstance(value, str):
        return value
    return str(value if value is None else int(value))
