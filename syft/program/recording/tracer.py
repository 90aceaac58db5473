"""Sees the torch calls of a function while it runs, and records them as actions.

It is a ``TorchFunctionMode``, so it sees calls above autograd: operators, methods, functions and
factories, properties and their setters, ``backward`` and what an optimizer does in its ``step``.
What a function of torch does inside is part of that one action.

How an operation and how a number are recorded is in the files of the two classes it inherits from.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from syft.exceptions import CannotRecord
from syft.ops.calls import DECOMPOSITIONS
from syft.ops.control import RECORDING
from syft.ops.nested import Arguments, Keywords, leaves
from syft.ops.table import BY_NAME, FLAGS, METADATA, NUMBERS, RANDOM, REVEALS, Function, name_of
from syft.program.recording.builder import FOREIGN, ProgramBuilder, refuse_foreign
from syft.program.recording.decisions import DecisionLog
from syft.program.recording.environment.random_state import PreservedRandomState
from syft.program.recording.environment.source_line import user_line
from syft.program.recording.gradients import GradientTracker
from syft.program.recording.number_tracer import NumberTracer
from syft.program.recording.op_facts import (
    MAKERS,
    PARTS,
    check_deep_copy,
    copied_deeply,
    run_unlisted,
)
from syft.program.torch_modes import ModeChanges
from syft.torch_private import DisableTorchDispatch

_NEW, _NEW_EMPTY = BY_NAME["torch.Tensor.new"], BY_NAME["torch.Tensor.new_empty"]
_RETURNS_PYTHON_VALUES: Final = METADATA | REVEALS


def _number_of(function: Function) -> int | None:
    try:
        return NUMBERS.get(function)
    except TypeError:  # it has no hash, so no table holds it
        return None


class Tracer(TorchFunctionMode, NumberTracer):
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
        made: Collection[int] = (),
    ) -> None:
        TorchFunctionMode.__init__(self)
        NumberTracer.__init__(
            self,
            rerun,
            DecisionLog(rerun) if decisions is None else decisions,
            PreservedRandomState() if random_state is None else random_state,
            GradientTracker() if gradients is None else gradients,
        )
        self.builder = ProgramBuilder(0, made=made)
        self.refusals: list[tuple[str, str, str]] = []
        """The parts of each refusal that was raised, even if the function caught it."""
        self.instead: Mapping[int, Function] = DECOMPOSITIONS
        """By number: what is called, and recorded, instead of a function of torch."""
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
        number = _number_of(function)
        if number is None:
            return self._trace_unlisted(function, args, kwargs)
        if number == _NEW and isinstance(args[-1], torch.Size):
            number, function = _NEW_EMPTY, torch.Tensor.new_empty  # a tuple would be the values
        if number in self.instead:
            with self:
                return self.instead[number](*args, **kwargs)
        flags = FLAGS[number]
        if flags & _RETURNS_PYTHON_VALUES:
            trace = self.trace_metadata if flags & METADATA else self.trace_value
            return trace(number, function, args, kwargs)
        if flags & RANDOM:
            return self.trace_random(number, flags, function, args, kwargs)
        if number in PARTS:
            self.expect_parts(number, args, kwargs)
        elif number in MAKERS and any(isinstance(leaf, np.ndarray) for leaf in leaves(args)):
            return function(*args, **kwargs)  # a tensor that is a constant, unless it is written to
        return self.trace_operation(number, flags, function, args, kwargs)

    def _trace_unlisted(self, function: Function, args: Arguments, kwargs: Keywords) -> Any:
        """Run a function that has no number: as operations if it is a copy, else unrecorded."""
        if function is not torch.Tensor.__deepcopy__:
            return run_unlisted(function, args, kwargs)
        check_deep_copy(args[0])
        self.properties_read.add("requires_grad")  # it says how a tensor is copied
        with self:
            return copied_deeply(*args)

    # -- programs inside this one

    @contextlib.contextmanager
    def nested_builder(self) -> Iterator[ProgramBuilder]:
        """A context in which another program is built, which goes into the current one."""
        around, modes = self.builder, self.modes
        self.builder, self.modes = ProgramBuilder(next(self._scopes), around), ModeChanges()
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
