"""Fixed precision: numbers as integers on a grid, for arithmetic in a ring.

Secret sharing and other exact arithmetic need integers.  ``x.fix_precision()`` returns a
``torch.Tensor`` that reports float32, so that modules, autograd and optimizers work on it, while
the stored values are 64-bit integers.  ``docs/fixed_precision.md`` describes how it is used.

This file holds the conversions for tensors in this process and the codec; importing it fills the
table of rules (see ``fixed_link``).  ``syft/tensors/conversions.py`` makes them methods of
``torch.Tensor`` that work wherever the tensor is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from syft.chain.link import Link
from syft.chain.wrapper import Wrapper
from syft.codes import TypeCode
from syft.exceptions import MalformedMessage, UnsupportedOperation
from syft.serde.expect import expect_fields, expect_int
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, pack, register, register_check, unpack_at
from syft.tensors.fixed import fallback
from syft.tensors.fixed.rings import (
    access_rules,
    comparison_rules,
    component_rules,
    derived_rules,
)
from syft.tensors.fixed.rings.ring_link import RingLink, as_integers, is_ring
from syft.torch_private import exchange_contents
from syft.tensors.fixed.rules import (
    arithmetic,
    creation,
    finer_digits,
    linear_systems,
    pooling,
    private_functions,
    private_layers,
    products,
    selection,
    shapes,
    sums,
)
from syft.tensors.fixed.grid import (
    BASES,
    DEFAULT_BITS,
    LARGEST_SCALE,
    Grid,
    encode,
    forbid_decoding,
    make_grid,
)
from syft.tensors.fixed.fixed_link import (
    FixedPrecisionTensor,
    decoded,
    fixed,
    is_fixed,
    on_grid,
    refined,
)

__all__ = [
    "FixedPrecisionTensor",
    "fix_precision",
    "fix_precision_",
    "float_precision",
    "float_precision_",
    "forbid_decoding",
]

TABLES: tuple[tuple[type[Link], str, tuple[ModuleType, ...]], ...] = (
    (
        FixedPrecisionTensor,
        "rules",
        (arithmetic, creation, fallback, pooling, products, selection, shapes, sums),
    ),
    (
        FixedPrecisionTensor,
        "private_rules",
        (fallback, linear_systems, private_functions, private_layers),
    ),
    (FixedPrecisionTensor, "finer_rules", (finer_digits,)),
    (
        RingLink,
        "rules",
        (access_rules, comparison_rules, component_rules, derived_rules),
    ),
)
"""The tables of rules, and the modules that fill them."""


def _missing_rules() -> list[str]:
    missing = []
    for link, table, modules in TABLES:
        known = {rule.__module__ for rule in getattr(link, table).values()}
        missing += [f"the rules of {m.__name__}" for m in modules if m.__name__ not in known]
    return missing


register_check(_missing_rules)


# ---------------------------------------------------------------------------------- conversions


def fix_precision(
    x: torch.Tensor, precision_fractional: int | None = None, base: int | None = None
) -> torch.Tensor:
    """Encode a tensor in fixed precision: integers on a grid of ``base**-precision_fractional``.

    Without arguments the grid has base 2 and 16 fractional bits; ``precision_fractional`` alone
    counts decimals.  A leaf that requires grad becomes a new leaf that requires grad; gradients
    pass through the encoding of other tensors.  A tensor that is fixed already is converted to the
    new grid.

    Raises :class:`~syft.exceptions.EncodingError` for a value that does not fit: too large, NaN or
    infinite.

    >>> fix_precision(torch.tensor([1.5, -2.0]))
    (Wrapper)>FixedPrecisionTensor>tensor([  98304, -131072])
    >>> fix_precision(torch.tensor([1.5, -2.0]), precision_fractional=3)
    (Wrapper)>FixedPrecisionTensor>tensor([ 1500, -2000])
    >>> fix_precision(torch.tensor([1e18]))
    Traceback (most recent call last):
    syft.exceptions.EncodingError: Cannot encode 9.999999843067494e+17 in fixed precision: the \
range is -1.407e+14 to 1.407e+14. Instead, use fewer fractional digits (precision_fractional) or \
scale the data down.
    """
    grid = choose_grid(precision_fractional, base)
    if is_fixed(x) and x.child.grid is grid:  # type: ignore[attr-defined]
        return x
    if x.requires_grad and not x.is_leaf:
        encoded: torch.Tensor = _Encode.apply(x, grid)  # type: ignore[no-untyped-call]
        return encoded
    return _encoded(x, grid).requires_grad_(x.requires_grad)


def fix_precision_(
    x: torch.Tensor, precision_fractional: int | None = None, base: int | None = None
) -> torch.Tensor:
    """Encode a tensor and its gradient in place; it stays the same Python object.

    Optimizers and modules that hold it keep working.

    >>> weight = torch.nn.Parameter(torch.tensor([0.25]))
    >>> fix_precision_(weight) is weight, isinstance(weight, torch.nn.Parameter)
    (True, True)
    """
    grid = choose_grid(precision_fractional, base)
    _refuse_non_leaf("fix_precision_", x)
    grad = None if x.grad is None else _encoded(x.grad, grid)
    return _replace_contents(x, _encoded(x, grid), grad)


def float_precision(x: torch.Tensor) -> torch.Tensor:
    """Decode a fixed-precision tensor to a plain float32 tensor; gradients pass through.

    >>> float_precision(fix_precision(torch.tensor([1.5, -2.0])))
    tensor([ 1.5000, -2.0000])

    The bits of a comparison become 0.0 and 1.0, and so does what was counted of them:

    >>> above = fix_precision(torch.tensor([1.5, 2.0])) > 0
    >>> float_precision(above), float_precision(above.sum())
    (tensor([1., 1.]), tensor(2.))
    """
    if x.dtype in (torch.bool, torch.int64) and type(x) is not Wrapper:
        return x.float()
    _refuse_plain("float_precision", x)
    if x.requires_grad and torch.is_grad_enabled():
        numbers: torch.Tensor = _Decode.apply(x)  # type: ignore[no-untyped-call]
        return numbers
    return _decoded(x)


def float_precision_(x: torch.Tensor) -> torch.Tensor:
    """Decode a fixed-precision tensor and its gradient in place; it stays the same object.

    >>> x = fix_precision(torch.tensor([1.5]))
    >>> float_precision_(x) is x, x
    (True, tensor([1.5000]))
    """
    _refuse_plain("float_precision_", x)
    _refuse_non_leaf("float_precision_", x)
    grad = _decoded(x.grad) if is_fixed(x.grad) else x.grad
    return _replace_contents(x, _decoded(x), grad)


def choose_grid(precision_fractional: int | None = None, base: int | None = None) -> Grid:
    """The grid that the arguments of :func:`fix_precision` ask for.

    A base alone gets as many digits as 16 bits hold.

    >>> print(choose_grid(), choose_grid(3), choose_grid(20, 2), choose_grid(None, 10), sep="; ")
    base 2 with 16 digits; base 10 with 3 digits; base 2 with 20 digits; base 10 with 4 digits
    """
    if precision_fractional is not None:
        return make_grid(10 if base is None else base, precision_fractional)
    if base is None or base not in BASES:
        return make_grid(2 if base is None else base, DEFAULT_BITS)
    return make_grid(base, int(DEFAULT_BITS * math.log(2, base) + 1e-9))


# ------------------------------------------------------------------------------- implementation


class _Encode(torch.autograd.Function):
    """Encoding; the gradient is decoded and otherwise unchanged."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, grid: Grid) -> torch.Tensor:
        ctx.dtype = x.dtype
        ctx.source = x.child.grid if is_fixed(x) else None  # type: ignore[attr-defined]
        return _encoded(x, grid)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if ctx.source is not None:
            return _encoded(grad, ctx.source), None
        return decoded(grad.child, ctx.dtype), None


class _Decode(torch.autograd.Function):
    """Decoding; the gradient is encoded and otherwise unchanged."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> torch.Tensor:
        ctx.grid = x.child.grid
        return _decoded(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _encoded(grad, ctx.grid)


def _encoded(x: Any, grid: Grid) -> torch.Tensor:
    if is_ring(x):
        return fixed(as_integers(x) * grid.scale, grid)
    if not is_fixed(x):
        return fixed(encode(x, grid), grid)
    if x.child.grid is grid:
        return x.detach()  # type: ignore[no-any-return]
    return fixed(on_grid(x.child, grid), grid)


def _decoded(x: Any) -> torch.Tensor:
    numbers = refined(x)
    if numbers is None or not numbers.unit or not x.child.ring.readable:
        return decoded(x.child)
    made: torch.Tensor = numbers.integers.double() * (numbers.factor / numbers.unit)
    return made.float()


def _replace_contents(
    x: torch.Tensor, other: torch.Tensor, grad: torch.Tensor | None
) -> torch.Tensor:
    """Give ``x`` the contents of ``other``; it keeps its tags and stays a parameter."""
    parameter = isinstance(x, torch.nn.Parameter)
    if parameter and not is_fixed(other):
        other = torch.nn.Parameter(other, requires_grad=x.requires_grad)
    other.requires_grad_(x.requires_grad)
    kept = {name: value for name, value in x.__dict__.items() if name not in ("child", "_is_param")}
    other.__dict__.update(kept)
    if parameter and is_fixed(other):
        other._is_param = True
    other.grad = grad
    exchange_contents(x, other)
    return x


def _refuse_non_leaf(call: str, x: torch.Tensor) -> None:
    if x.requires_grad and not x.is_leaf:
        raise UnsupportedOperation(
            call,
            "a tensor with a graph behind it",
            f"call {call.rstrip('_')}(), or detach it first",
        )


def _refuse_plain(call: str, x: torch.Tensor) -> None:
    if not is_fixed(x):
        if type(x) is Wrapper:
            kind = f"{type(x.child).__name__} of {x.dtype}"
            raise UnsupportedOperation(call, kind, "get() it first, or encode it if it is not")
        raise UnsupportedOperation(call, "a plain tensor", "it is decoded already; use it as it is")


# ---------------------------------------------------------------------------------------- the wire


def _pack(link: FixedPrecisionTensor, packer: Packer) -> Operand:
    code = int(TypeCode.FIXED_PRECISION)
    return (code, link.base, link.precision_fractional, pack(link.child, packer))


def _unpack(operand: Sequence[Any], unpacker: Unpacker) -> Wrapper:
    expect_fields(operand, 3)
    base = expect_int(operand[1], ".base", BASES.start, BASES.stop - 1)
    most = int(math.log(LARGEST_SCALE, base) + 1e-9)
    digits = expect_int(operand[2], ".precision_fractional", 0, most)
    child = unpack_at(operand[3], unpacker, ".child")
    plain = type(child) is torch.Tensor and child.layout is torch.strided
    if not (is_ring(child) or plain and child.dtype is torch.int64):
        got = str(child.dtype) if isinstance(child, torch.Tensor) else type(child).__name__
        if type(child) is Wrapper:
            got = type(child.child).__name__
        raise MalformedMessage("$.child", "a dense tensor of int64", got)
    return fixed(child, make_grid(base, digits))


register(TypeCode.FIXED_PRECISION, FixedPrecisionTensor, _pack, _unpack)
