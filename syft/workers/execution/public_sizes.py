"""How large a tensor is for what a caller may use: what everybody may know of its size.

Limits and charges are seen by whoever meets them: that something was refused, and later by how much
is left.  So they count what is public.  Of most tensors that is their shape.  A shape that follows
from private values is private, and has a *bound* that is not: ``x[x > 0]`` has at most the elements
of ``x``.  It need not be private in each dimension: ``x[mask]`` has a private number of rows, and
as many columns as ``x``.  So the *public form* of a tensor has for each dimension a size or a
bound.  It is noted on the tensor, and the bytes at most on its memory, beside the guard, when a
command makes it.  It follows from the prediction of the command, and
a result that exceeds it is a failure that follows from values
(:mod:`syft.workers.execution.predicted_run`).  So memory is never more than what is charged for it,
and may be less.

A tensor of private shape that has no bound (one that a user who may see the values has made with a
number from them) has its real size for those who may read it, and none for others: their commands
are refused if they would make anything of its size.

What was refused: the bound as a part of the guard.  Guards meet, and are compared to see whether
memory is to be moved; a view has the guard of its memory and another bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, product
from math import prod
from typing import Any, Final, NamedTuple, cast

import torch

from syft.ops.engines import stand_on
from syft.ops.nested import leaves, replace
from syft.ops.outcome import ANY
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, label_of, note, protect
from syft.workers.labels.walk import (
    elements_of,
    storages_of,
    strided_parts_of,
    tensors_of,
)

_FEW: Final = 3
"""The tensors of private shape in one command of which all extremes are tried together."""
_SOME: Final = 8
"""The size that stands for one without a bound, where it does not matter how large it is."""

Sizes = tuple[int, ...]
Call = tuple[Sequence[Any], dict[str, Any]]


def hides_shape(value: Any) -> bool:
    """Whether the shape of a value is private.

    >>> x = torch.ones(2); protect(x, Guard(frozenset(), shape_hidden=True))
    >>> hides_shape(x), hides_shape(torch.ones(2))
    (True, False)
    """
    guard = full_guard_of(value)
    return guard is not None and guard.shape_hidden


class Extent(NamedTuple):
    """The public form of a tensor whose shape is private: its sizes, or where these are ``hidden``
    their bounds, and the byte of its memory where it begins, if that is known."""

    most: Sizes
    hidden: tuple[bool, ...]
    start: int | None


def extent_of(tensor: torch.Tensor) -> Extent | None:
    """The public form of a tensor; None if its shape is private and has no bound.

    >>> extent_of(torch.ones(2, 3))
    Extent(most=(2, 3), hidden=(False, False), start=None)
    """
    if not hides_shape(tensor):
        return Extent(tuple(tensor.shape), (False,) * tensor.ndim, None)
    found: Extent | None = label_of(tensor).most
    return found


def note_sizes(
    tensor: torch.Tensor,
    most: Sizes | None,
    in_own_memory: bool = True,
    shape: Sizes | None = None,
) -> None:
    """Note the sizes that a tensor of private shape has at most; None if there is no bound.

    Those that are not ``ANY`` in its predicted shape`` are public; without one, none is.  Memory
    that it has for itself alone gets the bytes of these.

    >>> x = torch.ones(3); protect(x, Guard(frozenset(), shape_hidden=True))
    >>> note_sizes(x, (7,)); sizes_at_most(x), public_size(x).bytes
    ((7,), [28])
    """
    start = 0
    for part in strided_parts_of(tensor):
        storage = part.untyped_storage()
        if in_own_memory:
            note(storage, most=None if most is None else prod(most) * part.itemsize)
        else:
            start = label_of(storage).most or 0
    note(tensor, most=None if most is None else extent_within(most, shape, start))


def extent_within(most: Sizes, shape: Sizes | None, start: int = 0) -> Extent:
    """The public form of a tensor of these sizes at most; those are bounds that are ``ANY`` in its
    predicted shape``, or all of them without one.

    >>> extent_within((7, 2), (ANY, 2))
    Extent(most=(7, 2), hidden=(True, False), start=0)
    """
    hidden = (True,) * len(most) if shape is None else tuple(size == ANY for size in shape)
    return Extent(most, hidden, start)


def note_growth(tensor: torch.Tensor, most: Sizes | None, shape: Sizes | None = None) -> None:
    """Note the sizes at most of a tensor that a command has changed, and perhaps resized in its
    memory, which may have grown."""
    before: Extent | None = label_of(tensor).most
    start = None if before is None else before.start
    if most is None or start is None:
        return note_sizes(tensor, None)
    for part in strided_parts_of(tensor):
        storage = part.untyped_storage()
        had, grown = label_of(storage).most, start + prod(most) * part.itemsize
        note(storage, most=None if had is None else max(had, grown))
    note(tensor, most=extent_within(most, shape, start))


def note_before(tensor: torch.Tensor, guard: Guard) -> None:
    """Note the present extent of a tensor whose shape is about to become private, if it gets this
    guard and is not private yet."""
    if not guard.shape_hidden or hides_shape(tensor):
        return
    start = 0
    for part in strided_parts_of(tensor):
        note(part.untyped_storage(), most=part.untyped_storage().nbytes())
        start = int(part.storage_offset()) * part.itemsize
    note(tensor, most=Extent(tuple(tensor.shape), (False,) * tensor.ndim, start))


def note_like(tensor: Any, other: Any) -> None:
    """Note the bound of another tensor, of which one in memory of its own is a copy."""
    if isinstance(other, torch.Tensor) and hides_shape(other):
        note_sizes(tensor, sizes_at_most(other), shape=public_shape(other))


def note_received(tensor: torch.Tensor, most: Sizes, shape: Sizes | None = None) -> None:
    """Note the sizes at most of a tensor in memory that has perhaps no bound yet, if it has no more
    memory than it needs."""
    for part in strided_parts_of(tensor):
        storage, whole = part.untyped_storage(), prod(most) * part.itemsize
        if storage.nbytes() <= whole and label_of(storage).most is None:
            note(storage, most=whole)
    note(tensor, most=extent_within(most, shape))


def note_gradient(gradient: torch.Tensor, leaf: torch.Tensor) -> None:
    """Note the bound of a gradient, which has the sizes of its leaf."""
    most = sizes_at_most(leaf)
    if most is not None and hides_shape(gradient):
        note_received(gradient, most, public_shape(leaf))


def forget_sizes(value: Any) -> None:
    """Take the bound off a tensor and its memory: it follows from private values."""
    if isinstance(value, torch.Tensor):
        note_sizes(value, None)


def sizes_at_most(tensor: torch.Tensor) -> Sizes | None:
    """The sizes of a tensor as far as they are public: the shape, or its bound; None if there is
    none.

    >>> sizes_at_most(torch.ones(2, 3))
    (2, 3)
    """
    extent = extent_of(tensor)
    return None if extent is None else extent.most


def public_shape(tensor: torch.Tensor) -> Sizes:
    """The shape of a tensor with ``ANY`` for each size that is private.

    >>> x = torch.ones(3, 2); protect(x, Guard(frozenset(), True)); public_shape(x)
    (-1, -1)
    >>> note_sizes(x, (7, 2), shape=(ANY, 2)); public_shape(x)
    (-1, 2)
    """
    extent = extent_of(tensor)
    if extent is None:
        return (ANY,) * tensor.ndim
    pairs = zip(extent.most, extent.hidden, strict=True)
    return tuple(ANY if hidden else size for size, hidden in pairs)


class PublicSize(NamedTuple):
    """How large an object is, as far as everybody may know: the elements of its tensors, and each
    storage with its bytes by the address of the storage itself.

    What is not ``bounded`` has a part of which nothing is public; that is as large as it really is.
    """

    elements: int
    memory: dict[int, tuple[torch.UntypedStorage, int]]
    bounded: bool

    @property
    def bytes(self) -> list[int]:
        """The bytes of each storage."""
        return [size for _, size in self.memory.values()]


def public_size(value: Any, guarded: bool = True, once: bool = False) -> PublicSize:
    """How large an object is, as far as everybody may know; a pointer has one element.

    Nothing is private where nothing is ``guarded``.  A tensor of which that is not asked gets no
    attributes.  An element that ``expand`` repeats counts each time, or ``once``.

    >>> x = torch.ones(3); protect(x, Guard(frozenset(), True)); public_size(x).bounded
    False
    >>> note_sizes(x, (7,)); size = public_size(x); size.elements, size.bytes, size.bounded
    (7, [28], True)
    """
    elements, bounded = 0, True
    memory: dict[int, tuple[torch.UntypedStorage, int]] = {}
    for tensor in tensors_of(value):
        guard = full_guard_of(tensor) if guarded else None
        hidden = guard is not None and guard.shape_hidden
        extent: Extent | None = label_of(tensor).most if hidden else None
        inside = elements_of(tensor)
        real = 1 if inside is None else _elements_in(inside, once)
        elements += real if extent is None else prod(extent.most)
        bounded &= extent is not None or not hidden
        for storage in storages_of(tensor):
            most = _bytes_at_most(tensor, storage, guard)
            bounded &= most is not None
            memory[storage._cdata] = storage, storage.nbytes() if most is None else most
    return PublicSize(elements, memory, bounded)


def _elements_in(tensor: torch.Tensor, once: bool) -> int:
    """The elements of a tensor; those that ``expand`` repeats each time, or ``once``."""
    if not once or tensor.layout is not torch.strided or tensor.is_nested:
        return tensor.numel()
    return prod(
        n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not n
    )


def _bytes_at_most(
    tensor: torch.Tensor, storage: torch.UntypedStorage, guard: Guard | None
) -> int | None:
    """The bytes that everybody may know of in one storage of a tensor with this guard; None if
    nothing is."""
    elements = None if guard is None else elements_of(tensor)
    if elements is None or elements.layout is torch.strided:
        hidden = guard is not None and guard.shape_hidden
        return cast(int | None, label_of(storage).most) if hidden else storage.nbytes()
    if elements.layout is torch.jagged:
        return None
    # how many elements a sparse one has values for is private: indices or values of every element
    whole = (elements.numel() + 1) * max(8 * elements.ndim, elements.itemsize)
    return whole if storage.nbytes() <= whole else None


# --------------------------------------------------------------------------------- public forms


def forms_of(args: Sequence[Any], kwargs: dict[str, Any], user: str | None = None) -> list[Call]:
    """The arguments of a command as they are in public: with tensors without memory in the place of
    those whose shape is private, once for each extreme of their sizes.

    In the first form all private sizes are 1.  A tensor without a bound is as it is for a ``user``
    who may read it.

    >>> x = torch.ones(3); protect(x, Guard(frozenset(), shape_hidden=True))
    >>> note_sizes(x, (7,)); [tuple(form[0].shape) for form, _ in forms_of([x], {})]
    [(1,), (7,), (7,)]
    >>> forms_of([torch.ones(2)], {})
    [([tensor([1., 1.])], {})]
    """
    hidden = [one for one in _hiding(args, kwargs) if not _is_open(one, user)]
    if not hidden:
        return [(args, kwargs)]
    most = _with_sizes(hidden, _at_most(hidden), args, kwargs, True)
    extremes = _extremes(hidden)
    return [*(_with_sizes(hidden, sizes, args, kwargs) for sizes in extremes), most]


def forms_beyond(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Call], list[Call]]:
    """The arguments of a command with other sizes in the place of the private ones: with none, and
    with sizes beyond their bounds, which shows what a command is without them.

    The first of the larger forms are the bounds themselves; then all sizes are twice as large, one
    more, and two equal ones.

    >>> x = torch.ones(3); protect(x, Guard(frozenset(), shape_hidden=True)); note_sizes(x, (7,))
    >>> [[tuple(form[0].shape) for form, _ in forms] for forms in forms_beyond([x], {})]
    [[(0,)], [(7,), (14,), (8,), (9,)]]
    """
    hidden = _hiding(args, kwargs)
    none, *beyond = (_with_sizes(hidden, sizes, args, kwargs) for sizes in _beyond(hidden))
    return [none], beyond


def largest_form(args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
    """The arguments of a command with the sizes at most in the place of the private ones."""
    hidden = _hiding(args, kwargs)
    return _with_sizes(hidden, _at_most(hidden, _SOME), args, kwargs)


def _beyond(hidden: Sequence[torch.Tensor]) -> list[tuple[Sizes, ...]]:
    """The sizes of each tensor in each form: none, at most, twice and one more, and equal ones."""
    most = _at_most(hidden, _SOME)
    least = min(chain.from_iterable(map(_private, hidden, most)), default=_SOME)
    every = [
        [(0,) * len(sizes) for sizes in most],
        most,
        [tuple(2 * size for size in sizes) for sizes in most],
        [tuple(size + 1 for size in sizes) for sizes in most],
        *([(least + n,) * len(sizes) for sizes in most] for n in (1, 2)),
    ]
    none, *larger = (tuple(map(_kept, hidden, sizes)) for sizes in every)
    return [none, *dict.fromkeys(larger)]


def _hiding(args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors of private shape among arguments."""
    found = {id(leaf): leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
    return [*filter(hides_shape, found.values())]


def _with_sizes(
    hidden: Sequence[torch.Tensor],
    sizes: Sequence[Sizes],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    gaps: bool = False,
) -> Call:
    """Arguments with tensors without memory of these sizes in the place of some; with ``gaps``, so
    that what needs not be a view is none."""
    pairs = zip(hidden, sizes, strict=True)
    standing = {id(tensor): _standing(tensor, its, gaps) for tensor, its in pairs}
    return cast(Call, replace((args, kwargs), lambda leaf: standing.get(id(leaf), leaf)))


def _is_open(tensor: torch.Tensor, user: str | None) -> bool:
    guard = full_guard_of(tensor)
    return sizes_at_most(tensor) is None and guard is not None and guard.admits(user)


def _kept(tensor: torch.Tensor, sizes: Sizes) -> Sizes:
    """Sizes for a tensor, which keeps those that are public."""
    shape = public_shape(tensor)
    return tuple(size if its == ANY else its for its, size in zip(shape, sizes, strict=True))


def _private(tensor: torch.Tensor, sizes: Sizes) -> Iterator[int]:
    """The sizes of a tensor that are private."""
    return (size for its, size in zip(public_shape(tensor), sizes, strict=True) if its == ANY)


def _at_most(hidden: Sequence[torch.Tensor], unbounded: int = 1) -> tuple[Sizes, ...]:
    """The sizes at most of each tensor; ``unbounded`` where there is no bound."""
    return tuple(sizes_at_most(one) or (unbounded,) * one.ndim for one in hidden)


def _extremes(hidden: Sequence[torch.Tensor]) -> list[tuple[Sizes, ...]]:
    """The sizes of each tensor in each form: private ones 1, at most, and the least of these."""
    ones = tuple(_kept(tensor, (1,) * tensor.ndim) for tensor in hidden)
    most = _at_most(hidden)
    if len(hidden) <= _FEW:
        found = [*product(*zip(ones, most, strict=True))]
    else:
        found = [ones, most]
    found.append(
        tuple(_kept(one, _least(most, len(its))) for one, its in zip(hidden, most, strict=True))
    )
    return [*dict.fromkeys(found)]


def _least(many: Iterable[Sizes], ndim: int) -> Sizes:
    """The least of the sizes with so many dimensions: results of tensors of equal sizes fit it."""
    return tuple(map(min, zip(*(sizes for sizes in many if len(sizes) == ndim), strict=True)))


def is_viewed(tensor: torch.Tensor) -> bool:
    """Whether a tensor of private size lies in memory of which a command has made a view.

    Some views cannot be made for some sizes, and what stands for them is none.  So whether a graph
    that is written to one of them leads to the others follows from the sizes.

    >>> is_viewed(torch.ones(2))
    False
    """
    return any(label_of(part.untyped_storage()).viewed for part in strided_parts_of(tensor))


def _standing(tensor: torch.Tensor, sizes: Sizes, gaps: bool) -> torch.Tensor:
    kind: Any = {"dtype": tensor.dtype, "device": "meta"}
    if gaps and sizes:
        made = torch.empty((*sizes[::-1], 2), **kind)[..., 0].permute(*range(len(sizes))[::-1])
        made = torch.empty_strided(made.shape, made.stride(), **kind)
    else:
        made = torch.empty(sizes, **kind)
    if tensor.requires_grad:
        made.requires_grad_()
        if not (tensor.is_leaf or gaps or is_viewed(tensor)):
            with torch.enable_grad():
                made = made.clone()  # has a graph, as the tensor has, and may be written
    protect(made, full_guard_of(tensor))
    stand_on(made, tensor.device)
    return made
