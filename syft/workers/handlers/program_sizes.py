"""What a program makes, looked at when it runs on inputs like these first.

A program runs as a loop that looks at nothing.  What it makes follows from the sizes, strides and
dtypes of its inputs, from the numbers among them and from the modes.  So a worker runs it action by
action the first time, with the limits of its caller before each action.  What an action makes
counts while it lives.  The worker remembers for these inputs how much memory there was at once.
Later runs on such inputs are the loop, if the caller may have that much more.  Four kinds are
looked at in every run: a program that has branches, one of which sizes follow from values, one that
may give memory to a tensor that is there, and one that takes a number from a tensor.  A number that
is only added to values, or multiplies them, does not count as taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import torch

from syft.exceptions import LimitExceeded
from syft.ops.evaluate import use_of
from syft.ops.nested import EXACT_TENSOR_TYPES, every_tensor, leaves
from syft.ops.table import (
    BY_NAME,
    ELEMENTWISE,
    FLAGS,
    FLOATS_COMPUTE,
    GRADIENT,
    METADATA,
    PROGRAM_FUNCTIONS,
    READS_GRADIENT,
    REVEALS,
    SHAPE_FROM_VALUES,
    asked_by,
    may_alter,
    ops_where,
)
from syft.program.lowered import Call, Lowered, Partial, always, plainly
from syft.program.program import Action, Program, slots_in
from syft.torch_private import WeakStorage, any_autocast_enabled
from syft.workers.core.charges import Charges
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.execution.size_bounds import BY_VALUES
from syft.workers.labels.walk import innermost

_FREES: Final = "frees its results"
_BACKWARD: Final = BY_NAME["torch.Tensor.backward"]
_GETITEM: Final = BY_NAME["torch.Tensor.__getitem__"]
_COPYING: Final = ops_where("copies", None if torch.accelerator.is_available() else "lazy")
"""The operations that copy what is conjugated lazily, or elsewhere: it may look alike."""
_COMPUTING: Final = ELEMENTWISE | FLOATS_COMPUTE
"""Flags of the operations for which no number is a size."""
_NO_SIZES: Final = GRADIENT | READS_GRADIENT | _COMPUTING | REVEALS | METADATA
_FOLLOWING: Final = frozenset(("shape", "dtype", "dim"))
"""The properties that are the same for all inputs that look alike."""
_MOST_KNOWN: Final = 256
_SHARE: Final = 64
"""The part of what a caller may have that may be dead before it is looked for."""
_FEW: Final = 64
"""The pieces of memory among which what is dead is looked for before each action."""
_ITEM: Final = 40
"""The bytes of an item of a list: an object, and where it is."""


class KnownSizes:
    """The inputs with which a program has run within some limits: how they look, and the bytes that
    it had on the way, at most."""

    __slots__ = ("limits", "exact", "is_steady", "peaks", "made")

    def __init__(self, program: Program, limits: PeerLimits) -> None:
        self.limits = limits
        self.exact, self.is_steady = _numbers_of(program)
        self.peaks: dict[Any, int] = {}
        self.made: dict[Any, int] = {}
        """How many bytes it made, which the graphs of its results may keep."""

    def look_of(self, values: Sequence[Any]) -> Any:
        """What memory follows from; None if that cannot be said."""
        if any_autocast_enabled():
            return None
        look: list[Any] = [torch.is_grad_enabled(), torch.get_default_dtype()]
        try:
            for place, value in enumerate(values):
                if type(value) in EXACT_TENSOR_TYPES:
                    strides = value.is_contiguous() or _strides(value)
                    look += (value.shape, strides, value.dtype, value.requires_grad)
                else:
                    look.append(_look_of(value, place in self.exact))
        except (TypeError, RuntimeError):  # no strides
            return None
        return tuple(look)

    def remember(self, look: Any, peak: int, made: int) -> None:
        """Note the bytes that a run on such inputs had at most, and all that it made."""
        if len(self.peaks) >= _MOST_KNOWN:
            self.peaks.clear()
            self.made.clear()
        self.peaks[look] = peak
        self.made[look] = made


class SizedProgram:
    """A program that a caller runs within its limits.

    ``run_with`` and ``run`` are those of :class:`~syft.program.lowered.Lowered`.  They raise
    :class:`~syft.exceptions.LimitExceeded` before an action that would use too much.

    >>> from syft.program.program import Program, Slot
    >>> from syft.workers.core.peer_limits import Account, PeerLimits
    >>> double = Action(BY_NAME["torch.Tensor.repeat"], (Slot(0), 10**6), {}, Slot(1))
    >>> ann = Account()
    >>> charges = Charges("bob", {}, PeerLimits(elements=1000), lambda: ann)
    >>> SizedProgram(Lowered(Program(1, (double,), Slot(1))), charges).run([torch.ones(2)])
    Traceback (most recent call last):
    ...
    syft.exceptions.LimitExceeded: Over a limit of worker 'bob': peer_limits.elements is 1000, ...
    """

    __slots__ = ("_program", "_charges", "_steady", "_peak")

    def __init__(self, program: Lowered, charges: Charges) -> None:
        self._program = program
        self._charges = charges
        self._steady = False
        self._peak = 0

    def run(self, values: Sequence[Any]) -> Any:
        """Run the program on its inputs and state, in that order, and remember what it needed.

        On inputs that look like these it may run as it is (:func:`runs_unseen`).
        """
        program, charges = self._program, self._charges
        if charges.bytes_left is None:  # the owner's, which has no limits
            return program.run(values)
        known: KnownSizes | None = program.known_sizes
        if known is None or known.limits is not charges.limits:
            known = program.known_sizes = KnownSizes(program.program, charges.limits)
        look = known.look_of(values) if known.is_steady and not program.branches else None
        self._steady = look is not None
        result = self.run_with(values, plainly)
        if self._steady and type(result) is not Partial:
            known.remember(look, self._peak, charges.graphs.on_the_way)
        return result

    def run_with(
        self, values: Sequence[Any], call: Call, may_go_on: Callable[[], bool] = always
    ) -> Any:
        """Run the program with ``call`` for each action that the limits allow.

        What an action makes, and memory that it gives to a tensor that is there, counts from the
        next action on.
        """
        given = *values, *self._program.program.constants
        made = _OnTheWay(self._charges, given, self._steady)

        def look(
            action: Action, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            if action.op in PROGRAM_FUNCTIONS:
                return call(action, function, args, kwargs)
            if self._steady and _takes_number(action.op, function, args, kwargs):
                self._steady = False
            before = made.before(action.op, function, args, kwargs)
            result = call(action, function, args, kwargs)
            made.after(action.op, result, before)
            return result

        try:
            return self._program.run_with(values, look, may_go_on)
        finally:  # the objects that have it are counted anew
            self._peak = made.peak
            made.end()


class _OnTheWay:
    """The memory that a program has made and that lives, held in the account of its caller.

    ``peak`` is the most that the loop has at once, which keeps one dead value an action longer.  If
    it is ``exact``, what is dead is looked for before each action, as long as not much is alive.
    """

    __slots__ = ("peak", "_charges", "_account", "_exact", "_held", "_given", "_alive", "_most")

    def __init__(self, charges: Charges, given: Iterable[Any], exact: bool) -> None:
        self.peak = 0
        self._charges = charges
        self._account = charges.account
        self._exact = exact
        self._held = 0
        self._given: dict[int, Any] = {}
        self._alive: dict[int, tuple[Any, int]] = {}
        self._most = charges.limits.bytes // _SHARE
        self._is_there(given)

    def _is_there(self, values: Any) -> None:
        """Do not count the memory of these; their addresses are not used again."""
        for value in leaves(values):
            for place, (storage, _) in self._charges.memory_of(value).items():
                self._given[place] = WeakStorage(storage)

    def before(
        self, op: int, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[int, int, int, Any]:
        """Check what an action may use; returns the bytes that there are, those that it will use,
        and those of what it may give memory to, with that."""
        held = self._held
        if held > self._most or (self._exact and len(self._alive) <= _FEW):
            self._settle()
        try:
            peak = self._charges.check(op, function, args, kwargs)
        except LimitExceeded:
            self._settle()
            peak = self._charges.check(op, function, args, kwargs)
        altered = (args, kwargs) if may_alter(op, kwargs) else None
        size = 0 if altered is None else self._charges.bytes_of(altered)
        return held, peak, size, altered

    def after(self, op: int, result: Any, before: tuple[int, int, int, Any]) -> None:
        """Count what an action has made, or given to what was there."""
        held, peak, size, altered = before
        start = self._held
        if altered is not None:
            self._hold(max(0, self._charges.bytes_of(altered) - size))
        if FLAGS[op] & READS_GRADIENT:
            self._is_there(result)
        elif type(result) in EXACT_TENSOR_TYPES:
            self._note(result)
        else:
            self._note_all(result)
        more = self._held - start
        self.peak = max(self.peak, held + max(peak, more))
        if more and (left := self._charges.bytes_left) is not None and left < 0:
            self._settle()
            self._charges.check_bytes()

    def _note_all(self, result: Any) -> None:
        """Count what is new of a result, and the items of a list of numbers until the end."""
        if isinstance(result, list) and not every_tensor(result):
            self._hold(_ITEM * sum(1 for _ in leaves(result)))
        else:
            for leaf in leaves(result):
                self._note(leaf)

    def _note(self, value: Any) -> None:
        charges = self._charges
        if charges.guarded:
            charges.check_bounds({0: value})
        elif type(value) in EXACT_TENSOR_TYPES and value.layout is torch.strided:
            storage = value.untyped_storage()
            self._note_memory(storage._cdata, storage, storage.nbytes())
            return
        for place, (storage, size) in charges.memory_of(value).items():
            self._note_memory(place, storage, size)

    def _note_memory(self, place: int, storage: torch.UntypedStorage, size: int) -> None:
        if place not in self._given and place not in self._alive:
            self._alive[place] = WeakStorage(storage), size
            self._charges.graphs.on_the_way += size
            self._hold(size)

    def _settle(self) -> None:
        """Give back what is not there any more."""
        alive = self._alive
        dead = [place for place, (memory, _) in alive.items() if memory.expired()]
        self._hold(-sum(alive.pop(place)[1] for place in dead))
        self._most = self._held * 5 // 4 + self._charges.limits.bytes // _SHARE

    def _hold(self, bytes: int) -> None:
        self._held += bytes
        self._account.bytes += bytes

    def end(self) -> None:
        """Give back everything."""
        self._hold(-self._held)


def runs_unseen(program: Lowered, charges: Charges, values: Sequence[Any]) -> bool:
    """Whether a program has run within limits on inputs that look like these, and its caller may
    have as much more memory as it had then.

    >>> from syft.program.program import Program, Slot
    >>> program = Lowered(Program(1, (), Slot(0)))
    >>> runs_unseen(program, Charges("bob", {}), [torch.ones(2)])
    False
    """
    known: KnownSizes | None = program.known_sizes
    if known is None or known.limits is not charges.limits or not known.peaks:
        return False
    look = known.look_of(values)
    peak = known.peaks.get(look)
    if peak is None:
        return False
    charges.graphs.on_the_way = known.made[look]
    account = charges.payer()
    return account is None or peak <= charges.limits.bytes - account.bytes


def frees_results(program: Program) -> bool:
    """Whether a backward pass from each result of a program has freed, when that ends, what the
    graph of the result kept; what it was given is no result in this sense.

    >>> from syft.program.program import Program, Slot
    >>> twice = Action(BY_NAME["torch.Tensor.mul"], (Slot(0), Slot(0)), {}, Slot(1))
    >>> back = Action(BY_NAME["torch.Tensor.backward"], (Slot(1),), {}, Slot(2))
    >>> [frees_results(Program(1, actions, (Slot(1),))) for actions in ((twice,), (twice, back))]
    [False, True]
    """
    known = program.facts.get(_FREES)
    if known is None:
        freed = _freed_in(program)
        results = {slot.index for slot in slots_in(program.outputs)}
        known = bool(freed) and max(results - freed, default=-1) < program.given
        program.facts[_FREES] = known
    return bool(known)


def _freed_in(program: Program) -> set[int]:
    """The slots from which a program runs a backward pass that frees, and that it uses no more."""
    freed: set[int] = set()
    for action in program.actions:
        used = {slot.index for slot in slots_in((action.args, action.kwargs))}
        frees = action.op == _BACKWARD and len(action.args) == 1 and not action.kwargs
        freed = freed | used if frees else freed - used
    return freed


# ---------------------------------------------------------------------------------------- numbers


def _look_of(value: Any, exactly: bool) -> Any:
    """What of an input memory follows from, if it is no ordinary tensor; raises TypeError if that
    cannot be said."""
    if type(value) is float:
        return float, value if exactly else None
    if type(value) is int or value is None:
        return value
    if isinstance(value, (bool, str)):
        return type(value), value  # True equals 1
    inside = innermost(value)
    if inside is None:
        raise TypeError
    return type(value), inside.shape, _strides(inside), inside.dtype, inside.requires_grad


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides of a tensor; raises TypeError if it is not strided."""
    if tensor.layout is not torch.strided:
        raise TypeError
    return tensor.stride()


def _takes_number(op: int, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an action takes a number from a tensor that may be a size."""
    if FLAGS[op] & _NO_SIZES or not any(map(_is_one, every_tensor(args, kwargs))):
        return False
    use = use_of(function, args, kwargs)
    return use.reads or use.elements is None


def _is_one(tensor: torch.Tensor) -> bool:
    inside = tensor if type(tensor) in EXACT_TENSOR_TYPES else innermost(tensor)
    return inside is not None and inside.numel() == 1


def _numbers_of(program: Program) -> tuple[frozenset[int], bool]:
    """The slots of which a number may decide sizes, and whether sizes follow from what can be seen
    of the inputs."""
    deciding: set[int] = set()
    steady = True
    for action in reversed(program.actions):
        flags = FLAGS[action.op]
        decides = not deciding.isdisjoint(slot.index for slot in slots_in(action.out))
        answers = bool(flags & (REVEALS | METADATA))
        if decides and answers:
            steady &= bool(flags & METADATA) and asked_by(action.op) <= _FOLLOWING
        makes_numbers = answers or action.op in PROGRAM_FUNCTIONS
        if decides if makes_numbers else not flags & _COMPUTING:
            deciding.update(slot.index for slot in slots_in((action.args, action.kwargs)))
        steady &= not _by_value(action)
    return frozenset(deciding), steady


def _by_value(action: Action) -> bool:
    if action.op == _GETITEM:
        return any(True for _ in slots_in(action.args[1:]))
    if may_alter(action.op, action.kwargs):  # what it adds to its inputs is kept
        return True
    if action.op in BY_VALUES:
        return not FLAGS[action.op] & REVEALS
    return bool(FLAGS[action.op] & SHAPE_FROM_VALUES) or action.op in _COPYING
