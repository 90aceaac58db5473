"""How many results operations have, or elements, where an evaluation (:mod:`syft.ops.evaluate`)
does not tell: of those that cut a tensor into pieces it would make each, and the sizes of others
follow from values, which are public.

The values of private tensors are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import torch

from syft.ops.table import FUNCTIONS, NAMES
from syft.workers.labels.memory_labels import full_guard_of
from syft.workers.labels.walk import innermost


def whole(number: Any) -> int:
    """The size for which a number may stand, or a public tensor; 1 for what is none.

    >>> whole(-3), whole(2.5), whole(float("inf")), whole(torch.tensor(4)), whole(torch.ones(2))
    (3, 2, 1, 4, 1)
    """
    if isinstance(number, torch.Tensor):
        inside = innermost(number)
        number = inside.item() if inside is not None and is_size(inside) else 1
    if number != number or number in (float("inf"), -float("inf")):
        return 1
    return max(1, abs(int(number)))


def is_size(tensor: torch.Tensor) -> bool:
    """Whether torch takes a tensor as an integer: one public element of an integer dtype.

    >>> is_size(torch.tensor(3)), is_size(torch.ones(1)), is_size(torch.tensor([3, 4]))
    (True, False, False)
    """
    if tensor.layout is not torch.strided or tensor.numel() != 1:
        return False
    integer = not (tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized)
    return integer and full_guard_of(tensor) is None


def _numbers(*leafs: str) -> frozenset[int]:
    """The numbers of all operations whose name ends in one of these."""
    wanted = {leaf for group in leafs for leaf in group.split()}
    return frozenset(
        number
        for number, name in enumerate(NAMES)
        if name.rpartition(".")[2] in wanted and FUNCTIONS[number] is not None
    )


def _named(args: Any, kwargs: dict[str, Any], place: int, name: str, default: Any) -> Any:
    """An argument by its place or its name."""
    return args[place] if len(args) > place else kwargs.get(name, default)


def _longest(args: Any, kwargs: dict[str, Any]) -> int:
    inside = innermost(args[0] if args else kwargs.get("input", kwargs.get("self")))
    return 1 if inside is None else max(inside.shape, default=1)


def _pieces_of_size(args: Any, kwargs: dict[str, Any]) -> int:
    size = _named(
        args, kwargs, 1, "split_size_or_sections", _named(args, kwargs, 1, "split_size", 1)
    )
    if isinstance(size, (list, tuple)):
        return len(size)
    step = whole(size) if isinstance(size, (int, float)) else 1
    return -(-_longest(args, kwargs) // step)


def _pieces_at_most(args: Any, kwargs: dict[str, Any]) -> int:
    chunks = _named(args, kwargs, 1, "chunks", 1)
    most = _longest(args, kwargs)
    return min(whole(chunks), most) if isinstance(chunks, int) else most


def _sections(args: Any, kwargs: dict[str, Any]) -> int:
    given = [*args[1:2], *(kwargs[name] for name in _SECTION_NAMES if name in kwargs)]
    for sections in given:
        inside = innermost(sections)
        if inside is not None:
            return whole(inside) if is_size(inside) else inside.numel() + 1
        if isinstance(sections, (list, tuple)):
            return len(sections) + 1
        if isinstance(sections, int):
            return whole(sections)
    return 1


_SECTION_NAMES: Final = ("sections", "indices", "indices_or_sections", "tensor_indices_or_sections")


def _rows(args: Any, kwargs: dict[str, Any]) -> int:
    inside = innermost(args[0] if args else kwargs.get("input"))
    dim = _named(args, kwargs, 1, "dim", 0)
    if inside is None or not isinstance(dim, int) or not -inside.ndim <= dim < inside.ndim:
        return 1
    return inside.shape[dim]


COUNTED: Final[dict[int, Callable[[Any, dict[str, Any]], int]]] = {
    number: count
    for count, names in (
        (_pieces_of_size, "split unsafe_split split_copy split_with_sizes split_with_sizes_copy"),
        (_pieces_of_size, "unsafe_split_with_sizes"),
        (_pieces_at_most, "chunk unsafe_chunk"),
        (_sections, "tensor_split hsplit vsplit dsplit"),
        (_rows, "unbind unbind_copy"),
    )
    for number in _numbers(names)
}
"""How many results an operation has that cuts a tensor into pieces."""


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


def _products(args: Any, kwargs: dict[str, Any], inputs: list[torch.Tensor]) -> int:
    return prod(map(torch.Tensor.numel, inputs)) * len(inputs)


BY_VALUES: Final[dict[int, Callable[[Any, dict[str, Any], list[torch.Tensor]], int]]] = {
    number: row
    for row, names in (
        (_bins, "bincount"),
        (_classes, "one_hot"),
        (_repeats, "repeat_interleave"),
        (_subsets, "combinations"),
        (_cells, "histogramdd"),
        (_listed, "tolist"),
        (_products, "cartesian_prod"),
    )
    for number in _numbers(names)
}
"""How many elements an operation makes whose sizes depend on values."""
