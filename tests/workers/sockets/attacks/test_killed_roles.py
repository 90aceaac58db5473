"""Whoever takes part in a protocol is killed, at every moment of an execution: the others say who
is gone, keep nothing, and can begin anew."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import WorkerLost
from tests.shells.forked import ForkedProgram
from tests.workers.sockets.attacks.victim import Victim

NAMES = ("alice", "bob", "carol")
SIZE = 600


def victim(name: str) -> Victim:
    return Victim(id=name, log="ERROR", lease=1.0, heartbeat=0.6, allow_plans=True)


@pytest.fixture
def victims() -> Iterator[dict[str, Victim]]:
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(victim(name)) for name in NAMES}


@sy.protocol(first=sy.RoleWorker(), second=sy.RoleWorker(), third=sy.RoleWorker())
def relay(x: Any, y: Any, z: Any, first: Any, second: Any, third: Any) -> Any:
    """Each has an input of its own; the second takes a while."""
    there = (x.send(first) * 2).move(second) + y.send(second)
    for _ in range(60):
        there = (there @ there).clamp(0, 1)
    return there.move(third) + z.send(third)


def deployed(workers: dict[str, Any]) -> Any:
    small = torch.ones(2, 2)
    relay.build(small, small, small)
    return relay.deploy(first=workers["alice"], second=workers["bob"], third=workers["carol"])


def begun(phase: str, deployment: Any, victims: dict[str, Victim], killed: str) -> Any:
    """An execution of which a party is killed at some moment; all inputs are given."""
    kill = victims[killed].kill
    whole = torch.ones(SIZE, SIZE)
    if phase == "before it starts":
        kill()
    execution = deployment.start()
    if phase == "while it waits":
        kill()
    deployment.submit(execution, x=whole, y=whole)
    if phase == "while they compute":
        victims["bob"].await_count("letters", 2)
        kill()
    if phase == "when it has sent":
        victims[NEXT[killed]].await_count("letters", 2 if killed == "alice" else 1)
        kill()
    deployment.submit(execution, z=whole)
    return execution


NEXT = {"alice": "bob", "bob": "carol"}


CASES = [
    ("alice", "before it starts"),
    ("bob", "before it starts"),
    ("alice", "while it waits"),
    ("carol", "while it waits"),
    ("bob", "while they compute"),
    ("carol", "while they compute"),
    ("alice", "when it has sent"),
    ("bob", "when it has sent"),
]


@pytest.mark.parametrize(("killed", "phase"), CASES)
def test_the_others_say_who_is_gone_and_begin_anew(
    hook: sy.TorchHook, victims: dict[str, Victim], killed: str, phase: str
) -> None:
    workers = {name: address_of(one) for name, one in victims.items()}
    deployment = deployed(workers)
    try:
        execution = begun(phase, deployment, victims, killed)
        execution.wait(25)
    except WorkerLost as error:
        assert error.name == killed and phase != "when it has sent"
        assert "whoever has started" not in error.reason, "the caller knows more"
    else:
        assert phase == "when it has sent", "what was sent is all that was needed of it"
        assert execution.outputs["third"].get().shape == (SIZE, SIZE)
    execution = None
    left = {name: one for name, one in victims.items() if name != killed}
    for one in left.values():
        one.await_count("executions", 0)
        await_given_up(one, 1 if killed == "bob" else 2)
    workers[killed].close()
    with victim(killed) as again:
        workers[killed] = address_of(again)
        deployment = deployed(workers)
        ones = torch.ones(3, 3)
        assert deployment.run(ones, ones, ones).get().tolist() == [[2.0] * 3] * 3
        del deployment
        gc.collect()
        for worker in workers.values():
            worker.close()
        for one in (*left.values(), again):
            one.await_count("objects", 0)
            one.await_count("executions", 0)


def await_given_up(one: Victim, lines: int) -> None:
    """Wait until a worker has no more lines than this: until it has given up the one to a worker
    that is lost, it takes another one of that name for it."""
    until = time.monotonic() + 30
    while one.ask("lines") > lines:
        assert time.monotonic() < until
        time.sleep(0.02)


def address_of(one: Victim) -> Any:
    return sy.connect(f"ws://127.0.0.1:{one.port}")


def run_until_killed(addresses: list[str], is_given: bool) -> None:
    """A program that ends while its execution is under way, with no word to anybody."""
    sy.TorchHook(torch)
    deployment = deployed(dict(zip(NAMES, map(sy.connect, addresses), strict=True)))
    execution = deployment.start()
    whole = torch.ones(SIZE, SIZE)
    deployment.submit(execution, x=whole)
    if is_given:
        deployment.submit(execution, y=whole, z=whole)
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("is_given", [False, True])
def test_what_a_killed_program_had_started_is_freed(
    victims: dict[str, Victim], tmp_path: Path, is_given: bool
) -> None:
    addresses = [f"ws://127.0.0.1:{one.port}" for one in victims.values()]
    with (tmp_path / "errors").open("w+") as errors:
        client = ForkedProgram(run_until_killed, addresses, is_given, error=errors.fileno())
        assert client.wait(60) == -signal.SIGKILL, (tmp_path / "errors").read_text()
        client.close()
    for one in victims.values():
        for what in ("executions", "objects", "guests"):
            one.await_count(what, 0)
