"""The rules that private integers must have, over a ring whose values nobody may read.

Each is compared with torch in float64 on the numbers that the grid holds, forward and backward, in
steps of the grid.  The ring rounds up or down at random when it truncates, as shares do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.tensors.fixed.blind_ring import BlindRing, blind, reveal

STEP = 2.0**-16
IDS = torch.tensor([[1, 3], [0, 2]])
PLACES = torch.tensor([[1], [0], [5], [2]])
CLASSES = torch.tensor([1, 2, 0, 5])
MASK = torch.tensor([[True, False, True, True, False, True]])


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def positive(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(3)) * 0.8 + 0.1


X, Y, P = normal(4, 6), normal(4, 6, seed=1), positive(4, 6)
WIDE = normal(4, 6, seed=2) * 10
SIGNAL, IMAGE, VOLUME = normal(2, 3, 8), normal(2, 3, 8, 8), normal(1, 2, 4, 4, 4)
HEADS = [normal(2, 2, 5, 4, seed=s) for s in (4, 5, 6)]


def like(x: Any, numbers: list[float]) -> torch.Tensor:
    """Public numbers of the dtype of ``x``."""
    return torch.tensor(numbers, dtype=x.dtype)


# A function and its operands.  Results may be off by 2 steps and gradients by 4, if no other bounds
# are given below.
CASES: dict[str, tuple[Any, ...]] = {
    "add": (lambda a, b: a + b, X, Y),
    "add numbers": (lambda a: 1 - (a * 2.5 + 0.25), X),
    "add public": (lambda a: a + Y.round(), X),
    "multiply": (lambda a, b: a * b, X, Y),
    "multiply by public integers": (lambda a: a * Y.round().long(), X),
    "multiply by public numbers": (lambda a: a * like(a, [0.5, 1.5, -2, 3, 0.25, 1]), X),
    "divide by a number": (lambda a: a / 3, X),
    "divide by a fraction": (lambda a: a / 0.7, X),
    "divide by public integers": (lambda a: a / torch.tensor([1, 2, 3, -4, 5, 6]), X),
    "divide by public numbers": (lambda a: a / like(a, [0.5, 1.5, -2, 3, 0.25, 1]), X),
    "divide": (lambda a, b: a / b, X, P),
    "divide by negative": (lambda a, b: a / -b, X, P),
    "reciprocal": (lambda a: 3 / a, P),
    "matmul": (lambda a, b: a @ b.t(), X, Y),
    "matmul public": (lambda a: a @ like(a, [1, 2, 3, 0.5, 0.25, 0]), X),
    "bmm": (lambda a, b: a[None] @ b.t()[None], X, Y),
    "einsum": (lambda a, b: torch.einsum("ij,kj->ik", a, b), X, Y),
    "square": (lambda a: a**2, X),
    "fifth power": (lambda a: a**5, X * 0.5),
    "negative power": (lambda a: a**-2, P + 0.5),
    "root by power": (lambda a: a**0.5 + a**-0.5, P + 0.5),
    "zeroth power": (lambda a: a**0 + a**1, X),
    "addcmul": (lambda a, b: torch.addcmul(a, a, b, value=0.3), X, Y),
    "addcdiv": (lambda a, b: torch.addcdiv(a, a, b, value=0.5), X, P + 0.5),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), X, Y),
    "linear": (F.linear, X, Y, normal(4)),
    "conv1d": (lambda *t: F.conv1d(*t, padding=1), SIGNAL, normal(4, 3, 3), normal(4)),
    "conv2d": (lambda *t: F.conv2d(*t, stride=2), IMAGE, normal(4, 3, 3, 3), normal(4)),
    "conv_transpose2d": (
        lambda *t: F.conv_transpose2d(*t, stride=2),
        IMAGE[..., :5, :5],
        normal(3, 4, 3, 3),
    ),
    "avg_pool1d": (lambda a: F.avg_pool1d(a, 2), SIGNAL),
    "avg_pool2d": (lambda a: F.avg_pool2d(a, 2), IMAGE),
    "avg_pool2d of borders": (
        lambda a: F.avg_pool2d(a, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        IMAGE,
    ),
    "max_pool1d": (lambda a: F.max_pool1d(a, 2), SIGNAL),
    "max_pool2d": (lambda a: F.max_pool2d(a, 2, return_indices=True), IMAGE),
    "max_pool2d of borders": (
        lambda a: F.max_pool2d(a, 3, 2, 1, ceil_mode=True, return_indices=True),
        IMAGE,
    ),
    "max_pool2d without ceil": (lambda a: F.max_pool2d(a, 2, 3, 1, ceil_mode=True), IMAGE),
    "max_pool3d": (lambda a: F.max_pool3d(a, 2), VOLUME),
    "adaptive_max_pool1d": (lambda a: F.adaptive_max_pool1d(a, 3), SIGNAL),
    "adaptive_max_pool2d": (lambda a: F.adaptive_max_pool2d(a, (3, 4)), IMAGE),
    "adaptive_avg_pool1d": (lambda a: F.adaptive_avg_pool1d(a, 3), SIGNAL),
    "adaptive_avg_pool2d": (lambda a: F.adaptive_avg_pool2d(a, (3, 4)), IMAGE),
    "adaptive_avg_pool2d to one": (lambda a: F.adaptive_avg_pool2d(a, 1), IMAGE),
    "adaptive_avg_pool3d": (lambda a: F.adaptive_avg_pool3d(a, 3), VOLUME),
    "relu": (F.relu, X),
    "relu in place": (lambda a: F.relu(a * 1, inplace=True), X),
    "threshold": (lambda a: F.threshold(a, 0.1, 2.0), X),
    "abs": (torch.abs, X),
    "sign": (torch.sign, X),
    "signbit": (torch.signbit, X),
    "clamp": (lambda a: a.clamp(-0.5, 0.5), X),
    "clamp below": (lambda a: a.clamp(min=0), X),
    "clamp above": (lambda a: a.clamp_max(0.5), X),
    "min": (lambda a: a.min(1), X),
    "max": (lambda a: a.max(1, keepdim=True), X),
    "max of all": (lambda a: a.max() + a.min(), X),
    "max of one": (lambda a: a[0, 0].max(0), X),
    "amax": (lambda a: a.amax((0, 1)) - a.amin((0, 1), keepdim=True), X),
    "amax of all": (lambda a: a.amax(), X),
    "argmax": (lambda a: a.argmax(1), X),
    "argmax of equals": (lambda a: a.argmax(1, keepdim=True), X.round()),
    "argmin": (lambda a: a.argmin(), X),
    "maximum": (torch.maximum, X, Y),
    "minimum": (torch.minimum, X, Y),
    "greater": (lambda a: a > 0, X),
    "at least": (lambda a, b: a >= b, X, Y),
    "equal": (lambda a, b: a == b, X.round(), Y.round()),
    "different": (lambda a, b: a != b, X.round(), Y.round()),
    "less": (lambda a: a < 0.5, X),
    "at most": (lambda a: a <= 0.5, X),
    "infinite": (lambda a: torch.isinf(a) | torch.isnan(a), X),
    "where": (lambda a, b: torch.where(a > 0, a, b), X, Y),
    "where public": (lambda a, b: torch.where(MASK, a, b), X, Y),
    "where a number": (lambda a: torch.where(a > 0, a, 7.0), X),
    "masked_fill": (lambda a: a.masked_fill(a > 0, 1.5), X),
    "masked_fill public": (lambda a: a.masked_fill(MASK, 1.5), X),
    "masked_fill in place": (lambda a: (a * 1).masked_fill_(a > 0, 1.5), X),
    "mask times": (lambda a: (a > 0) * a, X),
    "times mask": (lambda a: a * (a > 0), X),
    "plus mask": (lambda a: a + (a > 0), X),
    "sum of mask": (lambda a: (a > 0).sum(1), X),
    "logic": (lambda a, b: ((a > 0) & (b > 0) | ~(a > b)) ^ (b < 0), X, Y),
    "logical": (lambda a, b: torch.logical_xor(a, b).logical_or(a > b).logical_not(), X, Y),
    "any": (lambda a: (a > 1).any(1) | (a > -1).all(1) | (a > 9).any(), X),
    "count_nonzero": (lambda a: a.count_nonzero(1), X.round()),
    "slice": (lambda a: a[1:, ::2].t().reshape(-1), X),
    "cat": (lambda a, b: torch.cat([a, b, torch.ones(1, 6)]), X, Y),
    "stack and split": (lambda a, b: torch.stack([a, b]).split(1)[1], X, Y),
    "pad": (lambda a: F.pad(a, (1, 2), value=0.5), X),
    "pad by reflection": (lambda a: F.pad(a, (1, 2), mode="reflect"), SIGNAL),
    "cumsum": (lambda a: a.cumsum(1), X),
    "gather": (lambda a, i: a.gather(1, i), X, PLACES),
    "gather publicly": (lambda a: a.gather(1, PLACES), X),
    "gather from one": (lambda a, i: a[0, 0].gather(0, i[0, 0]), X, PLACES * 0),
    "gather in columns": (lambda a, i: a.gather(0, i), X, PLACES.t() % 4),
    "index_select": (lambda a, i: a.index_select(1, i), X, IDS[0]),
    "index_select publicly": (lambda a: a.index_select(1, IDS[0]), X),
    "index rows": (lambda a, i: a[i], X, IDS),
    "index columns": (lambda a, i: a[:, i], X, IDS[0]),
    "index publicly": (lambda a: a[IDS[0]] + a[:, IDS[0]].sum(), X),
    "index by a public mask": (lambda a: a[:, MASK[0]], X),
    "take": (lambda a, i: a.take(i), X, IDS),
    "embedding": (lambda i, w: F.embedding(i, w), IDS, X),
    "embedding with padding": (lambda i, w: F.embedding(i, w, padding_idx=1), IDS, X),
    "embedding publicly": (lambda w: F.embedding(IDS, w), X),
    "scatter": (lambda a, i, b: a.scatter(1, i, b[:, :1]), X, PLACES, Y),
    "scatter a number": (lambda a, i: a.scatter(1, i, 0.5), X, PLACES),
    "scatter publicly": (lambda a, b: a.scatter(1, PLACES, b[:, :1]), X, Y),
    "scatter_add": (lambda a, i, b: a.scatter_add(1, i, b[:, :2]), X, IDS.repeat(2, 1), Y),
    "scatter_add publicly": (lambda a, b: a.scatter_add(1, PLACES, b[:, :1]), X, Y),
    "index_add": (lambda a, i, b: a.index_add(0, i, b[:2], alpha=0.5), X, IDS[0], Y),
    "index_add publicly": (lambda a, b: a.index_add(0, IDS[0], b[:2]), X, Y),
    "index_put": (lambda a, i, b: a.index_put((i,), b[:2]), X, IDS[0], Y),
    "index_put in columns": (
        lambda a, i, b: torch.ops.aten.index_put(a, [None, i], b[:, :2]),
        X,
        IDS[0],
        Y,
    ),
    "index_put publicly": (lambda a, b: a.index_put((IDS[0],), b[:2], accumulate=True), X, Y),
    "index_fill": (lambda a: a.index_fill(1, IDS[0], 0.5), X),
    "assignment": (lambda a, b: _assigned(a * 1, b), X, Y),
    "mse_loss": (F.mse_loss, X, Y),
    "mse_loss sum": (lambda a, b: F.mse_loss(a, b, reduction="sum"), X, Y),
    "mse_loss none": (lambda a, b: F.mse_loss(a, b, reduction="none"), X, Y),
    "xlogy": (lambda a, b: torch.xlogy(a, b.abs() + 0.5), X, Y),
    "xlogy of zeros": (lambda a, b: torch.xlogy(a * 0, b.relu()) + a, X, Y),
    "xlogy of numbers": (lambda a: torch.xlogy(a, 2.5) + torch.xlogy(1.5, a.abs() + 0.5), X),
    "xlog1py": (lambda a, b: torch.special.xlog1py(a, b.abs()), X, Y),
    "kl_div": (
        lambda a, b: F.kl_div(a.log_softmax(1), b.softmax(1), reduction="batchmean"),
        X,
        Y,
    ),
    "kl_div with logarithms": (
        lambda a, b: F.kl_div(
            a.log_softmax(1), b.log_softmax(1), reduction="batchmean", log_target=True
        ),
        X,
        Y,
    ),
    "l1_loss": (F.l1_loss, X, Y),
    "smooth_l1_loss": (F.smooth_l1_loss, X, Y),
    "huber_loss": (F.huber_loss, X, Y),
    "cross_entropy": (lambda a, t: F.cross_entropy(a, t), X, CLASSES),
    "cross_entropy of one": (lambda a, t: F.cross_entropy(a[0], t[0]), X, CLASSES),
    "cross_entropy publicly": (lambda a: F.cross_entropy(a, CLASSES), X),
    "cross_entropy with weights": (
        lambda a: F.cross_entropy(a, CLASSES, weight=like(a, [0.5, 1, 2, 1, 1, 1])),
        X,
    ),
    "cross_entropy smoothed": (lambda a: F.cross_entropy(a, CLASSES, label_smoothing=0.1), X),
    "cross_entropy of shares": (lambda a, b: F.cross_entropy(a, b.softmax(1)), X, Y),
    "nll_loss none": (
        lambda a, t: F.nll_loss(a.log_softmax(1), t, reduction="none"),
        X,
        CLASSES,
    ),
    "nll_loss sum": (lambda a, t: F.nll_loss(a.log_softmax(1), t, reduction="sum"), X, CLASSES),
    "nll_loss of images": (
        lambda a, t: F.nll_loss(a.log_softmax(1), t),
        IMAGE[:, :, :2, :2],
        IDS[None].expand(2, 2, 2) % 3,
    ),
    "binary_cross_entropy": (F.binary_cross_entropy, P, (Y > 0) * 1.0),
    "binary_cross_entropy_with_logits": (
        F.binary_cross_entropy_with_logits,
        X,
        (Y > 0) * 1.0,
    ),
    "layer_norm": (lambda a, w, b: F.layer_norm(a, (6,), w, b), X, positive(6), normal(6)),
    "batch_norm": (
        lambda a, w, b: F.batch_norm(a, None, None, w, b, True),
        X,
        positive(6),
        normal(6),
    ),
    "batch_norm in evaluation": (
        lambda a: F.batch_norm(a, like(a, [0.0] * 6), like(a, [1.0] * 6)),
        X,
    ),
    "group_norm": (lambda a: F.group_norm(a, 2), X),
    "instance_norm": (lambda a: F.instance_norm(a), SIGNAL),
    "variance": (lambda a: a.var(1), X),
    "variance of all": (lambda a: sum(torch.var_mean(a)) + a.std(), X),
    "norm": (lambda a: a.norm(), X),
    "normalize": (lambda a: F.normalize(a), X),
    "cosine_similarity": (F.cosine_similarity, X, Y),
    "mean": (lambda a: a.mean(0) + a.mean(), X),
    "softmax": (lambda a: a.softmax(1), WIDE),
    "softmax of masked": (lambda a: a.masked_fill(MASK, float("-inf")).softmax(1), X),
    "log_softmax": (lambda a: a.log_softmax(0), WIDE),
    "logsumexp": (lambda a: a.logsumexp(1), X),
    "exp": (torch.exp, X),
    "exp of what is low": (lambda a: (-(a**2)).exp(), WIDE),
    "expm1": (lambda a: torch.expm1(a) + torch.exp2(a), X),
    "log": (torch.log, P),
    "other logarithms": (lambda a: torch.log1p(a) + torch.log2(a) + torch.log10(a), P + 0.5),
    "sqrt": (torch.sqrt, P),
    "rsqrt": (torch.rsqrt, P + 0.5),
    "sigmoid": (torch.sigmoid, WIDE),
    "tanh": (torch.tanh, WIDE),
    "erf": (lambda a: torch.erf(a) - torch.erfc(a), X),
    "gelu": (F.gelu, X),
    "gelu by tanh": (lambda a: F.gelu(a, approximate="tanh"), X),
    "silu": (F.silu, X),
    "softplus": (F.softplus, X),
    "elu": (F.elu, X),
    "leaky_relu": (F.leaky_relu, X),
    "prelu": (F.prelu, X, positive(1)),
    "hardtanh": (F.hardtanh, X),
    "softshrink": (F.softshrink, X),
    "hardshrink": (F.hardshrink, X),
    "hardswish": (F.hardswish, X),
    "logsigmoid": (F.logsigmoid, X),
    "attention": (F.scaled_dot_product_attention, *HEADS),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        *HEADS,
    ),
}

# What is divided by a small number, or raised to a power, multiplies its rounding up.
BOUNDS = {
    **dict.fromkeys(["divide", "divide by negative"], (5, 45)),
    **dict.fromkeys(["reciprocal", "batch_norm", "encoder layer"], (3, 35)),
    **dict.fromkeys(["fifth power", "negative power", "exp of what is low"], (3, 12)),
    **dict.fromkeys(
        ["group_norm", "instance_norm", "attention", "attention without weights"], (5, 10)
    ),
    **dict.fromkeys(["other logarithms", "erf", "log_softmax"], (3, 6)),
}
ROUNDED_AT_RANDOM = 5
"""How much larger the bounds are where the ring rounds up or down at random."""


def _assigned(a: Any, b: Any) -> Any:
    a[0] = b[0]
    a[:, 1] += b[:, 1]
    a[1, 2] = 0.5
    return a


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def off_by(got: Any, want: torch.Tensor) -> float:
    """The largest distance of a blind result, in steps; its kind and shape are checked."""
    assert type(got) is not torch.Tensor, "a result that anybody may read"
    assert got.shape == want.shape
    if want.is_floating_point():
        assert got.dtype is torch.float32
        return ((reveal(got, torch.float64) - want).abs().max() / STEP).item()
    assert got.dtype is want.dtype
    return 0.0 if torch.equal(reveal(got), want) else float("inf")


def bounds_of(name: str, noisy: bool) -> tuple[float, float]:
    """How many steps results and gradients may be off."""
    result, gradient = BOUNDS.get(name, (2, 4))
    factor = ROUNDED_AT_RANDOM if noisy else 1
    return result * factor, gradient * factor


def compare(
    function: Callable[..., Any], operands: Any, ring: BlindRing, bounds: tuple[float, float]
) -> None:
    """Run a function over the ring and in float64; differentiate both from one random gradient."""
    given = [blind(t.clone().requires_grad_(t.is_floating_point()), ring) for t in operands]
    plain = [reveal(t.detach(), torch.float64).requires_grad_(t.requires_grad) for t in given]
    got, want = as_tuple(function(*given)), as_tuple(function(*plain))
    for one, other in zip(got, want, strict=True):
        assert off_by(one.detach(), other.detach()) <= bounds[0]
    if not want[0].requires_grad:
        assert not got[0].requires_grad
        return
    gradient = blind(normal(*want[0].shape, seed=9), ring)
    got[0].backward(gradient)
    want[0].backward(reveal(gradient, torch.float64))
    for one, other in zip(given, plain, strict=True):
        if other.grad is not None:
            assert off_by(one.grad, other.grad) <= bounds[1]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("noisy", [False, True])
def test_a_rule_over_integers_that_nobody_may_read(name, noisy):
    torch.manual_seed(0)
    function, *operands = CASES[name]
    compare(function, operands, BlindRing(noisy=noisy), bounds_of(name, noisy))


WINDOWS = [
    name
    for name in CASES
    if "pool" in name and not name.endswith("to one") or name == "pad by reflection"
]


@pytest.mark.parametrize("name", WINDOWS)
def test_a_plain_gradient_of_private_numbers_and_a_private_one_of_plain_numbers(name):
    function, operand = CASES[name]
    ring = BlindRing()
    private, plain = blind(operand.clone().requires_grad_(), ring), operand.clone().requires_grad_()
    got, want = as_tuple(function(private))[0], as_tuple(function(plain))[0]
    gradient = torch.randint(-3, 4, want.shape).float()
    got.backward(gradient)
    want.backward(gradient)
    assert off_by(private.grad, plain.grad.double()) <= 2
    other = operand.clone().requires_grad_()
    (as_tuple(function(other))[0] * blind(gradient, ring)).sum().backward()
    assert off_by(other.grad, plain.grad.double()) <= 2


# ------------------------------------------------------------------------------------------ modules

MODULES: dict[str, tuple[Any, torch.Tensor, dict[str, Any]]] = {
    "RNN": (lambda: nn.RNN(6, 3), normal(4, 2, 6), {}),
    "LSTM": (lambda: nn.LSTM(6, 3, num_layers=2, bidirectional=True), normal(3, 2, 6), {}),
    "GRU": (lambda: nn.GRU(6, 3), normal(4, 2, 6), {}),
    "LSTMCell": (lambda: nn.LSTMCell(6, 3), normal(4, 6), {}),
    "attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), normal(2, 5, 8), {}),
    "attention without weights": (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        normal(2, 5, 8),
        {"need_weights": False},
    ),
    "encoder layer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        normal(2, 5, 8),
        {},
    ),
    "Embedding": (lambda: nn.Embedding(5, 3), IDS, {}),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_over_integers_that_nobody_may_read(name):
    torch.manual_seed(0)
    make, x, settings = MODULES[name]
    module = make()
    names = [n for n, _ in module.named_parameters()]
    times = 3 if "attention" in name else 1

    def run(*operands):
        given, weights = operands[0], dict(zip(names, operands[1:], strict=True))
        inputs = (given,) * times
        out = torch.func.functional_call(module, weights, inputs, settings)
        return out[0] if isinstance(out, tuple) else out

    operands = [x, *(p.detach() for p in module.parameters())]
    for noisy in (False, True):
        compare(run, operands, BlindRing(noisy=noisy), bounds_of(name, noisy))
