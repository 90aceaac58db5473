"""Masks: the key stream of AES-256 in counter mode, the same for whoever has the key."""

from __future__ import annotations

import hashlib
import itertools

import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from syft.crypto.mask_stream import MaskCipher, MaskStream, ZeroShares, agreed_key, fresh_key

KEY = bytes(range(32))


def blocks(first: int, count: int) -> bytes:
    """The encrypted counters: what counter mode is by its definition (NIST SP 800-38A)."""
    counters = b"".join(n.to_bytes(16, "big") for n in range(first, first + count))
    return Cipher(AES(KEY), ECB()).encryptor().update(counters)


def test_it_is_counter_mode() -> None:
    masks = MaskStream(KEY).draw(torch.Size([10]))
    assert masks.dtype is torch.int64
    assert masks.view(torch.uint8).numpy().tobytes() == blocks(0, 5)


@pytest.mark.parametrize("parts", [(1,), (3, 5), (0, 7, 0, 1), (1 << 17, 3), (1 << 18, 1 << 17)])
def test_it_goes_on_where_it_was(parts: tuple[int, ...], device: torch.device) -> None:
    stream = MaskStream(KEY)
    drawn = torch.cat([stream.draw(torch.Size([count]), device) for count in parts])
    assert drawn.device.type == device.type
    whole = MaskStream(KEY).draw(torch.Size([sum(parts)]))
    assert torch.equal(drawn.cpu(), whole)
    last = sum(parts) // 2 - 1
    if last >= 0:
        assert whole[2 * last : 2 * last + 2].view(torch.uint8).numpy().tobytes() == blocks(last, 1)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (2, 3)])
def test_shapes(shape: tuple[int, ...]) -> None:
    assert MaskStream(KEY).draw(torch.Size(shape)).shape == shape


def test_keys_differ_by_purpose_place_and_part() -> None:
    one, other = fresh_key(), fresh_key()
    keys = [
        agreed_key(b"a", one, other),
        agreed_key(b"a", other, one),
        agreed_key(b"b", one, other),
        agreed_key(b"a", one, one),
        one,
        other,
    ]
    assert len(set(keys)) == 6 and {len(key) for key in keys} == {32}
    assert keys[0] == hashlib.sha256(b"syft masks\0a\0" + one + other).digest()


def test_masks_are_uniform() -> None:
    """Each of the 64 bits is set in half of the numbers (6 standard deviations)."""
    numbers = MaskStream(fresh_key()).draw(torch.Size([100_000]))
    bits = (numbers.unsqueeze(1) >> torch.arange(64)) & 1
    assert bool(((bits.double().mean(0) - 0.5).abs() < 3 / len(numbers) ** 0.5).all())


def test_streams_of_one_cipher_are_read_in_turns() -> None:
    cipher = MaskCipher(KEY)
    one, other = MaskStream(cipher), MaskStream(cipher, (1 << 32).to_bytes(16, "big"))
    parts = [stream.draw([3]) for stream in (one, other, one, other)]
    assert torch.equal(torch.cat(parts[::2]), MaskStream(KEY).draw([6]))
    assert torch.cat(parts[1::2]).numpy().tobytes() == blocks(1 << 32, 3)


# ---------------------------------------------------------------------------------- shares of zero


def zero_shares(parties: int) -> list[ZeroShares]:
    """Of parties that have agreed on their keys."""
    told = {pair: fresh_key() for pair in itertools.permutations(range(parties), 2)}
    return [
        ZeroShares.agreed(
            b"a test",
            rank,
            {other: key for (one, other), key in told.items() if one == rank},
            {one: key for (one, other), key in told.items() if other == rank},
        )
        for rank in range(parties)
    ]


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_shares_of_zero_sum_to_zero_and_no_fewer_do(parties: int, device: torch.device) -> None:
    shares = [torch.full((3, 50), rank + 1, device=device) for rank in range(parties)]
    zeros = zero_shares(parties)
    for first in (bytes(16), bytes(15) + b"\1", b"\1" * 16):
        added = [one.added(share, first) for one, share in zip(zeros, shares, strict=True)]
        assert all(one.device.type == device.type for one in added)
        drawn = [one - share for one, share in zip(added, shares, strict=True)]
        assert not torch.stack(drawn).sum(0).any()
        for count in range(1, parties):
            for some in itertools.combinations(drawn, count):
                assert bool((torch.stack(some).sum(0) != 0).all())
    assert [int(share.max()) for share in shares] == list(range(1, parties + 1)), "left as they are"


def test_shares_of_zero_are_what_the_keys_draw() -> None:
    zeros = ZeroShares(1, {0: b"a" * 32, 2: b"b" * 32})
    before, after = (MaskStream(key * 32, bytes(16)).draw([4]) for key in (b"a", b"b"))
    assert torch.equal(zeros.added(torch.zeros(4).long()), after - before)
