"""Masks: uniform 64-bit integers that two workers draw alike from a key which both have.

A number to which such a mask is added, modulo 2^64, tells nothing of itself to anyone without the
key.  Each mask hides one number once: a key is used for one stream, and a stream is read forwards.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch

KEY_BYTES: Final = 32

_ZEROS: Final = memoryview(bytes(1 << 16))
"""What is encrypted: short, so that it stays in the processor's nearest cache."""
_FROM_ZERO: Final = bytes(16)


def fresh_key() -> bytes:
    """Bytes of the operating system's generator, for one stream.

    >>> len(fresh_key())
    32
    """
    return secrets.token_bytes(KEY_BYTES)


def agreed_key(purpose: bytes, first: bytes, second: bytes) -> bytes:
    """The key that two parties have agreed on, when each has sent the other a fresh one.

    It is as good as the better of the two.

    >>> agreed_key(b"a sum", b"a" * 32, b"b" * 32).hex()[:16]
    'e82538c3b92d13c4'
    """
    return hashlib.sha256(b"syft masks\0" + purpose + b"\0" + first + second).digest()


@functools.cache
def _ciphers() -> tuple[Any, Any, Any]:
    """What makes a cipher; imported when the first is made, since few programs make one."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher, algorithms.AES, modes.CTR


def _encryptor(key: bytes) -> Any:
    cipher, algorithm, mode = _ciphers()
    return cipher(algorithm(key), mode(_FROM_ZERO)).encryptor()


class MaskCipher:
    """AES-256 of one key in counter mode, for several streams: making one costs microseconds.

    Its streams may be read in turns, by one thread at a time.

    >>> cipher = MaskCipher(b"k" * 32)
    >>> torch.equal(MaskStream(cipher).draw([2]), MaskStream(b"k" * 32).draw([2]))
    True
    """

    def __init__(self, key: bytes) -> None:
        self._encryptor = _encryptor(key)

    def fill(self, word: int, room: memoryview) -> None:
        """Fill bytes with the key stream from a word of 8 bytes on; a counter block makes two.

        >>> room = memoryview(bytearray(8))
        >>> MaskCipher(b"k" * 32).fill(3, room)
        >>> MaskStream(b"k" * 32).draw([4]).numpy()[3:].tobytes() == bytes(room)
        True
        """
        self._encryptor.reset_nonce((word >> 1).to_bytes(16, "big"))
        if word & 1:
            self._encryptor.update(_ZEROS[:8])
        for at in range(0, len(room), len(_ZEROS)):
            part = room[at : at + len(_ZEROS)]
            self._encryptor.update_into(_ZEROS[: len(part)], part)


class MaskStream:
    """The masks of one key: AES-256 in counter mode, from the counter block ``first`` on.

    A key that serves several streams gives each a part of the counter of its own.

    >>> one, other = MaskStream(b"k" * 32), MaskStream(b"k" * 32)
    >>> torch.equal(one.draw([2, 3]), other.draw([6]).view(2, 3))
    True
    """

    def __init__(self, key: bytes | MaskCipher, first: bytes = _FROM_ZERO) -> None:
        self._cipher = MaskCipher(key) if isinstance(key, bytes) else key
        self._word = 2 * int.from_bytes(first, "big")

    def draw(self, shape: Sequence[int], device: torch.device | str = "cpu") -> torch.Tensor:
        """The next masks, of dtype int64; they are computed on the CPU."""
        # numpy asks the system for large pages where there are many; torch does not.
        words = np.empty(shape, dtype=np.int64)
        if words.size:
            self._cipher.fill(self._word, words.data.cast("B"))
            self._word += words.size
        masks = torch.from_numpy(words)
        return masks if device == "cpu" else masks.to(device)


class ZeroShares:
    """A party's shares of zero, which each two parties draw from a key that only they have.

    Party i adds what its keys with the parties after it draw, and subtracts what those with the
    parties before it do: all shares of one stream sum to zero, modulo 2^64.  A stream serves once.

    Formal guarantee: of shares to which shares of zero were added, whoever has no key between any
    two of some parties learns what the shares of these parties sum to, and nothing else, also where
    it knows all randomness from which each was computed.

    >>> one, other = (ZeroShares(rank, {1 - rank: b"k" * 32}) for rank in (0, 1))
    >>> one.added(torch.tensor([5])) + other.added(torch.tensor([2]))
    tensor([7])
    """

    def __init__(self, rank: int, keys: Mapping[int, bytes]) -> None:
        self._after = [MaskCipher(key) for other, key in keys.items() if other > rank]
        self._before = [MaskCipher(key) for other, key in keys.items() if other < rank]

    @classmethod
    def agreed(
        cls, purpose: bytes, rank: int, own: Mapping[int, bytes], told: Mapping[int, bytes]
    ) -> ZeroShares:
        """Those under the keys that follow from what a party has told each other one, and was told.

        >>> own, told = {1: b"a" * 32}, {1: b"b" * 32}
        >>> one, other = (ZeroShares.agreed(b"", 0, own, told), ZeroShares(1, {0: agreed_key(
        ...     b"", own[1], told[1])}))
        >>> one.added(torch.tensor([5])) + other.added(torch.tensor([2]))
        tensor([7])
        """
        pairs = {
            other: (own[other], theirs) if rank < other else (theirs, own[other])
            for other, theirs in told.items()
        }
        return cls(rank, {other: agreed_key(purpose, *pair) for other, pair in pairs.items()})

    def added(self, share: torch.Tensor, first: bytes = _FROM_ZERO) -> torch.Tensor:
        """A share with one of zero added: a new tensor.  ``first`` is the stream's first counter
        block."""
        total = share
        for ciphers, join in ((self._after, torch.add), (self._before, torch.sub)):
            for cipher in ciphers:
                mask = MaskStream(cipher, first).draw(share.shape, share.device)
                total = join(total, mask, out=mask)
        return total
