"""What a command or a program does to the objects it names, from the flags of its operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from syft.ops.calls import STATISTICS, argument, has_parameter, statistics_written
from syft.ops.nested import leaves
from syft.ops.table import (
    ADDING_GRADIENTS,
    COND,
    FLAGS,
    FRESH,
    GRADIENT,
    INPLACE,
    INPLACE_OPTION,
    JOINS,
    MUTATES_OTHERS,
    ONLY_OBJECT,
    READS_GRADIENT,
    SETS_GRADIENT,
    WHILE_LOOP,
    may_alter,
    ops_with,
)
from syft.program.program import Action, Program, slots_in
from syft.workers.core.access import Access
from syft.workers.core.peer import EVERYTHING, GRADIENTS
from syft.workers.wire.messages import GRAD_MODE, Command
from syft.workers.wire.references import ids_in

_GRADIENT_READERS: Final = ops_with(READS_GRADIENT)
_GRADIENT_SETTERS: Final = ops_with(SETS_GRADIENT)
_JOINING: Final = ops_with(JOINS)
_BRANCHING: Final = (COND, WHILE_LOOP)
"""Operations that write nothing besides what the programs among their arguments write."""
_RUNNING_BACKWARD: Final = ops_with(GRADIENT)
_MOST_FOLLOWED: Final = 1 << 27
"""The most places times actions of a program for which it is worked out what is written: any other
counts as if it wrote to all that it is given.  So a program cannot take long to look at."""
_MOST_JOINING: Final = 1024
"""The same of the actions that let one tensor take over the memory of another."""
_UNKNOWN: Final = 0


def command_access(command: Command) -> Access:
    """What a command does to the objects among its arguments.

    >>> from syft.ops.table import BY_NAME
    >>> from syft.workers.wire.references import REF
    >>> add = Command(1, BY_NAME["torch.Tensor.add_"], ((REF, 5), (REF, 6)), 0, 0)
    >>> command_access(add).writes
    {5}
    """
    op, args, kwargs = command.op, command.args, command.kwargs or {}
    flags = FLAGS[op] if 0 <= op < len(FLAGS) else _UNKNOWN
    recorded = bool(command.flags & GRAD_MODE)
    if flags & GRADIENT:
        roots, named = _roots(op, args, kwargs)
        return Access(
            backward=True,
            recorded=recorded and bool(kwargs.get("create_graph")),
            roots=ids_in(roots),
            accumulates=ids_in(named),
        )
    if flags & SETS_GRADIENT:
        return Access(sets=ids_in(args[:1]), joins=bool(flags & JOINS))
    written = ids_in(_written(op, flags, args, kwargs))
    return Access(
        writes=written or (),
        reads_attributes=bool(flags & READS_GRADIENT),
        fresh=bool(flags & FRESH) and not (written and not flags & MUTATES_OTHERS),
        gives_gradient=bool(flags & READS_GRADIENT),
        recorded=recorded,
        joins=bool(flags & JOINS),
        only_object=bool(flags & ONLY_OBJECT) and "out" not in kwargs,
    )


def _roots(op: int, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The operands behind which a call adds to the gradients of all leaves, and those to whose
    gradients it adds instead."""
    if op not in ADDING_GRADIENTS:
        return (), ()
    named = argument(op, "inputs", args, kwargs)
    if named is not None:
        return (), (named,)
    return (*args[:1], kwargs.get("tensors")), ()


def _written(op: int, flags: int, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The operands to which a call may write."""
    written: list[Any] = [kwargs.get("out")]
    if op in STATISTICS:
        written += statistics_written(op, args, kwargs)
    elif flags & MUTATES_OTHERS and not flags & GRADIENT:
        renormalizes = has_parameter(op, "max_norm")
        unless = renormalizes and argument(op, "max_norm", args, kwargs) is None
        written += () if unless or op in _BRANCHING else (args, kwargs)
    elif flags & INPLACE or (flags & INPLACE_OPTION and argument(op, "inplace", args, kwargs)):
        written += args[:1] or (kwargs,)
    return tuple(written)


def altered_by(op: int, kwargs: Mapping[str, Any] | None) -> int:
    """What an operation may change of what callers have asked for: kinds, gradients, or both.

    >>> altered_by(-1, None)
    0
    """
    if not 0 <= op < len(FLAGS):
        return 0
    if may_alter(op, kwargs):
        return EVERYTHING
    return GRADIENTS if FLAGS[op] & (GRADIENT | SETS_GRADIENT) else 0


@dataclass(frozen=True)
class Effects:
    """What a program does to its inputs and its state, apart from reading them.

    ``writes`` are the places of inputs and state whose values it may write; ``ops`` its operations.
    A backward pass may reach every input that requires grad, whatever a program does before it.
    """

    writes: frozenset[int]
    ops: frozenset[int]

    def access(self, inputs: Sequence[int | None], state: Iterable[int] = ()) -> Access:
        """The access of a run on these ids (None for a value); ``state`` are those of the rest.

        >>> effects_of(Program(1, (), ())).access([5]).changes
        False
        """
        if self.only_reads:  # nearly always
            return self._of_any
        others = frozenset(state)
        named = others | {id for id in inputs if id is not None}

        writes = {id for place, id in enumerate(inputs) if place in self.writes and id is not None}
        if any(place >= len(inputs) for place in self.writes):
            writes |= others
        return Access(
            writes=writes,
            sets=named if self.ops & _GRADIENT_SETTERS else (),
            reads_attributes=self._of_any.reads_attributes,
            backward=self._of_any.backward,
            recorded=True,
            joins=self._of_any.joins,
            roots=named if self.ops & ADDING_GRADIENTS else (),
        )

    @cached_property
    def only_reads(self) -> bool:
        """Whether it changes nothing that it is given, whichever objects that are.

        >>> effects_of(Program(1, (), ())).only_reads
        True
        """
        return not (self.writes or self.ops & (_GRADIENT_SETTERS | ADDING_GRADIENTS))

    @cached_property
    def _of_any(self) -> Access:
        """What a run does whichever objects it is given."""
        return Access(
            reads_attributes=bool(self.ops & _GRADIENT_READERS),
            backward=bool(self.ops & _RUNNING_BACKWARD),
            recorded=True,
            joins=bool(self.ops & _JOINING),
        )


def effects_of(program: Program) -> Effects:
    """What a program does; a write to a result counts for every input it may be a view of.

    >>> from syft.ops.table import BY_NAME
    >>> from syft.program.program import Slot
    >>> add = Action(BY_NAME["torch.Tensor.add_"], (Slot(1), Slot(0)), {}, None)
    >>> effects_of(Program(2, (add,), ())).writes
    frozenset({1})
    """
    places = program.inputs + program.state
    actions = [*actions_inside(program)]
    ops = frozenset(action.op for action in actions)
    joining = sum(action.op in _JOINING for action in actions)
    if places * len(actions) > _MOST_FOLLOWED or joining > _MOST_JOINING:
        return Effects(frozenset(range(places)), ops)
    flow = _Flow(places)
    for action in program.actions:
        flow.follow(action)
    return Effects(frozenset(_bits(flow.writes)), ops)


def _bits(number: int) -> Iterator[int]:
    return (place for place, bit in enumerate(bin(number)[:1:-1]) if bit == "1")


class _Flow:
    """What the actions of a program so far may do to its inputs and state: sets of places, each a
    bit of a number."""

    def __init__(self, places: int) -> None:
        self.writes = 0
        self._places = places
        self._views: dict[int, int] = {}
        """For each slot of a result, the places of which it may be a view."""
        self._groups: list[int] = []
        """Places that may share memory, since an action let one take over that of another; no place
        is in two groups."""

    def follow(self, action: Action) -> None:
        """Add what one action does."""
        inner = [*actions_inside((action.args, action.kwargs))]
        ops = {action.op, *(step.op for step in inner)}
        whole = self._behind((action.args, action.kwargs))
        if ops & _JOINING:
            self._groups = [group for group in self._groups if not group & whole] + [whole]
        if any(map(written_by, inner)):
            self.writes |= whole
        self.writes |= self._behind(written_by(action))
        if ops & ADDING_GRADIENTS:
            # A gradient that was set is added to in place, and is the memory of something else.
            for group in self._groups:
                self.writes |= group
        fresh = FLAGS[action.op] & FRESH and not _returns_argument(action)
        for slot in slots_in(action.out):
            self._views[slot.index] = 0 if fresh else whole

    def _behind(self, operand: Any) -> int:
        places = 0
        for slot in slots_in(operand):
            own = 1 << slot.index if slot.index < self._places else 0
            places |= self._views.get(slot.index, own)
        for group in self._groups:
            if group & places:
                places |= group
        return places


def actions_inside(operands: Any) -> Iterator[Action]:
    """The actions of the programs among some operands, and of the programs inside those.

    >>> [*actions_inside([3, Program(0, (), ())])]
    []
    """
    for part in leaves(operands):
        if type(part) is Program:
            for action in part.actions:
                yield action
                yield from actions_inside((action.args, action.kwargs))


def written_by(action: Action) -> tuple[Any, ...]:
    """The operands to which an action may write, apart from what programs among them do.

    >>> from syft.ops.table import BY_NAME
    >>> from syft.program.program import Slot
    >>> written_by(Action(BY_NAME["torch.Tensor.add_"], (Slot(1), Slot(0)), {}, None))
    (Slot(1),)
    """
    written = _written(action.op, FLAGS[action.op], action.args, action.kwargs)
    return tuple(operand for operand in written if operand is not None)


def _returns_argument(action: Action) -> bool:
    return bool(written_by(action)) and not FLAGS[action.op] & MUTATES_OTHERS
