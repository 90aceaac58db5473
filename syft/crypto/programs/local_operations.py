"""Local operations: what each party computes on its shares alone, by torch's own operations.

They are linear with whole coefficients, so the results are shares of the result: shape operations,
additions, public factors, access at public places.  A program names them by their number here, and
nothing else can be run for a peer.  Indices are public tensors, never shares: an error about an
index would show a share.

Before one runs whose result may be larger than its operands, :func:`bounded` looks at the size of
that result, on tensors without memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from syft.exceptions import ProgramError
from syft.program.program import Slot

aten = torch.ops.aten

_VIEWS = """
alias detach view _unsafe_view _reshape_alias t transpose.int permute expand squeeze squeeze.dim
squeeze.dims unsqueeze select.int slice.Tensor diagonal unfold as_strided lift_fresh split.Tensor
split_with_sizes unbind.int unsafe_split.Tensor unsafe_split_with_sizes channel_shuffle
native_channel_shuffle pixel_shuffle pixel_unshuffle
"""
"""What rearranges elements, and may return the memory of its operand."""

_NO_LARGER = """
clone flip roll rot90 tril triu narrow_copy neg sum sum.dim_IntList cumsum trace mul.Scalar cat
stack
"""

_LARGER = """
repeat slice_backward select_backward diagonal_backward unfold_backward diag_embed constant_pad_nd
add.Tensor sub.Tensor rsub.Tensor mul.Tensor where.self index_select gather take embedding
embedding_dense_backward index.Tensor _unsafe_index.Tensor scatter.src scatter_add index_put
_unsafe_index_put index_add index_copy slice_scatter select_scatter diagonal_scatter
as_strided_scatter masked_scatter index_fill.int_Tensor _to_copy
"""

_IN_PLACE = """
copy_ zero_ add_.Tensor sub_.Tensor mul_.Scalar mul_.Tensor
"""


@dataclass(frozen=True, slots=True)
class LocalOperation:
    """A linear operation of torch, and what is to be known before it runs."""

    name: str
    """What errors call it."""
    run: Callable[..., Any]
    """The overload, or what checks its arguments first where torch does not."""
    view: bool
    """Whether the results rearrange the operand's elements, and may share its memory."""
    in_place: bool
    """Whether it writes to its first argument."""
    grows: bool
    """Whether a result may have more elements than all operands together."""
    several: bool
    """Whether it returns a list."""
    arguments: frozenset[str]
    """The names of its arguments."""
    public: frozenset[int]
    """The places of arguments that are indices or masks, where no slot may be."""


_INDICES: Final = frozenset({"index", "indices", "mask", "condition"})


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def _entry(name: str) -> LocalOperation:
    schema = _overload(name)._schema
    arguments = [argument.name for argument in schema.arguments]
    return LocalOperation(
        name=name,
        run=_SAFE.get(name, _overload(name)),
        arguments=frozenset(arguments),
        view=name in _VIEWS.split(),
        in_place=name in _IN_PLACE.split(),
        grows=name in _LARGER.split(),
        several=str(schema.returns[0].type) == "List[Tensor]",
        public=frozenset(place for place, one in enumerate(arguments) if one in _INDICES),
    )


def _reshape_alias(x: torch.Tensor, size: Any, stride: Any) -> Any:
    """Torch's own does not look whether the memory is that large."""
    return aten.as_strided.default(x, size, stride, x.storage_offset())


def _unfold_backward(grad: torch.Tensor, sizes: Any, dim: int, size: int, step: int) -> Any:
    """Torch's own reads beyond a gradient that is too small."""
    unfolded = torch.empty(sizes, device="meta").unfold(dim, size, step).shape
    if grad.shape != unfolded:
        raise ProgramError(f"unfold_backward of {tuple(grad.shape)}, not {tuple(unfolded)}")
    return aten.unfold_backward.default(grad, sizes, dim, size, step)


def _embedding_backward(
    grad: torch.Tensor, index: torch.Tensor, rows: int, padding: int, by_frequency: bool
) -> Any:
    """Torch's own counts frequencies without looking at the index."""
    if by_frequency:
        raise ProgramError("embedding_dense_backward by frequency")
    return aten.embedding_dense_backward.default(grad, index, rows, padding, False)


_SAFE: Final[dict[str, Callable[..., Any]]] = {
    "_reshape_alias": _reshape_alias,
    "unfold_backward": _unfold_backward,
    "embedding_dense_backward": _embedding_backward,
}


_NAMES: Final = tuple("""
alias detach view _unsafe_view _reshape_alias t transpose.int permute expand squeeze squeeze.dim
squeeze.dims unsqueeze select.int slice.Tensor diagonal unfold as_strided lift_fresh clone flip roll
rot90 repeat tril triu slice_backward select_backward diagonal_backward unfold_backward narrow_copy
channel_shuffle pixel_shuffle pixel_unshuffle native_channel_shuffle diag_embed split.Tensor
split_with_sizes unbind.int unsafe_split.Tensor unsafe_split_with_sizes
neg sum sum.dim_IntList cumsum trace constant_pad_nd
add.Tensor sub.Tensor rsub.Tensor mul.Tensor mul.Scalar where.self cat stack
index_select gather take embedding embedding_dense_backward index.Tensor _unsafe_index.Tensor
scatter.src scatter_add index_put _unsafe_index_put index_add index_copy slice_scatter
select_scatter diagonal_scatter as_strided_scatter masked_scatter index_fill.int_Tensor _to_copy
copy_ zero_ add_.Tensor sub_.Tensor mul_.Scalar mul_.Tensor
""".split())
"""The wire numbers are the places in this list: only ever added to, at the end."""

LOCAL_OPERATIONS: Final = tuple(map(_entry, _NAMES))
"""The operations by number."""

_VIEWS_IN_PLACE: Final = {
    "t_": "t",
    "transpose_": "transpose.int",
    "squeeze_": "squeeze",
    "squeeze_.dim": "squeeze.dim",
    "squeeze_.dims": "squeeze.dims",
    "unsqueeze_": "unsqueeze",
}

NUMBERS: Final = {
    **{_overload(name): number for number, name in enumerate(_NAMES)},
    **{_overload(name): _NAMES.index(view) for name, view in _VIEWS_IN_PLACE.items()},
}
"""The numbers by overload. A view in place is a view: a tensor of a party keeps its shape.

>>> LOCAL_OPERATIONS[NUMBERS[aten.neg.default]].name
'neg'
"""


def number_of(overload: Any) -> int:
    """The number of an overload; LookupError if it is no local operation.

    >>> number_of(aten.t_.default) == number_of(aten.t.default)
    True
    """
    return NUMBERS[overload]


MOST_ARGUMENTS: Final = 4096
"""Operands of one operation, as ``cat`` and indices have many."""
MOST_NESTED: Final = 3
_PLAIN: Final = frozenset({int, bool, type(None), torch.memory_format})
_INDEX_TYPES: Final = frozenset({torch.int64, torch.int32, torch.bool})


def check_local(number: Any, positional: Any, keywords: Any) -> LocalOperation:
    """The operation of a number, if its arguments have a form that it may be called with.

    Raises :class:`~syft.exceptions.ProgramError`.

    >>> check_local(NUMBERS[aten.neg.default], (Slot(0),), ()).in_place
    False
    >>> check_local(NUMBERS[aten.take.default], (Slot(0), Slot(1)), ())
    Traceback (most recent call last):
    ...
    syft.exceptions.ProgramError: take has a share as argument 1, which is public
    """
    if type(number) is not int or not 0 <= number < len(LOCAL_OPERATIONS):
        raise ProgramError("a local operation of an unknown number")
    operation = LOCAL_OPERATIONS[number]
    if type(positional) is not tuple or type(keywords) is not tuple:
        raise ProgramError(f"{operation.name} without tuples of arguments")
    shared = {p for p, value in enumerate(positional) if _check_argument(operation, value, 0)}
    for place in shared & operation.public:
        raise ProgramError(f"{operation.name} has a share as argument {place}, which is public")
    if not shared or operation.in_place and 0 not in shared:
        raise ProgramError(f"{operation.name} without a share, or writing to what is none")
    _check_keywords(operation, keywords)
    return operation


def _check_argument(operation: LocalOperation, value: Any, depth: int) -> bool:
    """Whether there is a slot in an argument, which must be of an allowed kind."""
    kind = type(value)
    if kind is Slot:
        return True
    if kind in _PLAIN:
        _check_range(operation, value)
        return False
    if kind is torch.Tensor:
        if value.dtype in _INDEX_TYPES and value.layout is torch.strided:
            return False
        raise ProgramError(f"{operation.name} with a tensor of {value.dtype}")
    if kind is tuple and depth < MOST_NESTED and len(value) <= MOST_ARGUMENTS:
        found = [_check_argument(operation, item, depth + 1) for item in value]
        return any(found)
    raise ProgramError(f"{operation.name} with an argument of {kind.__name__}")


def _check_keywords(operation: LocalOperation, keywords: tuple[Any, ...]) -> None:
    for item in keywords:
        if type(item) is not tuple or len(item) != 2 or item[0] not in operation.arguments:
            raise ProgramError(f"{operation.name} with an unknown keyword")
        if type(item[1]) not in _PLAIN:
            raise ProgramError(f"{operation.name} with a keyword that is no number")
        _check_range(operation, item[1])


def _check_range(operation: LocalOperation, value: Any) -> None:
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise ProgramError(f"{operation.name} with a number beyond 64 bits")


def run_local(
    operation: LocalOperation,
    positional: tuple[Any, ...],
    keywords: tuple[tuple[str, Any], ...],
    most: int,
) -> tuple[torch.Tensor, ...]:
    """Run an operation on shares, whose results have at most ``most`` elements each.

    Raises :class:`~syft.exceptions.ProgramError` if they would have more, or are no int64.

    >>> run_local(LOCAL_OPERATIONS[NUMBERS[aten.neg.default]], (torch.tensor([1]),), (), 10)
    (tensor([-1]),)
    >>> repeat = LOCAL_OPERATIONS[NUMBERS[aten.repeat.default]]
    >>> run_local(repeat, (torch.tensor([1]), (11,)), (), 10)
    Traceback (most recent call last):
    ...
    syft.exceptions.ProgramError: a result of 11 elements, where at most 10 are allowed
    """
    if operation.grows:
        bounded(operation, positional, keywords, most)
    result = (
        operation.run(*positional, **dict(keywords)) if keywords else operation.run(*positional)
    )
    results = tuple(result) if operation.several else (result,)
    for made in results:
        if made.dtype is not torch.int64:
            raise ProgramError(f"{operation.name} made {made.dtype}, where shares are int64")
        check_size(made.numel(), most)
    return results


def check_size(elements: int, most: int) -> None:
    """Raise :class:`~syft.exceptions.ProgramError` if a tensor has more elements than allowed.

    >>> check_size(3, 3)
    """
    if elements > most:
        raise ProgramError(f"a result of {elements} elements, where at most {most} are allowed")


def bounded(
    operation: LocalOperation,
    positional: tuple[Any, ...],
    keywords: tuple[tuple[str, Any], ...],
    most: int,
) -> None:
    """Check the size of a result before it is computed.

    Operations whose arguments are tensors alone make at most the product of their sizes, which is
    nearly always small enough to look no further.

    >>> add = LOCAL_OPERATIONS[NUMBERS[aten.add.Tensor]]
    >>> bounded(add, (torch.ones(3, 1), torch.ones(1, 4)), (), 12)
    """
    if all(type(value) is torch.Tensor for value in positional):
        if math.prod(value.numel() for value in positional) <= most:
            return
    meta = [on_meta(value) for value in positional]
    check_size(operation.run(*meta, **dict(keywords)).numel(), most)


def on_meta(value: Any) -> Any:
    """An argument without memory; the shape of what a mask in a tuple selects is kept.

    >>> on_meta((torch.tensor([True, False, True]),))[0].shape
    torch.Size([2])
    """
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    if isinstance(value, tuple):
        return tuple(made for item in value for made in _indices_on_meta(item))
    return value


def _indices_on_meta(item: Any) -> tuple[Any, ...]:
    """An index without memory; a mask becomes as many indices as it has dimensions."""
    if type(item) is not torch.Tensor or item.dtype is not torch.bool:
        return (on_meta(item),)
    chosen = int(item.count_nonzero())
    return (torch.empty(chosen, dtype=torch.int64, device="meta"),) * item.dim()
