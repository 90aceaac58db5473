"""Another secret for the second world: like the first in everything but its values."""

from __future__ import annotations

import random

import torch


def other_than(tensor: torch.Tensor, rng: random.Random, numbers: torch.Generator) -> torch.Tensor:
    """A tensor of the same shape, strides, dtype and layout, with other values.

    They are of the kinds that make kernels behave differently: another order, zeros, huge and
    negative numbers, NaN and infinity; integers also beyond the range of the first ones.
    """
    duplicate = tensor.detach().clone()
    if duplicate.layout is not torch.strided:
        return _other_values(duplicate, rng, numbers).requires_grad_(tensor.requires_grad)
    with torch.no_grad():
        if duplicate.is_quantized:
            return (
                duplicate
                if not duplicate.numel()
                else duplicate.flip(0) if duplicate.ndim else duplicate
            )
        duplicate.copy_(_values(duplicate, rng, numbers))
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(duplicate, tensor.requires_grad)
    return duplicate.requires_grad_(tensor.requires_grad)


def failing_values(tensor: torch.Tensor) -> torch.Tensor:
    """The same with values for which many operations fail: indices out of range, matrices without
    an inverse, probabilities that are none."""
    duplicate = tensor.detach().clone()
    if (
        duplicate.layout is torch.strided
        and not duplicate.is_quantized
        and duplicate.dtype is not torch.bool
    ):
        whole = not (duplicate.is_floating_point() or duplicate.is_complex())
        with torch.no_grad():
            value = min(10**6, torch.iinfo(duplicate.dtype).max) if whole else -7.0
            duplicate.copy_(
                torch.full(duplicate.shape, value, dtype=torch.int64 if whole else torch.float64)
            )
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(duplicate, tensor.requires_grad)
    return duplicate.requires_grad_(tensor.requires_grad)


def _other_values(
    duplicate: torch.Tensor, rng: random.Random, numbers: torch.Generator
) -> torch.Tensor:
    """The same indices and other values, for a sparse tensor; other layouts are left alone."""
    if duplicate.layout is torch.sparse_coo:
        values = duplicate._values()
    elif duplicate.layout in (torch.jagged, torch.sparse_csr, torch.sparse_csc):
        values = duplicate.values()
    else:
        return duplicate
    with torch.no_grad():
        values.copy_(_values(values, rng, numbers))
    return duplicate


def _values(like: torch.Tensor, rng: random.Random, numbers: torch.Generator) -> torch.Tensor:
    if like.dtype is torch.bool:
        return torch.randint(0, 2, like.shape, generator=numbers).bool()
    if like.is_floating_point() or like.is_complex():
        return _real(like, rng, numbers)
    return _whole(like, rng, numbers)


def _real(like: torch.Tensor, rng: random.Random, numbers: torch.Generator) -> torch.Tensor:
    if rng.random() < 0.4:
        order = torch.randperm(like.numel(), generator=numbers)
        wide = like.to(torch.complex128 if like.is_complex() else torch.float64)
        return wide.reshape(-1)[order].reshape(like.shape)
    made = torch.randn(like.shape, dtype=torch.float64, generator=numbers)
    made *= rng.choice([0, 1, 1, 100, 1e30])
    if rng.random() < 0.3 and made.numel():
        made.view(-1)[0] = rng.choice([float("nan"), float("inf"), -1.0, 0.0])
    return made


def _whole(like: torch.Tensor, rng: random.Random, numbers: torch.Generator) -> torch.Tensor:
    whole = like.long()
    low, high = (int(whole.min()), int(whole.max())) if like.numel() else (0, 1)
    if rng.random() < 0.3:
        low, high = low - 3, high + 9
    low, high = max(low, -100, _least(like)), min(high, 100)
    return torch.randint(low, max(low, high) + 1, like.shape, generator=numbers)


def _least(like: torch.Tensor) -> int:
    return 0 if like.dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64) else -100
