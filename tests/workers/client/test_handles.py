"""Handles: waiting for a command, asking whether it is done, awaiting it; without threads."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest
import torch

import syft as sy
from syft.exceptions import ObjectNotReady
from syft.workers.client.handles import PATIENCE
from syft.workers.wire.messages import Command
from tests.shells.child import make_worker

pytestmark = pytest.mark.every_shell


@pytest.fixture
def dan(hook: sy.TorchHook) -> sy.VirtualWorker:
    return sy.VirtualWorker(hook, id="dan", pipelined=True)


@pytest.fixture
def eve(hook: sy.TorchHook) -> sy.VirtualWorker:
    return sy.VirtualWorker(hook, id="eve", pipelined=True)


def test_an_immediate_worker_is_done_when_the_call_returns(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob) + 1
    handle = x.child.handle
    assert handle.done()
    handle.wait()
    assert handle.result().get().tolist() == [2, 2]


def test_a_queued_worker_is_done_when_somebody_waited(dan: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(dan)
    y = x + 1
    z = y * 3
    assert not y.child.handle.done() and not z.child.handle.done()
    assert len(dan.inbox) == 3
    y.child.handle.wait()
    assert y.child.handle.done() and not z.child.handle.done(), "no further than needed"
    assert z.child.handle.result() is not z
    assert z.child.handle.result().child is z.child
    assert z.child.handle.done()
    assert z.get().tolist() == [6, 6]


def test_a_handle_knows_of_the_last_command_in_place(dan: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(dan)
    sy.synchronize()
    x += 1
    assert not x.child.handle.done()
    x.child.handle.wait()
    assert x.child.handle.done() and not dan.inbox
    x[0] = 5
    assert not x.child.handle.done()
    out = torch.zeros(2).send(dan)
    torch.add(x, x, out=out)
    assert not out.child.handle.done()
    assert out.child.handle.result().get().tolist() == [10, 4]
    x.view(7)
    x.add_(torch.ones(5).send(dan))
    with pytest.raises(RuntimeError, match="size"):
        x.child.handle.wait()
    with pytest.raises(RuntimeError, match="shape"):
        sy.synchronize()


def test_waiting_for_what_nothing_can_bring_raises(worker: sy.VirtualWorker) -> None:
    promise = worker.promise()
    waits = promise + 1
    handle = waits.child.handle
    assert not handle.done()
    for wait in (handle.wait, handle.result, lambda: asyncio.run(awaited(waits))):
        with pytest.raises(ObjectNotReady, match=f"Worker '{worker.id}' still waits"):
            wait()
    gc.collect()  # a task of asyncio that failed is a cycle
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    handle.wait()
    assert handle.done() and waits.get().tolist() == [2, 2]
    del kept


async def awaited(pointer: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = await pointer.child.handle
    return result


def test_a_handle_can_be_awaited_without_a_thread(
    dan: sy.VirtualWorker, eve: sy.VirtualWorker, bob: sy.VirtualWorker
) -> None:
    threads = set(threading.enumerate())
    order: list[str] = []

    async def work(worker: sy.VirtualWorker, steps: int) -> list[float]:
        x = torch.ones(2).send(worker)
        for _ in range(steps):
            x = await (x * 2).child.handle
            order.append(worker.id)
        numbers: list[float] = x.get().tolist()
        return numbers

    async def both() -> list[list[float]]:
        return await asyncio.gather(work(dan, 3), work(eve, 3), work(bob, 1))

    assert asyncio.run(both()) == [[8, 8], [8, 8], [2, 2]]
    assert set(threading.enumerate()) == threads
    assert order != sorted(order), "they take turns"


def test_a_promise_may_be_kept_by_another_coroutine(
    worker: sy.VirtualWorker, eve: sy.VirtualWorker
) -> None:
    promise = worker.promise()

    async def keep() -> torch.Tensor:
        for _ in range(100):
            await asyncio.sleep(0)
        for _ in range(3):
            await (torch.ones(1).send(eve) + 1).child.handle
        return torch.ones(2).send(worker, id=promise.id_at_location)

    async def both() -> list[float]:
        result, _ = await asyncio.gather(awaited(promise + 1), keep())
        numbers: list[float] = result.get().tolist()
        return numbers

    assert asyncio.run(both()) == [2, 2]


def test_awaiting_has_an_end(worker: sy.VirtualWorker) -> None:
    waits = worker.promise() + 1
    turns = 0
    awaiting = waits.child.handle.__await__()
    with pytest.raises(ObjectNotReady, match=f"Worker '{worker.id}' still waits"):
        for _ in awaiting:
            turns += 1
    assert PATIENCE <= turns < PATIENCE + 10


def test_an_awaited_failure_is_raised(dan: sy.VirtualWorker) -> None:
    wrong = torch.ones(2).send(dan).view(7)
    with pytest.raises(RuntimeError, match="shape"):
        asyncio.run(awaited(wrong))


def test_two_queued_workers_make_progress_together(
    hook: sy.TorchHook, dan: sy.VirtualWorker, eve: sy.VirtualWorker
) -> None:
    values = [torch.ones(1).send(dan), torch.ones(1).send(eve)]
    sy.synchronize()
    for _ in range(5):
        values = [value + 1 for value in values]
    with hook.record() as log:
        sy.synchronize()
    ran = [entry.receiver for entry in log if isinstance(entry.message, Command)]
    assert ran == ["dan", "eve"] * 5
    assert [value.get().item() for value in values] == [6, 6]


def test_waiting_for_one_leaves_the_other_alone(
    dan: sy.VirtualWorker, eve: sy.VirtualWorker
) -> None:
    x, y = torch.ones(1).send(dan), torch.ones(1).send(eve)
    a, b = x + 1, y + 1
    a.child.handle.wait()
    assert a.child.handle.done() and not b.child.handle.done()
    assert a.get().tolist() == [2], "nor does a question"
    assert len(eve.inbox) == 2 and not b.child.handle.done()
    assert b.get().tolist() == [2]


def test_waiting_for_one_lets_the_other_work_if_it_is_needed(
    hook: sy.TorchHook, dan: sy.VirtualWorker, eve: sy.VirtualWorker
) -> None:
    fay = make_worker(hook, id="fay", pipelined=True)
    y, z = torch.ones(1).send(eve), torch.ones(1).send(fay)
    inner = torch.ones(1).send(eve).send(dan)
    b, c = y + 1, z + 1
    inner.remote_get()  # dan asks eve for it
    assert b.child.handle.done() and not c.child.handle.done()
    assert inner.get().tolist() == [1]
    promise = dan.promise()
    later = promise + 1
    sent = torch.ones(1).send(eve) * 5
    moved = sent.move(dan)
    kept = moved.copy()
    assert not c.child.handle.done()
    assert kept.get().tolist() == [5]
    with pytest.raises(ObjectNotReady):
        later.get()
    assert c.child.handle.done(), "nothing else could bring it, so everybody had a go"


def test_waiting_for_a_promise_lets_those_work_who_may_keep_it(
    dan: sy.VirtualWorker, eve: sy.VirtualWorker
) -> None:
    promise = dan.promise()
    later = promise + 1
    there = torch.ones(1).send(eve)
    connection = there.child.connection
    sy.synchronize()
    # Eve is told to put it there; she does so when she works.
    eve.connection_to(dan).put(torch.full((1,), 6.0), promise.id_at_location)
    assert later.child.handle.result().get().tolist() == [7]
    assert not connection.pending
