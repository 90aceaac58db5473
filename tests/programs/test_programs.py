"""Every program in every way equals plain torch, or is refused by name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import syft as sy
from tests.programs import by_hand, by_kind, more  # noqa: F401 (they fill PROGRAMS)
from tests.programs.harness import (
    PROGRAMS,
    WAYS,
    Program,
    check_same,
    plainly,
    plan_here,
    run_as_plan,
    run_as_sent_plan,
    run_held,
    run_lazily,
    run_on_device,
    run_remotely,
)
from tests.programs.refused import PLANS, REFUSED
from tests.shells.child import make_worker

HERE_ALONE: Final = {"plan": run_as_plan, "lazy": run_lazily}
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
    if way in HERE_ALONE:
        check_same(want, HERE_ALONE[way](program))
        return
    if way == "held":  # it draws anew at each run
        held = sy.VirtualWorker(hook, id="worker", lazy=True)
        check_same(want, run_held(program, held), not program.drawn)
        return
    worker = make_worker(hook, "worker", pipelined=way == "queued")
    if way == "sent plan":
        check_same(plan_here(program), run_as_sent_plan(program, worker))
    elif way == "device":
        check_same(want, run_on_device(program, worker))
    else:
        check_same(want, run_remotely(program, worker), not (program.drawn and way == "socket"))


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


class Watching(TorchDispatchMode):
    """A user's mode that counts what torch computes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def in_double() -> Iterator[None]:
    """A context in which new tensors are in double precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def torch_refuses(program: Program) -> bool:
    """Whether plain torch raises, too: its transforms take no hooks on what is saved."""
    try:
        plainly(program)
    except RuntimeError:
        return True
    return False


MODES: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "double": in_double,
    "saved": lambda: torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone),
    "dispatch": Watching,
}
IN_MODES = [(name, mode) for name, one in PROGRAMS.items() if not one.drawn for mode in MODES]


@pytest.mark.parametrize("name, mode", IN_MODES, ids=map("-".join, IN_MODES))
def test_a_program_in_a_mode_of_the_user(name: str, mode: str, hook: sy.TorchHook) -> None:
    with MODES[mode]():
        if torch_refuses(PROGRAMS[name]):
            pytest.skip("plain torch refuses it, too")
        check(name, "virtual", hook)


def test_every_refusal_is_of_a_program_that_runs_so() -> None:
    assert REFUSED.keys() <= set(CASES)


def test_there_are_three_hundred_programs() -> None:
    assert len(PROGRAMS) >= 300
