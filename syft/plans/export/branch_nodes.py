"""``sy.cond`` and ``sy.while_loop`` in a torch.fx graph: as torch's own, if these can do it.

``torch.cond`` and ``torch.while_loop`` take tensors and return a tuple of new tensors.  So
constants among the operands are written into the branches instead of being passed to them.  What
torch cannot do is refused here, with the name of the action, before torch raises an error in its
own terms.

The operators beneath the two functions are called, as in the graphs that torch makes itself: the
functions would compile the branches anew for each shape.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from syft.exceptions import UnsupportedOperation
from syft.ops.table import FLAGS
from syft.program.program import Action, Program, Slot, slots_in
from syft.ops.nested import leaves
from syft.ops.calls import mutated_argument


def every_action(program: Program) -> Iterator[tuple[int, Action]]:
    """Yield each action of a program and of the branches in it, with its place in its program.

    >>> from syft.ops.table import BY_NAME, COND
    >>> inner = Program(1, (Action(BY_NAME["torch.abs"], (Slot(0),), {}, Slot(1)),), (Slot(1),))
    >>> cond = Action(COND, (Slot(0), inner, inner, (Slot(0),)), {}, (Slot(1),))
    >>> [action.name for _, action in every_action(Program(1, (cond,), Slot(1)))]
    ['syft.ops.control.cond', 'torch.abs', 'torch.abs']
    """
    for index, action in enumerate(program.actions):
        yield index, action
        for operand in action.args:
            if isinstance(operand, Program):
                yield from every_action(operand)


class Branching(NamedTuple):
    """A condition or a loop as torch takes it."""

    function: Callable[..., Any]
    programs: tuple[Program, ...]
    names: tuple[str, str]
    operands: tuple[Slot | int, ...]
    """The operands that are passed, in order."""
    passed: tuple[int, ...]
    """The positions of these among the operands of the action."""
    constants: dict[int, Any]
    """The other operands of the action by their positions, written into the branches."""
    results: tuple[Any, ...]
    """For each value that comes back its slot, or None."""
    constant_results: dict[Slot, Any]
    """Constants that a loop only passes on, by the slots of their results."""


def condition(index: int, action: Action, numbers: Collection[int]) -> Branching:
    """Take apart a call of ``sy.cond``; ``numbers`` are the slots known to hold Python numbers.

    Raises :class:`~syft.exceptions.UnsupportedOperation` where ``torch.cond`` cannot do it.

    >>> from syft.ops.table import COND
    >>> same = Program(inputs=2, actions=(), outputs=Slot(0))
    >>> action = Action(COND, (Slot(0), same, same, (Slot(1), 2.5)), {}, Slot(2))
    >>> branching = condition(0, action, numbers=())
    >>> branching.operands, branching.constants
    ((Slot(1),), {1: 2.5})
    """
    _, then, otherwise, operands = action.args
    if any(type(operand) is Slot and operand.index in numbers for operand in operands):
        raise _unsupported(index, action, "a number as an operand", "give it as a tensor")
    _check_writes(index, action, (then, otherwise))
    results = tuple(_results(action.out, then.outputs))
    branches = _with_flat_outputs(then), _with_flat_outputs(otherwise)
    if {len(program.outputs) for program in branches} != {len(results)}:
        raise _unsupported(index, action, "results of two structures", "return the same from both")
    constants = {place: value for place, value in enumerate(operands) if type(value) is not Slot}
    passed = _others(operands, constants)
    return Branching(
        torch.ops.higher_order.cond,
        branches,
        (f"then_{index}", f"otherwise_{index}"),
        _at(operands, passed),
        passed,
        constants,
        results,
        {},
    )


def loop(index: int, action: Action) -> Branching:
    """Take apart a call of ``sy.while_loop``.

    A constant that every iteration passes on unchanged is not carried from one to the next.
    Raises :class:`~syft.exceptions.UnsupportedOperation` where ``torch.while_loop`` cannot do it.

    >>> from syft.ops.table import WHILE_LOOP
    >>> test = Program(inputs=2, actions=(), outputs=Slot(0))
    >>> body = Program(inputs=2, actions=(), outputs=(Slot(0), Slot(1)))
    >>> action = Action(WHILE_LOOP, (test, body, (Slot(0), 2.5)), {}, (Slot(1), None))
    >>> branching = loop(0, action)
    >>> branching.operands, branching.constants, branching.programs[1].outputs
    ((Slot(0),), {1: 2.5}, (Slot(0),))
    """
    test, body, operands = action.args
    _check_writes(index, action, (test, body))
    constants = {
        place: value
        for place, value in enumerate(operands)
        if type(value) is not Slot and body.outputs[place] == Slot(place)
    }
    carried = _others(operands, constants)
    for value in _at(operands, carried):
        if type(value) not in (Slot, int):
            what = f"a {type(value).__name__} among its values"
            raise _unsupported(index, action, what, "give it as a tensor")
    out = action.out or (None,) * len(operands)
    return Branching(
        torch.ops.higher_order.while_loop,
        (test, _returning(body, _at(body.outputs, carried))),
        (f"test_{index}", f"body_{index}"),
        _at(operands, carried),
        carried,
        constants,
        _at(out, carried),
        {slot: value for place, value in constants.items() for slot in slots_in(out[place])},
    )


def _others(values: Sequence[Any], places: Collection[int]) -> tuple[int, ...]:
    """All places of the values but these."""
    return tuple(place for place in range(len(values)) if place not in places)


def _at(values: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    return tuple(values[place] for place in places)


def _results(out: Any, outputs: Any) -> Iterator[Any]:
    """For each value inside the outputs of a branch, its slot among the results, or None."""
    if isinstance(outputs, (tuple, list)):
        for place, item in enumerate(outputs):
            yield from _results(out[place] if isinstance(out, tuple) else None, item)
    else:
        yield out


def _with_flat_outputs(program: Program) -> Program:
    return _returning(program, tuple(leaves(program.outputs)))


def _returning(program: Program, outputs: Any) -> Program:
    return Program(program.inputs, program.actions, outputs, lines=program.lines)


def _check_writes(index: int, action: Action, programs: tuple[Program, ...]) -> None:
    for program in programs:
        for name in _writes(program):
            what = f"a branch that writes to an operand ({name})"
            raise _unsupported(index, action, what, "return the new value instead")


def _writes(program: Program) -> Iterator[str]:
    """Name the operations that write to an input of a branch, or of a branch inside it."""
    for action in program.actions:
        target = mutated_argument(FLAGS[action.op], action.args, action.kwargs)
        if any(slot.index < program.inputs for slot in slots_in(target)):
            yield action.name
        for operand in action.args:
            if isinstance(operand, Program):
                yield from _writes(operand)


def _unsupported(index: int, action: Action, what: str, instead: str) -> UnsupportedOperation:
    return UnsupportedOperation(f"action {index}, {action.name} with {what}", "Export", instead)
