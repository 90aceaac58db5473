"""New memory for what is about to be written with private values: memory has one guard for ever.

A graph may have saved a public tensor.  If a private value were written into its memory, a backward
pass over that graph, which is public, would compute with it.  So before a command writes memory of
another guard than its own, the objects that lie there are *moved*: each gets a new tensor of the
same size, strides and offset over a copy of the memory, and the copy has the guard of the command.
Whatever a graph saved keeps the old memory, whose values nobody changes any more.

An object is moved once.  From then on its memory has the guard of what is written to it, and
commands write in place, as a training step on private data does from the second step on.

The tensor of a leaf stays in the graphs that were recorded with it.  It knows its successor, which
gets the gradients of those graphs: see :mod:`syft.workers.execution.successors`.

What was refused: ``tensor.data = copy``, after which the tensor would be the same Python object.  A
graph saves the tensor itself, so it would see the new memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn

from syft.chain.wrapper import Wrapper
from syft.ops.nested import EXACT_TENSOR_TYPES, replace
from syft.torch_private import lazily_negated
from syft.workers.execution.public_sizes import note_before
from syft.workers.execution.successors import set_successor
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.labels.reached_graph import retain_grad
from syft.workers.labels.walk import Places, lies_in, storages_of


class Moves:
    """The tensors that were moved, with their successors.

    >>> moves = Moves(); x, y = torch.ones(2), torch.zeros(2); moves.add(x, y)
    >>> moves.of(x) is y, moves.of(y) is y, len(moves)
    (True, True, 1)
    """

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        self._pairs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, old: torch.Tensor, new: torch.Tensor) -> None:
        """Note that a tensor was moved."""
        self._pairs[id(old)] = old, new

    def update(self, other: Moves) -> None:
        """Note all that another account has."""
        self._pairs.update(other._pairs)

    def of(self, value: Any) -> Any:
        """The successor of a tensor; the value itself if it was not moved."""
        found = self._pairs.get(id(value))
        return value if found is None else found[1]

    def within(self, values: Any) -> Any:
        """The same nested values with the successors of tensors in them.

        >>> moves = Moves(); x, y = torch.ones(2), torch.zeros(2); moves.add(x, y)
        >>> moves.within([x, 3])
        [tensor([0., 0.]), 3]
        """
        return replace(values, self.of) if self._pairs else values


class Holdings(ABC):
    """All that holds tensors at a worker, and is told when some of them are moved. Abstract.

    >>> sorted(Holdings.__abstractmethods__)
    ['moved', 'sharing', 'shown']
    """

    @abstractmethod
    def sharing(self, places: Places) -> Iterable[torch.Tensor]:
        """The tensors that lie in this memory: objects, their gradients, and what is at hand."""

    @abstractmethod
    def moved(self, moves: Moves) -> None:
        """Put the successors where the moved tensors were."""

    @abstractmethod
    def shown(self) -> Iterable[torch.Tensor]:
        """Results in which the owner's program may keep gradients."""


class Immovable(Exception):
    """Memory is to be written that something shares which cannot be moved."""


class NoHoldings(Holdings):
    """What holds no tensors besides the arguments of a command.

    >>> NoHoldings().sharing({})
    ()
    """

    def sharing(self, places: Places) -> Iterable[torch.Tensor]:
        """No tensors."""
        return ()

    def moved(self, moves: Moves) -> None:
        """Nothing is to be done."""

    def shown(self) -> Iterable[torch.Tensor]:
        """No tensors."""
        return ()


def move_written(targets: Sequence[torch.Tensor], guard: Guard, holdings: Holdings) -> Moves:
    """Move those of some strided tensors that lie in memory of another guard than this one.

    >>> x = torch.ones(2)
    >>> moves = move_written([x], Guard(frozenset()), NoHoldings())
    >>> full_guard_of(moves.of(x)) == Guard(frozenset()), full_guard_of(x)
    (True, None)

    Raises :class:`Immovable` if something lies there that cannot be moved: a chain but one that can
    be put :meth:`~syft.chain.link.Link.over` other elements, another layout, or a view of another
    kind of numbers with a graph.  So is a target whose memory is not known.
    """
    moves = Moves()
    places = _places_of(target for target in targets if full_guard_of(target) != guard)
    if not places:
        return moves
    group = {id(tensor): tensor for tensor in (*targets, *holdings.sharing(places))}
    tensors = [tensor for tensor in group.values() if lies_in(tensor, places)]
    _check_movable(tensors)
    copies = {place: _copy_of(storage) for place, storage in places.items()}
    for tensor in _bases_first(tensors):
        _move(tensor, copies, moves)
    for tensor in tensors:
        note_before(moves.of(tensor), guard)
        protect(moves.of(tensor), guard)
    holdings.moved(moves)
    return moves


def _places_of(tensors: Iterable[torch.Tensor]) -> Places:
    found: dict[int, torch.UntypedStorage] = {}
    for tensor in tensors:
        storages = storages_of(tensor)
        if not storages:
            raise Immovable
        found.update((storage._cdata, storage) for storage in storages)
    return found


def _check_movable(tensors: Iterable[torch.Tensor]) -> None:
    for tensor in tensors:
        if type(tensor) is Wrapper:
            movable = _is_movable_chain(tensor)
        else:
            plain = type(tensor) in EXACT_TENSOR_TYPES and tensor.layout is torch.strided
            movable = plain and not _is_other_kind(tensor)
        if not movable:
            raise Immovable


def _is_movable_chain(tensor: Wrapper) -> bool:
    """Whether a chain is one link over plain elements, to which there is no graph."""
    elements = tensor.child.elements()
    if elements is None or type(elements) not in EXACT_TENSOR_TYPES:
        return False
    return tensor.grad_fn is None and tensor.child.over(elements) is not None


def _is_other_kind(tensor: torch.Tensor) -> bool:
    """Whether a tensor with a graph is a view of numbers of another kind, or is quantized."""
    base = _base_of(tensor)
    if base is None:
        return tensor.is_quantized
    return tensor.dtype is not base.dtype or _lazy(tensor) != _lazy(base)


def _lazy(tensor: torch.Tensor) -> tuple[bool, bool]:
    return tensor.is_conj(), tensor.is_neg()


def _copy_of(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    copy: torch.UntypedStorage = storage.clone()  # type: ignore[no-untyped-call]
    copy.__dict__.update(storage.__dict__)
    return copy


def _bases_first(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors, each after the one of whose graph it is a view."""
    found: dict[int, torch.Tensor] = {}
    for tensor in tensors:
        base = _base_of(tensor)
        if base is not None:
            found[id(base)] = base
    found.update((id(tensor), tensor) for tensor in tensors)
    return list(found.values())


def _base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """What a tensor is a view of, in the same memory, so that what is written to one of them is in
    the graph of both; None for a leaf, and without a graph for a view of another kind."""
    if type(tensor) is Wrapper:
        return None
    base = tensor._base
    if base is None or _memory(base) != _memory(tensor):
        return None
    return base if tensor.grad_fn is not None or _is_alike(tensor, base) else None


def _is_alike(tensor: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether a view without a graph can be made anew of its base as it is."""
    if tensor.requires_grad or tensor.is_inference() or base.is_inference():
        return False
    return tensor.dtype is base.dtype and _lazy(tensor) == _lazy(base)


def _memory(tensor: torch.Tensor) -> int:
    (storage,) = storages_of(tensor)
    address: int = storage._cdata
    return address


def _move(tensor: torch.Tensor, copies: Mapping[int, torch.UntypedStorage], moves: Moves) -> None:
    memory = copies[_memory(tensor)]
    base = _base_of(tensor)
    if base is not None:
        with torch.set_grad_enabled(tensor.requires_grad or not base.requires_grad):
            extent = tensor.shape, tensor.stride(), tensor.storage_offset()
            new = moves.of(base).as_strided(*extent)
        new.grad = tensor.grad if tensor.is_leaf else None
    elif tensor.grad_fn is not None:
        with torch.enable_grad():
            new = _Moved.apply(tensor, memory)  # type: ignore[no-untyped-call]
    else:
        new = _leaf_over(tensor, memory)
    kept = {name: value for name, value in tensor.__dict__.items() if name != "child"}
    new.__dict__.update(kept)
    if tensor.retains_grad and not tensor.is_leaf:
        retain_grad(new)
    set_successor(tensor, new)
    moves.add(tensor, new)


def _over(tensor: torch.Tensor, memory: torch.UntypedStorage) -> torch.Tensor:
    """A tensor without a graph of the same extent over other memory."""
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        made.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())
        made = torch.conj(made) if tensor.is_conj() else made
        return lazily_negated(made) if tensor.is_neg() else made


def _leaf_over(tensor: torch.Tensor, memory: torch.UntypedStorage) -> torch.Tensor:
    if type(tensor) is Wrapper:
        elements = cast(torch.Tensor, tensor.child.elements())
        made = cast(torch.Tensor, tensor.child.over(_over(elements, memory)))
    else:
        made = _over(tensor, memory)
    if type(tensor) is nn.Parameter:
        made = nn.Parameter(made, requires_grad=tensor.requires_grad)
    elif tensor.requires_grad:
        made.requires_grad_()
    if tensor.grad is not None:
        made.grad = tensor.grad
    if tensor.requires_grad:
        for hook in (tensor._backward_hooks or {}).values():
            made.register_hook(hook)  # type: ignore[no-untyped-call]
    return made


class _Moved(torch.autograd.Function):
    """The same values in other memory."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, memory: torch.UntypedStorage) -> torch.Tensor:
        return _over(tensor, memory)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return cast(Any, (*gradients, None))
