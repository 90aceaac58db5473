"""Builds a program while a function runs: which values have a slot, and the actions so far.

A slot belongs to an object, by its identity.  So a builder keeps every tensor it has seen alive
until the program is complete.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Collection
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from syft.exceptions import CannotRecord
from syft.ops.nested import CONSTANT_TYPES, EXACT_TENSOR_TYPES, rebuild_tuple
from syft.ops.table import BY_NAME
from syft.program.held_actions import HeldAction, HeldActions
from syft.program.program import Program, Slot, fill_slots
from syft.program.recording.environment.snapshot import Snapshot, storage_of
from syft.program.recording.environment.source_line import SourceLine, user_line
from syft.program.recording.recorded_actions import with_expectations_first, without_unread
from syft.program.recording.symbolic import SYMBOLIC_TYPES, Symbolic, SymbolicShape, concrete
from syft.torch_private import alias_of, functorch_level

FOREIGN: Final[dict[type, Callable[[Any], str]]] = {}
"""How errors name an object that stands for a tensor a program cannot hold, by its class.

:func:`register_foreign` adds to it.
"""
_INSTEAD_OF_ARRAY: Final = "make tensors of it before, and let the function use those"
_CLONE: Final = BY_NAME["torch.Tensor.clone"]
_INSTEAD_OF_FOREIGN: Final = (
    "hand it in as an argument: record with plain tensors, and call the plan with these"
)


class ProgramBuilder(HeldActions):
    """Builds one program; ``scope`` tells its slots from those of other builders.

    Scope 0 is the recorded function, the others are branches and bodies of loops, which know the
    builder of the program ``around`` them.

    >>> builder = ProgramBuilder(0)
    >>> x = torch.ones(2)
    >>> slot = builder.add_input(x)
    >>> builder.operand([x, 1])[0] is slot
    True
    """

    def __init__(
        self, scope: int, around: ProgramBuilder | None = None, made: Collection[int] = ()
    ) -> None:
        super().__init__(scope)
        self._made = made
        """Which tensors from outside the function makes, by the order in which they are met."""
        self.read: set[int] = set() if around is None else around.read
        """The slots that some action reads, in the programs inside of this one too."""
        self.snapshots: list[Snapshot] = []
        """The tensors from outside that were captured, as they were."""
        self.aliased: list[Snapshot] = []
        """The tensors of the surrounding program for which inputs of a branch stand."""
        self.captured_numbers: dict[int, tuple[Symbolic, Slot]] = {}
        """Symbolic numbers of the surrounding program, with the inputs that stand for them."""
        self.saw_symbolic = False
        """Whether an operand was a symbolic number since this was last set to False."""
        self.has_data_dependent = False
        """Whether the shape of some result follows from values."""
        self.data_dependent: set[int] = set()
        """The slots of results of which that is so, but for those of branches."""
        self.objects: list[Any] = []
        """Every object that was seen, alive so that identities stay unique."""
        self._slots: dict[int, Slot] = {}
        self._snapshot_of: dict[int, Snapshot] = {}
        self._by_storage: dict[int, list[Snapshot]] = {}
        self._written_storages: set[int] = set()
        self._number_slots: dict[int, Slot] = {}
        self._expected: set[tuple[Any, ...]] = set()
        self.computed: dict[Any, tuple[Slot, Any]] = {}
        """The slots of arithmetic on numbers that was recorded, beside what it was recorded of."""

    @property
    def in_branch(self) -> bool:
        """Whether it builds a branch or the body of a loop."""
        return self.scope > 0

    # -- values

    def add_input(self, value: Any = None) -> Slot:
        """The slot of a value that exists before the program runs."""
        slot = self.input(value)
        if isinstance(value, torch.Tensor):
            self._slots[id(value)] = slot
            self.objects.append(value)
        return slot

    def add_alias(self, value: Any, tensor: torch.Tensor) -> Slot:
        """The slot of an input that stands for a tensor of the surrounding program."""
        snapshot = Snapshot(tensor, user_line())
        self.aliased.append(snapshot)
        self._by_storage.setdefault(storage_of(tensor), []).append(snapshot)
        return self.add_input(value)

    def bind(self, value: Any, data_dependent: bool = False) -> Slot:
        """Make a slot for a new value; for a value that has one, the new slot replaces it."""
        slot = self._slots[id(value)] = self.new_slot()
        if data_dependent:
            self.data_dependent.add(slot.index)
        self.objects.append(value)
        return slot

    def bind_result(self, value: Any, data_dependent: bool) -> tuple[Any, Any]:
        """The pattern of slots for a result, and the result as the function is to see it.

        The pattern is None for a result without tensors.  A slot belongs to one object.  An
        operation that had nothing to do (``x.contiguous()``, ``x.to(...)``) returns its argument,
        though with other values it may make a new tensor; so the function is given an alias of it.

        >>> builder, x = ProgramBuilder(0), torch.ones(2)
        >>> slot, same = builder.bind_result(x, False)
        >>> same is x, builder.slot_of(x) is slot
        (True, True)
        >>> other, alias = builder.bind_result(x, False)
        >>> alias is x, alias.data_ptr() == x.data_ptr(), builder.slot_of(alias) is other
        (False, True, True)
        """
        if isinstance(value, torch.Tensor):
            own = alias_of(value) if id(value) in self._slots else value
            return self.bind(own, data_dependent), own
        if not isinstance(value, (tuple, list)):
            return None, value
        pattern: list[Any] = []
        items: list[Any] = []
        for item in value:
            slot, own = self.bind_result(item, data_dependent)
            pattern.append(slot)
            items.append(own)
        if pattern.count(None) == len(pattern):
            return None, value
        if not all(map(operator.is_, items, value)):
            value = items if isinstance(value, list) else rebuild_tuple(value, items)
        return tuple(pattern), value

    def slot_of(self, value: Any) -> Slot | None:
        """The slot of a tensor, if it has one."""
        return self._slots.get(id(value))

    def snapshot_of(self, tensor: torch.Tensor) -> Snapshot | None:
        """How a captured tensor was; None for a tensor that was not captured."""
        return self._snapshot_of.get(id(tensor))

    # -- operands

    def operand(self, value: Any) -> Any:
        """The operand as it stands in an action: with slots for tensors and symbolic numbers."""
        slot = self._slots.get(id(value))
        if slot is not None:
            return slot
        kind = type(value)
        if kind in CONSTANT_TYPES:
            return value
        convert = _BY_TYPE.get(kind)
        if convert is not None:
            return convert(self, value)
        return self._operand_by_base(value)

    def _operand_by_base(self, value: Any) -> Any:
        """An operand of a class that is in no table, converted as its base class says."""
        kind = type(value)
        for base in kind.__mro__:
            if base in _BY_BASE:
                return _BY_BASE[base](self, value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        raise CannotRecord(f"an operand of the type {name}", str(user_line()), _INSTEAD_OF_ARRAY)

    def _constant(self, value: Any) -> Any:
        return value

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        return tuple([self.operand(item) for item in value])

    def _tuple_of_class(self, value: tuple[Any, ...]) -> Any:
        return rebuild_tuple(value, [self.operand(item) for item in value])

    def _list(self, value: list[Any]) -> Any:
        return [self.operand(item) for item in value]

    def _dict(self, value: dict[Any, Any]) -> Any:
        return {key: self.operand(item) for key, item in value.items()}

    def _slice(self, value: slice) -> Any:
        parts = (value.start, value.stop, value.step)
        return slice(*[self.operand(part) for part in parts])

    def _number(self, value: Symbolic) -> Any:
        """The slot of a symbolic number; the plain number if its recording is over."""
        recorder = value.handle.recorder
        if recorder is None:
            return concrete(value)
        self.saw_symbolic = True
        if value.slot is not None and self.is_own(value.slot):
            return value.slot
        key = value if value.slot is None else value.slot
        slot = self._number_slots.get(id(key))
        if slot is None:
            if value.comparison is not None:
                slot = recorder.record_comparison(*value.comparison)
            else:  # the surrounding program made it: it becomes a further input
                slot = self.new_slot()
                self.captured_numbers[id(key)] = (value, slot)
            self._number_slots[id(key)] = slot
            self.objects.append(key)
        return slot

    def is_new_expectation(self, action: HeldAction) -> bool:
        """Whether the program does not expect the very same already."""
        relation, first, second, holds = action.args
        key = (relation, type(first), first, type(second), second, holds)
        is_new = key not in self._expected
        self._expected.add(key)
        return is_new

    # -- tensors from outside

    def capture(self, tensor: torch.Tensor) -> Slot:
        """The slot of a tensor from outside; raises CannotRecord if a program cannot hold it."""
        line = user_line()
        _refuse_unrecordable(tensor, line)
        snapshot = Snapshot(tensor, line)
        snapshot.is_made = len(self.snapshots) in self._made
        storage = storage_of(tensor)
        snapshot.is_written = storage in self._written_storages
        self.snapshots.append(snapshot)
        self._snapshot_of[id(tensor)] = snapshot
        self._by_storage.setdefault(storage, []).append(snapshot)
        slot = snapshot.slot = self.bind(tensor)
        if snapshot.is_made:  # it is another one in each run, which may be returned
            made = self.bind(tensor)
            self.actions.append(HeldAction(_CLONE, (slot,), {}, made, None, line))
            slot = made
        return slot

    def _array(self, value: np.ndarray[Any, Any]) -> Slot:
        """The slot of a constant with what an array of numpy holds."""
        try:
            tensor = torch.from_numpy(value.copy())
        except TypeError as error:
            line = str(user_line())
            raise CannotRecord(f"an array of {value.dtype}", line, _INSTEAD_OF_ARRAY) from error
        return self.capture(tensor)

    def mark_written(self, tensor: torch.Tensor) -> None:
        """Called before an operation writes to a tensor."""
        self.operand(tensor)  # captures, and so copies, a tensor from outside
        storage = storage_of(tensor)
        if storage not in self._written_storages:
            self._written_storages.add(storage)
            for snapshot in self._by_storage.get(storage, ()):
                snapshot.is_written = True

    def restore(self) -> None:
        """Restore all tensors from outside, in the reverse order of their capture."""
        for snapshot in reversed(self.aliased + self.snapshots):
            snapshot.restore()

    # -- the program

    def program(
        self,
        outputs: Any,
        state: int = 0,
        constants: tuple[torch.Tensor, ...] = (),
        prelude: Collection[tuple[HeldAction, list[Slot]]] = (),
    ) -> Program:
        """The complete program.

        By now ``given`` holds the slots of inputs, state and constants, in that order.  An action
        of ``prelude`` is put before all others if one of the slots beside it is read.
        """
        actions = without_unread(self.actions, outputs, self.read)
        if not self.in_branch:
            actions = with_expectations_first(actions, self.given)
        if prelude:
            needed = [
                item for item, slots in prelude if any(one.index in self.read for one in slots)
            ]
            actions = needed + actions
        self.actions = actions
        numbered, moved = self.numbered(self.given)
        marks = tuple([item.mark for item in actions])
        return Program(
            inputs=len(self.given) - state - len(constants),
            actions=numbered,
            outputs=fill_slots(outputs, moved),
            state=state,
            constants=constants,
            lines=tuple([str(item.line) for item in actions]),
            marks=marks if any(marks) else (),
        )


_Convert = Callable[[ProgramBuilder, Any], Any]
_BY_TYPE: Final[dict[type, _Convert]] = {
    **dict.fromkeys(EXACT_TENSOR_TYPES, ProgramBuilder.capture),
    **dict.fromkeys(SYMBOLIC_TYPES.values(), ProgramBuilder._number),
    **dict.fromkeys((Slot, Program), ProgramBuilder._constant),
    **dict.fromkeys((tuple, torch.Size, SymbolicShape), ProgramBuilder._tuple),
    list: ProgramBuilder._list,
    dict: ProgramBuilder._dict,
    slice: ProgramBuilder._slice,
}
"""How to convert an operand whose class is exactly this one."""
_BY_BASE: Final[dict[type, _Convert]] = {
    torch.Tensor: ProgramBuilder.capture,
    tuple: ProgramBuilder._tuple_of_class,
    list: ProgramBuilder._list,
    dict: ProgramBuilder._dict,
    np.ndarray: ProgramBuilder._array,
    **dict.fromkeys((int, float, str, enum.Enum, np.generic), ProgramBuilder._constant),
}
"""How to convert an operand of a class that inherits from this one."""


def register_foreign(cls: type, describe: Callable[[Any], str]) -> None:
    """Have programs refuse objects of a class, which stand for tensors that are elsewhere.

    ``describe`` says what errors call one.
    """
    FOREIGN[cls] = describe


def refuse_foreign(value: Any, doing: str = "") -> None:
    """Raise :class:`~syft.exceptions.CannotRecord` for an object of a class in ``FOREIGN``.

    ``doing`` is put before its name in the error.

    >>> refuse_foreign(torch.ones(2))
    """
    describe = FOREIGN.get(type(value))
    if describe is not None:
        raise CannotRecord(f"{doing}{describe(value)}", str(user_line()), _INSTEAD_OF_FOREIGN)


def _refuse_unrecordable(tensor: torch.Tensor, line: SourceLine) -> None:
    """Refuse a tensor that a program cannot hold."""
    kind = type(tensor)
    refuse_foreign(tensor)
    if isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer)):
        raise CannotRecord("a lazy module", str(line), "run it once before, so that it has a shape")
    if tensor.is_nested:
        instead = "pad it, or call the plan once for each part"
        raise CannotRecord("a nested tensor", str(line), instead)
    if kind is not torch.Tensor and not kind.__module__.startswith("torch."):
        raise CannotRecord(f"a tensor of the class {kind.__name__}", str(line), _INSTEAD_OF_FOREIGN)
    if functorch_level() is not None:
        instead = "call it outside the plan, or write it with ordinary operations"
        raise CannotRecord("a torch.func transform", str(line), instead)
    if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
        instead = "a hook is a Python function, which cannot travel: remove it"
        raise CannotRecord("a tensor with a backward hook", str(line), instead)
