"""What makes a share program, and a list of deals, well formed: every receiver checks it first.

A program that passes runs to its end, but for what depends on the inputs (their shapes and kinds)
and for the sizes of results, which are looked at before each is computed.

Slots, operands and results are checked as those of every program (:mod:`syft.program.lint`); here
is what the vocabulary of the ring adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import torch

from syft.crypto.gates.public_factors import check_factor, thawed_factor
from syft.crypto.kernels import kernel_from
from syft.crypto.programs.local_operations import check_local
from syft.crypto.programs.share_program import (
    ShareCode,
    ShareProgram,
    divides_by_tensors,
    opened_constants,
)
from syft.exceptions import MalformedMessage, ProgramError
from syft.program import lint as program_lint
from syft.program.lint import SCOPES, Scope, describe_operand
from syft.program.program import Action, Program, Slot, slots_in

MOST_INSTRUCTIONS: Final = 1 << 14
MOST_INPUTS: Final = 1 << 14
MOST_RESULTS: Final = 1 << 12
"""Results of one instruction."""
MOST_DIMENSIONS: Final = 16
MOST_ELEMENTS: Final = 1 << 40
"""Of a shape that an instruction names; what a party really makes is bounded by itself."""

Values = tuple[Any, ...]
_CODES: Final = frozenset(map(int, ShareCode))


def lint(program: ShareProgram, parties: int) -> None:
    """Raise :class:`~syft.exceptions.ProgramError`, naming the instruction, if one is wrong.

    A program that has passed is not looked at again, unless it divides by public tensors: another
    one with other elements has the same facts.

    >>> mask = Action(ShareCode.MASK, (Slot(0), (2,)), {}, Slot(1))
    >>> lint(ShareProgram(1, (mask,), (Slot(1),)), 2)
    >>> lint(ShareProgram(1, (mask, mask), (Slot(1),)), 2)
    Traceback (most recent call last):
    ...
    syft.exceptions.ProgramError: action 1, MASK, has at .out: Slot(1), where Slot(2) was expected
    """
    if "sound" not in program.facts:
        program_lint.lint(program)
        if not divides_by_tensors(program):
            program.facts["sound"] = True
    for place, one in enumerate(program.actions):
        if one.op == ShareCode.REVEAL and one.args[1] >= parties:
            raise ProgramError(f"action {place}: a reveal to party {one.args[1]} of {parties}")


def lint_deals(deals: Any) -> None:
    """The same for what a provider is asked to deal (``deals_of``), which has no operands.

    >>> lint_deals(((3, 6, (16, (2,))),))
    >>> lint_deals(((3, 6, (63, (2,))),))
    Traceback (most recent call last):
    ...
    syft.exceptions.ProgramError: a division by 2^63: the exponent must be 0 to 62
    """
    latest = -1
    for deal in _tuple(deals, MOST_INSTRUCTIONS):
        if type(deal) is not tuple or len(deal) != 3 or not is_whole(deal[0], 1 << 32):
            raise ProgramError("a deal that is no place, code and arguments")
        place, code, public = deal
        if place <= latest:
            raise ProgramError("deals that are not in order")
        latest = place
        if type(code) not in (int, ShareCode) or code not in _DEALS:
            raise ProgramError("a deal for an unknown instruction")
        _PUBLIC[ShareCode(code)](_tuple(public, 7))


class ShareScope(Scope):
    """Checks instructions on shares; ``kinds`` says what is in each slot by then."""

    __slots__ = ("kinds", "masks", "place", "_opened")

    def __init__(self, program: Program, nested: int) -> None:
        super().__init__(program, nested)
        if nested or program.state:
            raise ProgramError("a share program inside of another, or with a state")
        if not 0 <= program.inputs <= MOST_INPUTS or len(program.actions) > MOST_INSTRUCTIONS:
            raise ProgramError("a share program of too many inputs or instructions")
        for constant in program.constants:
            if constant.layout is not torch.strided or constant.requires_grad:
                raise ProgramError("a public value that is no plain tensor")
        self.kinds = ["input"] * program.inputs + ["public"] * len(program.constants)
        self.masks: dict[int, tuple[int, Values]] = {}
        """The place and the shape of the MASK that filled a slot."""
        self.place = -1
        self._opened = opened_constants(program)

    @staticmethod
    def name_of(op: int) -> str:
        """The name of an instruction."""
        return ShareCode(op).name if op in _CODES else f"instruction {op}"

    def check(self, action: Action) -> None:
        """Check one instruction, and count its results."""
        code = action.op
        self.place += 1
        if type(code) not in (int, ShareCode) or code not in _CODES:
            raise MalformedMessage("$.op", "an instruction on shares", describe_operand(code))
        if type(action.args) is not tuple or action.kwargs or action.mode is not None:
            raise MalformedMessage("$", "arguments, no keywords and no mode", "others")
        self.operands(enumerate(action.args), ".args")
        args = self._opened[self.place].args
        if code == ShareCode.LOCAL:
            counts = _check_local(args)
        else:
            public = _public_args(ShareCode(code), args)
            _PUBLIC[ShareCode(code)](public)
            counts = (2,) if code == ShareCode.POSITIVE else (1,)
        self._read(code, args)
        self._write(action, counts)

    def end(self, outputs: Any) -> None:
        """Check that the results are slots, each once."""
        super().end(outputs)
        if type(outputs) is not tuple or any(type(slot) is not Slot for slot in outputs):
            raise MalformedMessage("$.outputs", "a tuple of slots", describe_operand(outputs))
        if len({slot.index for slot in outputs}) != len(outputs):
            raise ProgramError("a share program with the same result twice")
        if any(self.kinds[slot.index] == "public" for slot in outputs):
            raise ProgramError("a share program with a public tensor as a result")

    def _read(self, code: int, args: Values) -> None:
        wanted = "masked" if code == ShareCode.PRODUCT else "share"
        for slot in slots_in(args):
            found = self.kinds[slot.index]
            if found not in (wanted, "input"):
                raise ProgramError(f"slot {slot.index} holds {found}, not a {wanted}")
        if code == ShareCode.PRODUCT:
            _, _, x, y, x_mask, x_shape, y_mask, y_shape, _ = args
            self._check_mask(x, x_mask, x_shape)
            self._check_mask(y, y_mask, y_shape)

    def _check_mask(self, slot: Slot, name: Values, shape: Values) -> None:
        """A mask of this program is that of the operand; others come with inputs."""
        made = self.masks.get(slot.index)
        if (made is None) == (name[0] == 0) or made is not None and made != (name[1], shape):
            raise ProgramError(f"slot {slot.index} is not behind mask {name} of shape {shape}")

    def _write(self, action: Action, counts: Iterable[int]) -> None:
        out, first = action.out, self.defined
        self.result(out, ".out")
        flat = out is None or type(out) is Slot or all(type(part) is Slot for part in out)
        if not flat or self.defined - first not in counts:
            raise ProgramError("another number of results")
        if action.op == ShareCode.MASK:
            self.masks[first] = (self.place, action.args[1])
        self.kinds += [_MADE.get(ShareCode(action.op), "share")] * (self.defined - first)


SCOPES[ShareProgram] = ShareScope


_MADE: Final = {ShareCode.MASK: "masked", ShareCode.REVEAL: "plain"}
"""What instructions make that make no shares."""

_OPERANDS: Final = {
    ShareCode.PUBLIC: (),
    ShareCode.LINEAR: (2,),
    ShareCode.PRODUCT: (2, 3),
}
"""Where the operands stand among the arguments, if not first."""


def _public_args(code: ShareCode, args: Values) -> Values:
    """The arguments without the operands, which must be slots; nothing else may be one."""
    places = _OPERANDS.get(code, (0,))
    if len(args) <= max(places, default=-1):
        raise ProgramError("too few arguments")
    if not all(type(args[place]) is Slot for place in places):
        raise ProgramError("an operand that is no slot")
    return tuple(value for place, value in enumerate(args) if place not in places)


def _check_local(args: Values) -> Iterable[int]:
    """Check a local operation; returns how many results it may have."""
    if len(args) != 3:
        raise ProgramError("another number of arguments")
    operation = check_local(*args)
    if operation.in_place:
        return (0, 1)
    return range(1, MOST_RESULTS + 1) if operation.several else (1,)


# ------------------------------------------------------------------------------- public arguments


def is_whole(value: Any, end: int) -> bool:
    """Whether a value is an integer from 0 to below ``end``.

    >>> is_whole(3, 4), is_whole(True, 4), is_whole(-1, 4)
    (True, False, False)
    """
    return type(value) is int and 0 <= value < end


def check_shape(shape: Any) -> None:
    """Raise :class:`~syft.exceptions.ProgramError` for what is no shape of a moderate size.

    >>> check_shape((2, 3))
    """
    if type(shape) is not tuple or len(shape) > MOST_DIMENSIONS:
        raise ProgramError("a shape that is no short tuple")
    elements = 1
    for size in shape:
        if not is_whole(size, MOST_ELEMENTS):
            raise ProgramError("a shape of other things than sizes")
        elements *= size
    if elements > MOST_ELEMENTS:
        raise ProgramError(f"a shape of {elements} elements")


def _tuple(value: Any, most: int) -> Values:
    if type(value) is not tuple or len(value) > most:
        raise ProgramError(f"something else than a tuple of at most {most}")
    return value


def _count(public: Values, count: int) -> Values:
    if len(public) != count:
        raise ProgramError("another number of arguments")
    return public


def _only_shape(public: Values) -> None:
    check_shape(*_count(public, 1))


def _factor_and_shape(public: Values) -> None:
    factor, shape = _count(public, 2)
    check_shape(shape)
    check_factor(thawed_factor(factor), shape)


def _plain_tensor(public: Values) -> None:
    (tensor,) = _count(public, 1)
    if type(tensor) is not torch.Tensor or tensor.dtype is not torch.int64:
        raise ProgramError("a public value that is no int64 tensor")


def _linear(public: Values) -> None:
    code, settings, *factor = _count(public, 2 if len(public) <= 2 else 4)
    if kernel_from(code, settings).bilinear is not bool(factor):
        raise ProgramError("a kernel of another number of operands")
    if factor:
        _plain_tensor(tuple(factor[:1]))
        if type(factor[1]) is not bool:
            raise ProgramError("a public factor in no place")


def _party(public: Values) -> None:
    (party,) = _count(public, 1)
    if not is_whole(party, MOST_INPUTS):
        raise ProgramError("a reveal to no party")


def _product(public: Values) -> None:
    code, settings, x_mask, x_shape, y_mask, y_shape, shape = _count(public, 7)
    kernel = kernel_from(code, settings)
    for one in (x_shape, y_shape, shape):
        check_shape(one)
    for name in (x_mask, y_mask):
        if type(name) is not tuple or len(name) != 2:
            raise ProgramError("a mask without a name")
        if not (is_whole(name[0], 1 << 63) and is_whole(name[1], 1 << 32)):
            raise ProgramError("a mask without a name")
    if not kernel.bilinear:
        raise ProgramError("a product by a linear kernel")
    if kernel.shape(x_shape, y_shape) != shape:
        raise ProgramError(f"{kernel.code.name} of {x_shape} and {y_shape} is not of {shape}")


_PUBLIC: Final[dict[ShareCode, Callable[[Values], None]]] = {
    ShareCode.PUBLIC: _plain_tensor,
    ShareCode.LINEAR: _linear,
    ShareCode.MASK: _only_shape,
    ShareCode.PRODUCT: _product,
    ShareCode.DIVIDE: _factor_and_shape,
    ShareCode.NEGATIVE: _only_shape,
    ShareCode.POSITIVE: _factor_and_shape,
    ShareCode.ZERO: _only_shape,
    ShareCode.REVEAL: _party,
}
"""How to check what is public in an instruction."""

_DEALS: Final = frozenset(
    {
        ShareCode.PRODUCT,
        ShareCode.DIVIDE,
        ShareCode.NEGATIVE,
        ShareCode.POSITIVE,
        ShareCode.ZERO,
    }
)
"""The instructions that corrections are dealt for."""
