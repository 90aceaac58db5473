"""Workers in child processes: what only a shell with a transport of its own can get wrong."""

from __future__ import annotations

import ast
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import ObjectNotReady, WorkerClosed
from tests.shells.child import ChildWorker, RemoteWorker, serve
from tests.shells.hub import Hub
from tests.shells.link import Link
from tests.shells.owner import ACTIONS, inspect
from tests.shells.processes import ChildProcesses

BIG = 1_000_000
"""Elements of a tensor that no socket takes at once."""

VIRTUAL_ONLY = 9
"""How many tests look inside a worker and stay virtual. Lower it when some go; never raise it."""

ROOT = Path(__file__).parents[1]


@pytest.fixture
def shell() -> str:
    """All workers of these tests are in child processes."""
    return "child"


def test_it_is_in_a_process_of_its_own(worker: ChildWorker) -> None:
    assert worker.process.is_alive() and worker.id not in worker.network.hosts
    x = torch.ones(2).send(worker)
    assert inspect(worker).objects[x.id_at_location].tolist() == [1, 1]
    assert (x + 1).get().tolist() == [2, 2]


def test_both_ends_send_more_than_a_socket_takes(worker: ChildWorker) -> None:
    sent = [torch.full((BIG,), float(number)).send(worker) for number in range(5)]
    results = [(x + 1).get() for x in sent]
    assert [result.unique().tolist() for result in results] == [[1], [2], [3], [4], [5]]


def test_two_children_send_to_each_other_at_once(hook: sy.TorchHook) -> None:
    bob, alice = (ChildWorker(hook, id=name, pipelined=True) for name in ("bob", "alice"))
    theirs = [torch.full((BIG,), float(number)).send(bob) for number in range(3)]
    others = [torch.full((BIG,), float(number)).send(alice) for number in range(3, 6)]
    for x, y in zip(theirs, others, strict=True):
        x.remote_send(alice)
        y.remote_send(bob)
    sy.synchronize()
    assert [x.get().get().max().item() for x in theirs] == [0, 1, 2]
    assert [y.get().get().max().item() for y in others] == [3, 4, 5]


def test_a_process_that_ends_closes_its_worker(worker: ChildWorker) -> None:
    x = torch.ones(2).send(worker)
    sy.synchronize()
    worker.process.kill()
    worker.process.join()
    for act in (lambda: (x + 1).get(), lambda: x.shape, lambda: torch.ones(1).send(worker).get()):
        with pytest.raises(WorkerClosed, match="Worker 'worker' is closed"):
            act()
    worker.close()


def test_a_process_that_ends_is_noticed_by_the_others(bob: ChildWorker, alice: ChildWorker) -> None:
    outer = torch.ones(2).send(bob).send(alice)
    bob.process.kill()
    bob.process.join()
    bob.close()
    with pytest.raises(WorkerClosed, match="Worker 'bob' is closed"):
        (outer + 1).get().get()


def test_an_idle_child_frees_what_its_pointers_held(bob: ChildWorker, alice: ChildWorker) -> None:
    outer = torch.ones(2).send(bob).send(alice)
    assert len(bob.act("inspect")["objects"]) == 1
    del outer
    alice.connection().flush()  # the one request: alice's own to bob come by themselves
    assert comes_true(lambda: not bob.act("inspect")["objects"])


@pytest.fixture
def hub(hook: sy.TorchHook) -> Iterator[Any]:
    """What a program without a loop has: a timer."""
    network: Any = hook.local_worker.network
    network.start_timer(delay=0.01)
    yield network
    network.timer.stop()


def comes_true(condition: Callable[[], bool]) -> bool:
    """Whether something happens by itself, that nobody waits for."""
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_an_idle_client_tells_an_idle_worker(hub: Any, worker: ChildWorker) -> None:
    x, kept = torch.ones(2).send(worker), torch.ones(2).send(worker)
    sy.synchronize()
    garbage = worker.connection().garbage.ids
    del x
    assert comes_true(lambda: not garbage), "nothing else makes a request"
    assert list(worker.act("inspect")["objects"]) == [kept.id_at_location]


def test_a_program_that_works_is_not_disturbed(hub: Any, worker: ChildWorker) -> None:
    """Pointers die here and in another thread while requests are made and answered."""
    x = torch.ones(2).send(worker)
    pointers = [[torch.ones(2).send(worker)] for _ in range(300)]

    def drop() -> None:
        for pointer in pointers:
            pointer.clear()
            time.sleep(0.001)

    other = threading.Thread(target=drop)
    other.start()
    total = x
    while other.is_alive():
        for _ in range(5):
            total = total + x
        with worker.group():
            held = [total * number for number in range(3)]
            del held[0]
            time.sleep(0.03)
        assert torch.equal(held[0].get(), (total * 1).get())
        del held
    other.join()
    del total
    garbage = worker.connection().garbage.ids
    assert comes_true(lambda: not garbage)
    assert list(worker.act("inspect")["objects"]) == [x.id_at_location]


def test_a_link_that_is_cut_does_not_end_the_timer(
    hook: sy.TorchHook, hub: Any, bob: ChildWorker
) -> None:
    x = torch.ones(2).send(bob)
    bob.process.kill()
    bob.process.join()
    del x
    hub.timer.start()
    alice = ChildWorker(hook, id="alice", pipelined=True)
    y = torch.ones(2).send(alice)
    sy.synchronize()
    garbage = alice.connection().garbage.ids
    del y
    assert comes_true(lambda: not garbage)
    bob.close()


def test_a_promise_nobody_keeps_is_no_hang(worker: ChildWorker) -> None:
    promise = worker.promise()
    waits = promise + 1
    for _ in range(2):
        with pytest.raises(ObjectNotReady, match="Worker 'worker' still waits"):
            waits.child.handle.wait()
    assert inspect(worker).parked == 1
    promised = {promise.id_at_location, waits.id_at_location}
    assert set(inspect(worker).promised) == promised
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    sy.synchronize()
    assert waits.child.handle.done() and waits.get().tolist() == [2, 2]
    assert inspect(worker).parked == 0
    del kept


def test_another_child_may_keep_a_promise(bob: ChildWorker, alice: ChildWorker) -> None:
    promise = bob.promise()
    waits = promise * 3
    x = torch.ones(2).send(alice)
    id = promise.id_at_location
    moved = x.copy().get().send(bob, id=id)
    assert waits.get().tolist() == [3, 3]
    del moved


def test_synchronize_raises_what_failed_there(hook: sy.TorchHook) -> None:
    bob = ChildWorker(hook, id="bob", pipelined=True)
    x = torch.ones(2).send(bob)
    x.view(7)
    with pytest.raises(RuntimeError, match="shape"):
        sy.synchronize()
    sy.synchronize()
    assert x.get().tolist() == [1, 1]


def test_a_process_serves_one_worker_after_another(
    hook: sy.TorchHook, processes: ChildProcesses
) -> None:
    """What was there and under way when a worker is closed, and what it drew, is forgotten."""
    used, draws = [], []
    for name in ("first", "second"):
        worker = ChildWorker(hook, id=name, pipelined=True)
        used.append(worker.process)
        assert len(inspect(worker)) == worker.stats.messages_in == 0
        draws.append(torch.zeros(3).send(worker).normal_().get().tolist())
        kept = torch.ones(2).send(worker), worker.promise() + 1
        assert inspect(worker).parked == 1
        worker.close()
        del kept
    assert used[0] is used[1] is processes.idle[-1].process
    assert draws[0] == draws[1]


def serve_and_wait(link: Link) -> None:
    """What a worker does that waits for an answer which never comes."""
    with contextlib.suppress(WorkerClosed):
        Hub(ACTIONS, RemoteWorker, link).call(link, "names", "nobody")


def test_a_process_that_waits_for_an_answer_leaves_too() -> None:
    processes = ChildProcesses(serve_and_wait)
    child = processes.take()
    processes.give_back(child)
    assert processes.idle == [child]
    processes.close()


def test_a_process_that_serves_nobody_leaves_when_asked(processes: ChildProcesses) -> None:
    child = processes.take()
    assert child.leave() and child.leave()
    child.process.kill()
    child.process.join()
    assert not child.leave()


def serve_and_change_torch(link: Link) -> None:
    """What a worker that leaves torch changed does."""
    serve(link)
    torch.set_grad_enabled(False)


def test_a_worker_that_leaves_torch_changed_is_noticed() -> None:
    processes = ChildProcesses(serve_and_change_torch)
    with pytest.raises(AssertionError, match="left torch changed: .*'grad': True.*'grad': False"):
        processes.give_back(processes.take())
    assert not processes.idle


def test_the_shell_is_small() -> None:
    for name in ("child.py", "hub.py", "link.py", "owner.py", "processes.py"):
        assert len((ROOT / "shells" / name).read_text().splitlines()) < 200, name


def test_every_test_that_stays_virtual_has_a_reason() -> None:
    """Their number may only shrink."""
    reasons = []
    for path in sorted(ROOT.rglob("test_*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text if "virtual_only" in text else "")):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "virtual_only":
                reasons.append([ast.literal_eval(argument) for argument in node.args])
            elif isinstance(node, ast.Attribute) and node.attr == "virtual_only":
                reasons.append([])
    given = [reason for reason in reasons if reason]
    assert all(len(words) == 1 and len(words[0]) > 20 for words in given)
    assert len(given) == len(reasons) - len(given), "a mark without a reason"
    assert len(given) <= VIRTUAL_ONLY
