"""What it costs to work on a device that is a worker, and what a loop that generates waits for."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import syft as sy
from benchmarks.bench_waiting import waiting
from benchmarks.recording import Amount, Ratio

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any

TOKENS = 64


class Block(nn.Module):
    """A transformer block, which makes its mask where its input is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend to what came before."""
        length, width = x.shape[1:]
        q, k, v = self.mix(self.norm(x)).split(width, dim=2)
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        weights = (q @ k.transpose(1, 2)).masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + weights @ v
        return x + self.out(x)  # type: ignore[no-any-return]


class Language(nn.Module):
    """A model of the shape of GPT."""

    def __init__(self, words: int = 50, width: int = 16) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(2 * TOKENS, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, words)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        """The scores of the next word at each place."""
        places = torch.arange(index.shape[1], device=index.device)
        scores: torch.Tensor = self.head(self.blocks(self.words(index) + self.places(places)))
        return scores


def generate(model: nn.Module, ids: torch.Tensor) -> list[float]:
    """The likeliest words after some."""
    found = []
    with torch.no_grad():
        for _ in range(TOKENS):
            best = model(ids)[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, best], 1)
            found.append(best.item())
    return found


def bench_generation(amount: Amount, hook: sy.TorchHook) -> None:
    """The requests of a loop of 64 tokens that are waited for, by token."""
    worker = sy.VirtualWorker(hook, id="queued", pipelined=True)
    device = sy.device(worker)
    model, prompt = Language().to(device), torch.zeros(1, 4, dtype=torch.int64).to(device)
    with hook.record() as log:
        generate(model, prompt)
    name = f"generation of {TOKENS} tokens, model.to(sy.device(bob)): waits a token"
    amount(name, waiting(log, "queued") / TOKENS, at_most=1, earlier="-")


def bench_device_add(ratio: Ratio, bob: sy.VirtualWorker) -> None:
    """One operation on a device, and the same on a pointer."""
    x: Tensor = torch.tensor([1.0, 2.0])
    pointer, placed = x.send(bob), x.to(sy.device(bob))
    ratio(
        "device + device / ptr + ptr, 2 floats",
        subject=lambda: placed + placed,
        floor=lambda: pointer + pointer,
        at_most=4,
        earlier="-",
    )


def bench_device_zeros(ratio: Ratio, bob: sy.VirtualWorker) -> None:
    """A tensor that is made there, and one that is sent."""
    device = sy.device(bob)

    def sent() -> Tensor:
        zeros: Tensor = torch.zeros(2)
        return zeros.send(bob)

    ratio(
        "torch.zeros(2, device=sy.device(bob)) / torch.zeros(2).send(bob)",
        subject=lambda: torch.zeros(2, device=device),
        floor=sent,
        at_most=8,
        earlier="-",
    )
