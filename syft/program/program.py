"""A Program: a computation as data, a flat list of frozen actions over numbered slots.

A plan, a group of messages, a branch of ``sy.cond`` and what the parties of shared tensors compute
are all programs.  Because a program is data, a receiver can check it before it runs
(:mod:`syft.program.lint`), number it, and send it again as that number.

The class of a program says what the numbers of its actions mean, its *vocabulary*: torch's
operations here, instructions on shares in :mod:`syft.crypto.programs.share_program`.  Whatever does
not depend on that (slots, checks of them, codec, flow, numbering) is one text for all.

Slots are numbered in the order in which they get their value: the inputs first, then the state,
then the constants, then the results of the actions.  A slot gets its value once; an in-place action
may still write to the tensor in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch

from syft.exceptions import ProgramError
from syft.ops.nested import SCALAR_TYPES, leaves, replace
from syft.ops.table import NAMES


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """A numbered place for one value: a tensor, or a Python number.

    >>> Slot(3)
    Slot(3)
    """

    index: int

    def __repr__(self) -> str:
        return f"Slot({self.index})"


_SLOTS = tuple(map(Slot, range(1024)))
"""The first slots, made once: a program has thousands of them, and the same object compares
faster."""


def slot_at(index: int) -> Slot:
    """The slot of a number.

    >>> slot_at(3) is slot_at(3)
    True
    """
    return _SLOTS[index] if index < len(_SLOTS) else Slot(index)


@dataclass(frozen=True, slots=True)
class Mode:
    """The torch modes an action was recorded under, where they differ from its surroundings.

    ``autocast`` holds pairs ``(device type, dtype)``; the dtype is None where autocast was off.

    >>> Mode(grad=False)
    Mode(grad=False, inference=False, autocast=())
    """

    grad: bool
    inference: bool = False
    autocast: tuple[tuple[str, torch.dtype | None], ...] = ()


@dataclass(frozen=True, slots=True)
class RoleMark:
    """What a recording of several roles knows of an action: which role takes it.

    ``role`` is the rank of the role that has its results, None if that is the role that has
    ``source`` of the crossing ``back``: a gradient goes back to where the value came from.
    ``crosses`` says that the action is a copy on its way to another role.

    >>> RoleMark(2, crosses=True)
    RoleMark(role=2, crosses=True, back=None)
    """

    role: int | None
    crosses: bool = False
    back: int | None = None
    """The number of a crossing, of those that the recording made in their order."""


@dataclass(frozen=True, slots=True)
class Action:
    """One operation: a number of the op table, its operands, and where its results go.

    Operands are Python values in which a :class:`Slot` stands for a value (inside lists, tuples,
    dicts and slices too), and a :class:`Program` for a branch or a body.  ``out`` is a slot, a
    tuple of such patterns for an operation that returns several values, or None.  None means that
    nothing reads the result or that it has a slot already (an in-place operation returns its first
    argument).  ``mode`` is None where the action runs in the modes of its caller.

    >>> from syft.ops.table import BY_NAME
    >>> Action(BY_NAME["torch.add"], (Slot(0), 1), {}, Slot(1)).name
    'torch.add'
    """

    op: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    mode: Mode | None = None

    @property
    def name(self) -> str:
        """The operation's name in the op table."""
        return NAMES[self.op] if 0 <= self.op < len(NAMES) else f"op {self.op}"


@dataclass(frozen=True, slots=True)
class Program:
    """A computation as data: ``actions`` over slots.

    ``inputs`` and ``state`` count the slots that are filled before it runs, ``constants`` are
    tensors of its own, ``outputs`` is the result: any nesting of slots and plain values.  ``lines``
    says for each action where in the source it was recorded, and ``marks`` what is known of the
    role that takes it (none if the recording has no roles); they never travel.  ``facts`` is what
    was found out about the program whatever the elements of its constants are, under a name of
    whoever did: programs share it that differ in those alone.

    >>> from syft.ops.table import BY_NAME
    >>> double = Action(BY_NAME["torch.add"], (Slot(0), Slot(0)), {}, Slot(1))
    >>> program = Program(inputs=1, actions=(double,), outputs=Slot(1))
    >>> program.given
    1
    """

    inputs: int
    actions: tuple[Action, ...]
    outputs: Any
    state: int = 0
    constants: tuple[torch.Tensor, ...] = ()
    lines: tuple[str, ...] = field(default=(), compare=False, repr=False)
    facts: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    marks: tuple[RoleMark | None, ...] = field(default=(), compare=False, repr=False)

    def __eq__(self, other: object) -> bool:
        """Whether two programs are the same, constants by kind and elements."""
        if not isinstance(other, Program) or type(other) is not type(self):
            return NotImplemented
        mine = (self.inputs, self.state, self.actions, self.outputs, len(self.constants))
        theirs = (other.inputs, other.state, other.actions, other.outputs, len(other.constants))
        return mine == theirs and all(map(_same_constant, self.constants, other.constants))

    @property
    def given(self) -> int:
        """How many slots have a value before the first action: inputs, state and constants."""
        return self.inputs + self.state + len(self.constants)

    def on(self, constants: Sequence[torch.Tensor]) -> Self:
        """The same program on other constants of the same kinds."""
        known = (self.inputs, self.actions, self.outputs, self.state)
        return type(self)(*known, tuple(constants), self.lines, self.facts, self.marks)


def _same_constant(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other:
        return True
    if (one.dtype, one.shape, one.layout) != (other.dtype, other.shape, other.layout):
        return False
    return torch.equal(one.to_dense(), other.to_dense())


# ------------------------------------------------------------------ slots inside nested values


def slots_in(operand: Any) -> Iterator[Slot]:
    """Yield every slot inside an operand, a pattern of results or a whole set of them.

    >>> list(slots_in((Slot(0), [1, Slot(2)], {"a": slice(Slot(3), None)})))
    [Slot(0), Slot(2), Slot(3)]
    """
    for leaf in leaves(operand):
        if type(leaf) is Slot:
            yield leaf


def fill_slots(pattern: Any, values: Mapping[int, Any]) -> Any:
    """Rebuild a nested operand with the values of its slots.

    >>> fill_slots([Slot(0), {"a": Slot(1)}], {0: "x", 1: "y"})
    ['x', {'a': 'y'}]
    """
    return replace(pattern, lambda leaf: values[leaf.index] if type(leaf) is Slot else leaf)


def numbered(
    given: Iterable[int], actions: Iterable[Any], values: Mapping[int, Any]
) -> tuple[tuple[Action, ...], dict[int, Any]]:
    """The actions with their slots numbered as a program has them, and what each slot became.

    They may be held ones (:mod:`syft.program.held_actions`), whose slots have any numbers.
    ``given`` are the slots that have a value before, in the order of the program; the results
    follow.  A slot in ``values`` is replaced by that value.

    >>> from syft.ops.table import BY_NAME
    >>> add = Action(BY_NAME["torch.add"], (Slot(-1), Slot(-2)), {}, Slot(70))
    >>> actions, moved = numbered([-1, -2], [add], {-2: 0.5})
    >>> actions[0].args, actions[0].out, moved[70]
    ((Slot(0), 0.5), Slot(1), Slot(1))
    """
    moved, actions = dict(values), tuple(actions)
    before = len(moved)
    for index in given:
        moved.setdefault(index, slot_at(len(moved) - before))
    for one in actions:
        for slot in (one.out,) if type(one.out) is Slot else slots_in(one.out):
            moved.setdefault(slot.index, slot_at(len(moved) - before))

    def operand(one: Any) -> Any:
        if type(one) is Slot:
            return moved[one.index]
        return one if type(one) in SCALAR_TYPES else fill_slots(one, moved)

    made = [
        Action(
            one.op,
            tuple([operand(arg) for arg in one.args]),
            {name: operand(arg) for name, arg in one.kwargs.items()} if one.kwargs else {},
            operand(one.out),
            one.mode,
        )
        for one in actions
    ]
    return tuple(made), moved


def without_inputs(program: Program, values: Mapping[int, Any]) -> Program:
    """The program without some of its inputs, whose values stand in their places instead.

    >>> from syft.ops.table import BY_NAME
    >>> scale = Action(BY_NAME["torch.mul"], (Slot(0), Slot(1)), {}, Slot(2))
    >>> halve = without_inputs(Program(2, (scale,), Slot(2)), {1: 0.5})
    >>> halve.inputs, halve.actions[0].args, halve.outputs
    (1, (Slot(0), 0.5), Slot(1))
    """
    if not values:
        return program
    actions, moved = numbered(range(program.given), program.actions, values)
    return Program(
        program.inputs - len(values),
        actions,
        fill_slots(program.outputs, moved),
        program.state,
        program.constants,
        program.lines,
        marks=program.marks,
    )


def result_items(value: Any, count: int) -> Sequence[Any]:
    """The values that an operation returned, which must be as many as were recorded.

    >>> result_items((1, 2), 3)
    Traceback (most recent call last):
    ...
    syft.exceptions.ProgramError: it gave 2 results where 3 were recorded
    """
    if not isinstance(value, (tuple, list)):
        raise ProgramError(f"it gave one result where {count} were recorded")
    if len(value) != count:
        raise ProgramError(f"it gave {len(value)} results where {count} were recorded")
    return value


def slot_values(pattern: Any, value: Any) -> Iterator[tuple[int, Any]]:
    """Yield each slot number in a pattern of results with the value that it gets.

    >>> list(slot_values((Slot(4), None), ("a", "b")))
    [(4, 'a')]
    """
    if type(pattern) is Slot:
        yield pattern.index, value
    elif pattern is not None:
        for part, item in zip(pattern, result_items(value, len(pattern)), strict=True):
            yield from slot_values(part, item)
