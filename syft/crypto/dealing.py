"""Correlated randomness: one text makes it at the provider, as values, and at a party, as shares.

A *deal* is a function of a :class:`Dealer`.  It asks for uniform values and for values *derived*
from them (the product of two masks).  At the provider it computes with the values themselves; at a
party with shares of them::

    def deal_square(dealer, shape):
        a = dealer.uniform(shape)
        return a, dealer.derived(shape, lambda: a * a)

Party i and the provider share a key, and draw the same uniform words from it: these are party i's
shares, and their sum is the value that the provider knows.  A derived value is known to the
provider alone, so it sends the last party the *correction*: the value less what the other parties
draw.  Whatever a party gets is uniform: it is drawn from its own key, or hidden by the draws of the
others.  More parties cost no more corrections.

Streams are named: nobody draws twice from the same one but to get the same mask again.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from syft.crypto.mask_stream import MaskCipher, MaskStream
from syft.exceptions import MaterialError


@dataclass(frozen=True, slots=True, order=True)
class StreamName:
    """The name of a stream: the counter of a program, the place of an instruction in it, and what
    is drawn from it.

    Who has a party draw one thing and the provider deal another, at the same place, gets nothing:
    these are two streams.
    """

    counter: int
    place: int
    use: str = ""
    """The instruction and its public arguments."""

    def block(self) -> bytes:
        """The first counter block of the stream; 2^32 blocks of 16 bytes are its own.

        >>> StreamName(1, 2).block().hex(), StreamName(1, 2, "MASK").block().hex()
        ('ccd0b6eb7b8a74cbe84cd0ff00000000', '407c41c0166431f8f7a2ce8e00000000')
        """
        text = f"{self.counter} {self.place} {self.use}"
        return hashlib.sha256(text.encode()).digest()[:12] + bytes(4)


class Dealer(abc.ABC):
    """What makes the randomness of one instruction, at the provider or at a party. Abstract."""

    @abc.abstractmethod
    def uniform(self, shape: Sequence[int]) -> torch.Tensor:
        """Uniform words of 64 bits: the values, or this party's additive shares of them."""

    @abc.abstractmethod
    def uniform_bits(self, shape: Sequence[int]) -> torch.Tensor:
        """The same, shared by xor: 64 uniform bits a word."""

    @abc.abstractmethod
    def derived(self, shape: Sequence[int], value: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What ``value()`` computes at the provider: the value, or an additive share of it."""

    @abc.abstractmethod
    def derived_bits(self, shape: Sequence[int], value: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The same, shared by xor."""

    @abc.abstractmethod
    def again(self, name: StreamName, shape: Sequence[int]) -> torch.Tensor:
        """The first uniform words of the stream of another instruction: a mask it drew."""


class ProviderDealer(Dealer):
    """The provider: it knows all keys, computes values, and collects corrections.

    A key is 32 bytes, or a cipher of it that serves several dealers of one thread.

    >>> provider = ProviderDealer([b"a" * 32, b"b" * 32], StreamName(1, 0))
    >>> a = provider.uniform([2])
    >>> bool((provider.derived([2], lambda: a * a) == a * a).all()), len(provider.corrections)
    (True, 1)
    """

    def __init__(
        self,
        keys: Sequence[bytes | MaskCipher],
        name: StreamName,
        device: torch.device | str = "cpu",
    ) -> None:
        self._keys = keys
        self._device = device
        self._streams = [MaskStream(key, name.block()) for key in keys]
        self.corrections: list[torch.Tensor] = []
        """What the last party is to get, in the order in which the deal asks for it."""

    def uniform(self, shape: Sequence[int]) -> torch.Tensor:
        """The sum of what all parties draw."""
        return self._drawn(self._streams, shape, operator.iadd)

    def uniform_bits(self, shape: Sequence[int]) -> torch.Tensor:
        """The xor of what all parties draw."""
        return self._drawn(self._streams, shape, operator.ixor)

    def derived(self, shape: Sequence[int], value: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The value; the last party's share of it becomes a correction."""
        whole = value()
        drawn = self._drawn(self._streams[:-1], shape, operator.iadd)
        self.corrections.append(torch.sub(whole, drawn, out=drawn))
        return whole

    def derived_bits(self, shape: Sequence[int], value: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The same by xor."""
        whole = value()
        self.corrections.append(
            self._drawn(self._streams[:-1], shape, operator.ixor).bitwise_xor_(whole)
        )
        return whole

    def again(self, name: StreamName, shape: Sequence[int]) -> torch.Tensor:
        """The mask that an instruction of another name drew first."""
        streams = [MaskStream(key, name.block()) for key in self._keys]
        return self._drawn(streams, shape, operator.iadd)

    def _drawn(
        self,
        streams: Sequence[MaskStream],
        shape: Sequence[int],
        join: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        draws = (stream.draw(shape, self._device) for stream in streams)
        return functools.reduce(join, draws)


class PartyDealer(Dealer):
    """A party: it draws its shares from its key; the last one reads corrections instead.

    ``corrections`` is None at every party but the last.

    >>> name = StreamName(1, 0)
    >>> provider = ProviderDealer([b"a" * 32, b"b" * 32], name)
    >>> value = provider.derived([1], lambda: torch.tensor([7]))
    >>> first = PartyDealer(b"a" * 32, name, None).derived([1], lambda: value)
    >>> last = PartyDealer(b"b" * 32, name, provider.corrections).derived([1], lambda: value)
    >>> first + last
    tensor([7])
    """

    def __init__(
        self,
        key: bytes | MaskCipher,
        name: StreamName,
        corrections: Sequence[torch.Tensor] | None,
        device: torch.device | str = "cpu",
    ) -> None:
        self._key = key
        self._name = name
        self._device = device
        self._opened: MaskStream | None = None
        self._corrections: Iterator[torch.Tensor] | None = (
            None if corrections is None else iter(corrections)
        )

    @property
    def _stream(self) -> MaskStream:
        """The stream, opened when it is first drawn from."""
        if self._opened is None:
            self._opened = MaskStream(self._key, self._name.block())
        return self._opened

    def uniform(self, shape: Sequence[int]) -> torch.Tensor:
        """This party's words."""
        return self._stream.draw(shape, self._device)

    uniform_bits = uniform

    def derived(self, shape: Sequence[int], value: Callable[[], torch.Tensor]) -> torch.Tensor:
        """This party's words, or at the last party the next correction.

        Raises :class:`~syft.exceptions.MaterialError` if there is none, or one that is no tensor
        of int64 in this shape.
        """
        if self._corrections is None:
            return self._stream.draw(shape, self._device)
        correction = next(self._corrections, None)
        if correction is None:
            raise MaterialError(f"a correction of shape {tuple(shape)}", "none")
        words = correction.dtype is torch.int64 and correction.layout is torch.strided
        if not words or correction.is_meta or list(correction.shape) != list(shape):
            got = f"one of shape {tuple(correction.shape)} of {correction.dtype}"
            raise MaterialError(f"a correction of shape {tuple(shape)}", got)
        return correction.to(self._device)

    derived_bits = derived

    def again(self, name: StreamName, shape: Sequence[int]) -> torch.Tensor:
        """This party's share of the mask that an instruction of another name drew first."""
        return MaskStream(self._key, name.block()).draw(shape, self._device)
