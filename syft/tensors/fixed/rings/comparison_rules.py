"""Integer operations that compare values or select them, by the ring's bits.

Every comparison is a sign or a test for zero of a difference, so operands must not be further
apart than 2^63.  The largest of many is found in a tournament: each round compares halves, so it
takes the logarithm of their number in rounds.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.exceptions import UnsupportedOperation
from syft.tensors.fixed.rings.component_rules import one_of
from syft.tensors.fixed.rings.ring_link import (
    as_bits,
    as_integers,
    bits_if_all,
    is_ring,
    lifted,
    ring_of,
    ring_rule,
    tensor_on,
    truth_of,
    whole,
)

aten = torch.ops.aten


def _not(bits: Any) -> Any:
    return as_bits(1 - as_integers(bits))


_COMPARISONS = {
    aten.lt: lambda ring, x, y: ring.negative(x - y),
    aten.gt: lambda ring, x, y: ring.negative(y - x),
    aten.ge: lambda ring, x, y: _not(ring.negative(x - y)),
    aten.le: lambda ring, x, y: _not(ring.negative(y - x)),
    aten.eq: lambda ring, x, y: ring.zero(x - y),
    aten.ne: lambda ring, x, y: _not(ring.zero(x - y)),
}


@ring_rule(
    "lt.Tensor lt.Scalar gt.Tensor gt.Scalar ge.Tensor ge.Scalar le.Tensor le.Scalar eq.Tensor "
    "eq.Scalar ne.Tensor ne.Scalar"
)
def compare(op: Any, x: Any, y: Any) -> Any:
    """Compare; the result is private bits.

    Against a public number with a fraction by the whole number that decides alike.
    """
    if _has_fractions(x):
        return compare(_MIRRORED[op.overloadpacket], y, x)
    if _has_fractions(y):
        return _compare_with_fractions(op, x, y)
    x, y = (as_integers(v) if isinstance(v, torch.Tensor) else int(v) for v in (x, y))
    return _COMPARISONS[op.overloadpacket](ring_of(x, y), x, y)


_MIRRORED = {
    aten.lt: aten.gt.Tensor,
    aten.gt: aten.lt.Tensor,
    aten.ge: aten.le.Tensor,
    aten.le: aten.ge.Tensor,
    aten.eq: aten.eq.Tensor,
    aten.ne: aten.ne.Tensor,
}


def _has_fractions(value: Any) -> bool:
    return value.is_floating_point() if isinstance(value, torch.Tensor) else type(value) is float


def _compare_with_fractions(op: Any, x: Any, y: Any) -> Any:
    ring, packet = ring_of(x), op.overloadpacket
    bound = torch.as_tensor(y, dtype=torch.float64, device=x.device)
    if bool(bound.isnan().any()):
        raise UnsupportedOperation(
            "a comparison with NaN", ring.name, "replace it first, as torch.nan_to_num does"
        )
    rounded = bound.ceil() if packet in (aten.lt, aten.ge) else bound.floor()
    whole_bound = rounded.clamp(-(2.0**62), 2.0**62).to(torch.int64)  # no integer is beyond
    if packet not in (aten.eq, aten.ne):
        return _COMPARISONS[packet](ring, as_integers(x), whole_bound)
    same = ring.zero(as_integers(x) - whole_bound) * (whole_bound.double() == bound)
    return same if packet is aten.eq else _not(same)


# ------------------------------------------------------------------------------------------- bits


@ring_rule(
    "logical_and logical_or logical_xor bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor"
)
def logic(op: Any, x: Any, y: Any) -> Any:
    """Logic of bits: one product."""
    if op.overloadpacket in _BITWISE and {x.dtype, y.dtype} != {torch.bool}:
        raise one_of((x, y)).child.refused(op)
    x, y = _truth(x), _truth(y)
    both = x * y
    return as_bits(_LOGIC[op._schema.name.rpartition("_")[2]](x, y, both))


_LOGIC = {
    "and": lambda x, y, both: both,
    "or": lambda x, y, both: x + y - both,
    "xor": lambda x, y, both: x + y - 2 * both,
}


_BITWISE = (aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor)


def _truth(value: Any) -> Any:
    return as_integers(truth_of(value))


@ring_rule("logical_not")
def logical_not(op: Any, x: Any) -> Any:
    """1 where the value is zero."""
    return _not(x) if x.dtype is torch.bool else x.child.ring.zero(x)


@ring_rule("bitwise_not")
def bitwise_not(op: Any, x: Any) -> Any:
    """Negate bits; of integers it is ``-x - 1``."""
    return _not(x) if x.dtype is torch.bool else -x - 1


@ring_rule("any any.dim any.dims")
def any_of(op: Any, x: Any, *rest: Any) -> Any:
    """Whether any value differs from zero."""
    set_bits = as_integers(x if x.dtype is torch.bool else x != 0)
    return set_bits.sum(*rest) != 0


@ring_rule("all all.dim all.dims")
def all_of(op: Any, x: Any, *rest: Any) -> Any:
    """Whether every value differs from zero."""
    clear_bits = as_integers(x == 0)
    return clear_bits.sum(*rest) == 0


@ring_rule("count_nonzero count_nonzero.dim_IntList")
def count_nonzero(op: Any, x: Any, *rest: Any) -> Any:
    """How many values differ from zero: private too."""
    return as_integers(x != 0).sum(*[dim for dim in rest if dim is not None])


# -------------------------------------------------------------------------------------- selection


@ring_rule("where.self")
def where(op: Any, condition: Any, x: Any, y: Any) -> Any:
    """Select by public or private bits."""
    ring = ring_of(condition, x, y)
    device = one_of((condition, x, y)).device
    if is_ring(condition):
        choices = (_whole_number(value, ring, device) for value in (x, y))
        return bits_if_all(ring.select(condition, *choices), x, y)
    first, second = (as_integers(lifted(value, ring, device)) for value in (x, y))
    return bits_if_all(first.child.componentwise(op, (condition, first, second), {}), x, y)


def _whole_number(value: Any, ring: Any, device: torch.device) -> Any:
    """A value to select, as integers; public ones stay public."""
    return whole(tensor_on(device, value), ring)


@ring_rule("masked_fill.Scalar masked_fill.Tensor")
def masked_fill(op: Any, x: Any, mask: Any, value: Any) -> Any:
    """Replace the values under a public or private mask."""
    if x.dtype is torch.bool:
        value = truth_of(value)
    return where(aten.where.self, mask, value, x)


@ring_rule("abs relu sign sgn signbit")
def of_the_sign(op: Any, x: Any) -> Any:
    """What depends on the sign alone; bits are their own sign."""
    if x.dtype is torch.bool and op.overloadpacket in (aten.sign, aten.sgn):
        return x.clone()
    return _OF_THE_SIGN[op.overloadpacket](x.child.ring, x)


_OF_THE_SIGN = {
    aten.abs: lambda ring, x: 2 * ring.positive_part(x)[0] - x,
    aten.relu: lambda ring, x: ring.positive_part(x)[0],
    aten.sign: lambda ring, x: as_integers(ring.negative(-x)) - as_integers(ring.negative(x)),
    aten.sgn: lambda ring, x: as_integers(ring.negative(-x)) - as_integers(ring.negative(x)),
    aten.signbit: lambda ring, x: ring.negative(x),
}


def _excess(x: Any, y: Any) -> Any:
    """By how much ``x`` is above ``y``; 0 where it is not."""
    return ring_of(x, y).positive_part(x - y)[0]


@ring_rule("maximum fmax")
def maximum(op: Any, x: Any, y: Any) -> Any:
    """The larger of two; of bits it is "or"."""
    if x.dtype is torch.bool and y.dtype is torch.bool:
        return logic(aten.logical_or.default, x, y)
    ring = ring_of(x, y)
    x, y = whole(x, ring), whole(y, ring)
    return y + _excess(x, y)


@ring_rule("minimum fmin")
def minimum(op: Any, x: Any, y: Any) -> Any:
    """The smaller of two; of bits it is "and"."""
    if x.dtype is torch.bool and y.dtype is torch.bool:
        return logic(aten.logical_and.default, x, y)
    ring = ring_of(x, y)
    x, y = whole(x, ring), whole(y, ring)
    return x - _excess(x, y)


@ring_rule("clamp clamp.Tensor clamp_min clamp_min.Tensor clamp_max clamp_max.Tensor")
def clamp(op: Any, x: Any, *bounds: Any, **named: Any) -> Any:
    """Limit to bounds, public or private."""
    if op.overloadpacket is aten.clamp_max:
        bounds = (None, *bounds)
    low, high = (*bounds, None, None)[:2]
    low, high = named.get("min", low), named.get("max", high)
    if low is not None:
        x = low + _excess(x, low)
    return x if high is None else x - _excess(x, high)


@ring_rule("threshold")
def threshold(op: Any, x: Any, bound: Any, value: Any) -> Any:
    """``value`` where ``x`` is not above the bound."""
    return where(aten.where.self, x > bound, x, value)


@ring_rule("threshold_backward")
def threshold_backward(op: Any, grad: Any, x: Any, bound: Any) -> Any:
    """The gradient where ``x`` was above the bound; that of 0 may be known (``relu``)."""
    ring = ring_of(x, grad)
    bits = ring.above_zero(x) if is_ring(x) and not bound else x > bound
    return ring.multiply(as_integers(bits), as_integers(lifted(grad, ring, x.device)), 1)


# --------------------------------------------------------------------------------------- extremes


def tournament(x: Any, dim: int, index: bool, largest: bool) -> tuple[Any, Any]:
    """The largest (or smallest) along a dimension, kept with size 1, and where it first stands.

    ``index`` says whether the place is wanted: it costs a second selection in each round.
    """
    if not x.shape[dim]:
        raise IndexError("max or min of an empty dimension has no value")
    shape = [1] * x.dim()
    shape[dim] = x.shape[dim]
    if x.shape[dim] == 1:
        x = x.clone()  # no round makes new memory
    places: Any = None
    if index:
        places = torch.arange(x.shape[dim], device=x.device).view(shape).expand(x.shape)
    while x.shape[dim] > 1:
        # Neighbours meet, so the order is kept, and of equal values the first one wins.
        first, second, odd = _pairs(x, dim)
        gap = second - first if largest else first - second
        gain, wins = ring_of(x).positive_part(gap)
        best = first + gain if largest else first - gain
        x = torch.cat([best, odd], dim)
        if index:
            first, second, odd = _pairs(places, dim)
            chosen = where(aten.where.self, wins, second, first)
            places = torch.cat([chosen, odd], dim)
    return x, places


def _pairs(x: Any, dim: int) -> tuple[Any, Any, Any]:
    """The first and the second of each pair of neighbours, and what is left over."""
    size = x.shape[dim]
    starts = [slice(None)] * (dim % x.dim())
    even, odd = x[(*starts, slice(0, size - 1, 2))], x[(*starts, slice(1, None, 2))]
    return even, odd, x.narrow(dim, size - size % 2, size % 2)


@ring_rule("max min")
def extreme(op: Any, x: Any) -> Any:
    """The one largest or smallest value."""
    flat = as_integers(x.reshape(-1))
    best = tournament(flat, 0, False, op.overloadpacket is aten.max)[0].squeeze(0)
    return bits_if_all(best, x)


@ring_rule("max.dim min.dim")
def extreme_along(op: Any, x: Any, dim: int, keepdim: bool = False) -> Any:
    """The largest or smallest along a dimension, and its private index."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    best, place = tournament(as_integers(x), dim, True, op.overloadpacket is aten.max)
    best, place = bits_if_all(best, x), lifted(place, x.child.ring, x.device)
    return (best, place) if keepdim else (best.squeeze(dim), place.squeeze(dim))


@ring_rule("amax amin")
def extremes(op: Any, x: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """The largest or smallest along several dimensions."""
    if not x.dim():
        return x.clone()
    dims = sorted({d % x.dim() for d in dim} or range(x.dim()), reverse=True)
    best = as_integers(x)
    for d in dims:
        best = tournament(best, d, False, op.overloadpacket is aten.amax)[0]
    return bits_if_all(best if keepdim else best.squeeze(dims), x)


@ring_rule("argmax argmin")
def place_of_extreme(op: Any, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The private index of the largest or smallest."""
    if not x.dim():
        return torch.zeros_like(x, dtype=torch.int64)
    if dim is None:
        x, dim = x.reshape(-1), 0
    _, place = tournament(x, dim, True, op.overloadpacket is aten.argmax)
    place = lifted(place, ring_of(x), x.device)
    return place if keepdim else place.squeeze(dim)
