"""Values share registers when no later action reads the one that was there."""

from __future__ import annotations

from typing import Any

import pytest

from syft.exceptions import UnknownOperation
from syft.ops.table import BY_NAME, FUNCTIONS
from syft.program.flow import liveness_of
from syft.program.program import Action, Program, Slot
from syft.program.register_allocation import RegisterAllocator, function_of_action


def act(name: str, *args: Any, out: Any = None, **kwargs: Any) -> Action:
    return Action(BY_NAME[f"torch.{name}"], args, kwargs, out)


def allocator(program: Program) -> RegisterAllocator:
    def lower(nested: Program) -> Any:
        raise AssertionError(nested)

    return RegisterAllocator(program, lambda action: function_of_action(action, FUNCTIONS), lower)


def test_reads_inside_containers_and_keywords_count() -> None:
    actions = (
        act("cat", [Slot(0), Slot(1)], out=Slot(3)),
        act("add", Slot(3), Slot(0), out=Slot(4), alpha=Slot(2)),
    )
    liveness = liveness_of(Program(3, actions, Slot(4)))
    assert liveness.last_reads == {0: [1], 1: [0, 3, 2]}
    assert liveness.read == {0, 1, 2, 3, 4}


def test_outputs_and_state_are_never_freed() -> None:
    action = act("add", Slot(0), Slot(1), out=Slot(2))
    assert liveness_of(Program(1, (action,), (Slot(0), Slot(2)), state=1)).last_reads == {}


def test_a_result_takes_the_register_of_a_dead_operand() -> None:
    first, second = act("neg", Slot(0), out=Slot(1)), act("neg", Slot(1), out=Slot(2))
    registers = allocator(Program(1, (first, second), Slot(2)))
    assert registers.instruction(0, first)[1:] == (0, -1, 0, None)
    assert registers.instruction(1, second)[1:] == (0, -1, 0, None)
    assert registers.initial == [None]


def test_a_result_does_not_replace_an_operand_that_is_read_later() -> None:
    first, second = act("neg", Slot(0), out=Slot(1)), act("add", Slot(0), Slot(1), out=Slot(2))
    registers = allocator(Program(1, (first, second), Slot(2)))
    assert registers.instruction(0, first)[1:] == (0, -1, 1, None)
    assert registers.instruction(1, second)[1:] == (0, 1, 0, None)


def test_an_unknown_op_is_refused() -> None:
    with pytest.raises(UnknownOperation):
        function_of_action(Action(10**6, (), {}, None), FUNCTIONS)
