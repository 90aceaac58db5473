"""The link base class: levels, rules, and what a link answers that says nothing of its own."""

from __future__ import annotations

import copy

import torch

from syft.chain.link import PLAIN, Level, Link
from syft.chain.wrapper import first_link, wrap
from tests.chain.refusal import refusal


class Silent(Link):
    level = Level.FUNCTION


class Below(Link):
    level = Level.DISPATCH


def test_the_level_decides_the_door() -> None:
    assert Silent.at_function_level is True
    assert Below.at_function_level is False


def test_each_class_has_a_table_of_its_own_that_starts_from_its_parents() -> None:
    class Parent(Link):
        pass

    @Parent.rule(torch.add, torch.Tensor.add)
    def add(x: object) -> str:
        return "parent"

    class Child(Parent):
        pass

    assert Child.rules[torch.add] is add

    @Child.rule(torch.add)
    def add_again(x: object) -> str:
        return "child"

    assert (Parent.rules[torch.add], Child.rules[torch.add]) == (add, add_again)
    assert torch.add not in Link.rules


def test_two_rules_for_one_operation_are_refused() -> None:
    class Twice(Link):
        pass

    Twice.rule(torch.add)(lambda x: x)
    assert refusal(lambda: Twice.rule(torch.add)(lambda x: x)) == (
        f"HookError: Twice has two rules for {torch.add}: keep one of them."
    )


def test_a_link_without_rules_runs_nothing() -> None:
    x = wrap(Silent())
    assert refusal(lambda: x + 1).startswith("UnsupportedOperation: Silent has no rule for <")
    assert refusal(lambda: x + 1).endswith(": this kind of link runs nothing.")


def test_defaults() -> None:
    link = Silent()
    assert refusal(link.show) == "NotImplementedError: "
    assert repr(PLAIN) == "no link"
    assert link.place() == "Silent"
    assert link.next_in_chain() is None
    assert link.reference(None) is None
    assert link.tensor_behind() is None
    assert (link.location, link.owner, link.id, link.id_at_location) == (None, None, None, None)
    assert link.remote_links() == []
    assert link.convert(torch.ones(1), torch.add, (2,)).tolist() == [3.0]
    assert refusal(lambda: copy.deepcopy(wrap(link))) == (
        "UnsupportedOperation: Silent has no rule for copy.deepcopy: send or compute a copy."
    )


def test_a_plain_tensor_is_answered_like_a_link_that_overrides_nothing() -> None:
    assert first_link(torch.ones(1)) is PLAIN
    x = wrap(Silent())
    assert first_link(x) is x.child
    for ask in (PLAIN.get, lambda: PLAIN.move("bob"), PLAIN.remote_get, x.child.get):
        assert "this tensor is here already" in refusal(ask)


def test_the_repr_of_a_link_is_what_it_shows() -> None:
    class Shown(Link):
        def show(self) -> str:
            return "Shown>it"

    assert repr(Shown()) == "Shown>it"
    assert repr(wrap(Shown())) == "(Wrapper)>Shown>it"
