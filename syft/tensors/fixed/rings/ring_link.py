"""A link whose elements are integers of a ring: what shares of several parties are.

A subclass says which ring its integers belong to and how an operation acts on its components (the
shares).  From that, the table of :class:`RingLink` computes torch's integer operations: shape
operations, additions and public factors on each component alone; products, comparisons, selections
and random access by asking the ring.  So a private integer tensor is a ``torch.Tensor`` with
``max``, ``where`` and ``gather`` of its own, and the rules of fixed precision, which call these
operations on their integers, need not know that they are private.

The wrapper reports int64, or bool for the result of a comparison; the components are integers in
both cases.  What would read a value (``item``, ``nonzero``, an index by a private mask) is refused.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

import torch

from syft.chain.link import Level, Link
from syft.chain.wrapper import Wrapper, wrap_like
from syft.exceptions import LocationMismatch, UnsupportedOperation
from syft.ops.nested import Arguments, Keywords, leaves
from syft.tensors.fixed.rings.integer_ring import PLAIN, Ring
from syft.torch_private import has_composite_kernel

aten = torch.ops.aten

NO_FRACTIONS: Final = "integers have no fractions; call fix_precision() on them first"
"""What to do instead of dividing."""

SHARE_ALIKE: Final = (
    "share them among the same workers with the same crypto_provider, or get() one and share it so"
)
"""What brings the integers of two rings together."""

_WITH_FRACTIONS: Final = frozenset(f"aten.{name}" for name in """
    div.Tensor div.Scalar mean.default mean.dim reciprocal.default sqrt.default rsqrt.default
    exp.default expm1.default exp2.default log.default log1p.default log2.default log10.default
    sigmoid.default tanh.default erf.default erfc.default logsumexp.default pow.Scalar lerp.Scalar
    """.split())
"""What gives fractions; a quotient that is rounded (``div.Tensor_mode``) gives whole numbers."""


class RingLink(Link):
    """A tensor of integers of a ring that is not plain. Abstract.

    A subclass defines :attr:`ring`, :meth:`componentwise` and ``show``.
    """

    __slots__ = ()

    level = Level.DISPATCH
    real_numbers = False

    instead: ClassVar[str] = "get it first, or compute it with comparisons, where() and sums"
    """What to do instead of an operation that would read values, for the error text."""

    @property
    def refined(self) -> Any:
        """What was noted of the memory when it was written to, until it is written to again; None
        for a kind of link whose memory keeps no notes."""
        return None

    @refined.setter
    def refined(self, note: Any) -> None:
        """Note something, if the memory keeps notes."""

    @property
    @abc.abstractmethod
    def ring(self) -> Ring:
        """The ring of the integers; the same object for all tensors that may meet."""

    @classmethod
    @abc.abstractmethod
    def componentwise(cls, op: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Run an operation that acts on each component alone; results report int64.

        The arguments hold wrappers over links of one ring, in lists too; plain tensors among them
        (indices, public factors) are the same for every component.  An in-place operation changes
        the memory of the components.
        """

    @classmethod
    def call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Run one aten operation by its rule, or by others: a composite one by its parts, an
        in-place form by the functional one."""
        rule = cls.rules.get(operation)
        if rule is not None:
            return rule(operation, *args, **kwargs)
        if has_composite_kernel(operation.name(), "CompositeImplicitAutograd"):
            return operation.decompose(*args, **kwargs)
        functional = functional_form(operation)
        if functional is None:
            raise cls.refused(operation)
        return into_targets(operation, functional, args, kwargs)

    @classmethod
    def refused(cls, op: Any) -> UnsupportedOperation:
        """The error for an operation that no rule computes without reading a value."""
        instead = NO_FRACTIONS if str(op) in _WITH_FRACTIONS else cls.instead
        return UnsupportedOperation(str(op), cls.__name__, instead)


def is_ring(value: Any) -> bool:
    """Whether a value is a tensor over a :class:`RingLink`.

    >>> is_ring(torch.ones(1))
    False
    """
    return type(value) is Wrapper and isinstance(value.child, RingLink)


def ring_of(*operands: Any) -> Ring:
    """The ring in which operands meet; plain tensors and numbers are public in every ring.

    Raises :class:`~syft.exceptions.LocationMismatch` for operands of two rings.

    >>> ring_of(torch.tensor([1]), 2).name
    'plain integers'
    """
    found: Ring = PLAIN
    for operand in operands:
        if type(operand) is Wrapper:
            ring = _ring_below(operand)
            if found is not PLAIN and ring is not found:
                raise LocationMismatch("integers", (found.name, ring.name), SHARE_ALIKE)
            found = ring
    return found


def _ring_below(tensor: Wrapper) -> Ring:
    link = tensor.child
    if not isinstance(link, RingLink):
        raise UnsupportedOperation(
            "integers of a ring", type(link).__name__, "its elements are no integers of a ring"
        )
    return link.ring


def rings_among(values: Iterable[Any]) -> Ring:
    """The ring in which all tensors among the values meet, nested ones too.

    >>> rings_among([[torch.tensor([1])], None]) is PLAIN
    True
    """
    return ring_of(*leaves(tuple(values)))


def lifted(value: Any, ring: Ring, device: torch.device) -> Any:
    """An operand in the ring: numbers and plain tensors are lifted, ring tensors stay."""
    if is_ring(value):
        return value
    value = tensor_on(device, value)
    return ring.lift(value if value.dtype is torch.bool else whole(value, ring))


def tensor_on(device: torch.device, value: Any) -> Any:
    """An operand as a tensor: a number, also one that is a tensor, goes where the others are."""
    if not isinstance(value, torch.Tensor):
        return torch.tensor(value, device=device)
    return value if value.dim() or is_ring(value) else value.to(device)


def whole(value: Any, ring: Ring) -> Any:
    """An operand as integers, public if it is: what a product of the ring takes."""
    if value.is_floating_point() or value.is_complex():
        raise UnsupportedOperation(
            f"an operand of {value.dtype}", ring.name, "encode it first, with .fix_precision()"
        )
    return as_integers(value)


def as_bits(result: Any) -> Any:
    """The same integers, reported as bool."""
    return wrap_like(result.child, result, torch.bool)


def as_integers(value: Any) -> Any:
    """The same integers, reported as int64."""
    return wrap_like(value.child, value, torch.int64) if is_ring(value) else value.to(torch.int64)


def truth_of(value: Any) -> Any:
    """What a value is where bits are written: set if it is not zero.

    >>> truth_of(2.5), truth_of(torch.tensor([2, 0]))
    (True, tensor([ True, False]))
    """
    if not isinstance(value, torch.Tensor):
        return bool(value)
    return value if value.dtype is torch.bool else value != 0


def bits_if_all(result: Any, *operands: Any) -> Any:
    """A result as bits where every operand is: a choice among bits, a product of them."""
    kinds = (
        value.dtype is torch.bool if isinstance(value, torch.Tensor) else type(value) is bool
        for value in operands
    )
    return as_bits(result) if all(kinds) else result


def into_targets(op: Any, functional: Any, args: Arguments, kwargs: Keywords) -> Any:
    """Run the functional form of an in-place or ``out=`` operation, and write what it gives into
    the targets: the first argument, or those for the results."""
    names = [argument.name for argument in op._schema.arguments if argument.is_out]
    if not names:
        return copy_into(args[0], functional(*args, **kwargs))
    inputs = {name: value for name, value in kwargs.items() if name not in names}
    result = functional(*args, **inputs)
    results = result if isinstance(result, (tuple, list)) else (result,)
    targets = [kwargs[name] for name in names]
    for target, made in zip(targets, results, strict=True):
        _check_shape(target, made)
    stored = tuple(map(copy_into, targets, results))
    return stored if len(stored) > 1 else stored[0]


def _check_shape(target: Any, made: Any) -> None:
    if target.shape != made.shape:
        raise UnsupportedOperation(
            f"out= of shape {tuple(target.shape)}",
            "a private tensor",
            f"give one of the shape of the result, {tuple(made.shape)}",
        )


def copy_into(target: Any, result: Any) -> Any:
    """Write a result into the memory of a ring tensor, and return it.

    A private result would be public in plain memory, so such a target is refused.
    """
    if not is_ring(target):
        raise UnsupportedOperation(
            "writing into a plain tensor", "a private tensor", "use the form that returns a result"
        )
    return target.copy_(result)


def functional_form(op: Any) -> Any:
    """The operation whose in-place or ``out=`` form this is, or None.

    >>> functional_form(aten.exp_.default), functional_form(aten.exp.out)
    (<OpOverloadPacket(op='aten.exp')>, <OpOverloadPacket(op='aten.exp')>)
    """
    namespace, _, name = op._schema.name.partition("::")
    if namespace != "aten":
        return None
    if any(argument.is_out for argument in op._schema.arguments):
        return op.overloadpacket
    return getattr(aten, name[:-1], None) if name.endswith("_") else None


def overloads(names: str) -> Iterable[Any]:
    """The aten overloads of names such as ``"add.Tensor neg"``; without a dot, the default one.

    >>> [str(op) for op in overloads("add.Tensor neg")]
    ['aten.add.Tensor', 'aten.neg.default']
    """
    for name in names.split():
        packet, _, overload = name.partition(".")
        yield getattr(getattr(aten, packet), overload or "default")


def ring_rule(names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter the decorated function in the table of all rings for each of the named overloads."""
    return RingLink.rule(*overloads(names))
