"""Whoever takes part in computing on shares is killed: all others are told, and keep nothing."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import ProviderLost, RemoteFailure, SessionEnded, WorkerLost
from tests.shells.forked import ForkedProgram
from tests.workers.sockets.attacks.victim import Victim

NAMES = ("alice", "bob", "dealer")


@pytest.fixture
def victims() -> Iterator[dict[str, Victim]]:
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(Victim(id=name, log="ERROR", lease=1.0, heartbeat=0.6))
            for name in NAMES
        }


def still_there(
    x: torch.Tensor, total: torch.Tensor, steps: int, workers: dict[str, sy.WebsocketClientWorker]
) -> None:
    """Without a provider the parties hand out what they hold, and add it up."""
    alice, bob, _ = workers.values()
    plain = x.get().float_precision()
    count = int((plain > 0).sum())
    assert torch.equal((x + x).get().float_precision(), 2 * plain)
    # What failed last was fetched before it was known to have failed, or was undone.
    assert total.get() in (count * (steps + 1), count * (steps + 2))
    for _ in range(2):
        with pytest.raises(ProviderLost, match="provider dealer is lost: get.. what is there"):
            (x > 0).sum().get()
    again = x.get().share(alice, bob)
    assert int((again > 0).sum().get()) == count


@pytest.mark.parametrize("killed", ["bob", "dealer"])
def test_the_others_tell_who_is_gone_and_go_on(
    hook: sy.TorchHook, victims: dict[str, Victim], killed: str
) -> None:
    lost = "the provider dealer is lost" if killed == "dealer" else "worker 'bob' was lost"
    workers = {
        name: sy.WebsocketClientWorker(hook, port=victim.port, id=name)
        for name, victim in victims.items()
    }
    alice, bob, dealer = workers.values()
    x = torch.rand(200_000).fix_precision().share(alice, bob, crypto_provider=dealer)
    total = (x > 0).sum()
    assert total.get() > 0
    steps = 0
    timer = threading.Timer(0.2, victims[killed].kill)
    timer.start()
    with pytest.raises((SessionEnded, ProviderLost, WorkerLost), match=lost):
        for _ in range(100_000):
            total += (x > 0).sum()
            total.get()
            steps += 1
    timer.join()
    if killed == "dealer":
        still_there(x, total, steps, workers)
    else:
        with pytest.raises(SessionEnded, match=lost):
            for _ in range(100):  # it may have been a wait for its answer that noticed first
                with contextlib.suppress(WorkerLost):
                    (x + x).get()
    del x, total
    left = [worker for name, worker in workers.items() if name != killed]
    again = torch.tensor([1, -2]).share(*left)
    assert again.relu().get().tolist() == [1, 0]
    del again
    gc.collect()
    for worker in workers.values():
        worker.close()
    for name, victim in victims.items():
        if name != killed:
            victim.await_count("objects", 0)


@contextlib.contextmanager
def connected(
    hook: sy.TorchHook, heartbeat: float
) -> Iterator[tuple[dict[str, Victim], list[sy.WebsocketClientWorker]]]:
    """Three workers that reach each other only through this program."""
    with contextlib.ExitStack() as stack:
        victims = {
            name: stack.enter_context(Victim(id=name, log="ERROR", heartbeat=heartbeat))
            for name in NAMES
        }
        workers = [
            sy.WebsocketClientWorker(hook, port=victim.port, id=name, heartbeat=heartbeat)
            for name, victim in victims.items()
        ]
        yield victims, workers
        for worker in workers:
            with contextlib.suppress(WorkerLost):
                worker.close()


@pytest.mark.parametrize("fetches", [True, False])
def test_a_killed_party_of_a_sum_is_told_although_nobody_is_silent_for_long(
    hook: sy.TorchHook, fetches: bool
) -> None:
    """A worker that nobody listens for is lost at once: a minute's silence is not waited for."""
    with connected(hook, heartbeat=60) as (victims, workers):
        summands = [torch.ones(100).send(worker) for worker in workers]
        assert sy.sum_private(*summands)[0].get().sum() == 300
        victims["bob"].kill()
        with pytest.raises(WorkerLost, match="worker 'bob' was lost"):
            for _ in range(100_000):
                totals = sy.sum_private(*summands)
                if fetches:
                    totals[0].get()
        left = [summands[0], summands[2]]
        assert sy.sum_private(*left)[0].get().sum() == 200
        with pytest.raises(WorkerLost, match="worker 'bob' was lost"):
            sy.sum_private(*summands)[0].get()
        del summands, left


def test_a_stopped_party_is_lost_and_takes_part_again(hook: sy.TorchHook) -> None:
    with connected(hook, heartbeat=0.3) as (victims, workers):
        summands = [torch.ones(100).send(worker) for worker in workers]
        assert sy.sum_private(*summands)[0].get().sum() == 300
        os.kill(victims["bob"].pid, signal.SIGSTOP)
        with pytest.raises((WorkerLost, RemoteFailure), match="worker 'bob' was lost"):
            sy.sum_private(*summands)[0].get()
        os.kill(victims["bob"].pid, signal.SIGCONT)
        for _ in range(100):
            with contextlib.suppress(WorkerLost, RemoteFailure):
                again = [torch.ones(100).send(worker) for worker in workers]
                assert sy.sum_private(*again)[0].get().sum() == 300
                break
        else:
            raise AssertionError("the three do not sum any more")
        del summands, again


def compute_until_killed(addresses: list[str]) -> None:
    """A client that ends in the middle of a computation, with no word to anybody."""
    sy.TorchHook(torch)
    alice, bob, dealer = map(sy.connect, addresses)
    x = torch.rand(200_000).fix_precision().share(alice, bob, crypto_provider=dealer)
    (x > 0).sum().get()
    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGKILL]).start()
    while True:
        y = (x > 0) * x
        y.sum().get()


def test_what_a_killed_client_shared_is_freed(victims: dict[str, Victim], tmp_path: Path) -> None:
    addresses = [f"ws://127.0.0.1:{victim.port}" for victim in victims.values()]
    with (tmp_path / "errors").open("w+") as errors:
        client = ForkedProgram(compute_until_killed, addresses, error=errors.fileno())
        assert client.wait(60) == -signal.SIGKILL, (tmp_path / "errors").read_text()
        client.close()
    for victim in victims.values():
        victim.await_count("objects", 0)
        victim.await_count("guests", 0)


def test_an_input_that_nobody_takes_any_more_is_not_waited_for(hook: sy.TorchHook) -> None:
    """To give it fails, since its worker is gone; so the execution does not miss it any more."""
    with contextlib.ExitStack() as stack:
        victims = [
            stack.enter_context(Victim(id=name, log="ERROR", allow_plans=True))
            for name in NAMES[:2]
        ]
        workers = [
            sy.WebsocketClientWorker(hook, port=victim.port, id=name)
            for name, victim in zip(NAMES[:2], victims, strict=True)
        ]

        def function(x: Any, y: Any) -> Any:
            return x.send("first").mul(2).move("second") + y.send("second")

        roles = {"first": sy.RoleWorker(), "second": sy.RoleWorker()}
        protocol: Any = sy.protocol(**roles)(function)
        protocol.build(torch.ones(2), torch.ones(2))
        deployed = protocol.deploy(first=workers[0], second=workers[1])
        execution = deployed.start(y=torch.ones(2))
        victims[0].kill()
        stack.enter_context(sy.WebsocketServerWorker(hook, port=victims[0].port, id="another"))
        while workers[0].line.websocket is not None:  # until the end of the process was heard of
            time.sleep(0.01)
        with pytest.raises(WorkerLost, match="'alice' .* has started anew"):
            deployed.submit(execution, x=torch.ones(2))
        with pytest.raises(WorkerLost, match="'alice' .* has started anew"):
            execution.wait(timeout=20)
        for worker in workers:
            with contextlib.suppress(WorkerLost):
                worker.close()
