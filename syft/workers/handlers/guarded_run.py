"""Running a program action by action at a worker that holds private values.

Each action runs as the equivalent command does: on private inputs it runs guarded, and its results
and writes are as private as its inputs.  A program needs three rules beyond those of commands:

- A number taken from a private value can be an input of later actions.  From then on the results of
  all actions count as computed from that value.
- A branch or a loop that depends on a value reveals it, and so does what a recording expects.  What
  it may write is made private before, since that it was not written would tell.
- The text of an error may reveal values of an earlier action.  Once an action was private, the
  texts of all later errors stay at the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace as changed
from typing import Any
from weakref import ReferenceType, ref

import torch

from syft.exceptions import OtherPath, PermissionDenied
from syft.ops.control import check_decides
from syft.ops.nested import every_tensor, leaves, replace
from syft.ops.table import BY_NAME, COND, FLAGS, WHILE_LOOP, Function
from syft.program.lowered import Lowered, Partial
from syft.program.program import Action, Program
from syft.workers.core.pipeline import run_as_private
from syft.workers.core.state_machine import WorkerCore
from syft.workers.execution.moved_memory import Holdings, Immovable, Moves, move_written
from syft.workers.execution.predicted_failures import is_predicted
from syft.workers.execution.private_commands import guard_for, tells_nothing
from syft.workers.execution.public_sizes import forget_sizes
from syft.workers.handlers.accesses import effects_of
from syft.workers.labels.guards import Guard, meet_guards
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.labels.walk import Places, lies_in

_EXPECT = BY_NAME["syft.ops.numbers.expect"]
_BRANCH = "a branch on its value"
_UNMOVED = "a branch on its value that may write what cannot be moved to other memory"


class Concealed(Exception):
    """An error from private data, whose text stays at the worker.

    >>> Concealed(ValueError("x is 3")).error
    ValueError('x is 3')
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(type(error).__name__)
        self.error = error


class _Registers(Holdings):
    """What a worker holds while it runs a program: the values of the program are there too."""

    __slots__ = ("moves", "_stored", "_seen")

    def __init__(self, stored: Holdings) -> None:
        self.moves = Moves()
        """The tensors that actions have moved, which are in registers still."""
        self._stored = stored
        self._seen: list[ReferenceType[torch.Tensor]] = []

    def noted(self, values: Any) -> Any:
        """The same values, which are in registers from now on."""
        self._seen += (ref(leaf) for leaf in leaves(values) if isinstance(leaf, torch.Tensor))
        return values

    def sharing(self, places: Places) -> Iterator[torch.Tensor]:
        """The tensors that lie in this memory: objects, their gradients, and in registers."""
        yield from self._stored.sharing(places)
        alive = (self.moves.of(reference()) for reference in self._seen)
        for tensor in alive:
            if lies_in(tensor, places):
                yield tensor

    def moved(self, moves: Moves) -> None:
        """Put the successors where the moved tensors were."""
        self._stored.moved(moves)
        self.moves.update(moves)

    def shown(self) -> Iterable[torch.Tensor]:
        """Results in which the owner's program may keep gradients."""
        return self._stored.shown()


class Outputs(Partial):
    """The outputs of a program, and who may read the numbers among them (None: everybody).

    >>> Outputs.of_run((), (3, None), Guard(frozenset({"ann"}))).taint.users
    frozenset({'ann'})
    """

    taint: Guard | None = None

    @classmethod
    def of_run(cls, run: Any, values: Iterable[Any], taint: Guard | None) -> Outputs:
        """The outputs of a run, whose numbers were taken from what is as private as this."""
        made = cls(values)
        made.taint = taint
        if type(run) is Partial:
            made.action, made.failure = run.action, run.failure
        return made


class GuardedRun:
    """One run of a program on behalf of ``user``, at a worker that holds private values.

    >>> from syft.program.program import Program, Slot
    >>> core = WorkerCore("bob", connect=print)
    >>> GuardedRun(core, None).run(Lowered(Program(1, (), Slot(0))), [3])
    3
    """

    __slots__ = ("core", "user", "taint", "concealing", "registers")

    def __init__(self, core: WorkerCore, user: str | None, taint: Guard | None = None) -> None:
        self.core = core
        self.user = user
        self.taint = taint
        """The guard of numbers on which all that follows may depend."""
        self.concealing = taint is not None and not taint.admits(user)
        self.registers = _Registers(core.holdings)

    def run(self, program: Lowered, values: Sequence[Any]) -> Any:
        """The outputs of the program.

        Raises the exceptions of its actions, wrapped in :class:`Concealed` after an action on
        private values.  Before such an action, a program may go on after a failure.
        """
        try:
            made = program.run_with(self.registers.noted(values), self.call, self._may_go_on)
            result = self.registers.moves.within(tuple(made) if type(made) is Partial else made)
            return Outputs.of_run(made, result, self.taint) if _is_flat(result) else result
        except (PermissionDenied, Concealed, OtherPath):
            raise
        except Exception as error:
            if self.concealing and not is_predicted(error):
                raise Concealed(error) from None
            raise

    def _may_go_on(self) -> bool:
        return not self.concealing

    def call(
        self, action: Action, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run one action of the program."""
        args, kwargs = self.registers.moves.within((args, kwargs))
        special = _CONTROL.get(action.op)
        if special is not None:
            return special(self, action, function, args)
        flags = FLAGS[action.op]
        guard = meet_guards(guard_for(list(args), kwargs), self.taint)
        self.concealing |= guard is not None and not guard.admits(self.user)
        about = flags, guard, self.registers, self.user, self.taint is not None
        result = run_as_private(self.core, function, args, kwargs, *about)
        if self.taint is not None:  # which commands run may follow from private values
            replace(result, forget_sizes)
        self.registers.noted(result)
        if guard is not None and not all(map(_is_tensor_or_none, leaves(result))):
            self._revealed(result, function, guard)
        return result

    def _revealed(self, result: Any, function: Function, guard: Guard) -> None:
        """Make later results as private as the value from which a number was taken."""
        numbers = [leaf for leaf in leaves(result) if not isinstance(leaf, torch.Tensor)]
        if not all(tells_nothing(number, function, guard) for number in numbers):
            self.taint = meet_guards(self.taint, changed(guard, shape_hidden=True))

    def decided_by(self, value: Any) -> Guard | None:
        """Check that the user may read a value on which a branch or a loop depends.

        All later results are as private as the value.  Raises
        :class:`~syft.exceptions.PermissionDenied` if the user may not read it, and
        :class:`~syft.exceptions.ProgramError` for a value that is neither a tensor nor a number:
        the number of items in a container may be private too.
        """
        check_decides(value)
        guard = meet_guards(full_guard_of(value), self.taint)
        if guard is None:
            return None
        if not guard.admits(self.user):
            raise PermissionDenied(_BRANCH, self.core.name, self.user)
        self.taint = changed(guard, shape_hidden=True)
        return self.taint

    def seal(self, written: Any) -> None:
        """Make private what may be written, after a private value has decided whether it is."""
        for tensor in every_tensor(written):
            guard = meet_guards(full_guard_of(tensor), self.taint)
            assert guard is not None
            try:
                moves = move_written([tensor], guard, self.registers)
            except Immovable:
                raise PermissionDenied(_UNMOVED, self.core.name, self.user) from None
            forget_sizes(moves.of(tensor))


class _Tested:
    """The condition of a loop: each of its results is checked as a decision.

    What the loop may write is whatever it is given: the next time round its values may have changed
    places.
    """

    __slots__ = ("steps", "_test", "_watch", "_writes")

    def __init__(self, test: Any, watch: GuardedRun, action: Action) -> None:
        self.steps: int = test.steps
        self._test = test
        self._watch = watch
        self._writes = bool(_written_by(action))

    def run(self, values: Sequence[Any]) -> Any:
        answer = self._test.run(values)
        if self._watch.decided_by(answer) is not None and self._writes:
            self._watch.seal(self._watch.registers.moves.within(values))
            self._writes = False
        return answer


def _written_by(action: Action) -> set[int]:
    """Which of the values given to a branch or loop may be written by the programs in it."""
    programs = [each for each in action.args if type(each) is Program]
    return set().union(*(effects_of(program).writes for program in programs))


def _cond(watch: GuardedRun, action: Action, function: Function, args: tuple[Any, ...]) -> Any:
    if watch.decided_by(args[0]) is not None:
        watch.seal([args[-1][place] for place in _written_by(action)])
        args = watch.registers.moves.within(args)
    return _decided(watch, function, args)


def _while_loop(
    watch: GuardedRun, action: Action, function: Function, args: tuple[Any, ...]
) -> Any:
    return _decided(watch, function, (_Tested(args[0], watch, action), *args[1:]))


def _expect(watch: GuardedRun, action: Action, function: Function, args: tuple[Any, ...]) -> Any:
    for number in args[1:3]:
        watch.decided_by(number)
    return function(*args)


def _decided(watch: GuardedRun, function: Function, args: tuple[Any, ...]) -> Any:
    """Run a branch or loop; after a private decision, guard all that it returns.

    What it writes the actions inside it have guarded.
    """
    result = watch.registers.moves.within(function(*args))
    taint = watch.taint
    if taint is None:
        return result
    return replace(
        result, lambda leaf: _tainted(leaf, taint) if isinstance(leaf, torch.Tensor) else leaf
    )


def _tainted(leaf: torch.Tensor, taint: Guard) -> torch.Tensor:
    """A result that was chosen by a private decision: a copy, if it was there before."""
    guard = full_guard_of(leaf)
    if guard is None or guard.meet(taint) != guard:
        leaf = leaf.clone()
    protect(leaf, taint)
    forget_sizes(leaf)
    return leaf


_CONTROL: dict[int, Callable[[GuardedRun, Action, Function, tuple[Any, ...]], Any]] = {
    COND: _cond,
    WHILE_LOOP: _while_loop,
    _EXPECT: _expect,
}


def _is_flat(result: Any) -> bool:
    return type(result) in (tuple, list)


def _is_tensor_or_none(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, torch.Tensor)
