"""Handles: waiting for a command, asking whether it is done, awaiting it; without threads."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import (
    MalformedMessage,
    NothingToGet,
    ObjectIdTaken,
    ObjectNotReady,
    PermissionDenied,
    UnsupportedOperation,
)
from syft.workers.client.handles import PATIENCE
from syft.workers.wire.messages import Command, Duplicate, Value
from tests.shells.child import goes_on_by_itself, make_worker
from tests.shells.owner import inspect

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
    assert PATIENCE <= turns < 2 * PATIENCE


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
    assert b.child.handle.done()
    if not goes_on_by_itself(fay):
        assert not c.child.handle.done()
    assert inner.get().tolist() == [1]
    promise = dan.promise()
    later = promise + 1
    sent = torch.ones(1).send(eve) * 5
    moved = sent.move(dan)
    kept = moved.copy()
    if not goes_on_by_itself(fay):
        assert not c.child.handle.done()
    assert kept.get().tolist() == [5]
    with pytest.raises(ObjectNotReady):
        later.get()
    assert c.child.handle.done(), "nothing else could bring it, so everybody had a go"


def test_waiting_for_a_promise_lets_those_work_who_may_keep_it(
    dan: sy.VirtualWorker, eve: sy.VirtualWorker
) -> None:
    promise = dan.promise(sender="eve")
    later = promise + 1
    there = torch.ones(1).send(eve)
    connection = there.child.connection
    sy.synchronize()
    # Eve is told to put it there; she does so when she works.
    eve.connection_to(dan).put(torch.full((1,), 6.0), promise.id_at_location)
    assert later.child.handle.result().get().tolist() == [7]
    assert not connection.replies.pending


# ----------------------------------------------------------- what is sent, fetched or run backward


def test_a_handle_of_what_was_sent_tells_the_truth(hook: sy.TorchHook, shell: str) -> None:
    queued = make_worker(hook, "queued", pipelined=True)
    sent = torch.ones(2).send(queued)
    if shell == "virtual":
        assert not sent.child.handle.done() and queued.inbox
    sent.child.handle.wait()
    assert sent.child.handle.done() and len(inspect(queued)) == 1
    taken = torch.zeros(2).send(queued, id=sent.id_at_location, garbage_collect_data=False)
    handle = taken.child.handle
    assert isinstance(handle.exception(), ObjectIdTaken) and handle.done()
    for ask in (handle.wait, handle.result, lambda: asyncio.run(awaited(taken))):
        with pytest.raises(ObjectIdTaken):
            ask()
    gc.collect()
    assert sent.get().tolist() == [1, 1]


def test_a_handle_of_what_a_group_sends(hook: sy.TorchHook) -> None:
    queued = make_worker(hook, "queued", pipelined=True)
    with queued.group():
        sent = torch.ones(2).send(queued)
        assert not sent.child.handle.done()
    assert sent.child.handle.exception() is None and sent.child.handle.done()
    assert sent.get().tolist() == [1, 1]


def test_backward_has_a_handle(worker: sy.VirtualWorker) -> None:
    leaf = torch.ones(2, requires_grad=True).send(worker)
    promise = worker.promise()
    loss = leaf * 3
    loss.backward(promise)
    assert not loss.child.handle.done()
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    assert loss.child.handle.exception() is None and loss.child.handle.done()
    assert leaf.grad.get().tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward(kept)
        loss.child.handle.wait()


def test_a_fetch_need_not_be_waited_for(worker: sy.VirtualWorker) -> None:
    promise = worker.promise()
    handle = (promise + 1).get(wait=False)
    assert not handle.done()
    with pytest.raises(ObjectNotReady, match=str(promise.id_at_location)):
        handle.result()
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    result = handle.result()
    assert result.tolist() == [2, 2] and handle.result() is result and handle.done()
    assert len(inspect(worker)) == 1, "the fetched one is gone"
    assert asyncio.run(both_of(kept.copy().get(wait=False), promise.copy().get(wait=False))) == [
        [1, 1],
        [1, 1],
    ]


async def both_of(*handles: Any) -> list[list[float]]:
    return [tensor.tolist() for tensor in await asyncio.gather(*map(value_of, handles))]


async def value_of(handle: Any) -> torch.Tensor:
    tensor: torch.Tensor = await handle
    return tensor


def test_a_fetch_that_fails_leaves_the_object_to_its_pointer(worker: sy.VirtualWorker) -> None:
    secret = torch.ones(2).private_tensor(["ann"]).send(worker, user="ann")
    handle = secret.get(wait=False)
    assert isinstance(handle.exception(), PermissionDenied)
    with pytest.raises(PermissionDenied):
        handle.result()
    assert len(inspect(worker)) == 1
    del secret, handle
    worker.collect()
    assert not inspect(worker).objects


def test_fetching_from_several_workers_gives_a_handle_each(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    both = torch.ones(2).send(bob, alice)
    with pytest.raises(UnsupportedOperation, match="add them up"):
        both.get(sum_results=True, wait=False)
    assert [handle.result().tolist() for handle in both.get(wait=False)] == [[1, 1], [1, 1]]
    with pytest.raises(NothingToGet):
        torch.ones(2).get(wait=False)


def test_done_callbacks_are_called_once_where_the_reply_is_read(worker: sy.VirtualWorker) -> None:
    promise = worker.promise()
    later = promise + 1
    called: list[tuple[str, bool]] = []
    for name in ("first", "second"):
        later.child.handle.add_done_callback(lambda handle, name=name: called.append(name))
    sy.synchronize()
    assert called == []
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    later.child.handle.wait()
    assert called == ["first", "second"]
    later.child.handle.add_done_callback(lambda handle: called.append(handle.succeeded()))
    kept.child.handle.add_done_callback(lambda handle: called.append(handle.done()))
    assert called == ["first", "second", True, True]
    assert kept.child.connection.replies.callbacks == {}


def test_an_order_that_is_answered_with_a_value_is_refused(
    bob: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of another version may answer otherwise: nothing is left at either end."""
    if not isinstance(bob, sy.VirtualWorker):
        pytest.skip("looks inside the worker")
    x = torch.ones(2).send(bob)
    real = bob.core.handlers[Duplicate]

    def answer(core: Any, message: Any, frame: Any, peer: Any) -> Any:
        real(core, message, frame, peer)
        return Value(message.seq, 5)

    monkeypatch.setitem(bob.core.handlers, Duplicate, answer)
    with pytest.raises(MalformedMessage, match="an answer without a value"):
        x.copy()
    bob.collect()
    assert bob.list_objects() == [x.id_at_location]


def test_a_handle_of_what_was_done_at_once_has_no_exception(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    assert x.child.handle.exception() is None and (x + 1).child.handle.exception() is None
