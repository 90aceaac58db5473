"""Attack 4: sums among workers that the owners of the inputs have named.

The shares that go to alice are those of ann's data, and so are the totals.  What is computed is as
private as all inputs together, goes on to no worker that one of them may not go to, and looks the
same if it could not be computed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from syft.exceptions import UnsupportedOperation
from syft.workers.wire import messages
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.arrivals import (
    Left,
    check_arrives,
    doubled,
    failed_take,
    own,
    secret_at_alice,
    twice,
)
from tests.privacy.two_worlds.attacks import check, check_reaches, named, succeeded
from tests.privacy.two_worlds.observer import Observer

Attack = Callable[[Observer], list[Left]]


def add_up(who: Observer, /, **inputs: Reference) -> list[Reference]:
    return [Reference(out) for out in who.sum_private(inputs, who.count() + 10**6)]


def sum_among_two(eve: Observer) -> list[Left]:
    here, there = add_up(eve, bob=named(eve), alice=own(eve))
    eve.call("torch.Tensor.add", there, 0, worker="alice")
    return [Left(here, "bob", plus_one, ("alice",)), Left(there, "alice", plus_one)]


def plus_one(numbers: torch.Tensor) -> torch.Tensor:
    return numbers + 1


def sum_goes_on(eve: Observer) -> list[Left]:
    here, there = add_up(eve, alice=own(eve), bob=named(eve))
    eve.move(there, "eve", "bob")
    succeeded(eve.move(here, "bob", "alice"))
    eve.move(here, "eve", "bob")
    return [Left(here, "bob", plus_one), Left(there, "bob", plus_one, ("alice",))]


def sum_of_two_secrets(eve: Observer) -> list[Left]:
    here, there = add_up(eve, bob=named(eve), alice=secret_at_alice(eve, "bob"))
    return [Left(here, "bob", twice, ("alice",)), Left(there, "alice", twice, ("bob",))]


def sum_with_what_may_go_nowhere(eve: Observer) -> list[Left]:
    """Alice's own may not go to bob, so there is no sum."""
    private = doubled(eve)
    add_up(eve, bob=private, alice=secret_at_alice(eve))
    return [Left(private, "bob", twice, ("alice",))]


def sum_with_her_worker(eve: Observer) -> list[Left]:
    private = doubled(eve)
    add_up(eve, bob=private, alice=own(eve), eve=own(eve, "eve"))
    add_up(eve, eve=own(eve, "eve"), alice=own(eve), bob=private)
    return [Left(private, "bob", twice, ("alice",))]


def sum_that_alice_starts_with_her_worker(eve: Observer) -> list[Left]:
    """Bob is told of two parties, and alice of a third one, to whom she would pass it on."""
    private = doubled(eve)
    eve.start_sum(("bob", "alice"), {"bob": private}, 77)
    eve.start_sum(("bob", "alice", "eve"), {"alice": own(eve), "eve": own(eve, "eve")}, 77)
    return [Left(private, "bob", twice, ("alice",))]


def sum_of_what_failed(eve: Observer) -> list[Left]:
    one = eve.public(torch.ones(1), "alice")
    here, there = add_up(eve, bob=failed_take(eve), alice=one)
    return [
        Left(here, "bob", lambda x: x[1:2] + 1, failed=IndexError),
        Left(there, "alice", lambda x: x[1:2] + 1, failed=IndexError),
    ]


def sum_that_fails(eve: Observer) -> list[Left]:
    """Infinity has no fixed-point number, which one party finds before the first round."""
    endless = eve.call("torch.div", named(eve), infinite_once(eve))
    here, there = add_up(eve, bob=endless, alice=own(eve))
    return [
        Left(here, "bob", plus_one, ("alice",), failed=UnsupportedOperation),
        Left(there, "alice", plus_one, failed=UnsupportedOperation),
    ]


def infinite_once(eve: Observer) -> Reference:
    """A divisor that is zero in the first world, and one in the second one."""
    return eve.secret(torch.tensor(0.0), torch.tensor(1.0), "bob", ("alice",))


def sum_that_waits(eve: Observer) -> list[Left]:
    """Alice's part waits for the object that bob moves to her; bob's part has begun."""
    moving = doubled(eve)
    eve.request(messages.Promise(eve.count(), (moving.id,), "bob"), worker="alice")
    here, there = add_up(eve, bob=named(eve), alice=moving)
    succeeded(eve.move(moving, "alice"))
    return [
        Left(here, "bob", lambda x: x * 3, ("alice",)),
        Left(there, "alice", lambda x: x * 3),
    ]


ATTACKS: tuple[Attack, ...] = (
    sum_among_two,
    sum_goes_on,
    sum_of_two_secrets,
    sum_with_what_may_go_nowhere,
    sum_with_her_worker,
    sum_that_alice_starts_with_her_worker,
    sum_of_what_failed,
    sum_that_fails,
    sum_that_waits,
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_sum_teaches_nothing(attack: Attack) -> None:
    check(attack)


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_totals_are_there(attack: Attack) -> None:
    check_arrives(attack)


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_sums_come_to_the_secret(attack: Attack) -> None:
    check_reaches(attack)
