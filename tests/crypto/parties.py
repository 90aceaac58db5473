"""Parties of a protocol in one process: lock-step, counted, and watched for writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from syft.crypto.dealing import Dealer, PartyDealer, ProviderDealer, StreamName
from syft.crypto.mask_stream import MaskStream, ZeroShares, fresh_key
from syft.crypto.opening import Protocol, ShareOpening

Material = TypeVar("Material")

KEYS = [bytes([number]) * 32 for number in range(8)]
NAME = StreamName(1, 0)


def zeros_of(rank: int, parties: int) -> ZeroShares:
    """What a party of so many draws its shares of zero from."""
    keys = {other: bytes([min(rank, other), max(rank, other)]) * 16 for other in range(parties)}
    return ZeroShares(rank, keys)


@dataclass
class PartyRun:
    """What a run of all parties came to."""

    results: list[Any]
    rounds: int = 0
    sent: list[int] = field(default_factory=list)
    """Bytes that each party sent to each other."""
    shares: list[list[list[torch.Tensor]]] = field(default_factory=list)
    """By round and party: what it sent."""
    opened: list[list[torch.Tensor]] = field(default_factory=list)
    """By round: what all got."""


def run_parties(protocols: Sequence[Protocol]) -> PartyRun:
    """Advance all parties in lock-step and join what they open."""
    run = PartyRun([None] * len(protocols), sent=[0] * len(protocols))
    copies: list[list[torch.Tensor]] = []
    got: list[torch.Tensor] | None = None
    while True:
        asked = [_next(run, party, protocol, got) for party, protocol in enumerate(protocols)]
        openings = [opening for opening in asked if opening is not None]
        if len(openings) < len(protocols):
            assert not openings, "some parties are done and others are not"
            break
        got = _joined(openings)
        run.rounds += 1
        run.shares.append([list(opening.shares) for opening in openings])
        run.opened.append(got)
        for party, opening in enumerate(openings):
            run.sent[party] += sum(8 * share.numel() for share in opening.shares)
        copies.append([tensor.clone() for tensor in _held(run, -1)])
    for number, kept in enumerate(copies):
        assert all(map(torch.equal, kept, _held(run, number))), "a party wrote to what it sent"
    return run


def _held(run: PartyRun, number: int) -> list[torch.Tensor]:
    return [tensor for shares in run.shares[number] for tensor in shares] + run.opened[number]


def _next(
    run: PartyRun, party: int, protocol: Protocol, got: list[torch.Tensor] | None
) -> ShareOpening | None:
    try:
        return next(protocol) if got is None else protocol.send(got)
    except StopIteration as done:
        run.results[party] = done.value
        return None


def _joined(openings: Sequence[ShareOpening]) -> list[torch.Tensor]:
    first = openings[0]
    assert all(opening.bits == first.bits for opening in openings)
    joined = [share.clone() for share in first.shares]
    for opening in openings[1:]:
        assert len(opening.shares) == len(joined)
        for whole, share in zip(joined, opening.shares, strict=True):
            assert share.dtype is torch.int64 and share.shape == whole.shape
            if first.bits:
                whole ^= share
            else:
                whole += share
    return joined


def dealt(
    deal: Callable[[Dealer], Material],
    keys: Sequence[bytes] = KEYS,
    name: StreamName = NAME,
    parties: int = 2,
    device: torch.device | str = "cpu",
) -> tuple[list[Material], int]:
    """The material of each party, and the bytes that the last one gets from the provider."""
    corrections = corrected(deal, keys, name, parties)
    last = parties - 1
    materials = [
        deal(PartyDealer(keys[party], name, corrections if party == last else None, device))
        for party in range(parties)
    ]
    return materials, sum(8 * correction.numel() for correction in corrections)


def corrected(
    deal: Callable[[Dealer], Any], keys: Sequence[bytes], name: StreamName, parties: int
) -> list[torch.Tensor]:
    """What the provider sends the last party."""
    provider = ProviderDealer(keys[:parties], name)
    deal(provider)
    return provider.corrections


def shared(x: torch.Tensor, parties: int = 2) -> list[torch.Tensor]:
    """Fresh shares of x."""
    shares = [MaskStream(fresh_key()).draw(x.shape) for _ in range(parties - 1)]
    return [*shares, x - sum(shares)]


def total(shares: Sequence[torch.Tensor]) -> torch.Tensor:
    """The secret of additive shares."""
    return torch.stack(list(shares)).sum(0)
