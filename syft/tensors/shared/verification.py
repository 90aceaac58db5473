"""Checking what shared tensors compute against the same in float64, operation by operation.

What leaves the domain of a function is wrong and nobody is told, because nobody may see it.  On
data that may be seen, a test can: :class:`verify_shares` opens the operands and the result of each
operation, computes the operation in float64 on the opened operands, and compares within the row of
``tensors.fixed.domains``.  So an error is found at the operation that makes it, and not where it
shows.

It is a dispatch mode of torch: it sees the aten operations of forward, backward and optimizers
alike, and a program without it pays nothing.  An operation that syft computes by others is taken
apart, and each of these is checked.

Programs are those that are sent without it: joined, and as long.  A copy of each operand and result
is fetched with them (``SessionRecording.look``), and what was joined away has none.  Its value is
computed in float64, and what it may be off by is handed on to what was computed from it.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

import torch

from syft.callers import Place, line_at, place_of_user, warn_user
from syft.chain.wrapper import Wrapper
from syft.exceptions import UnsupportedOperation, WrongResult
from syft.ops.calls import written_arguments
from syft.ops.nested import Arguments, Keywords, leaves, replace
from syft.tensors.fixed.domains import UNSTATED, Bound, Function, row_of, shown
from syft.tensors.fixed.fixed_link import (
    FixedPrecisionTensor,
    argument,
    grid_among,
    is_fixed,
    refined,
)
from syft.tensors.fixed.grid import CEILING, Excess, Grid, encode, encode_number
from syft.tensors.fixed.measures import number_of
from syft.tensors.fixed.rings.ring_link import is_ring
from syft.tensors.shared.additive_sharing import AdditiveSharingTensor, revealed
from syft.tensors.shared.cells import Cell
from syft.tensors.shared.session_client import SessionClient
from syft.torch_private import TorchDispatchMode, has_composite_kernel

aten = torch.ops.aten

Call = tuple[Any, Arguments, Keywords]
Run = Callable[[], Any]


class OperationWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees each operation on tensors in fixed precision, or over a ring. Abstract.

    An operation that syft computes by others is seen, and these are after it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.depth = 0
        self.count = 0
        """How many operations on fixed tensors were seen."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not _has_fixed((args, kwargs)):
            call = func, args, kwargs
            if self.depth or not any(map(is_ring, leaves((args, kwargs)))):
                return func(*args, **kwargs)
            return self._seen(call, None, lambda: func(*args, **kwargs))
        if has_composite_kernel(func.name(), "CompositeImplicitAutograd"):
            with self:
                return func.decompose(*args, **kwargs)
        return self._seen_fixed(func, args, kwargs)

    def _seen_fixed(self, func: Any, args: Arguments, kwargs: Keywords) -> Any:
        self.count += 1
        row = row_of(func, args)
        if row is not None and not row.parts:
            return self._seen((func, args, kwargs), row, lambda: func(*args, **kwargs))
        return self._seen((func, args, kwargs), row, lambda: self._in_parts(func, args, kwargs))

    def _in_parts(self, func: Any, args: Arguments, kwargs: Keywords) -> Any:
        self.depth += 1
        try:
            with self:
                return FixedPrecisionTensor.call(func, args, kwargs)
        finally:
            self.depth -= 1

    @abstractmethod
    def _seen(self, call: Call, row: Function | None, run: Run) -> Any:
        """Run an operation, by calling ``run``."""


class RowsUsed(OperationWatch):
    """Notes which rows a program uses, on which grids.

    >>> from syft.tensors.fixed.precision import fix_precision
    >>> with RowsUsed() as used:
    ...     _ = fix_precision(torch.ones(2)).exp()
    >>> used.lines()
    ['`exp` on 16 bits: arguments below 13.17; off by 1.5 steps, and 2·10⁻⁷ of the result']
    """

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[tuple[str, float], Function] = {}

    def __enter__(self) -> RowsUsed:
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def _seen(self, call: Call, row: Function | None, run: Run) -> Any:
        """Note the row."""
        if row is not None:
            grid = grid_among(call[0], call[1:])
            self._rows.setdefault((row.title, math.log2(grid.scale)), row)
        return run()

    def lines(self) -> list[str]:
        """The rows in words, in the order of their first use."""
        return [
            f"{title} on {bits:.4g} bits: {row.domain(bits)}; off by {row.error()}"
            for (title, bits), row in self._rows.items()
        ]


@dataclass(slots=True, eq=False)
class OpenedOnce:
    """Integers as they were at one time: of a plain tensor, or of a shared one once it was sent."""

    look: Cell | None = None
    """The copy of a shared tensor that is to be fetched."""
    integers: torch.Tensor | None = None
    exact: torch.Tensor | None = None
    """What they should be, where they were joined away."""
    slack: torch.Tensor | float = 0.0
    """How far they may be from it."""
    joined: tuple[tuple[str, Place], ...] = ()
    """The operations since the last one whose result is there."""
    suspect: Check | None = None
    """The first of these whose result the ring does not hold."""


@dataclass(slots=True)
class Operand:
    """A fixed tensor, or one over a ring, as an operation took or made it."""

    opened: OpenedOnce
    step: float = 0.0
    """What one of the integers stands for; 0 for integers and bits."""
    bits: bool = False
    grid: Grid | None = None

    def value(self, shift: int = 0) -> Any:
        """What it stands for, less or more of what it may be off by; None if nobody knows."""
        exact, integers = self.opened.exact, self.opened.integers
        if integers is None:
            shifted = shift * self.opened.slack if self.step else 0
            return None if exact is None else exact + shifted
        if self.step:
            return integers.double().mul(self.step)
        return integers != 0 if self.bits else integers.clone()


@dataclass(slots=True)
class SeenCall:
    """An operation that has run, to be compared once its operands and results are known."""

    op: Any
    given: tuple[Arguments, Keywords]
    """The arguments in the clear, with operands for what is private."""
    row: Function | None
    place: Place
    results: list[Any] = field(default_factory=list)
    parts: bool = False

    def operands(self) -> Iterable[Operand]:
        """What is private among arguments and results."""
        return (one for one in leaves((self.given, self.results)) if isinstance(one, Operand))

    def taken(self) -> list[OpenedOnce]:
        """What was computed from values that were joined away."""
        found = (one.opened for one in leaves(self.given) if isinstance(one, Operand))
        return [one for one in found if one.integers is None]

    def arguments(self, shift: int = 0) -> tuple[Arguments, Keywords] | None:
        """The arguments for torch, which may write to them; None if not all are known."""
        if any(one.exact is None for one in self.taken()):
            return None
        found: tuple[Arguments, Keywords] = replace(self.given, lambda one: _own(one, shift))
        return found

    def wanted(self, shift: int = 0) -> list[tuple[Operand, torch.Tensor]] | None:
        """Each result beside what torch has in float64; None if nothing can be compared."""
        given = self.arguments(shift)
        if given is None or torch.Tag.nondeterministic_seeded in self.op.tags:
            return None
        try:
            want = self.op(*given[0], **given[1])
        except RuntimeError:  # torch has no such kernel for these types
            return None
        places = written_arguments(self.op)
        made = self.results[: len(self.results) - len(places)]
        pairs = [*zip(made, leaves((want,)))][: self.row.outputs if self.row else None]
        pairs += zip(self.results[len(made) :], (argument(*one, *given) for one in places))
        return [
            (found, wanted)
            for found, wanted in pairs
            if isinstance(found, Operand) and isinstance(wanted, torch.Tensor)
        ]


def _own(value: Any, shift: int) -> Any:
    if isinstance(value, Operand):
        return value.value(shift)
    return value.clone() if isinstance(value, torch.Tensor) else value


class verify_shares(OperationWatch):  # noqa: N801  (a context manager, called as a function)
    """Compare every operation on shared tensors in a block with the same operation in float64.

    **It opens all values**, operands and results, in this process, and is for tests on data that
    may be seen.  What is private to others is refused, with the error of ``x.get(user=...)``
    (:class:`~syft.exceptions.PermissionDenied`).  Tensors in fixed precision that are not shared
    are compared too.

    The first operation that is off by more than the table of functions states
    (``docs/fixed_precision.md``) raises :class:`~syft.exceptions.WrongResult`: it names the
    operation, the line, the error, and what to change.  Operations inside modules, losses, backward
    passes, optimizers and plans count.  Programs are sent as they are without it, joined too, when
    a value is asked for, when one has become long, and at the end of the block: there it is raised.

    What has no counterpart in float64, such as random numbers, cannot be compared: ``unchecked``
    counts it by operation, and the end of the block warns of it.

    >>> x = torch.tensor([1.0, 20.0]).fix_precision().share(alice, bob, crypto_provider=carol)
    >>> with sy.verify_shares() as report:
    ...     _ = (x * x).sum()
    >>> print(report)
    2 operations checked
    >>> with sy.verify_shares():
    ...     _ = x.exp()
    Traceback (most recent call last):
    ...
    syft.exceptions.WrongResult: aten.exp.default at <doctest...>:2 is off by 4.8...e+08 (... is \
allowed): `exp` on 16 bits: made for arguments below 13.17; scale the data down, or take fewer \
fractional digits.
    """

    def __init__(self, user: str | None = None) -> None:
        super().__init__()
        self.user = user
        self.checked = 0
        """How many operations were compared."""
        self.unchecked: Counter[str] = Counter()
        """How many could not be, by operation."""
        self._entered = 0
        self._sessions: dict[SessionClient, None] = {}
        self._opened: WeakKeyDictionary[Cell, tuple[int, OpenedOnce]] = WeakKeyDictionary()
        self._calls: deque[SeenCall] = deque()
        self._waiting: list[OpenedOnce] = []

    def __enter__(self) -> verify_shares:
        super().__enter__()  # type: ignore[no-untyped-call]
        self._entered += 1  # also while an operation is taken apart
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._entered -= 1
        if self._entered:
            return
        try:
            if kind is None:
                for session in self._sessions:
                    session.flush()
                if self.unchecked:
                    warn_user(str(self))
        finally:
            for session in self._sessions:
                session.after_sending.remove(self._sent)
            self._sessions.clear()

    def __str__(self) -> str:
        left = ", ".join(f"{count} × {name}" for name, count in sorted(self.unchecked.items()))
        return f"{self.checked} operations checked" + (f", not checked: {left}" if left else "")

    # ---------------------------------------------------------------------------- one operation

    def _seen(self, call: Call, row: Function | None, run: Run) -> Any:
        """Run an operation, and note it with copies of what it takes, makes and writes."""
        op, args, kwargs = call
        if op.overloadpacket in _WITHOUT_CONTENTS:
            return run()
        rounds = op not in _TAKING_AS_THEY_ARE and _has_fixed((args, kwargs))
        grid = grid_among(op, (args, kwargs)) if rounds else None
        given = replace((args, kwargs), lambda value: self._in_clear(op, value, grid))
        seen = SeenCall(op, given, row, place_of_user())
        before = self.count
        result = run()
        seen.parts = self.count > before
        made = [
            *leaves((result,)),
            *(argument(*one, args, kwargs) for one in written_arguments(op)),
        ]
        seen.results = [self._in_clear(op, one, None) for one in made]
        self._calls.append(seen)
        self._settle()
        return result

    def _settle(self) -> None:
        """Compare what is known, in the order in which it ran."""
        while self._calls and not any(one.opened.look for one in self._calls[0].operands()):
            self._compare(self._calls.popleft())

    def _compare(self, seen: SeenCall) -> None:
        pairs = seen.wanted()
        if pairs is None:
            if not seen.op.is_view:
                self.unchecked[str(seen.op)] += 1
            return
        taken = seen.taken()
        shifted = [seen.wanted(shift) or pairs for shift in (1, -1)] if taken else []
        for place, (found, want) in enumerate(pairs):
            others = [(one[place][1] - want).abs() for one in shifted]
            more = torch.stack(others).amax(0) if others else number_of(0)
            self._one_result(Check(seen, taken), found, want, more)
        self.checked += not seen.op.is_view

    def _one_result(
        self, check: Check, found: Operand, want: torch.Tensor, more: torch.Tensor
    ) -> None:
        """Compare one result; of one that was joined away note what it should be."""
        opened, got = found.opened, found.value()
        if opened.integers is None:
            opened.exact, opened.joined = want, check.joined
            opened.slack = check.allowed(found.grid, want, more) if found.grid else 0.0
            opened.suspect = check.suspect
        elif check.op.is_view:
            return
        elif found.grid is not None:
            check.numbers(found.grid, got, want, more)
        elif not torch.equal(got, want.to(got.dtype)):
            check.fail(float((got.double() - want.double()).abs().max()), 0.0)

    # ---------------------------------------------------------------------------- values in clear

    def _sent(self) -> None:
        """Fetch the copies that came with a program, and compare what is known now."""
        waiting, self._waiting = self._waiting, []
        there = [(one, one.look) for one in waiting if one.look and one.look.id is not None]
        found = revealed([look for _, look in there], self.user)
        for (one, _), integers in zip(there, found, strict=True):
            one.integers = integers.cpu()
        for one in waiting:
            one.look = None
        self._settle()

    def _plain(self, integers: Any) -> OpenedOnce:
        """Integers as they are now; shared ones are known when they are sent."""
        if type(integers) is not Wrapper:
            return OpenedOnce(integers=integers.detach().cpu().clone())
        link: Any = integers.child
        if not isinstance(link, AdditiveSharingTensor):
            what = "verify_shares", link.ring.name
            raise UnsupportedOperation(*what, "it opens shared tensors, and no others")
        cell, session = link.cell, link.cell.session
        if session not in self._sessions:
            session.flush()  # what was recorded before the block
            self._sessions[session] = None
            session.after_sending.append(self._sent)
        known = self._opened.get(cell)
        if known is not None and known[0] == cell.memory.version:
            return known[1]
        opened = OpenedOnce(session.look(cell))
        self._waiting.append(opened)
        self._opened[cell] = cell.memory.version, opened
        return opened

    def _numbers(self, value: Any) -> Operand:
        """What a fixed tensor stands for, with all the digits that it has."""
        finer, grid = refined(value), value.child.grid
        if finer is not None and finer.unit:
            return Operand(self._plain(finer.integers), finer.factor / finer.unit, grid=grid)
        return Operand(self._plain(value.child.child), 1 / grid.scale, grid=grid)

    def _in_clear(self, op: Any, value: Any, grid: Grid | None) -> Any:
        """An operand as the operation in float64 takes it: on the grid, if it is put there."""
        if is_fixed(value):
            return self._numbers(value)
        if is_ring(value):
            return Operand(self._plain(value), bits=value.dtype is torch.bool)
        if isinstance(value, torch.Tensor):
            return _public(value, grid)
        if isinstance(value, torch.dtype) and value.is_floating_point:
            return torch.float64
        if grid and isinstance(value, (int, float)) and op.overloadpacket in _COMPARISONS:
            return encode_number(value, grid, Excess.CLAMP) / grid.scale
        return value


def _public(value: torch.Tensor, grid: Grid | None) -> torch.Tensor:
    """A public operand, as it is or on the grid."""
    if not value.is_floating_point():
        return value.clone()
    if grid is None or not value.dim():
        return value.double()
    return encode(value, grid, Excess.CLAMP).double() / grid.scale


_WITHOUT_CONTENTS = (aten.empty_like, aten.new_empty, aten.new_empty_strided)
_TAKING_AS_THEY_ARE = (aten.mul.Tensor, aten.mul_.Tensor, aten.div.Tensor, aten.div_.Tensor)
"""Operations that do not round public operands to the grid."""

_COMPARISONS = (aten.gt, aten.ge, aten.lt, aten.le, aten.eq, aten.ne)


def _has_fixed(values: Any) -> bool:
    return any(map(is_fixed, leaves(values)))


def _all_arguments(op: Any, args: Arguments, kwargs: Keywords) -> list[Any]:
    """All arguments in the order of the schema, as rows take them."""
    return [
        args[place] if place < len(args) else kwargs.get(one.name, one.default_value)
        for place, one in enumerate(op._schema.arguments)
        if not one.is_out
    ]


class Check:
    """What one operation may be off by, and what is said of it if it is off by more."""

    def __init__(self, seen: SeenCall, taken: Sequence[OpenedOnce] = ()) -> None:
        given = seen.arguments()
        assert given is not None  # or there is nothing to compare
        self.op, self.place = seen.op, seen.place
        self.args = _all_arguments(seen.op, *given)
        self.row = seen.row or UNSTATED
        self.want = torch.zeros(0)
        self.parts = seen.parts
        """Whether its parts were checked: what they add up to is not stated, if not by the row."""
        self.before = tuple(one for opened in taken for one in opened.joined)
        self.suspect = next((one.suspect for one in taken if one.suspect is not None), None)
        """What was computed in one with it, or it, if the ring does not hold the result of it."""
        self.outside: list[Bound] = []
        self.bits = 0.0

    @property
    def joined(self) -> tuple[tuple[str, Place], ...]:
        """What was joined, with this operation."""
        return (*self.before, (str(self.op), self.place))

    def allowed(self, grid: Grid, want: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
        """How far a result may be off, and ``more`` because of its operands."""
        self.bits, end = math.log2(grid.scale), CEILING / grid.scale
        self.want = want = want.double().nan_to_num(math.nan, end, -end)
        if not want.numel():
            return want
        self.outside = self.row.outside(self.bits, self.args, want)
        row = dataclasses.replace(self.row, further=None) if self.outside else self.row
        allowed = row.allowed(grid, self.args, want)
        if any(isinstance(one, float) or _is_number(one) for one in self.args):
            allowed = allowed + RELATIVE * want.abs()
        allowed = allowed.nan_to_num(0.0)
        if self.parts and not self.outside:
            allowed = PARTS_STEPS / grid.scale + PARTS_RELATIVE * want.abs().max()
        if self.suspect is None and any(bound.leaves_ring for bound in self.outside):
            self.suspect = self
        return (allowed + more).expand_as(want)

    def numbers(
        self, grid: Grid, got: torch.Tensor, want: torch.Tensor, more: torch.Tensor
    ) -> None:
        """Raise :class:`~syft.exceptions.WrongResult` where a result is off by too much."""
        allowed = self.allowed(grid, want, more)
        off = (got - self.want).abs()
        over = ~(off <= allowed)
        if self.suspect is not None or over.any():
            worst = torch.where(over, (off / allowed).nan_to_num(math.inf, math.inf), -1.0).argmax()
            most = allowed.reshape(-1)[worst]
            (self.suspect or self).fail(float(off.reshape(-1)[worst]), float(most))

    def fail(self, off: float, allowed: float) -> None:
        """Raise the error, with what to change."""
        raise WrongResult(str(self.op), line_at(self.place), off, allowed, self._instead())

    def _instead(self) -> str:
        if not self.outside:
            others = ", ".join(f"{name} at {line_at(place)}" for name, place in self.before)
            joined = f", and it is computed in one with {others}" if others else ""
            return f"its arguments are in its domain{joined}; this is a fault of syft: report it"
        bits, outside = self.bits, self.outside
        above = all(bound.ends_above(bits, self.args, self.want) for bound in outside)
        if not above:
            instead = "scale the data down, or take fewer fractional digits"
        elif all(bound.low(bits) > 0 for bound in outside):
            finer = f"fix_precision({shown(bits + 8)}, base=2)"
            instead = f"scale the data up, or take more fractional digits, such as {finer}"
        else:
            instead = "clamp them to it first"
        bounds = "; ".join(bound.text(bits) for bound in outside)
        return f"{self.row.title} on {shown(bits)} bits: made for {bounds}; {instead}"


def _is_number(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0


RELATIVE = 2.0**-50
"""By which part of a result it may be off besides with a public factor, in float64."""

PARTS_STEPS = 256
PARTS_RELATIVE = 0.05
"""What parts that are right one by one may add up to: more is no rounding."""
