"""What an operation will read and make: it is run on tensors without memory (torch's ``meta``).

A forecast takes a tenth of a millisecond, and is kept for operands of the same sizes.  An operation
whose sizes depend on values has none; those of which values can make a large result have a row by
hand (:mod:`~syft.workers.execution.size_rules`).  Of all others the large integers among the
arguments count.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import torch

from syft.ops.forms import FORMS
from syft.ops.nested import leaves, replace
from syft.torch_private import TorchDispatchMode
from syft.workers.execution.size_rules import BY_VALUES, is_size, whole
from syft.workers.labels.walk import innermost

_MOST_KEPT: Final = 1 << 12
_LARGE_INTEGER: Final = 1 << 12
_BYTES_BY_VALUE: Final = 8

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Extent:
    """What an operation reads and makes: elements, bytes of new memory, and results."""

    elements: int
    bytes: int = 0
    results: int = 1


class _Forecasts(OrderedDict[Any, Extent]):
    """The forecasts of the last few thousand signatures."""

    def keep(self, signature: Any, extent: Extent) -> None:
        """Add a forecast, and forget the oldest one if there are too many."""
        self[signature] = extent
        if len(self) > _MOST_KEPT:
            self.popitem(last=False)


_FORECASTS = _Forecasts()


def extent_of(op: int, function: Function, args: Any, kwargs: dict[str, Any]) -> Extent:
    """What an operation reads and makes.

    >>> from syft.ops.table import BY_NAME
    >>> x = torch.ones(3, 1)
    >>> extent_of(BY_NAME["torch.Tensor.expand"], torch.Tensor.expand, [x, 3, 2**50], {})
    Extent(elements=3377699720527875, bytes=0, results=1)
    >>> extent_of(BY_NAME["torch.bincount"], torch.bincount, [torch.tensor([10**9])], {})
    Extent(elements=1000000002, bytes=8000000008, results=1)
    """
    given = [innermost(leaf) for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    inputs = [inside for inside in given if inside is not None]
    if len(inputs) < len(given):
        return Extent(1)  # data is at another worker, which will look at it
    row = BY_VALUES.get(op)
    if row is not None:
        made = row(args, kwargs, inputs)
        read = sum(map(torch.Tensor.numel, inputs))
        return Extent(read + made, made * _BYTES_BY_VALUE)
    signature = (op, _signature(args), _signature(kwargs))
    try:
        known = _FORECASTS.get(signature)
    except TypeError:  # something in it has no hash
        return _forecast(function, args, kwargs, inputs)
    if known is None:
        known = _forecast(function, args, kwargs, inputs)
        _FORECASTS.keep(signature, known)
    return known


def _signature(value: Any) -> Any:
    """What of an operand the sizes depend on."""
    if isinstance(value, torch.Tensor):
        return _signature_of_tensor(value)
    rule = _SIGNATURES.get(type(value))
    return (type(value), value) if rule is None else rule(value)


def _signature_of_tensor(tensor: torch.Tensor) -> Any:
    inside: Any = innermost(tensor)
    number = inside.item() if is_size(inside) else None
    strides = inside.stride() if inside.layout is torch.strided else inside.layout
    return (inside.shape, strides, inside.dtype, number)


def _signature_of_items(items: Any) -> Any:
    return tuple(map(_signature, items))


_SIGNATURES: Final[dict[type, Callable[[Any], Any]]] = {
    list: _signature_of_items,
    tuple: _signature_of_items,
    torch.Size: _signature_of_items,
    dict: lambda items: tuple((key, _signature(item)) for key, item in items.items()),
    slice: lambda item: ("slice", *map(_signature, (item.start, item.stop, item.step))),
}


class _Measuring(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that notes the elements and bytes of what the parts of an operation make."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0
        self.bytes = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for made in leaves(result):
            if isinstance(made, torch.Tensor):
                self.elements = max(self.elements, made.numel())
                if made.layout is torch.strided:
                    self.bytes = max(self.bytes, made.untyped_storage().nbytes())
        return result


def _forecast(
    function: Function, args: Any, kwargs: dict[str, Any], inputs: list[torch.Tensor]
) -> Extent:
    """Run an operation on tensors without memory; a guess by hand if that fails.

    Integers of one element keep their values at first, since sizes may follow from them.
    """
    if function in FORMS:
        function = FORMS[function].predicted
    read = sum(map(torch.Tensor.numel, inputs))
    named = {**kwargs, "device": _META} if "device" in kwargs else kwargs
    for values in (True, False):
        given: list[torch.Tensor] = []
        measured = _Measuring()
        try:
            operands = _weightless((list(args), named), given, values)
            with warnings.catch_warnings(), torch.no_grad(), _META, measured:
                warnings.simplefilter("ignore")
                result = function(*operands[0], **operands[1])
            break
        except Exception:  # it has no forecast, or fails as the operation itself will
            continue
    else:
        return _guess(args, kwargs, read)
    tensors = [leaf for leaf in leaves(result) if isinstance(leaf, torch.Tensor)]
    made = sum(tensor.numel() for tensor in tensors)
    grown = _new_memory(tensors, given)
    extra = measured.bytes if measured.bytes > _largest(inputs) else 0
    return Extent(read + max(made, measured.elements), max(grown, extra), max(1, len(tensors)))


_META: Final = torch.device("meta")


def _weightless(arguments: Any, given: list[torch.Tensor], values: bool) -> Any:
    """The operands with tensors without memory in the place of others, which go to ``given``; with
    ``values``, integers of one element are copies."""

    def weightless(leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return _META
        inside = innermost(leaf)
        if inside is None:
            return leaf
        if values and is_size(inside):
            return inside.clone()  # the operation may write to it
        if inside.layout is not torch.strided or inside.is_quantized:
            raise NotImplementedError("it has no layout that the device meta knows")
        kind = inside.dtype
        twin = torch.empty_strided(inside.shape, inside.stride(), dtype=kind, device=_META)
        given.append(twin)
        return twin

    return replace(arguments, weightless)


def _new_memory(tensors: list[torch.Tensor], given: list[torch.Tensor]) -> int:
    """The bytes of the memory of ``tensors`` that is not that of ``given``, once each."""
    known = {tensor.untyped_storage()._cdata for tensor in given}
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({one._cdata: one.nbytes() for one in storages if one._cdata not in known}.values())


def _largest(inputs: list[torch.Tensor]) -> int:
    return max((tensor.untyped_storage().nbytes() for tensor in inputs), default=0)


def _guess(args: Any, kwargs: dict[str, Any], read: int) -> Extent:
    """What an operation that has no forecast may make: what it reads, as often as large numbers
    among its arguments say."""
    numbers = [leaf for leaf in leaves((args, kwargs)) if type(leaf) in (int, float)]
    factor = prod(whole(number) for number in numbers if whole(number) >= _LARGE_INTEGER)
    elements = max(1, read) * factor
    return Extent(elements, elements * 8 if factor > 1 else 0)
