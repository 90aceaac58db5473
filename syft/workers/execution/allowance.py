"""What one operation may use, found before it runs.

``x.expand(2**50).sum()`` takes a few bytes to ask for and years to run, and
``zeros(10**7).split(1)`` makes ten million tensors.  So what a caller may ask for is bounded: the
elements that an operation reads and makes (repeated ones of an expanded tensor included), the
memory that it allocates, and the number of its results.

Where a bound from the sizes of the operands is small
(:mod:`~syft.workers.execution.size_bounds`), nothing else is looked at.  Else the operation is
evaluated (:mod:`syft.ops.evaluate`), once for all calls that look alike; a number that it reads
from a public tensor is part of the look.  The pieces of what is cut are counted first, since an
evaluation would make each.  Of a few operations the sizes follow from values, which are public:
these have rules by hand, and a bound is guessed of what torch cannot evaluate.  The values of
private tensors are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace as changed
from math import prod
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.ops.evaluate import use_of
from syft.ops.nested import EXACT_TENSOR_TYPES, Function, every_tensor, leaves, parts, replace
from syft.ops.outcome import Use
from syft.ops.table import (
    COLUMNS,
    CROSSING,
    ELEMENTWISE,
    FLAGS,
    FLOATS_COMPUTE,
    FRESH,
    GRADIENT,
    MATRIX_PRODUCT,
    READS_GRADIENT,
    SHAPE_FROM_VALUES,
    SPLITS,
    SQUARING,
    SUMMED,
    ops_with,
)
from syft.workers.execution.size_bounds import BY_VALUES, bound, whole
from syft.workers.labels.memory_labels import full_guard_of
from syft.workers.labels.walk import elements_of, innermost

FREE: Final = 1 << 24
"""Elements that are not looked at."""

_LARGE_INTEGER: Final = 1 << 12
_BYTES_AT_MOST: Final = 8
_MOST_PIECES: Final = 1 << 16
"""Pieces of which an evaluation makes each."""
_MOST_KNOWN: Final = 4096
_PLAIN: Final = frozenset((bool, str, type(None)))
_IS_READ: Final = Use()
"""What is kept for calls of which the use follows from numbers in tensors, too."""
_known: Final[dict[Any, Use]] = {}
"""What calls use, by how they look."""


def used_by(op: int, function: Function, args: Any, kwargs: dict[str, Any]) -> Use:
    """What an operation reads and makes.

    >>> from syft.ops.table import BY_NAME
    >>> x = torch.ones(3, 1)
    >>> used_by(BY_NAME["torch.Tensor.expand"], torch.Tensor.expand, [x, 3, 2**50], {})
    Use(elements=3377699720527875, peak=0, results=1)
    >>> used_by(BY_NAME["torch.bincount"], torch.bincount, [torch.tensor([10**9])], {})
    Use(elements=1000000002, peak=8000000008, results=1)
    """
    tensors: list[torch.Tensor] = []
    try:
        key: Any = _look_of(op, args, kwargs, tensors)
        found = _known.get(key)
    except (TypeError, RuntimeError):  # a chain, another layout, an argument without a hash
        return _uncommon(op, function, args, kwargs)
    if found is _IS_READ:
        found = _known.get((key, _numbers_in(tensors)))
    return found or _evaluated(op, function, args, kwargs, tensors, key)


# -------------------------------------------------------------------------------------- looks


def _look_of(op: int, args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> Any:
    """All of a call that its use follows from, but the values of tensors; these go to ``tensors``.

    Raises TypeError if that cannot be said.
    """
    if op in _BY_RULE:
        raise TypeError
    look: list[Any] = [op, torch.get_default_dtype()]
    _look_at(args, look, tensors)
    if kwargs:
        look.append(tuple(kwargs))
        _look_at(kwargs.values(), look, tensors)
    if len(tensors) > 1:
        places = {id(tensor): place for place, tensor in enumerate(tensors)}
        if len(places) < len(tensors):
            look.append(tuple([places[id(tensor)] for tensor in tensors]))
    return tuple(look)


def _look_at(values: Iterable[Any], look: list[Any], tensors: list[torch.Tensor]) -> None:
    for value in values:
        kind = type(value)
        if kind in EXACT_TENSOR_TYPES:
            if value.layout is not torch.strided:
                raise TypeError
            look.append((value.shape, value.stride(), value.dtype))
            tensors.append(value)
        elif kind is int:
            look.append(value)
        elif kind in _PLAIN:
            look.append((kind, value))
        elif kind is list or kind is tuple:
            look.append((kind, len(value)))
            _look_at(value, look, tensors)
        else:
            _look_closer(value, look, tensors)


def _look_closer(value: Any, look: list[Any], tensors: list[torch.Tensor]) -> None:
    """The same for a value of a type that is less common."""
    kind = type(value)
    if isinstance(value, (float, complex)):  # one that only computes decides nothing
        look.append(kind if FLAGS[look[0]] & FLOATS_COMPUTE else (kind, repr(value)))
        return
    inside = parts(value)
    if inside is not None:
        items = dict(inside)
        look.append((kind, tuple(items)))
        _look_at(items.values(), look, tensors)
    elif isinstance(value, torch.Tensor):
        raise TypeError
    else:
        look.append(kind if isinstance(value, torch.Generator) else (kind, value))


def _numbers_in(tensors: Iterable[torch.Tensor]) -> tuple[Any, ...]:
    """The public numbers among tensors, each with its place."""
    numbers = ((place, tensor) for place, tensor in enumerate(tensors) if _is_number(tensor))
    return tuple([(place, repr(tensor.item())) for place, tensor in numbers])


def _is_number(tensor: torch.Tensor) -> bool:
    """Whether a tensor has one public element, which a call may read."""
    return tensor.numel() == 1 and not tensor.is_meta and full_guard_of(tensor) is None


# --------------------------------------------------------------------------------- evaluations


def _evaluated(
    op: int,
    function: Function,
    args: Any,
    kwargs: dict[str, Any],
    tensors: list[torch.Tensor],
    key: Any = None,
) -> Use:
    """What a call uses that has these tensors; it is kept under a ``key``, if there is one."""
    read = sum(map(torch.Tensor.numel, tensors))
    if op in _CUT:
        args, kwargs, follows = _with_sections(args, kwargs)
        key = key if follows else None
        count = pieces(op, args, kwargs)
        if count > _MOST_PIECES:
            return Use(read * count, read * _BYTES_AT_MOST, count)
    use, least, key = _asked(function, args, kwargs, tensors, key)
    if use.elements is None:
        made = max(_guess(op, args, kwargs, read), least)
        return Use(read + made, (read + made) * _BYTES_AT_MOST)
    found = Use(read + use.elements, use.peak, use.results)
    if key is not None:
        _keep(key, found)
    return found


def _asked(
    function: Function, args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor], key: Any
) -> tuple[Use, int, Any]:
    """What the evaluator says with the numbers that the call reads, the elements that it makes
    whatever these are, and the key of calls of which all that is true."""
    if not all(one.layout is torch.strided and not one.is_quantized for one in tensors):
        return Use(), 0, None
    use = use_of(function, args, kwargs)
    if not (use.reads or use.elements is None) or not any(map(_is_number, tensors)):
        return use, 0, key
    key = _with_numbers(key, tensors)
    return use_of(function, args, kwargs, _is_number), use.elements or 0, key


def _with_numbers(key: Any, tensors: list[torch.Tensor]) -> Any:
    """The key of a call that reads numbers from its tensors."""
    if key is None:
        return None
    _keep(key, _IS_READ)
    return key, _numbers_in(tensors)


def _keep(key: Any, use: Use) -> None:
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known[key] = use


def _uncommon(op: int, function: Function, args: Any, kwargs: dict[str, Any]) -> Use:
    """What a call uses with chains, tensors of other layouts, or whose use follows from values."""
    tensors = every_tensor(args, kwargs)
    if any(type(tensor) is Wrapper for tensor in tensors):
        inside = {id(tensor): _inside(tensor) for tensor in tensors}
        if None in inside.values():
            return Use(1)  # data is at another worker, which will look at it
        args, kwargs = replace((args, kwargs), lambda leaf: inside.get(id(leaf), leaf))
        use, copied = used_by(op, function, args, kwargs), sum(map(_copied, tensors))
        return changed(use, peak=max(use.peak, copied)) if FLAGS[op] & FRESH else use
    read = sum(map(torch.Tensor.numel, tensors))
    rule = COLUMNS["makes"].get(op)
    if rule is not None:
        made = _RULES[rule](args, kwargs, tensors)
        return Use(read + made, made * _BYTES_AT_MOST)
    if op in _BY_RULE:
        return Use(read)  # gradients are charged as they come
    return _evaluated(op, function, args, kwargs, tensors)


def _inside(tensor: torch.Tensor) -> torch.Tensor | None:
    """What an operation on a chain runs on in this process, or what is like it; None if that is
    at another worker."""
    inside = innermost(tensor)
    elements = elements_of(tensor)
    if inside is None and elements is not None:
        return torch.empty_strided(
            tensor.shape, elements.stride(), dtype=torch.float64, device="meta"
        )
    return inside


def _copied(tensor: torch.Tensor) -> int:
    """The bytes that a chain takes where it computes with each element, if it repeats some."""
    elements = elements_of(tensor) if type(tensor) is Wrapper else None
    count = 0 if elements is None else elements.numel()
    return 8 * count if elements is not None and count > elements.untyped_storage().nbytes() else 0


def _guess(op: int, args: Any, kwargs: dict[str, Any], read: int) -> int:
    """The elements that an operation may make which cannot be evaluated: what it reads, as often as
    large numbers among its arguments say, or the bound that is closer."""
    flags = FLAGS[op]
    if flags & (ELEMENTWISE | MATRIX_PRODUCT | SUMMED | SHAPE_FROM_VALUES | CROSSING):
        made = bound(op, *replace((args, kwargs), _if_large))
    else:
        numbers = (_if_large(leaf) for leaf in leaves((args, kwargs)) if type(leaf) in (int, float))
        made = (read or 1) ** (2 if flags & SQUARING else 1) * prod(map(whole, numbers))
    dims = [tensor.ndim for tensor in every_tensor(args, kwargs)]
    return made * (1 + max(dims, default=0)) if flags & SHAPE_FROM_VALUES else made


def _if_large(leaf: Any) -> Any:
    """An argument; 1 in the place of a number that is no size, most likely."""
    return 1 if type(leaf) in (int, float) and whole(leaf) < _LARGE_INTEGER else leaf


# -------------------------------------------------------------------------------------- pieces


def _named(args: Any, kwargs: dict[str, Any], place: int, name: str, default: Any) -> Any:
    """An argument by its place or its name."""
    return args[place] if len(args) > place else kwargs.get(name, default)


def _with_sections(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any], bool]:
    """The arguments of a call that cuts, with integers in the place of public tensors that say
    where, and whether there are no such tensors."""
    whole_one, found = args[0] if args else None, []

    def change(leaf: Any) -> Any:
        if leaf is whole_one or not isinstance(leaf, torch.Tensor) or leaf.ndim > 1:
            return leaf
        found.append(leaf)
        known = leaf.numel() <= _MOST_PIECES and not leaf.is_meta and full_guard_of(leaf) is None
        return leaf.tolist() if known and leaf.dtype is torch.int64 else leaf

    changed, named = replace((args, kwargs), change)
    return changed, named, not found


def pieces(op: int, args: Any, kwargs: dict[str, Any]) -> int:
    """Into how many pieces a call cuts a tensor; 1 for other calls, and for tensors elsewhere.

    >>> from syft.ops.table import BY_NAME
    >>> pieces(BY_NAME["torch.split"], [torch.ones(5, 9), 2], {})
    3
    """
    kind, _, cut = COLUMNS["pieces"].get(op, "").partition(",")
    given = args[0] if args else kwargs.get("input", kwargs.get("self", kwargs.get("tensor")))
    inside = innermost(given)
    if inside is None or not kind:
        return 1
    return _COUNTS[kind](_length(inside, cut, args, kwargs), args, kwargs)


def _length(tensor: torch.Tensor, cut: str, args: Any, kwargs: dict[str, Any]) -> int:
    """The length of the dimension that is cut, or of the longest, if that cannot be said."""
    dim = _DIMS[cut] if cut in _DIMS else _named(args, kwargs, int(cut), "dim", 0)
    if cut == "h" and tensor.ndim == 1:
        dim = 0
    if type(dim) is int and -tensor.ndim <= dim < tensor.ndim:
        return tensor.shape[dim]
    return max(tensor.shape, default=1)


_DIMS: Final = {"v": 0, "h": 1, "d": 2}


def _by_size(length: int, args: Any, kwargs: dict[str, Any]) -> int:
    size = _given(args, kwargs, "split_size_or_sections", "split_size", "split_sizes")
    if isinstance(size, (list, tuple)):
        return len(size)
    step = whole(size) if isinstance(size, (int, float)) else 1
    return max(1, -(-length // step))


def _by_chunks(length: int, args: Any, kwargs: dict[str, Any]) -> int:
    """As many as are asked for, of which those at the end may be missing."""
    chunks = _given(args, kwargs, "chunks")
    if not isinstance(chunks, int) or chunks < 1:
        return max(1, length)
    return -(-length // -(-length // chunks)) if length else chunks


def _by_sections(length: int, args: Any, kwargs: dict[str, Any]) -> int:
    sections = _given(args, kwargs, *_SECTIONS)
    if isinstance(sections, torch.Tensor):
        return sections.numel() + 1
    if isinstance(sections, (list, tuple)):
        return len(sections) + 1
    return whole(sections) if isinstance(sections, int) else 1


_SECTIONS: Final = ("sections", "indices", "indices_or_sections", "tensor_indices_or_sections")


def _given(args: Any, kwargs: dict[str, Any], *names: str) -> Any:
    """The second argument, which has one of these names."""
    found = (kwargs[name] for name in names if name in kwargs)
    return args[1] if len(args) > 1 else next(found, None)


_COUNTS: Final[dict[str, Callable[[int, Any, dict[str, Any]], int]]] = {
    "size": _by_size,
    "chunks": _by_chunks,
    "sections": _by_sections,
    "rows": lambda length, args, kwargs: length,
}

# ----------------------------------------------------------------------------- sizes by values


def _largest_value(tensor: torch.Tensor) -> int:
    if full_guard_of(tensor) is not None or not tensor.numel() or tensor.is_floating_point():
        return 0
    return whole(tensor.max().item())


def _bins(args: Any, kwargs: dict[str, Any], inputs: list[torch.Tensor]) -> int:
    least = _named(args, kwargs, 2, "minlength", 0)
    return max(_largest_value(inputs[0]) + 1, whole(least) if isinstance(least, int) else 0)


def _classes(args: Any, kwargs: dict[str, Any], inputs: list[torch.Tensor]) -> int:
    given = _named(args, kwargs, 1, "num_classes", -1)
    classes = given if isinstance(given, int) and given > 0 else _largest_value(inputs[0]) + 1
    return inputs[0].numel() * classes


def _repeats(args: Any, kwargs: dict[str, Any], inputs: list[torch.Tensor]) -> int:
    repeats = innermost(_named(args, kwargs, 1, "repeats", inputs[0]))
    if repeats is None:
        number = _named(args, kwargs, 1, "repeats", 1)
        return inputs[0].numel() * (whole(number) if isinstance(number, int) else 1)
    if full_guard_of(repeats) is not None or repeats.is_floating_point() or repeats.is_complex():
        return repeats.numel()
    total = whole(repeats.double().abs().sum().item())
    rows = 1 if repeats.numel() > 1 else inputs[0].numel()
    widest = inputs[0].numel() // max(1, repeats.numel()) if repeats is not inputs[0] else 1
    return total * max(1, rows, widest)


def _subsets(args: Any, kwargs: dict[str, Any], inputs: list[torch.Tensor]) -> int:
    length = _named(args, kwargs, 1, "r", 2)
    chosen = min(whole(length), 64) if isinstance(length, int) else 2
    return int((inputs[0].numel() + chosen) ** chosen)  # it makes a grid, and selects from that


def _cells(args: Any, kwargs: dict[str, Any], inputs: list[torch.Tensor]) -> int:
    bins = _named(args, kwargs, 1, "bins", 10)
    if isinstance(bins, (list, tuple)):
        edges = map(innermost, bins)
        return prod(
            whole(given) + 1 if edge is None else edge.numel()
            for given, edge in zip(bins, edges, strict=True)
        )
    dims: int = inputs[0].shape[-1] if inputs[0].ndim else 1
    return int((whole(bins) + 1) ** dims)


def _listed(args: Any, kwargs: dict[str, Any], inputs: list[torch.Tensor]) -> int:
    return 5 * sum(
        map(torch.Tensor.numel, inputs)
    )  # an object of 32 bytes and a pointer for each element


_RULES: Final[dict[str, Callable[[Any, dict[str, Any], list[torch.Tensor]], int]]] = {
    "bins": _bins,
    "classes": _classes,
    "repeats": _repeats,
    "subsets": _subsets,
    "cells": _cells,
    "items": _listed,
}
"""How many elements an operation makes, by the word for it in the op table."""
_CUT: Final = ops_with(SPLITS)
_BY_RULE: Final = BY_VALUES | ops_with(GRADIENT | READS_GRADIENT)
