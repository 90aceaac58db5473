"""The ledger of what was added to torch."""

from __future__ import annotations

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from syft.hooks.ledger import Attribute, Ledger
from tests.chain.refusal import refusal


class Target:
    present = 1


def test_what_was_added_is_removed_and_nothing_else() -> None:
    ledger = Ledger()
    ledger.add(Target, "one", 1)
    ledger.add(Target, "two", 2)
    assert (Target.one, Target.two) == (1, 2)
    ledger.undo()
    assert not hasattr(Target, "one")
    assert not hasattr(Target, "two")
    assert Target.present == 1
    ledger.undo()


def test_nothing_that_exists_is_replaced() -> None:
    assert refusal(lambda: Ledger().add(Target, "present", 2)) == (
        "HookError: Target.present exists already: syft never replaces what torch has."
    )
    assert Target.present == 1


def test_a_computed_attribute_gives_way_to_one_of_the_instance() -> None:
    ledger = Ledger()
    ledger.add(Target, "computed", Attribute("computed", lambda instance: type(instance).__name__))
    target = Target()
    assert target.computed == "Target"
    target.computed = "mine"
    assert target.computed == "mine"
    assert isinstance(Target.computed, Attribute)
    ledger.undo()


def test_a_computed_attribute_can_be_deleted_from_the_instance_only() -> None:
    ledger = Ledger()
    ledger.add(Target, "computed", Attribute("computed", lambda instance: 1))
    target = Target()
    target.computed = 2
    del target.computed
    assert target.computed == 1
    with pytest.raises(AttributeError, match="computed"):
        del target.computed
    ledger.undo()


def test_what_is_registered_with_torch_is_removed_too() -> None:
    calls: list[object] = []
    ledger = Ledger()
    ledger.register(register_optimizer_step_pre_hook, lambda *seen: calls.append(seen[0]))
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter])
    optimizer.step()
    ledger.undo()
    optimizer.step()
    assert calls == [optimizer]


def test_the_last_addition_is_undone_first() -> None:
    order: list[str] = []
    ledger = Ledger()
    for name in ("first", "second"):
        ledger.register(lambda text: Handle(order, text), name)
    ledger.undo()
    assert order == ["second", "first"]


class Handle:
    """What torch would return for something registered."""

    def __init__(self, order: list[str], name: str) -> None:
        self._order, self._name = order, name

    def remove(self) -> None:
        self._order.append(self._name)


def test_what_somebody_put_in_the_place_of_ours_stays() -> None:
    class Target:
        def answer(self) -> int:
            return 42

    ledger = Ledger()
    ledger.surround(Target, "answer", lambda method: lambda self: method(self) + 1)
    ours = Target.answer
    Target.answer = lambda self: ours(self) * 2  # type: ignore[method-assign]
    ledger.undo()
    assert Target().answer() == 86
