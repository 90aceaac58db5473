"""What commands and programs do to their inputs: compared with what torch does to them."""

from __future__ import annotations

from typing import Any

import pytest

from syft.crypto.programs.share_program import ShareProgram
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.workers.handlers import accesses
from syft.workers.core.peer import EVERYTHING, GRADIENTS
from syft.workers.handlers.accesses import actions_inside, command_access, effects_of
from syft.workers.handlers.programs import facts_changed
from syft.workers.wire.messages import Command
from tests.workers.core.peers import command, ref

X, Y, Z = ref(5), ref(6), ref(7)

WRITES: list[tuple[Command, set[int]]] = [
    (command("torch.Tensor.add", X, Y, out=9), set()),
    (command("torch.Tensor.max", X, 0, out=9), set()),
    (command("torch.Tensor.add_", X, Y), {5}),
    (command("torch.add", X, Y, kwargs={"out": Z}), {7}),
    (command("torch.add", X, Y, out=9, kwargs={"out": None}), set()),
    (command("torch.nn.functional.relu", X, out=9), set()),
    (command("torch.nn.functional.relu", X, kwargs={"inplace": False}, out=9), set()),
    (command("torch.nn.functional.relu", X, kwargs={"inplace": True}), {5}),
    (command("torch.nn.functional.relu", X, True, out=9), {5}),
    (command("torch.nn.functional.relu", kwargs={"input": X, "inplace": True}), {5}),
    (command("torch.nn.functional.batch_norm", X, Y, Z, out=9), set()),
    (command("torch.nn.functional.batch_norm", X, Y, Z, None, None, True, out=9), {6, 7}),
    (command("torch.nn.functional.batch_norm", X, Y, Z, None, None, Z, out=9), {6, 7}),
    (
        command("torch.nn.functional.batch_norm", kwargs={"running_mean": Y, "training": True}),
        {6},
    ),
    (command("torch.nn.functional.instance_norm", X, Y, Z, out=9), {6, 7}),
    (command("torch.native_batch_norm", X, None, None, Y, Z, False, 0.1, 0.1, out=9), set()),
    (command("torch.nn.functional.embedding", X, Y, out=9), set()),
    (command("torch.nn.functional.embedding", X, Y, None, 1.0, out=9), {5, 6}),
    (command("torch.embedding", X, Y, out=9), set()),
    (command("torch._fused_sgd_", (X,), (Y,), (Z,)), {5, 6, 7}),
    (Command(1, 10**6, (X,), 9, 0), set()),
]


@pytest.mark.parametrize("message, written", WRITES, ids=str)
def test_what_a_command_may_write(message: Command, written: set[int]) -> None:
    assert set(command_access(message).writes) == written


def test_what_else_a_command_does() -> None:
    assert command_access(command("torch.Tensor.backward", X)).backward
    assert not command_access(command("torch.Tensor.backward", X)).recorded
    second = command("torch.Tensor.backward", X, kwargs={"create_graph": True})
    assert command_access(second).recorded
    assert command_access(command("torch.Tensor.grad.__get__", X, out=9)).gives_gradient
    setting = command_access(command("torch.Tensor.grad.__set__", X, Y))
    assert (setting.sets, setting.joins, setting.writes) == ({5}, True, ())
    assert command_access(command("torch.Tensor.add", X, Y, out=9)).fresh
    assert not command_access(command("torch.Tensor.view", X, 2, out=9)).fresh
    assert not command_access(command("torch.add", X, Y, kwargs={"out": Z})).fresh
    assert command_access(command("torch.nn.functional.batch_norm", X, Y, Z, out=9)).fresh


def action(name: str, *args: Any, out: Any = None, **kwargs: Any) -> Action:
    return Action(BY_NAME[name], args, kwargs, out)


A, B, C, D = (Slot(index) for index in range(4))

PROGRAMS: list[tuple[Program, set[int]]] = [
    (Program(2, (action("torch.add", A, B, out=C),), C), set()),
    (Program(2, (action("torch.Tensor.add_", B, A),), ()), {1}),
    (
        Program(2, (action("torch.add", A, B, out=C), action("torch.Tensor.add_", C, A)), C),
        set(),
    ),
    (
        Program(2, (action("torch.reshape", A, B, out=C), action("torch.Tensor.add_", C, 1)), C),
        {0, 1},
    ),
    (Program(1, (action("torch.Tensor.add_", B, 1),), (), state=1), {1}),
]


@pytest.mark.parametrize("program, written", PROGRAMS, ids=str)
def test_what_a_program_may_write(program: Program, written: set[int]) -> None:
    assert effects_of(program).writes == written


def test_a_branch_may_write_whatever_it_is_given() -> None:
    inside = Program(1, (action("torch.Tensor.add_", A, 1),), A)
    outside = Program(1, (), A)
    for branch, written in ((inside, {0, 1}), (outside, set())):
        choice = action("syft.ops.control.cond", A, branch, outside, (B,), out=C)
        effects = effects_of(Program(2, (choice,), C))
        assert effects.writes == written, "a branch that only reads is no write"
        assert (BY_NAME["torch.Tensor.add_"] in effects.ops) is bool(written)


def test_the_ids_of_a_run() -> None:
    step = Program(
        2,
        (
            action("torch.Tensor.backward", A),
            action("torch.Tensor.grad.__get__", C, out=D),
            action("torch.Tensor.sub_", C, D),
            action("torch.Tensor.grad.__set__", C, None),
        ),
        (),
        state=1,
    )
    access = effects_of(step).access([5, None], [99])
    assert access.writes == {99} and set(access.sets) == {5, 99}
    assert access.backward and access.reads_attributes and access.joins


def joined(pairs: list[tuple[int, int]], places: int, *then: Action) -> Program:
    """A program that makes each second tensor the gradient of the first."""
    actions = [action("torch.Tensor.grad.__set__", Slot(one), Slot(two)) for one, two in pairs]
    return Program(places, (*actions, *then), ())


def test_tensors_that_may_share_memory_are_written_together() -> None:
    assert effects_of(joined([(0, 1)], 5)).writes == {0, 1}
    assert effects_of(joined([(0, 1), (1, 2)], 5)).writes == {0, 1, 2}
    assert effects_of(joined([(0, 1), (3, 4)], 6)).writes == {0, 1, 3, 4}
    late = action("torch.Tensor.add_", Slot(4), 1)
    assert effects_of(joined([(0, 1)], 6, late)).writes == {0, 1, 4}
    assert effects_of(joined([(0, 1), (2, 4)], 6, late)).writes == {0, 1, 2, 4}


def test_what_is_too_large_to_be_followed_counts_as_writing_to_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program of 400 actions that join memory once took minutes to look at."""
    pairs = [(place, place + 1) for place in range(2000)]
    assert effects_of(joined(pairs, 2003)).writes == set(range(2003))
    read = Program(2, (action("torch.add", A, B, out=C),), C)
    monkeypatch.setattr(accesses, "_MOST_FOLLOWED", 1)
    effects = effects_of(read)
    assert effects.writes == {0, 1} and effects.ops == {BY_NAME["torch.add"]}


def test_a_program_of_another_vocabulary_has_no_operations_of_torch() -> None:
    """Its numbers are no places in the op table, and nobody has checked them."""
    actions = (Action(10**9, (Slot(0),), {}, Slot(1)),)
    assert [*actions_inside([ShareProgram(1, actions, ())])] == []
    assert [*actions_inside([Program(1, actions, ())])] == [*actions]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), 0),
        (("add_",), 0),
        (("backward",), GRADIENTS),
        (("add_", "grad.__set__"), GRADIENTS),
        (("backward", "resize_"), EVERYTHING),
    ],
)
def test_what_a_program_changes_of_tensors_is_what_its_operations_change(
    names: tuple[str, ...], expected: int
) -> None:
    ops = [BY_NAME[f"torch.Tensor.{name}"] for name in names]
    actions = tuple(Action(op, (Slot(0),), {}, None) for op in ops)
    program = Program(1, actions, ())
    assert facts_changed(program) == expected
    branch = Action(BY_NAME["syft.ops.control.cond"], (True, program, program, ()), {}, None)
    assert facts_changed(Program(0, (branch,), ())) == expected
