"""A program while it is written: which values have a slot, and the actions so far.

Slots go by the identity of objects, so a draft keeps every tensor it has seen alive until it is
done.  Their numbers are given at the end: the tensors met on the way (parameters that a closure
holds, constants) come before the results, and nobody knows before how many there will be.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch

from syft.exceptions import CannotRecord
from syft.ops.table import BY_NAME, FLAGS, OpFlag
from syft.program.program import Action, Mode, Program, Slot
from syft.program.recording.snapshot import Snapshot, storage_of
from syft.program.recording.source_line import SourceLine, user_line
from syft.torch_private import functorch_level
from syft.program.recording.symbolic import KINDS, Traced, TracedBool, plain
from syft.ops.nested import rebuild_tuple
from syft.serde.torch_types import NUMBERED_KINDS

_PLAIN = frozenset(
    (int, float, bool, complex, str, bytes, type(None), type(Ellipsis), type, Program)
    + (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme)
    + (torch.Generator, range, *NUMBERED_KINDS)
)
"""Kinds of operands that stand in an action as they are."""
_NUMBER_LIKE = (int, float, str, enum.Enum, np.generic)

_METADATA = int(OpFlag.METADATA)
_ONLY_READ = frozenset(
    number
    for name, number in BY_NAME.items()
    if FLAGS[number] & _METADATA
    or name.startswith("syft.ops.numbers.")
    or name.endswith(".__get__")
    or name in ("torch.Tensor.item", "torch.scalar_tensor")
)
"""Actions that make numbers or look something up: dropped again if nobody needs the result."""


@functools.lru_cache(maxsize=4096)
def _slot(index: int) -> Slot:
    """The slot of a number: the same object each time, which compares faster."""
    return Slot(index)


class Place:
    """A slot to be: it gets its number when the program is complete."""

    __slots__ = ("draft", "slot", "volatile", "needed")

    def __init__(self, draft: int, volatile: bool = False) -> None:
        self.draft = draft
        self.slot: Slot | None = None
        self.volatile = volatile
        self.needed = False


class Noted:
    """An action as it was noted down, with places instead of slots."""

    __slots__ = ("op", "args", "kwargs", "out", "mode", "line", "optimizer")

    def __init__(
        self,
        op: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        mode: Mode | None,
        line: SourceLine,
        optimizer: str | None,
    ) -> None:
        self.op, self.args, self.kwargs, self.out = op, args, kwargs, out
        self.mode, self.line, self.optimizer = mode, line, optimizer


class Draft:
    """A program that is being written; ``home`` tells its places from those of other drafts.

    >>> draft = Draft(0)
    >>> x = torch.ones(2)
    >>> place = draft.give(x)
    >>> draft.operand([x, 1])[0] is place
    True
    """

    def __init__(self, home: int) -> None:
        self.home = home
        self.given: list[Place] = []
        self.snapshots: list[Snapshot] = []
        self.noted: list[Noted] = []
        self.numbers: dict[int, tuple[Traced, Place]] = {}
        self.lent: list[Snapshot] = []
        self.met_traced = False
        self.has_volatile = False
        self._places: dict[int, Place] = {}
        self.kept: list[Any] = []
        self._snapshot_of: dict[int, Snapshot] = {}
        self._by_storage: dict[int, list[Snapshot]] = {}
        self._written_storages: set[int] = set()
        self._number_places: dict[int, Place] = {}

    # -- values

    def give(self, value: Any = None) -> Place:
        """The place of a value that is there before the program runs."""
        place = Place(self.home)
        self.given.append(place)
        if isinstance(value, torch.Tensor):
            self._keep(value, place)
        return place

    def lend(self, value: Any, tensor: torch.Tensor) -> Place:
        """The place of an input that stands for a tensor of the program around this one."""
        snapshot = Snapshot(tensor, user_line())
        self.lent.append(snapshot)
        self._by_storage.setdefault(storage_of(tensor), []).append(snapshot)
        return self.give(value)

    def bind(self, value: Any, volatile: bool = False) -> Place:
        """The place of a new value; one seen before gets this as its newest."""
        place = self._places[id(value)] = Place(self.home, volatile)
        self.kept.append(value)
        return place

    def knows(self, value: Any) -> bool:
        """Whether a value has a place."""
        return id(value) in self._places

    def place_of(self, value: Any) -> Place | None:
        """The place of a tensor, if it has one."""
        return self._places.get(id(value))

    def snapshot_of(self, tensor: torch.Tensor) -> Snapshot | None:
        """How a tensor from outside was when it was met."""
        return self._snapshot_of.get(id(tensor))

    def _keep(self, value: Any, place: Place) -> None:
        self._places[id(value)] = place
        self.kept.append(value)

    # -- operands

    def operand(self, value: Any) -> Any:
        """The operand as it stands in an action: with places for tensors and traced numbers."""
        place = self._places.get(id(value))
        if place is not None:
            return place
        kind = type(value)
        if kind in _PLAIN:
            return value
        handler = _OPERANDS.get(kind)
        if handler is not None:
            return handler(self, value)
        return self._unusual(value)

    def _unusual(self, value: Any) -> Any:
        """An operand of a class that stands in no table."""
        if isinstance(value, torch.Tensor):
            return self.meet(value)
        if isinstance(value, tuple):
            return rebuild_tuple(value, [self.operand(item) for item in value])
        if isinstance(value, list):
            return [self.operand(item) for item in value]
        if isinstance(value, dict):
            return {key: self.operand(item) for key, item in value.items()}
        if isinstance(value, _NUMBER_LIKE):
            return value
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        instead = "make tensors of it before, and let the function use those"
        raise CannotRecord(f"an operand of the type {name}", str(user_line()), instead)

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        return tuple([self.operand(item) for item in value])

    def _list(self, value: list[Any]) -> Any:
        return [self.operand(item) for item in value]

    def _dict(self, value: dict[Any, Any]) -> Any:
        return {key: self.operand(item) for key, item in value.items()}

    def _slice(self, value: slice) -> Any:
        parts = (value.start, value.stop, value.step)
        return slice(*[self.operand(part) for part in parts])

    def _number(self, value: Traced) -> Any:
        if value.tape.writer is None:
            return plain(value)
        self.met_traced = True
        if value.place is not None and value.place.draft == self.home:
            return value.place
        key = value if value.place is None else value.place
        place = self._number_places.get(id(key))
        if place is None:
            if isinstance(value, TracedBool) and value.comparison is not None:
                place = value.tape.writer.compare(*value.comparison)
            else:  # the program around this one made it: it comes in as a further input
                place = Place(self.home)
                self.numbers[id(key)] = (value, place)
            self._number_places[id(key)] = place
            self.kept.append(key)
        return place

    # -- tensors from outside

    def meet(self, tensor: torch.Tensor) -> Place:
        """Take in a tensor that was made outside; raises CannotRecord for one that will not do."""
        line = user_line()
        _check(tensor, line)
        snapshot = Snapshot(tensor, line)
        storage = storage_of(tensor)
        snapshot.written = storage in self._written_storages
        self.snapshots.append(snapshot)
        self._snapshot_of[id(tensor)] = snapshot
        self._by_storage.setdefault(storage, []).append(snapshot)
        place = snapshot.place = self.bind(tensor)
        return place

    def write(self, tensor: torch.Tensor) -> None:
        """Be told that a tensor is about to be written to."""
        self.operand(tensor)  # met, and copied, before
        storage = storage_of(tensor)
        if storage not in self._written_storages:
            self._written_storages.add(storage)
            for snapshot in self._by_storage.get(storage, ()):
                snapshot.written = True

    def restore(self) -> None:
        """Put all tensors from outside back, the first one met last."""
        for snapshot in reversed(self.lent + self.snapshots):
            snapshot.restore()

    # -- the program

    def program(
        self,
        outputs: Any,
        state: int = 0,
        constants: tuple[torch.Tensor, ...] = (),
        opening: Collection[tuple[Noted, list[Place]]] = (),
    ) -> Program:
        """The complete program.

        ``given`` holds the places of inputs, state and constants by now, in that order.  An action
        of ``opening`` comes before all others if one of the places beside it is read.
        """
        noted = self._needed(outputs)
        if opening:
            noted = [item for item, places in opening if any(map(_is_needed, places))] + noted
        index = 0
        for place in self.given:
            place.slot = _slot(index)
            index += 1
        for item in noted:
            index = _number_results(item.out, index)
        self.noted = noted
        return Program(
            inputs=len(self.given) - state - len(constants),
            actions=tuple([_action(item) for item in noted]),
            outputs=_finished(outputs),
            state=state,
            constants=constants,
            lines=tuple([str(item.line) for item in noted]),
        )

    def _needed(self, outputs: Any) -> list[Noted]:
        """The actions without those whose only purpose is a result that nobody reads."""
        if not any(item.op in _ONLY_READ for item in self.noted):
            return self.noted
        _need(outputs)
        kept = []
        for item in reversed(self.noted):
            if item.op not in _ONLY_READ or _is_needed(item.out):
                _need(item.args)
                if item.kwargs:
                    _need(item.kwargs)
                kept.append(item)
        kept.reverse()
        return kept


_OPERANDS: dict[type, Callable[[Draft, Any], Any]] = {
    torch.Tensor: Draft.meet,
    torch.nn.Parameter: Draft.meet,
    tuple: Draft._tuple,
    torch.Size: Draft._tuple,
    list: Draft._list,
    dict: Draft._dict,
    slice: Draft._slice,
    Place: lambda draft, place: place,
    **dict.fromkeys((*KINDS, TracedBool), Draft._number),
}


def _check(tensor: torch.Tensor, line: SourceLine) -> None:
    """Refuse a tensor that a program cannot hold."""
    kind = type(tensor)
    if tensor.is_nested:
        instead = "pad it, or call the plan once for each part"
        raise CannotRecord("a nested tensor", str(line), instead)
    if kind is not torch.Tensor and not kind.__module__.startswith("torch."):
        instead = "record with plain tensors, and call the plan with these"
        raise CannotRecord(f"a tensor of the class {kind.__name__}", str(line), instead)
    if functorch_level() is not None:
        instead = "call it outside the plan, or write it with ordinary operations"
        raise CannotRecord("a torch.func transform", str(line), instead)
    if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
        instead = "a hook is a Python function, which cannot travel: remove it"
        raise CannotRecord("a tensor with a backward hook", str(line), instead)


# ------------------------------------------------------------------------------------- places


def _finished(value: Any) -> Any:
    """The operand with slots instead of places."""
    kind = type(value)
    if kind is Place:
        return value.slot
    if kind is list:
        return [_finished(item) for item in value]
    if kind is dict:
        return {key: _finished(item) for key, item in value.items()}
    if kind is slice:
        return slice(_finished(value.start), _finished(value.stop), _finished(value.step))
    if isinstance(value, tuple):
        items = [_finished(item) for item in value]
        return tuple(items) if kind is tuple else rebuild_tuple(value, items)
    return value


def _action(item: Noted) -> Action:
    """The action with slots instead of places."""
    return Action(
        item.op,
        tuple([arg.slot if type(arg) is Place else _finished(arg) for arg in item.args]),
        {key: _finished(arg) for key, arg in item.kwargs.items()} if item.kwargs else {},
        _finished(item.out),
        item.mode,
    )


def _number_results(pattern: Any, index: int) -> int:
    """Number the places in a pattern of results; returns the next number."""
    if type(pattern) is Place:
        pattern.slot = _slot(index)
        return index + 1
    if type(pattern) is tuple:
        for part in pattern:
            index = _number_results(part, index)
    return index


def _need(value: Any) -> None:
    """Mark the places in an operand as read."""
    kind = type(value)
    if kind is Place:
        value.needed = True
    elif isinstance(value, (tuple, list)):
        for item in value:
            _need(item)
    elif kind is dict:
        for item in value.values():
            _need(item)
    elif kind is slice:
        _need((value.start, value.stop, value.step))


def _is_needed(pattern: Any) -> bool:
    if type(pattern) is Place:
        return pattern.needed
    return type(pattern) is tuple and any(map(_is_needed, pattern))
