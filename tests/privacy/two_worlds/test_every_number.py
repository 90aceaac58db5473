"""Attack 6 on the whole op table: a private tensor for each number of each operation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from syft.ops.nested import leaves, replace
from tests.privacy.two_worlds.attacks import SHARES, Attack, check_all, drawn
from tests.privacy.two_worlds.observer import Observer
from tests.privacy.two_worlds.samples import Sample, Samples, can_travel

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of some of this


def other_number(number: float) -> torch.Tensor:
    """Another number of the same kind, as a tensor of the dtype that torch gives the first one."""
    if isinstance(number, bool):
        return torch.tensor(not number)
    return torch.tensor(number + 1 if isinstance(number, int) else number * 0.5 + 0.125)


def numbers_in(sample: Sample) -> list[float]:
    """The Python numbers among the arguments, in order."""
    return [leaf for leaf in leaves((sample.args, sample.kwargs)) if is_number(leaf)]


def is_number(leaf: Any) -> bool:
    return type(leaf) in (bool, int, float)


def with_private_number(sample: Sample, place: int) -> Attack:
    """The sample with a private tensor for its number ``place``."""

    def attack(eve: Observer) -> None:
        number = -1

        def put(leaf: Any) -> Any:
            nonlocal number
            if isinstance(leaf, torch.Tensor):
                return eve.public(leaf.detach())
            if not is_number(leaf):
                return leaf
            number += 1
            if number != place:
                return leaf
            return eve.secret(torch.tensor(leaf), other_number(leaf))

        args, kwargs = replace((sample.args, sample.kwargs), put)
        eve.call(sample.name, *args, **kwargs)
        eve.call("torch.rand", 3)
        for id in list(eve.known["bob"]):
            eve.describe(id)
            if id not in eve.private:
                eve.fetch(id)
        eve.known.clear()  # everything has been looked at

    return attack


def every_number(samples: Samples) -> Iterator[tuple[str, Attack]]:
    """Each operation of the table with a private tensor for each of its numbers."""
    for name in samples.names:
        found = samples.of(name, torch.float32, False)
        richest = max(found, key=lambda one: len(numbers_in(one)), default=None)
        if richest is not None and can_travel(richest):
            for place, _ in enumerate(numbers_in(richest)):
                yield f"{name}[{place}]", with_private_number(richest, place)


@pytest.mark.parametrize("share", SHARES)
def test_every_number_of_every_operation(share: float, request: pytest.FixtureRequest) -> None:
    attacks = dict(every_number(Samples()))
    assert len(attacks) > 700
    check_all(drawn(attacks, request.config.option.seed, share))
