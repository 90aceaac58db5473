"""The sizes of what a program makes, looked at when it runs on operands of these sizes first.

A program runs as a loop that looks at nothing.  The sizes of what it makes follow from the sizes of
its inputs and from the numbers among them.  So a worker runs it action by action the first time,
with the limits of its caller before each action, and remembers the sizes of the inputs.  Later runs
on such inputs are the loop.  A program of which the sizes depend on values, that has branches, or
that may give memory to a tensor that is there, is looked at in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from syft.ops.nested import EXACT_TENSOR_TYPES, leaves
from syft.ops.table import BOUNDED, BY_NAME, FLAGS, PROGRAM_FUNCTIONS, SHAPE_FROM_VALUES, may_alter
from syft.program.lowered import Call, Lowered
from syft.program.program import Action, slots_in
from syft.workers.core.charges import Charges
from syft.workers.execution.size_rules import BY_VALUES, is_size
from syft.workers.labels.walk import innermost

_GETITEM: Final = BY_NAME["torch.Tensor.__getitem__"]
_MOST_KNOWN: Final = 256
_LARGE: Final = 1 << 12

Run = Callable[[Any], Any]


class SizedProgram:
    """A program that a caller runs within its limits.

    ``run_with`` and ``run`` are those of :class:`~syft.program.lowered.Lowered`.  They raise
    :class:`~syft.exceptions.LimitExceeded` before an action that would use too much.

    >>> from syft.program.program import Program, Slot
    >>> from syft.workers.core.peer_limits import Account, PeerLimits
    >>> double = Action(BY_NAME["torch.Tensor.repeat"], (Slot(0), 10**6), {}, Slot(1))
    >>> ann = Account()
    >>> charges = Charges("bob", {}, PeerLimits(elements=1000), lambda: ann)
    >>> SizedProgram(Lowered(Program(1, (double,), Slot(1))), charges).run([torch.ones(2)])
    Traceback (most recent call last):
    ...
    syft.exceptions.LimitExceeded: Over a limit of worker 'bob': peer_limits.elements is 1000, ...
    """

    __slots__ = ("_program", "_charges", "_steady")

    def __init__(self, program: Lowered, charges: Charges) -> None:
        self._program = program
        self._charges = charges
        self._steady = True

    def run(self, values: Sequence[Any]) -> Any:
        """Run the program on its inputs and state, in that order, and remember their sizes.

        On inputs of sizes that it has (:func:`has_known_sizes`) it may run as it is.
        """
        program = self._program
        signature = _signature(values)
        result = self.run_with(values, _plainly)
        if self._steady and _is_steady(program):
            if len(program.known_sizes) >= _MOST_KNOWN:
                program.known_sizes.clear()
            program.known_sizes.add(signature)
        return result

    def run_with(self, values: Sequence[Any], call: Call) -> Any:
        """Run the program with ``call`` for each action that the limits allow.

        Memory that an action gives to a tensor that is there counts from the next action on.
        """
        charges, grown = self._charges, 0

        def look(
            action: Action, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            nonlocal grown
            op = action.op
            if op in PROGRAM_FUNCTIONS:
                return call(action, function, args, kwargs)
            charges.check(op, function, args, kwargs)
            if not FLAGS[op] & BOUNDED and any(map(_may_be_size, leaves((args, kwargs)))):
                self._steady = False
            if not may_alter(op, kwargs):
                return call(action, function, args, kwargs)
            before = charges.bytes_of((args, kwargs))
            result = call(action, function, args, kwargs)
            more = max(0, charges.bytes_of((args, kwargs)) - before)
            charges.hold(more)
            grown += more
            return result

        try:
            return self._program.run_with(values, look)
        finally:  # the objects that have it are counted anew
            charges.hold(-grown)


def has_known_sizes(program: Lowered, values: Sequence[Any]) -> bool:
    """Whether a program has run within limits on inputs of these sizes.

    >>> from syft.program.program import Program, Slot
    >>> has_known_sizes(Lowered(Program(1, (), Slot(0))), [torch.ones(2)])
    False
    """
    return _signature(values) in program.known_sizes


def _signature(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        [
            (value.shape, value.dtype) if type(value) in EXACT_TENSOR_TYPES else _size_of(value)
            for value in values
        ]
    )


def _plainly(action: Action, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


def _may_be_size(leaf: Any) -> bool:
    inside = innermost(leaf)
    return inside is not None and is_size(inside)


def _size_of(value: Any) -> Any:
    """What of an input the sizes of results depend on."""
    if type(value) is float:
        return None if -_LARGE < value < _LARGE else value
    if isinstance(value, torch.Tensor):
        inside = innermost(value)
        return None if inside is None else (inside.shape, inside.dtype)
    return value if type(value) is int else type(value)


def _is_steady(program: Lowered) -> bool:
    """Whether the sizes of what a program makes follow from those of its inputs."""
    return not program.branches and not any(map(_by_value, program.program.actions))


def _by_value(action: Action) -> bool:
    if action.op == _GETITEM:
        return any(True for _ in slots_in(action.args[1:]))
    if may_alter(action.op, action.kwargs):  # what it adds to its inputs is kept
        return True
    return bool(FLAGS[action.op] & SHAPE_FROM_VALUES) or action.op in BY_VALUES
