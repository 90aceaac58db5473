"""Object ids: 63 random bits, so that nobody can guess the id of what somebody else holds.

An id is drawn for every remote result, so drawing must be cheap: ids come from the operating
system's generator 512 at a time (about 60 ns each; one system call per id costs ten times that).
A counter would be faster and guessable; 11 decimal digits, as the earlier library used, collide
after a few hundred thousand objects.

A constant may be known by its content too (``content``), so that it need not be sent twice.  That
hash has a key that never leaves this process: nobody can choose another tensor with the same one.
"""

from __future__ import annotations

import hashlib
import os
import struct

import torch

from syft.exceptions import NotSendable

_BATCH = struct.Struct("<512Q")
_pool: list[int] = []

# A forked child must not hand out the ids its parent holds.
os.register_at_fork(after_in_child=_pool.clear)


def new_id() -> int:
    """Draw a fresh object id between 0 and 2**63 - 1.

    >>> 0 <= new_id() < 2**63 and new_id() != new_id()
    True
    """
    try:
        return _pool.pop() >> 1
    except IndexError:
        _pool.extend(_BATCH.unpack(os.urandom(_BATCH.size)))
        return _pool.pop() >> 1


_KEY = os.urandom(32)
_CONTENT_BITS = 63


def content(tensor: torch.Tensor) -> int:
    """The number of a tensor that follows from its dtype, shape and elements.

    Equal tensors have equal numbers, for as long as this process lives.  It is there for
    constants: ``x.send(bob, id=sy.ids.content)`` does not send again what is at bob already.  Then
    there is one object for all such pointers: what is written through one shows through the
    others.  ``get`` leaves it there for them.
    Raises :class:`~syft.exceptions.NotSendable` for what is no plain tensor of strided layout.

    >>> import torch, syft as sy
    >>> sy.ids.content(torch.ones(2)) == sy.ids.content(torch.ones(2))
    True
    >>> sy.ids.content(torch.ones(2)) == sy.ids.content(torch.ones(2, dtype=torch.int32))
    False
    """
    return int.from_bytes(_hash(tensor, _KEY, 8), "big") >> 64 - _CONTENT_BITS


def digest(tensor: torch.Tensor) -> bytes:
    """The hash of a tensor's dtype, shape and elements that both ends can compute.

    Raises :class:`~syft.exceptions.NotSendable` as :func:`content` does.

    >>> len(digest(torch.ones(2))), digest(torch.ones(2)) == digest(torch.zeros(2))
    (32, False)
    """
    return _hash(tensor, b"", 32)


def has_content(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be known by its content: a plain one, with data, that is no leaf of
    a graph.

    >>> has_content(torch.ones(2)), has_content(torch.ones(2, requires_grad=True))
    (True, False)
    """
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided
    return plain and not (
        tensor.is_quantized or tensor.is_nested or tensor.is_meta or tensor.requires_grad
    )


def _hash(tensor: torch.Tensor, key: bytes, size: int) -> bytes:
    if not has_content(tensor):
        instead = "that works for plain tensors of strided layout that do not require grad"
        raise NotSendable("a tensor by its content", instead)
    plain = tensor.resolve_conj().resolve_neg().contiguous().cpu()
    kind = f"{plain.dtype} {tuple(plain.shape)} "
    state = hashlib.blake2b(kind.encode(), digest_size=size, key=key)
    state.update(memoryview(plain.reshape(-1).view(torch.uint8).numpy()))  # type: ignore[arg-type]
    return state.digest()
