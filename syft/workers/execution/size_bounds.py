"""Bounds of what an operation reads and makes, from the sizes of its operands alone.

This is asked of every operation on large objects, so it has to cost less than the operation.  The
bound of most is the product of the sizes of the operands and of the integers among the arguments.
That is far more than most use: arithmetic on two tensors of one shape makes a third.  So there are
closer rules for what programs do most.

- *Writing elements*: an operand that is written keeps its size, and no other may be larger
  (``add_``, ``addcmul_``, ``_foreach_mul_``).  Losses and normalizations make no more than they
  read either.  The bound is the sum of the sizes.
- *Elements side by side*: where all tensors have one shape, so has the result (``add``,
  ``_foreach_div``).  The bound is the sum; where shapes differ, the product.
- *Products of matrices*: the dimension in the middle does not count twice.

A bound is of the order of what is used, and not exact: the result itself is not added.  What has no
small bound is looked at more closely (:mod:`~syft.workers.execution.allowance`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any, Final

import torch

from syft.ops.nested import EXACT_TENSOR_TYPES, SCALAR_TYPES, leaves
from syft.ops.table import (
    BOUNDED,
    CROSSING,
    ELEMENTWISE,
    FLAGS,
    MATRIX_PRODUCT,
    SPLITS,
    SQUARING,
    SUMMED,
    ops_where,
    ops_with,
)
from syft.workers.labels.memory_labels import full_guard_of
from syft.workers.labels.walk import innermost

Bound = Callable[[int, Any, dict[str, Any]], int]

BY_VALUES: Final = ops_where("makes")
"""The operations that make as many elements as values say."""

_numel = torch.Tensor.numel


def is_harmless(op: int, args: Any, kwargs: dict[str, Any], free: int) -> bool:
    """Whether it is certain, without a closer look, that an operation uses little: its bound is at
    most ``free`` elements.

    >>> from syft.ops.table import BY_NAME
    >>> is_harmless(BY_NAME["torch.zeros"], [100], {}, 10**6)
    True
    >>> is_harmless(BY_NAME["torch.zeros"], [2**50], {}, 10**6)
    False
    """
    if FLAGS[op] & BOUNDED and not kwargs:
        elements = 1
        for operand in args:
            if type(operand) in EXACT_TENSOR_TYPES:
                elements *= _numel(operand) or 1
            elif type(operand) not in SCALAR_TYPES:
                break
        else:
            if elements <= free:
                return True
    if op in BY_VALUES or FLAGS[op] & SPLITS:
        return False
    return _CLOSER.get(op, _product)(op, args, kwargs) <= free  # as `bound`


def bound(op: int, args: Any, kwargs: dict[str, Any]) -> int:
    """About as many elements as an operation reads and makes at most.

    >>> from syft.ops.table import BY_NAME
    >>> x, column = torch.ones(3), torch.ones(3, 1)
    >>> add = BY_NAME["torch.Tensor.add"]
    >>> bound(add, [x, x], {}), bound(add, [x, column], {}), bound(BY_NAME["torch.zeros"], [10], {})
    (6, 9, 1000)
    """
    return _CLOSER.get(op, _product)(op, args, kwargs)


def whole(number: Any) -> int:
    """The size for which a number may stand, or a public tensor; 1 for what is none.

    >>> whole(-3), whole(2.5), whole(float("inf")), whole(torch.tensor(4)), whole(torch.ones(2))
    (3, 2, 1, 4, 1)
    """
    if isinstance(number, torch.Tensor):
        inside = innermost(number)
        number = inside.item() if inside is not None and is_size(inside) else 1
    if number != number or number in (float("inf"), -float("inf")):
        return 1
    return max(1, abs(int(number)))


def is_size(tensor: torch.Tensor) -> bool:
    """Whether torch takes a tensor as an integer: one public element of an integer dtype.

    >>> is_size(torch.tensor(3)), is_size(torch.ones(1)), is_size(torch.tensor([3, 4]))
    (True, False, False)
    """
    if tensor.layout is not torch.strided or tensor.numel() != 1:
        return False
    integer = not (tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized)
    return integer and full_guard_of(tensor) is None


def _sum(op: int, args: Any, kwargs: dict[str, Any]) -> int:
    elements = 0
    for operand in (*args, *kwargs.values()) if kwargs else args:
        if type(operand) in EXACT_TENSOR_TYPES:
            elements += _numel(operand)
        elif type(operand) not in SCALAR_TYPES:
            elements += _sum_of_items(operand)
    return elements


def _sum_of_items(items: Any) -> int:
    if type(items) is list and EXACT_TENSOR_TYPES.issuperset(map(type, items)):
        return sum(map(_numel, items))
    return sum(_size_of(item, False) for item in leaves(items))


def _sum_if_alike(op: int, args: Any, kwargs: dict[str, Any]) -> int:
    elements, shape = 0, None
    for operand in (*args, *kwargs.values()) if kwargs else args:
        if type(operand) in EXACT_TENSOR_TYPES:
            if shape is not None and operand.shape != shape:
                return _product(op, args, kwargs)
            shape = operand.shape
            elements += _numel(operand)
        elif type(operand) not in SCALAR_TYPES:
            return _sum_if_lists_are_alike(op, args, kwargs)
    return elements


def _sum_if_lists_are_alike(op: int, args: Any, kwargs: dict[str, Any]) -> int:
    """The sum for lists of tensors that have the same shapes, and numbers."""
    shapes = None
    for operand in (*args, *kwargs.values()):
        if type(operand) is list and EXACT_TENSOR_TYPES.issuperset(map(type, operand)):
            found = [item.shape for item in operand]
            if shapes is not None and found != shapes:
                return _product(op, args, kwargs)
            shapes = found
        elif type(operand) is not list or not SCALAR_TYPES.issuperset(map(type, operand)):
            if type(operand) not in SCALAR_TYPES:
                return _product(op, args, kwargs)
    return _sum(op, args, kwargs)


def _matrix(op: int, args: Any, kwargs: dict[str, Any]) -> int:
    """Of ``(*, m, k)`` and ``(k, n)``, or of ``(*, k)`` and ``(n, k)``: the operands and
    ``* m n``."""
    if len(args) < 2 or not EXACT_TENSOR_TYPES.issuperset(map(type, args[:2])):
        return _product(op, args, kwargs)
    one, other = args[0], args[1]
    middle = one.shape[-1] if one.ndim else 1
    if not middle or min(one.ndim, other.ndim) > 2:
        return _product(op, args, kwargs)
    ones, others = _numel(one), _numel(other)
    return (ones // middle + 1) * (others // middle + 1) + _sum(op, args, kwargs)


def _product(op: int, args: Any, kwargs: dict[str, Any]) -> int:
    result = 1
    flags = FLAGS[op]
    crossing = bool(flags & CROSSING)
    counted = not flags & BOUNDED
    for operand in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(operand, torch.Tensor):
            result *= _size_of(operand, counted)
        elif counted and type(operand) in (int, float):
            result *= whole(operand) ** 3  # one number may stand for every dimension
        elif isinstance(operand, (list, tuple)):
            result *= _size_of_items(operand, crossing, counted)
    return result**2 if flags & SQUARING else result


_CLOSER: Final[dict[int, Bound]] = {
    **dict.fromkeys(ops_with(ELEMENTWISE), _sum_if_alike),
    **dict.fromkeys(ops_with(MATRIX_PRODUCT), _matrix),
    **dict.fromkeys(ops_with(SUMMED), _sum),
}


def _size_of(value: Any, counted: bool) -> int:
    inside = innermost(value)
    if inside is None:
        return 1
    elements = _numel(inside)
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
