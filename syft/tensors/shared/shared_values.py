"""Sharing tensors among workers, and putting them together again.

``x.share(alice, bob, crypto_provider=carol)`` splits the integers of a tensor of this process, and
``x.get()`` adds them up.  Numbers with fractions are encoded first: what is shared is in fixed
precision.  The methods that torch's classes get stand in ``syft.hooks``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import NotALeaf, NotShareable, NothingToGet
from syft.tensors.fixed.fixed_link import FinerNumbers, attach, fixed, is_fixed, refined
from syft.tensors.fixed.rings.ring_link import as_bits
from syft.tensors.shared.additive_sharing import revealed, shared_tensor
from syft.tensors.shared.cells import Cell
from syft.tensors.shared.session_client import SessionClient
from syft.workers.labels.guards import Guard

ENCODE_FIRST = "call .fix_precision() first"

SPLIT_THERE: Final = "_split_there"
"""Marks what another worker has split, until somebody gets it."""


def share_values(
    tensor: torch.Tensor,
    session: SessionClient,
    requires_grad: bool = False,
    guard: Guard | None = None,
) -> torch.Tensor:
    """Split a tensor of this process among the parties of a session; its gradient too.

    Integers, bits, and numbers in fixed precision can be split.  Raises
    :class:`~syft.exceptions.NotShareable` for others, and :class:`~syft.exceptions.NotALeaf` for
    the result of a recorded computation.
    """
    check_shareable(tensor)
    plain = tensor.child.child if is_fixed(tensor) else tensor  # type: ignore[attr-defined]
    shared: torch.Tensor = shared_tensor(
        session.share(plain, guard), torch.bool if plain.dtype is torch.bool else torch.int64
    )
    if is_fixed(tensor):
        shared = fixed(shared, tensor.child.grid)  # type: ignore[attr-defined]
        _share_digits(tensor, shared, session, guard)
        shared.requires_grad_(requires_grad or tensor.requires_grad)
        gradient = gradient_of(tensor)
        if gradient is not None:
            shared.grad = share_values(gradient, session, guard=guard)
    return shared


def _share_digits(x: Any, shared: Any, session: SessionClient, guard: Guard | None) -> None:
    """Share the digits that an optimizer's state has besides those of the grid."""
    numbers = refined(x)
    if numbers is None or not numbers.is_kept:
        return
    integers: torch.Tensor
    if numbers.unit:
        integers = shared_tensor(session.share(numbers.integers, guard))
    else:
        integers = torch.zeros_like(shared.child.child)
    attach(shared.child, replace(numbers, integers=integers))


def check_shareable(tensor: torch.Tensor) -> None:
    """Raise :class:`~syft.exceptions.NotShareable` for a tensor that cannot be split.

    >>> check_shareable(torch.ones(2))
    Traceback (most recent call last):
    ...
    syft.exceptions.NotShareable: Cannot share a tensor of torch.float32: call .fix_precision() \
first.
    """
    if tensor.requires_grad and not tensor.is_leaf:
        raise NotALeaf(type(tensor.grad_fn).__name__)
    if is_shared(tensor):
        raise NotShareable("a shared tensor", "it is shared already; use it as it is")
    if type(tensor) is Wrapper and not is_fixed(tensor):
        raise NotShareable(f"a {type(tensor.child).__name__}", "get() it first")
    if not is_fixed(tensor) and (tensor.is_floating_point() or tensor.is_complex()):
        raise NotShareable(f"a tensor of {tensor.dtype}", ENCODE_FIRST)
    if tensor.layout is not torch.strided:
        raise NotShareable(f"a tensor of layout {tensor.layout}", "call .to_dense() first")


def shared_cell(tensor: Any) -> Cell | None:
    """The cell below a tensor, in fixed precision or not; None if it is not shared.

    >>> shared_cell(torch.ones(2)) is None
    True
    """
    cell: Cell | None = first_link(tensor).shared_cell()
    return cell


def is_shared(tensor: Any) -> bool:
    """Whether workers share a tensor.

    >>> is_shared(torch.ones(2))
    False
    """
    return shared_cell(tensor) is not None


def get_shared(tensors: Sequence[torch.Tensor], user: str | None = None) -> list[torch.Tensor]:
    """Shared tensors and their gradients, put together in this process, all at once.

    Each comes back in the representation in which it was shared, as a leaf.

    Raises :class:`~syft.exceptions.NothingToGet` for a tensor that is not shared, and
    :class:`~syft.exceptions.PermissionDenied` for a user who may not read it.
    """
    gradients = [gradient_of(tensor) for tensor in tensors]
    wanted = [*tensors, *(gradient for gradient in gradients if gradient is not None)]
    cells = [cell for cell in map(shared_cell, wanted) if cell is not None]
    if len(cells) != len(wanted):
        raise NothingToGet("decrypt", shared=False)
    plain = _revealed_with_digits(wanted, cells, user)
    own, grads = plain[: len(tensors)], iter(plain[len(tensors) :])
    for tensor, values, gradient in zip(tensors, own, gradients, strict=True):
        values.requires_grad_(tensor.requires_grad)
        if gradient is not None:
            values.grad = next(grads)
    return own


def get_each(
    tensors: Iterable[torch.Tensor],
    user: str | None,
    others: Callable[[list[torch.Tensor]], list[Any]],
) -> list[Any]:
    """The values of shared tensors, put together at once, and what ``others`` makes of the rest.

    >>> x = torch.tensor([1, 2]).share(alice, bob, crypto_provider=carol)
    >>> get_each([x, torch.ones(2)], None, lambda rest: [one + 1 for one in rest])
    [tensor([1, 2]), tensor([2., 2.])]
    """
    wanted = [(tensor, shared_cell(tensor) is not None) for tensor in tensors]
    shared = [tensor for tensor, split in wanted if split]
    together = iter(get_shared(shared, user) if shared else ())
    rest = iter(others([tensor for tensor, split in wanted if not split]))
    return [next(together if split else rest) for _, split in wanted]


def _revealed_with_digits(
    tensors: Sequence[torch.Tensor], cells: list[Cell], user: str | None
) -> list[torch.Tensor]:
    kept = list(map(_kept_digits, tensors))
    digits = [one.integers.child.cell for one in kept if one is not None]
    found = revealed([*cells, *digits], user)
    finer = iter(found[len(cells) :])
    return [_in_form_of(*each, finer) for each in zip(tensors, found[: len(cells)], kept)]


def _kept_digits(x: Any) -> FinerNumbers | None:
    """The digits that an optimizer's state has besides those of the grid, if any."""
    numbers = refined(x) if is_fixed(x) else None
    return numbers if numbers is not None and numbers.is_kept and numbers.unit else None


def gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The gradient of a leaf, if there is one.

    >>> gradient_of(torch.ones(2)) is None
    True
    """
    return tensor.grad if tensor.is_leaf else None


def _in_form_of(
    tensor: Any, values: torch.Tensor, kept: FinerNumbers | None, finer: Iterator[torch.Tensor]
) -> torch.Tensor:
    """Integers as the kind of tensor that was shared; the next of ``finer`` are its digits."""
    if not is_fixed(tensor):
        return values.to(tensor.dtype)
    made = fixed(values, tensor.child.grid)
    if kept is not None:
        attach(made.child, replace(kept, integers=next(finer)))  # type: ignore[arg-type]
    return made


def refresh(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in fresh shares: a sharing of zero is added.

    What a party has seen of the old shares tells nothing about the new ones.  Raises
    :class:`~syft.exceptions.NothingToGet` for a tensor that is not shared.

    >>> torch.tensor([1, 2]).share(alice, bob, crypto_provider=carol).refresh().get()
    tensor([1, 2])
    """
    cell = shared_cell(tensor)
    if cell is None:
        raise NothingToGet("refresh", shared=False)
    zeros = torch.zeros(cell.shape, dtype=torch.int64, device=cell.device)
    nothing: torch.Tensor = shared_tensor(cell.session.share(zeros))
    if is_fixed(tensor):
        return tensor + fixed(nothing, tensor.child.grid)  # type: ignore[attr-defined]
    fresh = tensor + nothing
    return as_bits(fresh) if tensor.dtype is torch.bool else fresh
