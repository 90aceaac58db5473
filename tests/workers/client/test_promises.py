"""Errors that say which promise is not kept, and handles of promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import CannotRecord, ObjectNotFound, ObjectNotReady, PromiseGivenUp
from syft.workers.client.pending import Pending
from syft.workers.wire.messages import MOST_NAMED, Await, Parked, Promise
from tests.shells.child import make_worker
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell


def named(question: Callable[[], Any]) -> tuple[int, ...]:
    """The promises that the error of a question names."""
    try:
        question()
    except (
        ObjectNotReady
    ) as error:  # not by pytest.raises: it would keep the pointers of the frames
        assert not error.more and all(str(id) in str(error) for id in error.ids)
        return error.ids
    raise AssertionError("it was answered")


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "shape": lambda x: x.shape,
    "value": lambda x: x.tolist(),
    "number of results": lambda x: x.split(1),
    "get": lambda x: x.copy().get(),
    "get all": lambda x: sy.get_all([x.copy()]),
    "copy": lambda x: x.copy().shape,
    "tags": lambda x: x.tags,
    "gradient": lambda x: x.grad,
    "wait": lambda x: (x + 1).child.handle.wait(),
    "exception": lambda x: (x + 1).child.handle.exception(),
    "several results": lambda x: x.max(0).indices.child.handle.wait(),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_names_the_promise_it_would_wait_for(worker: Any, question: str) -> None:
    promise = worker.promise()
    ask = QUESTIONS[question]
    for waits in (promise, promise + 1, ((promise + 1) * 2).sort().values):
        assert named(lambda waits=waits: ask(waits)) == (promise.id_at_location,)
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    assert ((promise + 1) * 2).get().tolist() == [4, 4]
    del kept


def test_all_promises_are_named_and_those_kept_are_not(worker: Any) -> None:
    x, y = worker.promise(), worker.promise()
    both = tuple(sorted((x.id_at_location, y.id_at_location)))
    total = x + y
    assert named(lambda: (total * 2).shape) == both
    assert named(total.child.handle.wait) == both
    kept = torch.ones(2).send(worker, id=x.id_at_location)
    assert named(lambda: (total * 2).shape) == (y.id_at_location,)
    many = [worker.promise() for _ in range(MOST_NAMED + 1)]
    stacked = torch.stack(many)
    handle = stacked.child.handle
    try:
        handle.wait()
    except ObjectNotReady as error:
        assert len(error.ids) == MOST_NAMED and error.more and "and others" in str(error)
        assert {promise.id_at_location for promise in many}.issuperset(error.ids)
    assert not handle.done()
    del kept


def test_a_group_and_a_plan_name_it_too(worker: Any) -> None:
    promise = worker.promise()
    id = promise.id_at_location

    def in_group() -> Any:
        with worker.group():
            return ((promise + 1) * 2).shape

    assert named(in_group) == (id,)
    with worker.group():
        held = promise + 1
    assert named(held.child.handle.wait) == (id,) and named(lambda: held.shape) == (id,)
    double = sy.func2plan(args_shape=[(2,)])(lambda x: x * 2).send(worker)
    given = worker.promise()
    result = double(double(given))
    assert named(lambda: result.shape) == (given.id_at_location,)
    assert named(result.child.handle.wait) == (given.id_at_location,)


def test_what_moves_names_it_at_both_ends(worker: Any, alice: Any) -> None:
    promise = worker.promise()
    moved = (promise + 1).move(alice)
    handle = moved.child.handle
    assert not handle.done()
    assert named(handle.wait) == (promise.id_at_location,)
    assert named(lambda: (moved * 2).shape) == (moved.id_at_location,), "alice knows no more"
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    handle.wait()
    assert handle.done() and moved.get().tolist() == [2, 2]
    del kept


def test_no_more_is_taken_from_a_reply_than_is_told() -> None:
    pending = Pending()
    assert pending.not_ready("bob").ids == () and not pending.not_ready("bob").more
    pending.wait = Parked(1, tuple(range(10**5)))
    assert pending.not_ready("bob").ids == tuple(range(MOST_NAMED))
    assert pending.not_ready("bob").more


# ------------------------------------------------------------------------------ handles of promises


def test_a_promise_is_done_when_it_is_kept(worker: Any) -> None:
    promise = worker.promise()
    handle = promise.child.handle
    assert not handle.done() and not handle.succeeded()
    assert named(handle.wait) == named(handle.exception) == (promise.id_at_location,)
    assert named(lambda: asyncio.run(awaited(handle))) == (promise.id_at_location,)
    called: list[bool] = []
    handle.add_done_callback(lambda done: called.append(done.done()))
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    handle.wait()
    assert handle.done() and handle.succeeded() and handle.exception() is None
    assert called == [True] and handle.result().get().tolist() == [1, 1]
    del kept


async def awaited(handle: Any) -> Any:
    return await handle


def test_a_promise_kept_by_somebody_else_is_done(hook: sy.TorchHook, worker: Any) -> None:
    eve = make_worker(hook, "eve", pipelined=True)
    promise = worker.promise(sender="eve")
    handle = promise.child.handle
    assert not handle.done()
    if not isinstance(eve, sy.VirtualWorker):
        pytest.skip("acts as the other worker, in this process")
    eve.connection_to(worker).put(torch.full((2,), 6.0), promise.id_at_location)
    handle.wait()
    assert handle.done() and promise.get().tolist() == [6, 6]


def test_who_waits_for_a_promise_learns_that_it_was_given_up(worker: Any) -> None:
    promise = worker.promise()
    handle = promise.child.handle
    worker.give_up(promise, "the sensor broke")
    assert sy.synchronize() is None, "nobody waited, so nothing went wrong"
    assert torch.ones(2).send(worker).get().tolist() == [1, 1]
    for wait in (handle.wait, handle.result, lambda: asyncio.run(awaited(handle))):
        with pytest.raises(PromiseGivenUp, match="the sensor broke"):
            wait()
    assert handle.done() and not handle.succeeded()
    assert isinstance(handle.exception(), PromiseGivenUp)
    late = worker.promise()
    worker.give_up(late, "so did this one")
    assert isinstance(late.child.handle.exception(), PromiseGivenUp), "asked after it"
    later = worker.promise()
    torch.ones(2).send(worker, id=later.id_at_location).get()
    assert later.child.handle.exception() is None, "it was kept, and then fetched"
    with pytest.raises(ObjectNotFound, match="fetched it"):
        later.get()


def test_nobody_is_asked_about_a_promise_without_a_handle(hook: sy.TorchHook, worker: Any) -> None:
    with hook.record() as log:
        promise = worker.promise()
        (promise + 1).copy()
    sent = [type(entry.message) for entry in log.to("worker")]
    assert Promise in sent and Await not in sent
    with hook.record() as log:
        first, second = promise.child.handle, promise.child.handle
        assert not first.done() and not second.done()
        sy.synchronize()
    assert [type(entry.message) for entry in log.to("worker")] == [Await]
    written = promise.add_(1)
    assert not written.child.handle.done()
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    written.child.handle.wait()
    second.wait()
    assert first.done() and promise.get().tolist() == [2, 2]
    del kept


def test_a_handle_does_not_keep_a_promise(worker: Any) -> None:
    promise = worker.promise()
    assert not promise.child.handle.done()
    id, connection = promise.id_at_location, promise.child.connection
    del promise
    worker.collect()
    sy.synchronize()
    assert not connection.replies.pending
    late = torch.ones(2).send(worker, id=id)
    assert set(inspect(worker).objects) == {id}, "it is a new object"
    del late


def test_a_plan_asks_nobody_about_a_promise(worker: Any) -> None:
    promise = worker.promise()

    def asks(x: torch.Tensor) -> torch.Tensor:
        promise.child.handle.wait()
        return x * 2

    with pytest.raises(CannotRecord, match="waiting for a promise at"):
        sy.func2plan(args_shape=[(2,)])(asks)
