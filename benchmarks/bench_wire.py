"""What it costs to turn values into bytes and back, and when compression pays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lz4.frame
import pytest
import torch
from torch import nn

import syft as sy
from benchmarks.interleaved import measure
from benchmarks.memory import FORTY_MEGABYTES, memcpy
from benchmarks.recording import Amount, Ratio
from syft.ids import new_id
from syft.workers.wire.messages import Command, decode, encode


def bench_serialize(ratio: Ratio) -> None:
    """A large tensor to bytes and back, held against memcpy into memory that is there already."""
    x = torch.randn(FORTY_MEGABYTES)
    ratio(
        "serialize + deserialize 40 MB / one memcpy of 40 MB",
        subject=lambda: sy.serde.deserialize(sy.serde.serialize(x)),
        floor=memcpy(x),
        at_most=1.3,
        earlier="over 10",
        seconds=5,
    )


def bench_serialize_against_clone(ratio: Ratio) -> None:
    """The same, held against a copy that makes its own memory, as the bytes have to."""
    x = torch.randn(FORTY_MEGABYTES)
    ratio(
        "serialize + deserialize 40 MB / one x.clone()",
        subject=lambda: sy.serde.deserialize(sy.serde.serialize(x)),
        floor=lambda: x.clone(),
        at_most=1.3,
        earlier="over 10",
        seconds=5,
    )


def bench_command(amount: Amount) -> None:
    """The commonest message: an operation on two remote tensors, and one dropped pointer."""
    command = Command(7, 0, ((0, new_id()), (0, new_id())), new_id(), 1, (new_id(),))
    decode(encode(command))
    pairs = measure(lambda: decode(encode(command)), lambda: None)
    microseconds = 1e6 * sorted(pairs.subject)[len(pairs.subject) // 2]
    amount("encode + decode of one command", microseconds, at_most=2, earlier="60 µs", unit="µs")


# ------------------------------------------------------------------------------------ compression


def weights() -> torch.Tensor:
    """The weights of a layer."""
    return nn.Linear(1000, 1000).weight.detach()


def update() -> torch.Tensor:
    """What a step of training adds to the weights: few of its digits are zero."""
    layer = nn.Linear(1000, 1000)
    layer(torch.randn(32, 1000)).square().sum().backward()
    assert layer.weight.grad is not None
    return layer.weight.grad * 0.01


def sparse_update() -> torch.Tensor:
    """What a step adds to the vectors of 20,000 words, of which a batch has 300."""
    words = nn.Embedding(20_000, 50)
    words(torch.randint(20_000, (300,))).square().sum().backward()
    assert words.weight.grad is not None
    return words.weight.grad


def fixed_point() -> torch.Tensor:
    """Weights in fixed precision: 64-bit integers of which 16 bits or so are used."""
    return (weights() * 2**16).round().long()


def shares() -> torch.Tensor:
    """One share of a secret: 64 random bits a number."""
    return torch.randint(-(2**63), 2**63 - 1, (1000, 1000))


def command() -> tuple[int, ...]:
    """What a command carries: numbers, and no tensor."""
    return (7, 0, 0, new_id(), 0, new_id(), new_id(), 1)


CONTEXTS: dict[str, tuple[Callable[[], Any], float, bool]] = {
    # what travels; its size at most, as a part of the size uncompressed; whether it is compressed
    "weights": (weights, 1.0, False),
    "an update": (update, 1.0, False),
    "a sparse update": (sparse_update, 0.03, True),
    "fixed-point int64": (fixed_point, 0.5, True),
    "a secret share": (shares, 1.0, False),
    "a command": (command, 1.0, False),
}


@pytest.mark.parametrize("context", CONTEXTS)
def bench_compression(context: str, ratio: Ratio, amount: Amount) -> None:
    """LZ4 by content: what it saves, and what looking costs where there is nothing to save."""
    torch.manual_seed(0)
    make, size, compressed = CONTEXTS[context]
    value = make()
    plain, packed = sy.serde.serialize(value, compressed=False), sy.serde.serialize(value)
    name = f"lz4 by content, {context}"
    amount(f"{name}: size / uncompressed", len(packed) / len(plain), at_most=size, earlier="none")

    def bare_lz4() -> None:
        lz4.frame.decompress(lz4.frame.compress(raw, store_size=False))

    def uncompressed() -> None:
        sy.serde.deserialize(sy.serde.serialize(value, compressed=False))

    raw = bytes(plain)
    ratio(
        f"{name}: time there and back / {'bare lz4' if compressed else 'uncompressed'}",
        subject=lambda: sy.serde.deserialize(sy.serde.serialize(value)),
        floor=bare_lz4 if compressed else uncompressed,
        at_most=1.3,
        earlier="none",
        seconds=1.5,
    )
