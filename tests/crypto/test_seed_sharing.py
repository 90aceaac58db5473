"""Shares of seeds: enough of them give one back, and fewer are alike for all; keys of X25519."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syft.crypto.mask_stream import agreed_key
from syft.crypto.seed_sharing import (
    _PRIME,
    SHARE_BYTES,
    KeyPair,
    fewest,
    joined,
    split,
    weights_at_zero,
)


@settings(deadline=None, max_examples=60)
@given(st.binary(min_size=32, max_size=32), st.data())
def test_any_that_are_enough_give_the_secret(secret: bytes, data: st.DataObject) -> None:
    points = data.draw(st.lists(st.integers(1, 2**20), min_size=1, max_size=8, unique=True))
    threshold = data.draw(st.integers(1, len(points)))
    shares = split(secret, threshold, points)
    chosen = data.draw(st.permutations(points))[:threshold]
    found = {at: shares[at] for at in chosen}
    assert joined(found) == joined(found, weights_at_zero(chosen)) == secret
    assert all(len(share) == SHARE_BYTES for share in shares.values())


def test_fewer_fit_every_secret() -> None:
    """Of three shares that are needed, two; for any secret there is a third one that fits it."""
    shares = split(b"s" * 32, 3, [1, 2, 3])
    two = {at: int.from_bytes(shares[at], "little") for at in (1, 2)}
    weights = weights_at_zero([1, 2, 3])
    for other in (bytes(32), b"\xff" * 32, b"t" * 32):
        rest = int.from_bytes(other, "little") - sum(weights[at] * two[at] for at in two)
        third = rest * pow(weights[3], -1, _PRIME) % _PRIME
        fitting = {at: shares[at] for at in two} | {3: third.to_bytes(SHARE_BYTES, "little")}
        assert joined(fitting) == other


def test_shares_are_not_those_of_the_last_time() -> None:
    first, second = (split(b"s" * 32, 2, [1, 2]) for _ in range(2))
    assert not set(first.values()) & set(second.values())
    high = [int.from_bytes(split(bytes(32), 2, [1])[1], "little") >> 500 for _ in range(50)]
    assert len(set(high)) > 45, "the coefficients fill the field, whatever the secret is"


def test_shares_of_different_secrets_give_none() -> None:
    one, other = (split(secret, 2, [1, 2]) for secret in (b"a" * 32, b"b" * 32))
    with pytest.raises(ValueError, match="no shares of a secret of 32 bytes"):
        joined({1: one[1], 2: other[2]})


def test_the_prime_is_one() -> None:
    """Lucas and Lehmer: 2^p - 1 is prime if p - 2 steps from 4 end at 0."""
    value = 4
    for _ in range(521 - 2):
        value = (value * value - 2) % _PRIME
    assert value == 0


def test_more_than_half_are_needed_and_more_than_half_of_the_others() -> None:
    """So no two groups of so many have only party 0 and one more that lies in common."""
    for parties in range(2, 200):
        assert parties >= fewest(parties) and 2 * fewest(parties) > parties + 1
        assert 2 * (fewest(parties) - 1) <= parties + 1


def test_keys_are_those_of_rfc_7748() -> None:
    """The first step of its section 5.2, and a pair of its section 6.1."""
    nine = KeyPair((9).to_bytes(32, "little"))
    step = "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    assert nine.public.hex() == step
    secret = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
    bob = KeyPair(bytes.fromhex(secret))
    public = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    assert bob.public.hex() == public
    between = nine._private.exchange(bob._private.public_key())
    wanted = agreed_key(b"x", between, b"".join(sorted((nine.public, bob.public))))
    assert nine.key_with(b"x", bob.public) == bob.key_with(b"x", nine.public) == wanted
    assert nine.key_with(b"y", bob.public) != wanted


def test_a_public_half_that_gives_no_secret_is_refused() -> None:
    for public in (bytes(32), (1).to_bytes(32, "little"), b"short"):
        with pytest.raises(ValueError):
            KeyPair().key_with(b"x", public)


def test_pairs_differ() -> None:
    pairs = [KeyPair() for _ in range(4)]
    keys = {one.key_with(b"x", other.public) for one, other in itertools.combinations(pairs, 2)}
    assert len(keys) == 6
