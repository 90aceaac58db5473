"""Methods of sharing for tensors and modules: share, get, reveal, refresh, encrypt and decrypt.

A tensor of this process is split here, a remote one by the worker that holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch
from torch import nn

from syft.callers import warn_user
from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import NotALeaf, NotShareable, NothingToGet
from syft.hooks import bulk
from syft.hooks.module_methods import (
    decode_module,
    encode_module,
    exchange_tensors,
    get_module,
    tensors_of,
)
from syft.hooks.sending import Location, guard_to_send
from syft.tensors.conversions import fix_precision, float_precision
from syft.tensors.fixed.fixed_link import fixed, is_fixed
from syft.tensors.pointer import PointerTensor
from syft.tensors.shared.additive_sharing import shared_tensor
from syft.tensors.shared.session_client import SessionClient
from syft.tensors.shared.sessions import session_among
from syft.tensors.shared.shared_values import (
    SPLIT_THERE,
    ENCODE_FIRST,
    check_shareable,
    get_each,
    get_shared,
    gradient_of,
    share_values,
    shared_cell,
)
from syft.workers.client.transport import Owner
from syft.workers.execution.leaving import check_dealing
from syft.workers.labels.guards import Guard


def share(
    tensor: torch.Tensor,
    *workers: Location,
    owner: Owner,
    crypto_provider: Location | None = None,
    requires_grad: bool = False,
    protocol: str | None = None,
    user: str | None = None,
    allow_dealing_party: bool = False,
    field: int | None = None,
    dtype: str | None = None,
) -> torch.Tensor:
    """Split a tensor among two workers or more: each gets random integers that add up to it.

    Nobody learns anything of the values but all of the workers together.  ``crypto_provider`` deals
    the randomness that products and comparisons need, and must not tell the workers what it deals;
    without one this process deals.  It must not be one of the workers, unless
    ``allow_dealing_party``: that one can then read what the others open, which is nearly all that
    is computed with.  With ``requires_grad`` the shared tensor is a leaf that does.
    A remote tensor is split by the worker that holds it, and this process sees nothing of it.  The
    first ``get()`` of what that gives warns, and returns it as it is: in earlier versions it was
    the pointer to it that one got.  ``decrypt()``, and ``get()`` of what is computed, open it.

    ``field`` and ``dtype`` are those of earlier versions: integers are of 64 bits, in the ring of
    2^64, and a warning says so of anything else.

    The values are integers, bits, or numbers in fixed precision.  Raises
    :class:`~syft.exceptions.NotShareable` for others, :class:`~syft.exceptions.WrongParties`, and
    :class:`~syft.exceptions.PermissionDenied` if the values may not go to these workers.

    >>> x = torch.tensor([1, 2]).share(alice, bob, crypto_provider=carol)
    >>> (x + x).get()
    tensor([2, 4])
    """
    if field not in (None, 2**64) or dtype not in (None, "long"):
        warn_user(
            "shares are integers of 64 bits, in the ring of 2^64: leave out field= and dtype="
        )
    if _is_remote(tensor):
        if user is not None:
            raise NotShareable(
                "a remote tensor on behalf of a user",
                "send or find it through worker.as_user(...); its owner names who may have shares "
                "(allow_destinations=)",
            )
        owner = _pointer_of(tensor).owner
        _check_splittable(tensor, crypto_provider)
        session = session_among(owner, workers, crypto_provider, protocol, allow_dealing_party)
        shared = _split_remotely(tensor, session, requires_grad)
        shared.__dict__[SPLIT_THERE] = True
        return shared
    check_shareable(tensor)
    session = session_among(owner, workers, crypto_provider, protocol, allow_dealing_party)
    guard = _guard_of(tensor, session, workers, owner, user)
    return share_values(tensor, session, requires_grad, guard)


def _guard_of(
    tensor: torch.Tensor,
    session: SessionClient,
    workers: Sequence[Location],
    owner: Owner,
    user: str | None,
) -> Guard | None:
    """The guard with which shares travel, if they may go to every party, and the provider may deal
    for them."""
    places = [owner.get_worker(worker) for worker in workers]
    guards = [guard_to_send(tensor, place, place.caller_for(owner), user) for place in places]
    check_dealing(guards[0], session.lines.provider, owner.id)
    return guards[0]


def _is_remote(tensor: torch.Tensor) -> bool:
    """Whether another worker holds the tensor, and would split it."""
    return type(tensor) is Wrapper and isinstance(tensor.child, PointerTensor)


def _check_splittable(tensor: torch.Tensor, crypto_provider: Location | None) -> None:
    """Raise :class:`~syft.exceptions.NotShareable` for a remote tensor that cannot be split."""
    if crypto_provider is None:
        raise NotShareable(*_NO_PROVIDER)
    if tensor.requires_grad and not tensor.is_leaf:
        raise NotALeaf(f"at {_pointer_of(tensor).place()}")
    dtype, pointer = tensor.dtype, _pointer_of(tensor)
    if dtype.is_floating_point and pointer.grid is None or dtype.is_complex:
        raise NotShareable(f"a remote tensor of {dtype}", ENCODE_FIRST)


def _split_remotely(
    tensor: torch.Tensor, session: SessionClient, requires_grad: bool = False
) -> torch.Tensor:
    """Have the holder of a tensor split it: the shares go from there to the parties."""
    real, grid = tensor.dtype.is_floating_point, _pointer_of(tensor).grid
    kind = torch.bool if tensor.dtype is torch.bool else torch.int64
    if not real and tensor.dtype is not torch.int64:
        tensor = tensor.long()
    requires_grad = requires_grad or tensor.requires_grad
    cell = session.split(first_link(tensor), _INTEGERS if real else 0, tensor.shape, tensor.device)
    shared: torch.Tensor = shared_tensor(cell, kind)
    return fixed(shared, grid).requires_grad_(requires_grad) if real else shared


def _pointer_of(tensor: torch.Tensor) -> PointerTensor:
    pointer: PointerTensor = tensor.child  # type: ignore[attr-defined]
    return pointer


_NO_PROVIDER: Final = (
    "a remote tensor without a crypto_provider",
    "name one; this process must not deal for values that it may not see",
)
_INTEGERS: Final = 2
"""How many steps down the chain of a tensor in fixed precision its integers are."""


def reveal(tensor: torch.Tensor, to: Location, owner: Owner) -> torch.Tensor:
    """A pointer to the values of a shared tensor at one of its parties, which learns them.

    Numbers in fixed precision are decoded there.  Raises :class:`~syft.exceptions.NothingToGet` for
    a tensor that is not shared, and :class:`~syft.exceptions.NotShareable` for another worker.

    >>> x = torch.tensor([1, 2]).share(alice, bob, crypto_provider=carol)
    >>> x.reveal(to=alice)
    (Wrapper)>[PointerTensor | me:... -> alice:...]
    """
    cell = shared_cell(tensor)
    if cell is None:
        raise NothingToGet("reveal", shared=False)
    name = owner.get_worker(to).id
    if name not in cell.session.parties:
        raise NotShareable(
            f"the values with {name}", f"reveal them to one of {', '.join(cell.session.parties)}"
        )
    pointer: torch.Tensor = cell.session.reveal(cell, name)
    if is_fixed(tensor):
        scale: int = tensor.child.grid.scale  # type: ignore[attr-defined]
        return (pointer.double() / scale).float()
    return pointer.bool() if tensor.dtype is torch.bool else pointer


def get_all(tensors: Iterable[torch.Tensor], user: str | None, keep: bool) -> list[Any]:
    """What :func:`syft.hooks.bulk.get_all` does, for shared tensors too; their shares stay.

    >>> x = torch.tensor([1, 2]).share(alice, bob, crypto_provider=carol)
    >>> get_all([x, torch.ones(2).send(bob)], None, False)
    [tensor([1, 2]), tensor([1., 1.])]
    """
    return get_each(tensors, user, lambda rest: bulk.get_all(rest, user, keep))


def encrypt(
    tensor: torch.Tensor,
    protocol: str | None = None,
    *,
    owner: Owner,
    workers: Sequence[Location] = (),
    crypto_provider: Location | None = None,
    requires_grad: bool = False,
    precision_fractional: int | None = None,
    base: int | None = None,
    allow_dealing_party: bool = False,
) -> torch.Tensor:
    """Share a tensor, and encode it in fixed precision first if it holds fractions.

    See :func:`share` and :func:`~syft.tensors.conversions.fix_precision` for the arguments.

    >>> x = torch.tensor([0.5, -1.0]).encrypt(workers=[alice, bob], crypto_provider=carol)
    >>> (x * x).decrypt()
    tensor([0.2500, 1.0000])
    """
    if tensor.is_floating_point() and not is_fixed(tensor):
        tensor = fix_precision(tensor, precision_fractional, base)
    shared = share(
        tensor,
        *workers,
        owner=owner,
        crypto_provider=crypto_provider,
        requires_grad=requires_grad,
        protocol=protocol,
        allow_dealing_party=allow_dealing_party,
    )
    shared.__dict__.pop(SPLIT_THERE, None)
    return shared


def decrypt(tensor: torch.Tensor, user: str | None = None) -> torch.Tensor:
    """The values of a shared tensor as a plain tensor; numbers in fixed precision are decoded.

    >>> torch.tensor([3]).encrypt(workers=[alice, bob], crypto_provider=carol).decrypt()
    tensor([3])
    """
    plain = get_shared([tensor], user)[0]
    return float_precision(plain) if is_fixed(plain) else plain


# ----------------------------------------------------------------------------------------- modules


def share_module(
    module: nn.Module,
    *workers: Location,
    owner: Owner,
    crypto_provider: Location | None = None,
    requires_grad: bool | None = None,
    protocol: str | None = None,
    allow_dealing_party: bool = False,
) -> nn.Module:
    """Share every parameter and buffer in fixed precision; returns the module, changed in place.

    Parameters require grad as they did, unless ``requires_grad`` says otherwise.  Buffers of
    integers (how many batches were seen) stay as they are.  A module that is at a worker is split
    there, with such buffers: this process sees nothing of it, and ``crypto_provider`` is needed.

    Raises :class:`~syft.exceptions.NotShareable` for a module that is not in fixed precision, and
    what :func:`share` raises.

    >>> model = torch.nn.Linear(2, 1).fix_precision().share(alice, bob, crypto_provider=carol)
    >>> model.get().float_precision().weight.shape
    torch.Size([1, 2])
    """
    session = _session_for(module, workers, owner, crypto_provider, protocol, allow_dealing_party)

    def shared(tensor: torch.Tensor) -> torch.Tensor:
        if _is_remote(tensor):
            _check_splittable(tensor, crypto_provider)
            found = _split_with_gradient(tensor, session)
        elif not tensor.is_floating_point() and type(tensor) is not Wrapper:
            return tensor.detach().clone()
        else:
            check_shareable(tensor)
            found = share_values(
                tensor, session, False, _guard_of(tensor, session, workers, owner, None)
            )
        parameter = isinstance(tensor, nn.Parameter)
        wanted = tensor.requires_grad if requires_grad is None else requires_grad and parameter
        return found.requires_grad_(wanted)

    return exchange_tensors(module, lambda tensors: list(map(shared, tensors)))


def _session_for(
    module: nn.Module,
    workers: Sequence[Location],
    owner: Owner,
    crypto_provider: Location | None,
    protocol: str | None,
    allow_dealing_party: bool,
) -> SessionClient:
    """The session in which a module is to be shared; raises what is wrong with the workers."""
    remote = [_pointer_of(tensor) for tensor in tensors_of(module) if _is_remote(tensor)]
    if crypto_provider is None and remote:
        raise NotShareable(*_NO_PROVIDER)
    owner = remote[0].owner if remote else owner
    return session_among(owner, workers, crypto_provider, protocol, allow_dealing_party)


def _split_with_gradient(tensor: torch.Tensor, session: SessionClient) -> torch.Tensor:
    """A remote parameter or buffer, and its gradient, which is on the same grid."""
    shared = _split_remotely(tensor, session)
    gradient = gradient_of(tensor)
    if gradient is not None:
        _pointer_of(gradient).grid = _pointer_of(tensor).grid
        shared.grad = _split_remotely(gradient, session)
    return shared


def encrypt_module(
    module: nn.Module,
    protocol: str | None = None,
    *,
    owner: Owner,
    workers: Sequence[Location] = (),
    crypto_provider: Location | None = None,
    requires_grad: bool | None = None,
    precision_fractional: int | None = None,
    base: int | None = None,
    allow_dealing_party: bool = False,
) -> nn.Module:
    """Encode a module in fixed precision and share it, in place.

    >>> model = torch.nn.Linear(2, 1).encrypt(workers=[alice, bob], crypto_provider=carol)
    >>> type(model.decrypt().weight).__name__
    'Parameter'
    """
    _session_for(module, workers, owner, crypto_provider, protocol, allow_dealing_party)  # or raise
    encode_module(module, precision_fractional, base)
    return share_module(
        module,
        *workers,
        owner=owner,
        crypto_provider=crypto_provider,
        requires_grad=requires_grad,
        protocol=protocol,
        allow_dealing_party=allow_dealing_party,
    )


def decrypt_module(module: nn.Module, user: str | None = None) -> nn.Module:
    """Bring the values of a shared module here and decode them, in place.

    >>> model = torch.nn.Linear(2, 1).encrypt(workers=[alice, bob], crypto_provider=carol)
    >>> model.decrypt()(torch.ones(1, 2)).shape
    torch.Size([1, 1])
    """
    return decode_module(get_module(module, user))
