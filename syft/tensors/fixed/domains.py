"""What each function of private numbers takes, and how far it may be off: as data.

A row says of a function which arguments it is made for, as a function of the grid; how far its
result may be from the exact one; and what comes beyond.  Grids that a function is not
made for are refused by these rows, and the tests scan each function over all that its row says.

What has no row is exact on the integers, is rounded once, or is made of parts that have rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from syft.exceptions import UnsupportedOperation
from syft.tensors.fixed import measures
from syft.tensors.fixed.approximations import largest_exponent
from syft.tensors.fixed.grid import Grid
from syft.tensors.fixed.rings.ring_link import functional_form

aten = torch.ops.aten


def _no_end(bits: float) -> float:
    return math.inf


def _below_all(bits: float) -> float:
    return -math.inf


@dataclass(frozen=True, slots=True)
class Bound:
    """The ends between which something must be; both follow from the bits of the grid."""

    what: str
    measure: measures.Measure
    low: Callable[[float], float] = _below_all
    high: Callable[[float], float] = _no_end
    leaves_ring: bool = False
    """Whether what is beyond may wrap, in some runs or in all."""

    def text(self, bits: float) -> str:
        """The bound in words.

        >>> Bound("arguments", measures.first, high=lambda bits: 2.0 ** (46 - bits)).text(16)
        'arguments below 2³⁰'
        """
        low, high = self.low(bits), self.high(bits)
        words = [f"from {shown(low)}"] if low > -math.inf else []
        words += [f"below {shown(high)}"] if high < math.inf else []
        return f"{self.what} {', '.join(words)}"

    def holds(self, bits: float, args: Sequence[Any], want: Any) -> bool:
        """Whether all that is measured lies between the ends."""
        found = self.measure(args, want)
        return bool(((found >= self.low(bits)) & (found < self.high(bits))).all())

    def ends_above(self, bits: float, args: Sequence[Any], want: Any) -> bool:
        """Whether something that is measured is too small."""
        return bool((self.measure(args, want) < self.low(bits)).any())


@dataclass(frozen=True, slots=True)
class Function:
    """A row: the operations of a function of private numbers, its domain, its error."""

    title: str
    operations: str
    how: str
    bounds: tuple[Bound, ...]
    steps: float
    """How many steps of the grid the result may be off; 0 if it is exact."""
    absolute: float = 0.0
    """By how much besides, on any grid: the numbers inside have 24 digits."""
    relative: float = 0.0
    """By which part of the result besides."""
    further: tuple[str, measures.Measure] | None = None
    """Steps besides that follow from the arguments."""
    beyond: str = "anything"
    parts: bool = False
    """Whether only the domain is stated here, and the error is that of the parts."""
    outputs: int | None = None
    """How many results, from the first, can be compared; all if nothing is said."""

    def domain(self, bits: float) -> str:
        """What it is made for, on a grid of so many bits.

        >>> ROWS[aten.exp].domain(16)
        'arguments below 13.17'
        """
        return "; ".join(bound.text(bits) for bound in self.bounds) or "all"

    def error(self) -> str:
        """How far the result may be off, in words.

        >>> ROWS[aten.exp].error()
        '1.5 steps, and 2·10⁻⁷ of the result'
        """
        if self.parts:
            return "that of its parts"
        if not self.steps:
            return "none"
        words = [f"{shown(self.steps)} step{'' if self.steps == 1 else 's'}"]
        words += [f"{self.further[0]}"] if self.further else []
        words += [shown(self.absolute)] if self.absolute else []
        words += [f"{shown(self.relative)} of the result"] if self.relative else []
        return ", and ".join(words)

    def allowed(self, grid: Grid, args: Sequence[Any], want: torch.Tensor) -> torch.Tensor:
        """How far each result may be off, as float64."""
        steps = (
            self.further[1](args, want) + self.steps
            if self.further
            else measures.number_of(self.steps)
        )
        allowed: torch.Tensor = self.relative * want.abs() + self.absolute + steps / grid.scale
        return allowed

    def outside(self, bits: float, args: Sequence[Any], want: Any) -> list[Bound]:
        """The bounds that do not hold."""
        return [bound for bound in self.bounds if not bound.holds(bits, args, want)]

    def usable(self, bits: float) -> bool:
        """Whether there is anything that it is made for."""
        return all(bound.low(bits) < bound.high(bits) for bound in self.bounds)


def shown(number: float) -> str:
    """A number as the documents have it.

    >>> [shown(number) for number in (2.0**30, 13.1698, 2e-6, 1.5, 2.0**-16, 6.7e7)]
    ['2³⁰', '13.17', '2·10⁻⁶', '1.5', '2⁻¹⁶', '6.7·10⁷']
    """
    mantissa, exponent = math.frexp(number)
    if mantissa == 0.5 and abs(exponent - 1) > 6:
        return f"2{_raised(exponent - 1)}"
    if 0 < abs(number) < 1e-3 or abs(number) >= 1e5:
        tens = math.floor(math.log10(abs(number)) + 1e-9)
        return f"{number / 10.0**tens:.3g}·10{_raised(tens)}"
    return f"{number:.4g}"


def _raised(number: int) -> str:
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


# ----------------------------------------------------------------------------------- what is stated


def _power(exponent: Callable[[float], float]) -> Callable[[float], float]:
    return lambda bits: 2.0 ** exponent(bits)


_PRODUCTS = _power(lambda bits: 62 - 2 * bits)
_NORMALISED = _power(lambda bits: min(math.floor(bits) + 30, 60) - bits)
_STEP = _power(lambda bits: -bits)
_SPREAD = _power(lambda bits: 7.36 - bits)
_ARGUMENTS = "arguments"


def _norm_bounds(norm: Callable[[Sequence[Any]], measures.Normed]) -> tuple[Bound, ...]:
    squares = partial(measures.distances, norm)
    return (
        Bound("variances", partial(measures.variances, norm), _SPREAD, _NORMALISED),
        Bound("squares of the distances to the mean", squares, high=_PRODUCTS, leaves_ring=True),
    )


def _zero(bits: float) -> float:
    return 0.0


def _largest_of_exp(bits: float) -> float:
    return (largest_exponent(1 << math.ceil(bits)) + 1) * math.log(2)


_NORM = (
    "times the weight 4 steps, 2 steps over the deviation, and 2 steps over the variance and 2 "
    "times the deviation of what is normalised"
)


FUNCTIONS: tuple[Function, ...] = (
    Function(
        "`x * y`, `@`, convolutions",
        "mul mm bmm mv dot vdot linalg_cross convolution _convolution _prelu_kernel",
        "exact in all terms, rounded once",
        (Bound("results", measures.result, high=_PRODUCTS, leaves_ring=True),),
        steps=1,
    ),
    Function(
        "`addmm`, `addcmul`",
        "addmm addmv baddbmm addbmm addr addcmul",
        "likewise, and times their public factors",
        (Bound("results", measures.result, high=_PRODUCTS, leaves_ring=True),),
        steps=2,
        further=("1 step times the factor", measures.of_factor),
    ),
    Function(
        "`mse_loss`",
        "mse_loss",
        "squares, each rounded for a mean, and summed before for a sum",
        (Bound("squares, or their sum", measures.losses, high=_PRODUCTS, leaves_ring=True),),
        steps=2,
    ),
    Function(
        "`x / y`, `addcdiv`",
        "div addcdiv",
        "normalised by comparisons, three steps of Newton",
        (
            Bound("dividends", measures.dividends, high=_power(lambda bits: 36 - bits)),
            Bound("divisors", measures.divisors, _STEP, _power(lambda bits: 36 - bits)),
            Bound(
                "quotients", measures.quotients, high=lambda bits: min(3.3e7, 2.0 ** (57 - bits))
            ),
        ),
        steps=1,
        relative=2e-6,
        further=("2 steps over the divisor", measures.of_divisor),
        beyond="0 for a divisor of 0",
    ),
    Function(
        "`reciprocal`",
        "reciprocal",
        "likewise",
        (Bound("sizes", measures.size, _power(lambda bits: max(-bits, bits - 35))),),
        steps=2,
        relative=2e-6,
        beyond="0 for 0",
    ),
    Function(
        "`exp`",
        "exp",
        "range split by comparisons, a polynomial of degree 5",
        (Bound(_ARGUMENTS, measures.first, high=_largest_of_exp),),
        steps=1.5,
        relative=2e-7,
    ),
    Function(
        "`log`",
        "log",
        "normalised, a polynomial of degree 8",
        (Bound(_ARGUMENTS, measures.first, _STEP, _NORMALISED),),
        steps=2,
        absolute=4e-7,
        beyond="below the logarithm of a step",
    ),
    Function(
        "`sqrt`",
        "sqrt",
        "normalised, three steps of Newton",
        (Bound(_ARGUMENTS, measures.first, _zero, _NORMALISED),),
        steps=2,
        absolute=5e-7,
        relative=1e-6,
        beyond="0",
    ),
    Function(
        "`rsqrt`",
        "rsqrt",
        "likewise",
        (
            Bound(
                _ARGUMENTS,
                measures.first,
                _power(lambda bits: max(-bits, 2 * bits - 72)),
                _NORMALISED,
            ),
        ),
        steps=2,
        relative=1e-6,
        beyond="0",
    ),
    Function(
        "whole powers up to 64, and halves of them",
        "pow",
        "squaring, of the root or the reciprocal",
        (Bound("results", measures.result, high=_PRODUCTS, leaves_ring=True),),
        steps=1,
        parts=True,
    ),
    Function(
        "`sigmoid`, `tanh`",
        "sigmoid tanh",
        "`exp(-abs(x))` and a reciprocal",
        (Bound("sizes", measures.size, high=_power(lambda bits: 60 - bits)),),
        steps=1,
        absolute=2e-6,
    ),
    Function(
        "`erf`",
        "erf",
        "Abramowitz and Stegun 7.1.26, of the size up to 8",
        (),
        steps=2,
        absolute=2e-6,
    ),
    Function(
        "`softplus`, `gelu`, `silu`, `mish`",
        "softplus gelu silu mish",
        "`max(x, 0)` and an even curve, of the size up to where it is 0",
        (),
        steps=2,
        absolute=4e-6,
        further=("1 step over `beta`", measures.of_beta),
    ),
    Function(
        "their gradients",
        "softplus_backward gelu_backward silu_backward mish_backward",
        "torch's formulas, of arguments up to where the slope is 0 or 1",
        (),
        steps=24,
        absolute=1e-4,
        relative=1e-4,
        further=("24 steps times the gradient", measures.of_gradient),
    ),
    Function(
        "`softmax`",
        "_softmax _safe_softmax",
        "the largest subtracted first",
        (Bound("differences", measures.spread, high=_power(lambda bits: 62 - bits)),),
        steps=2,
        absolute=2e-6,
    ),
    Function(
        "`log_softmax`",
        "_log_softmax",
        "likewise",
        (Bound("differences", measures.spread, high=_power(lambda bits: 62 - bits)),),
        steps=2,
        absolute=2e-6,
    ),
    Function(
        "`var`",
        "var var_mean",
        "squares of the distances to the mean, each rounded",
        (Bound("squares", measures.squares, high=_PRODUCTS, leaves_ring=True),),
        steps=2,
    ),
    Function(
        "`std`",
        "std",
        "the root of that",
        (Bound("squares", measures.squares, high=_PRODUCTS, leaves_ring=True),),
        steps=2,
        relative=1e-6,
        further=("2 steps over the deviation, 512 at most", measures.of_root),
    ),
    Function(
        "`layer_norm`",
        "native_layer_norm",
        "the variance on the grid, and `rsqrt` of it",
        _norm_bounds(measures.layers),
        steps=2,
        further=(_NORM, partial(measures.of_norm, measures.layers)),
        outputs=1,
    ),
    Function(
        "`batch_norm` and `instance_norm`",
        "native_batch_norm _native_batch_norm_legit",
        "likewise",
        _norm_bounds(measures.batches),
        steps=2,
        further=(_NORM, partial(measures.of_norm, measures.batches)),
        outputs=1,
    ),
    Function(
        "`group_norm`",
        "native_group_norm",
        "likewise",
        _norm_bounds(measures.groups),
        steps=2,
        further=(_NORM, partial(measures.of_norm, measures.groups)),
        outputs=1,
    ),
    Function(
        "`torch.linalg.inv`, `solve`",
        "linalg_inv_ex _linalg_solve_ex",
        "elimination with private exchanges of rows, refined",
        (
            Bound("numbers", measures.size, high=_power(lambda bits: 36 - bits)),
            Bound("solutions", measures.result, high=_power(lambda bits: 36 - bits)),
            Bound("row sums of the inverse", measures.row_sums, high=lambda bits: 2000.0),
        ),
        steps=2,
        further=("2 steps times 1 + the largest row sum of the inverse", measures.of_inverse),
        outputs=1,
    ),
    Function(
        "`torch.linalg.det`",
        "_linalg_det",
        "the product of the pivots",
        (Bound("results", measures.result, high=_PRODUCTS, leaves_ring=True),),
        steps=8,
        relative=2e-4,
        further=("some steps times 1 + the largest row sum of the inverse", measures.of_inverse),
        outputs=1,
    ),
)
"""Every function of private numbers that is approximated, or that has an end."""


OTHERS: tuple[Function, ...] = (
    Function(
        "`+`, `-`, sums, views, `relu`, `abs`, integers",
        "",
        "on the integers",
        (Bound("results", measures.result, high=_power(lambda bits: 62 - bits), leaves_ring=True),),
        steps=0,
        beyond="wraps beyond twice that",
    ),
    Function(
        "comparisons, `max`, `min`, `argmax`, `max_pool`",
        "",
        "a tournament of comparisons",
        (
            Bound(
                "differences",
                measures.spread,
                high=_power(lambda bits: 63 - bits),
                leaves_ring=True,
            ),
        ),
        steps=0,
    ),
    Function(
        "times or over a public number, `mean`",
        "",
        "one truncation, exact for a whole divisor; another number counts as float64",
        (
            Bound("values", measures.size, high=_power(lambda bits: 62 - bits)),
            Bound(
                "results", measures.result, high=_power(lambda bits: 63 - bits), leaves_ring=True
            ),
        ),
        steps=1,
        relative=2.0**-52,
    ),
)
"""What is exact, or rounded once, and so has no row of its own: for the documents."""


def _rows() -> dict[Any, Function]:
    found: dict[Any, Function] = {}
    for function in FUNCTIONS:
        for name in function.operations.split():
            packet = getattr(aten, name)
            assert packet not in found  # one row states what an operation does
            found[packet] = function
    return found


ROWS: dict[Any, Function] = _rows()
"""The row of each operation."""

UNSTATED = Function(
    "what has no row",
    "",
    "exact on the integers, or rounded once or twice",
    (Bound("results", measures.result, high=_power(lambda bits: 62 - bits), leaves_ring=True),),
    steps=2,
    relative=2.0**-50,
)
"""What holds for an operation without a row: sums, comparisons, means, products with numbers."""


def row_of(op: Any, args: Sequence[Any]) -> Function | None:
    """The row of a call, also of an in-place or ``out=`` form; None if it has none.

    A product with a public number, or with integers, is no product of two numbers on the grid.

    >>> row_of(aten.exp_.default, []).title, row_of(aten.relu.default, [])
    ('`exp`', None)
    """
    packet = op.overloadpacket if op.overloadpacket in ROWS else functional_form(op)
    if packet is aten.mul and not all(map(_has_fractions, args)):
        return None
    return ROWS.get(packet)


def _has_fractions(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


@functools.cache
def refuse_grid(op: Any, grid: Grid) -> None:
    """Refuse a function on a grid that is too fine for it: nothing would be right.

    >>> from syft.tensors.fixed.grid import make_grid
    >>> refuse_grid(aten.exp.default, make_grid(2, 40))
    Traceback (most recent call last):
    syft.exceptions.UnsupportedOperation: FixedPrecisionTensor has no rule for aten.exp.default: \
on base 2 with 40 digits there are no numbers that it is made for; fix_precision(28, base=2) has \
some: arguments below 4.852.
    """
    row = ROWS[op.overloadpacket]
    if not row.usable(math.log2(grid.scale)) or grid.scale > 1 << FINEST:
        fit = next(bits for bits in range(FINEST, 0, -1) if row.usable(bits))
        raise UnsupportedOperation(
            str(op),
            "FixedPrecisionTensor",
            f"on {grid} there are no numbers that it is made for; fix_precision({fit}, base=2) has "
            f"some: {row.domain(fit)}",
        )


FINEST = 28
"""The most binary digits of a grid for approximated functions: their numbers inside have 24."""


def table(bits: int) -> list[str]:
    """The rows as a table of a document, on a grid of so many bits.

    >>> table(16)[2][:50]
    '| `+`, `-`, sums, views, `relu`, `abs`, integers |'
    """
    lines = [
        f"| function | how | made for, on {bits} bits | error | beyond |",
        "|---|---|---|---|---|",
    ]
    for row in (*OTHERS, *FUNCTIONS):
        beyond = row.beyond if row.bounds else "–"
        lines.append(f"| {row.title} | {row.how} | {row.domain(bits)} | {row.error()} | {beyond} |")
    return lines


def errors(bits: int) -> list[str]:
    """How far results may be off, as a table.

    >>> errors(16)[2]
    '| `+`, `-`, sums, views, `relu`, `abs`, integers | results below 2⁴⁶ | none |'
    """
    lines = [f"| operation | made for, on {bits} bits | largest error |", "|---|---|---|"]
    for row in (*OTHERS, *FUNCTIONS):
        lines.append(f"| {row.title} | {row.domain(bits)} | {row.error()} |")
    return lines
