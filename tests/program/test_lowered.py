"""Running a program does what plain torch does, in any mode, and keeps nothing too long."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from syft.exceptions import ProgramError, UnknownOperation
from syft.program.lint import lint
from syft.program.lowered import LOST, Lowered, Partial
from syft.ops.table import BY_NAME, FUNCTIONS
from syft.program.program import Action, Mode, Program, Slot, fill_slots, slot_values, slots_in
from syft.program.torch_modes import mode_context
from tests.program.random_programs import Case, cases


def act(name: str, *args: Any, out: Any = None, mode: Mode | None = None, **kwargs: Any) -> Action:
    return Action(BY_NAME[f"torch.{name}"], args, kwargs, out, mode)


def flat(outputs: Any) -> list[torch.Tensor]:
    return [outputs["last"], *outputs["some"]]


def agree(case: Case, requires_grad: bool, run_with: bool) -> None:
    lint(case.program)
    values, expected_values = case.values(requires_grad), case.values(requires_grad)
    expected = case.plain(expected_values)
    lowered = Lowered(case.program)
    for _ in range(2):  # nothing is left from the first run
        values = case.values(requires_grad)
        if run_with:
            outputs = lowered.run_with(
                values, lambda action, function, args, kwargs: function(*args, **kwargs)
            )
        else:
            outputs = lowered.run(values)
        assert outputs["plain"] == (1, None)
        for got, wanted in zip(flat(outputs), flat(expected), strict=True):
            assert got.equal(wanted) and got.requires_grad == wanted.requires_grad
    for got, wanted in zip(values, expected_values, strict=True):
        assert got.equal(wanted), "what was written to an input"


@given(case=cases())
@settings(max_examples=200, deadline=None)
def test_run_does_what_torch_does(case: Case) -> None:
    agree(case, requires_grad=False, run_with=False)


@given(case=cases())
@settings(max_examples=100, deadline=None)
def test_run_with_does_what_run_does(case: Case) -> None:
    agree(case, requires_grad=False, run_with=True)


@given(case=cases(in_place=False, modes=True))
@settings(max_examples=100, deadline=None)
def test_grad_modes(case: Case) -> None:
    agree(case, requires_grad=True, run_with=False)
    agree(case, requires_grad=True, run_with=True)
    with torch.no_grad():
        agree(case, requires_grad=True, run_with=False)
        assert not torch.is_grad_enabled()


@given(case=cases())
@settings(max_examples=50, deadline=None)
def test_constants_survive(case: Case) -> None:
    before = case.program.constants[0].clone()
    Lowered(case.program).run(case.values())
    assert case.program.constants[0].equal(before)


# ------------------------------------------------------------------------------------------ modes


SQUARE = act("matmul", Slot(0), Slot(0), out=Slot(1))


def in_mode(mode: Mode) -> torch.Tensor:
    action = act("matmul", Slot(0), Slot(0), out=Slot(1), mode=mode)
    first = Lowered(Program(1, (action,), Slot(1)))
    x = torch.ones(2, 2, requires_grad=True)
    result: torch.Tensor = first.run([x])
    again = first.run_with([x], lambda action, function, args, kwargs: function(*args, **kwargs))
    assert (again.dtype, again.is_inference(), again.requires_grad) == (
        result.dtype,
        result.is_inference(),
        result.requires_grad,
    )
    return result


def test_inference_mode() -> None:
    assert in_mode(Mode(grad=False, inference=True)).is_inference()
    assert not in_mode(Mode(grad=True)).is_inference()


def test_autocast() -> None:
    cast = Mode(grad=True, autocast=(("cpu", torch.bfloat16),))
    assert in_mode(cast).dtype == torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert in_mode(Mode(grad=True)).dtype == torch.bfloat16
        assert in_mode(Mode(grad=True, autocast=(("cpu", None),))).dtype == torch.float32


def test_the_mode_of_an_action_ends_with_it() -> None:
    inside = act("matmul", Slot(0), Slot(0), out=Slot(1), mode=Mode(grad=False))
    outside = act("matmul", Slot(0), Slot(0), out=Slot(2))
    lowered = Lowered(Program(1, (inside, outside), (Slot(1), Slot(2))))
    first, second = lowered.run([torch.ones(2, 2, requires_grad=True)])
    assert not first.requires_grad and second.requires_grad


def test_a_mode_ends_with_an_error_too() -> None:
    wrong = act("matmul", Slot(0), Slot(0), out=Slot(1), mode=Mode(grad=False))
    one = act("neg", Slot(0), out=Slot(1), mode=Mode(grad=False))
    for action in (wrong, Action(one.op, (Slot(0),) * 3, {}, Slot(1), one.mode)):
        with pytest.raises((RuntimeError, TypeError)) as caught:
            Lowered(Program(1, (action,), Slot(1))).run([torch.ones(2, 3)])
        assert torch.is_grad_enabled()
        assert caught.value.__notes__ == [f"In action 0, {action.name}."]


# ---------------------------------------------------------------------------------------- freeing


class Watch:
    """Counts the tensors alive that came out of one operation, at each of its calls."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[torch.Tensor]] = []
        self.alive: list[int] = []

    def neg(self, x: torch.Tensor, *others: torch.Tensor, **kwargs: Any) -> Any:
        self.alive.append(sum(made() is not None for made in self.made))
        result = -x
        self.made.append(weakref.ref(result))
        return result

    def functions(self) -> list[Any]:
        functions = list(FUNCTIONS)
        functions[BY_NAME["torch.neg"]] = self.neg
        return functions


def chain(length: int, **kwargs: Any) -> Program:
    actions = tuple(act("neg", Slot(i), out=Slot(i + 1), **kwargs) for i in range(length))
    return Program(1, actions, Slot(length))


@pytest.mark.parametrize("kwargs", [{}, {"mode": Mode(grad=False)}, {"out": None}])
def test_a_long_chain_holds_one_value_at_a_time(kwargs: dict[str, Any]) -> None:
    watch = Watch()
    options = {"keyword": 1} if "out" in kwargs else kwargs
    program = chain(50, **options)
    lowered = Lowered(program, watch.functions())
    lowered.run([torch.ones(2)])
    assert max(watch.alive) == 1
    watch.alive.clear()
    lowered.run_with([torch.ones(2)], lambda action, function, args, kw: function(*args, **kw))
    assert max(watch.alive) <= 1
    assert not any(made() is not None for made in watch.made), "nothing outlives the run"


def test_values_die_with_their_last_use_though_others_live() -> None:
    watch = Watch()
    actions = (
        act("neg", Slot(0), out=Slot(1)),
        act("neg", Slot(0), out=Slot(2)),
        act("neg", Slot(1), Slot(2), out=Slot(3)),  # both die here, one may stay for one action
        act("neg", Slot(3), out=Slot(4)),
        act("neg", Slot(0), out=Slot(5)),  # nobody wants this one
        act("neg", Slot(4), out=Slot(6)),
    )
    lowered = Lowered(Program(1, actions, (Slot(6), Slot(3))), watch.functions())
    outputs = lowered.run([torch.ones(2)])
    assert watch.alive == [0, 1, 2, 2, 2, 2]
    del outputs
    watch.made.clear()
    watch.alive.clear()
    lowered.run_with([torch.ones(2)], lambda action, function, args, kw: function(*args, **kw))
    assert watch.alive == [0, 1, 2, 1, 2, 2]


def test_inputs_are_not_kept() -> None:
    lowered = Lowered(Program(2, (act("neg", Slot(0), out=Slot(2)),), Slot(2)))
    first, second = torch.ones(2), torch.ones(3)
    seen = [weakref.ref(first), weakref.ref(second)]
    lowered.run([first, second])
    del first, second
    assert [ref() for ref in seen] == [None, None]


# ----------------------------------------------------------------------------------------- errors


def test_an_error_names_the_action() -> None:
    program = Program(
        1,
        (act("neg", Slot(0), out=Slot(1)), act("Tensor.matmul", Slot(1), Slot(1), out=Slot(2))),
        Slot(2),
        lines=("train.py:3", "train.py:4"),
    )
    lowered = Lowered(program)
    note = "In action 1, torch.Tensor.matmul, recorded at train.py:4."
    with pytest.raises(RuntimeError) as caught:
        lowered.run([torch.ones(2, 3)])
    assert caught.value.__notes__ == [note]
    with pytest.raises(RuntimeError) as caught:
        lowered.run_with([torch.ones(2, 3)], lambda action, f, args, kwargs: f(*args, **kwargs))
    assert caught.value.__notes__ == [note]


@pytest.mark.parametrize(
    ("out", "text"),
    [
        ((Slot(1), Slot(2)), "it gave 3 results where 2 were recorded"),
        (((Slot(1), None), None, None), "it gave one result where 2 were recorded"),
    ],
)
def test_another_number_of_results(out: Any, text: str) -> None:
    lowered = Lowered(Program(1, (act("unbind", Slot(0), out=out),), Slot(1)))
    with pytest.raises(ProgramError, match=text) as caught:
        lowered.run([torch.ones(3, 2)])
    assert str(caught.value) == f"{text} (in action 0, torch.unbind)"
    with pytest.raises(ProgramError, match=text):
        lowered.run_with([torch.ones(3, 2)], lambda action, f, args, kwargs: f(*args, **kwargs))


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_values(count: int) -> None:
    lowered = Lowered(chain(1))
    text = f"it was given {count} values, and takes 1"
    with pytest.raises(ProgramError, match=text):
        lowered.run([torch.ones(1)] * count)
    with pytest.raises(ProgramError, match=text):
        lowered.run_with([torch.ones(1)] * count, lambda action, f, args, kwargs: None)


def test_an_op_without_a_function() -> None:
    functions = list(FUNCTIONS)
    functions[BY_NAME["torch.neg"]] = None
    assert Lowered(chain(1), functions).run([torch.ones(1)]).tolist() == [-1.0]
    with pytest.raises(UnknownOperation):
        Lowered(Program(1, (Action(len(FUNCTIONS) + 1, (Slot(0),), {}, Slot(1)),), Slot(1)))


# ------------------------------------------------------------------------------ branches and loops


def control(name: str, *args: Any, out: Any) -> Action:
    return Action(BY_NAME[f"syft.ops.control.{name}"], args, {}, out)


def halving() -> Program:
    """Halves its input until its sum is below 1, and then negates it if the flag says so."""
    test = Program(
        1,
        (act("sum", Slot(0), out=Slot(1)), act("Tensor.ge", Slot(1), 1, out=Slot(2))),
        Slot(2),
    )
    body = Program(1, (act("mul", Slot(0), 0.5, out=Slot(1)),), [Slot(1)])
    then, otherwise = chain(1), Program(1, (), Slot(0))
    return Program(
        2,
        (
            control("while_loop", test, body, [Slot(1)], out=(Slot(2),)),
            control("cond", Slot(0), then, otherwise, (Slot(2),), out=Slot(3)),
        ),
        Slot(3),
    )


@given(case=cases())
@settings(max_examples=1, deadline=None)
def test_programs_inside_operands(case: Case) -> None:
    program = halving()
    lint(program)
    lowered = Lowered(program)
    for flag in (True, False, torch.tensor([True]), torch.tensor(0)):
        for size in (0, 1, 5):
            x = torch.ones(size) if size else torch.zeros(1)
            expected = x.clone()
            while expected.sum() >= 1:
                expected = expected * 0.5
            expected = -expected if flag else expected
            assert lowered.run([flag, x]).equal(expected)
            names: list[str] = []
            assert lowered.run_with([flag, x], recording(names)).equal(expected)
            assert ("torch.neg" in names) is bool(flag), "what runs inside goes through call too"
            assert names.count("torch.mul") + 1 == names.count("torch.Tensor.ge")


def recording(names: list[str]) -> Any:
    def call(action: Action, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        names.append(action.name)
        return function(*args, **kwargs)

    return call


def test_an_error_inside_a_branch_names_both_actions() -> None:
    wrong = Program(1, (act("matmul", Slot(0), Slot(0), out=Slot(1)),), Slot(1))
    program = Program(1, (control("cond", 1, wrong, wrong, [Slot(0)], out=Slot(1)),), Slot(1))
    with pytest.raises(RuntimeError) as caught:
        Lowered(program).run([torch.ones(2, 3)])
    assert caught.value.__notes__ == [
        "In action 0, torch.matmul.",
        "In action 0, syft.ops.control.cond.",
    ]


# ---------------------------------------------------------------------------------------- nesting


def test_every_kind_of_nesting_in_operands_and_outputs() -> None:
    index = (slice(Slot(1), None), None)
    program = Program(
        2,
        (act("Tensor.__getitem__", Slot(0), index, out=Slot(2)),),
        {"slice": slice(Slot(1), 9), "list": [Slot(2), (Slot(2), 5)], "plain": [1]},
    )
    x = torch.arange(4.0)
    outputs = Lowered(program).run([x, 1])
    assert outputs["slice"] == slice(1, 9) and outputs["plain"] == [1]
    assert outputs["list"][0].equal(x[1:, None]) and outputs["list"][1][1] == 5
    pair = torch.return_types.max((Slot(0), Slot(1)))  # type: ignore[arg-type]
    assert type(Lowered(Program(2, (), pair)).run([1, 2])) is torch.return_types.max


def test_results_in_results() -> None:
    x, h, c = torch.ones(1, 2), torch.zeros(1, 3), torch.zeros(1, 3)
    w, v = torch.ones(12, 2), torch.ones(12, 3)
    action = act("lstm_cell", Slot(0), (Slot(1), Slot(2)), Slot(3), Slot(4), out=(None, Slot(5)))
    got = Lowered(Program(5, (action,), Slot(5))).run([x, h, c, w, v])
    assert got.equal(torch.lstm_cell(x, (h, c), w, v)[1])


class _Failing:
    """The functions of the op table, of whose calls one raises."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.functions = [None if one is None else self._counted(one) for one in FUNCTIONS]

    def _counted(self, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == -1:
                raise ArithmeticError("this one")
            return function(*args, **kwargs)

        return call


def _without(program: Program, values: list[Any], failed: int) -> dict[int, Any]:
    """What each slot holds if an action fails, and those that depend on it do not run."""
    slots = dict(enumerate((*values, *program.constants)))
    for index, action in enumerate(program.actions):
        used = [slot.index for slot in slots_in((action.args, action.kwargs))]
        if index == failed or any(slots[slot] is LOST for slot in used):
            slots.update((slot.index, LOST) for slot in slots_in(action.out))
            continue
        with mode_context(action.mode):
            args, kwargs = fill_slots((action.args, action.kwargs), slots)
            slots.update(slot_values(action.out, FUNCTIONS[action.op](*args, **kwargs)))
    return slots


@given(case=cases(), number=st.integers(0, 40), run_with=st.booleans(), all_kept=st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_program_that_goes_on_loses_what_depends_on_a_failure(
    case: Case, number: int, run_with: bool, all_kept: bool
) -> None:
    steps = case.program.actions
    made = [slot for action in steps for slot in slots_in(action.out)]
    outputs = tuple(made if all_kept else made[-2:])
    program = dataclasses.replace(case.program, outputs=outputs)
    assume(steps)
    failed = number % len(steps)
    lowered = Lowered(program, _Failing(failed).functions, goes_on=True)
    values, alike = case.values(False), case.values(False)
    result = lowered.run_with(values, _plainly) if run_with else lowered.run(values)
    expected = _without(program, alike, failed)
    assert type(result) is Partial and result.action == failed
    assert str(result.failure) == "this one"
    for slot, got in zip(outputs, result, strict=True):
        wanted = expected[slot.index]
        assert got is wanted if wanted is LOST else got.equal(wanted)
    for got, wanted in zip(values, alike, strict=True):
        assert got.equal(wanted), "what was written to an input"


def _plainly(action: Action, function: Any, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)


def test_an_error_names_some_of_the_actions_that_fail_after_it_and_counts_the_others() -> None:
    fails = [act("add", Slot(0), Slot(1), out=Slot(2 + index)) for index in range(50)]
    program = Program(2, tuple(fails), tuple(action.out for action in fails))
    result = Lowered(program, goes_on=True).run([torch.ones(2), torch.ones(3)])
    assert set(result) == {LOST}
    notes = result.failure.__notes__
    assert notes[0] == "In action 0, torch.add." and len(notes) == 10
    assert notes[1].startswith("Action 1, torch.add, failed by itself: RuntimeError(")
    assert notes[-1] == "So did 41 more."


def test_a_program_ends_with_a_failure_unless_it_is_to_go_on() -> None:
    with pytest.raises(ArithmeticError):
        double = act("add", Slot(0), Slot(0), out=Slot(1))
        Lowered(Program(1, (double,), (Slot(1),)), _Failing(0).functions).run([torch.ones(1)])


def test_whoever_looks_may_end_a_program_that_would_go_on() -> None:
    double = act("add", Slot(0), Slot(0), out=Slot(1))
    lowered = Lowered(Program(1, (double,), (Slot(1),)), _Failing(0).functions, goes_on=True)
    with pytest.raises(ArithmeticError):
        lowered.run_with([torch.ones(1)], _plainly, bool)


def test_whoever_looks_may_end_a_program_that_has_gone_on() -> None:
    fails = act("add", Slot(0), Slot(1), out=Slot(2))
    program = Program(2, (fails, fails), (Slot(2),))
    answers = iter((True, False))
    with pytest.raises(RuntimeError, match="must match"):
        lowered = Lowered(program, goes_on=True)
        lowered.run_with([torch.ones(2), torch.ones(3)], _plainly, lambda: next(answers))
    assert next(answers, None) is None, "it was asked about both"
