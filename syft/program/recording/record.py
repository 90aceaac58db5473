"""Recording: run a function, and keep what it did as a program.

A mode of torch sees every torch call the function makes (:mod:`syft.program.recording.tracer`).
What the mode does not see would be missing without an error.  So the function is run again and the
programs are compared (:mod:`syft.program.recording.record`), and what is known to be invisible is
refused by name.

Afterwards the parameters and buffers that the function uses, their gradients and the random
generators are as they were before.

Verifies a recording by further runs: what differs between them is what the tracer cannot see.

The runs have other sizes (:mod:`syft.program.recording.input_sizes`) and other numbers (one is
added to those read from tensors).  What depends on sizes and numbers is part of a program, so all
runs give the same program, except in three cases:

- The program expects other sizes or numbers: Python decided by them, and a call of the recording
  with others is refused.  Such a run is compared no further.
- A tensor is another object.  It was made in a way the tracer cannot see (``torch.Tensor([…])``,
  numpy), or the function keeps it from one call to the next.  That is refused.
- A number or an operation differs.  Python computed or decided something, which is frozen in the
  program, and the user is warned with the line.

A function that does not read sizes needs one further run.  One that does is run until each
dimension has been varied once, or could not be.  One run at least expects what the first did.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from syft.exceptions import CannotRecord
from syft.ops.nested import container_class, replace
from syft.program.held_actions import HeldAction
from syft.program.program import Action, Program, Slot
from syft.program.recording.decisions import warn_frozen
from syft.program.recording.environment.snapshot import Snapshot
from syft.program.recording.environment.source_line import SourceLine, last_line_of
from syft.program.recording.input_sizes import (
    UNCHANGED,
    Axis,
    Variation,
    axes_of,
    axis_groups,
    row_variations,
    vary_all_axes,
)
from syft.program.recording.recorded_actions import EXPECT
from syft.program.recording.trace import FunctionTrace, trace_function


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded function.

    ``captured`` are the tensors from outside that belong to its state although they were not named
    as such: they require a gradient, are parameters, or were written to.  They follow the named
    ones in the program's state.  ``result`` is what the function returned.  ``fixed`` names the
    properties of tensors that the function read, such as ``dtype``.  The program contains their
    values, so it fits only inputs with the same ones.  ``constants`` are the other tensors from
    outside, of which the program has copies.
    """

    program: Program
    captured: tuple[torch.Tensor, ...]
    result: Any
    fixed: frozenset[str] = frozenset()
    constants: tuple[torch.Tensor, ...] = ()


def record(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    state: Sequence[torch.Tensor] = (),
    check: bool = True,
    options: int = 0,
) -> Recording:
    """Run ``function(*inputs)`` and keep what it did as a program.

    ``inputs`` are tensors and numbers; the function gets clones.  ``state`` are tensors that the
    function uses, which become the first state slots of the program, in this order.  With ``check``
    the function runs again with other sizes, once or (if it reads sizes) a few times, to find what
    a program cannot keep.  The last ``options`` of the inputs are numbers that keep their sign in
    further runs, and stay zero if they are.

    Raises :class:`~syft.exceptions.CannotRecord` for what a program cannot keep, and warns with
    :class:`~syft.exceptions.FrozenPath` where Python decided by a value.

    >>> recording = record(lambda x: torch.ones(x.shape[0]) + x, [torch.zeros(3)])
    >>> [action.name for action in recording.program.actions]
    ['torch.Tensor.shape.__get__', 'torch.ones', 'torch.Tensor.add']
    >>> from syft.program.lowered import Lowered
    >>> Lowered(recording.program).run([torch.zeros(2)])
    tensor([1., 1.])
    """
    first = trace_function(function, inputs, state)
    if check and (made := verify(function, inputs, state, first, options)):
        first = trace_function(function, inputs, state, made=made)
        verify(function, inputs, state, first, options, made)
    captured = {id(tensor) for tensor in first.captured}
    outside = [snapshot.tensor for snapshot in first.snapshots]
    constants = tuple([tensor for tensor in outside if id(tensor) not in captured])
    return Recording(first.program, first.captured, first.result, first.properties_read, constants)


_MOST_RUNS = 24
"""The largest number of further runs of a function whose inputs have many dimensions."""


def verify(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    state: Sequence[torch.Tensor],
    first: FunctionTrace,
    options: int = 0,
    made: frozenset[int] = frozenset(),
) -> frozenset[int]:
    """Run the function again and compare; refuse or warn about what differs.

    A function that accepts no other sizes is run with the same ones.  If it raises then too, it can
    run only once, and its first run is accepted.

    Returns which of the tensors from outside the function makes itself of numbers, where torch
    shows nothing of it: each run had another with the same values.  A recording that knows it,
    by ``made``, makes them anew in each call.
    """
    verification = _Verification(function, inputs, state, first, options, made)
    verification.vary_rows()
    verification.vary_other_axes()
    if not verification.succeeded:
        verification.run(UNCHANGED)
    return frozenset(verification.made)


class _Verification:
    """The further runs of one function, and what they showed."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        state: Sequence[torch.Tensor],
        first: FunctionTrace,
        options: int,
        made: frozenset[int] = frozenset(),
    ) -> None:
        self._made_known = made
        self.made = set(made)
        """Which of the tensors from outside are others with the same values in each run."""
        self._function, self._inputs, self._state, self._first = function, inputs, state, first
        self._options = options
        self._axes = axes_of(inputs)
        self._state_lengths = {length for tensor in state for length in tensor.shape}
        self._state_lengths.update(n for snapshot in first.snapshots for n in snapshot.tensor.shape)
        self._varied: set[Axis] = set()
        self._warned = set(first.warned_lines)
        self._runs = 0
        self.succeeded = False
        """Whether a run went as the first one."""

    # -- the runs

    def run(self, variation: Variation) -> bool:
        """Run the function on other inputs; returns whether it accepted them."""
        if self._runs >= _MOST_RUNS and variation is not UNCHANGED:
            return False
        self._runs += 1
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                values = variation(self._inputs, self._options)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                again = trace_function(
                    self._function,
                    values,
                    self._state,
                    rerun=True,
                    generators=self._first.generators,
                    made=self._made_known,
                )
        except CannotRecord:
            raise
        except Exception:  # whatever the user's function raises about a size
            return False
        self._varied.update(variation.lengths)
        if variation is UNCHANGED or _expected_in(again) == _expected_in(self._first):
            self.succeeded = True
            self._compare(again)
        return True

    def vary_rows(self) -> None:
        """Lengthen the rows; all axes at once if the function reads sizes."""
        if self._first.reads_sizes and self.run(vary_all_axes(self._axes)):
            return
        first, *others = row_variations(self._axes, 4 if self._first.reads_sizes else 2)
        if self.run(first):
            return
        for variation in others:
            if self.run(variation):
                break
        if any(type(value) in (int, float) for value in self._inputs):
            self.run(Variation({}, numbers=True))

    def vary_other_axes(self) -> None:
        """Lengthen each axis that no run has varied yet, if the function reads sizes."""
        if not self._first.reads_sizes:
            return
        rest = self._axes.keys() - self._varied
        for groups in axis_groups(self._axes, rest):
            for group in groups:
                if (
                    not self._varied.issuperset(group)
                    and self._lengthen(group)
                    and group is groups[0]
                ):
                    break

    def _lengthen(self, group: list[Axis]) -> bool:
        lengths = {axis: self._axes[axis] for axis in group}
        if self.run(Variation({axis: length + 1 for axis, length in lengths.items()})):
            return True
        if self._state_lengths.issuperset(lengths.values()):
            return False  # the sizes of parameters explain it
        return self.run(Variation({axis: length * 2 for axis, length in lengths.items()}))

    # -- what they showed

    def _compare(self, again: FunctionTrace) -> None:
        self.made |= _compare_tensors(self._first, again)
        _compare_generators(self._first, again)
        self._compare_actions(again)

    def _compare_actions(self, again: FunctionTrace) -> None:
        """Warn about the numbers and operations that are different in this run."""
        first = self._first
        one, other = first.program.actions, again.program.actions
        for recorded, action, repeated in itertools.zip_longest(first.actions, one, other):
            if action is None or repeated is None or not _makes_alike(action, repeated):
                self._frozen(recorded, "another size or number changes which operations run; that")
                return
            if not _equal_with_nan((action.args, action.kwargs), (repeated.args, repeated.kwargs)):
                self._frozen(recorded, f"a number that Python computed for {action.name}")
        if not self._warned and not _equal_with_nan(first.program.outputs, again.program.outputs):
            self._frozen(None, "a number or a name that Python made for the result")

    def _frozen(self, action: HeldAction | None, what: str) -> None:
        """Warn that something is frozen in the program, at the line of an action."""
        if action is None and not self._first.actions and self._warned:
            return  # the program is empty, and the user was warned of the decision that led there
        line = str(self._last_line() if action is None else action.line)
        if action is not None and action.optimizer is not None:
            instead = "it computes with the value of a tensor in a way torch shows nothing of"
            raise CannotRecord(action.optimizer, line, instead)
        if line not in self._warned:
            self._warned.add(line)
            warn_frozen(line, what)

    def _last_line(self) -> SourceLine:
        actions = self._first.actions
        return actions[-1].line if actions else last_line_of(self._function)


def _makes_alike(one: Action, other: Action) -> bool:
    """Whether two actions are the same operation with as many results."""
    return one.op == other.op and one.out == other.out


def _expected_in(trace: FunctionTrace) -> list[Any]:
    """What the program of a run expects, without the slots of numbers: which way Python went."""
    return [
        replace(action.args, lambda leaf: None if type(leaf) is Slot else leaf)
        for action in trace.program.actions
        if action.op == EXPECT
    ]


MOST_BYTES: Final = 1 << 20
"""The size of a tensor of numbers of Python or numpy that a function makes, as a constant."""


def _compare_tensors(first: FunctionTrace, second: FunctionTrace) -> set[int]:
    """Refuse tensors from outside that are other objects in each run, unless they are constants.

    Returns the places of those that are.
    """
    made = {id(value) for value in first.objects}
    again = {id(snapshot.tensor) for snapshot in second.snapshots}
    known = {id(snapshot.tensor) for snapshot in first.snapshots}
    constants: set[int] = set()
    for place, snapshot in enumerate(second.snapshots):
        tensor = snapshot.tensor
        if id(tensor) in known:
            continue
        if id(tensor) in made:
            instead = (
                "let it exist before the plan is built (for an optimizer: take one step first), "
                "and write to it in place"
            )
            what = "a tensor that the function keeps from one call to the next"
            raise CannotRecord(what, str(snapshot.line), instead)
        before = first.snapshots[place] if place < len(first.snapshots) else snapshot
        refusal = _DIFFERS if id(before.tensor) in again else _why_no_constant(before, snapshot)
        if refusal is not None:
            what, instead = refusal
            raise CannotRecord(what, str(snapshot.line), instead)
        constants.add(place)
    return constants


_UNSEEN: Final = "a tensor that is made where torch shows nothing of it"
_ORDINARY: Final = "make it by an ordinary function such as torch.tensor"
_DIFFERS: Final = f"{_UNSEEN}, and differs between two runs", _ORDINARY


def _why_no_constant(one: Snapshot, other: Snapshot) -> tuple[str, str] | None:
    """Why what two runs have made is no constant, and what to do instead; None if it is one: the
    same tensor, and nobody writes to it or asks for its gradient."""
    if isinstance(other.tensor, nn.Parameter):
        return "a parameter that the function makes", "make or copy its module before, and use that"
    if type(one.tensor) is not torch.Tensor:
        return f"{_UNSEEN}, of the class {type(one.tensor).__name__}", _ORDINARY
    if one.copy.nbytes > MOST_BYTES:
        return f"{_UNSEEN}, of more than a megabyte", "make it before, and let the function use it"
    for each in (one, other):
        if each.is_written or each.changed_unseen or each.tensor.requires_grad:
            return f"{_UNSEEN}, and then written to or trained", f"use its clone(), or {_ORDINARY}"
    return None if _contents(one.copy) == _contents(other.copy) else _DIFFERS


def _contents(tensor: torch.Tensor) -> tuple[Any, ...]:
    words = tensor.cpu().reshape(-1).view(torch.uint8)
    return tensor.dtype, tensor.device, tensor.shape, words.numpy().tobytes()


def _compare_generators(first: FunctionTrace, second: FunctionTrace) -> None:
    """Refuse random generators that the function makes itself."""
    known = {id(generator) for generator in first.generators}
    for generator, line in second.generators.items():
        if id(generator) not in known:
            instead = "make it before, or draw from the default generator"
            raise CannotRecord("a torch.Generator that the function makes", str(line), instead)


def _equal_with_nan(one: Any, other: Any) -> bool:
    """Equality in which a NaN equals a NaN."""
    if one == other:
        return True
    if type(one) is not type(other):
        return False
    compare = _COMPARE_CONTAINERS.get(container_class(type(one)), _are_nan)
    return compare(one, other)


def _are_nan(one: Any, other: Any) -> bool:
    return isinstance(one, float) and math.isnan(one) and math.isnan(other)


def _equal_items(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(_equal_with_nan, one, other))


def _equal_values(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    return one.keys() == other.keys() and all(_equal_with_nan(one[key], other[key]) for key in one)


_COMPARE_CONTAINERS: Final[dict[type | None, Callable[[Any, Any], bool]]] = {
    tuple: _equal_items,
    list: _equal_items,
    dict: _equal_values,
}
