"""Rules for making, filling, copying, casting and reading fixed-precision tensors.

``zeros_like`` and similar operations return a fixed tensor on the same grid, unless the call names
an integer or boolean dtype.  A cast to another floating dtype changes nothing: the grid is the
precision, so ``.double()`` and ``.half()`` return a copy that reports float32.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.exceptions import UnsupportedOperation
from syft.torch_private import correct_aliasing
from syft.tensors.fixed.grid import CEILING, DEFAULT_BITS, Excess, encode_number, make_grid
from syft.tensors.fixed.fixed_link import (
    FinerNumbers,
    attach,
    fixed,
    integers,
    is_fixed,
    most_digits,
    no_rule,
    on_grid,
    rule,
    target_of,
)

from syft.tensors.fixed.rings.component_rules import FIX_FIRST
from syft.tensors.fixed.rings.ring_link import as_bits, as_integers, ring_rule

aten = torch.ops.aten


def is_float(dtype: torch.dtype | None) -> bool:
    """Whether a result of this dtype (None: not given) stays fixed.

    >>> is_float(None), is_float(torch.float64), is_float(torch.int64)
    (True, True, False)
    """
    return dtype is None or dtype.is_floating_point


@rule("zeros_like empty_like new_zeros new_empty new_empty_strided")
def alike(op: Any, x: Any, *rest: Any, dtype: Any = None, **settings: Any) -> Any:
    """Make zeros, or uninitialized memory."""
    link = x.child
    if not is_float(dtype):
        return op(link.child, *rest, dtype=dtype, **settings)
    made = fixed(op(link.child, *rest, **settings), link.grid)
    if op is aten.zeros_like.default:
        _begin(made.child, 0)
    return made


@rule("full_like new_full")
def full(op: Any, x: Any, *rest: Any, dtype: Any = None, **settings: Any) -> Any:
    """Fill with one number; infinity becomes an end of the grid."""
    link = x.child
    if not is_float(dtype):
        return op(link.child, *rest, dtype=dtype, **settings)
    *size, value = rest
    number = encode_number(value, link.grid, Excess.ENDS)
    made = fixed(op(link.child, *size, number, **settings), link.grid)
    if op is aten.full_like.default:
        _begin(made.child, value)
    return made


def _begin(link: Any, value: float) -> None:
    """Note that a tensor of one number may get more digits, as an optimizer may keep it.

    The integers are there from the first, so that they are what they were where a program fails.
    """
    unit = most_digits(link.grid)
    if not abs(value) * unit < CEILING:
        return
    number = round(value * unit)
    if link.ring.readable:
        values = link.child.new_full((), number).expand(link.child.shape)
    else:
        values = torch.full_like(link.child, number)
    attach(link, FinerNumbers(values, unit if number else 0, is_kept=True, begun=False))


@rule("ones_like new_ones")
def ones(op: Any, x: Any, *rest: Any, dtype: Any = None, **settings: Any) -> Any:
    """Fill with the scale, which is 1."""
    link = x.child
    if not is_float(dtype):
        return op(link.child, *rest, dtype=dtype, **settings)
    form = aten.new_full.default if rest else aten.full_like.default
    return fixed(form(link.child, *rest, link.grid.scale, **settings), link.grid)


@rule("fill_.Scalar fill_.Tensor")
def fill_(op: Any, x: Any, value: Any) -> Any:
    """Fill in place; infinity becomes an end of the grid."""
    link = target_of(op, x)
    link.child.copy_(_as_tensor(integers(op, value, link.grid, Excess.ENDS), link.child))
    return x


@rule("fill.Scalar fill.Tensor")
def fill_new(op: Any, x: Any, value: Any) -> Any:
    """Fill a new tensor; infinity becomes an end of the grid."""
    return fill_(op, fixed(torch.empty_like(x.child.child), x.child.grid), value)


def _as_tensor(value: Any, like: torch.Tensor) -> torch.Tensor:
    return like.new_tensor(value) if isinstance(value, int) else value


@rule("zero_")
def zero_(op: Any, x: Any) -> Any:
    """Fill with zeros in place."""
    x.child.child.zero_()
    return x


@rule("copy_")
def copy_(op: Any, x: Any, source: Any, non_blocking: bool = False) -> Any:
    """Copy from any tensor; the integers of the same grid are copied, other values are encoded.

    From another grid the values are decoded and encoded again.
    """
    link = target_of(op, x)
    if is_fixed(source) and source.child.grid is not link.grid:
        values = on_grid(source.child, link.grid)
    else:
        values = integers(op, source, link.grid)
    link.child.copy_(values, non_blocking)
    return x


@rule("_to_copy")
def cast(op: Any, x: Any, dtype: Any = None, **settings: Any) -> Any:
    """Copy to another device or layout; to an integer dtype cut off the fraction, as torch does."""
    link = x.child
    if is_float(dtype):
        return fixed(op(link.child, **settings), link.grid)
    if dtype.is_complex:
        raise no_rule(
            op, "there are no complex numbers in fixed precision; call .float_prec() first"
        )
    if dtype is torch.bool:
        return op(link.child, dtype=dtype, **settings)
    whole = torch.div(link.child, link.grid.scale, rounding_mode="trunc")
    return op(whole, dtype=dtype, **settings)


@ring_rule("_to_copy")
def cast_integers(op: Any, x: Any, dtype: Any = None, **settings: Any) -> Any:
    """Between integers and bits; floating point becomes fixed precision, on the default grid."""
    if dtype is torch.bool and x.dtype is not torch.bool:
        return x != 0
    out = x.child.componentwise(op, (as_integers(x),), settings)
    if dtype is not None and dtype.is_floating_point:
        grid = make_grid(2, DEFAULT_BITS)
        return fixed(out * grid.scale, grid)
    if dtype not in (None, torch.bool, torch.int64):
        raise UnsupportedOperation(str(op), type(x.child).__name__, FIX_FIRST)
    return as_bits(out) if (dtype or x.dtype) is torch.bool else out


@rule("_local_scalar_dense")
def read(op: Any, x: Any) -> Any:
    """The one number of a tensor of one element (``item()``), as a Python float."""
    return x.child.child.item() / x.child.grid.scale


@rule("resize_")
def resize_(op: Any, x: Any, *size: Any, **settings: Any) -> Any:
    """Give the integers, and then the wrapper itself, the new size."""
    op(target_of(op, x).child, *size, **settings)
    return correct_aliasing(op, (x, *size), settings, x)  # type: ignore[no-untyped-call]


@rule("set_ set_.source_Tensor set_.source_Storage set_.source_Storage_storage_offset")
def set_(op: Any, *_: Any, **__: Any) -> Any:
    """Refused: the memory under a wrapper cannot be replaced."""
    raise no_rule(op, "use copy_(), or assign to .data")
