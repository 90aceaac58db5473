"""Every program in every way equals plain torch, or is refused by name."""

from __future__ import annotations

import pytest

import syft as sy
from tests.programs import by_hand, by_kind  # noqa: F401 (they fill PROGRAMS)
from tests.programs.harness import (
    PROGRAMS,
    WAYS,
    Program,
    check_same,
    plainly,
    run_as_plan,
    run_as_sent_plan,
    run_remotely,
)
from tests.programs.refused import PLANS, POINTERS, REFUSED
from tests.shells.child import make_worker

CASES = [
    (name, way)
    for name, program in PROGRAMS.items()
    for way in WAYS
    if program.plan or way not in PLANS
]

pytestmark = [
    # Torch tells of what is old, and of what may change.
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning"),
]


def run(program: Program, way: str, hook: sy.TorchHook) -> None:
    """Run a program in one way, and compare."""
    want = plainly(program)
    if way == "plan":
        check_same(want, run_as_plan(program))
        return
    worker = make_worker(hook, "worker", pipelined=way == "queued")
    if way in POINTERS:
        check_same(want, run_remotely(program, worker), not (program.drawn and way == "socket"))
        return
    got = run_as_sent_plan(program, worker)
    check_same(want[: len(got)], got)


def check(name: str, way: str, hook: sy.TorchHook) -> None:
    """The program is refused as the table says, or equals plain torch."""
    refusal = REFUSED.get((name, way))
    if refusal is None:
        run(PROGRAMS[name], way, hook)
        return
    with pytest.raises(refusal.error, match=refusal.words):
        run(PROGRAMS[name], way, hook)


HERE = [case for case in CASES if case[1] != "socket"]
ELSEWHERE = [name for name, way in CASES if way == "socket"]


@pytest.mark.parametrize("name, way", HERE, ids=map("-".join, HERE))
def test_a_program_is_equal_or_refused(name: str, way: str, hook: sy.TorchHook) -> None:
    check(name, way, hook)


@pytest.mark.parametrize("shell", ["socket"], indirect=True)
@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_program_at_another_process(name: str, shell: str, hook: sy.TorchHook) -> None:
    check(name, "socket", hook)


def test_every_refusal_is_of_a_program_that_runs_so() -> None:
    assert REFUSED.keys() <= set(CASES)


def test_there_are_three_hundred_programs() -> None:
    assert len(PROGRAMS) >= 300
