"""The ops behind branches and loops, as a program calls them."""

from __future__ import annotations

import pytest
import torch

from syft.exceptions import ProgramError
from syft.ops import control
from syft.program.lowered import Lowered
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot

ADD, SUB = (BY_NAME[f"syft.ops.numbers.{name}"] for name in ("add", "sub"))
COND, LOOP = (BY_NAME[f"syft.ops.control.{name}"] for name in ("cond", "while_loop"))


def down(*before: Action) -> Action:
    """A loop from ``Slot(0)`` down to zero, with some actions before each step."""
    step = Action(SUB, (Slot(0), 1), {}, Slot(1))
    body = Program(1, (*before, step), (Slot(1),))
    return Action(LOOP, (Program(1, (), Slot(0)), body, (Slot(0),)), {}, None)


def turns(program: Program, value: int) -> int:
    """The fewest steps that a run gets along with."""
    lowered = Lowered(program)
    for most in range(10_000):
        try:
            with control.limited(most):
                lowered.run([value])
            return most
        except ProgramError as error:
            assert f"more than {most} steps" in str(error)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("value", [0, 1, 7])
def test_each_turn_costs_its_actions(value: int) -> None:
    assert turns(Program(1, (down(),), Slot(0)), value) == 2 * value
    two = Program(1, (down(), down()), Slot(0))
    assert turns(two, value) == 2 * turns(Program(1, (down(),), Slot(0)), value)


def test_turns_of_loops_in_loops_are_counted_together() -> None:
    """Each turn of the outer one costs its two actions, the inner one, and itself."""
    inner = 2 * 7
    outer = 1 + (2 + 1 + 0 + 1 + 1)
    assert turns(Program(1, (down(),), Slot(0)), 7) == inner
    assert turns(Program(1, (down(down()),), Slot(0)), 7) == sum(
        outer + 2 * left for left in range(1, 8)
    )


def test_turns_in_branches_are_counted_too() -> None:
    inside = Program(1, (down(),), Slot(0))
    branch = Action(COND, (1, inside, inside, (Slot(0),)), {}, None)
    alone = 2 * 5
    assert turns(Program(1, (branch, branch), Slot(0)), 5) == 2 * alone


def test_loops_that_are_watched_are_counted_too() -> None:
    lowered = Lowered(Program(1, (down(down()),), Slot(0)))
    with control.limited(turns(lowered.program, 7)):
        lowered.run_with([7], lambda action, function, args, kwargs: function(*args, **kwargs))
    with control.limited(turns(lowered.program, 7) - 1), pytest.raises(ProgramError):
        lowered.run_with([7], lambda action, function, args, kwargs: function(*args, **kwargs))


def test_without_a_limit_a_loop_may_go_on() -> None:
    lowered = Lowered(Program(1, (down(),), Slot(0)))
    with pytest.raises(ProgramError), control.limited(10):
        lowered.run([10**4])
    assert lowered.run([10**4]) == 10**4  # the limit has gone, also after an error


def test_a_condition_is_a_number_or_a_tensor_of_one_element() -> None:
    first, second = (Lowered(Program(2, (), Slot(index))) for index in (0, 1))
    for pred, chosen in ((1, "a"), (0.0, "b"), (torch.tensor([[True]]), "a")):
        assert control.cond(pred, first, second, ["a", "b"]) == chosen


def test_a_gradient_that_is_there_stays() -> None:
    x = torch.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    control.ensure_grad(x)
    assert x.grad is not None and x.grad.tolist() == [3, 3]
