"""What one operation may use, checked before it runs.

``x.expand(2**50).sum()`` takes a few bytes to ask for and years to run, and
``zeros(10**7).split(1)`` makes ten million tensors.  So what a caller may ask for is bounded: the
elements that an operation reads and makes (repeated ones of an expanded tensor included), the
memory that it allocates, and the number of its results.

The sizes of most results are at most the product of the sizes of the operands and of the integers
among the arguments.  Where that product is small, nothing else is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import torch

from syft.ops.nested import leaves
from syft.workers.execution.extents import extent_of
from syft.workers.execution.permissions import innermost
from syft.workers.execution.size_rules import BY_VALUES, COUNTED, CROSSING, PLAIN, SQUARING
from syft.workers.execution.size_rules import is_size, whole

FREE: Final = 1 << 24
"""Elements that are not looked at."""

Function = Callable[..., Any]
Refusal = Callable[[str, int], Exception]


@dataclass(frozen=True, slots=True)
class Allowance:
    """What an operation may use; ``exceeded`` makes the error, from the limit's name and the
    figure.

    >>> from syft.ops.table import BY_NAME
    >>> allowance = Allowance(100, 1000, 10, lambda limit, got: ValueError(f"{limit}: {got}"))
    >>> allowance.check(BY_NAME["torch.zeros"], torch.zeros, [(2, 3)], {})
    >>> allowance.check(BY_NAME["torch.zeros"], torch.zeros, [10**12], {})
    Traceback (most recent call last):
    ...
    ValueError: elements: 1000000000000
    """

    elements: int
    bytes: int
    results: int
    exceeded: Refusal

    def check(self, op: int, function: Function, args: Any, kwargs: dict[str, Any]) -> None:
        """Raise if an operation would use more."""
        count = COUNTED.get(op)
        if count is not None:
            self._compare("results", count(args, kwargs))
        extent = extent_of(op, function, args, kwargs)
        self._compare("elements", extent.elements)
        self._compare("bytes", extent.bytes)
        self._compare("results", extent.results)

    def _compare(self, limit: str, got: int) -> None:
        if got > getattr(self, limit):
            raise self.exceeded(limit, got)


def is_harmless(op: int, args: Any, kwargs: dict[str, Any], free: int) -> bool:
    """Whether it is certain, without a closer look, that an operation uses little: its bound is at
    most ``free`` elements.

    >>> from syft.ops.table import BY_NAME
    >>> is_harmless(BY_NAME["torch.zeros"], [100], {}, FREE)
    True
    >>> is_harmless(BY_NAME["torch.zeros"], [2**50], {}, FREE)
    False
    """
    if op in BY_VALUES or op in COUNTED:
        return False
    return bound(op, args, kwargs) <= free


def bound(op: int, args: Any, kwargs: dict[str, Any]) -> int:
    """A number that most operations do not exceed in what they read and make.

    >>> from syft.ops.table import BY_NAME
    >>> x = torch.ones(3)
    >>> bound(BY_NAME["torch.Tensor.add"], [x, x], {}), bound(BY_NAME["torch.zeros"], [10], {})
    (9, 1000)
    """
    result = 1
    crossing = op in CROSSING
    counted = op not in PLAIN
    for operand in (*args, *kwargs.values()):
        if isinstance(operand, torch.Tensor):
            result *= _size_of(operand, counted)
        elif counted and type(operand) in (int, float):
            result *= whole(operand) ** 3  # one number may stand for every dimension
        elif isinstance(operand, (list, tuple)):
            result *= _size_of_items(operand, crossing, counted)
    return result**2 if op in SQUARING else result


def _size_of(tensor: torch.Tensor, counted: bool) -> int:
    inside = innermost(tensor)
    if inside is None:
        return 1
    elements = torch.Tensor.numel(inside)
    if elements == 1 and counted and is_size(inside):
        return whole(inside.item()) ** 3
    return elements or 1


def _size_of_items(items: Iterable[Any], crossing: bool, counted: bool) -> int:
    """The bound of a container: tensors in it add up, unless the operation crosses them."""
    tensors, result = [1], 1
    for item in leaves(items):
        if isinstance(item, torch.Tensor):
            tensors.append(_size_of(item, counted))
        elif counted and type(item) in (int, float):
            result *= whole(item)
    return result * (prod(tensors) if crossing else sum(tensors))
