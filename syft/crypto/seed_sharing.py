"""Seeds of masks that enough others can give back when a party has left.

A party of a sum hides its numbers behind masks of its own and behind masks that it has with each
other party (:mod:`~syft.crypto.mask_stream`).  It splits what both follow from into shares, so that
any ``threshold`` parties can take the masks off of a sum, and fewer learn nothing: Shamir, "How to
Share a Secret", 1979, as in Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving
Machine Learning", CCS 2017.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from syft.crypto.mask_stream import KEY_BYTES, agreed_key

_PRIME: Final = 2**521 - 1
"""A Mersenne prime over which secrets of 256 bits are shared."""

SHARE_BYTES: Final = 66


def fewest(parties: int) -> int:
    """The fewest parties that may be left of a sum: more than half, and more than half with one.

    >>> [fewest(parties) for parties in (2, 3, 4, 5, 10)]
    [2, 3, 3, 4, 6]
    """
    return (parties + 1) // 2 + 1


def split(secret: bytes, threshold: int, points: Sequence[int]) -> dict[int, bytes]:
    """Shares of a secret of 32 bytes, one for each point: any ``threshold`` of them give it back.

    The points are different numbers over 0.  The share of x is a polynomial at x whose value at 0
    is the secret, and whose other coefficients are uniform.

    Formal guarantee: fewer than ``threshold`` shares are distributed alike for all secrets.

    >>> shares = split(b"k" * 32, 2, [1, 2, 3])
    >>> joined({at: shares[at] for at in (1, 3)}) == b"k" * 32
    True
    """
    coefficients = [int.from_bytes(secret, "little")]
    coefficients += [secrets.randbelow(_PRIME) for _ in range(threshold - 1)]
    found = {}
    for point in points:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * point + coefficient) % _PRIME
        found[point] = value.to_bytes(SHARE_BYTES, "little")
    return found


def joined(shares: Mapping[int, bytes], weights: Mapping[int, int] | None = None) -> bytes:
    """The secret of as many shares as its threshold, by their points.

    ``weights`` are those of :func:`weights_at_zero`, where several secrets have the same points.

    Raises :class:`ValueError` for what gives no secret of 32 bytes.

    >>> joined({1: bytes(66), 2: (1).to_bytes(66, "little")})
    Traceback (most recent call last):
    ValueError: these are no shares of a secret of 32 bytes
    """
    known = weights_at_zero(shares) if weights is None else weights
    total = sum(known[at] * int.from_bytes(share, "little") for at, share in shares.items())
    value = total % _PRIME
    if value >> 8 * KEY_BYTES:
        raise ValueError(f"these are no shares of a secret of {KEY_BYTES} bytes")
    return value.to_bytes(KEY_BYTES, "little")


def weights_at_zero(points: Iterable[int]) -> dict[int, int]:
    """What the shares at some points count for in the secret: Lagrange's polynomials at 0.

    >>> sum(weights_at_zero([1, 2, 5]).values()) % (2**521 - 1)
    1
    """
    found, several = {}, list(points)
    for point in several:
        above = below = 1
        for other in several:
            if other != point:
                above = above * other % _PRIME
                below = below * (other - point) % _PRIME
        found[point] = above * pow(below, -1, _PRIME) % _PRIME
    return found


def _curve() -> Any:
    """Imported when the first sum needs it: few programs do."""
    from cryptography.hazmat.primitives.asymmetric import x25519

    return x25519


class KeyPair:
    """The two halves of a key: whoever has one ``secret`` and the other's ``public`` has the same
    key for masks as the other (X25519, RFC 7748).

    >>> one, other = KeyPair(), KeyPair()
    >>> one.key_with(b"a sum", other.public) == other.key_with(b"a sum", one.public)
    True
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self.secret = secrets.token_bytes(KEY_BYTES) if secret is None else secret
        self._private = _curve().X25519PrivateKey.from_private_bytes(self.secret)
        self.public: bytes = self._private.public_key().public_bytes_raw()

    def key_with(self, purpose: bytes, public: bytes) -> bytes:
        """The key for masks with whoever has the secret of ``public``.

        Raises :class:`ValueError` for what is no public half of a key.
        """
        between = self._private.exchange(_curve().X25519PublicKey.from_public_bytes(public))
        return agreed_key(purpose, between, b"".join(sorted((self.public, public))))
