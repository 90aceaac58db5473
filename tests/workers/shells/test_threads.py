"""Threads that use virtual workers at once: each gets its own results and its own errors.

The oracle is the same program on plain tensors, in one thread.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from tests.outside import outside

Place = Callable[[torch.Tensor], Any]

_WITHIN = 60.0
"""Seconds after which a test fails instead of waiting for ever."""


@pytest.fixture(autouse=True)
def brisk_switches() -> Iterator[None]:
    """Threads take turns every few bytecodes, so that short races are met."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """What these return, each called in a thread of its own while the others are; the first error
    is raised, and a thread that does not end is one."""
    start, found = threading.Barrier(len(acts)), [None] * len(acts)
    errors: list[BaseException] = []

    def begin(place: int, act: Callable[[], Any]) -> None:
        try:
            start.wait(_WITHIN)
            found[place] = act()
        except BaseException as error:  # noqa: B036  # whatever it is
            errors.append(error)

    threads = [threading.Thread(target=begin, args=pair, daemon=True) for pair in enumerate(acts)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + _WITHIN
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    return found


class Program:
    """A random training program: the same for the same seed, wherever its tensors are."""

    def __init__(self, seed: int, workers: Sequence[Any] = ()) -> None:
        self.draw = random.Random(seed)
        self.noise = torch.Generator().manual_seed(seed)
        self.workers = list(workers)
        self.seen: list[torch.Tensor] = []
        self.at: Any = self.draw.choice(self.workers) if self.workers else None

    def run(self) -> list[torch.Tensor]:
        """Every number that the program has read."""
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        for parameter in model.parameters():
            parameter.data = self._random(*parameter.shape)
        if self.at is not None:
            model.send(self.at)
        kind = self.draw.choice([torch.optim.SGD, torch.optim.Adam])
        optimizer = kind(model.parameters(), lr=0.05)
        steps = (self.train, self.train, self.compute, self.together, self.returned, self.moved)
        for _ in range(8):
            self.draw.choice(steps)(model, optimizer)
        if self.at is not None:
            model.get()
        self.seen.extend(parameter.detach().clone() for parameter in model.parameters())
        return self.seen

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.noise)

    def _there(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.at is None else tensor.send(self.at)

    def _read(self, tensor: torch.Tensor) -> None:
        self.seen.append(tensor if self.at is None else tensor.get())

    def train(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Some steps of training; the loss of some is read."""
        x, y = self._there(self._random(5, 3)), self._there(self._random(5, 1))
        for _ in range(2):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            assert all(parameter.grad is not None for parameter in model.parameters())
            optimizer.step()
        self._read(loss.detach())

    def compute(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Arithmetic whose results are dropped as it goes on."""
        x = self._there(self._random(4))
        for _ in range(self.draw.randrange(2, 12)):
            x = self.draw.choice((lambda t: t + t, lambda t: t * 0.5, lambda t: t.sin()))(x)
        assert x.dim() == 1 and x.dtype == torch.float32
        self._read(x)

    def together(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """A few operations in a group of messages."""
        x = self._there(self._random(3))
        if self.at is None:
            y = (x * 2 + 1).relu()
        else:
            with self.at.group():
                y = (x * 2 + 1).relu()
        self._read(y)

    def returned(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """A gradient that goes back from one worker to another."""
        x, other = self._there(self._random(3).requires_grad_()), self.draw.choice(self.workers)
        y = x * 2
        z = y if self.at is None else y.move(other, requires_grad=True)
        (z * z).sum().backward()
        assert x.grad is not None
        self._read(x.grad)

    def moved(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """A tensor that goes on to another worker."""
        x, other = self._there(self._random(3)) * 3, self.draw.choice(self.workers)
        y = (x if self.at is None else x.move(other)) + 1
        self.seen.append(y if self.at is None else y.get())


def check_threads(workers: Sequence[Any], threads: int, seed: int) -> None:
    """Run a program in each thread, all at once, and compare with plain torch."""
    seeds = range(seed, seed + threads)
    found = at_once(*(Program(number, workers).run for number in seeds))
    for number, numbers in zip(seeds, found, strict=True):
        program = Program(number, workers)
        program.at = None
        expected = program.run()
        assert len(numbers) == len(expected)
        for here, there in zip(numbers, expected, strict=True):
            torch.testing.assert_close(here, there)


@pytest.mark.parametrize("seed", range(0, 80, 8))
@pytest.mark.parametrize("pipelined", [False, True], ids=["immediate", "queued"])
def test_threads_at_one_worker_compute_what_torch_does(
    hook: sy.TorchHook, pipelined: bool, seed: int
) -> None:
    bob = sy.VirtualWorker(hook, id="bob", pipelined=pipelined)
    check_threads([bob], 4, seed)
    assert bob.core.serving is None
    assert bob.objects_count() == 0


@pytest.mark.parametrize("seed", range(0, 80, 8))
def test_threads_at_several_workers_compute_what_torch_does(hook: sy.TorchHook, seed: int) -> None:
    workers = [
        sy.VirtualWorker(hook, id=name, pipelined=queued)
        for name, queued in (("bob", False), ("alice", False), ("carl", True), ("dora", True))
    ]
    check_threads(workers, 6, seed)
    assert [worker.objects_count() for worker in workers] == [0] * 4


@pytest.mark.parametrize("pipelined", [False, True], ids=["immediate", "queued"])
def test_an_error_is_raised_in_the_thread_that_made_the_request(
    hook: sy.TorchHook, pipelined: bool
) -> None:
    """A queued worker refuses it later, when another thread may be the first one to ask."""
    bob = sy.VirtualWorker(hook, id="bob", pipelined=pipelined)
    x = torch.ones(2).send(bob)

    def errs(size: int) -> str:
        (text,) = {told(lambda: (x.view(size), x.sum().get())) for _ in range(20)}
        return text

    def computes() -> list[float]:
        return [float((x + step).sum().get()) for step in range(40)]

    three, four, fine = at_once(lambda: errs(3), lambda: errs(4), computes)
    assert "shape '[3]' is invalid" in three and "shape '[4]' is invalid" in four
    assert fine == [2.0 + 2 * step for step in range(40)]
    sy.synchronize()


def test_an_error_of_a_thread_that_has_ended_is_raised_at_the_next_question(
    hook: sy.TorchHook,
) -> None:
    bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
    x = torch.ones(2).send(bob)
    at_once(lambda: x.view(3) is None)
    with pytest.raises(RuntimeError, match="invalid for input of size 2"):
        x.sum().get()
    assert x.sum().get() == 2


def test_whoever_uses_what_another_thread_failed_to_make_is_told_why(hook: sy.TorchHook) -> None:
    """And so is that thread, whichever asks first."""
    bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
    x = torch.ones(2).send(bob)
    made, used = threading.Event(), threading.Event()
    passed: list[Any] = []

    def makes() -> str:
        passed.append(x.view(3))
        made.set()
        used.wait(_WITHIN)
        return told(lambda: x.sum().get())

    def uses() -> str:
        made.wait(_WITHIN)
        text = told(lambda: (passed.pop() + 1).get())
        used.set()
        return text

    texts = at_once(makes, uses)
    assert ["invalid for input of size 2" in text for text in texts] == [True, True]


def told(act: Callable[[], Any]) -> str:
    """What the RuntimeError says that this raises; it keeps no pointer of the frames it passed."""
    try:
        act()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("nothing was raised")


def test_a_group_takes_the_operations_of_its_own_thread(hook: sy.TorchHook) -> None:
    bob = sy.VirtualWorker(hook, id="bob")
    x = torch.ones(2).send(bob)
    opened, done = threading.Event(), threading.Event()

    def holds() -> tuple[int, float]:
        with bob.group():
            y = x * 2
            opened.set()
            done.wait(_WITHIN)
            while_open = bob.stats.messages_in
        return while_open, float(y.sum().get())

    def goes_on() -> tuple[int, float]:
        opened.wait(_WITHIN)
        before = bob.stats.messages_in
        z = x + 1
        sent = bob.stats.messages_in - before
        with bob.group():
            w = z + 1
        done.set()
        return sent, float(w.sum().get())

    (_, held), (sent, computed) = at_once(holds, goes_on)
    assert (held, sent, computed) == (4.0, 1, 6.0)


def test_what_a_group_uses_is_not_dropped_by_another_thread(hook: sy.TorchHook) -> None:
    """Its last pointer is gone, and a request of another thread takes such ids along."""
    bob = sy.VirtualWorker(hook, id="bob")
    used, other = [torch.ones(2).send(bob)], torch.ones(2).send(bob)
    opened, done = threading.Event(), threading.Event()

    def holds() -> float:
        with bob.group():
            y = used.pop() * 2
            opened.set()
            done.wait(_WITHIN)
        return float(y.sum().get())

    def goes_on() -> float:
        opened.wait(_WITHIN)
        value = float((other + 1).sum().get())
        done.set()
        return value

    assert at_once(holds, goes_on) == [4.0, 4.0]


@pytest.mark.parametrize("pipelined", [False, True], ids=["immediate", "queued"])
def test_what_a_group_of_another_thread_holds_is_sent_when_it_is_used(
    hook: sy.TorchHook, pipelined: bool
) -> None:
    bob = sy.VirtualWorker(hook, id="bob", pipelined=pipelined)
    x = torch.ones(2, requires_grad=True).send(bob)
    plan = sy.func2plan(args_shape=[(2,)])(lambda t: t + t).send(bob)
    uses: dict[str, Callable[[Any], Any]] = {
        "an operation": lambda y: (y + 1).get(),
        "another group": lambda y: grouped(bob, y),
        "a fetch": lambda y: y.copy().get(),
        "a plan": lambda y: plan(y).get(),
        "a gradient": lambda y: y.grad,
        "a handle": lambda y: y.child.handle.wait(),
        "an awaited handle": lambda y: asyncio.run(awaited(y)),
    }
    held: list[Any] = []
    opened = [threading.Event() for _ in uses]
    used = [threading.Event() for _ in uses]

    def holds() -> None:
        for mine, theirs in zip(opened, used, strict=True):
            with bob.group():
                held.append((x.detach() * 3).requires_grad_())
                mine.set()
                assert theirs.wait(_WITHIN)
                held.clear()

    def asks() -> dict[str, Any]:
        found = {}
        for (name, use), theirs, mine in zip(uses.items(), opened, used, strict=True):
            theirs.wait(_WITHIN)
            value = use(held[0])
            found[name] = value.tolist() if isinstance(value, torch.Tensor) else value
            mine.set()
        return found

    _, found = at_once(holds, asks)
    assert found == {
        "an operation": [4, 4],
        "another group": [5, 5],
        "a fetch": [3, 3],
        "a plan": [6, 6],
        "a gradient": None,
        "a handle": None,
        "an awaited handle": [3, 3],
    }


def grouped(worker: Any, x: torch.Tensor) -> torch.Tensor:
    """A number more than one that another thread's group holds, made in a group."""
    with worker.group():
        y = x + 2
    return y.get()


async def awaited(x: Any) -> torch.Tensor:
    """A copy of what a handle is awaited for."""
    return (await x.child.handle).copy().get()


def test_ids_of_pointers_that_die_on_other_threads_are_sent(hook: sy.TorchHook) -> None:
    """Also while the worker is at work, when a destructor must not wait."""
    bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
    x = torch.ones(2).send(bob)
    made: list[list[Any]] = [[x + step for step in range(50)] for _ in range(3)]

    def works() -> None:
        for _ in range(100):
            (x * 2).sum().get()

    at_once(works, *(kept.clear for kept in made))
    assert bob.objects_count() == 1


_FORKING = """
import os, signal, threading
import torch
import syft as sy

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
x, stop = torch.ones(2).send(bob), threading.Event()

def works():
    while not stop.is_set():
        (x + 1).sum().get()

worker = threading.Thread(target=works, daemon=True)
worker.start()
for _ in range(20):
    child = os.fork()
    if not child:
        signal.alarm(20)  # ends a process that waits for a thread which it has not
        os._exit(0 if x.copy().get().tolist() == [1, 1] else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
worker.join()
"""


def test_a_forked_process_is_not_in_the_middle_of_anything() -> None:
    """In a process that is not measured: what measures has locks of its own."""
    subprocess.run([sys.executable, "-c", _FORKING], env=outside(), check=True, timeout=_WITHIN)


def test_requests_of_a_thread_are_handled_in_order_while_another_one_is_served(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request waits for another process, with an older one of a second thread behind it, and that
    thread makes a newer one."""
    bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
    monitor, respond = bob.network.monitor, bob.core.respond
    x, other = torch.ones(2).send(bob), torch.ones(2).send(bob)
    sy.synchronize()
    older, waits, newer = threading.Event(), threading.Event(), threading.Event()
    results: list[torch.Tensor] = []

    def second() -> None:
        x.add_(1)
        older.set()
        waits.wait(20)
        results.append(x * 2)
        newer.set()

    def wait_as_for_another_process(*about: Any) -> Any:
        if not waits.is_set():
            held = monitor.leave()
            waits.set()
            newer.wait(20)
            monitor.enter_again(held)
            bob.network.step()
        return respond(*about)

    first = other + 1
    thread = threading.Thread(target=second)
    thread.start()
    older.wait(20)
    monkeypatch.setattr(bob.core, "respond", wait_as_for_another_process)
    assert first.get().tolist() == [2, 2]
    thread.join()
    assert results.pop().get().tolist() == [4, 4] and x.get().tolist() == [2, 2]
