"""Roles run by turns in this process: the oracle for how a protocol was cut.

A role takes its actions in order; which role acts next, and which letter arrives next, is drawn.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import torch

from syft.program.lowered import Lowered
from syft.program.program import Action, Program, Slot, fill_slots, slots_in
from syft.protocols.cutting import Cut
from syft.workers.hardening.precautions import RUNNABLE


class SimulatedRole:
    """One role: its slots, and how far it is."""

    def __init__(self, role: Any, inputs: list[Any], state: list[torch.Tensor]) -> None:
        self.role, self.at = role, 0
        program = role.program
        given = [place for place, source in enumerate(role.sources) if source is None]
        self.values: dict[int, Any] = dict(zip(given, inputs, strict=True))
        fixed = [*state, *[each.clone() for each in program.constants]]
        self.values.update(enumerate(fixed, program.inputs))
        self.waiting = {place for place, source in enumerate(role.sources) if source is not None}
        self.unsent = [place for place, target in enumerate(role.targets) if target is not None]

    def can_act(self) -> bool:
        """Whether the next action has what it reads."""
        actions = self.role.program.actions
        if self.at == len(actions):
            return False
        action = actions[self.at]
        return all(one.index in self.values for one in slots_in((action.args, action.kwargs)))

    def act(self) -> None:
        """Run the next action."""
        action = self.role.program.actions[self.at]
        self.at += 1
        read = sorted({one.index for one in slots_in((action.args, action.kwargs))})
        moved = {index: Slot(at) for at, index in enumerate(read)}
        made = [one.index for one in slots_in(action.out)]
        moved |= {index: Slot(len(read) + at) for at, index in enumerate(made)}
        one = Action(
            action.op,
            fill_slots(action.args, moved),
            fill_slots(action.kwargs, moved),
            fill_slots(action.out, moved),
            action.mode,
        )
        program = Program(len(read), (one,), tuple(moved[index] for index in made))
        found = Lowered(program, RUNNABLE).run([self.values[index] for index in read])
        self.values.update(zip(made, found, strict=True))


def simulate(cut: Cut, inputs: list[Any], state: list[torch.Tensor], seed: int) -> list[Any]:
    """The outputs of one execution; ``state`` is written to."""
    draw = random.Random(seed)
    roles = [
        SimulatedRole(
            role,
            [copy.deepcopy(inputs[at]) for at in cut.inputs[rank]],
            [state[at] for at in cut.state[rank]],
        )
        for rank, role in enumerate(cut.roles)
    ]
    under_way: list[tuple[int, int, Any]] = []
    while True:
        for rank, one in enumerate(roles):
            for place in list(one.unsent):
                slot = one.role.program.outputs[place].index
                if slot in one.values:
                    one.unsent.remove(place)
                    target = one.role.targets[place]
                    letters = [at for at, t in enumerate(one.role.targets) if t == target]
                    number = letters.index(place)
                    arriving = roles[target].role
                    place_there = [at for at, s in enumerate(arriving.sources) if s == rank][number]
                    value = one.values[slot].detach().clone()
                    assert one.values[slot].grad_fn is None
                    under_way.append((target, place_there, value))
        moves: list[Any] = [one for one in roles if one.can_act()] + under_way
        if not moves:
            break
        move = draw.choice(moves)
        if isinstance(move, SimulatedRole):
            move.act()
        else:
            under_way = [each for each in under_way if each is not move]
            target, place, value = move
            roles[target].waiting.remove(place)
            roles[target].values[place] = value
    for one in roles:
        assert one.at == len(one.role.program.actions), f"{one.role.name} waits for ever"
        assert not one.waiting and not one.unsent
    found = []
    for rank, kept in cut.outputs:
        role = roles[rank].role
        found.append(roles[rank].values[role.program.outputs[role.kept_outputs[kept]].index])
    return found
