"""Programs are frozen data with an equality that looks into constants."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from syft.ops.table import BY_NAME
from syft.program.program import Action, Mode, Program, Slot, fill_slots, slot_values, slots_in

NEG = Action(BY_NAME["torch.neg"], (Slot(0),), {}, Slot(1))


def test_they_are_frozen() -> None:
    for value in (Slot(0), NEG, Mode(True), Program(1, (NEG,), Slot(1))):
        field = dataclasses.fields(value)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field, 7)


def test_an_action_has_the_name_of_its_op() -> None:
    assert NEG.name == "torch.neg"
    assert Action(10**6, (), {}, None).name == "op 1000000"
    assert Action(-1, (), {}, None).name == "op -1"


def test_inputs_state_and_constants_are_given() -> None:
    assert Program(2, (NEG,), Slot(1), 1, (torch.ones(1),)).given == 4


def test_slots_are_found_wherever_they_are() -> None:
    operand = ([Slot(3), {"a": (Slot(1),)}], slice(None, Slot(2), None), 4, None, "x")
    assert list(slots_in(operand)) == [Slot(3), Slot(1), Slot(2)]
    assert sorted([Slot(2), Slot(1)]) == [Slot(1), Slot(2)] and len({Slot(1), Slot(1)}) == 1


def with_constant(*constants: torch.Tensor) -> Program:
    return Program(1, (NEG,), Slot(1), 0, constants)


def test_equality_looks_into_constants() -> None:
    one = with_constant(torch.ones(2))
    assert one == one and one == with_constant(torch.ones(2))
    assert with_constant(torch.eye(2).to_sparse()) == with_constant(torch.eye(2).to_sparse())
    for other in (torch.zeros(2), torch.ones(2).double(), torch.ones(1, 2), torch.ones(2)[:1]):
        assert one != with_constant(other)
    assert with_constant(torch.eye(2)) != with_constant(torch.eye(2).to_sparse())
    assert one != with_constant() and one != with_constant(torch.ones(2), torch.ones(2))
    assert one != Program(2, (NEG,), Slot(1), 0, one.constants) and one != NEG


def test_lines_do_not_count() -> None:
    assert Program(1, (NEG,), Slot(1), lines=("a:1",)) == Program(1, (NEG,), Slot(1))


def test_slots_are_filled_and_matched_with_values() -> None:
    pattern = ({"a": Slot(0), "b": [1, slice(Slot(1), None)]}, Slot(0))
    assert fill_slots(pattern, {0: "x", 1: 5}) == ({"a": "x", "b": [1, slice(5, None)]}, "x")
    assert list(slot_values((Slot(3), (None, Slot(4))), [1, (2, 3)])) == [(3, 1), (4, 3)]
    assert list(slot_values(None, 7)) == [] and list(slot_values((), ())) == []
