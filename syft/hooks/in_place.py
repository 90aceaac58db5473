"""Methods that leave a tensor the same Python object: ``share_`` and ``get_``.

Optimizers, modules and variables that hold the tensor go on using it.  Torch exchanges the contents
of two tensors if nothing in C++ holds one of them; that is tried before anything is sent or
fetched, so that an error leaves the tensor and its data where they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.chain.wrapper import first_link
from syft.exceptions import UnsupportedOperation
from syft.hooks.module_methods import as_kind_of
from syft.hooks.sending import Location
from syft.hooks.sharing_methods import share
from syft.hooks.tensor_methods import get, is_part
from syft.program.recording.role_crossings import refuse_in_protocols
from syft.tensors.multi_pointer import MultiPointerTensor
from syft.torch_private import exchange_contents
from syft.workers.client.transport import Owner


def share_(tensor: torch.Tensor, *workers: Location, owner: Owner, **settings: Any) -> torch.Tensor:
    """Share the tensor in place: the same object becomes the shared tensor; returns it.

    The arguments are those of ``share``, and so is what it raises.  Raises
    :class:`~syft.exceptions.UnsupportedOperation` too, and shares nothing, if a graph or a weak
    reference still holds the tensor, and for a parameter of a module that was sent, which is shared
    as a whole.

    >>> x = torch.tensor([1, 2])
    >>> x.share_(alice, bob, crypto_provider=carol) is x, (x * x).get()
    (True, tensor([1, 4]))
    """
    _check_whole("share_", tensor, "share the whole: model.share(...)")
    return _replaced("share_", tensor, lambda: share(tensor, *workers, owner=owner, **settings))


def get_(tensor: torch.Tensor, user: str | None = None, sum_results: bool = False) -> torch.Tensor:
    """Bring the tensor here in place: the same object holds the values; returns it.

    The arguments are those of ``get``, and so is what it raises.  What was shared in fixed
    precision stays in it: ``x.get_().float_precision_()``.  Raises
    :class:`~syft.exceptions.UnsupportedOperation` too, and fetches nothing, for a tensor that a
    graph or a weak reference still holds, for one that has a graph behind it here, for a parameter
    of a module that was sent, and for several tensors that are not added up.

    >>> x = torch.tensor([0.5]).send(bob)
    >>> x.get_() is x, x, bob.objects_count()
    (True, tensor([0.5000]), 0)
    >>> y = torch.tensor([0.5]).fix_precision().share(alice, bob, crypto_provider=carol)
    >>> y.get_().float_precision_() is y, y
    (True, tensor([0.5000]))
    """
    refuse_in_protocols("get_()", "use y = x.get()")
    _check_whole("get_", tensor, "get the whole: model.get()")
    several = isinstance(getattr(tensor, "child", None), MultiPointerTensor)
    if several and not sum_results:
        raise UnsupportedOperation("get_", "tensors of several workers", "call get()")
    if first_link(tensor).shared_cell() and tensor.requires_grad and not tensor.is_leaf:
        instead = "call get(), or detach it first"
        raise UnsupportedOperation("get_", "a tensor with a graph behind it", instead)
    return _replaced("get_", tensor, lambda: get(tensor, user, sum_results))


def _check_whole(call: str, tensor: torch.Tensor, instead: str) -> None:
    if is_part(tensor):
        raise UnsupportedOperation(call, "a parameter of a module", instead)


def _replaced(call: str, tensor: torch.Tensor, make: Callable[[], Any]) -> torch.Tensor:
    """The tensor with the contents of another one, which is made when that will do."""
    spare = torch.empty(0, device="cpu")
    try:
        for _ in range(2):
            exchange_contents(tensor, spare)
    except RuntimeError as error:
        instead = f"call {call.rstrip('_')}(), or delete what was computed with it first ({error})"
        raise UnsupportedOperation(call, "a tensor that something else holds", instead) from error
    exchange_contents(tensor, as_kind_of(tensor, make()))
    return tensor
