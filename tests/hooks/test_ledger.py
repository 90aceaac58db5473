"""The ledger of what was added to torch."""

from __future__ import annotations

import pytest

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
