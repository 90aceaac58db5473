"""Rules for functions of private numbers, by approximation (``approximations``).

They stand where plain integers are decoded and computed in float64.  Each is a few lines: the
integers of the argument, the approximation in the ring, the grid of the result.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from syft.tensors.fixed import approximations
from syft.tensors.fixed.fixed_link import fixed, no_rule, private_rule
from syft.tensors.fixed.ring import division_by_zero
from syft.tensors.fixed.rules.arithmetic import multiply_values, reciprocal

aten = torch.ops.aten


@private_rule("exp sigmoid tanh erf sqrt rsqrt log")
def approximate(op: Any, x: Any) -> Any:
    """One function of each number."""
    link = x.child
    return fixed(_FUNCTIONS[op.overloadpacket](link.ring, link.child, link.grid.scale), link.grid)


_FUNCTIONS: dict[Any, Any] = {
    aten.exp: lambda ring, x, scale: approximations.exp(ring, x, scale, scale),
    aten.sigmoid: approximations.sigmoid,
    aten.tanh: approximations.tanh,
    aten.erf: approximations.erf,
    aten.sqrt: approximations.sqrt,
    aten.rsqrt: approximations.rsqrt,
    aten.log: approximations.log,
}


@private_rule("log1p expm1 log2 log10 exp2 erfc")
def shifted(op: Any, x: Any) -> Any:
    """Functions that differ from another by a factor or by one."""
    return _SHIFTED[op.overloadpacket](x)


_SHIFTED: dict[Any, Any] = {
    aten.log1p: lambda x: (x + 1).log(),
    aten.expm1: lambda x: x.exp() - 1,
    aten.log2: lambda x: x.log() * (1 / math.log(2)),
    aten.log10: lambda x: x.log() * (1 / math.log(10)),
    aten.exp2: lambda x: (x * math.log(2)).exp(),
    aten.erfc: lambda x: 1 - x.erf(),
}

LARGEST_POWER = 64


@private_rule("pow.Tensor_Scalar")
def power(op: Any, x: Any, exponent: float) -> Any:
    """Whole powers by squaring; of the root, for halves; and of the reciprocal."""
    if exponent * 2 == int(exponent * 2) and exponent != int(exponent):
        root = x.sqrt() if exponent > 0 else x.rsqrt()
        return power(op, root, abs(exponent * 2))
    if exponent != int(exponent) or abs(exponent) > LARGEST_POWER:
        raise no_rule(
            op,
            f"with the exponent {exponent} on private numbers; whole exponents up to "
            f"{LARGEST_POWER} and halves of them work, others as exp(exponent * log(x)) for "
            "positive x",
        )
    if exponent < 0:
        x, exponent = reciprocal(aten.reciprocal.default, x), -exponent
    bits = bin(int(exponent))[3:]
    result = x if exponent else torch.ones_like(x)
    for bit in bits:
        result = multiply_values(op, result, result)
        result = multiply_values(op, result, x) if bit == "1" else result
    return x.clone() if exponent == 1 else result


# ------------------------------------------------------------------------------------- softmax


@private_rule("_softmax _safe_softmax")
def softmax(op: Any, x: Any, dim: int, *_: Any, **__: Any) -> Any:
    """Exponentials of the distance to the largest, over their sum, which is from 1 to their number.

    Off by two steps.  A row of nothing but minus infinity gives equal parts.
    """
    link = x.child
    ring, scale = link.ring, link.grid.scale
    below = link.child - link.child.amax(dim, keepdim=True)
    parts = approximations.exp(ring, below, scale, approximations.ONE, negative=True)
    total = parts.sum(dim, keepdim=True)
    first = approximations.BITS - 1
    places = range(first, first + 2 + max(x.shape[dim] if x.dim() else 1, 1).bit_length())
    m, row = approximations.normalised(ring, total, places)
    over = approximations.product(ring, parts, approximations.inverse(ring, m))
    power = approximations.weighted(row, [1 << (places[-1] - i) for i in places])
    halves = places[-1] - first
    shares = ring.divide(ring.multiply(over, power, 1), 1 << halves)
    return fixed(ring.times(shares, scale / approximations.ONE, scale), link.grid)


@private_rule("_log_softmax")
def log_softmax(op: Any, x: Any, dim: int, *_: Any) -> Any:
    """The distance to the largest, less the logarithm of the sum of exponentials."""
    link = x.child
    ring, scale = link.ring, link.grid.scale
    below = link.child - link.child.amax(dim, keepdim=True)
    total = approximations.exp(ring, below, scale, scale, negative=True).sum(dim, keepdim=True)
    return fixed(below - approximations.log(ring, total, scale), link.grid)


# ------------------------------------------------------------------------------------- statistics


@private_rule("var.correction")
def var(op: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """The mean square of the distances to the mean, summed before it is rounded."""
    return _var_mean(x, dim, correction, keepdim)[0]


@private_rule("var_mean.correction")
def var_mean(
    op: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    """The variance and the mean."""
    return _var_mean(x, dim, correction, keepdim)


@private_rule("std.correction")
def std(op: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """The root of the variance."""
    return _var_mean(x, dim, correction, keepdim)[0].sqrt()


def _var_mean(x: Any, dim: Any, correction: Any, keepdim: bool) -> tuple[Any, Any]:
    link = x.child
    ring, grid = link.ring, link.grid
    dims = list(dim) if dim and x.dim() else list(range(x.dim()))
    mean = x.mean(dims, keepdim=True)
    off = link.child - mean.child.child
    squares = ring.multiply(off, off, grid.scale**2).sum(dims, keepdim)
    number = math.prod(x.shape[d] for d in dims) - (1 if correction is None else int(correction))
    if number < 1:
        raise division_by_zero()
    spread = fixed(ring.divide(squares, grid.scale * number), grid)
    return spread, mean if keepdim else mean.squeeze(dims)
