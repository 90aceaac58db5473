"""Checking what shared tensors compute against the same in float64, operation by operation.

What leaves the domain of a function is wrong and nobody is told, because nobody may see it.  On
data that may be seen, a test can: :class:`verify_shares` opens the operands and the result of each
operation, computes the operation in float64 on the opened operands, and compares within the row of
``tensors.fixed.domains``.  So an error is found at the operation that makes it, and not where it
shows.

It is a dispatch mode of torch: it sees the aten operations of forward, backward and optimizers
alike, and a program without it pays nothing.  An operation that syft computes by others is taken
apart, and each of these is checked.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

import torch

from syft.callers import line_at, place_of_user
from syft.chain.wrapper import Wrapper
from syft.exceptions import UnsupportedOperation, WrongResult
from syft.ops.nested import Arguments, Keywords, leaves, replace
from syft.tensors.fixed.domains import UNSTATED, Bound, Function, row_of, shown
from syft.tensors.fixed.fixed_link import (
    FixedPrecisionTensor,
    argument,
    grid_among,
    is_fixed,
    refined,
    written,
)
from syft.tensors.fixed.grid import CEILING, Excess, Grid, encode, encode_number
from syft.tensors.fixed.rings.ring_link import is_ring
from syft.tensors.shared.additive_sharing import AdditiveSharingTensor, revealed
from syft.tensors.shared.cells import Cell
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


class verify_shares(OperationWatch):  # noqa: N801  (a context manager, called as a function)
    """Compare every operation on shared tensors in a block with the same operation in float64.

    **It opens all values**, operands and results, in this process, and is for tests on data that
    may be seen.  What is private to others is refused, with the error of ``x.get(user=...)``
    (:class:`~syft.exceptions.PermissionDenied`).  Tensors in fixed precision that are not shared
    are compared too.

    The first operation that is off by more than the table of functions states
    (``docs/fixed_precision.md``) raises :class:`~syft.exceptions.WrongResult`: it names the
    operation, the line, the error, and what to change.  Operations inside modules, losses, backward
    passes, optimizers and plans count.  After each operation what was recorded is sent, so a run
    takes many times as long.

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
        self._opened: WeakKeyDictionary[Cell, tuple[int, torch.Tensor]] = WeakKeyDictionary()

    def __enter__(self) -> verify_shares:
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        if kind is None and self.unchecked and not self.depth:
            warnings.warn(str(self), stacklevel=2)

    def __str__(self) -> str:
        left = ", ".join(f"{count} × {name}" for name, count in sorted(self.unchecked.items()))
        return f"{self.checked} operations checked" + (f", not checked: {left}" if left else "")

    # ---------------------------------------------------------------------------- one operation

    def _seen(self, call: Call, row: Function | None, run: Run) -> Any:
        """Run an operation and compare its results, and what it has written."""
        op, args, kwargs = call
        if op.is_view or op.overloadpacket in _WITHOUT_CONTENTS:
            return run()
        grid = grid_among(op, (args, kwargs)) if _has_fixed((args, kwargs)) else None
        self._open((args, kwargs))
        given = replace((args, kwargs), lambda value: self._in_clear(op, value, grid))
        exact = replace(given, lambda v: v.clone() if isinstance(v, torch.Tensor) else v)
        before = self.count
        result = run()
        want = self._exactly(op, *given)
        if want is None:
            self.unchecked[str(op)] += 1
            return result
        pairs = [*zip(leaves((result,)), leaves(want))][: row.outputs if row else None]
        pairs += [
            (argument(*place, args, kwargs), argument(*place, *given)) for place in written(op)
        ]
        self._open(found for found, _ in pairs)
        check = Check(op, _all_arguments(op, *exact), row, self.count > before)
        for found, wanted in pairs:
            self._compare(check, found, wanted)
        self.checked += 1
        return result

    def _exactly(self, op: Any, args: Arguments, kwargs: Keywords) -> tuple[Any] | None:
        """What torch has in float64, in a tuple; None if nothing can be compared with it."""
        if torch.Tag.nondeterministic_seeded in op.tags:
            return None
        try:
            return (op(*args, **kwargs),)
        except RuntimeError:  # torch has no such kernel for these types
            return None

    def _compare(self, check: Check, found: Any, want: Any) -> None:
        if type(found) is not Wrapper or not isinstance(want, torch.Tensor):
            return
        got = self._in_clear(check.op, found, None)
        if is_fixed(found):
            link: Any = found.child
            check.numbers(link.grid, got, want)
        elif not torch.equal(got, want.to(got.dtype)):
            check.fail(float((got.double() - want.double()).abs().max()), 0.0, [])

    # ---------------------------------------------------------------------------- values in clear

    def _open(self, values: Any) -> None:
        """Fetch what is shared among values and was not fetched since it was written to."""
        cells: dict[Cell, None] = {}
        for one in leaves(tuple(values)):
            for integers in _integers_of(one):
                link = integers.child
                if not isinstance(link, AdditiveSharingTensor):
                    what = "verify_shares", link.ring.name
                    raise UnsupportedOperation(*what, "it opens shared tensors, and no others")
                known = self._opened.get(link.cell)
                if known is None or known[0] != link.cell.memory.version:
                    cells[link.cell] = None
        for cell, integers in zip(cells, revealed(list(cells), self.user), strict=True):
            self._opened[cell] = cell.memory.version, integers.cpu()

    def _plain(self, integers: Any) -> torch.Tensor:
        if type(integers) is not Wrapper:
            return integers.detach().cpu()  # type: ignore[no-any-return]
        link: Any = integers.child
        found = self._opened[link.cell][1]
        return found != 0 if integers.dtype is torch.bool else found

    def _numbers(self, value: Any) -> torch.Tensor:
        """What a fixed tensor stands for, with all the digits that it has."""
        finer = refined(value)
        if finer is not None and finer.unit:
            return self._plain(finer.integers).double().mul(finer.factor / finer.unit)
        found: torch.Tensor = self._plain(value.child.child).double() / value.child.grid.scale
        return found

    def _in_clear(self, op: Any, value: Any, grid: Grid | None) -> Any:
        """An operand as the operation in float64 takes it: on the grid, if it is put there."""
        if is_fixed(value):
            return self._numbers(value)
        if is_ring(value):
            return self._plain(value).clone()
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
_COMPARISONS = (aten.gt, aten.ge, aten.lt, aten.le, aten.eq, aten.ne)


def _has_fixed(values: Any) -> bool:
    return any(map(is_fixed, leaves(values)))


def _integers_of(value: Any) -> Sequence[Any]:
    """The private integers that a value stands for."""
    if is_ring(value):
        return [value]
    if not is_fixed(value) or type(value.child.child) is not Wrapper:
        return []
    numbers = refined(value)
    return [value.child.child, *([numbers.integers] if numbers is not None else [])]


def _all_arguments(op: Any, args: Arguments, kwargs: Keywords) -> list[Any]:
    """All arguments in the order of the schema, as rows take them."""
    return [
        args[place] if place < len(args) else kwargs.get(one.name, one.default_value)
        for place, one in enumerate(op._schema.arguments)
        if not one.is_out
    ]


class Check:
    """What one operation may be off by, and what is said of it if it is off by more."""

    def __init__(self, op: Any, args: list[Any], row: Function | None, parts: bool) -> None:
        self.op = op
        self.args = args
        self.row = row or UNSTATED
        self.want = torch.zeros(0)
        self.parts = parts
        """Whether its parts were checked: what they add up to is not stated, if not by the row."""

    def numbers(self, grid: Grid, got: torch.Tensor, want: torch.Tensor) -> None:
        """Raise :class:`~syft.exceptions.WrongResult` where a result is off by too much."""
        bits, end = math.log2(grid.scale), CEILING / grid.scale
        self.want = want = want.double().nan_to_num(math.nan, end, -end)
        if not want.numel():
            return
        outside = self.row.outside(bits, self.args, want)
        allowed = self.row.allowed(grid, self.args, want)
        if any(isinstance(one, float) or _is_number(one) for one in self.args):
            allowed = allowed + RELATIVE * want.abs()
        allowed = allowed.nan_to_num(0.0)
        if self.parts and not outside:
            allowed = PARTS_STEPS / grid.scale + PARTS_RELATIVE * want.abs().max()
        off = (got - want).abs()
        wrapped = any(bound.leaves_ring for bound in outside)
        over = ~(off <= allowed)
        if wrapped or over.any():
            worst = torch.where(over, (off / allowed).nan_to_num(math.inf, math.inf), -1.0).argmax()
            most = allowed.expand_as(off).reshape(-1)[worst]
            self.fail(float(off.reshape(-1)[worst]), float(most), outside, bits)

    def fail(self, off: float, allowed: float, outside: list[Bound], bits: float = 0) -> None:
        """Raise the error, with what to change."""
        line = line_at(place_of_user())
        raise WrongResult(str(self.op), line, off, allowed, self._instead(outside, bits))

    def _instead(self, outside: list[Bound], bits: float) -> str:
        if not outside:
            return (
                f"its arguments are what {self.row.title} is made for, so this is a fault of syft; "
                "please report it"
            )
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


RELATIVE = 2.0**-24
"""By which part of a result it may be off besides with a public factor, which has 28 bits."""

PARTS_STEPS = 256
PARTS_RELATIVE = 0.05
"""What parts that are right one by one may add up to: more is no rounding."""
