"""Checks of sizes that torch's kernels do not make before they read or write memory.

The kernels below take as many elements of one operand as another operand has, or as a number says
(torch 2.13 on CPU, found as :mod:`~syft.workers.hardening.checked_operands` says).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any, Final

import torch

from syft.torch_private import is_non_overlapping_and_dense_or_false
from syft.workers.hardening.checked_operands import Given, tensor_of
from syft.workers.labels.walk import innermost


def weight_norm_checked(given: Given) -> None:
    """Refuse a magnitude that has not one element for each slice of the weight.

    >>> weight_norm_checked({"v": torch.ones(40), "g": torch.ones(0, 3)})
    Traceback (most recent call last):
    ...
    RuntimeError: _weight_norm: expected g of size [40] for v of size [40] and dim 0, got [0, 3]
    """
    weight, magnitude = tensor_of(given, "v"), tensor_of(given, "g")
    dim = given.get("dim", 0)
    if weight is None or magnitude is None or not isinstance(dim, int):
        return
    expected = [1] * weight.ndim
    if 0 <= dim < weight.ndim:
        expected[dim] = weight.shape[dim]
    elif not magnitude.ndim:
        expected = []  # the norm of all elements
    fits = list(magnitude.shape) == expected and magnitude.dtype is weight.dtype
    if not fits or not weight.numel() or not -1 <= dim < weight.ndim:
        raise RuntimeError(
            f"_weight_norm: expected g of size {expected} for v of size {list(weight.shape)} and "
            f"dim {dim}, got {list(magnitude.shape)}"
        )


def strides_checked(given: Given) -> None:
    """Refuse sizes and strides with which the number of bytes goes round, and torch takes a tensor
    that reaches through all memory for a small one.

    >>> strides_checked({"input": torch.ones(2), "size": (2, 9), "stride": (2**62 - 8, 1)})
    Traceback (most recent call last):
    ...
    RuntimeError: as_strided_: expected sizes and strides of fewer than 2**63 bytes
    """
    inside, size, stride = tensor_of(given, "input"), given.get("size"), given.get("stride")
    lists = isinstance(size, (list, tuple)) and isinstance(stride, (list, tuple))
    if inside is None or not lists or not all(map(int, size or ())):
        return
    steps = zip(map(int, size or ()), map(int, stride or ()), strict=False)
    last = sum((count - 1) * step for count, step in steps) + int(given.get("storage_offset") or 0)
    if (last + 1) * inside.itemsize >= 1 << 63:
        raise RuntimeError("as_strided_: expected sizes and strides of fewer than 2**63 bytes")


def rows_checked(given: Given) -> None:
    """Refuse queries, keys and values whose rows have gaps: the kernel of a CPU takes them for
    dense, and reads what lies in memory beyond them.

    >>> rows_checked({"query": torch.ones(1, 1, 3, 2).mT})
    Traceback (most recent call last):
    RuntimeError: attention: expected query with a last dimension of stride 1: contiguous()
    """
    for name in ("query", "key", "value"):
        x = tensor_of(given, name)
        if x is not None and x.dim() and x.layout is torch.strided and x.stride(-1) != 1:
            message = f"attention: expected {name} with a last dimension of stride 1: contiguous()"
            raise RuntimeError(message)


_CHANNELS: Final = ("weight", "bias", "running_mean", "running_var")


def batch_norm_checked(given: Given, statistics: bool = False) -> None:
    """Refuse weights and statistics that have not one element for each channel; ``statistics`` says
    that both of these are needed.

    >>> batch_norm_checked({"input": torch.ones(2, 3), "running_mean": torch.ones(1)})
    Traceback (most recent call last):
    ...
    RuntimeError: batch norm: expected running_mean of size [3], got [1]
    """
    inside = tensor_of(given, "input")
    if inside is None:
        return
    if inside.ndim < 2:
        raise RuntimeError(f"batch norm: expected at least 2 dimensions, got {inside.ndim}")
    for name in _CHANNELS:
        _check_channels(name, tensor_of(given, name), inside)
    training = given.get("training")
    if isinstance(given.get("running_mean"), bool):  # the overload without statistics
        training = given["running_mean"]
    elif given.get("running_mean") is not None and given.get("running_var") is not None:
        return
    if statistics or training is False:
        raise RuntimeError("batch norm: expected running_mean and running_var")


def _check_channels(name: str, part: torch.Tensor | None, inside: torch.Tensor) -> None:
    channels = [inside.shape[1]]
    if part is None:
        return
    if list(part.shape) != channels:
        raise RuntimeError(
            f"batch norm: expected {name} of size {channels}, got {list(part.shape)}"
        )
    if part.dtype not in (inside.dtype, torch.float32):
        raise RuntimeError(f"batch norm: expected {name} of {inside.dtype}, got {part.dtype}")


def pivots_checked(given: Given) -> None:
    """Refuse pivots that have not one element for each row or column of the factors.

    >>> pivots_checked({"LU_data": torch.ones(5, 5), "LU_pivots": torch.ones(0)})
    Traceback (most recent call last):
    ...
    RuntimeError: lu_unpack: expected pivots of size [5], got [0]
    """
    factors, pivots = tensor_of(given, "LU_data"), tensor_of(given, "LU_pivots")
    if factors is None or pivots is None or factors.ndim < 2:
        return
    expected = [*factors.shape[:-2], min(factors.shape[-2:])]
    if list(pivots.shape) != expected:
        raise RuntimeError(
            f"lu_unpack: expected pivots of size {expected}, got {list(pivots.shape)}"
        )


def quantizers_checked(given: Given) -> None:
    """Refuse statistics of a quantizer that have not one element for each channel.

    >>> one, two = torch.ones(1), torch.ones(2)
    >>> given = {"input": two, "running_min": two, "running_max": one, "scale": one}
    >>> quantizers_checked({**given, "zero_point": one, "ch_axis": 0, "observer_on": one,
    ...     "fake_quant_on": one})
    Traceback (most recent call last):
    ...
    RuntimeError: fused_moving_avg_obs_fake_quant: expected running_min of 1 elements, got 2
    """
    inside, axis = tensor_of(given, "input"), given.get("ch_axis")
    per_row = given.get("per_row_fake_quant", False)
    if inside is None or not isinstance(axis, int) or not -inside.ndim <= axis < inside.ndim:
        raise RuntimeError("fused_moving_avg_obs_fake_quant: expected an axis of a tensor")
    elements = inside.shape[axis] if per_row else 1
    for name in QUANTIZER_STATISTICS:
        part = tensor_of(given, name)
        expected = 1 if name.endswith("_on") else elements
        if part is None or part.numel() != expected:
            got = "none" if part is None else part.numel()
            raise RuntimeError(
                f"fused_moving_avg_obs_fake_quant: expected {name} of {expected} elements, got "
                f"{got}"
            )


QUANTIZER_STATISTICS: Final = (
    *("observer_on", "fake_quant_on", "running_min", "running_max", "scale", "zero_point"),
)


# --------------------------------------------------------------------------------------- lists


def chunks_checked(given: Given) -> None:
    """Refuse a dimension that a tensor to be cut does not have.

    >>> chunks_checked({"tensors": [torch.tensor(1.0)], "dim": -1})
    Traceback (most recent call last):
    ...
    RuntimeError: _chunk_cat: expected tensors that have dimension -1
    """
    dim = given.get("dim", 0)
    for tensor in _inside(given.get("tensors")):
        if not isinstance(dim, int) or not -tensor.ndim <= dim < tensor.ndim:
            raise RuntimeError(f"_chunk_cat: expected tensors that have dimension {dim}")


def _inside(values: Any) -> list[torch.Tensor]:
    """The tensors of a list that are here."""
    items: Iterable[Any] = values if isinstance(values, (list, tuple)) else ()
    return [inside for item in items if (inside := innermost(item)) is not None]


def lists_checked(given: Given) -> None:
    """Refuse lists of different lengths.

    >>> lists_checked({"input": [torch.ones(2)], "tensors1": [torch.ones(2)], "weight": []})
    Traceback (most recent call last):
    ...
    RuntimeError: expected lists of 1 tensors, got weight with 0
    """
    expected = len(given.get("input") or ())
    for name, value in given.items():
        if isinstance(value, (list, tuple)) and len(value) != expected:
            raise RuntimeError(
                f"expected lists of {expected} tensors, got {name} with {len(value)}"
            )


def optimizer_checked(given: Given, needed: Callable[[Given], Sequence[str]]) -> None:
    """Refuse gradients and states that are not laid out like their parameters; the kernel goes
    through the memory of all of them together.  ``needed`` are the lists that must not be empty.

    >>> from functools import partial
    >>> sgd = partial(optimizer_checked, needed=sgd_lists)
    >>> sgd({"params": [torch.ones(5)], "grads": [torch.ones(2)], "momentum_buffer_list": []})
    Traceback (most recent call last):
    ...
    RuntimeError: expected grads laid out like the parameters
    """
    parameters = list(given.get("params") or ())
    must = {"params", "grads", *needed(given)}
    for name in must | {key for key, value in given.items() if isinstance(value, (list, tuple))}:
        items = list(given.get(name) or ())
        if items or name in must:
            _check_list(name, items, parameters)


def _check_list(name: str, items: list[Any], parameters: list[Any]) -> None:
    if len(items) != len(parameters):
        raise RuntimeError(f"expected {len(parameters)} {name}, got {len(items)}")
    same = _one_step if name == "state_steps" else _same_layout
    if not all(map(same, parameters, items)):
        raise RuntimeError(f"expected {name} laid out like the parameters")


def _same_layout(parameter: Any, other: Any) -> bool:
    one, two = innermost(parameter), innermost(other)
    if one is None or two is None:
        return one is two
    return (
        one.layout is two.layout is torch.strided
        and (one.shape, one.stride(), one.dtype, one.device)
        == (two.shape, two.stride(), two.dtype, two.device)
        and bool(is_non_overlapping_and_dense_or_false(one))
    )


def _one_step(parameter: Any, step: Any) -> bool:
    inside = innermost(step)
    return inside is not None and inside.numel() == 1


def sgd_lists(given: Given) -> tuple[str, ...]:
    """The lists that ``_fused_sgd_`` reads: with a momentum its buffers too.

    >>> sgd_lists({"momentum": 0.0}), sgd_lists({"momentum": 0.9})
    ((), ('momentum_buffer_list',))
    """
    momentum = given.get("momentum", 0.0)
    needs = not isinstance(momentum, (int, float)) or not isfinite(momentum) or momentum != 0
    return ("momentum_buffer_list",) if needs else ()


def adam_lists(given: Given) -> tuple[str, ...]:
    """The lists that ``_fused_adam_`` reads: with ``amsgrad`` the largest averages too.

    >>> adam_lists({"amsgrad": False})
    ('exp_avgs', 'exp_avg_sqs', 'state_steps')
    """
    usual = ("exp_avgs", "exp_avg_sqs", "state_steps")
    return (*usual, "max_exp_avg_sqs") if given.get("amsgrad") else usual


def adagrad_lists(given: Given) -> tuple[str, ...]:
    """The lists that ``_fused_adagrad_`` reads.

    >>> adagrad_lists({})
    ('state_sums', 'state_steps')
    """
    return ("state_sums", "state_steps")
