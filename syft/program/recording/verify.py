"""Further runs of a recorded function: what differs is what the recorder cannot see.

They have other sizes (:mod:`syft.program.recording.input_sizes`) and other numbers (those taken
from tensors are moved by one).  A program keeps what depends on them; so all programs are the same,
unless

- a tensor in them is another object: it was made where torch shows nothing (``torch.Tensor([…])``,
  numpy), or the function keeps it from one call to the next.  That is refused;
- a number or an operation differs: Python computed or decided something.  That is frozen in the
  program, and the user is told where.

A decision by a size counts only if that size can be another.  A size is believed to be fixed if
torch itself takes no other: an operation of the program would raise too.  If the user's own code
raises (an assertion), or if the parameters do not explain why torch does, the decisions on the way
there count.

One further run is enough for a function that does not look at sizes.  One that does is run until
each dimension was another once, or could not be.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

import torch

from syft.exceptions import CannotRecord
from syft.program.recording.builder import Noted
from syft.program.recording.input_sizes import (
    SAME,
    Axis,
    Growth,
    axes_of,
    groups_of,
    row_growths,
    whole,
)
from syft.program.recording.source_line import SourceLine, end_of, is_ours
from syft.program.recording.trace import Take, take
from syft.program.recording.tracer import Decision, warn_frozen

_MOST_RUNS = 24
"""So often a function with inputs of many dimensions is run at most."""


def confirm(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    state: Sequence[torch.Tensor],
    first: Take,
) -> None:
    """Run the function again and compare; refuse or warn about what differs.

    A function that takes no other size is run at the same one; if it fails then too, it is one that
    can run only once, and is believed.
    """
    check = _Check(function, inputs, state, first)
    check.grow_rows()
    check.grow_other_axes()
    if check.succeeded or check.run(SAME):
        check.judge_failures()
    else:
        check.warn_of(first.decisions)


class _Check:
    """The further runs of one function, and what they showed."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        state: Sequence[torch.Tensor],
        first: Take,
    ) -> None:
        self._function, self._inputs, self._state, self._first = function, inputs, state, first
        self._axes = axes_of(inputs)
        self._state_lengths = {length for tensor in state for length in tensor.shape}
        self._state_lengths.update(n for met in first.met for n in met.tensor.shape)
        self._varied: set[Axis] = set()
        self._failures: list[tuple[Growth, list[Decision], bool]] = []
        self._warned = set(first.warned)
        self._runs = 0
        self.succeeded = False

    # -- the runs

    def run(self, growth: Growth) -> bool:
        """Run the function on other inputs; whether it took them."""
        if self._runs >= _MOST_RUNS and growth is not SAME:
            return False
        self._runs += 1
        decisions: list[Decision] = []
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                values = growth(self._inputs)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                again = take(
                    self._function,
                    values,
                    self._state,
                    again=True,
                    decisions=decisions,
                    generators=self._first.generators,
                )
        except CannotRecord:
            raise
        except Exception as error:  # whatever the user's function raises about a size
            self._failures.append((growth, decisions, _raised_by_user(error.__traceback__)))
            return False
        self.succeeded = True
        self._varied.update(growth.lengths)
        self._compare(again)
        return True

    def grow_rows(self) -> None:
        """Let the rows be more: all axes at once if the function looks at sizes, else rows."""
        if self._first.looks and self.run(whole(self._axes)):
            return
        first, *others = row_growths(self._axes, 4 if self._first.looks else 2)
        if self.run(first):
            return
        for growth in others:
            if self.run(growth):
                break
        if any(type(value) in (int, float) for value in self._inputs):
            self.run(Growth({}, numbers=True))

    def grow_other_axes(self) -> None:
        """Let each axis be longer that was not, if the function looks at sizes."""
        if not self._first.looks:
            return
        rest = self._axes.keys() - self._varied
        for groups in groups_of(self._axes, rest):
            for group in groups:
                if not self._varied.issuperset(group) and self._grow(group) and group is groups[0]:
                    break

    def _grow(self, group: list[Axis]) -> bool:
        lengths = {axis: self._axes[axis] for axis in group}
        if self.run(Growth({axis: length + 1 for axis, length in lengths.items()})):
            return True
        if self._state_lengths.issuperset(lengths.values()):
            return False  # the parameters say why
        return self.run(Growth({axis: length * 2 for axis, length in lengths.items()}))

    # -- what they showed

    def judge_failures(self) -> None:
        """Warn about decisions by sizes that the function was not seen to take."""
        for growth, decisions, by_user in self._failures:
            axes = growth.lengths.keys()
            if len(set(map(self._axes.__getitem__, axes))) != 1 or self._varied.issuperset(axes):
                continue  # several lengths at once: each was tried by itself
            explained = any(self._axes[axis] in self._state_lengths for axis in axes)
            if by_user or not explained:
                self._compare_decisions(decisions)

    def warn_of(self, decisions: Iterable[Decision]) -> None:
        """Warn about decisions."""
        for line, what, _ in decisions:
            if line not in self._warned:
                self._warned.add(line)
                warn_frozen(line, what)

    def _compare(self, again: Take) -> None:
        _compare_tensors(self._first, again)
        _compare_generators(self._first, again)
        self._compare_decisions(again.decisions)
        self._compare_actions(again)

    def _compare_decisions(self, others: Sequence[Decision]) -> None:
        """Warn about what Python decided by a size that was another this time."""
        pairs = zip(self._first.decisions, others, strict=False)
        alike = itertools.takewhile(lambda pair: pair[0][:2] == pair[1][:2], pairs)
        self.warn_of([one for one, other in alike if one[2] != other[2]])

    def _compare_actions(self, again: Take) -> None:
        """Warn about the numbers and operations that are others this time."""
        first = self._first
        one, other = first.program.actions, again.program.actions
        for noted, action, repeated in itertools.zip_longest(first.noted, one, other):
            if action is None or repeated is None or action.op != repeated.op:
                self._frozen(noted, "another size or number changes which operations run; that")
                return
            if not _same((action.args, action.kwargs), (repeated.args, repeated.kwargs)):
                self._frozen(noted, f"a number that Python computed for {action.name}")
            elif not _same(action.out, repeated.out):
                self._frozen(noted, f"the number of results of {action.name}")
        if not self._warned and not _same(first.program.outputs, again.program.outputs):
            self._frozen(None, "a number or a name that Python made for the result")

    def _frozen(self, noted: Noted | None, what: str) -> None:
        if noted is None and not self._first.noted and self._warned:
            return  # nothing was done at all, and the user knows which decision led there
        line = str(noted.line if noted is not None else self._last_line())
        if noted is not None and noted.optimizer is not None:
            instead = "it computes with the value of a tensor in a way torch shows nothing of"
            raise CannotRecord(noted.optimizer, line, instead)
        self.warn_of([(line, what, None)])

    def _last_line(self) -> SourceLine:
        noted = self._first.noted
        return noted[-1].line if noted else end_of(self._function)


def _raised_by_user(traceback: TracebackType | None) -> bool:
    """Whether it was not torch that raised, but the code that is recorded."""
    file = ""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        traceback = traceback.tb_next
    return not is_ours(file)


def _compare_tensors(first: Take, second: Take) -> None:
    """Refuse tensors that are others each time."""
    made = {id(value) for value in first.made}
    known = {id(snapshot.tensor) for snapshot in first.met}
    for snapshot in second.met:
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
        what = "a tensor that is made where torch shows nothing of it"
        instead = (
            "make it by an ordinary function such as torch.tensor, not by torch.Tensor([...]), "
            "numpy or a custom autograd.Function"
        )
        raise CannotRecord(what, str(snapshot.line), instead)


def _compare_generators(first: Take, second: Take) -> None:
    """Refuse random generators that the function makes itself."""
    known = {id(generator) for generator in first.generators}
    for generator, line in second.generators.items():
        if id(generator) not in known:
            instead = "make it before, or draw from the default generator"
            raise CannotRecord("a torch.Generator that the function makes", str(line), instead)


def _same(one: Any, other: Any) -> bool:
    """Equality in which a NaN equals a NaN."""
    if one == other:
        return True
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return False
