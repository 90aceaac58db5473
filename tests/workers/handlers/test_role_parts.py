"""Programs cut into parts: every order of arrival gives the same, and none takes long to cut."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch

from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.program.role_program import RoleProgram
from syft.workers.handlers import role_parts
from syft.workers.handlers.programs import lowered
from syft.workers.handlers.role_parts import PartedProgram, parted

S = Slot


def op(name: str, *args: Any, out: Any = None) -> Action:
    return Action(BY_NAME[name], args, {}, out)


def drawn(seed: int) -> Program:
    """A program of three inputs and a constant, with views and writes of them."""
    chosen = random.Random(seed)
    actions: list[Action] = []
    slots = [0, 1, 2, 3]
    for _ in range(chosen.randint(3, 10)):
        one, other = (chosen.choice(slots) for _ in range(2))
        out = 4 + len(slots) - 4
        kind = chosen.randrange(6)
        if kind == 0:
            actions.append(op("torch.Tensor.add_", S(one), S(other)))
            continue
        made = [
            op("torch.Tensor.view", S(one), 2, 2, out=S(out)),
            op("torch.Tensor.expand_as", S(one), S(other), out=S(out)),
            op("torch.add", S(one), S(other), out=S(out)),
            op("torch.Tensor.t", S(one), out=S(out)),
            op("torch.Tensor.clone", S(one), out=S(out)),
        ]
        actions.append(made[kind - 1])
        slots.append(out)
    outputs = tuple(S(slot) for slot in slots)
    return Program(3, tuple(actions), outputs, 0, (torch.ones(2, 2),))


def given(program: Program) -> list[torch.Tensor]:
    tensors = [torch.arange(4.0).view(2, 2) + 10 * place for place in range(program.inputs)]
    return [*tensors, *(constant.clone() for constant in program.constants)]


def whole(program: Program) -> list[list[float]]:
    values = given(program)
    own = program.on(values[program.inputs :])
    return [value.tolist() for value in lowered(own).run(values[: program.inputs])]


def run_in_parts(program: Program, cut: PartedProgram, order: Any) -> list[list[float]]:
    """The outputs, each copied as soon as it is there, if inputs come in an order."""
    arriving, values = given(program), {}
    values.update({slot: arriving[slot] for slot in range(program.inputs, program.given)})
    came: set[int] = set()
    ended: set[int] = set()
    found: dict[int, list[float]] = {}
    for place in (None, *order):
        if place is not None:
            values[place] = arriving[place]
            came.add(place)
        for at, part in enumerate(cut.parts):
            if at not in ended and part.needs <= came and part.after <= ended:
                results = part.program.run([values[slot] for slot in part.takes])
                values.update(zip(part.makes, results, strict=True))
                ended.add(at)
            for index, output in enumerate(program.outputs):
                there = output.index in values and cut.outputs[index] <= ended
                if there and index not in found:
                    found[index] = values[output.index].tolist()
        for index, output in enumerate(program.outputs):  # of a program without parts
            there = output.index in values and cut.outputs[index] <= ended
            if there and index not in found:
                found[index] = values[output.index].tolist()
    return [found[index] for index in range(len(program.outputs))]


@pytest.mark.parametrize("of_users", [(), (0, 1, 2)])
def test_every_order_of_arrival_gives_the_same(of_users: tuple[int, ...]) -> None:
    several = 0
    for seed in range(300):
        program = drawn(seed)
        try:
            expected = whole(program)
        except RuntimeError:  # it writes to an expanded view, or through memory of two
            continue
        cut = parted(program, of_users)
        several += len(cut.parts) > 1
        for order in itertools.permutations(range(3)):
            assert run_in_parts(program, cut, order) == expected, (seed, order)
    assert several > 30


@pytest.mark.parametrize("limit", ["_MOST_STEPS", "_MOST_FOLLOWED"])
def test_a_program_that_would_take_long_is_one_part(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = []
    for most in (getattr(role_parts, limit), 5):
        monkeypatch.setattr(role_parts, limit, most)
        cuts.append([parted(drawn(seed), ()) for seed in range(40)])
    assert {len(cut.parts) for cut in cuts[1]} == {1} < {len(cut.parts) for cut in cuts[0]}
    for seed in range(40):
        try:
            expected = whole(drawn(seed))
        except RuntimeError:
            continue
        cut = cuts[1][seed]
        assert run_in_parts(drawn(seed), cut, (2, 0, 1)) == expected
        assert not any(cut.alone) and cut.in_order, "nothing is known of it"


COUNT = 4000


def views() -> Program:
    actions = (op("torch.Tensor.view", S(at), -1, out=S(at + 1)) for at in range(COUNT))
    return Program(1, tuple(actions), tuple(S(at) for at in range(COUNT)))


def sums() -> Program:
    actions = (op("torch.Tensor.add_", S(0), S(at)) for at in range(COUNT))
    return Program(COUNT, tuple(actions), (S(0),))


def test_what_is_recorded_takes_few_steps_to_cut() -> None:
    assert role_parts._Order(views(), ())._steps < 5 * COUNT
    cut = parted(sums(), ())
    assert len(cut.parts) == COUNT, "each is there for its own input"
    assert sum(len(part.needs) + len(part.after) for part in cut.parts) < 5 * COUNT


def test_a_program_whose_memory_is_everywhere_is_one_part() -> None:
    """Each result may be a view of each input, and each action touches them all."""
    inputs = [S(at) for at in range(COUNT)]
    every = op("torch.broadcast_tensors", *inputs, out=tuple(S(COUNT + at) for at in range(COUNT)))
    writes = (op("torch.Tensor.add_", S(COUNT + at), 1) for at in range(COUNT))
    cut = parted(Program(COUNT, (every, *writes), (S(COUNT),)), ())
    assert len(cut.parts) == 1 and cut.outputs == (frozenset({0}),)


def test_letters_are_counted_in_one_pass() -> None:
    many = 200_000
    role = RoleProgram("bob", Program(many, (), ()), (1,) * many, ())
    assert role.letters_from[1] == tuple(range(many))
