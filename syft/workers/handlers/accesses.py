"""What a command or a program does to the objects it names, from the flags of its operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from syft.ops.nested import leaves

from syft.ops.table import (
    BY_NAME,
    FLAGS,
    GRADIENT,
    INPLACE,
    INPLACE_OPTION,
    MUTATES_OTHERS,
)
from syft.program.program import Action, Program, slots_in
from syft.workers.core.access import Access
from syft.workers.execution.fresh import FRESH
from syft.workers.wire.messages import GRAD_MODE, Command
from syft.workers.wire.references import ids_in


def _numbers(*names: str) -> frozenset[int]:
    return frozenset(BY_NAME[name] for name in names if name in BY_NAME)


GRADIENT_READERS: Final = _numbers("torch.Tensor.grad.__get__", "torch.Tensor._grad.__get__")
"""The operations whose result is the gradient of their argument."""
_ATTRIBUTE_WRITERS: Final = _numbers("torch.Tensor.grad.__set__", "torch.Tensor.grad.__delete__")
_JOINING: Final = _numbers(
    "torch.Tensor.grad.__set__", "torch.Tensor.data.__set__", "torch.Tensor.set_"
)
"""The operations after which their arguments may share memory."""
_STATISTICS: Final = {
    BY_NAME[name]: places
    for name, places in (
        ("torch.nn.functional.batch_norm", (1, 2)),
        ("torch.nn.functional.instance_norm", (1, 2)),
        ("torch.batch_norm", (3, 4)),
        ("torch.instance_norm", (3, 4)),
    )
    if name in BY_NAME
}
"""The places of the running statistics, which are all that these operations write."""
_STATISTICS_NAMES: Final = ("running_mean", "running_var")
_UNKNOWN: Final = 0


def command_access(command: Command) -> Access:
    """What a command does to the objects among its arguments.

    >>> from syft.workers.wire.references import REF
    >>> add = Command(1, BY_NAME["torch.Tensor.add_"], ((REF, 5), (REF, 6)), 0, 0)
    >>> command_access(add).writes
    {5}
    """
    op, args, kwargs = command.op, command.args, command.kwargs or {}
    flags = FLAGS[op] if 0 <= op < len(FLAGS) else _UNKNOWN
    recorded = bool(command.flags & GRAD_MODE)
    if flags & GRADIENT:
        return Access(backward=True, recorded=recorded and bool(kwargs.get("create_graph")))
    if op in _ATTRIBUTE_WRITERS:
        return Access(sets=ids_in(args[:1]), joins=op in _JOINING)
    written = ids_in(_written(op, flags, args, kwargs))
    return Access(
        writes=written or (),
        reads_attributes=op in GRADIENT_READERS,
        fresh=op in FRESH and not (written and not flags & MUTATES_OTHERS),
        gives_gradient=op in GRADIENT_READERS,
        recorded=recorded,
        joins=op in _JOINING,
    )


def _written(op: int, flags: int, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The operands to which a call may write."""
    written: list[Any] = [kwargs.get("out")]
    if op in _STATISTICS:
        written += (args[place] for place in _STATISTICS[op] if place < len(args))
        written += (kwargs.get(name) for name in _STATISTICS_NAMES)
    elif flags & MUTATES_OTHERS and not flags & GRADIENT:
        written += (args, kwargs)
    elif flags & INPLACE or (flags & INPLACE_OPTION and _may_be_in_place(args, kwargs)):
        written += args[:1] or (kwargs,)
    return tuple(written)


def _may_be_in_place(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return bool(kwargs.get("inplace")) or any(arg is True for arg in args)


@dataclass(frozen=True, slots=True)
class Effects:
    """What a program does to its inputs and its state, apart from reading them.

    ``writes`` are the places of inputs and state whose values it may write; ``ops`` its operations.
    """

    writes: frozenset[int]
    ops: frozenset[int]

    def access(self, inputs: Sequence[int | None], state: Iterable[int] = ()) -> Access:
        """The access of a run on these ids (None for a value); ``state`` are those of the rest.

        >>> effects_of(Program(1, (), ())).access([5]).changes
        False
        """
        others = frozenset(state)
        named = others | {id for id in inputs if id is not None}
        writes = {id for place, id in enumerate(inputs) if place in self.writes and id is not None}
        if any(place >= len(inputs) for place in self.writes):
            writes |= others
        return Access(
            writes=writes,
            sets=named if self.ops & _ATTRIBUTE_WRITERS else (),
            reads_attributes=bool(self.ops & GRADIENT_READERS),
            backward=any(FLAGS[op] & GRADIENT for op in self.ops),
            recorded=True,
            joins=bool(self.ops & _JOINING),
        )


def effects_of(program: Program) -> Effects:
    """What a program does; a write to a result counts for every input it may be a view of.

    >>> from syft.program.program import Slot
    >>> add = Action(BY_NAME["torch.Tensor.add_"], (Slot(1), Slot(0)), {}, None)
    >>> effects_of(Program(2, (add,), ())).writes
    frozenset({1})
    """
    views = {place: frozenset((place,)) for place in range(program.inputs + program.state)}
    writes: set[int] = set()
    ops: set[int] = set()

    def behind(operand: Any) -> frozenset[int]:
        found = (views.get(slot.index, frozenset()) for slot in slots_in(operand))
        return frozenset().union(*found)

    for action in program.actions:
        inner = [action for part in leaves(action.args) for action in _actions_inside(part)]
        ops.update(one.op for one in (action, *inner))
        whole = behind((action.args, action.kwargs))
        if inner and any(_written_by(one) for one in inner):
            writes |= whole
        writes |= behind(_written_by(action))
        fresh = action.op in FRESH and not _returns_argument(action)
        for slot in slots_in(action.out):
            views[slot.index] = frozenset() if fresh else whole
    return Effects(frozenset(writes), frozenset(ops))


def _actions_inside(part: Any) -> Iterator[Action]:
    """The actions of a program among the operands, and of the programs inside it."""
    if isinstance(part, Program):
        for action in part.actions:
            yield action
            for operand in leaves(action.args):
                yield from _actions_inside(operand)


def _written_by(action: Action) -> tuple[Any, ...]:
    written = _written(action.op, FLAGS[action.op], action.args, action.kwargs)
    return tuple(operand for operand in written if operand is not None)


def _returns_argument(action: Action) -> bool:
    return bool(_written_by(action)) and not FLAGS[action.op] & MUTATES_OTHERS
