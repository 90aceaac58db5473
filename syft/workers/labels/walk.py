"""The one walk from an object at a worker to all that belongs to it.

An object is a tensor, or a holder of several.  A tensor may be a chain: outermost a wrapper, then
what autograd of this process records, then the tensor that holds the elements.  The elements lie in
strided parts, and these in storages.  A leaf has a gradient, which is a tensor again.  Whoever asks
what is private, whose it is, how large it is or what an operation touches, walks this way.  The
graph behind a tensor is walked in :mod:`syft.workers.labels.reached_graph`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.ops.nested import EXACT_TENSOR_TYPES
from syft.torch_private import COO_PARTS
from syft.workers.labels.holders import Holder

Places = Mapping[int, torch.UntypedStorage]
"""Memory, by the address of the storage itself."""


class Sealed:
    """What a handler gets in the place of a private object (:mod:`syft.workers.labels.cell`).

    The walks refuse it: that it has no tensor would look as if nothing in it were private.
    """

    __slots__ = ()


def _tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, Sealed):
        raise TypeError("a sealed cell has no tensors: ask guard_of, or use opened_for")
    return None


def tensors_of(value: Any) -> Sequence[torch.Tensor]:
    """The tensors of an object: itself, or those in a holder; none if it is neither.

    >>> len(tensors_of(torch.ones(2))), tensors_of("text")
    (1, ())
    """
    tensor = _tensor(value)
    if tensor is not None:
        return (tensor,)
    return value.tensors() if isinstance(value, Holder) else ()


# -------------------------------------------------------------------------------------- chains


def recorded_of(value: Any) -> torch.Tensor | None:
    """The tensor of a chain that autograd of this process records; None if it is at another worker,
    or there is no tensor.

    >>> x = torch.ones(2); recorded_of(x) is x
    True
    """
    while type(value) is Wrapper and value.child.at_function_level:
        value = value.child.tensor_behind()
    return _tensor(value)


def innermost(value: Any) -> torch.Tensor | None:
    """The tensor on which operations on a chain run in this process; None if there is none.

    >>> x = torch.ones(2); innermost(x) is x
    True
    """
    while type(value) is Wrapper:
        value = value.child.tensor_behind()
    return _tensor(value)


def elements_of(value: Any) -> torch.Tensor | None:
    """The tensor that holds the elements of a chain, which those of a grid have too; None if they
    are at another worker.

    >>> from syft.tensors.fixed.precision import fix_precision
    >>> x = fix_precision(torch.ones(1)); elements_of(x), innermost(x)
    (tensor([65536]), None)
    """
    while type(value) is Wrapper:
        value = value.child.elements()
    return _tensor(value)


def gradient_of(tensor: Any) -> torch.Tensor | None:
    """The gradient of what autograd records of a tensor, if that is a leaf.

    >>> x = torch.ones(2, requires_grad=True); (x * 3).sum().backward(); gradient_of(x)
    tensor([3., 3.])
    >>> gradient_of(x * 2)
    """
    recorded = recorded_of(tensor)
    return recorded.grad if recorded is not None and recorded.is_leaf else None


def gradients_behind(value: torch.Tensor | Holder) -> list[torch.Tensor]:
    """The gradient of a tensor, that of the gradient, and so on; those of all that is in a chain or
    in a holder.

    >>> x = torch.ones(2, requires_grad=True); x.grad = torch.ones(2, requires_grad=True)
    >>> x.grad.grad = torch.zeros(2); [gradient.sum().item() for gradient in gradients_behind(x)]
    [2.0, 0.0]
    """
    plain: Any = value if type(value) in EXACT_TENSOR_TYPES else None
    if plain is not None and (not plain.is_leaf or plain.grad is None):
        return []  # nearly always
    todo: list[Any] = [*tensors_of(value)]
    found: dict[int, torch.Tensor] = {}
    while todo:
        recorded = recorded_of(todo.pop())
        if type(recorded) is Wrapper:
            todo.append(recorded.child.elements())
        gradient = gradient_of(recorded)
        if gradient is not None and id(gradient) not in found:
            found[id(gradient)] = gradient
            todo.append(gradient)
    return list(found.values())


# -------------------------------------------------------------------------------------- memory


def places_of(value: Any) -> Sequence[Any]:
    """That on which a label is noted: the memory of an object, or what is at the end of a chain, if
    that is no memory of this process."""
    return [
        place for tensor in tensors_of(value) for place in storages_of(tensor) or (_end_of(tensor),)
    ]


def _end_of(tensor: torch.Tensor) -> torch.Tensor:
    while type(tensor) is Wrapper and (behind := tensor.child.tensor_behind()) is not None:
        tensor = behind
    return tensor


def memory_of(value: Any) -> set[int]:
    """The addresses of the storages of a tensor, or of the tensor it wraps.

    >>> x = torch.ones(2); memory_of(x) == memory_of(x[:1]), memory_of("text")
    (True, set())
    """
    return {storage.data_ptr() for storage in storages_of(value)} - {0}


def storages_of(value: Any) -> list[torch.UntypedStorage]:
    """The storages of a tensor, or of the tensor it wraps; those of all in a holder.

    >>> len(storages_of(torch.ones(2))), len(storages_of(torch.eye(2).to_sparse()))
    (1, 2)
    """
    if type(value) in EXACT_TENSOR_TYPES and value.layout is torch.strided:
        return [value.untyped_storage()]
    if isinstance(value, Holder):
        return [storage for tensor in tensors_of(value) for storage in storages_of(tensor)]
    return [part.untyped_storage() for part in strided_parts_of(value)]


def by_address(values: Iterable[Any]) -> dict[int, torch.UntypedStorage]:
    """The storages of some tensors, by the address of the storage itself.

    >>> x = torch.ones(2); len(by_address([x, x[:1], torch.ones(2)]))
    2
    """
    return {storage._cdata: storage for value in values for storage in storages_of(value)}


def lies_in(value: Any, places: Places) -> bool:
    """Whether a tensor lies in some of this memory."""
    return any(storage._cdata in places for storage in storages_of(value))


def strided_parts_of(value: Any) -> tuple[torch.Tensor, ...]:
    """The strided tensors that hold the elements of a tensor, or of the tensor it wraps.

    >>> x = torch.ones(2); strided_parts_of(x)[0] is x, len(strided_parts_of(x.to_sparse()))
    (True, 2)
    """
    tensor = elements_of(value)
    return () if tensor is None else _parts(tensor)


def _parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The strided tensors that hold the elements of a tensor of any layout."""
    if tensor.layout is torch.strided:
        return (tensor,) if type(tensor) in EXACT_TENSOR_TYPES else ()
    return tuple(part(tensor) for part in _PARTS.get(tensor.layout, ()))


_ROWS: Final = (torch.Tensor.crow_indices, torch.Tensor.col_indices, torch.Tensor.values)
_COLUMNS: Final = (torch.Tensor.ccol_indices, torch.Tensor.row_indices, torch.Tensor.values)
_PARTS: Final[dict[torch.layout, tuple[Callable[[Any], torch.Tensor], ...]]] = {
    torch.sparse_coo: COO_PARTS,
    torch.sparse_csr: _ROWS,
    torch.sparse_bsr: _ROWS,
    torch.sparse_csc: _COLUMNS,
    torch.sparse_bsc: _COLUMNS,
    torch.jagged: (methodcaller("values"), methodcaller("offsets")),
}
"""How to get the strided tensors of a tensor, by its layout."""
