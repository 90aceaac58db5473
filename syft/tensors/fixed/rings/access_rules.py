"""Random access to integers of a ring, by public or by private indices.

A public index moves the components.  A private one is turned into a row of zeros and a single one
(:meth:`Ring.one_hot`), and access becomes a product with it, which touches every element: what is
read or written shows nothing.  An index outside reads zero and writes nothing, because nobody
may know that it is outside.

Public indices are looked at where they are used: an error belongs to the line that is wrong.

Whoever holds the components finds a wrong index too, but later, and what was computed in between is
lost then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from syft.crypto.kernels import Kernel, KernelCode
from syft.ops.nested import Arguments, leaves
from syft.tensors.fixed.rings.component_rules import one_of
from syft.tensors.fixed.rings.ring_link import (
    as_integers,
    bits_if_all,
    is_ring,
    lifted,
    ring_of,
    ring_rule,
    rings_among,
    truth_of,
    whole,
)

aten = torch.ops.aten

MATMUL = Kernel(KernelCode.MATMUL)


def _reads_publicly(op: Any, x: Any, *rest: Any) -> Any:
    """The operation on each component; its indices are public."""
    check_indices(op, (x, *rest))
    return x.child.componentwise(op, (x, *rest), {})


@ring_rule("index_select gather take embedding embedding_dense_backward")
def read(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Read at public or private indices."""
    private = _PRIVATE_READS[op.overloadpacket]
    place = (
        1 if op.overloadpacket in (aten.take, aten.embedding, aten.embedding_dense_backward) else 2
    )
    out = private(*args) if is_ring(args[place]) else _reads_publicly(op, *args)
    return bits_if_all(out, args[0])


def select_rows(x: Any, dim: int, index: Any) -> Any:
    """``x.index_select(dim, index)``, or with an index of any shape in the place of ``dim``."""
    ring = ring_of(x, index)
    hot = ring.one_hot(index.reshape(-1), x.shape[dim])
    table = whole(x, ring).movedim(dim, 0)
    rows = ring.product(MATMUL, hot, table.reshape(table.shape[0], -1), 1)
    return rows.view(*index.shape, *table.shape[1:])


def _index_select(x: Any, dim: int, index: Any) -> Any:
    return select_rows(x, dim, index).movedim(0, dim)


def _gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    if not index.dim():
        return _gather(x.view(1), 0, index.view(1)).view(())
    ring = ring_of(x, index)
    dim %= index.dim()
    hot = ring.one_hot(index, x.shape[dim])
    inside = x[_corner(index.shape, dim)]
    table = whole(inside, ring).movedim(dim, -1).unsqueeze(-1)
    rows = hot.movedim(dim, -2)  # (..., chosen, size) @ (..., size, 1)
    return ring.product(MATMUL, rows, table, 1).squeeze(-1).movedim(-1, dim)


def _corner(shape: Any, but: int | None = None) -> tuple[slice, ...]:
    """The slices of a tensor that an index of a smaller shape reaches; all of dimension ``but``."""
    slices = [slice(0, size) for size in shape]
    if but is not None:
        slices[but] = slice(None)
    return tuple(slices)


def _embedding_backward(grad: Any, index: Any, rows: int, padding: int, by_frequency: bool) -> Any:
    if by_frequency:
        raise one_of((grad, index)).child.refused(aten.embedding_dense_backward.default)
    ring = ring_of(grad, index)
    hot = ring.one_hot(index.reshape(-1), rows)
    if 0 <= padding < rows:
        kept = torch.ones(rows, dtype=torch.int64, device=index.device)
        kept[padding] = 0
        hot = hot * kept
    flat = whole(grad, ring).reshape(-1, grad.shape[-1])
    return ring.product(MATMUL, hot.t(), flat, 1)


_PRIVATE_READS: dict[Any, Any] = {
    aten.index_select: _index_select,
    aten.gather: _gather,
    aten.take: lambda x, index: select_rows(x.reshape(-1), 0, index),
    aten.embedding: lambda table, index, *_: select_rows(table, 0, index),
    aten.embedding_dense_backward: _embedding_backward,
}


@ring_rule("index.Tensor _unsafe_index.Tensor")
def index(op: Any, x: Any, indices: Any) -> Any:
    """Read by public indices and masks, or by one private index."""
    dim = next((place for place, one in enumerate(indices) if is_ring(one)), None)
    if dim is None:
        return bits_if_all(_reads_publicly(op, x, indices), x)
    if not _only_index(indices, dim):
        raise indices[dim].child.refused(op)
    rows, extra = bits_if_all(select_rows(x, dim, indices[dim]), x), indices[dim].dim()
    return rows.movedim(list(range(extra)), list(range(dim, dim + extra))) if dim else rows


# ------------------------------------------------------------------------------------------ writes


@ring_rule("scatter.src scatter.value scatter_add")
def write_along(op: Any, x: Any, dim: int, index: Any, source: Any) -> Any:
    """Write or add at places along a dimension; sums of bits are integers."""
    out = write(op, x, dim, index, source)
    return out if op is aten.scatter_add.default else bits_if_all(out, x, source)


def write(op: Any, x: Any, dim: int, index: Any, source: Any) -> Any:
    """Write or add at public or private indices.

    With private indices, values that meet at one place are added up, also by ``scatter``, whose
    result torch leaves undefined there.
    """
    ring = ring_of(x, index, source)
    x = as_integers(lifted(x, ring, index.device))
    source = lifted(source, ring, index.device)
    source = source[_corner(index.shape)] if source.dim() else source.expand(index.shape)
    if not is_ring(index):
        check_indices(op, (x, dim, index))
        form = aten.scatter_add.default if op is aten.scatter_add.default else aten.scatter.src
        return x.child.componentwise(form, (x, dim, index, as_integers(source)), {})
    if not index.dim():
        return write(op, x.view(1), 0, index.view(1), source.view(1)).view(())
    dim %= index.dim()
    hot = ring.one_hot(index, x.shape[dim]).movedim(dim, -1)  # (..., size, chosen)
    values = as_integers(source).movedim(dim, -1).unsqueeze(-1)
    added = ring.product(MATMUL, hot, values, 1).squeeze(-1)
    out = x.clone()
    reached = out[_corner(index.shape, dim)]
    reached.add_(added.movedim(-1, dim))
    if op is not aten.scatter_add.default:
        written = hot.sum(-1).movedim(-1, dim)
        reached.sub_(ring.multiply(written, x[_corner(index.shape, dim)], 1))
    return out


def _write_rows(x: Any, dim: int, index: Any, source: Any, add: bool) -> Any:
    """Write or add slices of ``x`` along ``dim`` at one private index of any shape."""
    ring = ring_of(x, index, source)
    hot = ring.one_hot(index.reshape(-1), x.shape[dim])
    table = x.movedim(dim, 0)
    rows = source.reshape(hot.shape[0], -1)
    added = ring.product(MATMUL, hot.t(), rows, 1).view(table.shape)
    if not add:
        kept = (1 - hot.sum(0)).view(-1, *[1] * (table.dim() - 1))
        table = ring.multiply(table, kept, 1)
    return (table + added).movedim(0, dim)


@ring_rule("index_add")
def index_add(op: Any, x: Any, dim: int, index: Any, source: Any, alpha: int = 1) -> Any:
    """Add slices at public or private indices."""
    if not is_ring(index):
        return write_publicly(op, x, dim, index, source * alpha)
    ring = ring_of(x, index, source)
    x, source = (as_integers(lifted(value, ring, index.device)) for value in (x, source))
    return _write_rows(x, dim, index, (source * alpha).movedim(dim, 0), add=True)


@ring_rule("index_put _unsafe_index_put")
def index_put(op: Any, x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """Write or add at public indices and masks, or at one private index."""
    dim = next((place for place, one in enumerate(indices) if is_ring(one)), None)
    if dim is None:
        return write_publicly(aten.index_put.default, x, indices, values, accumulate)
    index = indices[dim]
    if dim > 0 and index.dim() != 1 or not _only_index(indices, dim):
        raise index.child.refused(op)
    ring = ring_of(x, index, values)
    table, source = (as_integers(lifted(value, ring, index.device)) for value in (x, values))
    source = source.expand([*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]])
    rows = source.movedim(dim, 0) if dim else source
    out = _write_rows(table, dim, index, rows, accumulate)
    return out if accumulate else bits_if_all(out, x, values)


@ring_rule("put")
def put(op: Any, x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """Write or add at public or private places of the flat tensor."""
    flat = index_put(op, x.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate)
    return flat.view(x.shape)


def _only_index(indices: Any, dim: int) -> bool:
    """Whether the private index, of integers, is the only one."""
    others = [one for place, one in enumerate(indices) if place != dim and one is not None]
    return not others and indices[dim].dtype is not torch.bool


@ring_rule(
    "index_copy slice_scatter select_scatter diagonal_scatter "
    "as_strided_scatter masked_scatter index_fill.int_Tensor index_fill.int_Scalar"
)
def write_publicly(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Write at public indices only: every tensor but those is lifted."""
    ring = rings_among(args)
    x, *rest = args
    place = _VALUES[op.overloadpacket] - 1
    if op.overloadpacket is aten.index_fill and x.dtype is torch.bool:
        rest[place] = truth_of(rest[place])
    operands = (x, rest[place])
    x = as_integers(lifted(x, ring, one_of(args).device))
    rest[place] = as_integers(lifted(rest[place], ring, x.device))
    public = rest[:place] + rest[place + 1 :]
    if any(is_ring(one) for one in leaves(public)):
        raise x.child.refused(op)
    check_indices(op, (x, *rest))
    form = aten.index_fill.int_Tensor if op is aten.index_fill.int_Scalar else op
    out = x.child.componentwise(form, (x, *rest), kwargs)
    adds = op is aten.index_add.default or op is aten.index_put.default and args[-1] is True
    return out if adds else bits_if_all(out, *operands)


_VALUES = {
    aten.index_put: 2,
    aten._unsafe_index_put: 2,
    aten.index_add: 3,
    aten.index_copy: 3,
    aten.slice_scatter: 1,
    aten.select_scatter: 1,
    aten.diagonal_scatter: 1,
    aten.as_strided_scatter: 1,
    aten.masked_scatter: 2,
    aten.index_fill: 3,
}
"""Where the value to write stands among the arguments."""


def check_indices(op: Any, args: Arguments) -> None:
    """Raise IndexError where a public index of an operation is outside of its dimension.

    >>> check_indices(aten.take.default, (torch.ones(2, 2), torch.tensor([3, -4])))
    >>> check_indices(aten.embedding.default, (torch.ones(2, 2), torch.tensor([3])))
    Traceback (most recent call last):
    ...
    IndexError: index 3 is out of bounds for dimension 0 with size 2
    """
    check = _CHECKS.get(op.overloadpacket)
    if check is not None:
        check(*args)


def _along(x: Any, dim: int, index: Any, *_: Any) -> None:
    if x.dim():
        _check(index, dim % x.dim(), x.shape[dim], 0)


def _along_from_the_end(x: Any, dim: int, index: Any, *_: Any) -> None:
    if x.dim():
        _check(index, dim % x.dim(), x.shape[dim], -x.shape[dim])


def _of_rows(table: Any, index: Any, *_: Any) -> None:
    _check(index, 0, table.shape[0], 0)


def _of_all(x: Any, index: Any, *_: Any) -> None:
    _check(index, 0, x.numel(), -x.numel())


def _of_dimensions(x: Any, indices: Sequence[Any], *_: Any) -> None:
    dim = 0
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            covered = x.shape[dim : dim + index.dim()]
            if covered != index.shape:
                raise IndexError(
                    f"the shape of the mask {list(index.shape)} does not match that of the indexed "
                    f"dimensions, {list(covered)}"
                )
            dim += index.dim()
        else:
            if index is not None:
                _check(index, dim, x.shape[dim], -x.shape[dim])
            dim += 1


def _check(index: Any, dim: int, size: int, first: int) -> None:
    if type(index) is not torch.Tensor or not index.numel():
        return
    low, high = (int(end) for end in index.aminmax())
    if low < first or high >= size:
        outside = low if low < first else high
        raise IndexError(f"index {outside} is out of bounds for dimension {dim} with size {size}")


_CHECKS: Final[dict[Any, Callable[..., None]]] = {
    aten.index_select: _along,
    aten.gather: _along,
    aten.scatter: _along,
    aten.scatter_add: _along,
    aten.index_add: _along,
    aten.index_copy: _along,
    aten.index_fill: _along_from_the_end,
    aten.embedding: _of_rows,
    aten.take: _of_all,
    aten.index: _of_dimensions,
    aten._unsafe_index: _of_dimensions,
    aten.index_put: _of_dimensions,
    aten._unsafe_index_put: _of_dimensions,
}
