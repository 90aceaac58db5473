"""Party programs: what several workers compute together, round by round, without a message.

A *party program* is a generator.  It yields the tensors that it sends to the other parties in a
round, and is resumed with the tensors that they sent.  The same program runs at every worker.  It
handles no messages, so it reads like the protocol in a paper::

    @collective(CollectiveCode.SUM)
    def sum_private(party, x):
        received = yield party.round({...})     # rank -> tensor, to each other party
        return ...

Whether a program fails must not tell of private values.  On values that it cannot compute with it
fails before its first round; later it fails for reasons that follow from shapes and dtypes alone.

:mod:`syft.workers.handlers.collective` drives them.
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass

import torch

from syft.codes import CollectiveCode
from syft.exceptions import HookError, UnsupportedOperation


@dataclass(frozen=True, slots=True)
class Round:
    """The tensors that a party sends in one round, by rank, and the ranks it then waits for."""

    send: Mapping[int, torch.Tensor]
    expect: frozenset[int]


Received = dict[int, torch.Tensor]
PartyProgram = Generator[Round, Received, "torch.Tensor | tuple[torch.Tensor, ...]"]


@dataclass(frozen=True, slots=True)
class Party:
    """The rank of a party in an execution, and the number of parties."""

    rank: int
    size: int

    @property
    def others(self) -> list[int]:
        """The ranks of the other parties.

        >>> Party(1, 3).others
        [0, 2]
        """
        return [rank for rank in range(self.size) if rank != self.rank]

    def round(self, send: Mapping[int, torch.Tensor], expect: Iterable[int] | None = None) -> Round:
        """A round: send these tensors, then wait for one from each of ``expect`` (all others)."""
        return Round(send, frozenset(self.others if expect is None else expect))

    def random(self, shape: torch.Size) -> torch.Tensor:
        """Uniform int64 numbers from the operating system's cryptographic generator."""
        count = shape.numel()
        if not count:
            return torch.empty(shape, dtype=torch.int64)
        noise = bytearray(secrets.token_bytes(8 * count))
        return torch.frombuffer(noise, dtype=torch.int64).reshape(shape)


PROGRAMS: dict[int, Callable[..., PartyProgram]] = {}


def collective(
    code: CollectiveCode,
) -> Callable[[Callable[..., PartyProgram]], Callable[..., PartyProgram]]:
    """Register a party program under its number; refuses duplicates."""

    def enter(program: Callable[..., PartyProgram]) -> Callable[..., PartyProgram]:
        if int(code) in PROGRAMS or not inspect.isgeneratorfunction(program):
            raise HookError(
                f"cannot register {program.__name__} as collective {int(code)}",
                "use a free number and a generator function",
            )
        PROGRAMS[int(code)] = program
        return program

    return enter


@collective(CollectiveCode.SUM)
def sum_private(party: Party, x: torch.Tensor) -> PartyProgram:
    """The sum of every party's private ``x``; no message reveals one of them.

    1. Party i splits x_i into n additive shares modulo 2^64, n - 1 of them uniform, and sends s_ij
    to j.
    2. Party j adds the shares it has, t_j = sum_i s_ij, and sends t_j to every other party.
    3. Every party adds: sum_j t_j = sum_i x_i.

    Rounds: 2.  Bytes per party and element: 16 (n - 1).  Leakage: the sum; n - 1 colluding parties
    learn the remaining input from it, as from any sum.  Error: none for integers; floating-point
    inputs are rounded to multiples of 2^-24, so at most n * 2^-25 (and overflow beyond a sum of
    2^39).  The shares of integers travel as uint64, so that a party detects others whose inputs are
    floating-point.
    """
    if x.is_complex():
        raise _cannot_sum("complex numbers", "sum x.real and x.imag")
    real = x.is_floating_point()
    own = _fixed_point(x.detach()) if real else x.detach().long()
    kind = torch.int64 if real else torch.uint64
    shares = {rank: party.random(x.shape) for rank in party.others}
    kept = own - sum(shares.values())
    received = yield party.round({rank: share.view(kind) for rank, share in shares.items()})
    if any(share.dtype is not kind for share in received.values()):
        raise _cannot_sum("integers and floating-point numbers", "convert them to one dtype")
    partial = kept + sum(share.view(torch.int64) for share in received.values())
    received = yield party.round(dict.fromkeys(party.others, partial))
    total = partial + sum(received.values())
    return (total.double() / 2**24).to(x.dtype) if real else total.to(x.dtype)


def _fixed_point(x: torch.Tensor) -> torch.Tensor:
    """The numbers in units of 2^-24, rounded, as int64."""
    scaled = torch.round(x.double() * 2**24)
    if not bool((scaled.abs() < 2**63).all()):  # also refuses infinity and NaN
        raise _cannot_sum("NaN, infinity and numbers beyond 2^39", "scale the numbers")
    return scaled.long()


def _cannot_sum(what: str, instead: str) -> UnsupportedOperation:
    return UnsupportedOperation(what, "sum_private", instead)
