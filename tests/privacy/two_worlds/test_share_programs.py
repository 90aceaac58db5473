"""Programs on shares of private data, in two worlds: nothing of them comes to who has them run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.crypto.programs.share_program import ShareProgram
from tests.privacy.two_worlds.attacks import check, check_reaches, named, succeeded
from tests.privacy.two_worlds.observer import Observer
from tests.privacy.two_worlds.on_shares import PARTIES, PROGRAMS, Session, known_shares, made_by

WORLDS = torch.tensor([[1, -2], [3, 4]]), torch.tensor([[5, 6], [-7, 8]])


def run(eve: Observer, program: ShareProgram, *places: str, twice: bool = False) -> None:
    """A program on shares of a secret, and of ones; then every share is asked for."""
    session = Session(eve, places)
    shares, answer = session.split(eve.secret(*WORLDS, destinations=PARTIES))
    succeeded(answer)
    results, answers = session.run(program, [shares, known_shares()])
    for told in answers:
        succeeded(told)
    if twice:
        more, _ = session.run(program, [results[0], shares])
        results += more
    for place in session.parties:
        for it in (shares, *results):
            session.fetch(it, place)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("places", [(*PARTIES, "eve"), (*PARTIES[::-1], "eve")], ids=str)
def test_a_program_on_shares_tells_nothing(
    make: Callable[[Any], list[int]], places: tuple[str, ...]
) -> None:
    program = made_by(make)
    check(lambda eve: run(eve, program, *places))
    check_reaches(lambda eve: run(eve, program, *places))


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_so_does_one_after_another(make: Callable[[Any], list[int]]) -> None:
    program = made_by(make)
    check(lambda eve: run(eve, program, *PARTIES, "eve", twice=True))


def test_shares_of_what_failed_tell_nothing() -> None:
    """Whether the index lies inside is a private value."""

    def attack(eve: Observer) -> None:
        index = eve.secret(torch.tensor([0, 1]), torch.tensor([0, 9]), destinations=PARTIES)
        found = eve.call("torch.take", eve.secret(*WORLDS, destinations=PARTIES), index)
        session = Session(eve, (*PARTIES, "eve"))
        shares, _ = session.split(eve.call("torch.Tensor.expand", found, 2, 2))
        session.run(made_by(PROGRAMS[0]), [shares, shares])
        session.fetch(shares, "bob")

    check(attack)
    check_reaches(attack)


def test_shares_go_to_no_worker_that_is_not_named() -> None:
    def attack(eve: Observer) -> None:
        session = Session(eve, ("bob", "eve", "alice"))
        shares, _ = session.split(named(eve, 2, 2, destinations=("alice",)))
        session.run(made_by(PROGRAMS[0]), [shares, shares])

    check(attack)
