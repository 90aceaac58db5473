"""What a store holds that is no tensor: kept, found and guarded as tensors are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.exceptions import MalformedMessage, PermissionDenied
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.handlers import objects
from syft.workers.labels.guards import Guard
from syft.workers.labels.holders import Holder
from syft.workers.labels.memory_labels import full_guard_of, protect, travelling_guard_of
from syft.workers.labels.walk import memory_of
from syft.workers.wire.definitions import Group, InputKind
from syft.workers.wire.messages import (
    COUNT_SHIFT,
    GRAD_MODE,
    Annotate,
    Describe,
    Done,
    Duplicate,
    Fetch,
    Move,
    Put,
    Run,
    Search,
)
from tests.workers.core.peers import ask, command, error_in, lonely, put, ref, value_in

ANN, BEA = Guard(frozenset({"ann", "bea"})), Guard(frozenset({"bea"}))


class Pair(Holder):
    """Two tensors."""

    def __init__(self, *parts: torch.Tensor, description: str | None = None) -> None:
        super().__init__({"#pair"}, description)
        self.parts = parts

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self.parts

    def exchange(self, successor: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.parts = tuple(map(successor, self.parts))

    def duplicate(self) -> Pair:
        return Pair(*(part.clone() for part in self.parts))

    def summary(self) -> Any:
        return "a pair"

    def admit(self, worker: str, allow_plans: bool) -> None:
        if not allow_plans:
            raise PermissionDenied("put", worker, None)


def test_a_holder_is_as_private_as_what_it_holds() -> None:
    one, two = torch.ones(2), torch.zeros(2)
    pair = Pair(one, two)
    assert full_guard_of(pair) is None and travelling_guard_of(pair) is None
    protect(one, ANN)
    protect(two, BEA)
    assert full_guard_of(pair) == BEA
    other = Pair(torch.ones(1), torch.ones(1, requires_grad=True))
    other.parts[1].grad = torch.ones(1)
    protect(other.parts[1].grad, ANN)
    assert full_guard_of(other) is None and travelling_guard_of(other) == ANN
    protect(other, BEA)
    assert all(full_guard_of(part) == BEA for part in other.parts)
    protect(other, BEA)
    assert full_guard_of(other.parts[0][:1]) == BEA  # its memory is guarded
    assert memory_of(pair) == memory_of(one) | memory_of(two)


def test_it_is_held_found_described_and_copied() -> None:
    core = lonely()
    pair = Pair(torch.ones(2))
    protect(pair.parts[0], BEA)
    core.hold(5, pair)
    assert core.store.charges.guarded
    assert ask(core, Annotate(1, 5, ("#more",), "two")) == Done(1)
    assert pair.tags == {"#pair", "#more"} and pair.description == "two"
    summary = (["#more", "#pair"], "two", None, "a pair")
    assert value_in(core, Describe(1, 5)) == summary
    assert value_in(core, Search(1, ("#pair",))) == [(5, *summary)]
    assert ask(core, Duplicate(1, 5, 6)) == Done(1)
    assert full_guard_of(core.store.open(6)) == BEA
    assert type(ask(core, command("torch.Tensor.neg", ref(5), out=7))).__name__ == "Failure"
    assert sorted(core.store.objects) == [5, 6]


def test_the_owner_lets_it_in_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    core = lonely()
    arriving = Pair(torch.ones(2), description="two")
    monkeypatch.setattr(objects, "unpack_at", lambda *args: arriving)
    assert isinstance(error_in(ask(core, Put(1, 5, None))), PermissionDenied)
    assert not core.store.objects
    core.allow_plans = True
    assert ask(core, Put(1, 5, None, ("bea",))) == Done(1)
    assert core.store.open(5) is arriving
    assert full_guard_of(arriving.parts[0]) == Guard(BEA.users, owners=frozenset({"me"}))
    assert value_in(core, Describe(1, 5)) == (["#pair"], "two", None, "a pair")
    arriving = Pair()
    error = error_in(ask(core, Put(1, 6, None, ("bea",))))
    assert isinstance(error, MalformedMessage) and error.path == "$.users"
    assert ask(core, Put(1, 6, None)) == Done(1), "without a guard it may hold nothing"
    assert sorted(core.store.objects) == [5, 6]
    assert core.store.origins[5].readers == {"bea"} and 6 not in core.store.origins


def test_it_is_no_tensor_to_what_takes_tensors() -> None:
    core = lonely()
    core.hold(5, Pair(torch.ones(2)))
    put(core, 6, torch.ones(2))
    negative = Action(BY_NAME["torch.neg"], (Slot(0),), {}, Slot(1))
    group = Group((InputKind.REFERENCE,), Program(1, (negative,), (Slot(1),)))
    define = pack(group, Packer())
    for id, definition in ((5, define), (6, define), (5, None), (6, None)):
        reply = ask(core, Run(1, 0, (id,), 100 + id, GRAD_MODE | 1 << COUNT_SHIFT, (), definition))
        if id == 5:
            assert str(error_in(reply)) == (
                "Malformed message at $.inputs[0]: expected the id of a tensor, got a Pair."
            )
        else:
            assert reply == Done(1)
            assert value_in(core, Fetch(1, 106)).tolist() == [-1, -1]
    error = error_in(ask(core, Move(1, 5, "alice", requires_grad=True)))
    assert isinstance(error, MalformedMessage) and error.path == "$.requires_grad"
    assert sorted(core.store.objects) == [5, 6]
