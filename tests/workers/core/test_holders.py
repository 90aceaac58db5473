"""What a store holds that is no tensor: kept, found and guarded as tensors are."""

from __future__ import annotations

from typing import Any

import torch

from syft.exceptions import PermissionDenied
from syft.workers.core.state_machine import WorkerCore
from syft.workers.core.holders import Holder
from syft.workers.wire.messages import Annotate, Describe, Done, Duplicate, Search
from syft.workers.core.permissions import (
    Guard,
    full_guard_of,
    guard_of,
    memory_of,
    protect,
    set_guard,
    travelling_guard_of,
)
from tests.workers.core.peers import ask, command, lonely, ref, value_in

ANN, BEA = Guard(frozenset({"ann", "bea"})), Guard(frozenset({"bea"}))


class Pair(Holder):
    """Two tensors."""

    def __init__(self, *parts: torch.Tensor) -> None:
        super().__init__({"#pair"}, None)
        self.parts = parts

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self.parts

    def duplicate(self) -> Pair:
        return Pair(*(part.clone() for part in self.parts))

    def card(self) -> Any:
        return "a pair"

    def admit(self, core: WorkerCore) -> None:
        raise PermissionDenied("put", core.name, None)


def test_a_holder_is_as_private_as_what_it_holds() -> None:
    one, two = torch.ones(2), torch.zeros(2)
    pair = Pair(one, two)
    assert full_guard_of(pair) is None and travelling_guard_of(pair) is None
    set_guard(one, ANN)
    set_guard(two, BEA)
    assert full_guard_of(pair) == BEA
    other = Pair(torch.ones(1), torch.ones(1, requires_grad=True))
    other.parts[1].grad = torch.ones(1)
    protect(other.parts[1].grad, ANN)
    assert full_guard_of(other) is None and travelling_guard_of(other) == ANN
    set_guard(other, BEA)
    assert all(guard_of(part) == BEA for part in other.parts)
    protect(other, BEA)
    assert full_guard_of(other.parts[0][:1]) == BEA  # its memory is guarded
    assert memory_of(pair) == memory_of(one) | memory_of(two)


def test_it_is_held_found_described_and_copied() -> None:
    core = lonely()
    pair = Pair(torch.ones(2))
    set_guard(pair.parts[0], BEA)
    core.hold(5, pair)
    assert core.guarded
    assert ask(core, Annotate(1, 5, ("#more",), "two")) == Done(1)
    assert pair.tags == {"#pair", "#more"} and pair.description == "two"
    card = (["#more", "#pair"], "two", None, "a pair")
    assert value_in(core, Describe(1, 5)) == card
    assert value_in(core, Search(1, ("#pair",))) == [(5, *card)]
    assert ask(core, Duplicate(1, 5, 6)) == Done(1)
    assert full_guard_of(core.store.read(6)) == BEA
    assert type(ask(core, command("torch.Tensor.neg", ref(5), out=7))).__name__ == "Failure"
    assert sorted(core.store.objects) == [5, 6]
