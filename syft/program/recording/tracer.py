"""Sees the torch calls of a function while it runs, and records them as actions.

It is a ``TorchFunctionMode``, so it sees calls above autograd: operators, methods, functions and
factories, properties and their setters, ``backward`` and what an optimizer does in its ``step``.
What a function of torch does inside is part of that one action.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn

import torch
from torch.overrides import TorchFunctionMode

from syft.exceptions import CannotRecord
from syft.ops.calls import DECOMPOSITIONS, mutated_argument
from syft.ops.control import RECORDING
from syft.ops.nested import Arguments, Keywords, leaves, replace
from syft.ops.table import (
    BY_NAME,
    FLAGS,
    GRADIENT,
    INPLACE,
    INPLACE_OPTION,
    METADATA,
    MUTATES_OTHERS,
    NOTHING,
    NUMBERS,
    RANDOM,
    REVEALS,
    SHAPE_FROM_VALUES,
    Function,
    name_of,
)
from syft.program.recording.builder import FOREIGN, ProgramBuilder, refuse_foreign
from syft.program.recording.decisions import DecisionLog
from syft.program.recording.environment.random_state import PreservedRandomState
from syft.program.recording.environment.source_line import (
    SourceLine,
    requested_by_library,
    user_line,
)
from syft.program.recording.gradients import GradientTracker
from syft.program.recording.op_facts import (
    GET_GRAD,
    ITEM,
    LENGTH,
    PROPERTY_OF,
    SIZES,
    SPLITS,
    TYPE,
    has_data_dependent_shape,
    run_unlisted,
)
from syft.program.recording.recorded_actions import PendingSlot, RecordedAction
from syft.program.recording.symbolic import (
    NumberRecorder,
    Origin,
    RecorderHandle,
    concrete,
    symbolic,
)
from syft.program.torch_modes import ModeChanges
from syft.torch_private import NO_FUNCTION, DisableTorchDispatch, inside_custom_function

_BACKWARD: Final = GRADIENT | MUTATES_OTHERS
_RETURNS_PYTHON_VALUES: Final = METADATA | REVEALS
_MAY_WRITE: Final = INPLACE | INPLACE_OPTION | MUTATES_OTHERS
_HAS_EFFECTS: Final = INPLACE | MUTATES_OTHERS | NOTHING | RANDOM

_TO: Final = BY_NAME["torch.Tensor.to"]
_NO_LINE: Final = SourceLine("", 0)


class Tracer(TorchFunctionMode, NumberRecorder):
    """Records the torch calls that run while it is active.

    With ``rerun`` it traces the function once more: it does not warn, and adds one to numbers that
    are read from tensors, so that what is computed from them differs from the first run.  It does
    not look up lines then.

    >>> from syft.ops.table import NAMES
    >>> tracer = Tracer()
    >>> with tracer:
    ...     _ = torch.ones(2) + 1
    >>> [NAMES[action.op] for action in tracer.builder.actions]
    ['torch.ones', 'torch.Tensor.add']
    """

    def __init__(
        self,
        rerun: bool = False,
        decisions: DecisionLog | None = None,
        random_state: PreservedRandomState | None = None,
        gradients: GradientTracker | None = None,
    ) -> None:
        super().__init__()
        self.rerun = rerun
        self.decisions = DecisionLog(rerun) if decisions is None else decisions
        self.random_state = PreservedRandomState() if random_state is None else random_state
        self.gradients = GradientTracker() if gradients is None else gradients
        self.builder = ProgramBuilder(0)
        self.handle = RecorderHandle(self)
        self.modes = ModeChanges()
        self.reads_sizes = False
        """Whether the user's code reads sizes."""
        self.properties_read: set[str] = set()
        """Which other properties of tensors the user's code reads."""
        self.refusals: list[tuple[str, str, str]] = []
        """The parts of each refusal that was raised, even if the function caught it."""
        self._is_paused = False
        self._scopes = itertools.count(1)

    # -- what torch calls

    def __torch_function__(
        self,
        function: Function,
        types: Iterable[type],
        args: Arguments = (),
        kwargs: Keywords | None = None,
    ) -> Any:
        try:
            if types and not self._is_paused:
                self._refuse_foreign_operands(function, types, args, kwargs)
            if not self.rerun:
                return self._trace(function, args, kwargs or {})
            with DisableTorchDispatch():  # unseen ops are looked for between these calls
                return self._trace(function, args, kwargs or {})
        except CannotRecord as error:
            self.refusals.append((error.what, error.line, error.instead))
            raise

    def _refuse_foreign_operands(
        self, function: Function, types: Iterable[type], args: Arguments, kwargs: Keywords | None
    ) -> None:
        """Refuse an operation on a tensor whose data is not here; metadata may be read."""
        if FOREIGN.keys().isdisjoint(types):
            return
        number = NUMBERS.get(function)
        if number is None or not FLAGS[number] & METADATA:
            for leaf in leaves((args, kwargs)):
                refuse_foreign(leaf, f"{name_of(function)} of ")

    def refuse(self, what: str, instead: str) -> NoReturn:
        """Raise :class:`~syft.exceptions.CannotRecord` for something that is no function of torch.

        It is raised again at the end of the function if the function catches it.
        """
        refusal = (what, str(user_line()), instead)
        self.refusals.append(refusal)
        raise CannotRecord(*refusal)

    def _trace(self, function: Function, args: Arguments, kwargs: Keywords) -> Any:
        """Run a function and record it in the way that its flags ask for."""
        if self._is_paused:
            return function(*args, **kwargs)
        try:
            number = NUMBERS.get(function)
        except TypeError:  # it has no hash, so no table holds it
            number = None
        if number is None:
            return run_unlisted(function, args, kwargs)
        if number in DECOMPOSITIONS:
            with self:
                return DECOMPOSITIONS[number](*args, **kwargs)
        flags = FLAGS[number]
        if flags & _RETURNS_PYTHON_VALUES:
            trace = self._trace_metadata if flags & METADATA else self._trace_value
            return trace(number, function, args, kwargs)
        if flags & RANDOM:
            return self._trace_random(number, flags, function, args, kwargs)
        return self._trace_operation(number, flags, function, args, kwargs)

    def _trace_random(
        self, number: int, flags: int, function: Function, args: Arguments, kwargs: Keywords
    ) -> Any:
        """Run and record an operation that may draw random numbers."""
        generator = kwargs.get("generator")
        self.random_state.before_draw(generator, user_line())
        result = self._trace_operation(number, flags, function, args, kwargs)
        self.random_state.after_draw(generator)
        return result

    def _trace_operation(
        self, number: int, flags: int, function: Function, args: Arguments, kwargs: Keywords
    ) -> Any:
        """Run and record an operation on tensors."""
        builder = self.builder
        given = args, kwargs
        action = self.new_action(number, args, kwargs)
        if builder.saw_symbolic:
            builder.saw_symbolic = False
            args, kwargs = replace(args, concrete), replace(kwargs, concrete)
        target = None
        if flags & _MAY_WRITE or "out" in kwargs:
            target = self._mark_written(flags, args, kwargs)
        if number in GET_GRAD:
            return self.gradients.read(builder, action, args[0])
        if flags & _BACKWARD == _BACKWARD:
            result = self.gradients.backward(builder, action, lambda: function(*args, **kwargs))
        else:
            result = function(*args, **kwargs)
        if flags & INPLACE:
            self.gradients.after_inplace(builder, action, args)
        elif target is None:
            result = self._bind_result(action, flags, given, result)
            if action.out is None and not flags & _HAS_EFFECTS:
                return result  # there is no result to record, and no effect
        builder.actions.append(action)
        return result

    def new_action(
        self, number: int, args: Arguments, kwargs: Keywords | None = None
    ) -> RecordedAction:
        """An action of the current line and modes; the caller adds it to the builder."""
        operand = self.builder.operand
        optimizers = self.decisions.optimizers
        mode = self.modes.current()
        # The three innermost frames are methods of this class.
        line = _NO_LINE if self.rerun else user_line(3)
        if mode is not None and not mode.grad and inside_custom_function():
            raise CannotRecord("a custom autograd.Function", str(user_line()), NO_FUNCTION)
        return RecordedAction(
            number,
            tuple([operand(arg) for arg in args]),
            {key: operand(value) for key, value in kwargs.items()} if kwargs else {},
            None,
            mode,
            line,
            optimizers[-1] if optimizers else None,
        )

    def _mark_written(self, flags: int, args: Arguments, kwargs: Keywords) -> Any:
        """Mark the tensors that a call is about to write to; returns the argument it mutates."""
        target = mutated_argument(flags, args, kwargs)
        if target is None and flags & INPLACE:
            target = kwargs.get("tensor")  # where torch.nn.init passes it
        for tensor in leaves(target):
            if isinstance(tensor, torch.Tensor):
                self.builder.mark_written(tensor)
        if flags & MUTATES_OTHERS and not flags & GRADIENT:
            for tensor in leaves((args, kwargs)):
                if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                    self.builder.mark_written(tensor)
        return target

    def _bind_result(
        self, action: RecordedAction, flags: int, given: tuple[Arguments, Keywords], result: Any
    ) -> Any:
        """Give the tensors of a result their slots; returns the result for the function."""
        self.reads_sizes = self.reads_sizes or action.op in SPLITS
        data_dependent = self._is_data_dependent(action, flags, given)
        action.out, result = self.builder.bind_result(result, data_dependent)
        return result

    def _is_data_dependent(
        self, action: RecordedAction, flags: int, given: tuple[Arguments, Keywords]
    ) -> bool:
        """Whether the shape of a result follows from values."""
        builder = self.builder
        if flags & SHAPE_FROM_VALUES and has_data_dependent_shape(action.op, *given):
            builder.has_data_dependent = True
            return True
        return builder.has_data_dependent and any(
            type(leaf) is PendingSlot and leaf.data_dependent
            for leaf in leaves((action.args, action.kwargs))
        )

    # -- numbers

    def _trace_metadata(
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
            return self._trace_operation(_TO, FLAGS[_TO], torch.Tensor.to, args, {})
        if number == LENGTH:
            self._trace_length(args[0], result)
        elif number in PROPERTY_OF:
            self._trace_property(PROPERTY_OF[number], args, kwargs)
        return result

    # Three frames lie between each of the next three methods and the code that called torch.

    def _trace_size(self, number: int, args: Arguments, kwargs: Keywords, result: Any) -> Any:
        """A size: symbolic if it is that of a tensor whose size may vary."""
        slot = self._slot_if_varying(args[0] if args else next(iter(kwargs.values())))
        if slot is None:
            return result
        self.reads_sizes = self.reads_sizes or not requested_by_library(5)
        return self._symbolic_result(number, slot, args, kwargs, result)

    def _trace_length(self, tensor: torch.Tensor, length: int) -> None:
        """``len()`` returns a plain int, so a length that may vary counts as a decision."""
        slot = None if requested_by_library(5) else self._slot_if_varying(tensor)
        if slot is not None:
            origin = Origin.VALUE if slot.data_dependent else Origin.SIZE
            self.reads_sizes = True
            self.on_decision("len() of a tensor", origin, length)

    def _trace_property(self, name: str, args: Arguments, kwargs: Keywords) -> None:
        """List a property if the user's code reads it from a tensor of the program."""
        if name not in self.properties_read and not requested_by_library(5):
            if any(map(self._is_in_program, leaves((args, kwargs)))):
                self.properties_read.add(name)

    def _is_in_program(self, value: Any) -> bool:
        """Whether a value is a tensor that is an input or a result of the program."""
        builder = self.builder
        return builder.snapshot_of(value) is None and builder.slot_of(value) is not None

    def _slot_if_varying(self, tensor: torch.Tensor) -> PendingSlot | None:
        """The slot of a tensor whose size may be another at the next call; else None."""
        builder = self.builder
        if builder.in_branch:
            slot = builder.operand(tensor)
            assert type(slot) is PendingSlot
            return slot
        return None if builder.snapshot_of(tensor) is not None else builder.slot_of(tensor)

    def _symbolic_result(
        self, number: int, slot: PendingSlot, args: Arguments, kwargs: Keywords, result: Any
    ) -> Any:
        """Record an action that makes numbers; returns them as symbolic ones."""
        action = self.new_action(number, args, kwargs)
        self.builder.saw_symbolic = False
        origin = Origin.VALUE if slot.data_dependent else Origin.SIZE
        if not isinstance(result, tuple):
            return self._add_number_action(action, result, origin)
        scope = self.builder.scope
        action.out = tuple([PendingSlot(scope) for _ in result])
        pairs = zip(result, action.out, strict=True)
        items: list[Any] = [symbolic(item, self.handle, part, origin) for item, part in pairs]
        if items:
            self.builder.actions.append(action)
        return torch.Size(items) if type(result) is torch.Size else tuple(items)

    def _add_number_action(
        self, action: RecordedAction, result: int | float, origin: Origin
    ) -> Any:
        """Record an action that makes one number; returns it as a symbolic one."""
        action.out = PendingSlot(self.builder.scope)
        self.builder.actions.append(action)
        return symbolic(result, self.handle, action.out, origin)

    def _trace_value(
        self, number: int, function: Function, args: Arguments, kwargs: Keywords
    ) -> Any:
        """Run a function that returns values: a number from ``item()`` becomes symbolic."""
        if number != ITEM:
            result = function(*replace(args, concrete), **replace(kwargs, concrete))
            self.on_decision(name_of(function), Origin.VALUE, result)
            return result
        action = self.new_action(number, args, kwargs)
        result = function(*args, **kwargs)
        if not isinstance(result, (int, float)):
            self.on_decision("item() of a complex number", Origin.VALUE, result)
            return result
        if self.rerun and not isinstance(result, bool):
            result += 1
        return self._add_number_action(action, result, Origin.VALUE)

    def record_arithmetic(self, name: str, operands: tuple[Any, ...]) -> PendingSlot:
        """Record arithmetic on numbers."""
        return self._record_unrun(f"syft.ops.numbers.{name}", *operands)

    def record_comparison(self, name: str, operands: tuple[Any, ...]) -> PendingSlot:
        """Record a comparison of numbers, by ops on tensors: the op table has none on numbers."""
        first, second = operands
        dtype = torch.float64 if isinstance(first, float) else torch.int64
        tensor = self._record_unrun("torch.scalar_tensor", first, dtype=dtype)
        answer = self._record_unrun(f"torch.Tensor.{name}", tensor, second)
        return self._record_unrun("torch.Tensor.item", answer)

    def _record_unrun(self, name: str, *operands: Any, **keywords: Any) -> PendingSlot:
        """Record an action with one result without running it; operands may be slots."""
        action = self.new_action(BY_NAME[name], operands, keywords)
        self.builder.saw_symbolic = False
        action.out = slot = PendingSlot(self.builder.scope)
        self.builder.actions.append(action)
        return slot

    def on_decision(self, what: str, origin: Origin, value: Any) -> None:
        """Called when Python decides by a value: only the path taken now is recorded."""
        self.decisions.add(what, origin, value)

    # -- programs inside this one

    @contextlib.contextmanager
    def nested_builder(self) -> Iterator[ProgramBuilder]:
        """A context in which another program is built, which goes into the current one."""
        around, modes = self.builder, self.modes
        self.builder, self.modes = ProgramBuilder(next(self._scopes)), ModeChanges()
        try:
            yield self.builder
        finally:
            with self.paused():
                self.builder.restore()
            self.builder, self.modes = around, modes

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A context in which nothing is recorded."""
        token, self._is_paused = RECORDING.set(None), True
        try:
            yield
        finally:
            self._is_paused = False
            RECORDING.reset(token)
