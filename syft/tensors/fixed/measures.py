"""What the bounds of a row hold for, measured on the arguments and the exact result, as float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Measure = Callable[[Sequence[Any], Any], torch.Tensor]
"""What a bound holds for: from the arguments and the exact result, as float64."""


def number_of(value: Any) -> torch.Tensor:
    """A value as float64.

    >>> number_of(0.5)
    tensor(0.5000, dtype=torch.float64)
    """
    return torch.as_tensor(value, dtype=torch.float64)


def first(args: Sequence[Any], want: Any) -> torch.Tensor:
    """The first argument."""
    return number_of(args[0])


def size(args: Sequence[Any], want: Any) -> torch.Tensor:
    """The sizes of the first argument."""
    return first(args, want).abs()


def result(args: Sequence[Any], want: Any) -> torch.Tensor:
    """The sizes of the results."""
    return number_of(want).abs()


def dividends(args: Sequence[Any], want: Any) -> torch.Tensor:
    """The sizes of what is divided."""
    return number_of(args[-3 if len(args) > 3 else 0]).abs()


def divisors(args: Sequence[Any], want: Any) -> torch.Tensor:
    """The sizes of the divisors."""
    return number_of(args[2 if len(args) > 3 else 1]).abs()


def factor(args: Sequence[Any]) -> float:
    """That of addcdiv, or 1 if it is below: what is divided is as large without it."""
    return max(abs(float(args[3])) if len(args) > 3 else 1.0, 1.0)


def of_divisor(args: Sequence[Any], want: Any) -> torch.Tensor:
    """2 steps over the divisor, times the factor."""
    return 2 * factor(args) / divisors(args, want)


def quotients(args: Sequence[Any], want: Any) -> torch.Tensor:
    """The sizes of the quotients, times the factor."""
    return factor(args) * dividends(args, want) / divisors(args, want)


def of_factor(args: Sequence[Any], want: Any) -> torch.Tensor:
    """1 step times the public factors."""
    factors = [float(one) for one in args[3:] if isinstance(one, (int, float))]
    return number_of(sum(map(abs, factors)))


def of_root(args: Sequence[Any], want: Any) -> torch.Tensor:
    """2 steps over the root, 512 at most."""
    return 2 / result(args, want).clamp(min=2.0**-8)


def of_beta(args: Sequence[Any], want: Any) -> torch.Tensor:
    """1 step over the ``beta`` of softplus."""
    beta = args[1] if len(args) > 2 else 1.0  # softplus(x, beta, threshold)
    return number_of(1 / abs(beta))


def of_gradient(args: Sequence[Any], want: Any) -> torch.Tensor:
    """24 steps times the gradient."""
    return 24 * size(args, want)


def spread(args: Sequence[Any], want: Any) -> torch.Tensor:
    """The difference of the largest and the smallest."""
    x = first(args, want)
    return x.amax() - x.amin() if x.numel() else x


def squares(args: Sequence[Any], want: Any) -> torch.Tensor:
    """The squares of the distances to the mean."""
    x, dim = first(args, want), args[1]
    dims = list(dim) if dim and x.dim() else list(range(x.dim()))
    return (x - x.mean(dims, keepdim=True)).square()


def losses(args: Sequence[Any], want: Any) -> torch.Tensor:
    """The squares of a loss, or their sum."""
    found = (first(args, want) - number_of(args[1])).square()
    return found.sum() if len(args) > 2 and args[2] == 2 else found


Normed = tuple[torch.Tensor, torch.Tensor, torch.Tensor, Any, bool]
"""What a norm takes, its mean and variance, the weight, and whether these are computed from it."""


def layers(args: Sequence[Any]) -> Normed:
    """Of ``layer_norm``."""
    return _normed(number_of(args[0]), tuple(range(-len(args[1]), 0)), args[2])


def batches(args: Sequence[Any]) -> Normed:
    """Of ``batch_norm``."""
    x = number_of(args[0]).movedim(1, -1)
    if not args[5]:  # the statistics are given
        return x, number_of(args[3]), number_of(args[4]), args[1], False
    return _normed(x, tuple(range(x.dim() - 1)), args[1])


def groups(args: Sequence[Any]) -> Normed:
    """Of ``group_norm``."""
    x = number_of(args[0])
    return _normed(x.reshape(x.shape[0], args[6], -1), (-1,), args[1])


def _normed(x: torch.Tensor, dims: tuple[int, ...], weight: Any) -> Normed:
    var, mean = torch.var_mean(x, dims, unbiased=False, keepdim=True)
    return x, mean, var, weight, True


def variances(norm: Callable[[Sequence[Any]], Normed], args: Sequence[Any], want: Any) -> Any:
    """The variances by which a norm divides; of given ones, which are public, 1 at most."""
    _, _, var, _, computed = norm(args)
    return var if computed else var.clamp(max=1.0)


def distances(norm: Callable[[Sequence[Any]], Normed], args: Sequence[Any], want: Any) -> Any:
    """The squares of the distances to the mean of which a norm computes the variance."""
    x, mean, _, _, computed = norm(args)
    return (x - mean).square() * computed


def of_norm(norm: Callable[[Sequence[Any]], Normed], args: Sequence[Any], want: Any) -> Any:
    """The steps by which a norm may be off besides: those of the worst element."""
    x, mean, var, weight, _ = norm(args)
    most, deviation = (x - mean).abs() / (var + args[-1]).sqrt(), var.sqrt()
    scale = 1.0 if weight is None else number_of(weight).abs().max()
    steps = 4 + 2 / deviation + most * (2 / var + 2 * deviation)
    return scale * steps.amax() if steps.numel() else number_of(0)


def row_sums(args: Sequence[Any], want: Any) -> torch.Tensor:
    """The row sums of the sizes of the inverse."""
    inverse: torch.Tensor = torch.linalg.pinv(first(args, want))
    return inverse.abs().sum(-1)


def of_inverse(args: Sequence[Any], want: Any) -> torch.Tensor:
    """2 steps times 1 + the largest row sum, times 1 + the largest result."""
    return 2 * (1 + row_sums(args, want).max()) * (1 + result(args, want).max())
