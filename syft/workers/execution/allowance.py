"""What one operation may use, checked before it runs.

``x.expand(2**50).sum()`` takes a few bytes to ask for and years to run, and
``zeros(10**7).split(1)`` makes ten million tensors.  So what a caller may ask for is bounded: the
elements that an operation reads and makes (repeated ones of an expanded tensor included), the
memory that it allocates, and the number of its results.

Where a bound from the sizes of the operands is small
(:mod:`~syft.workers.execution.size_bounds`), nothing else is looked at.  Else the operation is
evaluated (:mod:`syft.ops.evaluate`).  Two kinds have rules by hand
(:mod:`~syft.workers.execution.size_rules`).  A bound is guessed of what torch cannot evaluate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import torch

from syft.ops.evaluate import use_of
from syft.ops.nested import EXACT_TENSOR_TYPES, Function, every_tensor, leaves, replace
from syft.ops.outcome import Use
from syft.ops.table import (
    ELEMENTWISE,
    FLAGS,
    GRADIENT,
    MATRIX_PRODUCT,
    READS_GRADIENT,
    SHAPE_FROM_VALUES,
    SQUARING,
    SUMMED,
)
from syft.workers.execution.size_bounds import bound
from syft.workers.execution.size_rules import BY_VALUES, COUNTED, is_size, whole
from syft.workers.labels.walk import innermost

FREE: Final = 1 << 24
"""Elements that are not looked at."""

_LARGE_INTEGER: Final = 1 << 12
_BYTES_AT_MOST: Final = 8

Refusal = Callable[[str, int], Exception]


@dataclass(frozen=True, slots=True)
class Allowance:
    """What an operation may use; ``exceeded`` makes the error, from the limit's name and the
    figure.

    >>> from syft.ops.table import BY_NAME
    >>> allowance = Allowance(100, 1000, 10, lambda limit, got: ValueError(f"{limit}: {got}"))
    >>> allowance.check(BY_NAME["torch.zeros"], torch.zeros, [(2, 3)], {})
    24
    >>> allowance.check(BY_NAME["torch.zeros"], torch.zeros, [10**12], {})
    Traceback (most recent call last):
    ...
    ValueError: elements: 1000000000000
    """

    elements: int
    bytes: int
    results: int
    exceeded: Refusal

    def check(self, op: int, function: Function, args: Any, kwargs: dict[str, Any]) -> int:
        """Raise if an operation would use more; returns the bytes that it will use."""
        count = COUNTED.get(op)
        if count is not None:
            self._compare("results", count(args, kwargs))
        use = used_by(op, function, args, kwargs)
        self._compare("elements", use.elements or 0)
        self._compare("bytes", use.peak)
        self._compare("results", use.results)
        return use.peak

    def _compare(self, limit: str, got: int) -> None:
        if got > getattr(self, limit):
            raise self.exceeded(limit, got)


def used_by(op: int, function: Function, args: Any, kwargs: dict[str, Any]) -> Use:
    """What an operation reads and makes.

    >>> from syft.ops.table import BY_NAME
    >>> x = torch.ones(3, 1)
    >>> used_by(BY_NAME["torch.Tensor.expand"], torch.Tensor.expand, [x, 3, 2**50], {})
    Use(elements=3377699720527875, peak=0, results=1)
    >>> used_by(BY_NAME["torch.bincount"], torch.bincount, [torch.tensor([10**9])], {})
    Use(elements=1000000002, peak=8000000008, results=1)
    """
    given = inputs = every_tensor(args, kwargs)
    if not EXACT_TENSOR_TYPES.issuperset(map(type, given)):
        inputs = [inside for inside in map(innermost, given) if inside is not None]
        if len(inputs) < len(given):
            return Use(1)  # data is at another worker, which will look at it
    read = sum(map(torch.Tensor.numel, inputs))
    row = BY_VALUES.get(op)
    if row is not None:
        made = row(args, kwargs, inputs)
        return Use(read + made, made * _BYTES_AT_MOST)
    if FLAGS[op] & (GRADIENT | READS_GRADIENT):
        return Use(read)  # gradients are charged as they come
    use = _evaluated(function, args, kwargs, inputs, inputs is not given)
    if use.elements is not None:
        return Use(read + use.elements, use.peak, use.results)
    made = _guess(op, args, kwargs, read)
    return Use(read + made, (read + made) * _BYTES_AT_MOST)


def _evaluated(
    function: Function,
    args: Any,
    kwargs: dict[str, Any],
    inputs: list[torch.Tensor],
    nested: bool,
) -> Use:
    """What a call uses on its tensors, or those inside of them if ``nested``, if these are ordinary
    ones."""
    for tensor in inputs:
        if tensor.layout is not torch.strided or tensor.is_quantized:
            return Use()
    if nested:
        args, kwargs = replace((args, kwargs), _inside)
    return use_of(function, args, kwargs, is_size)


def _guess(op: int, args: Any, kwargs: dict[str, Any], read: int) -> int:
    """The elements that an operation may make which cannot be evaluated: what it reads, as often as
    large numbers among its arguments say, or the bound that is closer."""
    flags = FLAGS[op]
    if flags & (ELEMENTWISE | MATRIX_PRODUCT | SUMMED | SHAPE_FROM_VALUES):
        made = bound(op, *replace((args, kwargs), _if_large))
    else:
        numbers = (_if_large(leaf) for leaf in leaves((args, kwargs)) if type(leaf) in (int, float))
        made = (read or 1) ** (2 if flags & SQUARING else 1) * prod(map(whole, numbers))
    dims = [tensor.ndim for tensor in every_tensor(args, kwargs)]
    return made * (1 + max(dims, default=0)) if flags & SHAPE_FROM_VALUES else made


def _inside(leaf: Any) -> Any:
    return innermost(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _if_large(leaf: Any) -> Any:
    """An argument; 1 in the place of a number that is no size, most likely."""
    return 1 if type(leaf) in (int, float) and whole(leaf) < _LARGE_INTEGER else leaf
