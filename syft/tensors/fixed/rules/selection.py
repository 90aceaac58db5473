"""Rules for operations that compare values, select them or write them into others.

Numbers on one grid have the same order as their integers, so the same operation runs on the
integers.  ``TABLE`` lists which arguments are values (and are encoded if they are numbers or plain
tensors), how a value beyond the range is encoded, and which results are values.  The rules, those
of the in-place forms too, are made from the table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from syft.ops.nested import rebuild_tuple
from syft.tensors.fixed.rules.arithmetic import times
from syft.tensors.fixed.grid import CEILING, FLOOR, Excess, Grid
from syft.tensors.fixed.fallback import fall_back
from syft.tensors.fixed.fixed_link import (
    FixedPrecisionTensor,
    fixed,
    grid_among,
    integers,
    rule,
    target_of,
)
from syft.tensors.fixed.ring import check_added_up
from syft.tensors.fixed.rings.ring_link import overloads


class Row(NamedTuple):
    """Operations with the same positions of values, treatment of excess and kinds of results."""

    positions: tuple[int, ...]
    excess: Excess
    results: str
    """A letter per result: ``v`` a value, ``p`` plain (indices, booleans)."""
    names: str


TABLE = (
    Row(
        (0, 1),
        Excess.CLAMP,
        "p",
        """eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor
        gt.Scalar ge.Tensor ge.Scalar searchsorted.Tensor bucketize.Tensor isin.Tensor_Tensor
        isin.Tensor_Scalar isin.Scalar_Tensor logical_and logical_or logical_xor""",
    ),
    Row((1, 0), Excess.CLAMP, "p", "searchsorted.Scalar bucketize.Scalar"),
    Row(
        (0,),
        Excess.REFUSE,
        "p",
        """argmax argmin argsort argsort.stable any any.dim any.dims all all.dim all.dims
        logical_not
        count_nonzero count_nonzero.dim_IntList nonzero nonzero_static signbit""",
    ),
    Row(
        (0,),
        Excess.REFUSE,
        "v",
        "abs relu max min amax amin median nanmedian masked_scatter_backward",
    ),
    Row(
        (0,),
        Excess.REFUSE,
        "vp",
        """max.dim min.dim sort sort.stable topk kthvalue mode median.dim nanmedian.dim cummax
        cummin
        _unique""",
    ),
    Row((0,), Excess.REFUSE, "vv", "aminmax"),
    Row((0,), Excess.REFUSE, "vpp", "_unique2 unique_dim unique_consecutive"),
    Row((0,), Excess.REFUSE, "v", "block_diag"),
    Row((0, 1), Excess.ENDS, "v", "maximum minimum fmax fmin"),
    Row(
        (0, 1, 2),
        Excess.CLAMP,
        "v",
        "clamp clamp.Tensor clamp_min clamp_min.Tensor clamp_max clamp_max.Tensor threshold",
    ),
    Row((0, 1, 2), Excess.CLAMP, "v", "threshold_backward"),
    Row((1, 2), Excess.ENDS, "v", "where.self"),
    Row((0, 2), Excess.ENDS, "v", "masked_fill.Scalar masked_fill.Tensor constant_pad_nd"),
    Row((0, 2), Excess.REFUSE, "v", "masked_scatter index_put _unsafe_index_put put"),
    Row((0, 3), Excess.ENDS, "v", "index_fill.int_Scalar index_fill.int_Tensor"),
    Row((0, 3), Excess.REFUSE, "v", "index_copy scatter.src scatter.value scatter_add"),
    Row(
        (0, 1),
        Excess.REFUSE,
        "v",
        "slice_scatter select_scatter diagonal_scatter as_strided_scatter",
    ),
)


def by_position(row: Row) -> Callable[..., Any]:
    """The rule that runs an operation on the integers of the arguments at the row's positions."""
    positions, excess, results, _ = row

    def run(op: Any, *args: Any, **kwargs: Any) -> Any:
        grid = grid_among(op, (args[i] for i in positions if i < len(args)))
        out = op(*_with_integers(op, args, kwargs, positions, grid, excess), **kwargs)
        if results == "p":
            return out
        if results == "v":
            return fixed(out, grid)
        kinds = zip(out, results, strict=True)
        return rebuild_tuple(out, [fixed(o, grid) if kind == "v" else o for o, kind in kinds])

    return run


def by_position_in_place(row: Row) -> Callable[..., Any]:
    """The rule that runs an in-place operation on the integers of its first argument."""
    positions, excess, _, _ = row

    def run(op: Any, *args: Any, **kwargs: Any) -> Any:
        grid = target_of(op, args[0]).grid
        op(*_with_integers(op, args, kwargs, positions, grid, excess), **kwargs)
        return args[0]

    return run


def _with_integers(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    positions: tuple[int, ...],
    grid: Grid,
    excess: Excess,
) -> Sequence[Any]:
    given = [
        integers(op, arg, grid, excess) if position in positions else arg
        for position, arg in enumerate(args)
    ]
    adds = _ADDS.get(op._schema.name.removeprefix("aten::").rstrip("_"))
    if adds is not None and adds(args, kwargs):
        check_added_up(functools.partial(op, **kwargs), given, positions, grid.scale)
    return given


def _accumulates(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return bool(kwargs.get("accumulate", args[3] if len(args) > 3 else False))


def _reduces_by_adding(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return kwargs.get("reduce", args[4] if len(args) > 4 else None) in ("sum", "add")


_ADDS: dict[str, Callable[..., bool]] = {
    "scatter_add": lambda args, kwargs: True,
    "index_add": lambda args, kwargs: True,
    **dict.fromkeys(("index_put", "_unsafe_index_put", "put"), _accumulates),
    **dict.fromkeys(("scatter_reduce", "scatter"), _reduces_by_adding),
}
"""The operations that add up what they write, and when."""


def _in_place_forms(row: Row) -> Iterator[Any]:
    for name in row.names.split():
        packet, _, overload = name.partition(".")
        form = getattr(getattr(torch.ops.aten, f"{packet}_", None), overload or "default", None)
        if form is not None and row.results == "v":
            yield form


for _row in TABLE:
    FixedPrecisionTensor.rule(*overloads(_row.names))(by_position(_row))
    FixedPrecisionTensor.rule(*_in_place_forms(_row))(by_position_in_place(_row))

_VALUES_AT_0_AND_3 = by_position(Row((0, 3), Excess.REFUSE, "v", ""))


@rule("scatter_reduce.two index_reduce scatter.reduce scatter.value_reduce")
def reduce_into(
    op: Any, x: Any, dim: Any, index: Any, source: Any, *args: str, **settings: Any
) -> Any:
    """Sums and extremes are computed on the integers; products and means by the fallback."""
    reduce = args[0] if args else settings["reduce"]
    way = _VALUES_AT_0_AND_3 if reduce in ("sum", "add", "amax", "amin") else fall_back
    return way(op, x, dim, index, source, *args, **settings)


@rule("hardtanh")
def hardtanh(op: Any, x: Any, low: float = -1.0, high: float = 1.0) -> Any:
    """Clamp between two bounds."""
    grid = x.child.grid
    bounds = integers(op, [low, high], grid, Excess.CLAMP)
    return fixed(x.child.child.clamp(*bounds), grid)


@rule("hardtanh_backward")
def hardtanh_backward(op: Any, grad: Any, x: Any, low: float, high: float) -> Any:
    """Pass the gradient on where the value was between the bounds."""
    grid = grid_among(op, (grad, x))
    child = integers(op, x, grid)
    low, high = integers(op, [low, high], grid, Excess.CLAMP)
    outside = (child <= low) | (child >= high)
    return fixed(integers(op, grad, grid).masked_fill(outside, 0), grid)


@rule("nan_to_num")
def nan_to_num(op: Any, x: Any, *_: Any) -> Any:
    """A copy: there is no NaN on the grid."""
    return x.clone()


@rule("heaviside")
def heaviside(op: Any, x: Any, at_zero: Any) -> Any:
    """0 below zero, 1 above, ``at_zero`` at zero."""
    grid = grid_among(op, (x, at_zero))
    child = integers(op, x, grid)
    step = (child > 0) * grid.scale
    return fixed(torch.where(child == 0, integers(op, at_zero, grid), step), grid)


@rule("index_add")
def index_add(op: Any, x: Any, dim: int, index: Any, source: Any, alpha: float = 1) -> Any:
    """Add ``alpha * source`` at the indices."""
    grid = grid_among(op, (x, source))
    addend = integers(op, source, grid)
    if alpha != 1:
        addend = times(addend, alpha, grid)
    return _VALUES_AT_0_AND_3(
        op, fixed(integers(op, x, grid), grid), dim, index, fixed(addend, grid)
    )


@rule("equal")
def equal(op: Any, x: Any, y: Any) -> Any:
    """Whether shape and every value are the same."""
    grid = grid_among(op, (x, y))
    return torch.equal(integers(op, x, grid), integers(op, y, grid))


@rule("isnan")
def isnan(op: Any, x: Any) -> Any:
    """False: the grid holds no NaN."""
    return torch.zeros(x.shape, dtype=torch.bool, device=x.device)


@rule("isinf isneginf isposinf")
def isinf(op: Any, x: Any) -> Any:
    """Whether the value stands for an infinity, as after ``masked_fill(mask, -inf)``.

    Half of it is enough, so that an infinity plus a number still counts as infinite.
    """
    child = x.child.child
    return _IS_INFINITE[op.overloadpacket](child)


_IS_INFINITE = {
    torch.ops.aten.isinf: lambda child: (child <= FLOOR // 2) | (child >= CEILING // 2),
    torch.ops.aten.isneginf: lambda child: child <= FLOOR // 2,
    torch.ops.aten.isposinf: lambda child: child >= CEILING // 2,
}
