"""Shared tensors at the workers that hold the shares, and at the one that deals to them.

What clients send, and what workers send one another, is in ``docs/wire.md`` (Shares); the arguments
of each program are those of its function.  Programs of a session run one after another, in the
order of their Starts, so a program may name the results of one before it at once.

When a program fails, each party puts back what its part has written in place, and refuses programs
and FETCH with SharedOperationFailed, until all have rolled back.  A session ends at once, and for
good, where a party is lost, where somebody breaks the protocol (MalformedMessage, MaterialError),
and where ROLL_BACK fails: later requests get SessionEnded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch

from syft.codes import CollectiveCode
from syft.crypto.mask_stream import MaskStream, ZeroShares, fresh_key
from syft.exceptions import MalformedMessage, NotShareable, PermissionDenied, WrongParties
from syft.serde.torch_types import check_present
from syft.workers.core.shares import SharingSession, StoredShare, checked_key
from syft.workers.execution.leaving import check_dealing
from syft.workers.handlers.executions import waiting_bytes
from syft.workers.handlers.party_programs import HostedParty, Letter, PartyProgram, guarding
from syft.workers.labels.cell import elements_guard_of
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import protect

LARGEST = 1 << 28
"""The most elements of a share that is drawn from a seed: a few bytes must not ask for more."""

CPU = torch.device("cpu")
"""Where a share is drawn if no device is named."""


@guarding(CollectiveCode.OPEN_SESSION)
def open_session(party: HostedParty, dealer: Any = None) -> PartyProgram:
    """A session at each worker; ``dealer`` is the rank of the provider if that is a party.

    1. The provider draws a key for each party and sends it to that party alone.  Each party sends
       each other one 32 bytes, from which and whose the key of the two follows; a provider that is
       a party says both, and its rank, in one letter.

    Rounds: 1.  Leakage: none; a party learns its own keys.
    """
    provider, parties = _provider_of(party, dealer)
    if parties < 2:
        raise WrongParties(party.names[:parties], "name two workers or more")
    keys = [fresh_key() for _ in range(parties)] if party.rank == provider else []
    own, letters = _opening_letters(party.rank, parties, keys, dealer)
    received = yield party.round(letters, {*own, provider} - {party.rank})
    told = {rank: letter.values for (rank, _), letter in received.items()}
    if not keys:
        key, told[provider] = _key_in(told[provider], dealer)
        keys = [key]
    parts = {rank: _part_in(told[rank]) for rank in own}
    zeros = ZeroShares.agreed(b"shares", party.rank, own, parts)
    session = SharingSession(
        party.call.core.name, party.names, party.rank, keys, zeros, party.call.peer, dealer
    )
    place = party.call.peer.place[0], party.names[provider]
    session.letters = partial(waiting_bytes, party.call.core, place)
    return [session]


def _opening_letters(
    rank: int, parties: int, keys: Sequence[bytes], dealer: int | None
) -> tuple[dict[int, bytes], dict[int, tuple[Any, ...]]]:
    """A party's parts of its keys with the others, and what each one is told of these and of
    ``keys``, those of a provider."""
    others = [other for other in range(parties) if other != rank]
    own = {other: fresh_key() for other in others if rank < parties}
    said = () if dealer is None else (dealer,)
    dealt = {other: (keys[other], *said) for other in others if keys}
    parts = {other: (part,) for other, part in own.items()}
    return own, {other: (*dealt.get(other, ()), *parts.get(other, ())) for other in others}


def _key_in(values: tuple[Any, ...], dealer: int | None) -> tuple[bytes, tuple[Any, ...]]:
    """The key in a letter from a provider, and its part of another: one that is a party says its
    rank, ``dealer``, and that too."""
    key, *agreed = values or (None,)
    if dealer is None:
        expected, fits = "a key alone", not agreed
    else:
        expected = "a key, the rank of who deals too, and a part of another key"
        fits = len(agreed) == 2 and type(agreed[0]) is int and agreed[0] == dealer
    if not fits:
        raise MalformedMessage("$.values", expected, f"{len(values)} values")
    return checked_key(key), tuple(agreed[1:])


def _part_in(values: tuple[Any, ...]) -> bytes:
    """Another party's part of the key of the two, in its letter."""
    if len(values) != 1:
        raise MalformedMessage("$.values", "a part of a key alone", f"{len(values)} values")
    return checked_key(values[0])


def _provider_of(party: HostedParty, dealer: Any) -> tuple[int, int]:
    """The rank of the provider, and the number of parties."""
    if dealer is None:
        return party.size - 1, party.size - 1
    if type(dealer) is not int or not 0 <= dealer < party.size:
        raise MalformedMessage("$.args[0]", "the rank of the provider", repr(dealer)[:40])
    return dealer, party.size


def session_here(party: HostedParty, value: Any, interrupted: bool = False) -> SharingSession:
    """The session that is the first argument of a program, if it is open; or ``interrupted``.

    Raises :class:`~syft.exceptions.SessionEnded` or
    :class:`~syft.exceptions.SharedOperationFailed` if it is not, and
    :class:`~syft.exceptions.MalformedMessage` for anything else.
    """
    if not isinstance(value, SharingSession):
        raise MalformedMessage("$.args[0]", "a session", type(value).__name__)
    if interrupted:
        value.check_going_on()
    else:
        value.check_open()
    return value


@guarding(CollectiveCode.SPLIT)
def split(
    party: HostedParty, session: Any, owner: Any, secret: Any = None, provider: Any = None
) -> PartyProgram:
    """Shares of a tensor that one worker holds, its ``owner``, which may be a party itself.

    An owner that is none is told who is the ``provider``; the parties know, and look as well.

    1. The owner draws a seed for each party but the last, and sends it there with the shape and the
       device, which all parties must have.
    2. It sends the last party the tensor less what those seeds draw.

    Rounds: 1.  Bytes an element: 8, to the last party.  Leakage: shape and guard.
    """
    here = None if session is None else session_here(party, session)
    parties = _parties_of_split(party, here, owner)
    if party.rank == owner:
        guard = elements_guard_of(secret)
        check_provider(party, guard, _named(provider) if here is None else _provider_in(here))
        value = _checked_secret(party.call.to_send(secret, "share", gradients=False))
        letters = _pieces(value, len(parties))
        send = {rank: letter for rank, letter in enumerate(letters) if rank != owner}
        yield party.round(send, (), guard)
        if here is None:
            return []
        share = share_from(*letters[party.rank])
    else:
        (letter,) = (yield party.round({}, (owner,))).values()
        guard, share = letter.guard, share_from(*_values(letter, 3))
    here = cast(SharingSession, here)
    check_provider(party, guard, _provider_in(here))
    _check_caller(party, guard, here)
    protect(share, guard)
    return [StoredShare(here, share)]


def _named(provider: Any) -> str:
    """The name of the provider that the owner of a tensor was told."""
    if not isinstance(provider, str | None):
        raise MalformedMessage("$.args[3]", "the name of the provider", type(provider).__name__)
    return provider or "a worker that was not named"


def _parties_of_split(
    party: HostedParty, here: SharingSession | None, owner: Any
) -> tuple[str, ...]:
    """The parties; raises :class:`~syft.exceptions.MalformedMessage` unless this worker is one of
    them or the owner."""
    if type(owner) is not int or not 0 <= owner < party.size:
        raise MalformedMessage("$.args[1]", "the rank of the owner", repr(owner)[:40])
    if here is None:
        if party.rank != owner or owner != party.size - 1:
            raise MalformedMessage("$.args[0]", "a session", "nil")
        return party.names[:-1]
    parties = here.names
    rest = party.names[len(parties) :]
    if party.names[: len(parties)] != parties or here.rank != party.rank:
        raise MalformedMessage("$.parties", f"{', '.join(parties)}, and the owner", "others")
    if len(rest) != (owner >= len(parties)):
        raise MalformedMessage("$.parties", "nobody besides the parties and the owner", "others")
    return parties


def _provider_in(here: SharingSession) -> str:
    """What the caller calls the provider of a session."""
    return here.parties[here.provider]


def check_provider(party: HostedParty, guard: Guard | None, provider: str) -> None:
    """Raise :class:`~syft.exceptions.ProviderDenied` if the provider, as the caller calls it, may
    not deal for shares of what is guarded so."""
    if guard is not None and guard.providers is not None:
        here = party.call.core.name
        check_dealing(
            guard, provider if provider == here else party.call.core.place_of(provider), here
        )


def _check_caller(party: HostedParty, guard: Guard | None, session: SharingSession) -> None:
    """Raise :class:`~syft.exceptions.PermissionDenied` if the caller would deal for what it may not
    read: with the help of one party it would know the secret."""
    caller = party.call.peer
    if guard is None or guard.admits(caller.user):
        return
    if _provider_in(session) == caller.said:
        raise PermissionDenied("share", party.call.core.name, caller.user, to=caller.said)


def _pieces(secret: torch.Tensor, parties: int) -> list[tuple[Any, Any, Any]]:
    """What each party gets: a seed or, the last one, the rest; the shape, and the device."""
    shape = tuple(secret.shape)
    seeds = [fresh_key() for _ in range(parties - 1)]
    rest = secret.detach().clone(memory_format=torch.contiguous_format)
    for seed in seeds:
        rest -= MaskStream(seed).draw(secret.shape, secret.device)
    return [(piece, shape, secret.device) for piece in (*seeds, rest)]


def share_from(value: Any, shape: Any, device: Any = CPU, most: int = LARGEST) -> torch.Tensor:
    """A share that was sent: a tensor, or what a seed draws in a shape of ``most`` elements.

    Raises :class:`~syft.exceptions.MalformedMessage` for anything else, and
    :class:`~syft.exceptions.NotSendable` for a device that this machine does not have.

    >>> share_from(bytes(32), (2,)).dtype
    torch.int64
    """
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise MalformedMessage("$.values", "a shape", type(shape).__name__)
    size = torch.Size(shape)
    if isinstance(value, torch.Tensor):
        if not is_share(value) or value.shape != size:
            raise MalformedMessage("$.values", f"an int64 tensor {shape}", "another tensor")
        return value
    return _drawn(value, size, device, min(most, LARGEST))


def _drawn(seed: Any, size: torch.Size, device: Any, most: int) -> torch.Tensor:
    """What a seed draws, if that is not too much and its device is here."""
    if len(size) > 64 or size.numel() > most:
        raise MalformedMessage("$.values", f"at most {most} elements", f"{size.numel()}")
    if not isinstance(device, torch.device) or device.type == "meta":
        raise MalformedMessage("$.values", "a device", repr(device)[:40])
    check_present(device, "a share")
    return MaskStream(checked_key(seed)).draw(size, device)


def is_share(value: Any) -> bool:
    """Whether something that was sent has the form of a share.

    >>> is_share(torch.tensor([1])), is_share(torch.ones(1))
    (True, False)
    """
    plain = type(value) is torch.Tensor and value.layout is torch.strided
    return plain and value.dtype is torch.int64 and not value.is_meta


def _checked_secret(secret: Any) -> torch.Tensor:
    if not isinstance(secret, torch.Tensor) or not is_share(secret):
        kind = secret.dtype if isinstance(secret, torch.Tensor) else type(secret).__name__
        raise NotShareable(f"a value of {kind}", "share int64 tensors, or fixed precision")
    return secret


def _values(letter: Letter, count: int) -> tuple[Any, ...]:
    if len(letter.values) != count:
        raise MalformedMessage("$.values", f"{count} values", str(len(letter.values)))
    return letter.values
