"""Guards of what a share program computes: whatever follows from a private input is as private.

Instructions pass guards on from operands to results.  An operation that writes in place passes them
on to everything that may share memory with what it writes to.  Whether a local operation gives a
view is not looked at: it may.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch

from syft.crypto.programs.beaver_products import MaskedValue
from syft.crypto.programs.program_digest import digest_of
from syft.crypto.programs.share_flow import operands_of, writes_in_place
from syft.crypto.programs.share_program import Instruction, ShareCode, ShareProgram
from syft.workers.labels.guards import Guard, meet_guards


class SlotGuards:
    """The guard of each slot of a program, after all that it does.

    ``memory`` names the memory of each input: views of one tensor share it.

    >>> from syft.crypto.programs.share_program import ShareSlot
    >>> reveal = Instruction(ShareCode.REVEAL, (ShareSlot(0), 1), (1,))
    >>> guards = SlotGuards(ShareProgram(1, (reveal,), (1,)), [Guard(frozenset({"ann"}))])
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
            for step in program.instructions:
                self._pass_on(step)

    def of(self, slot: int) -> Guard | None:
        """The guard of a slot."""
        return self._guards.get(slot)

    def _pass_on(self, step: Instruction) -> None:
        operands = operands_of(step)
        guard: Guard | None = None
        for slot in operands:
            guard = meet_guards(guard, self._guards.get(slot))
        touched = set(step.outs)
        if step.code is ShareCode.LOCAL:
            touched |= self._joined_memory((*operands, *step.outs), writes_in_place(step))
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

    >>> agreement(ShareProgram(1, (), (0,)), 1, ("alice", "bob", "carol"), [None]) is None
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
