"""Which batches each simulated client goes through in a round, and which of them are alike.

What a client draws follows from the seed, the round and its own number alone: it is the same
whether it is trained by itself or with others, and whoever else takes part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from syft.exceptions import UnusableSetting


@dataclass(frozen=True, slots=True)
class LocalBatches:
    """How a client divides its samples into batches: the settings that all clients share.

    ``max_nr_batches`` is the most of one client in a round, over all ``epochs``; 0 is any number.

    Raises :class:`~syft.exceptions.UnusableSetting` for numbers under 1 (0 in ``max_nr_batches``).

    >>> LocalBatches(batch_size=2, epochs=2, shuffle=False).orders(3, seed=0)
    [tensor([0, 1, 2]), tensor([0, 1, 2])]
    >>> LocalBatches(batch_size=2, epochs=2, shuffle=False, max_nr_batches=3).orders(3, seed=0)
    [tensor([0, 1, 2]), tensor([0, 1])]
    """

    batch_size: int
    epochs: int = 1
    shuffle: bool = True
    drop_last: bool = False
    max_nr_batches: int = 0

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("epochs", 1), ("max_nr_batches", 0)):
            value = getattr(self, name)
            if value < least:
                raise UnusableSetting(name, f"{least} or more", str(value))

    def used(self, count: int) -> int:
        """How many of so many samples are in a batch.

        >>> LocalBatches(batch_size=2, drop_last=True).used(5)
        4
        """
        return count - count % self.batch_size if self.drop_last else count

    def most(self, count: int) -> int:
        """How many samples a client with so many goes through in a round, or a few more.

        >>> LocalBatches(batch_size=2, epochs=3, max_nr_batches=4).most(5)
        8
        """
        every = self.used(count) * self.epochs
        return min(every, self.max_nr_batches * self.batch_size) if self.max_nr_batches else every

    def orders(self, count: int, seed: int) -> list[torch.Tensor]:
        """The samples that one client uses, in the order of their use, a tensor for each epoch."""
        dice = torch.Generator().manual_seed(seed)
        used = self.used(count)
        left = self.max_nr_batches * self.batch_size if self.max_nr_batches else None
        orders = []
        for _ in range(self.epochs):
            order = (
                torch.randperm(count, generator=dice, device="cpu")
                if self.shuffle
                else torch.arange(count, device="cpu")
            )
            order = order[:used] if left is None else order[: min(used, left)]
            orders.append(order)
            if left is not None:  # a batch that is not full counts as one
                left -= -(-len(order) // self.batch_size) * self.batch_size
        return orders

    def batches(self, count: int, seed: int) -> list[torch.Tensor]:
        """The batches of one client, as indices of its samples.

        >>> LocalBatches(batch_size=2, shuffle=False).batches(3, seed=0)
        [tensor([0, 1]), tensor([2])]
        """
        return [
            batch
            for order in self.orders(count, seed)
            if len(order)
            for batch in torch.split(order, self.batch_size)
        ]


def seed_of(purpose: str, *numbers: int) -> int:
    """A seed of 63 bits for one purpose, from numbers of any size.

    >>> seed_of("order", 0, 1) == seed_of("order", 0, 1), seed_of("order", 0, 1) < 2**63
    (True, True)
    """
    text = f"{purpose} {' '.join(map(str, numbers))}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


@dataclass(frozen=True, slots=True)
class ClientStep:
    """A step that several clients take at once, each on a batch of as many samples.

    ``clients`` are positions, rising; ``rows`` has a row for each of them: positions in the data of
    all clients, put together.
    """

    clients: torch.Tensor
    rows: torch.Tensor


def steps_together(
    settings: LocalBatches, counts: Sequence[int], seeds: Sequence[int]
) -> Iterator[ClientStep]:
    """All steps of some clients in a round, each with the others whose batch is as large.

    Each client's own steps stay in their order.  In an epoch the full batches come first, for all
    clients that have one left, and then the last ones, by their size.

    >>> settings = LocalBatches(batch_size=2, shuffle=False)
    >>> for step in steps_together(settings, [3, 2], [0, 0]):
    ...     print(step.clients.tolist(), step.rows.tolist())
    [0, 1] [[0, 1], [3, 4]]
    [0] [[2]]
    """
    size = settings.batch_size
    starts = [sum(counts[:client]) for client in range(len(counts))]
    orders = [settings.orders(count, seed) for count, seed in zip(counts, seeds, strict=True)]
    for epoch in range(settings.epochs):
        parts = [order[epoch] + start for order, start in zip(orders, starts, strict=True)]
        lengths = torch.tensor([len(part) for part in parts], device="cpu")
        firsts = lengths.cumsum(0) - lengths
        order = torch.cat(parts)
        full, last = lengths // size, lengths % size
        for number in range(int(full.max())):
            clients = (full > number).nonzero().flatten()
            begin = firsts[clients] + number * size
            yield ClientStep(clients, order[begin.unsqueeze(1) + torch.arange(size, device="cpu")])
        for length in sorted(set(last.tolist()) - {0}, reverse=True):
            clients = (last == length).nonzero().flatten()
            begin = firsts[clients] + full[clients] * size
            yield ClientStep(
                clients, order[begin.unsqueeze(1) + torch.arange(length, device="cpu")]
            )
