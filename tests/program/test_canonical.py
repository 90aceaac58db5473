"""Programs that do the same have the same fingerprint, and others have another one."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies

from syft.program.canonical import compacted, fingerprint, program_with_floats
from syft.program.lint import lint
from syft.program.lowered import Lowered
from syft.ops.table import BY_NAME
from syft.program.program import Action, Mode, Program, Slot
from syft.ops.nested import replace
from tests.program.random_programs import Case, cases


def act(name: str, *args: Any, out: Any = None, mode: Mode | None = None, **kwargs: Any) -> Action:
    return Action(BY_NAME[name], args, kwargs, out, mode)


def scaled(**changes: Any) -> Program:
    """``(x + constant) * 0.5``, with whatever is changed about it."""
    fields: dict[str, Any] = dict(
        factor=0.5, op="torch.mul", constant=torch.ones(2, 2), mode=None, kwargs={}, first=2
    )
    fields |= changes
    first = fields["first"]
    actions = (
        act("torch.add", Slot(0), Slot(1), out=Slot(first), **fields["kwargs"]),
        act(fields["op"], Slot(first), fields["factor"], out=Slot(first + 1), mode=fields["mode"]),
    )
    outputs = fields.get("outputs", Slot(first + 1))
    return Program(1, actions, outputs, 0, (fields["constant"],), lines=fields.get("lines", ()))


REFERENCE = fingerprint(scaled())
SAME: dict[str, dict[str, Any]] = {
    "another float": {"factor": 0.25},
    "lines": {"lines": ("a:1", "a:2")},
    "numbering": {"first": 7},
    "a constant elsewhere": {"constant": torch.ones(2, 2)},
    "strides": {"constant": torch.ones(2, 2).t()},
    "attributes of a constant": {"constant": torch.ones(2, 2, requires_grad=True)},
}
OTHER: dict[str, dict[str, Any]] = {
    "an int": {"factor": 1},
    "a bool": {"factor": True},
    "an op": {"op": "torch.div"},
    "a keyword": {"kwargs": {"alpha": 2}},
    "a keyword that is a float": {"kwargs": {"alpha": 2.0}},
    "a mode": {"mode": Mode(grad=False)},
    "elements": {"constant": torch.zeros(2, 2)},
    "a dtype": {"constant": torch.ones(2, 2).double()},
    "a shape": {"constant": torch.ones(4)},
    "a layout": {"constant": torch.ones(2, 2).to_sparse()},
    "outputs": {"outputs": (Slot(3),)},
    "another result": {"outputs": Slot(2)},
}


@pytest.mark.parametrize("changes", SAME.values(), ids=SAME)
def test_what_does_not_count(changes: dict[str, Any]) -> None:
    assert fingerprint(scaled(**changes)) == REFERENCE


def test_what_counts() -> None:
    prints = {name: fingerprint(scaled(**changes)) for name, changes in OTHER.items()}
    assert len(set(prints.values()) | {REFERENCE}) == len(OTHER) + 1


def test_floats_in_branches_count_because_they_stay_there() -> None:
    def branching(factor: float) -> Program:
        then = Program(1, (act("torch.mul", Slot(0), factor, out=Slot(1)),), Slot(1))
        cond = act("syft.ops.control.cond", 1, then, then, [Slot(0)], out=Slot(1))
        return Program(1, (cond,), Slot(1))

    assert fingerprint(branching(0.5)) != fingerprint(branching(0.25))
    assert program_with_floats(branching(0.5)) == (branching(0.5), [])


def test_a_generator_is_not_drawn_from() -> None:
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()

    def drawing(generator: torch.Generator) -> Program:
        return Program(0, (act("torch.rand", 2, generator=generator, out=Slot(0)),), Slot(0))

    first = fingerprint(drawing(generator))
    assert generator.get_state().equal(state) and fingerprint(drawing(generator)) == first
    assert fingerprint(drawing(torch.Generator().manual_seed(4))) != first


@given(case=cases(modes=True), gap=strategies.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_compacted_fills_gaps(case: Case, gap: int) -> None:
    program = case.program

    def spread(leaf: Any) -> Any:
        far = type(leaf) is Slot and leaf.index >= program.given
        return Slot(leaf.index * (gap + 1)) if far else leaf

    def wide(action: Action) -> Action:
        return dataclasses.replace(
            action,
            args=replace(action.args, spread),
            kwargs=replace(action.kwargs, spread),
            out=replace(action.out, spread),
        )

    sparse = dataclasses.replace(
        program,
        actions=tuple(map(wide, program.actions)),
        outputs=replace(program.outputs, spread),
    )
    assert compacted(sparse) == program == compacted(program)
    assert fingerprint(sparse) == fingerprint(program)


@given(case=cases())
@settings(max_examples=100, deadline=None)
def test_a_program_with_its_floats_outside_does_the_same(case: Case) -> None:
    program, floats = program_with_floats(case.program)
    lint(program)
    assert program.inputs == case.program.inputs + len(floats)
    values = case.values()
    inputs, state = values[: case.program.inputs], values[case.program.inputs :]
    got = Lowered(program).run([*inputs, *floats, *state])
    expected = case.plain(case.values())
    assert got["last"].equal(expected["last"])
    assert len(floats) == sum(
        type(leaf) is float
        for action in case.program.actions
        for leaf in (*action.args, *action.kwargs.values())
    )


def test_floats_are_taken_from_wherever_they_are() -> None:
    action = act("torch.add", Slot(0), [0.5, (1, 0.25)], alpha=0.125, out=Slot(1))
    program, floats = program_with_floats(Program(1, (action,), (Slot(1), 2.0)))
    assert floats == [0.5, 0.25, 0.125]
    assert program.actions[0].args == (Slot(0), [Slot(1), (1, Slot(2))])
    assert program.actions[0].kwargs == {"alpha": Slot(3)}
    assert program.actions[0].out == Slot(4) and program.outputs == (Slot(4), 2.0)


def test_equal_up_to_floats_is_equal_without_them() -> None:
    one, other = scaled(factor=0.5, constant=torch.ones(1)), scaled(constant=torch.ones(1))
    assert program_with_floats(one)[0] == program_with_floats(other)[0]
