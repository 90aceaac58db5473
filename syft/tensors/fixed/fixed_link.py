"""The link of fixed precision: an int64 child, its grid, and the rules for aten operations.

The wrapper reports float32, and torch's autograd records the graph; forward and backward arrive
here as aten operations.  ``rules`` has a function for each operation that computes it on the
integers.  The rules are in the modules of ``syft.tensors.fixed.rules``; ``fallback`` computes every
operation without a rule.  Importing ``precision`` fills the table.

A rule is called with the operation and its arguments: ``rule(op, *args, **kwargs)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from syft.chain.link import Level, Link
from syft.callers import warn_user
from syft.chain.wrapper import Wrapper, first_link, place_of, wrap_like
from syft.exceptions import HookError, UnsupportedOperation
from syft.notebook_html import line
from syft.ops.calls import written_arguments
from syft.ops.nested import Arguments, Keywords, is_container, leaves, replace
from syft.tensors.fixed.grid import Excess, Grid, decode, encode, encode_number
from syft.tensors.fixed.rings.integer_ring import Ring
from syft.tensors.fixed.rings.ring_link import RingLink, as_integers, overloads, ring_of

FALLBACK = "fallback"
"""The key of the rule for every operation without a rule."""


@dataclass(slots=True, eq=False)
class FinerNumbers:
    """The numbers of a tensor with more digits than its grid has: ``integers * factor / unit``.

    What optimizers keep has them (``rules.finer_digits``).  A unit of 0 says that the numbers are
    zeros, of which no digits have been chosen.
    """

    integers: Any
    unit: int
    factor: float = 1.0
    is_root: bool = False
    """Whether they came from a root: 0, or from 2^24 on as integers."""
    is_kept: bool = False
    """Whether they are those of a tensor that began as one number."""
    begun: bool = True
    """Whether anything was written to it."""


class FixedPrecisionTensor(Link):
    """A tensor of numbers on a grid: integers of 64 bits that stand for multiples of
    ``base**-digits``.

    >>> from syft.tensors.fixed.precision import fix_precision
    >>> x = fix_precision(torch.tensor([1.5, -2.0]))
    >>> x
    (Wrapper)>FixedPrecisionTensor>tensor([  98304, -131072])
    >>> x.child.base, x.child.precision_fractional, x.child.child
    (2, 16, tensor([  98304, -131072]))
    """

    __slots__ = ("child", "grid", "finer")

    level = Level.DISPATCH
    real_numbers = False
    operands = (RingLink,)
    finer_rules: ClassVar[dict[Any, Callable[..., Any]]] = {}
    """The rules that are asked first where an operand may have finer numbers; they return None
    where the others are as good."""
    private_rules: ClassVar[dict[Any, Callable[..., Any]]] = {}
    """The rules that take the place of those in ``rules`` where no integer may be read."""

    def __init__(self, child: torch.Tensor, grid: Grid) -> None:
        self.child = child
        self.grid = grid
        self.finer: FinerNumbers | None = None

    @property
    def base(self) -> int:
        """The base of the grid, 2 by default."""
        return self.grid.base

    @property
    def precision_fractional(self) -> int:
        """The number of fractional digits in the base, 16 by default."""
        return self.grid.digits

    @property
    def ring(self) -> Ring:
        """The ring of the integers: who computes on them, and whether they may be read."""
        return ring_of(self.child)

    @classmethod
    def call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Run one aten operation by its rule, or by the fallback."""
        if operation is not torch.ops.aten.copy_.default and _may_differ(args, kwargs):
            args, kwargs = _on_one_grid(operation, args, kwargs)
        finer = cls.finer_rules.get(operation)
        if finer is not None and any(is_fixed(arg) and arg.child.finer for arg in args):
            found = finer(operation, *args, **kwargs)
            if found is not None:
                return found
        if written_arguments(operation):
            _forget_finer(operation, args, kwargs)
        rules = cls.rules
        rule = rules.get(operation)
        if any_private(args, kwargs):
            rules = cls.private_rules
            rule = rules.get(operation, rule)
        if rule is None:
            rule = rules[FALLBACK]
        return rule(operation, *args, **kwargs)

    def show(self) -> str:
        """The name of the link and the integers."""
        return f"FixedPrecisionTensor>{show_child(self.child)}"

    def _repr_html_(self) -> str | None:
        """What a notebook shows where the integers are not here: the grid, and where they are."""
        below = self.child.child._repr_html_() if type(self.child) is Wrapper else None
        grid = f"base {self.base}, {self.precision_fractional} digits"
        return below and f"{line(type(self).__name__, grid)}<br>{below}"

    def place(self) -> str:
        """Where the integers are."""
        return place_of(self.child)

    def elements(self) -> torch.Tensor:
        """The integers."""
        return self.child

    def shared_cell(self) -> Any:
        """The handle of the shares of the integers."""
        return first_link(self.child).shared_cell()

    def over(self, elements: torch.Tensor) -> torch.Tensor:
        """Other integers on the same grid."""
        return fixed(elements, self.grid)


def _may_differ(args: Arguments, kwargs: Keywords) -> bool:
    """Whether operands may be on two grids, for which all of them are looked through."""
    found: Grid | None = None
    for arg in args:
        if type(arg) is list or type(arg) is tuple:
            return True
        if is_fixed(arg):
            if found is not None and arg.child.grid is not found:
                return True
            found = arg.child.grid
    return bool(kwargs)


def _on_one_grid(operation: Any, args: Arguments, kwargs: Keywords) -> tuple[Arguments, Keywords]:
    """The operands on the finest of their grids, or on that of what is written to; a warning says
    so.  Rounding to the finer grid changes a number by half a step of it."""
    grids = {leaf.child.grid: None for leaf in leaves((args, kwargs)) if is_fixed(leaf)}
    if len(grids) < 2:
        return args, kwargs
    grid = max(grids, key=lambda grid: grid.scale)
    if written_arguments(operation) and is_fixed(args[0]):
        grid = args[0].child.grid
    others = " and ".join(str(other) for other in grids if other is not grid)
    warn_user(f"operands of {others} are brought to {grid}: encode them alike with fix_precision()")

    def brought(value: Any) -> Any:
        if not is_fixed(value) or value.child.grid is grid:
            return value
        return fixed(on_grid(value.child, grid), grid)

    return replace(args, brought), replace(kwargs, brought)


def any_private(args: Arguments, kwargs: Keywords) -> bool:
    """Whether the integers of an operand are in a ring that rules may not read.

    >>> any_private((torch.ones(1), [2]), {})
    False
    """
    for arg in args:
        if type(arg) is Wrapper:
            if is_private(arg):
                return True
        elif is_container(arg):
            if any(type(leaf) is Wrapper and is_private(leaf) for leaf in leaves(arg)):
                return True
    return bool(kwargs) and any_private(tuple(kwargs.values()), {})


def is_private(tensor: Wrapper) -> bool:
    """Whether the integers of a fixed or a ring tensor may not be read.

    >>> from syft.tensors.fixed.precision import fix_precision
    >>> is_private(fix_precision(torch.ones(1)))
    False
    """
    link = tensor.child
    if type(link) is FixedPrecisionTensor:
        if type(link.child) is not Wrapper:
            return False
        link = link.child.child
    return isinstance(link, RingLink) and not link.ring.readable


def show_child(child: torch.Tensor) -> str:
    """The repr of a child tensor, without ``(Wrapper)``.

    >>> show_child(torch.tensor([1, 2]))
    'tensor([1, 2])'
    """
    return child.child.show() if type(child) is Wrapper else repr(child)


# ------------------------------------------------------------------------------- more digits


def most_digits(grid: Grid) -> int:
    """The unit of the finest numbers that are summed up: with more digits, large ones would leave
    the ring.

    >>> from syft.tensors.fixed.grid import make_grid
    >>> most_digits(make_grid(2, 16)) == 2**32
    True
    """
    return min(grid.scale**2, max(1 << 36, grid.scale))


def attach(link: FixedPrecisionTensor, numbers: FinerNumbers) -> None:
    """Note finer numbers of what a link holds now, with its memory: what is written there next
    takes the note away."""
    link.finer = numbers
    _memory(link.child).refined = numbers


def refined(tensor: Any) -> FinerNumbers | None:
    """The finer numbers of a fixed tensor; None if it has none, or something else was written to
    its memory since.

    >>> from syft.tensors.fixed.precision import fix_precision
    >>> refined(fix_precision(torch.ones(1))) is None
    True
    """
    link = tensor.child
    found: FinerNumbers | None = link.finer
    return None if found is None or _memory(link.child).refined is not found else found


def _forget_finer(op: Any, args: Arguments, kwargs: Keywords) -> None:
    """Take away the notes with the plain memory that an operation is about to write to."""
    for place, name in written_arguments(op):
        target = argument(place, name, args, kwargs)
        if is_fixed(target) and type(target.child.child) is not Wrapper:
            _memory(target.child.child).refined = None


def _memory(child: Any) -> Any:
    return child.child if type(child) is Wrapper else child.untyped_storage()


def argument(place: int, name: str, args: Arguments, kwargs: Keywords) -> Any:
    """An argument of a call, by its place or its name.

    >>> argument(0, "self", (3,), {}), argument(2, "out", (3, 4), {"out": 5})
    (3, 5)
    """
    return args[place] if place < len(args) else kwargs.get(name)


# --------------------------------------------------------------------- in and out of the wrapper


def fixed(child: torch.Tensor, grid: Grid) -> Wrapper:
    """Wrap integers of the grid; the wrapper reports float32 and their shape and strides.

    >>> from syft.tensors.fixed.grid import make_grid
    >>> fixed(torch.tensor([3]), make_grid(2, 1)).dtype
    torch.float32
    """
    return wrap_like(FixedPrecisionTensor(child, grid), child, torch.float32)


def is_fixed(value: Any) -> bool:
    """Whether a value is a fixed-precision tensor.

    >>> from syft.tensors.fixed.grid import make_grid
    >>> is_fixed(fixed(torch.tensor([3]), make_grid(2, 1))), is_fixed(torch.tensor([3]))
    (True, False)
    """
    return type(value) is Wrapper and type(value.child) is FixedPrecisionTensor


def grid_among(op: Any, values: Iterable[Any]) -> Grid:
    """The grid of the fixed tensors among the values, which :meth:`FixedPrecisionTensor.call` has
    brought to one."""
    fixed_ones = (value for value in leaves(tuple(values)) if is_fixed(value))
    found: Grid | None = next((value.child.grid for value in fixed_ones), None)
    if found is None:
        raise no_rule(op, "a fixed-precision tensor stands where only a plain one can")
    return found


def integers(op: Any, value: Any, grid: Grid, excess: Excess = Excess.REFUSE) -> Any:
    """The integers of an operand: those of a fixed tensor; plain tensors and numbers are encoded.

    >>> from syft.tensors.fixed.grid import make_grid
    >>> integers("add", 1.5, make_grid(10, 3)), integers("add", None, make_grid(10, 3))
    (1500, None)
    """
    if type(value) is Wrapper:
        link: Any = value.child
        if isinstance(link, RingLink):
            return as_integers(value) * grid.scale
        return link.child
    for kinds, encoder in _ENCODERS:
        if isinstance(value, kinds):
            return encoder(op, value, grid, excess)
    return value


def fixed_beside(op: Any, value: Any, *others: Any) -> Any:
    """An operand as a fixed tensor on the grid of the operands; a plain gradient may be given.

    >>> from syft.tensors.fixed.precision import fix_precision
    >>> fixed_beside("avg_pool2d_backward", torch.tensor([1.0]), fix_precision(torch.ones(1)))
    (Wrapper)>FixedPrecisionTensor>tensor([65536])
    """
    grid = grid_among(op, (value, *others))
    return value if is_fixed(value) else fixed(integers(op, value, grid), grid)


_ENCODERS: tuple[tuple[Any, Callable[[Any, Any, Grid, Excess], Any]], ...] = (
    ((int, float), lambda op, value, grid, excess: encode_number(value, grid, excess)),
    (torch.Tensor, lambda op, value, grid, excess: encode(value, grid, excess)),
    ((list, tuple), lambda op, items, *how: [integers(op, item, *how) for item in items]),
)
"""How an operand that is not fixed becomes integers; other kinds (None) stay as they are."""


def decoded(link: FixedPrecisionTensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The numbers of a link as floats; private ones are refused.

    >>> from syft.tensors.fixed.grid import make_grid
    >>> decoded(FixedPrecisionTensor(torch.tensor([1500]), make_grid(10, 3)))
    tensor([1.5000])
    """
    if not link.ring.readable:
        raise no_rule("decoding", f"its numbers are private ({link.ring.name}); get() it first")
    return decode(link.child, link.grid, dtype)


def on_grid(link: FixedPrecisionTensor, grid: Grid) -> torch.Tensor:
    """The numbers of a link as integers of another grid, rounded once; private ones stay private.

    >>> from syft.tensors.fixed.grid import make_grid
    >>> on_grid(FixedPrecisionTensor(torch.tensor([1500]), make_grid(10, 3)), make_grid(2, 16))
    tensor([98304])
    """
    if link.ring.readable:
        return encode(decoded(link, torch.float64), grid)
    return link.ring.times(link.child, grid.scale / link.grid.scale, grid.scale)


def store(op: Any, target: Any, result: Any) -> Any:
    """Write a result into the memory of ``target``, which its views share; return ``target``.

    Raises :class:`~syft.exceptions.UnsupportedOperation` when ``target`` is a plain tensor: only
    ``float_precision()`` decodes.
    """
    link = target_of(op, target)
    link.child.copy_(integers(op, result, link.grid))
    return target


def target_of(op: Any, target: Any) -> FixedPrecisionTensor:
    """The link that an in-place operation writes to; a plain tensor is refused."""
    if not is_fixed(target):
        raise no_rule(
            op,
            "its result would be written into a tensor without fixed precision; call .fix_prec() "
            "on that one first, or .float_prec() on the operands",
        )
    link: FixedPrecisionTensor = target.child
    return link


# ---------------------------------------------------------------------------------------- errors


def no_rule(op: Any, instead: str) -> UnsupportedOperation:
    """The error for an operation without a rule, with what to do instead.

    >>> print(no_rule("aten.set_", "use copy_()"))
    FixedPrecisionTensor has no rule for aten.set_: use copy_().
    """
    return UnsupportedOperation(str(op), "FixedPrecisionTensor", instead)


# ------------------------------------------------------------------------------------- the table


def rule(names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter the decorated function in the table for each of the named overloads."""
    return FixedPrecisionTensor.rule(*overloads(names))


def private_rule(names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter the decorated function for each of the overloads, where no integer may be read."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for operation in overloads(names):
            if operation in FixedPrecisionTensor.private_rules:
                raise HookError(
                    f"FixedPrecisionTensor has two private rules for {operation}",
                    "keep one of them",
                )
            FixedPrecisionTensor.private_rules[operation] = function
        return function

    return enter
