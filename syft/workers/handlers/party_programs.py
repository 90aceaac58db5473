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
import struct
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from syft.codes import CollectiveCode
from syft.crypto.mask_stream import KEY_BYTES, MaskStream, agreed_key, fresh_key
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

    1. Each two parties send one another 32 random bytes and their shapes, and derive a key.
    2. Party i adds to x_i, modulo 2^64, the masks of its keys with the parties after it, and
       subtracts those of its keys with the parties before it.  It sends what results to party 0.
    3. Party 0 adds: the masks cancel.  It sends the sum to the others.

    This is the secure aggregation of Bonawitz et al. (CCS 2017) without its provisions for parties
    that drop out: if one does, the operation fails.

    Rounds: 3.  Bytes of a party and element: 8, of party 0 8 (n - 1).  Leakage: the sum; n - 1
    colluding parties learn the remaining input from it, as from any sum.  Error: none for integers;
    floating-point inputs are rounded to multiples of 2^-24, so at most n * 2^-25 (and overflow
    beyond a sum of 2^39).
    """
    if x.is_complex():
        raise _cannot_sum("complex numbers", "sum x.real and x.imag")
    real = x.is_floating_point()
    own = _fixed_point(x.detach()) if real else x.detach().long()
    keys = {rank: fresh_key() for rank in party.others}
    said = yield party.round({rank: _greeting(key, x, real) for rank, key in keys.items()})
    shape = _common_shape(x.shape, [_shape_in(greeting, real) for greeting in said.values()])
    shared = {rank: (keys[rank], _key_in(greeting)) for rank, greeting in said.items()}
    masked = _masked(party, own.expand(shape), shared)
    if party.rank:
        yield party.round({0: masked}, ())
        (total,) = (yield party.round({}, (0,))).values()
        total = total.to(x.device)
    else:
        received = yield party.round({})
        total = masked + sum(part.to(x.device) for part in received.values())
        yield party.round(dict.fromkeys(party.others, total), ())
    return (total.double() / 2**24).to(x.dtype) if real else total.to(x.dtype)


_KEY_WORDS: Final = KEY_BYTES // 8

_MOST_COMMON: Final = 1 << 24
"""Numbers of a sum that has more of them than an input, because shapes are broadcast."""


def _greeting(key: bytes, x: torch.Tensor, real: bool) -> torch.Tensor:
    """What a party says first: its part of the key, the shape and, by the dtype, whether its
    numbers are real."""
    words = struct.unpack(f"={_KEY_WORDS}q", key)
    text = torch.tensor([*words, *x.shape], dtype=torch.int64)
    return text if real else text.view(torch.uint64)


def _shape_in(greeting: torch.Tensor, real: bool) -> torch.Size:
    if greeting.dtype is not (torch.int64 if real else torch.uint64):
        raise _cannot_sum("integers and floating-point numbers", "convert them to one dtype")
    return torch.Size(greeting.view(torch.int64)[_KEY_WORDS:].tolist())


def _key_in(greeting: torch.Tensor) -> bytes:
    return struct.pack(f"={_KEY_WORDS}q", *greeting.view(torch.int64)[:_KEY_WORDS].tolist())


def _masked(
    party: Party, own: torch.Tensor, keys: Mapping[int, tuple[bytes, bytes]]
) -> torch.Tensor:
    """A party's numbers with the masks of its keys with the others: what it and each one said."""
    for rank, (mine, theirs) in keys.items():
        if party.rank < rank:
            own = own + MaskStream(agreed_key(b"sum", mine, theirs)).draw(own.shape, own.device)
        else:
            own = own - MaskStream(agreed_key(b"sum", theirs, mine)).draw(own.shape, own.device)
    return own


def _common_shape(own: torch.Size, others: Sequence[torch.Size]) -> torch.Size:
    """The shape to which all broadcast; nobody makes a party expand its input to any size."""
    common: torch.Size = torch.broadcast_shapes(own, *others)  # type: ignore[no-untyped-call]
    if common.numel() > max(_MOST_COMMON, own.numel()):
        raise _cannot_sum(f"shapes that broadcast to {tuple(common)}", "send them in one shape")
    return common


def _fixed_point(x: torch.Tensor) -> torch.Tensor:
    """The numbers in units of 2^-24, rounded, as int64."""
    scaled = torch.round(x.double() * 2**24)
    if not bool((scaled.abs() < 2**63).all()):  # also refuses infinity and NaN
        raise _cannot_sum("NaN, infinity and numbers beyond 2^39", "scale the numbers")
    return scaled.long()


def _cannot_sum(what: str, instead: str) -> UnsupportedOperation:
    return UnsupportedOperation(what, "sum_private", instead)
