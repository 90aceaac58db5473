"""Shared tensors at the workers that hold the shares, and at the one that deals to them.

A client sends one ``Start`` to each worker that takes part; all of them have the same ``execution``
and the same ``parties``.  Below, P stands for the names of the parties of a session, in order, and
D for its provider.  D is none of P, or, where the client has asked for that, one of them: then it
is told less often than this says, as its part as a party includes the other.  ``execution`` MUST
rise from each Start to the next over a connection (``new_execution``).

``OPEN_SESSION`` makes a session: a :class:`SharingSession` at each worker.
    to each of P and to D, ``parties = (*P, D)``, ``args = ()``, ``outs = (session,)``: the same id
    everywhere.  D draws a key for each of P and sends it to that one alone.  Each of P sends each
    other one 32 random bytes: the key of the two is ``agreed_key(b"shares", …)`` of both, those of
    the lower rank first.
    If D is one of P: to each of P, ``parties = P``, ``args = (dealer,)``, the rank of D, who says
    it after the key and before those bytes: so every party knows that D can read what is opened.

``SHARES`` runs a share program at the parties, ``DEAL`` deals for it.
    to D, ``DEAL``: ``parties = (*P, D)``, ``args = (session, counter, deals)``, ``outs = ()``;
    ``session`` is a reference, ``deals`` is ``deals_of(program)``.  It is left out if there are no
    deals, and if D is one of P: it deals before it runs its own part, and its first letters to the
    last party are those of DEAL.
    to each of P, ``SHARES``: ``parties = (*P, D)``, or P where no DEAL goes with it (D may be gone
    then); ``args = (session, counter, program, input, …)`` with one input for each of the program:
    a reference to a share or a masked value of this session, or a fresh share ``(share,)``,
    ``(share, guard)``: an int64 tensor, or ``(seed, shape)``, ``(seed, shape, guard)``, ``(seed,
    shape, guard, device)``: 32 bytes from which the party draws it with
    :class:`~syft.crypto.mask_stream.MaskStream`, for the CPU unless a device is named.  ``guard``
    is what ``guard_fields`` makes or nil, and the same for all parties.
    ``outs``: one id for each of ``program.results`` that is stored at this party, in this order:
    REVEALs to other parties are left out, and what was overwritten comes last (below).  A share is
    stored as :class:`StoredShare`, a masked value as :class:`MaskedShare`, what was revealed as a
    plain tensor.
    ``counter`` is above all that the session has seen, the same in DEAL and SHARES.  Programs of a
    session run one after another, in the order of their Starts, so a program may name the
    results of one before it at once, and what is sent need not be waited for.

``DEAL_AHEAD`` deals for a program that comes later, or never.
    to each of P and to D: ``parties = (*P, D)`` (P if D is one of them), ``args = (session,
    counter, deals)``; ``outs = (material,)`` for each of P, the same id, and ``()`` for another D.
    ``counter`` is above all that the session has seen.  SHARES of a program with just these deals
    has a reference to ``material`` in the place of its counter, which the material has, at any
    later time and once; it has an ``execution`` of its own, no DEAL, and ``parties = P``: D may be
    gone.  Its masks are named by the counter of the material.  Drop the material after use.  That
    DEAL_AHEAD fails ends no session.

``SPLIT`` splits an int64 tensor that worker O holds, among the parties of a session.
    ``parties = (*P, O)``, or P if O is one of them; ``owner`` is the rank of O there.
    to each of P but O: ``args = (session, owner)``, ``outs = (share,)``.
    to O: ``args = (session, owner, tensor)``, ``outs = (share,)`` if it is one of P; else
    ``args = (None, owner, tensor, provider)``, ``outs = ()``, with the name of D.  ``tensor`` is a
    reference, with the depth of the integers if the object is a chain.

Drop ids as those of tensors.  ``FETCH`` of a Share replies with its int64 tensor and a share of
zero added, if its guard admits the user; of nothing else here.  Its ``reading`` is the same for all
of P, and another one each time, also where it is asked for once more.  ``DESCRIBE`` of a session
has as card ``(parties, rank, counter, cause or nil, bytes of dealt material that wait here)``.

When a program fails, whoever failed replies with the error, and the others with RemoteFailure that
names it.  Each party puts back what its part has written in place, and refuses programs and FETCH
with SharedOperationFailed, until ``ROLL_BACK``.  Counters that were used stay used.

A program that writes in place to a stored input (``written_inputs``) has one more result at each
party, the last one of ``outs``: what it has overwritten.  Drop it when all parts of the program
have replied that they are done.

``ROLL_BACK`` has the parties undo what was done since the first program that failed, and go on.
    to each of P: ``parties = P``, ``args = (session, overwritten, …)``, ``outs = ()``: references
    to what programs have overwritten at this party, the newest first, of all that have ended well
    here since the first that did not end well everywhere.  Send it when all of them have replied.
    Drop their results.

A session ends at once, and for good, where a party is lost, where somebody breaks the protocol
(MalformedMessage, MaterialError), and where ROLL_BACK fails: later requests get SessionEnded.
Where D is lost and is no party, its programs under way have failed, and what they wrote is undone.
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
from syft.workers.core.shares import StoredShare, SharingSession, checked_key
from syft.workers.execution.leaving import check_dealing
from syft.workers.handlers.executions import waiting_bytes
from syft.workers.handlers.party_programs import Letter, PartyProgram, Seat, guarding
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect

LARGEST = 1 << 28
"""The most elements of a share that is drawn from a seed: a few bytes must not ask for more."""

CPU = torch.device("cpu")
"""Where a share is drawn if no device is named."""


@guarding(CollectiveCode.OPEN_SESSION)
def open_session(seat: Seat, dealer: Any = None) -> PartyProgram:
    """A session at each worker; ``dealer`` is the rank of the provider if that is a party.

    1. The provider draws a key for each party and sends it to that party alone.  Each party sends
       each other one 32 bytes, from which and whose the key of the two follows; a provider that is
       a party says both, and its rank, in one letter.

    Rounds: 1.  Leakage: none; a party learns its own keys.
    """
    provider, parties = _provider_of(seat, dealer)
    if parties < 2:
        raise WrongParties(seat.names[:parties], "name two workers or more")
    keys = [fresh_key() for _ in range(parties)] if seat.rank == provider else []
    own, letters = _opening_letters(seat.rank, parties, keys, dealer)
    received = yield seat.round(letters, {*own, provider} - {seat.rank})
    told = {rank: letter.values for (rank, _), letter in received.items()}
    if not keys:
        key, told[provider] = _key_in(told[provider], dealer)
        keys = [key]
    parts = {rank: _part_in(told[rank]) for rank in own}
    zeros = ZeroShares.agreed(b"shares", seat.rank, own, parts)
    session = SharingSession(
        seat.core.name, seat.names, seat.rank, keys, zeros, seat.starter, dealer
    )
    place = seat.starter.place[0], seat.names[provider]
    session.letters = partial(waiting_bytes, seat.core, place)
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


def _provider_of(seat: Seat, dealer: Any) -> tuple[int, int]:
    """The rank of the provider, and the number of parties."""
    if dealer is None:
        return seat.size - 1, seat.size - 1
    if type(dealer) is not int or not 0 <= dealer < seat.size:
        raise MalformedMessage("$.args[0]", "the rank of the provider", repr(dealer)[:40])
    return dealer, seat.size


def session_here(seat: Seat, value: Any, interrupted: bool = False) -> SharingSession:
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
    seat: Seat, session: Any, owner: Any, secret: torch.Tensor | None = None, provider: Any = None
) -> PartyProgram:
    """Shares of a tensor that one worker holds, its ``owner``, which may be a party itself.

    An owner that is none is told who is the ``provider``; the parties know, and look as well.

    1. The owner draws a seed for each party but the last, and sends it there with the shape and the
       device, which all parties must have.
    2. It sends the last party the tensor less what those seeds draw.

    Rounds: 1.  Bytes an element: 8, to the last party.  Leakage: shape and guard.
    """
    here = None if session is None else session_here(seat, session)
    parties = _parties_of_split(seat, here, owner)
    if seat.rank == owner:
        value, guard = _checked_secret(secret), full_guard_of(secret)
        check_provider(seat, guard, _named(provider) if here is None else _provider_in(here))
        letters = _pieces(value, len(parties))
        send = {rank: letter for rank, letter in enumerate(letters) if rank != owner}
        yield seat.round(send, (), guard)
        if here is None:
            return []
        share = share_from(*letters[seat.rank])
    else:
        (letter,) = (yield seat.round({}, (owner,))).values()
        guard, share = letter.guard, share_from(*_values(letter, 3))
    here = cast(SharingSession, here)
    check_provider(seat, guard, _provider_in(here))
    _check_caller(seat, guard, here)
    protect(share, guard)
    return [StoredShare(here, share)]


def _named(provider: Any) -> str:
    """The name of the provider that the owner of a tensor was told."""
    if not isinstance(provider, str | None):
        raise MalformedMessage("$.args[3]", "the name of the provider", type(provider).__name__)
    return provider or "a worker that was not named"


def _parties_of_split(seat: Seat, here: SharingSession | None, owner: Any) -> tuple[str, ...]:
    """The parties; raises :class:`~syft.exceptions.MalformedMessage` unless this worker is one of
    them or the owner."""
    if type(owner) is not int or not 0 <= owner < seat.size:
        raise MalformedMessage("$.args[1]", "the rank of the owner", repr(owner)[:40])
    if here is None:
        if seat.rank != owner or owner != seat.size - 1:
            raise MalformedMessage("$.args[0]", "a session", "nil")
        return seat.names[:-1]
    parties = here.names
    rest = seat.names[len(parties) :]
    if seat.names[: len(parties)] != parties or here.rank != seat.rank:
        raise MalformedMessage("$.parties", f"{', '.join(parties)}, and the owner", "others")
    if len(rest) != (owner >= len(parties)):
        raise MalformedMessage("$.parties", "nobody besides the parties and the owner", "others")
    return parties


def _provider_in(here: SharingSession) -> str:
    """What the caller calls the provider of a session."""
    return here.parties[here.provider]


def check_provider(seat: Seat, guard: Guard | None, provider: str) -> None:
    """Raise :class:`~syft.exceptions.ProviderDenied` if the provider, as the caller calls it, may
    not deal for shares of what is guarded so."""
    if guard is not None and guard.providers is not None:
        here = seat.core.name
        check_dealing(guard, provider if provider == here else seat.core.place_of(provider), here)


def _check_caller(seat: Seat, guard: Guard | None, session: SharingSession) -> None:
    """Raise :class:`~syft.exceptions.PermissionDenied` if the caller would deal for what it may not
    read: with the help of one party it would know the secret."""
    caller = seat.starter
    if guard is None or guard.admits(caller.user):
        return
    if _provider_in(session) == caller.said:
        raise PermissionDenied("share", seat.core.name, caller.user, to=caller.said)


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
