"""The operands of a common command: scalars, and objects that are there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from syft.codes import TypeCode
from syft.ops.nested import SCALAR_TYPES
from syft.ops.returns import MOST
from syft.workers.labels.memory_labels import full_guard_of
from syft.workers.wire.references import REF, REFS

_LIST = int(TypeCode.LIST)
_FLOATS = frozenset((float,))


def present(objects: dict[int, Any], operands: Iterable[Any]) -> list[Any] | None:
    """The values, if all are scalars or references to objects in the store; otherwise None."""
    values: list[Any] = []
    try:
        for operand in operands:
            if type(operand) is list:
                if operand[0] == REF:
                    _, id = operand
                    values.append(objects[id])
                else:
                    values.append(_present_list(objects, operand))
            elif type(operand) in SCALAR_TYPES:
                values.append(operand)
            else:
                return None
    except (KeyError, IndexError, ValueError, TypeError):
        return None  # the general path raises a precise error
    return values


def _present_list(objects: dict[int, Any], operand: list[Any]) -> list[Any]:
    """The same for an operand that is a list of references alone, or of floats; raises ValueError
    for any other."""
    code = operand[0]
    if len(operand) <= MOST:
        if code == REFS:
            return [objects[id] for id in operand[1:]]
        if code == _LIST and _FLOATS.issuperset(map(type, operand[1:])):
            return operand[1:]
    raise ValueError


def public_tensor(objects: dict[int, Any], operand: Any) -> torch.Tensor | None:
    """The one tensor that an operand refers to, if it is there and everybody may read it."""
    values = present(objects, (operand,))
    if values is None or type(values[0]) is not torch.Tensor:
        return None
    return None if full_guard_of(values[0]) is not None else values[0]


def named_values(objects: dict[int, Any], keywords: dict[str, Any]) -> dict[str, Any] | None:
    """The same for keywords."""
    values = present(objects, keywords.values())
    return None if values is None else dict(zip(keywords, values, strict=True))
