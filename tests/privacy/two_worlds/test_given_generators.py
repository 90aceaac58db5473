"""Attack 6, continued: a generator is given, and a private command draws from it.

A generator travels as a seed, another one from each place where it is named.  Where it is an input
of a program it is one object, from which all actions draw; where an action names it, the next run
of that action does.  How many numbers a kernel takes may follow from the values it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import pytest
import torch

import syft as sy
from syft.program.program import Action, Program, Slot
from tests.privacy.two_worlds.attacks import Attack, action, check, check_reaches
from tests.privacy.two_worlds.observer import Observer
from tests.privacy.two_worlds.world import OWNER

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of some of this


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(7)


Given = torch.Generator | Slot
Drawing = Callable[[Observer, Given], tuple[Any, Action]]
"""A private input, and an action that draws for it into slot 1."""


def poisson(eve: Observer, given: Given) -> tuple[Any, Action]:
    rates = eve.secret(torch.full((9,), 0.5), torch.full((9,), 90.0))
    return rates, action("torch.poisson", Slot(0), given, out=Slot(1))


def binomial(eve: Observer, given: Given) -> tuple[Any, Action]:
    counts = eve.secret(torch.full((9,), 1.0), torch.full((9,), 50.0))
    chance = action("torch.binomial", Slot(0), Slot(0), generator=given, out=Slot(1))
    return counts, chance


def bernoulli(eve: Observer, given: Given) -> tuple[Any, Action]:
    """It fails for what is no probability, before or after it has drawn."""
    chances = eve.secret(torch.full((9,), 0.5), torch.full((9,), 7.0))
    return chances, action("torch.bernoulli", Slot(0), generator=given, out=Slot(1))


def multinomial(eve: Observer, given: Given) -> tuple[Any, Action]:
    weights = eve.secret(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1.0, -1.0, 7.0]))
    return weights, action("torch.multinomial", Slot(0), 1, generator=given, out=Slot(1))


def normal(eve: Observer, given: Given) -> tuple[Any, Action]:
    spreads = eve.secret(torch.full((9,), 1.0), torch.full((9,), -1.0))
    return spreads, action("torch.normal", 0.0, Slot(0), generator=given, out=Slot(1))


def gamma(eve: Observer, given: Given) -> tuple[Any, Action]:
    shapes = eve.secret(torch.full((9,), 0.1), torch.full((9,), 9.0))
    return shapes, action("torch._standard_gamma", Slot(0), given, out=Slot(1))


DRAWINGS: tuple[Drawing, ...] = (poisson, binomial, bernoulli, multinomial, normal, gamma)


def rand(given: Given, slot: int) -> Action:
    """A public draw."""
    return action("torch.rand", 3, generator=given, out=Slot(slot))


def read(eve: Observer, made: Any) -> None:
    """Ask for each of some results."""
    for reference in made if isinstance(made, list) else ():
        eve.fetch(reference.id)


def in_one_program(drawing: Drawing) -> Attack:
    def attack(eve: Observer) -> None:
        it, draws = drawing(eve, Slot(1))
        actions = changed(draws, out=Slot(2)), rand(Slot(1), 3)
        program = Program(2, actions, (Slot(2), Slot(3)))
        read(eve, eve.group(program, [it, seeded()], 2))

    return attack


def in_the_next_run(drawing: Drawing) -> Attack:
    """A plan is run on private data, and then on public data."""

    def attack(eve: Observer) -> None:
        it, draws = drawing(eve, seeded())
        program = Program(1, (draws,), (Slot(1),))
        plan = eve.stored_plan(program, 1)
        for other in (chances(eve), it, chances(eve)):
            read(eve, eve.run_plan(plan, program, [other], 1))

    return attack


def by_the_owner(drawing: Drawing) -> Attack:
    """The owner may see what she draws, and the observer draws next."""

    def attack(eve: Observer) -> None:
        it, draws = drawing(eve, seeded())
        program = Program(1, (draws,), (Slot(1),))
        plan = eve.stored_plan(program, 1)
        eve.run_plan(plan, program, [it], 1, sender=OWNER)
        read(eve, eve.run_plan(plan, program, [chances(eve)], 1))

    return attack


def chances(eve: Observer) -> Any:
    """What each of these can draw for."""
    return eve.public(torch.ones(9))


def in_a_branch(eve: Observer) -> None:
    """Whether the owner draws at all is decided by what only she may see."""
    it = eve.secret(torch.tensor(True), torch.tensor(False))
    given = seeded()
    draws = Program(0, (rand(given, 0),), Slot(0))
    none = Program(0, (action("torch.zeros", 3, out=Slot(0)),), Slot(0))
    decides = action("syft.ops.control.cond", Slot(0), draws, none, [], out=Slot(1))
    program = Program(1, (decides, rand(given, 2)), (Slot(1), Slot(2)))
    plan = eve.stored_plan(program, 2)
    eve.run_plan(plan, program, [it], 2, sender=OWNER)
    read(eve, eve.run_plan(plan, program, [eve.public(torch.tensor(False))], 2))


def in_a_loop(eve: Observer) -> None:
    """How often the owner draws is decided by what only she may see."""
    it = eve.secret(torch.tensor(1.0), torch.tensor(3.0))
    given = seeded()
    more = Program(1, (action("torch.gt", Slot(0), 0, out=Slot(1)),), Slot(1))
    body = (rand(given, 1), action("torch.sub", Slot(0), 1, out=Slot(2)))
    step = Program(1, body, (Slot(2),))
    loops = action("syft.ops.control.while_loop", more, step, (Slot(0),), out=(Slot(1),))
    program = Program(1, (loops, rand(given, 2)), (Slot(1), Slot(2)))
    plan = eve.stored_plan(program, 2)
    eve.run_plan(plan, program, [it], 2, sender=OWNER)
    read(eve, eve.run_plan(plan, program, [eve.public(torch.tensor(0.0))], 2))


def on_a_chain(eve: Observer) -> None:
    """The owner draws for a chain, of which there is no prediction, from the worker's own
    stream."""
    it = eve.secret(*(sy.LoggingTensor().on(torch.full((9,), rate)) for rate in (0.5, 90.0)))
    eve.call("torch.poisson", it, sender=OWNER)
    eve.call("torch.rand", 3)


ATTACKS = (
    *(
        pytest.param(way(drawing), id=f"{drawing.__name__}-{way.__name__}")
        for way, drawings in (
            (in_one_program, DRAWINGS),
            (in_the_next_run, DRAWINGS),
            (by_the_owner, (poisson, binomial, gamma)),  # she is told that others fail
        )
        for drawing in drawings
    ),
    in_a_branch,
    in_a_loop,
    on_a_chain,
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_given_generator_tells_nothing(attack: Attack) -> None:
    check(attack)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_given_generator_is_reached(attack: Attack) -> None:
    check_reaches(attack)
