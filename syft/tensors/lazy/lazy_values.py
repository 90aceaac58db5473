"""What a lazy tensor holds: a value that is there, or the recorded operation that will make it.

A :class:`LazyValue` is one result.  It has no values yet, and is not a tensor; what is known of it
are its shape, strides, dtype and device (:class:`TensorMeta`), and in whose memory it lies.

Views share memory.  The *root* of a view is the value whose memory it is, so that two values lie in
one memory if they have one root.  Writes are recorded in their order, and a value is what its
memory holds at that place of the order; there is no copy of a version.

Plain tensors share memory too: what ``to_lazy()`` was called on, what ``to_eager()`` returned.
Whoever holds one may write to it without being seen.  So a root keeps the version counters of those
(:attr:`LazyValue.watched`), and they are compared before a value is used.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.torch_private import make_wrapper, tensors_on

_MOST_METAS: Final = 1 << 16


class TensorMeta:
    """The shape, strides, offset, dtype and device of a tensor, and whether torch conjugates or
    negates it when it is read.

    There is one object for all that are alike, so that a key of many of them is compared fast.
    """

    __slots__ = ("shape", "stride", "offset", "dtype", "device", "conj", "neg", "make_wrapper")

    def __init__(
        self,
        shape: tuple[int, ...],
        stride: tuple[int, ...],
        offset: int,
        dtype: torch.dtype,
        device: torch.device,
        conj: bool,
        neg: bool,
    ) -> None:
        self.shape, self.stride, self.offset = shape, stride, offset
        self.dtype, self.device, self.conj, self.neg = dtype, device, conj, neg
        form = shape, stride, offset, None, dtype, torch.strided, device
        self.make_wrapper: partial[Any] = partial(make_wrapper, Wrapper, *form)
        """Makes a wrapper that reports this."""

    def fits(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor has this shape and dtype, on this device.

        >>> meta_of(torch.ones(2)).fits(torch.ones(2)), meta_of(torch.ones(2)).fits(torch.ones(3))
        (True, False)
        """
        return (self.shape, self.dtype, self.device) == (tensor.shape, tensor.dtype, tensor.device)


_METAS: Final[dict[Any, TensorMeta]] = {}


def interned(
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
    dtype: torch.dtype,
    device: torch.device,
    conj: bool = False,
    neg: bool = False,
) -> TensorMeta:
    """The one description of tensors of this kind.

    >>> interned((2,), (1,), 0, torch.float32, torch.device("cpu")) is meta_of(torch.ones(2))
    True
    """
    key = (shape, stride, offset, dtype, device, conj, neg)
    meta = _METAS.get(key)
    if meta is None:
        if len(_METAS) >= _MOST_METAS:
            _METAS.clear()  # whatever is compared by an old one is found out anew
        meta = _METAS[key] = TensorMeta(*key)
    return meta


def meta_of(tensor: torch.Tensor) -> TensorMeta:
    """The description of a tensor.

    >>> meta_of(torch.ones(2, 3).t()).stride
    (1, 3)
    """
    return interned(
        tuple(tensor.shape),
        tensor.stride(),
        int(tensor.storage_offset()),
        tensor.dtype,
        tensor.device,
        tensor.is_conj(),
        tensor.is_neg(),
    )


class LazyValue:
    """One result: the operation that will make it (``node``, of which it is result ``index``), or
    the tensor that is there (``real``), or the ``error`` with which making it failed.

    ``base`` is the value in whose memory it lies, None for one with memory of its own.
    """

    __slots__ = (
        "meta",
        "base",
        "node",
        "index",
        "real",
        "error",
        "handle",
        "aliases",
        "watched",
        "__weakref__",
    )

    def __init__(
        self,
        meta: TensorMeta,
        base: LazyValue | None = None,
        node: Any = None,
        index: int = 0,
        real: torch.Tensor | None = None,
    ) -> None:
        self.meta, self.base, self.node, self.index, self.real = meta, base, node, index, real
        self.error: Exception | None = None
        self.handle: weakref.ref[Any] | None = None
        """The link over it: while that lives, somebody can ask for the value."""
        self.aliases: list[weakref.ref[LazyValue]] | None = None
        """Of a root: the other values in its memory."""
        self.watched: list[list[Any]] | None = None
        """Of a root: the tensors by which others can write there, each with its version."""
        if base is not None:
            if base.aliases is None:
                base.aliases = []
            base.aliases.append(weakref.ref(self))

    @property
    def root(self) -> LazyValue:
        """The value whose memory it lies in: itself if it has its own."""
        return self.base or self

    def is_wanted(self) -> bool:
        """Whether somebody can ask for it."""
        return self.handle is not None and self.handle() is not None

    def in_memory(self) -> Iterator[LazyValue]:
        """All values in the memory of this one, which is a root."""
        yield self
        if self.aliases:
            alive = [reference for reference in self.aliases if reference() is not None]
            self.aliases = alive
            for reference in alive:
                value = reference()
                if value is not None:
                    yield value

    def is_seen_outside(self) -> bool:
        """Whether a plain tensor of somebody else lies in the memory of this root.

        What is written there must be there at once.
        """
        if self.real is None and not self.aliases:
            return False
        own = {id(value.real): value.real for value in self.in_memory() if value.real is not None}
        if not own:
            return False
        one = next(iter(own.values()))
        return tensors_on(one) > len(own)

    def watch(self, tensor: torch.Tensor) -> None:
        """Note the version of a tensor in the memory of this root that others can write to."""
        if self.watched is None:
            self.watched = []
        if len(self.watched) % _LOOKED_THROUGH == _LOOKED_THROUGH - 1:
            self._watch_less()
        self.watched.append([tensor, version_of(tensor)])

    def _watch_less(self) -> None:
        """Let go of tensors that no value has any more and that nobody has written to: a plain
        operand is another one each time it is used."""
        used = {id(value.real) for value in self.in_memory()}
        self.watched = [
            pair
            for pair in self.watched or ()
            if id(pair[0]) in used or version_of(pair[0]) != pair[1]
        ]

    def has_changed(self) -> bool:
        """Whether others have written to the memory of this root since it was looked at."""
        for tensor, version in self.watched or ():
            if version_of(tensor) != version:
                return True
        return False

    def look_again(self) -> None:
        """Take what is there for what should be."""
        if self.watched is not None:
            for pair in self.watched:
                pair[1] = version_of(pair[0])


_LOOKED_THROUGH: Final = 64
"""After so many more tensors, a root looks which of them it need not watch any more."""


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was written to; 0 for one of inference mode, which has no count.

    >>> version_of(torch.ones(2).add_(1))
    1
    """
    return 0 if tensor.is_inference() else tensor._version


_IN_PLAIN_MEMORY: Final[weakref.WeakValueDictionary[int, LazyValue]] = weakref.WeakValueDictionary()
"""The roots of memory that plain tensors share, by address."""


def root_at(tensor: torch.Tensor) -> LazyValue | None:
    """The root of the memory of a plain tensor, if a lazy value lies there."""
    address = tensor.untyped_storage().data_ptr()
    return _IN_PLAIN_MEMORY.get(address) if address else None


def captured(tensor: torch.Tensor, real: torch.Tensor, shown: bool = True) -> LazyValue:
    """The value of a plain tensor, of which ``real`` is another object over the same memory;
    ``shown`` says that others may have the tensor."""
    root, meta = root_at(tensor), meta_of(tensor)
    value = LazyValue(meta, root, real=real)
    if root is None:
        register_memory(value, tensor)
    if shown:
        value.root.watch(real)
    return value


def register_memory(root: LazyValue, tensor: torch.Tensor) -> None:
    """Have the root be found by the plain tensors in its memory, of which ``tensor`` is one."""
    address = tensor.untyped_storage().data_ptr()
    if address:
        _IN_PLAIN_MEMORY[address] = root
