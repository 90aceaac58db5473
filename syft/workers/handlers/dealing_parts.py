"""The provider's part of share programs, and what the parties keep of what it deals ahead.

The provider sends the last party what it derives, in the order of the instructions: small
corrections in one letter, large ones each in its own (``letters_of``).  It waits for nobody, and
may deal for programs that come later.

A provider that is a party, which its caller must have asked for, deals inside its own part of the
program.  If it is the last party its corrections stay where they are.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import islice
from typing import Any

import torch

from syft.codes import CollectiveCode
from syft.crypto.programs.local_operations import check_size
from syft.crypto.programs.share_dealing import Deal, deal_program, elements_of, letters_of
from syft.crypto.programs.share_lint import lint_deals
from syft.exceptions import MalformedMessage, MaterialError
from syft.workers.core.shares import MaterialAhead, SharingSession
from syft.workers.handlers.party_programs import (
    HostedParty,
    Letter,
    PartyProgram,
    Received,
    Round,
    guarding,
)
from syft.workers.handlers.sharing import session_here

Corrections = dict[int, Sequence[torch.Tensor]]
"""What the last party gets of what is dealt, by the places of the instructions."""


@guarding(CollectiveCode.DEAL)
def deal(party: HostedParty, session: Any, counter: Any, deals: Any) -> PartyProgram:
    """The part of a provider that is no party; see :mod:`syft.crypto.dealing`."""
    here = session_here(party, session)
    check_part(party, here, deals=True)
    lint_deals(deals)
    _check_room(party, deals)
    here.use(checked_counter(counter))
    yield from _letters(party, here, counter, deals)
    return []


@guarding(CollectiveCode.DEAL_AHEAD)
def deal_ahead(party: HostedParty, session: Any, counter: Any, deals: Any) -> PartyProgram:
    """What is dealt for a program to come: the parties keep it.

    1. The provider sends the last party letters with what it derives.

    Rounds: 1.  Bytes: those of the corrections, to the last party.  Leakage: none.
    """
    here = session_here(party, session)
    if not here.holds_shares:
        yield from deal(party, session, counter, deals)
        return []
    check_part(party, here)
    lint_deals(deals)
    if here.deals:
        _check_room(party, deals)
    here.use(checked_counter(counter))
    if here.deals:
        corrections = yield from _letters(party, here, counter, deals)
    else:
        corrections = yield from _read(party, here, deals)
    return [MaterialAhead(here, counter, deals, corrections)]


def dealt_here(
    party: HostedParty, here: SharingSession, counter: int, deals: Sequence[Deal]
) -> Generator[Round, Received, Corrections]:
    """Deal for a program that has passed ``lint``, at a party that is about to run its own part.

    Returns what the last party needs, if that is this one; else it is on its way there.
    """
    _check_room(party, deals)
    return (yield from _letters(party, here, counter, deals))


def _check_room(party: HostedParty, deals: Sequence[Deal]) -> None:
    check_size(elements_of(deals), party.call.core.store.charges.most_elements)


def _letters(
    party: HostedParty, here: SharingSession, counter: int, deals: Sequence[Deal]
) -> Generator[Round, Received, Corrections]:
    """Send the last party what it needs; what it needs of itself is returned."""
    last = len(here.names) - 1
    own: Corrections = {}
    dealt = deal_program(deals, here.ciphers, counter)
    for places in letters_of(deals):
        some = dict(islice(dealt, len(places)))
        if party.rank == last:
            own.update(some)
        else:
            values = [one for place in places for one in (place, *some[place])]
            yield party.round({last: values}, ())
    return own


def _read(
    party: HostedParty, here: SharingSession, deals: Sequence[Deal]
) -> Generator[Round, Received, Corrections]:
    """Wait for the letters of the provider at the last party; others get none."""
    corrections: Corrections = {}
    for places in letters_of(deals) if party.rank == len(here.names) - 1 else ():
        (letter,) = (yield party.round({}, (here.provider,))).values()
        corrections.update(material_in(letter, places))
    return corrections


def material_in(letter: Letter, places: Sequence[int]) -> Corrections:
    """The corrections in a letter, by place; raises :class:`~syft.exceptions.MaterialError` if they
    are for other instructions than those at ``places``.

    >>> material_in(Letter((3, torch.tensor([5]), 7, torch.tensor([8]))), [3, 7])
    {3: [tensor([5])], 7: [tensor([8])]}
    """
    found: dict[int, list[torch.Tensor]] = {}
    tensors: list[torch.Tensor] = []
    for value in letter.values:
        if isinstance(value, torch.Tensor) and found:
            tensors.append(value)
        elif type(value) is int and len(found) < len(places) and value == places[len(found)]:
            tensors = found[value] = []
        else:
            raise _other_material(places)
    if len(found) < len(places):
        raise _other_material(places)
    return {**found}


def _other_material(places: Sequence[int]) -> MaterialError:
    named = ", ".join(map(str, places))
    return MaterialError(f"material for instruction {named}", "another letter")


def check_part(
    party: HostedParty,
    here: SharingSession,
    dealt: bool = True,
    needs: bool = True,
    deals: bool = False,
) -> None:
    """Raise :class:`~syft.exceptions.MalformedMessage` unless those take part who should.

    That is everybody; the parties alone if nothing is ``dealt`` now; and either if the program
    ``needs`` nothing.  ``deals``: this is the part of a provider that is no party.
    """
    expected = here.parties if dealt else here.names
    fits = party.names == expected or (not needs and party.names == here.names)
    if not fits or here.rank != party.rank:
        raise MalformedMessage("$.parties", ", ".join(expected), "others")
    if deals is here.holds_shares:
        raise MalformedMessage("$.program", "DEAL for the provider, SHARES for the parties", "it")


def checked_counter(counter: Any) -> int:
    """The number of a program; raises :class:`~syft.exceptions.MalformedMessage` for others.

    >>> checked_counter(3)
    3
    """
    if type(counter) is not int or not 0 < counter < 2**63:
        raise MalformedMessage("$.args[1]", "a counter from 1 on", repr(counter)[:40])
    return counter
