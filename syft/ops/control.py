"""Control flow: the ops behind branches and loops, which depend on the value of a tensor or number.

They are entries of the op table, so this module imports nothing that knows the table.  Their
operands include programs that are lowered already: objects with ``run(values)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, Protocol

import torch

from syft.exceptions import ProgramError


class Runnable(Protocol):
    """A program that is ready to run."""

    @property
    def steps(self) -> int:
        """The largest number of actions of one run, if each loop in it runs its body once."""

    def run(self, values: Sequence[Any]) -> Any:
        """Run it on its inputs."""


class ControlFlowRecorder(Protocol):
    """Records branches and loops of the function that is being recorded."""

    def cond(self, pred: Any, then: Branch, otherwise: Branch, args: Sequence[Any]) -> Any:
        """Record both branches, and return the values of the one that ``pred`` selects now."""

    def while_loop(self, test: Branch, body: Branch, args: Sequence[Any]) -> tuple[Any, ...]:
        """Record a loop, and return the values after its last iteration."""

    def refuse(self, what: str, instead: str) -> NoReturn:
        """Raise :class:`~syft.exceptions.CannotRecord`, even if the function catches it."""

    def paused(self) -> AbstractContextManager[None]:
        """A context in which nothing is recorded."""


Branch = Callable[..., Any]

RECORDING: ContextVar[ControlFlowRecorder | None] = ContextVar("recording", default=None)
"""The recorder of the active recording, if there is one; a program with branches may run in it."""


class StepBudget:
    """The actions left for the iterations of all loops of one run, nested loops included."""

    __slots__ = ("most", "left")

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def spend(self, steps: int) -> None:
        """Subtract the actions of an iteration; raises :class:`~syft.exceptions.ProgramError` if
        too few are left.

        >>> StepBudget(10).spend(11)
        Traceback (most recent call last):
        ...
        syft.exceptions.ProgramError: its loops took more than 10 steps, which is `max_steps` of \
the limits here: loop less often, or raise the limit
        """
        self.left -= steps
        if self.left < 0:
            raise ProgramError(
                f"its loops took more than {self.most} steps, which is `max_steps` of the limits "
                "here: loop less often, or raise the limit"
            )


_BUDGET: ContextVar[StepBudget | None] = ContextVar("budget", default=None)


@contextmanager
def limited(steps: int) -> Iterator[None]:
    """A context in which the loops of programs raise after ``steps`` actions in total.

    A worker runs the programs of others in it.  A program that runs locally has no limit.

    >>> from syft.program.program import Program, Slot
    >>> from syft.program.lowered import Lowered
    >>> test, body = Lowered(Program(1, (), True)), Lowered(Program(1, (), (Slot(0),)))
    >>> with limited(1000):
    ...     while_loop(test, body, (2,))
    Traceback (most recent call last):
    ...
    syft.exceptions.ProgramError: its loops took more than 1000 steps, which is `max_steps` of \
the limits here: loop less often, or raise the limit
    """
    token = _BUDGET.set(StepBudget(steps))
    try:
        yield
    finally:
        _BUDGET.reset(token)


def check_decides(value: Any) -> None:
    """Refuse anything to decide by but a tensor or a number: of a container, its length would.

    >>> check_decides((1, 2))
    Traceback (most recent call last):
    ...
    syft.exceptions.ProgramError: it was to decide by a tuple: decide by a number, a bool or a \
tensor
    """
    if not isinstance(value, (torch.Tensor, int, float)):
        what = f"it was to decide by a {type(value).__name__}"
        raise ProgramError(f"{what}: decide by a number, a bool or a tensor")


def cond(pred: Any, then: Runnable, otherwise: Runnable, operands: Sequence[Any]) -> Any:
    """Run one of two programs on the operands; ``pred`` is a number, or a tensor of one element.

    >>> from syft.program.program import Program, Slot
    >>> from syft.program.lowered import Lowered
    >>> first, second = (Lowered(Program(2, (), Slot(index))) for index in (0, 1))
    >>> cond(torch.tensor([False]), first, second, ["a", "b"])
    'b'
    """
    recording = RECORDING.get()
    if recording is not None:
        return recording.cond(pred, _as_function(then), _as_function(otherwise), operands)
    check_decides(pred)
    return (then if pred else otherwise).run(operands)


def while_loop(test: Runnable, body: Runnable, operands: Sequence[Any]) -> Any:
    """Run ``body`` on the operands, then on its own results, while ``test`` of them is true.

    Raises :class:`~syft.exceptions.ProgramError` inside :func:`limited` if it takes too long.

    >>> from syft.program.program import Program, Slot
    >>> from syft.program.lowered import Lowered
    >>> test, body = Lowered(Program(2, (), Slot(0))), Lowered(Program(2, (), (Slot(1), 0)))
    >>> while_loop(test, body, (2, 1))
    (0, 0)
    """
    recording = RECORDING.get()
    if recording is not None:
        return recording.while_loop(_as_function(test), _as_function(body), operands)
    values = tuple(operands)
    budget = _BUDGET.get()
    steps = 1 + test.steps + body.steps
    while _is_true(test.run(values)):
        if budget is not None:
            budget.spend(steps)
        values = tuple(body.run(values))
    return values


def _is_true(answer: Any) -> bool:
    check_decides(answer)
    return bool(answer)


def ensure_grad(tensor: torch.Tensor) -> None:
    """Give a leaf a gradient of zeros if it has none.

    >>> x = torch.ones(2, requires_grad=True)
    >>> ensure_grad(x)
    >>> x.grad
    tensor([0., 0.])
    """
    if tensor.grad is None:
        tensor.grad = torch.zeros_like(tensor)


NO_GRADIENT, LIKE_LEAF, OTHER_KIND = range(3)
"""What kind of gradient a leaf has: none, one of its own dtype, shape and layout, or another."""


def gradient_kind(tensor: torch.Tensor) -> int:
    """What kind of gradient a leaf has.

    >>> x = torch.ones(2, requires_grad=True)
    >>> gradient_kind(x) == NO_GRADIENT
    True
    >>> x.sum().backward()
    >>> gradient_kind(x) == LIKE_LEAF
    True
    """
    gradient = tensor.grad
    if gradient is None:
        return NO_GRADIENT
    same = gradient.dtype is tensor.dtype and gradient.layout is tensor.layout
    if same and gradient.shape == tensor.shape and gradient.device == tensor.device:
        return LIKE_LEAF
    return OTHER_KIND


def _as_function(program: Runnable) -> Branch:
    """A program as a function of its inputs."""
    return lambda *values: program.run(values)
