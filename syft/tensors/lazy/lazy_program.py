"""The vocabulary of lazy tensors: programs whose actions are overloads of aten.

The numbers of the actions are those of this process, given when an overload is met for the first
time.  Such a program is never sent and has no codec: what a worker checks of a program stands on
torch's public functions, and an overload would be a way around that.  A lazy tensor that is sent is
computed first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch

from syft.exceptions import MalformedMessage
from syft.ops.nested import Function
from syft.program.lint import SCOPES, Scope
from syft.program.program import Action, Program

OVERLOADS: Final[list[Any]] = []
"""The overload of each number; where strides are put right, the overload and the strides."""
CALLS: Final[list[Function]] = []
"""What the loop calls for each number."""
_NUMBERS: Final[dict[Any, int]] = {}


def number_of_overload(overload: Any) -> int:
    """The number of an overload in this process.

    >>> OVERLOADS[number_of_overload(torch.ops.aten.add.Tensor)]
    <OpOverload(op='aten.add', overload='Tensor')>
    """
    number = _NUMBERS.get(overload)
    if number is None:
        number = _NUMBERS[overload] = _enter(overload, overload._op)
    return number


def _enter(overload: Any, call: Function) -> int:
    CALLS.append(call)
    OVERLOADS.append(overload)
    return len(CALLS) - 1


def number_restrided(overload: Any, shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """The number of an overload whose one result is copied to other strides, because torch's
    prediction said these."""
    key = overload, shape, stride
    if key not in _NUMBERS:
        call = overload._op

        def restrided(*args: Any, **kwargs: Any) -> torch.Tensor:
            result = call(*args, **kwargs)
            made = torch.empty_strided(shape, stride, dtype=result.dtype, device=result.device)
            return made.copy_(result)

        _NUMBERS[key] = _enter(overload, restrided)
    return _NUMBERS[key]


@dataclass(frozen=True, slots=True)
class LazyAction(Action):
    """One recorded operation of lazy tensors: the number of an overload.

    >>> LazyAction(number_of_overload(torch.ops.aten.neg.default), (), {}, None).name
    'aten.neg.default'
    """

    @property
    def name(self) -> str:
        """The overload's name."""
        return str(OVERLOADS[self.op]) if 0 <= self.op < len(OVERLOADS) else f"overload {self.op}"


@dataclass(frozen=True, slots=True, eq=False)
class LazyProgram(Program):
    """What lazy tensors have recorded, as it is run: inputs are tensors first, floats after them.

    ``tensors`` counts the inputs that are tensors.  ``overload_of(action)`` says what an action is,
    for backends (``sy.lazy(backend=...)``).

    >>> from syft.program.program import Slot
    >>> neg = LazyAction(number_of_overload(torch.ops.aten.neg.default), (Slot(0),), {}, Slot(1))
    >>> LazyProgram(1, (neg,), (Slot(1),)).overload_of(neg)
    <OpOverload(op='aten.neg', overload='default')>
    """

    @property
    def tensors(self) -> int:
        """How many of the inputs are tensors."""
        return int(self.facts.get("tensors", self.inputs))

    def overload_of(self, action: Action) -> Any:
        """The overload of aten that an action of this program is."""
        known = OVERLOADS[action.op]
        return known[0] if type(known) is tuple else known


class _LazyScope(Scope):
    """Checks actions that are overloads of aten."""

    __slots__ = ()

    @staticmethod
    def name_of(op: int) -> str:
        """The name of an overload."""
        return LazyAction(op, (), {}, None).name

    def check(self, action: Action) -> None:
        """Check one action, and count its results."""
        if not 0 <= action.op < len(CALLS):
            raise MalformedMessage("$.op", "the number of an overload", str(action.op))
        self.operands(enumerate(action.args), ".args")
        self.operands(action.kwargs.items(), ".kwargs")
        self.result(action.out, ".out")


SCOPES[LazyProgram] = _LazyScope
