"""Integer operations that act on each component of a ring tensor alone: moves, sums, factors.

A public operand of an addition or a join is lifted into the ring first.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.exceptions import UnsupportedOperation
from syft.ops.nested import leaves
from syft.tensors.fixed.rings.ring_link import (
    as_bits,
    as_integers,
    bits_if_all,
    is_ring,
    lifted,
    ring_of,
    ring_rule,
    rings_among,
    truth_of,
)
from syft.torch_private import correct_aliasing

aten = torch.ops.aten

MOVES = """
alias detach view _unsafe_view _reshape_alias t transpose.int permute expand squeeze squeeze.dim
squeeze.dims unsqueeze select.int slice.Tensor diagonal unfold as_strided lift_fresh clone flip roll
rot90 repeat tril triu slice_backward select_backward diagonal_backward unfold_backward narrow_copy
channel_shuffle pixel_shuffle pixel_unshuffle native_channel_shuffle diag_embed split.Tensor
split_with_sizes unbind.int unsafe_split.Tensor unsafe_split_with_sizes
"""

MAPS = """
neg sum sum.dim_IntList cumsum trace
"""
"""Linear in their one argument; of bits they are integers."""


FIX_FIRST = "private integers are whole numbers of 64 bits; call .fix_precision() on them first"


def one_of(args: Any) -> Any:
    """The first ring tensor among arguments, in lists too."""
    return next(value for value in leaves(args) if is_ring(value))


@ring_rule(MOVES)
def move(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Rearrange each component; bits stay bits."""
    out = args[0].child.componentwise(op, args, kwargs)
    if args[0].dtype is not torch.bool:
        return out
    return as_bits(out) if isinstance(out, torch.Tensor) else [as_bits(part) for part in out]


@ring_rule(MAPS)
def map_components(op: Any, x: Any, *rest: Any, dtype: Any = None) -> Any:
    """Apply a linear map with whole coefficients to each component."""
    if dtype not in (None, torch.int64):
        raise UnsupportedOperation(str(op), x.child.ring.name, FIX_FIRST)
    return x.child.componentwise(op, (x, *rest), {})


@ring_rule("constant_pad_nd")
def pad(op: Any, x: Any, widths: Any, value: Any = 0) -> Any:
    """Pad each component with zeros, and add the public border, of which one has all."""
    out = x.child.componentwise(op, (x, widths), {})
    if value:
        value = truth_of(value) if x.dtype is torch.bool else value
        inside = torch.zeros(x.shape, dtype=torch.int64, device=x.device)
        out = out + aten.constant_pad_nd(inside, widths, int(value))
    return as_bits(out) if x.dtype is torch.bool else out


@ring_rule("add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar")
def combine(op: Any, x: Any, y: Any, alpha: int = 1) -> Any:
    """Add or subtract; a public operand is lifted."""
    ring = ring_of(x, y)
    device = one_of((x, y)).device
    x, y = (as_integers(lifted(value, ring, device)) for value in (x, y))
    form = _COMBINATIONS[op.overloadpacket]
    return x.child.componentwise(form, (x, y), {"alpha": alpha})


_COMBINATIONS = {
    aten.add: aten.add.Tensor,
    aten.sub: aten.sub.Tensor,
    aten.rsub: aten.rsub.Tensor,
}


@ring_rule("mul.Tensor mul.Scalar")
def multiply(op: Any, x: Any, y: Any) -> Any:
    """A public factor multiplies each component; two private ones are a product of the ring."""
    if is_ring(x) and is_ring(y):
        product = ring_of(x, y).multiply(as_integers(x), as_integers(y), 1)
        return bits_if_all(product, x, y)
    private, public = (x, y) if is_ring(x) else (y, x)
    if isinstance(public, float) or getattr(public, "is_floating_point", bool)():
        raise UnsupportedOperation(str(op), private.child.ring.name, FIX_FIRST)
    if isinstance(public, torch.Tensor):
        operands = private, as_integers(public)
        product = private.child.componentwise(aten.mul.Tensor, operands, {})
    else:
        product = private.child.componentwise(aten.mul.Scalar, (private, int(public)), {})
    return bits_if_all(product, x, y)


@ring_rule("cat stack")
def join(op: Any, tensors: Any, *rest: Any) -> Any:
    """Join tensors of the ring; public ones are lifted."""
    ring = rings_among(tensors)
    first = one_of(tensors)
    private = [as_integers(lifted(tensor, ring, first.device)) for tensor in tensors]
    out = first.child.componentwise(op, (private, *rest), {})
    bits = all(tensor.dtype is torch.bool for tensor in tensors)
    return as_bits(out) if bits else out


# ------------------------------------------------------------------------ making, copying, casting


@ring_rule("zeros_like empty_like new_zeros new_empty new_empty_strided ones_like new_ones")
def alike(op: Any, x: Any, *rest: Any, dtype: Any = None, **settings: Any) -> Any:
    """Make zeros or ones; memory without contents is zeros."""
    return _filled(op, x, rest, int(op.overloadpacket in (aten.ones_like, aten.new_ones)), dtype)


@ring_rule("full_like new_full")
def full(op: Any, x: Any, *rest: Any, dtype: Any = None, **settings: Any) -> Any:
    """Fill with one public number."""
    return _filled(op, x, rest[:-1], int(rest[-1]), dtype)


def _filled(op: Any, x: Any, rest: Any, value: int, dtype: Any) -> Any:
    """A tensor of one number: in the ring if it is to hold what ``x`` does, or integers; plain if
    any other kind."""
    shape = rest[0] if rest else x.shape
    plain = torch.full(shape, value, dtype=torch.int64, device=x.device)
    if dtype is None and x.dtype is torch.bool:
        return as_bits(x.child.ring.lift(plain != 0))
    if dtype in (None, torch.int64):
        return as_integers(x.child.ring.lift(plain))
    return plain.to(dtype)


@ring_rule("copy_")
def copy_(op: Any, x: Any, source: Any, non_blocking: bool = False) -> Any:
    """Copy into the memory of the components; a public source is lifted."""
    if not is_ring(x):
        raise source.child.refused(op)
    ring = ring_of(x, source)
    source = lifted(source, ring, x.device)
    if x.dtype is torch.bool and source.dtype is not torch.bool:
        source = source != 0
    x.child.componentwise(op, (as_integers(x), source), {})
    return x


@ring_rule("fill_.Scalar fill_.Tensor")
def fill_(op: Any, x: Any, value: Any) -> Any:
    """Write one number everywhere; without its fraction, as torch does."""
    return x.copy_(
        value if isinstance(value, torch.Tensor) else torch.tensor(int(value), device="cpu")
    )


@ring_rule("fill.Scalar fill.Tensor")
def fill(op: Any, x: Any, value: Any) -> Any:
    """A new tensor of one number."""
    return x.clone().fill_(value)


@ring_rule("zero_")
def zero_(op: Any, x: Any) -> Any:
    """Fill the components with zeros."""
    x.child.componentwise(op, (as_integers(x),), {})
    return x


@ring_rule("bernoulli_.float")
def bernoulli_(op: Any, x: Any, p: float = 0.5, generator: Any = None) -> Any:
    """Draw public zeros and ones: dropout hides nothing by its mask."""
    drawn = torch.empty(x.shape, device=x.device).bernoulli_(p, generator=generator)
    return x.copy_(drawn.to(torch.int64))


@ring_rule("t_ transpose_ squeeze_ squeeze_.dim squeeze_.dims unsqueeze_")
def view_in_place(op: Any, x: Any, *rest: Any) -> Any:
    """Change the shape of the components, and then of the wrapper."""
    x.child = x.child.componentwise(op, (as_integers(x.view_as(x)), *rest), {}).child
    return correct_aliasing(op, (x, *rest), {}, x)  # type: ignore[no-untyped-call]
