"""Properties of the inputs that a function asked for while it was recorded: they are fixed.

``torch.zeros(3, dtype=x.dtype)`` records the dtype that ``x`` had.  Sizes are traced and free to
change; a dtype or a number of dimensions is a Python value that cannot be traced.  So a plan keeps
the value of each such property for its inputs, and a call with inputs that have another value is
refused: here, and at the worker to which the plan was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from syft.exceptions import MalformedMessage, WrongArguments
from syft.serde.expect import expect_type

Fixed = tuple[tuple[str, tuple[Any, ...]], ...]
"""Names of properties, each with its value for every input (None for a number)."""

PROPERTIES: dict[str, Callable[[torch.Tensor], Any]] = {
    "dtype": lambda tensor: str(tensor.dtype),
    "device": lambda tensor: str(tensor.device),
    "layout": lambda tensor: str(tensor.layout),
    "dim": torch.Tensor.dim,
    "requires_grad": lambda tensor: tensor.requires_grad,
    "is_contiguous": torch.Tensor.is_contiguous,
}
"""How to read each property, by the names in :mod:`syft.program.recording.properties`."""


def fixed_in(names: Iterable[str], inputs: Sequence[Any]) -> Fixed:
    """The values of these properties for the inputs.

    >>> fixed_in(["dtype"], [torch.ones(2), 3])
    (('dtype', ('torch.float32', None)),)
    """
    return tuple((name, tuple(_values(name, inputs))) for name in sorted(names))


def check_fixed(plan: str, fixed: Fixed, inputs: Sequence[Any], names: Sequence[str]) -> None:
    """Refuse inputs whose properties have other values; ``names`` are the names of the inputs.

    Raises :class:`~syft.exceptions.WrongArguments`.

    >>> fixed = fixed_in(["dim"], [torch.ones(2)])
    >>> check_fixed("f", fixed, [torch.ones(5)], ["x"])
    >>> check_fixed("f", fixed, [torch.ones(2, 2)], ["x"])
    Traceback (most recent call last):
    ...
    syft.exceptions.WrongArguments: Plan 'f' takes dim 1 for x (it asks for the dim, and was built \
with that: build it again for another), and got dim 2.
    """
    for name, recorded in fixed:
        now = list(_values(name, inputs))
        for input_name, before, value in zip(names, recorded, now, strict=True):
            if before != value:
                why = f"it asks for the {name}, and was built with that: build it again for another"
                expected = f"{name} {before} for {input_name} ({why})"
                raise WrongArguments(plan, expected, f"{name} {value}")


def _values(name: str, inputs: Sequence[Any]) -> Iterable[Any]:
    property_of = PROPERTIES[name]
    return (property_of(value) if isinstance(value, torch.Tensor) else None for value in inputs)


def expect_fixed(value: Any, inputs: int, where: str) -> Fixed:
    """Check the fixed properties that arrived for a number of inputs; returns them.

    Raises :class:`~syft.exceptions.MalformedMessage`.

    >>> expect_fixed((("dim", (1,)),), 1, ".fixed")
    (('dim', (1,)),)
    """
    for index, pair in enumerate(expect_type(value, tuple, "a tuple", where)):
        here = f"{where}[{index}]"
        if not isinstance(pair, tuple) or len(pair) != 2 or type(pair[0]) is not str:
            raise MalformedMessage(f"${here}", "a name and values", "something else")
        if pair[0] not in PROPERTIES:
            raise MalformedMessage(f"${here}", "the name of a property", "another text")
        values = expect_type(pair[1], tuple, "a tuple", here)
        if len(values) != inputs:
            raise MalformedMessage(f"${here}", f"{inputs} values", str(len(values)))
        for each in values:
            expect_type(each, (str, bool, int, type(None)), "a plain value", here)
    fixed: Fixed = value
    return fixed
