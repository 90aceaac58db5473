"""Running a share program: one party's part, as a generator that knows no line and no message.

It yields what is to be sent and is resumed with what all parties' shares make.  All instructions
that can go on are taken to their next opening before anything is sent, so openings that do not
depend on each other share a round.  What a round holds follows from the program alone, so its
tensors are told apart by their order: that of their instructions.

An operation that writes in place waits for all instructions before it, and nothing after it starts
earlier: the program is cut there into *segments*.  The tensor in a slot is let go after its last
use.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from syft.crypto.dealing import PartyDealer, StreamName
from syft.crypto.kernels import kernel_from
from syft.crypto.mask_stream import MaskCipher, ZeroShares
from syft.crypto.opening import Protocol, ShareOpening
from syft.crypto.programs.beaver_products import MaskedValue, deal_product, mask, product
from syft.crypto.programs.local_operations import LOCAL_OPERATIONS, check_size, run_local
from syft.crypto.programs.share_flow import segments_of
from syft.crypto.programs.share_gates import GATES, is_corrected
from syft.crypto.programs.share_program import (
    ShareCode,
    ShareProgram,
    opened_constants,
    outs_of,
    stream_of,
    stream_of_mask,
)
from syft.crypto.ring_products import ring_map, ring_product
from syft.exceptions import MaterialError, ProgramError
from syft.program.flow import reads_in
from syft.program.program import Action, Slot

MOST_ELEMENTS: Final = 1 << 31
"""The elements that a program may hold at once, if a party does not say otherwise."""

_CPU: Final = torch.device("cpu")

_GATE_WORDS: Final = 10
"""What a comparison holds for an element while it runs, in words of 8 bytes."""


@dataclass(frozen=True, slots=True)
class PartyContext:
    """Who runs a program: party ``rank`` of ``parties``, with its key and the program's counter.

    ``key`` is that with the provider; ``zeros`` come from those with the other parties.
    ``most_elements`` bounds the tensors that it has made and still holds, views included.
    """

    rank: int
    parties: int
    key: bytes | MaskCipher = field(repr=False)
    zeros: ZeroShares = field(repr=False)
    counter: int
    most_elements: int = MOST_ELEMENTS

    @property
    def is_last(self) -> bool:
        """Whether it is the party that the provider sends corrections to.

        >>> PartyContext(1, 2, bytes(32), ZeroShares(1, {0: bytes(32)}), 1).is_last
        True
        """
        return self.rank == self.parties - 1


@dataclass(slots=True)
class RoundOfShares:
    """What a party is waiting for: shares to be joined with the others', or corrections.

    >>> RoundOfShares(needs=(3,)).additive
    []
    """

    additive: list[torch.Tensor] = field(default_factory=list)
    """To be sent to all other parties and added up modulo 2^64."""
    bits: list[torch.Tensor] = field(default_factory=list)
    """To be sent to all other parties and joined by xor."""
    reveals: dict[int, list[torch.Tensor]] = field(default_factory=dict)
    """To be sent to one party and added up there, with shares of zero; its own shares are in its
    own entry."""
    needs: tuple[int, ...] = ()
    """The instructions whose corrections the last party waits for; nothing is to be sent then."""


@dataclass(slots=True)
class JoinedRound:
    """What a party is resumed with, in the order of the round: results of joining all shares.

    >>> JoinedRound(corrections={3: ()}).revealed
    []
    """

    additive: Sequence[torch.Tensor] = ()
    bits: Sequence[torch.Tensor] = ()
    revealed: Sequence[torch.Tensor] = field(default_factory=list)
    """The sums of what all parties had in ``reveals`` for this one."""
    corrections: Mapping[int, Sequence[torch.Tensor]] = field(default_factory=dict)
    """What the provider dealt for the instructions in ``needs``."""


ProgramRun = Generator[RoundOfShares, JoinedRound, dict[int, Any]]
"""Yields rounds; returns the results by slot: shares, masked values, tensors revealed here."""


def run_program(program: ShareProgram, inputs: Sequence[Any], party: PartyContext) -> ProgramRun:
    """Run a program that has passed ``lint`` on this party's inputs: shares and masked values.

    Raises :class:`~syft.exceptions.ProgramError` for tensors that are not what the program says,
    :class:`~syft.exceptions.MaterialError` for what was dealt or joined wrongly.  Inputs are only
    written to by operations that write in place.

    >>> from syft.crypto.programs.local_operations import number_of
    >>> neg = number_of(torch.ops.aten.neg.default)
    >>> negate = Action(ShareCode.LOCAL, (neg, (Slot(0),), ()), {}, Slot(1))
    >>> party = PartyContext(0, 2, bytes(32), ZeroShares(0, {1: bytes(32)}), 1)
    >>> run = run_program(ShareProgram(1, (negate,), (Slot(1),)), [torch.tensor([3])], party)
    >>> next(run)
    Traceback (most recent call last):
    StopIteration: {1: tensor([-3])}
    """
    return _Run(program, inputs, party).steps()


@dataclass(slots=True)
class _Active:
    """An instruction between two of its openings."""

    place: int
    protocol: Protocol
    opening: ShareOpening


_place_of = operator.attrgetter("place")


class _Run:
    """The state of one run: the slots, what waits for them, and what waits for others."""

    def __init__(self, program: ShareProgram, inputs: Sequence[Any], party: PartyContext) -> None:
        if len(inputs) != program.inputs:
            raise ProgramError(f"a program of {program.inputs} inputs got {len(inputs)}")
        self.program, self.party = program, party
        self.cipher = party.key if isinstance(party.key, MaskCipher) else MaskCipher(party.key)
        self.values: dict[int, Any] = dict(enumerate(inputs))
        self.actions, self.operands = opened_constants(program), reads_in(program)
        self.uses: dict[int, int] = dict.fromkeys(program.results, 1)
        for slots in self.operands:
            for slot in slots:
                self.uses[slot] = self.uses.get(slot, 0) + 1
        self.waiting: dict[int, list[int]] = {}
        self.missing: dict[int, int] = {}
        self.ready: deque[int] = deque()
        self.active: list[_Active] = []
        self.reveals: list[tuple[int, int, torch.Tensor]] = []
        self.stalled: list[int] = []
        self.held = 0
        """The elements of what was made and is still in a slot."""

    @property
    def room(self) -> int:
        """The elements that may still be made."""
        return self.party.most_elements - self.held

    def steps(self) -> ProgramRun:
        for segment in segments_of(self.program):
            for place in segment:
                self._admit(place)
            while self.stalled or self.active or self.reveals:
                if self.stalled:
                    yield from self._await_corrections()
                else:
                    yield from self._open()
                self._advance()
        return {slot: self.values[slot] for slot in self.program.results}

    def _admit(self, place: int) -> None:
        """Have an instruction start as soon as its operands are there."""
        absent = [slot for slot in self.operands[place] if slot not in self.values]
        if not absent:
            self._begin(place)
            return
        self.missing[place] = len(absent)
        for slot in absent:
            self.waiting.setdefault(slot, []).append(place)

    def _begin(self, place: int) -> None:
        """Start an instruction that is ready, or put it where it waits for corrections."""
        instruction = self.actions[place]
        if self.party.is_last and is_corrected(instruction):
            self.stalled.append(place)
        else:
            self._start(place, instruction, None)

    def _advance(self) -> None:
        """Take everything that has become ready to its next opening."""
        while self.ready:
            self._begin(self.ready.popleft())

    def _start(
        self, place: int, instruction: Action, corrections: Sequence[torch.Tensor] | None
    ) -> None:
        begin = _BEGIN.get(instruction.op)
        if begin is not None:
            self._fill(place, begin(self, instruction, self.operands[place]))
        elif instruction.op == ShareCode.REVEAL:
            # New, because the share may be written to while the letter is under way.
            x, to = instruction.args
            name = stream_of(instruction.op, (to,), self.party.counter, place)
            self.reveals.append((place, to, self.party.zeros.added(self._share(x), name.block())))
        else:
            public = [value for value in instruction.args if type(value) is not Slot]
            name = stream_of(instruction.op, public, self.party.counter, place)
            device = self._device_at(self.operands[place])
            dealer = PartyDealer(self.cipher, name, corrections, device)
            if instruction.op == ShareCode.PRODUCT:
                self._fill(place, (self._product(instruction, dealer),))
            else:
                self._resume(place, self._protocol(instruction, dealer, name), None)
        for slot in self.operands[place]:
            self.uses[slot] -= 1
            if not self.uses[slot]:
                self._put(slot, None)

    def _put(self, slot: int, value: Any) -> None:
        """Fill a slot, or let go what is in it; inputs belong to somebody else."""
        if slot >= self.program.given:
            self.held += _elements_of(value) - _elements_of(self.values.get(slot))
        self.values[slot] = value

    def _protocol(self, instruction: Action, dealer: PartyDealer, name: StreamName) -> Protocol:
        x, *public = instruction.args
        share = self._share(x)
        if share.shape != public[-1]:
            raise ProgramError(f"a share of shape {tuple(share.shape)}, not {public[-1]}")
        if instruction.op == ShareCode.MASK:
            check_size(2 * share.numel(), self.room)
            return mask(dealer, name, share)
        check_size(_GATE_WORDS * share.numel(), self.room)
        gate = GATES[instruction.op]
        return gate.run(self.party.rank, gate.deal(dealer, *public), share)

    def _product(self, instruction: Action, dealer: PartyDealer) -> torch.Tensor:
        code, settings, x, y, x_mask, x_shape, y_mask, y_shape, shape = instruction.args
        kernel = kernel_from(code, settings)
        one, other = self._masked(x, x_mask, x_shape), self._masked(y, y_mask, y_shape)
        check_size(torch.Size(shape).numel(), self.room)
        c = deal_product(dealer, kernel, one.mask, other.mask, shape)
        return product(self.party.rank, kernel, c, one, other)

    def _masked(self, slot: Slot, name: tuple[int, int], shape: tuple[int, ...]) -> MaskedValue:
        """The masked value of a slot, if it is the one for which the provider deals."""
        value = self.values[slot.index]
        if type(value) is not MaskedValue:
            raise ProgramError("a product of what is no masked value")
        expected = stream_of_mask(name, shape, self.party.counter)
        if value.name != expected or value.shape != shape:
            raise ProgramError(f"a masked value {value.name}, where {expected} is named")
        return value

    def _device_at(self, slots: Sequence[int]) -> torch.device:
        """Where the first operand is: what is drawn, and what is public, goes there."""
        value = self.values[slots[0]] if slots else None
        if type(value) is MaskedValue:
            value = value.opened
        return value.device if type(value) is torch.Tensor else _CPU

    def _share(self, slot: Slot) -> torch.Tensor:
        value = self.values[slot.index]
        if type(value) is not torch.Tensor or value.dtype is not torch.int64:
            raise ProgramError("an operand that is no share")
        return value

    # ------------------------------------------------------------------------------ without rounds

    def _local(self, instruction: Action, slots: Sequence[int]) -> Sequence[torch.Tensor]:
        number, positional, keywords = instruction.args
        given = self._given(positional, self._device_at(slots))
        return run_local(LOCAL_OPERATIONS[number], given, keywords, self.room)

    def _given(self, value: tuple[Any, ...], device: torch.device) -> tuple[Any, ...]:
        """Arguments with the shares in the place of slots, and tensors where these are."""
        return tuple(
            (
                self._share(item)
                if type(item) is Slot
                else (
                    self._given(item, device)
                    if type(item) is tuple
                    else item.to(device) if type(item) is torch.Tensor else item
                )
            )
            for item in value
        )

    def _public(self, instruction: Action, slots: Sequence[int]) -> Sequence[torch.Tensor]:
        (plain,) = instruction.args
        if self.party.rank:
            return (torch.zeros(plain.shape, dtype=torch.int64, device=plain.device),)
        return (plain.clone(),)

    def _linear(self, instruction: Action, slots: Sequence[int]) -> Sequence[torch.Tensor]:
        code, settings, slot, *factor = instruction.args
        kernel, share = kernel_from(code, settings), self._share(slot)
        if not factor:
            check_size(kernel.shape(tuple(share.shape)).numel(), self.room)
            return (ring_map(kernel, share),)
        public, first = factor
        public = public.to(share.device)
        a, b = (public, share) if first else (share, public)
        shape = kernel.shape(tuple(a.shape), tuple(b.shape))
        check_size(shape.numel(), self.room)
        return (ring_product(kernel, a, b),)

    # -------------------------------------------------------------------------------------- rounds

    def _fill(self, place: int, results: Sequence[Any]) -> None:
        """Put results into their slots, and wake what waited for them."""
        outs = outs_of(self.actions[place])
        if len(outs) > len(results):
            raise ProgramError(f"instruction {place} has {len(results)} results, not {len(outs)}")
        for slot, value in zip(outs, results, strict=False):
            self._put(slot, value if slot in self.uses else None)
            for waiter in self.waiting.pop(slot, ()):
                self.missing[waiter] -= 1
                if not self.missing[waiter]:
                    self.ready.append(waiter)

    def _resume(
        self, place: int, protocol: Protocol, joined: Sequence[torch.Tensor] | None
    ) -> None:
        """Take a protocol to its next opening, or to its end."""
        try:
            opening = next(protocol) if joined is None else protocol.send(joined)
        except StopIteration as stop:
            self._fill(place, stop.value if type(stop.value) is tuple else (stop.value,))
        else:
            self.active.append(_Active(place, protocol, opening))

    def _await_corrections(self) -> Generator[RoundOfShares, JoinedRound, None]:
        """Ask for what was dealt for the instructions that can start, and start them."""
        stalled, self.stalled = self.stalled, []
        dealt = (yield RoundOfShares(needs=tuple(stalled))).corrections
        for place in stalled:
            self._start(place, self.actions[place], dealt[place])

    def _open(self) -> Generator[RoundOfShares, JoinedRound, None]:
        """One round: send what all active instructions open, and take each one step on."""
        # In the order of the program: the last party starts some later, after their corrections.
        active, self.active = sorted(self.active, key=_place_of), []
        reveals, self.reveals = sorted(self.reveals, key=operator.itemgetter(0)), []
        sent = RoundOfShares()
        for one in active:
            (sent.bits if one.opening.bits else sent.additive).extend(one.opening.shares)
        for _, party, share in reveals:
            sent.reveals.setdefault(party, []).append(share)
        joined = yield sent
        additive = _like(sent.additive, joined.additive)
        bits = _like(sent.bits, joined.bits)
        revealed = _like(sent.reveals.get(self.party.rank, ()), joined.revealed)
        for one in active:
            source = bits if one.opening.bits else additive
            self._resume(one.place, one.protocol, [next(source) for _ in one.opening.shares])
        for place, party, _ in reveals:
            self._fill(place, (next(revealed) if party == self.party.rank else None,))


def _elements_of(value: Any) -> int:
    """The elements of what is in a slot; of a masked value also those of its mask."""
    if type(value) is MaskedValue:
        return 2 * value.opened.numel()
    return value.numel() if type(value) is torch.Tensor else 0


def _like(sent: Sequence[torch.Tensor], joined: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """What was joined, if it has the form of what was sent."""
    same = len(sent) == len(joined) and all(
        one.shape == other.shape and other.dtype is torch.int64
        for one, other in zip(sent, joined, strict=False)
    )
    if not same:
        raise MaterialError(
            f"{len(sent)} opened tensors", f"{len(joined)} from the parties, or other shapes"
        )
    return iter(joined)


_BEGIN: Final[dict[int, Callable[[_Run, Action, Sequence[int]], Sequence[torch.Tensor]]]] = {
    ShareCode.LOCAL: _Run._local,
    ShareCode.PUBLIC: _Run._public,
    ShareCode.LINEAR: _Run._linear,
}
"""The instructions that are done at once."""
