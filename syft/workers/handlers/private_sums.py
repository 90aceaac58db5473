"""Sums of what several workers have, of which no message reveals a single one.

Both programs are the secure aggregation of Bonawitz et al., "Practical Secure Aggregation for
Privacy-Preserving Machine Learning", CCS 2017, with workers that have lines to each other, and with
the first of them in the place of the server.  One needs all parties; the other goes on when some
have left, for more rounds.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final

import torch

from syft.codes import CollectiveCode
from syft.crypto.mask_stream import KEY_BYTES, MaskStream, ZeroShares, fresh_key
from syft.crypto.seed_sharing import (
    SHARE_BYTES,
    KeyPair,
    fewest,
    joined,
    split,
    weights_at_zero,
)
from syft.exceptions import RemoteFailure, UnsupportedOperation
from syft.workers.handlers.party_programs import (
    Party,
    PartyProgram,
    Received,
    Round,
    collective,
    tensors_by_rank,
)


@collective(CollectiveCode.SUM)
def sum_private(party: Party, x: torch.Tensor) -> PartyProgram:
    """The sum of every party's private ``x``; no message reveals one of them.

    1. Each two parties send one another 32 random bytes and their shapes, and derive a key.
    2. Party i adds to x_i, modulo 2^64, the masks of its keys with the parties after it, and
       subtracts those of its keys with the parties before it.  It sends what results to party 0.
    3. Party 0 adds: the masks cancel.  It sends the sum to the others.

    This is the secure aggregation of Bonawitz et al. (CCS 2017) without its provisions for parties
    that drop out: if one does, the operation fails.  :func:`sum_of_those_left` has them.

    Rounds: 3.  Bytes of a party and element: 8, of party 0 8 (n - 1).  Leakage: the sum; n - 1
    colluding parties learn the remaining input from it, as from any sum.  Error: none for integers;
    floating-point inputs are rounded to multiples of 2^-24, so at most n * 2^-25.  Numbers from
    2^39 / n on are refused, since the sum of such may wrap around; integers do, as torch's do.
    """
    real, own = x.is_floating_point(), _whole_numbers(x, party.size)
    keys = {rank: fresh_key() for rank in party.others}
    greetings = {rank: (_greeting(key, x, real),) for rank, key in keys.items()}
    said = tensors_by_rank((yield party.round(greetings)))
    shape = _common_shape(x.shape, [_shape_in(greeting, real) for greeting in said.values()])
    told = {rank: _key_in(greeting) for rank, greeting in said.items()}
    masked = ZeroShares.agreed(b"sum", party.rank, keys, told).added(own.expand(shape))
    if party.rank:
        yield party.round({0: (masked,)}, ())
        (total,) = tensors_by_rank((yield party.round({}, (0,)))).values()
        total = total.to(x.device)
    else:
        received = tensors_by_rank((yield party.round({})))
        total = masked + sum(part.to(x.device) for part in received.values())
        yield party.round(dict.fromkeys(party.others, (total,)), ())
    return _as_input(total, x)


_KEY_WORDS: Final = KEY_BYTES // 8

_MOST_COMMON: Final = 1 << 24
"""Numbers of a sum that has more of them than an input, because shapes are broadcast."""


def _greeting(key: bytes, x: torch.Tensor, real: bool) -> torch.Tensor:
    """What a party says first: its part of the key, the shape and, by the dtype, whether its
    numbers are real."""
    words = struct.unpack(f"={_KEY_WORDS}q", key)
    text = torch.tensor([*words, *x.shape], dtype=torch.int64, device="cpu")
    return text if real else text.view(torch.uint64)


def _shape_in(greeting: torch.Tensor, real: bool) -> torch.Size:
    if greeting.dtype is not (torch.int64 if real else torch.uint64):
        raise _cannot_sum("integers and floating-point numbers", "convert them to one dtype")
    return torch.Size(greeting.view(torch.int64)[_KEY_WORDS:].tolist())


def _key_in(greeting: torch.Tensor) -> bytes:
    return struct.pack(f"={_KEY_WORDS}q", *greeting.view(torch.int64)[:_KEY_WORDS].tolist())


def _common_shape(own: torch.Size, others: Sequence[torch.Size]) -> torch.Size:
    """The shape to which all broadcast; nobody makes a party expand its input to any size."""
    common: torch.Size = torch.broadcast_shapes(own, *others)  # type: ignore[no-untyped-call]
    if common.numel() > max(_MOST_COMMON, own.numel()):
        raise _cannot_sum(f"shapes that broadcast to {tuple(common)}", "send them in one shape")
    return common


def _fixed_point(x: torch.Tensor, parties: int) -> torch.Tensor:
    """The numbers in units of 2^-24, rounded, as int64: a sum of so many stays below 2^63."""
    scaled = torch.round(x.double() * 2**24)
    if not bool((scaled.abs() < 2**63 / parties).all()):  # also refuses infinity and NaN
        beyond = f"numbers beyond 2^39 / {parties} parties"
        raise _cannot_sum(f"NaN, infinity and {beyond}", "scale the numbers")
    return scaled.long()


def _whole_numbers(x: torch.Tensor, parties: int) -> torch.Tensor:
    """What a party adds, as int64."""
    if x.is_complex():
        raise _cannot_sum("complex numbers", "sum x.real and x.imag")
    return _fixed_point(x.detach(), parties) if x.is_floating_point() else x.detach().long()


def _as_input(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A sum in the dtype of an input."""
    if not x.is_floating_point():
        return total.to(x.dtype, copy=True)
    return (total.double() / 2**24).to(x.dtype)


def _cannot_sum(what: str, instead: str) -> UnsupportedOperation:
    return UnsupportedOperation(what, "sum_private", instead)


# ------------------------------------------------------------------------------ when parties leave


MOST_PARTIES: Final = 512
"""Parties of a sum that may lose some: to split seeds among so many takes a tenth of a second, and
among all names that a message has room for, hours."""


@collective(CollectiveCode.SUM_OF_THOSE_LEFT, numbers=1, bears_losses=True)
def sum_of_those_left(party: Party, x: torch.Tensor, minimum: int) -> PartyProgram:
    """The sum of the private ``x`` of all parties that stay, and who they are, as 0 and 1 by rank.

    Party i has a pair of keys, whose public half is P_i, and a seed b_i.  All parties but those
    that have left by then:

    1. send one another P_i and their shapes;
    2. send one another shares of the secret half and of b_i, of which ``minimum`` give them back;
    3. tell party 0 from whom both have come.  It names U, who all have heard of each other.
    4. Party i adds to x_i, modulo 2^64, the masks of b_i and, with signs, those of its keys with
       each other party of U.  It sends what results to party 0, which names V: whose has come.
    5. They send one another a hash of U, V and all P.  Who has not got the same hash from
       ``minimum`` parties of V, with its own, stops.
    6. They send party 0 their share of b_i for each i of V, and of the secret half for each i of U
       that is not in V, and never both of one party.  Party 0 takes the masks off of the sum of
       V, and sends it to the others.

    No input is opened, also where party 0 says different things to different parties, or says of
    parties that are there that they have left: that takes ``minimum`` shares of both secrets of a
    party, and each honest party gives one of them, for the U and V on which ``minimum`` parties
    agree.  So as many parties may work together with party 0 as 2 * minimum - parties - 2, and
    ``minimum`` - 1 parties where all follow the protocol.  If party 0 leaves, the sum fails.

    Rounds: 9.  Bytes of a party and element: 8, of party 0 8 (n - 1), and 132 n for the shares.
    Leakage: the sum of V, and V.  There may be 512 parties.  Errors and ranges are those of
    :func:`sum_private`.
    """
    if party.size > MOST_PARTIES:
        raise UnsupportedOperation(
            f"{party.size} parties", "sum_of_those_left", f"{MOST_PARTIES} of them at most"
        )
    if not fewest(party.size) <= minimum <= party.size:
        allowed = f"{fewest(party.size)} to {party.size} of {party.size} parties"
        raise UnsupportedOperation(f"a minimum of {minimum}", "sum_of_those_left", allowed)
    own = _whole_numbers(x, party.size)
    part = _PartOfThoseLeft(party, minimum)
    yield from part.meet(own, x.is_floating_point())
    yield from part.agree()
    total = yield from part.masked_sum(part.masked(own))
    yield from part.compare()
    total = yield from part.unmasked(total)
    there = [int(rank in part.left) for rank in range(party.size)]
    return _as_input(total.to(x.device), x), torch.tensor(there, device="cpu")


_Step = Generator[Round, Received, Any]

_PURPOSE: Final = b"sum of those left"


class _PartOfThoseLeft:
    """What one party knows in such a sum; the methods are its steps.

    Each step has a letter from each party to each party, or between party 0 and each, so that all
    count letters alike.  A letter that cannot be read counts as one that has not come.
    """

    def __init__(self, party: Party, minimum: int) -> None:
        self.party, self.minimum = party, minimum
        self.pair, self.seed = KeyPair(), fresh_key()
        self.public = {party.rank: self.pair.public}
        """The public halves of keys, by rank."""
        self.keys: dict[int, bytes] = {}
        """The keys for masks with each other party."""
        self.shares: dict[int, tuple[bytes, bytes]] = {}
        """This party's shares of the secret half and of the seed of each party."""
        self.together: list[int] = []
        """U, the parties that have masks with each other."""
        self.left: list[int] = []
        """V, those whose masked numbers are in the sum."""

    def meet(self, own: torch.Tensor, real: bool) -> _Step:
        """Steps 1 and 2."""
        rank, others = self.party.rank, self.party.others
        greeting = _greeting(self.pair.public, own, real)
        received = yield self.party.round({other: (greeting,) for other in others})
        for other, said in _readable(received, greeting.shape, greeting.dtype).items():
            if said.view(torch.int64)[_KEY_WORDS:].tolist() == list(own.shape):
                self._know(other, _key_in(said))
        points = [other + 1 for other in range(self.party.size)]
        secret = split(self.pair.secret, self.minimum, points)
        seed = split(self.seed, self.minimum, points)
        self.shares[rank] = secret[rank + 1], seed[rank + 1]
        letters = {
            other: (_bytes(secret[other + 1] + seed[other + 1] if other in self.keys else b""),)
            for other in others
        }
        received = yield self.party.round(letters)
        for other, said in _readable(received, (2 * SHARE_BYTES,), torch.uint8).items():
            both = _text(said)
            self.shares[other] = both[:SHARE_BYTES], both[SHARE_BYTES:]

    def _know(self, other: int, public: bytes) -> None:
        try:
            self.keys[other] = self.pair.key_with(_PURPOSE, public)
        except ValueError:  # it has chosen no key: it is not heard
            return
        self.public[other] = public

    def agree(self) -> _Step:
        """Step 3."""
        heard = self.keys.keys() & self.shares.keys() | {self.party.rank}
        if self.party.rank:
            yield self.party.round({0: (_flags(heard, self.party.size),)}, ())
            self.together = yield from self._told()
        else:
            received = yield self.party.round({})
            said = _readable(received, (self.party.size,), torch.uint8)
            lists = {rank: _ranks(flags) for rank, flags in said.items()}
            self.together = mutual({0: set(heard), **lists})
            yield self._to_all(_flags(self.together, self.party.size))
        self._check(self.together, heard)

    def masked(self, own: torch.Tensor) -> torch.Tensor:
        """What this party adds, behind its masks."""
        keys = {other: self.keys[other] for other in self.together if other != self.party.rank}
        hidden = ZeroShares(self.party.rank, keys).added(own)
        return hidden.add_(MaskStream(self.seed).draw(own.shape, own.device))

    def masked_sum(self, masked: torch.Tensor) -> _Step:
        """The rest of step 4: at party 0 the sum of what has come."""
        if self.party.rank:
            yield self.party.round({0: (masked,)}, ())
            self.left = yield from self._told()
        else:
            received = yield self.party.round({})
            found = _readable(received, masked.shape, torch.int64)
            self.left = sorted({0, *(found.keys() & set(self.together))})
            for rank in self.left[1:]:
                masked += found[rank].to(masked.device)
            yield self._to_all(_flags(self.left, self.party.size))
        self._check(self.left, self.together)
        return masked

    def compare(self) -> _Step:
        """Step 5."""
        own = self._view()
        received = yield self._to_all(own, self.party.others)
        said = _readable(received, own.shape, torch.uint8)
        alike = [rank for rank in self.left if rank in said and torch.equal(said[rank], own)]
        self._enough(len(alike) + 1)

    def _view(self) -> torch.Tensor:
        """A hash of all on which parties have to agree before they give shares."""
        text = hashlib.sha256(b"syft sum" + struct.pack("=2q", self.party.size, self.minimum))
        for ranks in (self.together, self.left):
            text.update(bytes(_flags(ranks, self.party.size).tolist()))
        for rank in self.together:
            text.update(self.public[rank])
        return _bytes(text.digest())

    def unmasked(self, total: torch.Tensor) -> _Step:
        """Step 6."""
        told = b"".join(self.shares[rank][rank in self.left] for rank in self.together)
        if self.party.rank:
            yield self.party.round({0: (_bytes(told),)}, ())
            received = yield self.party.round({}, (0,))
            return self._from_first(_readable(received, total.shape, torch.int64))
        received = yield self.party.round({})
        found = _readable(received, (len(told),), torch.uint8)
        given = {0: told, **{rank: _text(said) for rank, said in found.items()}}
        given = {rank: text for rank, text in given.items() if rank in self.left}
        self._enough(len(given))
        total = self._without_masks(total, dict(sorted(given.items())[: self.minimum]))
        yield self._to_all(total)
        return total

    def _without_masks(self, total: torch.Tensor, given: Mapping[int, bytes]) -> torch.Tensor:
        """The sum without the seeds' masks of those in it, and without those that they have with
        parties whose numbers have not come."""
        weights = weights_at_zero(rank + 1 for rank in given)
        for place, rank in enumerate(self.together):
            at = place * SHARE_BYTES
            parts = {giver + 1: text[at : at + SHARE_BYTES] for giver, text in given.items()}
            try:
                secret = joined(parts, weights)
                if rank in self.left:
                    total -= MaskStream(secret).draw(total.shape, total.device)
                    continue
                pair = KeyPair(secret)
                if pair.public != self.public[rank]:
                    raise ValueError("these are shares of another key")
            except ValueError as error:
                raise _stopped(f"party {rank} has not given shares of its secrets") from error
            keys = {other: pair.key_with(_PURPOSE, self.public[other]) for other in self.left}
            total = ZeroShares(rank, keys).added(total)
        return total

    # ----------------------------------------------------------------------------- small things

    def _to_all(self, tensor: torch.Tensor, expect: Iterable[int] = ()) -> Round:
        return self.party.round(dict.fromkeys(self.party.others, (tensor,)), expect)

    def _told(self) -> _Step:
        """The ranks that party 0 names."""
        received = yield self.party.round({}, (0,))
        flags = self._from_first(_readable(received, (self.party.size,), torch.uint8))
        return sorted(_ranks(flags))

    def _from_first(self, found: Mapping[int, torch.Tensor]) -> torch.Tensor:
        if 0 not in found:
            raise _stopped("the first party, which adds, has left")
        return found[0]

    def _check(self, ranks: Sequence[int], known: Iterable[int]) -> None:
        """Stop unless this party and enough others are among those that it knows."""
        if self.party.rank not in ranks or not set(ranks) <= set(known):
            raise _stopped("the first party has left this one out, or named others")
        self._enough(len(ranks))

    def _enough(self, count: int) -> None:
        if count < self.minimum:
            raise _stopped(f"{count} parties are left, and it needs {self.minimum}")


def mutual(heard: Mapping[int, set[int]]) -> list[int]:
    """Parties that have all heard of each other, by what each says; party 0 is one of them.

    Who lacks the most others goes first.

    >>> mutual({0: {0, 1, 2, 3}, 1: {0, 1, 2}, 2: {0, 1, 2, 3}, 3: {0, 2, 3}})
    [0, 2, 3]
    """

    def apart(one: int, other: int) -> bool:
        return one != other and (one not in heard[other] or other not in heard[one])

    left = set(heard)
    lacks = {one: sum(apart(one, other) for other in heard) for one in heard}
    while any(lacks[one] for one in left):
        gone = max(sorted(left - {0}), key=lambda one: (apart(one, 0), lacks[one]))
        left.remove(gone)
        for one in left:
            lacks[one] -= apart(one, gone)
    return sorted(left)


def _readable(
    received: Received, shape: Sequence[int], dtype: torch.dtype
) -> dict[int, torch.Tensor]:
    """The tensors of such a form in letters that have come, by rank."""
    found = {}
    for (rank, _), letter in received.items():
        said = letter.values[0] if len(letter.values) == 1 else None
        if isinstance(said, torch.Tensor) and said.dtype is dtype and said.shape == tuple(shape):
            found[rank] = said
    return found


def _bytes(text: bytes) -> torch.Tensor:
    return torch.tensor(list(text), dtype=torch.uint8, device="cpu")


def _text(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.tolist())


def _flags(ranks: Iterable[int], size: int) -> torch.Tensor:
    named = set(ranks)
    return _bytes(bytes(rank in named for rank in range(size)))


def _ranks(flags: torch.Tensor) -> set[int]:
    return {rank for rank, flag in enumerate(flags.tolist()) if flag}


def _stopped(why: str) -> RemoteFailure:
    return RemoteFailure("collective", f"the sum of those left failed: {why}")
