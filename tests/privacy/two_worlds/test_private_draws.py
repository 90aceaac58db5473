"""Attack 6, continued: the secret decides how many random numbers are drawn.

Everybody at a worker draws from one generator, so what anybody draws next tells.
"""

from __future__ import annotations

import pytest
import torch

from tests.privacy.two_worlds.attacks import (
    Attack,
    check,
    check_reaches,
    ones,
    real,
    secret,
    whole,
)
from tests.privacy.two_worlds.observer import Observer

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of some of this


def drawn_after(eve: Observer) -> None:
    """What anybody draws next tells how much was drawn."""
    eve.call("torch.rand", 3)


def dropout(eve: Observer) -> None:
    eve.call("torch.nn.functional.dropout", ones(eve), real(eve, 0.0, 0.5))
    drawn_after(eve)


def permutation(eve: Observer) -> None:
    eve.call("torch.randperm", whole(eve, 3, 9))
    drawn_after(eve)


def random_size(eve: Observer) -> None:
    eve.call("torch.rand", whole(eve, 3, 9))
    drawn_after(eve)


def poisson(eve: Observer) -> None:
    eve.call("torch.poisson", eve.secret(torch.full((9,), 0.5), torch.full((9,), 90.0)))
    drawn_after(eve)


def binomial(eve: Observer) -> None:
    chance = eve.secret(torch.full((9,), 0.01), torch.full((9,), 0.5))
    eve.call("torch.binomial", eve.public(torch.full((9,), 50.0)), chance)
    drawn_after(eve)


def bernoulli(eve: Observer) -> None:
    eve.call("torch.bernoulli", eve.secret(torch.zeros(9), torch.full((9,), 0.5)))
    drawn_after(eve)


def multinomial(eve: Observer) -> None:
    weights = eve.secret(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 7.0]))
    eve.call("torch.multinomial", weights, 1)
    drawn_after(eve)


def normal(eve: Observer) -> None:
    eve.call("torch.normal", secret(eve), 1.0)
    drawn_after(eve)


def random_of_a_private_size(eve: Observer) -> None:
    """The secret decides how many there are, and that many numbers are drawn."""
    private = secret(eve)
    chosen = eve.call("torch.masked_select", private, eve.call("torch.gt", private, 1))
    eve.call("torch.rand_like", chosen)
    drawn_after(eve)


def dropout_of_a_private_size(eve: Observer) -> None:
    private = secret(eve)
    chosen = eve.call("torch.masked_select", private, eve.call("torch.gt", private, 1))
    eve.call("torch.nn.functional.dropout", chosen, 0.5)
    drawn_after(eve)


def beta(eve: Observer) -> None:
    eve.call("torch._sample_dirichlet", eve.secret(torch.full((3,), 0.1), torch.full((3,), 9.0)))
    drawn_after(eve)


def gamma(eve: Observer) -> None:
    eve.call("torch._standard_gamma", eve.secret(torch.full((9,), 0.1), torch.full((9,), 9.0)))
    drawn_after(eve)


def leaky_slopes(eve: Observer) -> None:
    """Numbers are drawn for what is negative."""
    eve.call("torch.nn.functional.rrelu", secret(eve), 0.1, 0.3, True)
    drawn_after(eve)


def geometric(eve: Observer) -> None:
    eve.call("torch.Tensor.geometric_", ones(eve), real(eve, 0.5, 0.9), grad=False)
    drawn_after(eve)


ATTACKS: tuple[Attack, ...] = (
    binomial,
    gamma,
    dropout,
    permutation,
    random_size,
    poisson,
    bernoulli,
    multinomial,
    normal,
    leaky_slopes,
    geometric,
    random_of_a_private_size,
    dropout_of_a_private_size,
    beta,
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_drawn_later_tells_nothing(attack: Attack) -> None:
    check(attack)


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_drawn_later_tells_nothing_although_they_are_read(attack: Attack) -> None:
    check_reaches(attack)
