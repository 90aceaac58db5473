"""What a party sees is uniform, whatever the secret: each word, and all pairs of bits.

The view of a party is what it drew, what the provider sent it, and what was opened.  Bits that
belong to one element are compared pairwise: a mask that is used twice shows as a correlation.  All
thresholds are for one false alarm in 10^9 runs at most.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from syft.crypto.dealing import Dealer, PartyDealer, ProviderDealer
from syft.crypto.gates.bit_planes import rows_of, tensor_of, transpose, unpack, words_of
from syft.crypto.gates.comparison import deal_negative, deal_positive, negative, positive
from syft.crypto.gates.equality import deal_zero, zero
from syft.crypto.gates.truncation import deal_divide, divide
from syft.crypto.mask_stream import fresh_key
from tests.crypto.parties import NAME, run_parties, shared

COUNT = 64 * 256
GATES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "divide": (functools.partial(deal_divide, factor=16), divide),
    "by ten": (functools.partial(deal_divide, factor=(10,)), divide),
    "by a fraction": (functools.partial(deal_divide, factor=(3 << 51, 54)), divide),
    "negative": (deal_negative, negative),
    "positive": (functools.partial(deal_positive, factor=0), positive),
    "divided": (functools.partial(deal_positive, factor=16), positive),
    "a tenth": (functools.partial(deal_positive, factor=(10,)), positive),
    "zero": (deal_zero, zero),
}
SECRETS = [0, -(1 << 61) - 12345]


class Watched(PartyDealer):
    """A party that keeps what it gets."""

    def __init__(self, key: bytes, corrections: Sequence[torch.Tensor] | None) -> None:
        super().__init__(key, NAME, corrections)
        self.view: list[torch.Tensor] = []

    def uniform(self, shape: Sequence[int]) -> torch.Tensor:
        return self._kept(super().uniform(shape))

    def uniform_bits(self, shape: Sequence[int]) -> torch.Tensor:
        return self._kept(super().uniform_bits(shape))

    def derived(self, shape: Sequence[int], value: Callable[[], torch.Tensor]) -> torch.Tensor:
        return self._kept(super().derived(shape, value))

    def derived_bits(self, shape: Sequence[int], value: Callable[[], torch.Tensor]) -> torch.Tensor:
        return self._kept(super().derived_bits(shape, value))

    def _kept(self, tensor: torch.Tensor) -> torch.Tensor:
        self.view.append(tensor)
        return tensor


def view(gate: str, secret: int, parties: int, of: int) -> list[torch.Tensor]:
    """What party ``of`` sees of one execution with fresh keys."""
    deal, protocol = GATES[gate]
    keys = [fresh_key() for _ in range(parties)]
    provider = ProviderDealer(keys, NAME)
    deal(provider, (COUNT,))
    last = parties - 1
    dealers: list[Dealer] = [
        Watched(key, provider.corrections if party == last else None)
        for party, key in enumerate(keys)
    ]
    shares = shared(torch.full((COUNT,), secret), parties)
    run = run_parties(
        [protocol(rank, deal(dealers[rank], (COUNT,)), shares[rank]) for rank in range(parties)]
    )
    watched = dealers[of]
    assert isinstance(watched, Watched)
    return [*watched.view, *(tensor for opened in run.opened for tensor in opened)]


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """Rows of bits of one place, a column for each element: of words, or of planes."""
    if tensor.shape[-1] == COUNT:
        planes = []
        for words in tensor.reshape(-1, COUNT):
            rows = rows_of(words_of(words)) ^ 0
            transpose(rows)
            planes.append(tensor_of(rows))
        flat = torch.cat(planes)
    else:
        flat = tensor.reshape(-1, COUNT // 64)
    return torch.stack([unpack(plane, COUNT) for plane in flat])


def chance(statistic: float, freedom: int) -> float:
    """How often chi-square is as large."""
    halves = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(halves[0], halves[1]))


def byte_chance(tensor: torch.Tensor) -> float:
    """How often uniform bytes are as uneven as those of a tensor."""
    counts = torch.bincount(tensor.reshape(-1).view(torch.uint8), minlength=256).double()
    expected = counts.sum() / 256
    return chance(float(((counts - expected) ** 2 / expected).sum()), 255)


def strongest_correlation(bits: torch.Tensor) -> float:
    """The largest of all pairs, and of each bit with a constant, in standard deviations."""
    signs = torch.cat((torch.ones(1, COUNT), 1.0 - 2.0 * bits))
    products = (signs @ signs.t()) / COUNT**0.5
    return float((products - torch.diag(products.diagonal())).abs().max())


@pytest.mark.parametrize(
    "gate", [pytest.param(gate, marks=pytest.mark.database(gate)) for gate in GATES]
)
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("parties, of", [(2, 0), (2, 1), (3, 2)])
def test_a_view_is_uniform(gate: str, secret: int, parties: int, of: int) -> None:
    seen = view(gate, secret, parties, of)
    for tensor in seen:
        assert byte_chance(tensor) > 1e-12
    # One pair of 10^6 is beyond 8.5 standard deviations once in 10^10 times.
    assert strongest_correlation(torch.cat([bits_of(tensor) for tensor in seen])) < 8.5


def test_uneven_bytes_are_found() -> None:
    words = shared(torch.zeros(COUNT, dtype=torch.int64))[0]
    assert byte_chance(words) > 1e-12
    assert byte_chance(words & ~0x7 | 0x2) < 1e-12


def test_a_mask_that_is_used_twice_is_found() -> None:
    words = shared(torch.zeros(COUNT, dtype=torch.int64))[0]
    once, plane = bits_of(words), shared(torch.zeros(1, COUNT // 64, dtype=torch.int64))[0]
    assert strongest_correlation(torch.cat((once, bits_of(plane)))) < 8.5
    again = bits_of(plane) ^ once[3:4]
    assert strongest_correlation(torch.cat((again, bits_of(plane)))) < 8.5
    assert strongest_correlation(torch.cat((once, once[3:4] ^ 1))) > 8.5
