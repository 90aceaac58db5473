"""Rules for operations that rearrange values: views, permutations, joins, paddings.

The same operation runs on the integers; the result is on the same grid.  A view stays a view: its
child shares the memory of the original child, so in-place changes show in every view.
"""

from __future__ import annotations

from typing import Any

from syft.torch_private import correct_aliasing
from syft.crypto.kernels import kernel_of
from syft.chain.wrapper import Wrapper
from syft.tensors.fixed.fixed_link import (
    fixed,
    fixed_beside,
    grid_among,
    integers,
    no_rule,
    rule,
    target_of,
)
from syft.tensors.fixed.ring import check_sums

VIEWS = """
alias detach view _unsafe_view _reshape_alias t transpose.int permute expand squeeze squeeze.dim
squeeze.dims unsqueeze select.int slice.Tensor diagonal unfold as_strided lift_fresh
"""

MOVES = """
clone flip roll rot90 repeat tril triu index_select gather index.Tensor _unsafe_index.Tensor take
masked_select slice_backward select_backward diagonal_backward embedding narrow_copy channel_shuffle
pixel_shuffle pixel_unshuffle native_channel_shuffle diag_embed
alias_copy detach_copy view_copy t_copy transpose_copy.int permute_copy expand_copy squeeze_copy
squeeze_copy.dim squeeze_copy.dims unsqueeze_copy select_copy.int slice_copy.Tensor diagonal_copy
unfold_copy as_strided_copy
"""

SEVERAL = """
split.Tensor split_with_sizes unbind.int unsafe_split.Tensor unsafe_split_with_sizes
split_copy.Tensor split_with_sizes_copy unbind_copy.int
"""

FLOAT_KERNELS_ONLY = """
reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
replication_pad3d upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
_upsample_nearest_exact2d _upsample_nearest_exact3d im2col col2im upsample_nearest1d_backward
upsample_nearest2d_backward upsample_nearest3d_backward _upsample_nearest_exact1d_backward
_upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward
"""
"""Sums and copies of values for which torch has no int64 kernel."""

IN_PLACE_VIEWS = """
t_ transpose_ squeeze_ squeeze_.dim squeeze_.dims unsqueeze_ as_strided_
"""


@rule(VIEWS + MOVES)
def keep(op: Any, x: Any, *rest: Any, **settings: Any) -> Any:
    """Run the operation on the integers."""
    if type(x) is not Wrapper:
        raise no_rule(op, "only its first argument can be a fixed-precision tensor")
    link: Any = x.child
    return fixed(op(link.child, *rest, **settings), link.grid)


@rule("unfold_backward embedding_dense_backward")
def add_up(op: Any, grad: Any, *rest: Any) -> Any:
    """Add up the gradients of what was read several times."""
    link = grad.child
    check_sums(link.child, grad.numel(), lambda child: op(child, *rest), link.grid.scale)
    return fixed(op(link.child, *rest), link.grid)


@rule(SEVERAL)
def keep_each(op: Any, x: Any, *rest: Any, **settings: Any) -> Any:
    """Run the operation on the integers; it has several results."""
    link = x.child
    return [fixed(part, link.grid) for part in op(link.child, *rest, **settings)]


@rule(FLOAT_KERNELS_ONLY)
def keep_through_float64(op: Any, x: Any, *rest: Any) -> Any:
    """Run the operation on the integers as float64, in limbs if they are large: exact."""
    link = x.child
    child = link.ring.linear(kernel_of(op, *rest), link.child, link.grid.scale)
    return fixed(child, link.grid)


@rule(
    "reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward "
    "replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward"
)
def pad_backward(op: Any, grad: Any, x: Any, padding: Any) -> Any:
    """Sum the gradients of the copies."""
    link = fixed_beside(op, grad, x).child
    child = link.ring.linear(kernel_of(op, x.shape, padding), link.child, link.grid.scale)
    return fixed(child, link.grid)


@rule("cat stack")
def join(op: Any, tensors: Any, *rest: Any) -> Any:
    """Join the integers of all; plain tensors are encoded."""
    grid = grid_among(op, tensors)
    return fixed(op(integers(op, tensors, grid), *rest), grid)


@rule(IN_PLACE_VIEWS)
def view_in_place(op: Any, x: Any, *rest: Any) -> Any:
    """Change the shape of the integers, and then of the wrapper."""
    link = target_of(op, x)
    link.child = op(link.child.view_as(link.child), *rest)
    return correct_aliasing(op, (x, *rest), {}, x)  # type: ignore[no-untyped-call]
