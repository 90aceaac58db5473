"""Share programs at the parties, which run them; the provider's side is ``dealing_parts``.

What crosses a line, from party to party, is shares of values behind masks that nobody knows, and
shares of what is revealed, to whom it is revealed.  So only revealing asks whether a value may go
where it goes.  A result is as private as all inputs from which it follows.

A provider that is a party deals for its own part first, so that its letters to the last party begin
with the corrections.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from syft.codes import CollectiveCode
from syft.crypto.programs.beaver_products import MaskedValue
from syft.crypto.programs.share_dealing import deals_of, letters_of
from syft.crypto.programs.share_flow import places_of_writes, writes_in_place, written_inputs
from syft.crypto.programs.share_lint import lint
from syft.crypto.programs.share_program import ShareCode, ShareProgram, outs_of
from syft.crypto.programs.share_running import JoinedRound, PartyContext, RoundOfShares, run_program
from syft.exceptions import MalformedMessage
from syft.program.codec import digest_of
from syft.program.flow import reads_in
from syft.program.program import Action
from syft.workers.core.sent_labels import guard_from_fields
from syft.workers.core.shares import (
    Confined,
    MaskedShare,
    MaterialAhead,
    Overwritten,
    SharingSession,
    StoredShare,
)
from syft.workers.handlers.dealing_parts import check_part, checked_counter, dealt_here, material_in
from syft.workers.handlers.party_programs import (
    HostedParty,
    Letter,
    LetterName,
    PartyProgram,
    Received,
    Round,
    guarding,
)
from syft.workers.handlers.sharing import CPU, check_provider, is_share, session_here, share_from
from syft.workers.labels.guards import Guard, meet_guards
from syft.workers.labels.memory_labels import full_guard_of, protect


class SlotGuards:
    """The guard of each slot of a program, after all that it does.

    Instructions pass guards on from operands to results.  One that writes in place passes them on
    to everything that may share memory with what it writes to.  Whether a local operation gives a
    view is not looked at: it may.

    ``memory`` names the memory of each input: views of one tensor share it.

    >>> from syft.program.program import Slot
    >>> reveal = Action(ShareCode.REVEAL, (Slot(0), 1), {}, Slot(1))
    >>> guards = SlotGuards(ShareProgram(1, (reveal,), (Slot(1),)), [Guard(frozenset({"ann"}))])
    >>> guards.of(1).users
    frozenset({'ann'})
    """

    def __init__(
        self,
        program: ShareProgram,
        inputs: Sequence[Guard | None],
        memory: Sequence[Hashable] = (),
    ) -> None:
        self._guards: dict[int, Guard | None] = {}
        self._memory: dict[int, set[int]] = {}
        self.written: Guard | None = None
        """The guard of what is written in place."""
        if any(guard is not None for guard in inputs):
            self._guards = dict(enumerate(inputs))
            same: dict[Hashable, set[int]] = {}
            for slot, key in enumerate(memory):
                self._memory[slot] = same.setdefault(key, set())
                self._memory[slot].add(slot)
            for step, operands in zip(program.actions, reads_in(program), strict=True):
                self._pass_on(step, operands)

    def of(self, slot: int) -> Guard | None:
        """The guard of a slot."""
        return self._guards.get(slot)

    def _pass_on(self, step: Action, operands: Sequence[int]) -> None:
        guard: Guard | None = None
        for slot in operands:
            guard = meet_guards(guard, self._guards.get(slot))
        outs = outs_of(step)
        touched = set(outs)
        if step.op == ShareCode.LOCAL:
            touched |= self._joined_memory((*operands, *outs), writes_in_place(step))
        for slot in touched:
            self._guards[slot] = meet_guards(self._guards.get(slot), guard)
        if writes_in_place(step):
            self.written = meet_guards(self.written, guard)

    def _joined_memory(self, slots: Sequence[int], written: bool) -> set[int]:
        """Note that these slots may share memory; if it is written, all that do."""
        joined = set(slots).union(*(self._memory.get(slot, ()) for slot in slots))
        for slot in joined:
            self._memory[slot] = joined
        return joined if written else set()


def memory_of(value: Any) -> Hashable:
    """A name of the memory of an input: equal for tensors that share it.

    >>> x = torch.ones(2)
    >>> memory_of(x) == memory_of(x[:1]), memory_of(x) == memory_of(x.clone())
    (True, False)
    """
    tensor: torch.Tensor = value.opened if isinstance(value, MaskedValue) else value
    return tensor.untyped_storage().data_ptr() or id(tensor)


def agreement(
    program: ShareProgram,
    counter: int,
    parties: tuple[str, ...],
    inputs: Sequence[Guard | None],
    dealer: int | None = None,
) -> bytes | None:
    """What every party of a program must have alike if an input is private, or if a party deals,
    the one of rank ``dealer``; None otherwise.

    A client that may not read an input gives each party its program and its inputs.  Each party
    keeps the labels that follow from its own, so all of them must compute the same, on inputs that
    are equally private.  A share may be at every party, whether its holder named that one or not.

    >>> agreement(ShareProgram(1, (), ()), 1, ("alice", "bob", "carol"), [None]) is None
    True
    """
    if dealer is None and all(guard is None for guard in inputs):
        return None
    names = parties[:-1] if dealer is None else parties
    labels = [
        guard
        and (
            sorted(guard.users),
            guard.shape_hidden,
            sorted(guard.destinations.union(names)),
            sorted(guard.owners or ()),
            guard.providers if guard.providers is None else sorted(guard.providers),
        )
        for guard in inputs
    ]
    return digest_of(program, (counter, parties, labels, dealer))


_Rounds = Generator[Any, Received, Any]


@guarding(CollectiveCode.SHARES)
def run_shares(
    party: HostedParty, session: Any, counter: Any, program: Any, *inputs: Any
) -> PartyProgram:
    """A party's part of a share program; see :mod:`syft.crypto.programs.share_running`.

    ``counter`` is a number, or the material that was dealt ahead.  What is written in place is put
    back if this part fails; of a program that writes so, the last result is what it has
    overwritten, for the case that another part fails.
    """
    here = session_here(party, session)
    if not isinstance(program, ShareProgram):
        raise MalformedMessage("$.args[2]", "a share program", type(program).__name__)
    lint(program, len(here.names))
    deals = deals_of(program)
    check_part(party, here, not isinstance(counter, MaterialAhead), bool(deals))
    number, ahead = _taken(here, counter, program)
    if here.deals and ahead is None:
        ahead = yield from dealt_here(party, here, number, deals)
    operands = _operands(here, inputs, party.call.core.store.charges.most_elements)
    values = [value for value, _ in operands]
    yield here.turns
    here.check_open()
    overwritten = _overwritten(here, program, inputs, values)
    try:
        results = yield from _in_its_turn(party, here, program, number, operands, ahead)
        return [*results, *overwritten]
    except BaseException:  # also where another party has failed, and this part is closed
        for one in overwritten:
            one.put_back()
        raise


def _in_its_turn(
    party: HostedParty,
    here: SharingSession,
    program: ShareProgram,
    number: int,
    operands: Sequence[_Operand],
    ahead: Mapping[int, Sequence[torch.Tensor]] | None,
) -> PartyProgram:
    """Run a program whose turn has come; returns the objects to be stored."""
    values = [value for value, _ in operands]
    # Not before: what had its turn earlier may have written private values to an input.
    labels = [label() for _, label in operands]
    for label in labels:
        check_provider(party, label, here.parties[here.provider])
    guards = SlotGuards(program, labels, [memory_of(value) for value in values])
    _check_reveals(party, program, guards)
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    context = _context(party, here, number)
    versions = [tensor._version for tensor in tensors]
    agreed = agreement(program, number, here.parties, labels, here.dealer)
    run = _PartyRun(party, here, program, context, agreed, ahead)
    results = yield from run.rounds(values)
    for tensor, version in zip(tensors, versions, strict=True):
        if tensor._version != version:
            protect(tensor, guards.written)
    return _stored(here, program, results, guards)


@guarding(CollectiveCode.ROLL_BACK)
def roll_back(party: HostedParty, session: Any, *overwritten: Any) -> PartyProgram:
    """Undo what programs have overwritten, newest first, and go on after one that has failed.

    1. Each party tells the others that it has.

    Rounds: 1.  Bytes: 0.  Leakage: none.
    """
    here = session_here(party, session, interrupted=True)
    if here.names != party.names or here.rank != party.rank:
        raise MalformedMessage("$.parties", ", ".join(here.names), "others")
    for index, one in enumerate(overwritten, 1):
        if not isinstance(one, Overwritten) or one.session is not here:
            raise MalformedMessage(f"$.args[{index}]", "what a program has overwritten", "not that")
    yield here.turns
    here.check_going_on()
    for one in overwritten:
        one.put_back()
    yield party.round(dict.fromkeys(party.others, ()))
    here.go_on(party.execution)
    return []


def _overwritten(
    here: SharingSession, program: ShareProgram, inputs: Sequence[Any], values: Sequence[Any]
) -> list[Overwritten]:
    """A copy of what a program may overwrite, if it writes in place to what is stored.

    Shares that have come with it are not kept if it fails.
    """
    if not places_of_writes(program):
        return []
    places = written_inputs(program)
    written = [values[place] for place in places if isinstance(inputs[place], StoredShare)]
    return [Overwritten(here, written)] if written else []


def _taken(
    here: SharingSession, counter: Any, program: ShareProgram
) -> tuple[int, Mapping[int, Sequence[torch.Tensor]] | None]:
    """The number of a program and what was dealt for it ahead; both are used up."""
    if isinstance(counter, MaterialAhead) and counter.session is here:
        return counter.counter, counter.take(deals_of(program))
    here.use(checked_counter(counter))
    return counter, None


def _context(party: HostedParty, here: SharingSession, counter: int) -> PartyContext:
    """Who runs a program."""
    most = party.call.core.store.charges.most_elements
    return PartyContext(here.rank, len(here.names), here.own_cipher, here.zeros, counter, most)


# ------------------------------------------------------------------------------ inputs and results


_Operand = tuple[Any, Callable[[], Guard | None]]
"""An input of a program, and its guard by the time that it is asked for."""


def _operands(here: SharingSession, inputs: Sequence[Any], most: int) -> list[_Operand]:
    """The inputs of a program, whose fresh shares have at most so many elements: few bytes ask for
    many, where they are drawn."""
    operands = []
    for index, value in enumerate(inputs):
        operands.append(_operand(here, value, index, most))
        if isinstance(value, tuple):
            most -= operands[-1][0].numel()
    return operands


def _operand(here: SharingSession, value: Any, index: int, most: int) -> _Operand:
    """An input: an object of the session, or a fresh share."""
    if isinstance(value, StoredShare | MaskedShare) and value.session is here:
        return value.value, partial(full_guard_of, value)
    if not isinstance(value, tuple) or not value or isinstance(value[0], Confined):
        raise MalformedMessage(f"$.args[{index + 3}]", "a share of this session", "another value")
    fresh, *rest = value
    shape: Any
    if isinstance(fresh, torch.Tensor):
        shape, device = tuple(fresh.shape), CPU
    else:
        device = rest.pop() if len(rest) > 2 else CPU
        shape = rest.pop(0) if rest else None
    fields, *more = rest or (None,)
    if more or not isinstance(fields, tuple | None):
        expected = "a share and its guard, or a seed, its shape, guard and device"
        raise MalformedMessage(f"$.args[{index + 3}]", expected, "more")
    guard = None if fields is None else guard_from_fields(fields)
    return share_from(fresh, shape, device, most), lambda: guard


def _check_reveals(party: HostedParty, program: ShareProgram, guards: SlotGuards) -> None:
    """Raise :class:`~syft.exceptions.PermissionDenied` if what is revealed may not go there.

    Before the first round: nothing has left then.
    """
    for step in program.actions:
        if step.op == ShareCode.REVEAL and step.args[1] != party.rank:
            guard, name = guards.of(step.out.index), party.names[step.args[1]]
            party.call.check_leaves(guard, "reveal", only=name)


def _stored(
    here: SharingSession, program: ShareProgram, results: dict[int, Any], guards: SlotGuards
) -> list[Any]:
    """The objects to be stored, with their guards; without what is revealed to others."""
    revealed = {
        step.out.index: step.args[1] for step in program.actions if step.op == ShareCode.REVEAL
    }
    stored: list[Any] = []
    for slot in program.results:
        value = results[slot]
        if slot not in revealed:
            masked = isinstance(value, MaskedValue)
            value = MaskedShare(here, value) if masked else StoredShare(here, value)
        elif revealed[slot] != here.rank:
            continue
        protect(value, guards.of(slot))
        stored.append(value)
    return stored


# ------------------------------------------------------------------------------------------ rounds


class _PartyRun:
    """A program under way at one party: what its rounds are as letters.

    Where something private is computed with, the first letter to each party begins with what all
    parties must have alike (``agreed``).
    """

    def __init__(
        self,
        party: HostedParty,
        here: SharingSession,
        program: ShareProgram,
        context: PartyContext,
        agreed: bytes | None,
        ahead: Mapping[int, Sequence[torch.Tensor]] | None,
    ) -> None:
        self.party, self.program, self.context = party, program, context
        self.parties = range(len(here.names))
        self.provider = here.provider
        self.here = dict(ahead or {})
        """The corrections that are there and were not used yet."""
        self.letters = letters_of(deals_of(program)) if context.is_last and ahead is None else []
        # What a party deals comes before what it opens.
        self.first = {} if here.dealer is None else {here.provider: len(self.letters)}
        party.next_letters(rank for rank, many in self.first.items() for _ in range(many))
        self.agreed = agreed
        self.greeted: set[int] = set()

    def rounds(self, values: Sequence[Any]) -> _Rounds:
        """Run the program; returns its results by slot."""
        run = run_program(self.program, values, self.context)
        joined: JoinedRound | None = None
        while True:
            try:
                step = next(run) if joined is None else run.send(joined)
            except StopIteration as end:
                return end.value
            joined = yield from self._corrections(step) if step.needs else self._opening(step)

    def _corrections(self, step: RoundOfShares) -> Generator[Round, Received, JoinedRound]:
        """Wait for what the provider has dealt for some instructions, unless it is here."""
        absent = {place for place in step.needs if place not in self.here}
        if absent:
            numbers = [n for n, one in enumerate(self.letters) if not absent.isdisjoint(one)]
            received = yield Round({}, frozenset((self.provider, n) for n in numbers))
            for (_, number), letter in received.items():
                self.here.update(material_in(letter, self.letters[number]))
        return JoinedRound(corrections={place: self.here.pop(place) for place in step.needs})

    def _opening(self, step: RoundOfShares) -> Generator[Round, Received, JoinedRound]:
        """Send the shares of a round, and join them with those of the others."""
        common = (*step.additive, *step.bits)
        mine = step.reveals.get(self.party.rank, [])
        others = [rank for rank in self.parties if rank != self.party.rank]
        send = {
            rank: (
                *self._greeting(rank),
                *(tensor.cpu() for tensor in (*common, *step.reveals.get(rank, ()))),
            )
            for rank in others
            if common or rank in step.reveals
        }
        own = (*common, *mine)
        received = yield self.party.round(send, others if own else ())
        joined = self._joined(own, received, len(step.additive), len(common))
        return JoinedRound(
            joined[: len(step.additive)],
            joined[len(step.additive) : len(common)],
            joined[len(common) :],
        )

    def _joined(
        self, own: Sequence[torch.Tensor], received: Received, first: int, last: int
    ) -> list[torch.Tensor]:
        """The sums of these shares and the others', and from ``first`` to ``last`` the xors."""
        letters = [self._checked(own, name, letter) for name, letter in received.items()]
        joined = []
        for index, share in enumerate(own):
            bits = first <= index < last
            total = share
            for number, letter in enumerate(letters):
                other = letter[index].to(share.device)
                if number:  # the first total is a new tensor: letters are immutable
                    total = total.bitwise_xor_(other) if bits else total.add_(other)
                else:
                    total = total.bitwise_xor(other) if bits else total.add(other)
            joined.append(total)
        return joined

    def _greeting(self, rank: int) -> tuple[bytes, ...]:
        """What a letter to a party begins with."""
        if self.agreed is None or rank in self.greeted:
            return ()
        self.greeted.add(rank)
        return (self.agreed,)

    def _checked(
        self, own: Sequence[torch.Tensor], sender: LetterName, letter: Letter
    ) -> Sequence[torch.Tensor]:
        """The shares in a letter, if they are of the form of this party's own."""
        values, (rank, number) = letter.values, sender
        name = self.party.names[rank]
        if self.agreed is not None and number == self.first.get(rank, 0):
            if values[:1] != (self.agreed,):
                raise MalformedMessage(
                    "$.values", "the same program on inputs that are as private", f"other ({name})"
                )
            values = values[1:]
        fits = len(values) == len(own) and all(
            is_share(other) and other.shape == one.shape
            for one, other in zip(own, values, strict=False)
        )
        if not fits:
            raise MalformedMessage(
                "$.values", f"{len(own)} shares in the shapes of this round", f"others from {name}"
            )
        return values
