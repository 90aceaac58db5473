"""The trace of lazy tensors: what was recorded and has not run, and how a part of it runs.

All lazy tensors of a process share one trace, so that writes and reads keep their order across
them.  When a value is asked, the *slice* that it rests on is taken out of the trace: the operations
that make it, those that write to memory which they read, and earlier readers of memory that they
write to.  The slice runs as one program, and of each operation the results are kept that somebody
can still ask for.  So each runs at most once; what nobody can ask for any more never runs.

One lock is held while something is recorded or run: torch's backward pass may come from other
threads.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import torch

from syft.callers import Place, line_at
from syft.exceptions import ProgramError, StaleOperand
from syft.program.lowered import LOST, Partial
from syft.tensors.lazy.call_kinds import CallKind
from syft.tensors.lazy.lazy_values import LazyValue
from syft.tensors.lazy.lowered_slices import LoweredSlice, SliceCache
from syft.torch_private import DisableTorchFunction, below_autograd

MOST_PENDING: Final = 10_000
"""So many operations may be pending; with one more, all that somebody can ask for run."""


_AT_ONCE: Final = os.environ.get("SYFT_LAZY") == "0"
"""Whether each operation runs at its line, whatever the program says."""

RunProgram = Callable[[LoweredSlice, list[Any]], Any]
"""What runs a program on its inputs."""


class PendingCall:
    """A recorded operation that has not run, and where it was recorded.

    ``handles`` are the links over its new results.
    """

    __slots__ = ("kind", "operands", "floats", "handles", "place", "start")

    def __init__(
        self, kind: CallKind, operands: Sequence[LazyValue], floats: list[float], place: Place
    ) -> None:
        self.kind, self.operands, self.floats, self.place = kind, operands, floats, place
        self.handles: Sequence[weakref.ref[Any]] = ()
        self.start = 0

    def give_up(self, error: Exception) -> None:
        """Note an error with the results that somebody can ask for, and let go of the operands."""
        for handle in self.handles:
            link = handle()
            if link is not None:
                link.value.error, link.value.node = error, None
        self.operands = self.handles = ()

    def writes(self) -> list[LazyValue]:
        """The roots of the memory that it writes."""
        return [self.operands[place].root for place in self.kind.writes]


class LazyTrace:
    """Operations in the order in which they were recorded.

    >>> LazyTrace().pending
    []
    """

    __slots__ = ("pending", "lock", "programs", "at_once", "ran", "run_program")

    def __init__(self) -> None:
        self.pending: list[PendingCall] = []
        self.lock = threading.RLock()
        self.programs = SliceCache()
        self.at_once = _AT_ONCE
        """Whether each operation runs at its line."""
        self.ran = 0
        """How many operations have run as parts of programs."""
        self.run_program: RunProgram = LoweredSlice.run
        """What runs a program that was found or made."""

    def run_by(self, run_program: RunProgram | None, at_once: bool) -> tuple[RunProgram, bool]:
        """Have something else run programs, or each operation run at its line from now on; returns
        what was so before."""
        before = self.run_program, self.at_once
        self.run_program = run_program or self.run_program
        self.at_once = at_once or _AT_ONCE
        return before

    # ------------------------------------------------------------------------------- recording

    def add(self, call: PendingCall) -> None:
        """Add an operation; run what is pending where there is too much of it."""
        pending = self.pending
        pending.append(call)
        if self.at_once:
            self._run_at_line(call)
        elif len(pending) > MOST_PENDING:
            self.flush()

    def check_operands(self, operands: Iterable[LazyValue]) -> None:
        """Raise the error of an operand that failed, or of one that was changed by others."""
        for value in operands:
            if value.error is not None:
                raise value.error
            root = value.base or value
            if root.watched is not None and root.has_changed():
                self.check_unchanged(root)

    def check_unchanged(self, root: LazyValue) -> None:
        """Look whether somebody else has written to memory that pending operations read.

        Raises :class:`~syft.exceptions.StaleOperand`, which names the operation that was recorded
        before the write, and gives up whatever depends on it.
        """
        if not root.has_changed():
            return
        root.look_again()
        reader = next((one for one in self.pending if _reads(one, root)), None)
        if reader is not None:
            error = StaleOperand(str(reader.kind.facts.overload), line_at(reader.place))
            self._give_up({root}, set(), error)
            raise error

    def _give_up(self, memories: set[LazyValue], values: set[LazyValue], error: Exception) -> None:
        """Take out what reads or writes this memory or needs these values, and note the error with
        what it would have made."""
        rest = []
        lost: set[PendingCall] = set()
        for call in self.pending:
            if not any(
                one in values or one.node in lost or one.root in memories for one in call.operands
            ):
                rest.append(call)
                continue
            lost.add(call)
            memories.update(call.writes())
        for call in lost:
            call.give_up(error)
        self.pending = rest

    # --------------------------------------------------------------------------------- running

    def flush(self) -> None:
        """Run all that somebody can ask for.

        An error is noted with the values that are lost by it, and raised where they are asked, or
        at once if a write is lost.
        """
        wanted = [
            link.value
            for call in self.pending
            for handle in call.handles
            if (link := handle()) is not None
        ]
        memories = [root for call in self.pending for root in call.writes() if _is_reachable(root)]
        self.run_for(wanted, memories)

    def _run_at_line(self, call: PendingCall) -> None:
        """Run an operation that was just added, and raise its error."""
        links = [handle() for handle in call.handles]
        self.flush()
        for link in links:
            if link is not None and link.value.error is not None:
                raise link.value.error

    def behind(self, value: LazyValue) -> int:
        """How many operations would run if this value were asked."""
        return len(self._slice([value], ())[0])

    def run_for(self, values: Iterable[LazyValue], writes: Sequence[LazyValue] = ()) -> None:
        """Run the slice for these values, and for what is about to be written: the memory of the
        roots ``writes``."""
        if not self.pending:
            return
        chosen, rest = self._slice(values, writes)
        self.pending = rest
        if chosen:
            self._run(chosen)

    @contextlib.contextmanager
    def writing(self, values: Sequence[LazyValue], writes: Sequence[LazyValue]) -> Iterator[None]:
        """A context in which an operation runs at once on these values, which are computed, and
        writes to the memory of the roots ``writes``.

        Raises :class:`~syft.exceptions.StaleOperand` if others have written there before.
        """
        touched = {*[value.root for value in values], *writes}
        for root in touched:
            self.check_unchanged(root)
        self.run_for(values, writes)
        yield
        for root in touched:
            root.look_again()

    def _slice(
        self, values: Iterable[LazyValue], writes: Sequence[LazyValue]
    ) -> tuple[list[PendingCall], list[PendingCall]]:
        """The operations that must run for these values, and those of the others that somebody
        may still ask for, both in their order."""
        needed = _Reached(writes)
        for value in values:
            needed.reach(value)
        later = _Reached(())
        chosen: list[PendingCall] = []
        rest: list[PendingCall] = []
        for call in reversed(self.pending):
            writing = call.writes() if call.kind.writes else ()
            if needed.comes_before(call, writing):
                chosen.append(call)
                needed.written.update(writing)
                for one in call.operands:
                    needed.reach(one)
            elif _may_be_asked(call, writing, later):
                rest.append(call)
                for one in call.operands:
                    later.reach(one)
        chosen.reverse()
        rest.reverse()
        return chosen, rest

    def _run(self, chosen: list[PendingCall]) -> None:
        """Run operations that were taken out of the trace, as one program."""
        key, inputs, floats = _key_of(chosen)
        read_later = {one for call in self.pending for one in call.operands}
        keep = self._kept(chosen, read_later)
        numbers = tuple([one.node.start + one.index for one in keep])
        lowered = self.programs.find(
            (tuple(key), len(inputs), numbers),
            lambda: LoweredSlice(_calls_in(key), len(inputs), len(floats), numbers),
        )
        for one in inputs:
            self._check_input(one, chosen)
        self.ran += len(chosen)
        try:
            results = self._results(lowered, inputs, floats, read_later)
            self._check_memory(keep, results)
        except Exception as error:  # of a backend: the loop returns what is lost
            self._give_up({root for call in chosen for root in call.writes()}, set(keep), error)
            for call in chosen:
                call.give_up(error)
            raise
        self._hold(chosen, keep, results)

    def _check_memory(self, keep: list[LazyValue], results: Any) -> None:
        """Look whether views of what is there lie in its memory, if a backend has made them."""
        if self.run_program is LoweredSlice.run or type(results) is Partial:
            return
        for value, result in zip(keep, results, strict=True):
            there = None if value.base is None else value.base.real
            if there is not None and not _shares(there, result):
                raise ProgramError(
                    f"the backend gave a copy of shape {tuple(result.shape)} where the program has "
                    "a view"
                )

    def _kept(self, chosen: list[PendingCall], read_later: set[LazyValue]) -> list[LazyValue]:
        """The results that somebody can ask for or that pending operations need, in order."""
        taken = set(chosen)
        kept = {
            link.value: None
            for call in chosen
            for handle in call.handles
            if (link := handle()) is not None
        }
        if read_later:
            later = [one for one in read_later if one.node in taken]
            later.sort(key=lambda one: (one.node.start, one.index))
            kept.update(dict.fromkeys(later))
        return list(kept)

    def _check_input(self, value: LazyValue, chosen: list[PendingCall]) -> None:
        root = value.root
        if root.watched is not None and root.has_changed():
            root.look_again()
            reader = next(one for one in chosen if _reads(one, root))
            error = StaleOperand(str(reader.kind.facts.overload), line_at(reader.place))
            self.pending = [*chosen, *self.pending]
            self._give_up({root}, set(), error)
            raise error

    def _results(
        self,
        lowered: LoweredSlice,
        inputs: list[LazyValue],
        floats: list[float],
        read_later: set[LazyValue],
    ) -> Any:
        """Run a program on its inputs; a tensor that nobody can ask for lives until its last
        reader."""
        inference = torch.is_inference_mode_enabled()
        modes = torch.inference_mode(False) if inference else contextlib.nullcontext()
        with modes, DisableTorchFunction(), below_autograd():
            return self.run_program(lowered, [*_taken(inputs, read_later), *floats])

    def _hold(self, chosen: list[PendingCall], keep: list[LazyValue], results: Any) -> None:
        """Keep the results of a run, and raise its error if that cannot wait."""
        for value, result in zip(keep, results, strict=True):
            value.node = None
            if result is LOST:
                value.error = results.failure
            else:
                value.real = result
        try:
            if type(results) is Partial:
                self._lose(chosen, keep, results)
        finally:
            for call in chosen:
                call.operands = call.handles = ()

    def _lose(self, chosen: list[PendingCall], keep: list[LazyValue], results: Partial) -> None:
        """Give up what depends on an operation that failed, or on a write that comes after it."""
        error: Any = results.failure
        error.add_note(f"Recorded at {line_at(chosen[results.action].place)}.")
        memories = {root for call in chosen[results.action :] for root in call.writes()}
        self._give_up(set(memories), {one for one in keep if one.error is error}, error)
        if memories:
            raise error


class _Reached:
    """What operations of a slice need of those before them: the ``calls`` that make their operands,
    the roots of memory that they ``read``, and of memory that they have ``written``."""

    __slots__ = ("calls", "read", "written")

    def __init__(self, writes: Iterable[LazyValue]) -> None:
        self.calls: set[PendingCall] = set()
        self.written = set(writes)
        self.read = set(self.written)

    def reach(self, value: LazyValue) -> None:
        """Note an operand."""
        self.read.add(value.base or value)
        if value.node is not None:
            self.calls.add(value.node)

    def comes_before(self, call: PendingCall, writing: Collection[LazyValue]) -> bool:
        """Whether an operation, which writes to some roots, must have run before."""
        if call in self.calls:
            return True
        if writing and not (self.read.isdisjoint(writing) and self.written.isdisjoint(writing)):
            return True
        return bool(self.written) and any(one.root in self.written for one in call.operands)


def _may_be_asked(call: PendingCall, writing: Iterable[LazyValue], later: _Reached) -> bool:
    """Whether somebody can ask for what an operation makes or writes, or later ones need it."""
    if call in later.calls or any(handle() is not None for handle in call.handles):
        return True
    return any(root in later.read or _is_reachable(root) for root in writing)


def _taken(inputs: list[LazyValue], read_later: set[LazyValue]) -> Iterator[Any]:
    """The tensors of the inputs; values that nobody can ask for let go of theirs."""
    for value in inputs:
        yield value.real
        if value not in read_later and not value.is_wanted():
            value.real = None


def _key_of(chosen: list[PendingCall]) -> tuple[list[Any], list[LazyValue], list[float]]:
    """The kinds of operations and the numbers of their operands; the operands that are there
    already, and the floats, which are inputs."""
    number: dict[LazyValue, int] = {}
    key: list[Any] = []
    floats: list[float] = []
    made = 0
    for call in chosen:
        call.start = made
        made += call.kind.makes
        key.append(call.kind)
        floats += call.floats
        for one in call.operands:
            if one.node is not None:
                key.append(one.node.start + one.index)
            else:
                key.append(number.setdefault(one, ~len(number)))
    return key, list(number), floats


def _calls_in(key: list[Any]) -> list[tuple[CallKind, list[int]]]:
    calls: list[tuple[CallKind, list[int]]] = []
    for one in key:
        if type(one) is CallKind:
            calls.append((one, []))
        else:
            calls[-1][1].append(one)
    return calls


def _shares(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _reads(call: PendingCall, root: LazyValue) -> bool:
    return any(one.root is root for one in call.operands)


def _is_reachable(root: LazyValue) -> bool:
    """Whether somebody can read the memory of a root."""
    return root.watched is not None or any(value.is_wanted() for value in root.in_memory())


TRACE: Final = LazyTrace()
"""The trace of this process."""
