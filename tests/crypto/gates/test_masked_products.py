"""Products of masked bits, against products of bits; on numpy's arrays and on torch's."""

from __future__ import annotations

import functools
import sys
from typing import Any

import pytest
import torch

from syft.crypto.dealing import StreamName
from syft.crypto.gates.bit_planes import words_of
from syft.crypto.gates.comparison import deal_negative, deal_positive, negative, positive
from syft.crypto.gates.equality import deal_zero, zero
from syft.crypto.gates.masked_products import multiplied, subset_products, with_factor
from syft.crypto.gates.truncation import deal_divide, divide
from tests.crypto.parties import KEYS, NAME, dealt, run_parties, shared, total

GATES: dict[str, tuple[Any, Any]] = {
    "divide": (functools.partial(deal_divide, factor=5), divide),
    "by ten": (functools.partial(deal_divide, factor=(10,)), divide),
    "by a fraction": (functools.partial(deal_divide, factor=(3 << 51, 54)), divide),
    "negative": (deal_negative, negative),
    "positive": (functools.partial(deal_positive, factor=0), positive),
    "divided": (functools.partial(deal_positive, factor=5), positive),
    "a tenth": (functools.partial(deal_positive, factor=(10,)), positive),
    "zero": (deal_zero, zero),
}


def drawn(*shape: int) -> torch.Tensor:
    return shared(torch.zeros(shape, dtype=torch.int64))[0]


@pytest.mark.parametrize("on_tensors", [False, True])
def test_products_of_four_bits(on_tensors: bool) -> None:
    """Two parties find b0 b1 b2 b3 from what is dealt and opened."""
    masks, bits = drawn(4, 3), drawn(4, 3)
    products = torch.zeros(15, 3, dtype=torch.int64)
    subset_products(list(words_of(masks)), words_of(products))
    opened = bits ^ masks
    own = drawn(15, 3)
    found = []
    for rank, share in enumerate((own, products ^ own)):
        share, public = (share, opened) if on_tensors else (words_of(share), words_of(opened))
        part = with_factor(rank, share[:7], share[7:], public[3])
        for factor in (2, 1, 0):
            part = multiplied(part, public[factor])
        found.append(torch.as_tensor(part[0]))
    assert torch.equal(found[0] ^ found[1], bits[0] & bits[1] & bits[2] & bits[3])


def run_gate(gate: str, x: torch.Tensor, name: StreamName = NAME) -> list[torch.Tensor]:
    """All that two parties sent and found, with fixed keys and shares."""
    deal, protocol = GATES[gate]
    materials, _ = dealt(functools.partial(deal, shape=x.shape), KEYS, name)
    shares = [x - 12345, torch.full_like(x, 12345)]
    run = run_parties([protocol(rank, materials[rank], shares[rank]) for rank in range(2)])
    results = zip(*run.results, strict=True) if isinstance(run.results[0], tuple) else [run.results]
    return [*(total(result) for result in results), *sum(run.opened, [])]


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("count", [0, 3, 1000, 33_000])
def test_other_devices_compute_the_same(
    gate: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without numpy's views, as on a graphics processor."""
    x = torch.arange(count) - 100
    expected = run_gate(gate, x)
    for name, module in list(sys.modules.items()):
        if name.startswith("syft.crypto.") and hasattr(module, "words_of"):
            monkeypatch.setattr(module, "words_of", lambda tensor: tensor)
    found = run_gate(gate, x)
    assert len(found) == len(expected) and all(map(torch.equal, found, expected))


@pytest.mark.parametrize("gate", GATES)
def test_a_name_stands_for_its_randomness(gate: str) -> None:
    x = torch.full((64,), 7)
    first, again = run_gate(gate, x), run_gate(gate, x)
    assert all(map(torch.equal, first, again))
    for name in (StreamName(2, 0), StreamName(1, 1)):
        other = run_gate(gate, x, name)
        frames = -1 if GATES[gate][1] is divide else -4
        assert not any(map(torch.equal, first[frames:], other[frames:]))


@pytest.mark.parametrize("gate", GATES)
def test_the_device_is_kept(gate: str, device: torch.device) -> None:
    deal, protocol = GATES[gate]
    materials, _ = dealt(functools.partial(deal, shape=(100,)), KEYS, NAME, 2, device)
    x = (torch.arange(100) - 50).to(device)
    run = run_parties([protocol(rank, materials[rank], x) for rank in range(2)])
    for result in run.results:
        for tensor in result if isinstance(result, tuple) else [result]:
            assert tensor.device.type == device.type
