"""What one party receives in a whole execution is uniform, whatever the secret.

All elements of a tensor hold the same secret, so that what depends on it would show: in the bytes
of a frame, in their differences from one element to the next, and in pairs of bits of all frames.
Thresholds are for one false alarm in 10^9 runs at most.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.workers.wire.messages import Exchange, Start
from tests.crypto.test_leakage import COUNT, bits_of, byte_chance, strongest_correlation

RARE = 1e-12
"""For each of at most a thousand frames."""


@pytest.fixture(params=[2, 3])
def workers(request: pytest.FixtureRequest, hook: sy.TorchHook) -> list[Any]:
    names = [*("alice", "bob", "carl")[: request.param], "dealer"]
    return [sy.VirtualWorker(hook, id=name) for name in names]


def frames_to(log: Any, receiver: str) -> list[torch.Tensor]:
    """The words of every tensor that a worker got, but for single numbers, which are public."""
    return [
        buffer.reshape(-1).view(torch.uint8).view(torch.int64)
        for entry in log.to(receiver)
        if type(entry.message) in (Exchange, Start)
        for buffer in entry.buffers
        if buffer.nbytes > 8
    ]


def opened(log: Any, provider: int) -> list[torch.Tensor]:
    """What all parties know after each round: numbers are added up, planes of bits joined."""
    sent: dict[tuple[int, int], dict[int, tuple[torch.Tensor, ...]]] = {}
    for entry in log:
        message = entry.message
        if type(message) is Exchange and message.rank < provider and entry.buffers:
            sent.setdefault((message.execution, message.number), {})[message.rank] = entry.buffers
    found = []
    for letters in sent.values():
        for shares in zip(*letters.values(), strict=True):
            words = [one.reshape(-1).view(torch.uint8).view(torch.int64) for one in shares]
            join = torch.add if len(words[0]) == COUNT else torch.bitwise_xor
            found.append(functools.reduce(join, words))
    return found


@pytest.mark.database
@pytest.mark.parametrize("secret", [0, 1, -(1 << 61) - 12345])
def test_what_one_party_receives_is_uniform(
    hook: sy.TorchHook, workers: list[Any], secret: int
) -> None:
    *parties, dealer = workers
    values = torch.full((COUNT,), secret)
    with hook.record() as log:
        x, y = (values.share(*parties, crypto_provider=dealer) for _ in range(2))
        product = x * y
        (product.relu() + (x == y)).refresh().get()
    both = opened(log, len(parties))
    assert len(both) > 8
    for party in parties:
        frames = frames_to(log, party.id) + both
        for words in frames:
            assert byte_chance(words) > RARE
            assert byte_chance(words[1:] - words[:-1]) > RARE
            assert byte_chance(words[1:] ^ words[:-1]) > RARE
        by_element = [words for words in frames if len(words) % (COUNT // 64) == 0]
        assert by_element
        bits = [bits_of(words.view(-1, COUNT // 64)) for words in by_element if len(words) < COUNT]
        bits += [bits_of(words.view(-1, COUNT)) for words in by_element if len(words) == COUNT]
        assert strongest_correlation(torch.cat(bits)) < 9


def test_what_would_not_be_uniform_is_found(hook: sy.TorchHook, workers: list[Any]) -> None:
    *parties, dealer = workers
    with hook.record() as log:
        torch.full((COUNT,), 3).share(*parties, crypto_provider=dealer).relu().get()
    words = next(one for one in frames_to(log, parties[0].id) if len(one) == COUNT)
    assert byte_chance(words) > RARE
    assert byte_chance(words & -2) < RARE
    bits = bits_of(words.view(-1, COUNT))
    assert strongest_correlation(torch.cat((bits, bits[5:6] ^ 1))) > 9


def test_no_message_of_an_inference_holds_the_result(
    hook: sy.TorchHook, workers: list[Any]
) -> None:
    *parties, dealer = workers
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    data = torch.randn(64, 8)
    with hook.record() as log:
        model.fix_precision().share(*parties, crypto_provider=dealer)
        x = data.fix_precision().share(*parties, crypto_provider=dealer)
        result = model(x).get()
    integers = result.child.child.reshape(-1)
    secrets = torch.cat([integers, data.fix_precision().child.child.reshape(-1)])
    said = 0
    for entry in log:
        for buffer in entry.buffers:
            words = buffer.reshape(-1).view(torch.uint8).view(torch.int64)
            assert not torch.isin(words, secrets).any(), type(entry.message).__name__
            said += len(words)
    assert said > 5000
    shares = [
        buffer.reshape(-1).view(torch.uint8).view(torch.int64)
        for entry in log.to("me")
        for buffer in entry.buffers
    ]
    assert torch.equal(torch.stack(shares).sum(0), integers), "only their sum is the result"
    del x, model
