"""Runs what returns numbers instead of tensors: sizes and values, and arithmetic on them.

A number that may differ at the next call becomes symbolic, so that what is computed from it is
recorded too.  What Python decides by a number is noted, since only the path taken is recorded.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from syft.ops.nested import Arguments, Keywords, leaves, replace
from syft.ops.table import BY_NAME, FLAGS, NAMES, Function, name_of
from syft.program.held_actions import HeldAction
from syft.program.program import Slot
from syft.program.recording.decisions import DecisionLog
from syft.program.recording.environment.random_state import PreservedRandomState
from syft.program.recording.environment.source_line import requested_by_library
from syft.program.recording.gradients import GradientTracker
from syft.program.recording.op_facts import (
    ITEM,
    LENGTH,
    PARTS,
    PROPERTIES_OF,
    SAME_SIZE,
    SIZES,
    TYPE,
    UNBINDS,
)
from syft.program.recording.operation_tracer import OperationTracer
from syft.program.recording.recorded_actions import EXPECT
from syft.program.recording.symbolic import (
    NumberRecorder,
    Origin,
    RecorderHandle,
    Symbolic,
    SymbolicShape,
    concrete,
    is_symbolic,
    origin_of,
    symbolic,
)

_TO: Final = BY_NAME["torch.Tensor.to"]
_SIZE: Final = BY_NAME["torch.Tensor.size"]
_OF_PARTS: Final = frozenset(("dim", "chunks", "split_size", "split_size_or_sections"))
"""Arguments of operations that return parts of a tensor."""


class NumberTracer(OperationTracer, NumberRecorder):
    """Records sizes, values and arithmetic on them beside the operations on tensors.

    With ``rerun`` it adds one to numbers that are read from tensors.

    >>> tracer = NumberTracer(True, DecisionLog(True), PreservedRandomState(), GradientTracker())
    >>> tracer.trace_value(BY_NAME["torch.Tensor.item"], torch.Tensor.item, (torch.tensor(3),), {})
    4
    """

    def __init__(
        self,
        rerun: bool,
        decisions: DecisionLog,
        random_state: PreservedRandomState,
        gradients: GradientTracker,
    ) -> None:
        super().__init__(rerun, decisions, random_state, gradients)
        self.handle = RecorderHandle(self)
        self.properties_read: set[str] = set()
        """Which properties of tensors, other than sizes, the user's code reads."""

    def trace_metadata(
        self, number: int, function: Function, args: Arguments, kwargs: Keywords
    ) -> Any:
        """Run a function that returns metadata: sizes that may vary become symbolic.

        ``x.type(dtype)`` returns a tensor and is recorded as ``x.to(device, dtype)``.
        """
        result = function(*replace(args, concrete), **replace(kwargs, concrete))
        if number in SIZES:
            return self._trace_size(number, args, kwargs, result)
        if number == TYPE and isinstance(result, torch.Tensor):
            args = (args[0], result.device, result.dtype)
            return self.trace_operation(_TO, FLAGS[_TO], torch.Tensor.to, args, {})
        if number == LENGTH:
            size = self._symbolic_size(args[0], 0)
            if is_symbolic(size):
                self.reads_sizes = self.reads_sizes or not requested_by_library(4)
                size.decide("len() of a tensor")
        if number in SAME_SIZE:
            self.reads_sizes = self.reads_sizes or not requested_by_library(4)
            self._expect_sizes(*args, *kwargs.values())
        if number in PROPERTIES_OF:
            self._trace_properties(PROPERTIES_OF[number], args, kwargs)
        return result

    def user_asks(self, number: int) -> None:
        """Count a question about a tensor as the user's, which library code asks on his behalf.

        >>> from syft.ops.table import BY_NAME
        >>> from syft.program.recording.tracer import Tracer
        >>> tracer = Tracer()
        >>> tracer.user_asks(BY_NAME["torch.Tensor.dtype.__get__"]); tracer.properties_read
        {'dtype'}
        """
        self.reads_sizes = True
        self.properties_read |= PROPERTIES_OF.get(number, frozenset())

    # Three frames lie between each of the next two methods and the code that called torch.

    def _trace_size(self, number: int, args: Arguments, kwargs: Keywords, result: Any) -> Any:
        """A size: symbolic if it is that of a tensor whose size may vary."""
        slot = self._slot_if_varying(args[0] if args else next(iter(kwargs.values())))
        if slot is None:
            return result
        self.reads_sizes = self.reads_sizes or not requested_by_library(5)
        return self._symbolic_result(number, slot, args, kwargs, result)

    def _symbolic_size(self, tensor: torch.Tensor, dim: int) -> Any:
        """A size that torch gives Python without a call that could be recorded."""
        size = tensor.size(dim)
        slot = self._slot_if_varying(tensor)
        return size if slot is None else self._symbolic_result(_SIZE, slot, (tensor, dim), {}, size)

    def _expect_sizes(self, one: torch.Tensor, other: torch.Tensor) -> None:
        """Expect the sizes of two tensors to differ where they do now, up to the first place."""
        for dim in range(one.dim() if one.dim() == other.dim() else 0):
            if not self._symbolic_size(one, dim) == self._symbolic_size(other, dim):
                return

    def expect_parts(self, number: int, args: Arguments, kwargs: Keywords) -> None:
        """Expect the number of results of an operation for which it follows from a size."""
        count_of = PARTS.get(number)
        given = (*args, *kwargs.values())
        if count_of is None or any(isinstance(value, (list, tuple)) for value in given):
            return  # the parts are listed
        tensor = next(value for value in given if isinstance(value, torch.Tensor))
        names = ("dim",) if number in UNBINDS else ("per", "dim")
        named = {"dim": 0, **dict(zip(names, args[1:], strict=False))}
        named |= {key if key == "dim" else "per": kwargs[key] for key in kwargs if key in _OF_PARTS}
        size = self._symbolic_size(tensor, concrete(named["dim"]))
        count = count_of(size, named.get("per"))
        if is_symbolic(count):
            count.decide(f"the number of results of {NAMES[number]}")

    def _trace_properties(self, names: frozenset[str], args: Arguments, kwargs: Keywords) -> None:
        """List properties if the user's code reads them from a tensor of the program."""
        if not names <= self.properties_read and not requested_by_library(5):
            if any(map(self._is_in_program, leaves((args, kwargs)))):
                self.properties_read |= names

    def _is_in_program(self, value: Any) -> bool:
        """Whether a value is a tensor that is an input or a result of the program."""
        builder = self.builder
        return builder.snapshot_of(value) is None and builder.slot_of(value) is not None

    def _slot_if_varying(self, tensor: torch.Tensor) -> Slot | None:
        """The slot of a tensor whose size may be another at the next call; else None."""
        builder = self.builder
        if builder.in_branch:
            slot = builder.operand(tensor)
            assert type(slot) is Slot
            return slot
        return None if builder.snapshot_of(tensor) is not None else builder.slot_of(tensor)

    def _symbolic_result(
        self, number: int, slot: Slot, args: Arguments, kwargs: Keywords, result: Any
    ) -> Any:
        """Record an action that makes numbers; returns them as symbolic ones."""
        action = self.new_action(number, args, kwargs)
        self.builder.saw_symbolic = False
        origin = Origin.VALUE if slot.index in self.builder.data_dependent else Origin.SIZE
        if not isinstance(result, tuple):
            return self._add_number_action(action, result, origin)
        action.out = tuple([self.builder.new_slot() for _ in result])
        pairs = zip(result, action.out, strict=True)
        items = [symbolic(item, self.handle, part, origin) for item, part in pairs]
        if items:
            self.builder.actions.append(action)
        return SymbolicShape(items) if type(result) is torch.Size else tuple(items)

    def _add_number_action(
        self, action: HeldAction, result: int | float, origin: Origin
    ) -> Symbolic:
        """Record an action that makes one number; returns it as a symbolic one."""
        action.out = self.builder.new_slot()
        self.builder.actions.append(action)
        return symbolic(result, self.handle, action.out, origin)

    def trace_value(
        self, number: int, function: Function, args: Arguments, kwargs: Keywords
    ) -> Any:
        """Run a function that returns values: a number from ``item()`` becomes symbolic."""
        if number != ITEM:
            result = function(*replace(args, concrete), **replace(kwargs, concrete))
            self.decisions.add(name_of(function))
            return result
        action = self.new_action(number, args, kwargs)
        result = function(*args, **kwargs)
        if not isinstance(result, (int, float)):
            self.decisions.add("item() of a complex number")
            return result
        if self.rerun and not isinstance(result, bool):
            result += 1
        return self._add_number_action(action, result, Origin.VALUE)

    def record_arithmetic(self, name: str, operands: tuple[Any, ...]) -> Slot:
        """Record arithmetic on numbers, once: an optimizer repeats it for every parameter."""
        computed = self.builder.computed
        key = (name, *[_identity_of(operand) for operand in operands])
        if key not in computed:
            computed[key] = self._record_unrun(f"syft.ops.numbers.{name}", *operands), operands
        return computed[key][0]

    def record_comparison(self, name: str, operands: tuple[Any, ...]) -> Slot:
        """Record a comparison of numbers, by ops on tensors: the op table has none on numbers."""
        first, second = operands
        dtype = torch.float64 if isinstance(first, float) else torch.int64
        tensor = self._record_unrun("torch.scalar_tensor", first, dtype=dtype)
        answer = self._record_unrun(f"torch.Tensor.{name}", tensor, second)
        return self._record_unrun("torch.Tensor.item", answer)

    def _record_unrun(self, name: str, *operands: Any, **keywords: Any) -> Slot:
        """Record an action with one result without running it; operands may be slots."""
        action = self.new_action(BY_NAME[name], operands, keywords)
        self.builder.saw_symbolic = False
        action.out = slot = self.builder.new_slot()
        self.builder.actions.append(action)
        return slot

    def on_decision(self, what: str, relation: str, first: Any, second: Any, holds: bool) -> None:
        """Called when Python decides by numbers: only the path taken now is recorded.

        If the numbers follow from sizes and arguments, the program expects the same answer.
        """
        if origin_of(first, second) is Origin.VALUE:
            self.decisions.add(what)
            return
        action = self.new_action(EXPECT, (relation, first, second, holds))
        self.builder.saw_symbolic = False
        if self.builder.is_new_expectation(action):
            self.builder.actions.append(action)


def _identity_of(number: Any) -> Any:
    """What tells an operand of arithmetic from every other one: 2 from 2.0, and 0.0 from -0.0."""
    if not is_symbolic(number):
        return repr(number)
    return id(number if number.slot is None else number.slot)
