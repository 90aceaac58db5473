"""Object ids: 63 random bits, so that nobody can guess the id of another user's object.

An id is drawn for every remote result, so drawing must be cheap: ids come from the operating
system's generator 512 at a time (about 60 ns each; one system call per id costs ten times that).
A counter would be faster, and guessable; the 11 decimal digits of the earlier library collide after
a few hundred thousand objects.

A constant can also be identified by its content (``content``), so that it is not sent twice.  That
hash has a key that never leaves this process, so that nobody can construct another tensor with the
same hash.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading

import numpy
import torch

from syft.exceptions import NotSendable

_BATCH = 512 * 8  # bytes
_pool: list[int] = []

# A forked child must not hand out the ids its parent holds.
os.register_at_fork(after_in_child=_pool.clear)


def new_id() -> int:
    """Draw a fresh object id between 0 and 2**63 - 1.

    >>> 0 <= new_id() < 2**63 and new_id() != new_id()
    True
    """
    while True:
        try:
            return _pool.pop()
        except IndexError:  # other threads may take all of them before this one has its own
            _pool.extend((numpy.frombuffer(os.urandom(_BATCH), numpy.uint64) >> 1).tolist())


def first_id(count: int) -> int:
    """Draw the first of so many ids that follow one another.

    >>> 0 <= first_id(3) <= 2**63 - 3
    True
    """
    return min(new_id(), 2**63 - count)


class _Rising:
    """Numbers each of which is above the one before, by a random step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = secrets.randbits(61)

    def next(self) -> int:
        with self._lock:
            self._last += 1 + secrets.randbits(36)
            return self._last


_executions = _Rising()


def new_execution() -> int:
    """Draw the number of a collective operation: nobody can guess it, and it is above all before.

    So a worker sees with little memory that an execution is started twice: see
    :class:`~syft.workers.core.peer.RisingNumbers`.

    >>> new_execution() < new_execution() < 2**63
    True
    """
    return _executions.next()


_KEY = os.urandom(32)
_CONTENT_BITS = 63


def content(tensor: torch.Tensor) -> int:
    """A number computed from a tensor's dtype, shape and elements.

    Within one process equal tensors have equal numbers.  It is meant for constants:
    ``x.send(bob, id=sy.ids.content)`` does not send a tensor again that is on bob already.  All
    such pointers then share one object: a write through one shows through the others, and ``get``
    leaves the object there.
    Raises :class:`~syft.exceptions.NotSendable` for other than plain tensors of strided layout.

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
    """Whether a tensor can be identified by its content: plain, with data, no ``requires_grad``.

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
