"""Runs one operation on tensors and records it as an action, with all that it does to others.

It writes to arguments, draws random numbers, runs backward, or has results whose shape follows from
values: the flags of the op table say which.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import torch

from syft.exceptions import CannotRecord
from syft.ops.calls import mutated_argument
from syft.ops.nested import Arguments, Keywords, leaves, replace
from syft.ops.table import (
    GRADIENT,
    INPLACE,
    INPLACE_OPTION,
    MUTATES_OTHERS,
    NOTHING,
    RANDOM,
    READS_GRADIENT,
    SHAPE_FROM_VALUES,
    SPLITS,
    Function,
)
from syft.program.held_actions import HeldAction
from syft.program.program import RoleMark, slots_in
from syft.program.recording.builder import ProgramBuilder
from syft.program.recording.decisions import DecisionLog
from syft.program.recording.environment.random_state import PreservedRandomState
from syft.program.recording.environment.source_line import SourceLine, user_line
from syft.program.recording.gradients import GradientTracker
from syft.program.recording.op_facts import has_data_dependent_shape
from syft.program.recording.symbolic import concrete
from syft.program.torch_modes import ModeChanges
from syft.torch_private import custom_function, inside_custom_function

_BACKWARD: Final = GRADIENT | MUTATES_OTHERS
_MAY_WRITE: Final = INPLACE | INPLACE_OPTION | MUTATES_OTHERS
_HAS_EFFECTS: Final = INPLACE | MUTATES_OTHERS | NOTHING | RANDOM

_NO_LINE: Final = SourceLine("", 0)


class OperationTracer:
    """What one run of a function has recorded so far, and how an operation is added to it.

    With ``rerun`` it looks up no lines, and the sizes are not those that the user has chosen.

    >>> from syft.ops.table import BY_NAME
    >>> number = BY_NAME["torch.ones"]
    >>> tracer = OperationTracer(True, DecisionLog(), PreservedRandomState(), GradientTracker())
    >>> tracer.trace_operation(number, 0, torch.ones, (2,), {})
    tensor([1., 1.])
    >>> [action.op == number for action in tracer.builder.actions]
    [True]
    """

    checked: ClassVar[dict[int, Function]] = {}
    """By number: what is called in a rerun instead of a function of torch that does not look at the
    sizes of its operands, and would write past their memory."""

    def __init__(
        self,
        rerun: bool,
        decisions: DecisionLog,
        random_state: PreservedRandomState,
        gradients: GradientTracker,
    ) -> None:
        self.rerun = rerun
        self.decisions = decisions
        self.random_state = random_state
        self.gradients = gradients
        self.builder = ProgramBuilder(0)
        self.modes = ModeChanges()
        self.mark: RoleMark | None = None
        """What is known of the role that takes the actions that follow."""
        self.reads_sizes = False
        """Whether the user's code reads sizes."""

    def trace_random(
        self, number: int, flags: int, function: Function, args: Arguments, kwargs: Keywords
    ) -> Any:
        """Run and record an operation that may draw random numbers."""
        generator = kwargs.get("generator")
        self.random_state.before_draw(generator, user_line())
        result = self.trace_operation(number, flags, function, args, kwargs)
        self.random_state.after_draw(generator)
        return result

    def trace_operation(
        self, number: int, flags: int, function: Function, args: Arguments, kwargs: Keywords
    ) -> Any:
        """Run and record an operation on tensors."""
        builder = self.builder
        if self.rerun:
            function = self.checked.get(number, function)
        given = args, kwargs
        action = self.new_action(number, args, kwargs)
        if builder.saw_symbolic:
            builder.saw_symbolic = False
            args, kwargs = replace(args, concrete), replace(kwargs, concrete)
        target = None
        if flags & _MAY_WRITE or "out" in kwargs:
            target = self._mark_written(flags, args, kwargs)
        if flags & READS_GRADIENT:
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
    ) -> HeldAction:
        """An action of the current line and modes; the caller adds it to the builder."""
        operand = self.builder.operand
        optimizers = self.decisions.optimizers
        mode = self.modes.current()
        # The three innermost frames are methods of the tracer.
        line = _NO_LINE if self.rerun else user_line(3)
        if mode is not None and not mode.grad and inside_custom_function():
            what, instead = custom_function()
            raise CannotRecord(what, str(user_line()), instead)
        return HeldAction(
            number,
            tuple([operand(arg) for arg in args]),
            {key: operand(value) for key, value in kwargs.items()} if kwargs else {},
            None,
            mode,
            line,
            optimizers[-1] if optimizers else None,
            self.mark,
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
        self, action: HeldAction, flags: int, given: tuple[Arguments, Keywords], result: Any
    ) -> Any:
        """Give the tensors of a result their slots; returns the result for the function."""
        self.reads_sizes = self.reads_sizes or bool(flags & SPLITS)
        data_dependent = self._is_data_dependent(action, flags, given)
        action.out, result = self.builder.bind_result(result, data_dependent)
        return result

    def _is_data_dependent(
        self, action: HeldAction, flags: int, given: tuple[Arguments, Keywords]
    ) -> bool:
        """Whether the shape of a result follows from values."""
        builder = self.builder
        if flags & SHAPE_FROM_VALUES and has_data_dependent_shape(action.op, *given):
            builder.has_data_dependent = True
            return True
        return builder.has_data_dependent and any(
            slot.index in builder.data_dependent for slot in slots_in((action.args, action.kwargs))
        )
