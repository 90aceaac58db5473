"""Masks: uniform 64-bit integers that two workers draw alike from a key which both have.

A number to which such a mask is added, modulo 2^64, tells nothing of itself to anyone without the
key.  Each mask hides one number once: a key is used for one stream, and a stream is read forwards.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

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


class MaskStream:
    """The masks of one key: AES-256 in counter mode, from the counter block ``first`` on.

    A key that serves several streams gives each a part of the counter of its own.

    >>> one, other = MaskStream(b"k" * 32), MaskStream(b"k" * 32)
    >>> torch.equal(one.draw(torch.Size([2, 3])), other.draw(torch.Size([6])).view(2, 3))
    True
    """

    def __init__(self, key: bytes, first: bytes = _FROM_ZERO) -> None:
        self._encryptor = Cipher(AES(key), CTR(first)).encryptor()

    def draw(self, shape: torch.Size, device: torch.device | str = "cpu") -> torch.Tensor:
        """The next masks, of dtype int64; they are computed on the CPU."""
        masks = torch.empty(shape, dtype=torch.int64)
        if not masks.numel():
            return masks.to(device)
        room = masks.numpy().data.cast("B")
        for at in range(0, len(room), len(_ZEROS)):
            part = room[at : at + len(_ZEROS)]
            self._encryptor.update_into(_ZEROS[: len(part)], part)
        return masks.to(device)
