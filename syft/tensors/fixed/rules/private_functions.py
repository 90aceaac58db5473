"""Rules for functions of private numbers, by approximation (``approximations``).

They stand where plain integers are decoded and computed in float64.  Each is a few lines: the
integers of the argument, the approximation in the ring, the grid of the result.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from syft.tensors.fixed import approximations
from syft.tensors.fixed.domains import refuse_grid
from syft.tensors.fixed.fixed_link import fixed, no_rule, private_rule
from syft.tensors.fixed.ring import division_by_zero
from syft.torch_private import decompositions

aten = torch.ops.aten


@private_rule("exp sigmoid tanh erf sqrt rsqrt log silu mish")
def approximate(op: Any, x: Any) -> Any:
    """One function of each number."""
    link = x.child
    refuse_grid(op, link.grid)
    return fixed(_FUNCTIONS[op.overloadpacket](link.ring, link.child, link.grid.scale), link.grid)


_FUNCTIONS: dict[Any, Any] = {
    aten.exp: lambda ring, x, scale: approximations.exp(ring, x, scale, scale),
    aten.sigmoid: approximations.sigmoid,
    aten.tanh: approximations.tanh,
    aten.erf: approximations.erf,
    aten.sqrt: approximations.sqrt,
    aten.rsqrt: approximations.rsqrt,
    aten.log: approximations.log,
    aten.silu: approximations.silu,
    aten.mish: approximations.mish,
}


@private_rule("gelu")
def gelu(op: Any, x: Any, *, approximate: str = "none") -> Any:
    """``x`` times the normal distribution function, or torch's approximation by a tangent."""
    link = x.child
    function = approximations.gelu if approximate == "none" else approximations.gelu_by_tanh
    return fixed(function(link.ring, link.child, link.grid.scale), link.grid)


@private_rule("softplus")
def softplus(op: Any, x: Any, beta: float = 1, threshold: float = 20) -> Any:
    """``log(1 + exp(beta x)) / beta``; ``x`` itself where ``beta x`` is above the threshold."""
    if beta == 0:
        raise division_by_zero()
    link, sign = x.child, 1 if beta > 0 else -1
    found = approximations.softplus(link.ring, sign * link.child, link.grid.scale, abs(beta))
    curve = fixed(sign * found, link.grid)
    return _where_below(x, threshold / beta, beta, curve, x) if threshold < _SMOOTH else curve


_SMOOTH = 18
"""From here on a threshold of softplus changes nothing on a grid."""


@private_rule("softplus_backward")
def softplus_backward(op: Any, grad: Any, x: Any, beta: float, threshold: float) -> Any:
    """The gradient times ``sigmoid(beta x)``."""
    slope = (_limited(x, approximations.GATE_END / abs(beta)) * beta).sigmoid() * grad
    return _where_below(x, threshold / beta, beta, slope, grad) if threshold < _SMOOTH else slope


def _where_below(x: Any, end: float, beta: float, found: Any, other: Any) -> Any:
    return torch.where(x <= end if beta > 0 else x >= end, found, other)


def _limited(x: Any, end: float) -> Any:
    return x.clamp(-end, end)


@private_rule("silu_backward gelu_backward mish_backward")
def rectifier_backward(op: Any, grad: Any, x: Any, **settings: Any) -> Any:
    """torch's formula, of arguments up to where the slope is 0 or 1."""
    return decompositions[op](grad, _limited(x, approximations.GATE_END / 2), **settings)


@private_rule("elu")
def elu(op: Any, x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    """``x`` from 0 on, and an exponential less one below: of numbers below 0 only."""
    above = x.relu()
    below = _exp_of_negative((x - above) * input_scale) - 1
    return above * scale + below * (alpha * scale)


@private_rule("elu_backward")
def elu_backward(
    op: Any, grad: Any, alpha: float, scale: float, input_scale: float, of_result: bool, x: Any
) -> Any:
    """The gradient times the slope, which below 0 is an exponential again."""
    factor = alpha * scale * input_scale
    if of_result:
        below = x * input_scale + factor
    else:
        below = _exp_of_negative((x - x.relu()) * input_scale) * factor
    return grad * torch.where(x > 0, torch.full_like(x, scale), below)


def _exp_of_negative(x: Any) -> Any:
    link = x.child
    scale = link.grid.scale
    return fixed(approximations.exp(link.ring, link.child, scale, scale, negative=True), link.grid)


@private_rule("logit")
def logit(op: Any, x: Any, eps: float | None = None) -> Any:
    """The difference of two logarithms: a quotient would have few digits near 0 and 1."""
    x = x if eps is None else x.clamp(eps, 1 - eps)
    return x.log() - (1 - x).log()


@private_rule("soft_margin_loss")
def soft_margin_loss(op: Any, x: Any, target: Any, reduction: int = 1) -> Any:
    """``log(1 + exp(-target x))``, which for large arguments is these."""
    losses = torch.nn.functional.softplus(-x * target)
    return losses.mean() if reduction == 1 else losses.sum() if reduction == 2 else losses


@private_rule("soft_margin_loss_backward")
def soft_margin_loss_backward(op: Any, grad: Any, x: Any, target: Any, reduction: int) -> Any:
    """Minus the target, times the sigmoid of the argument."""
    slopes = -(torch.sigmoid(-x * target) * target) * grad
    return slopes / x.numel() if reduction == 1 else slopes


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


@private_rule(
    "xlogy.Tensor xlogy.Scalar_Self xlogy.Scalar_Other special_xlog1py "
    "special_xlog1py.self_scalar special_xlog1py.other_scalar"
)
def times_logarithm(op: Any, x: Any, y: Any) -> Any:
    """``x log(y)`` or ``x log(1 + y)``: 0 where ``x`` is 0, as the logarithm of 0 is a number here.

    That of a public 0 is none: :class:`~syft.exceptions.EncodingError`.
    """
    y = y if isinstance(y, torch.Tensor) else torch.tensor(y, dtype=torch.float64, device=x.device)
    return x * (torch.log if op.overloadpacket is aten.xlogy else torch.log1p)(y)


LARGEST_POWER = 64


@private_rule("pow.Tensor_Scalar")
def power(op: Any, x: Any, exponent: float) -> Any:
    """Whole powers by squaring; of the root, for halves; and of the reciprocal."""
    if exponent * 2 == int(exponent * 2) and exponent != int(exponent):
        root = x.sqrt() if exponent > 0 else x.rsqrt()
        whole = math.trunc(exponent)
        return x**whole * root if whole else root
    if exponent != int(exponent) or abs(exponent) > LARGEST_POWER:
        raise no_rule(
            op,
            f"with the exponent {exponent} on private numbers; whole exponents up to "
            f"{LARGEST_POWER} and halves of them work, others as exp(exponent * log(x)) for "
            "positive x",
        )
    if exponent < 0:
        x, exponent = x.reciprocal(), -exponent
    bits = bin(int(exponent))[3:]
    result = x if exponent else torch.ones_like(x)
    for bit in bits:
        result = result * result
        result = result * x if bit == "1" else result
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
    places = range(first, first + 2 + _bits_of(x, dim))
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
    one = approximations.ONE
    total = approximations.exp(ring, below, scale, one, negative=True).sum(dim, keepdim=True)
    logarithm = approximations.log(ring, total, one, approximations.BITS + _bits_of(x, dim))
    return fixed(below - ring.times(logarithm, scale / one, scale), link.grid)


def _bits_of(x: Any, dim: int) -> int:
    """The bits of the number of values along a dimension."""
    return max(x.shape[dim] if x.dim() else 1, 1).bit_length()


# ------------------------------------------------------------------------------------- statistics


@private_rule("var.correction")
def var(op: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """The mean square of the distances to the mean.

    Each square is rounded, so that their sum has the room of any sum: that of products before they
    are rounded would leave the ring for a few thousand values of some thousands.
    """
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
    squares = ring.rescale(ring.multiply(off, off, grid.scale**2), grid).sum(dims, keepdim)
    number = math.prod(x.shape[d] for d in dims) - (1 if correction is None else int(correction))
    if number < 1:
        raise division_by_zero()
    spread = fixed(ring.divide(squares, number), grid)
    return spread, mean if keepdim else mean.squeeze(dims)
