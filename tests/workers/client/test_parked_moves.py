"""A move that waits and then fails: whoever asks for its result is told why, at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import (
    LimitExceeded,
    ObjectIdTaken,
    ObjectNotFound,
    PermissionDenied,
    PromiseGivenUp,
    UnknownWorker,
    WorkerClosed,
    WorkerLost,
)
from syft.workers.core.peer_limits import PeerLimits
from tests.chain.refusal import line_here, refusal
from tests.shells.child import make_worker
from tests.shells.owner import inspect

every_shell = pytest.mark.every_shell

REASON = "the sensor broke"


@pytest.fixture(params=["immediate", "queued"])
def other(request: pytest.FixtureRequest, hook: sy.TorchHook) -> Any:
    """A worker of each kind, to which tensors are moved."""
    return make_worker(hook, "other", pipelined=request.param == "queued")


def keep(promise: Any) -> Any:
    """Keep a promise with two numbers."""
    return torch.ones(2).send(promise.location, id=promise.id_at_location)


def private_at(worker: Any) -> torch.Tensor:
    """Private data that may go nowhere."""
    return torch.ones(2).private_tensor(["ann"]).send(worker, user="ann")


# What is moved, by the promise for which it waits; what makes the move fail; and its error.
Cause = tuple[Callable[[Any], Any], Callable[[Any], Any], type[Exception], str]
CAUSES: dict[str, Cause] = {
    "given up": (
        lambda promise: promise,
        lambda promise: promise.location.give_up(promise, REASON),
        PromiseGivenUp,
        "worker 'worker' was given up: the sensor broke",
    ),
    "given up before": (
        lambda promise: promise + 1,
        lambda promise: promise.location.give_up(promise, REASON),
        PromiseGivenUp,
        "worker 'worker' was given up: the sensor broke",
    ),
    "its operation fails": (lambda promise: promise.view(7), keep, RuntimeError, "shape '[7]' is"),
    "private": (
        lambda promise: private_at(promise.location) * promise,
        keep,
        PermissionDenied,
        "on 'worker' may not go to 'other'",
    ),
}

# How somebody asks for the result at the destination.
QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "value": lambda moved: moved.tolist(),
    "get": lambda moved: moved.get(),
    "what follows": lambda moved: (moved + 1).tolist(),
    "a copy": lambda moved: moved.copy().tolist(),
    "handle": lambda moved: (moved + 1).child.handle.wait(),
    "exception": lambda moved: throw((moved * 2).child.handle.exception()),
    "await": lambda moved: asyncio.run(awaited((moved + 1).child.handle)),
    "fetched later": lambda moved: moved.get(wait=False).result(),
    "tags": lambda moved: moved.tags,
}


def throw(error: Exception) -> None:
    raise error


async def awaited(handle: Any) -> Any:
    return await handle


def failure(question: Callable[[], Any]) -> Exception:
    """What a question raises, without the frames that it passed."""
    try:
        question()
    except Exception as error:
        error.__traceback__ = None
        return error
    raise AssertionError("it was answered")


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("cause", CAUSES)
@every_shell
def test_whoever_asks_for_what_did_not_come_is_told_why(
    worker: Any, other: Any, cause: str, question: str
) -> None:
    make, fail, kind, text = CAUSES[cause]
    promise = worker.promise()
    moving = make(promise)
    moved, line = moving.move(other), line_here()
    kept = fail(promise)
    error = failure(lambda: QUESTIONS[question](moved))
    assert type(error) is kind and text in str(error)
    if cause != "its operation fails":  # which names the line of the operation
        assert f"Raised on worker 'worker', asked for at {__file__}:{line}." in "\n".join(
            error.__notes__
        )
    assert not inspect(other).promised and not inspect(other).active
    del kept


@pytest.mark.parametrize("cause", CAUSES)
@every_shell
def test_what_waits_there_already_fails_with_it_too(worker: Any, other: Any, cause: str) -> None:
    make, fail, kind, text = CAUSES[cause]
    promise = worker.promise()
    moved = make(promise).move(other)
    later = (moved * 2).relu()
    duplicate = later.copy()
    kept = fail(promise)
    for asked in (later, duplicate, moved, later):
        error = failure(lambda asked=asked: asked.tolist())
        assert type(error) is kind and text in str(error)
    with pytest.raises(kind):
        moved.child.handle.wait()
    if kind is not PromiseGivenUp:  # which each operation that waited for it raises
        assert torch.ones(2).send(other).get().tolist() == [1, 1]
        assert torch.ones(2).send(worker).get().tolist() == [1, 1]
    del kept


@every_shell
def test_the_next_question_raises_it_as_other_failures(worker: Any, other: Any) -> None:
    """Where the move was asked for; it is raised once, and what follows from it is missing."""
    promise = worker.promise()
    moved = promise.view(7).move(other)
    kept = keep(promise)
    error = failure(sy.synchronize)
    assert "RuntimeError: shape '[7]' is invalid" in f"{type(error).__name__}: {error}"
    sy.synchronize()
    assert torch.ones(2).send(worker).get().tolist() == [1, 1]
    missing = failure(moved.tolist)
    assert isinstance(missing, ObjectNotFound) and "should have made it failed" in str(missing)
    sy.synchronize()
    del kept


@every_shell
def test_moves_that_follow_each_other_fail_with_the_first(
    hook: sy.TorchHook, worker: Any, other: Any
) -> None:
    """Also round in a circle."""
    carl = make_worker(hook, "carl")
    promise = worker.promise()
    far = ((promise + 1).move(other) * 2).move(carl)
    round_trip = (far + 1).move(worker)
    last = round_trip + 1
    worker.give_up(promise, REASON)
    for asked in (far, round_trip, last):
        error = failure(lambda asked=asked: asked.tolist())
        assert type(error) is PromiseGivenUp and REASON in str(error)
    assert not any(inspect(one).promised for one in (worker, other, carl))


@every_shell
def test_what_takes_a_while_to_come_comes(worker: Any, other: Any) -> None:
    """The control: a move that does not fail."""
    promise = worker.promise()
    moved = (promise + 1).move(other)
    later = moved * 2
    kept = keep(promise)
    assert later.get().tolist() == [4, 4] and moved.get().tolist() == [2, 2]
    sy.synchronize()
    assert not moved.child.connection.replies.moves.by_id
    assert "ObjectNotFound" in refusal(lambda: moved.tolist()), "it was fetched"
    del kept


@every_shell
def test_an_id_that_is_taken_is_refused_where_the_move_is_made(worker: Any, other: Any) -> None:
    """What is there under the id is not what was moved."""
    promise = worker.promise()
    moving = promise + 1
    there = torch.zeros(2).send(other, id=moving.id_at_location)
    with pytest.raises(ObjectIdTaken):
        moving.move(other)
    kept = keep(promise)
    assert moving.get().tolist() == [2, 2] and there.get().tolist() == [0, 0]
    sy.synchronize()
    del kept


def test_a_worker_that_is_closed_while_a_move_waits(worker: Any, other: Any) -> None:
    promise = worker.promise()
    moved, later = (promise + 1).move(other), None
    later = moved + 1
    other.close()
    kept = keep(promise)
    assert isinstance(failure(lambda: moved.tolist()), WorkerClosed)
    assert isinstance(failure(moved.child.handle.wait), WorkerClosed | UnknownWorker)
    del later
    del kept


def test_a_worker_that_is_closed_before_it_has_moved_something(worker: Any, other: Any) -> None:
    promise = worker.promise()
    moved = (promise + 1).move(other)
    later = moved + 1
    worker.close()
    for asked in (later, moved):
        error = failure(lambda asked=asked: asked.tolist())
        assert isinstance(error, WorkerClosed) and "'worker'" in str(error)
    assert not inspect(other).promised


def test_a_destination_that_has_no_room_says_so(hook: sy.TorchHook, worker: Any) -> None:
    full = sy.VirtualWorker(hook, id="full", peer_limits=PeerLimits(bytes=64))
    filling = torch.ones(12).send(full)
    promise = worker.promise()
    moving = promise + torch.ones(12).send(worker)[0]
    moved = torch.cat([moving] * 8).move(full)
    later = moved + 1
    kept = keep(promise)
    for asked in (later, moved):
        error = failure(lambda asked=asked: asked.tolist())
        assert isinstance(error, LimitExceeded), error
    del filling
    del kept


def test_a_promise_that_is_refused_takes_the_move_back(hook: sy.TorchHook, worker: Any) -> None:
    full = sy.VirtualWorker(hook, id="full", peer_limits=PeerLimits(promises=1))
    taken = full.promise()
    promise = worker.promise()
    moving = promise + 1
    with pytest.raises(LimitExceeded):
        moving.move(full)
    kept = keep(promise)
    assert moving.get().tolist() == [2, 2]
    sy.synchronize()
    del kept, taken


def test_a_process_that_is_gone_is_named_where_its_move_is_waited_for(hook: sy.TorchHook) -> None:
    def dial(*about: Any) -> Any:
        raise ConnectionRefusedError("nobody is there")

    with (
        sy.WebsocketServerWorker(hook, port=0, id="bob") as bob,
        sy.WebsocketServerWorker(hook, port=0, id="carol") as carol,
    ):
        at_bob, at_carol = sy.connect(str(bob.address)), sy.connect(str(carol.address))
        promise = at_bob.promise()
        moved = (promise + 1).move(at_carol)
        later = moved + 1
        at_bob.board._dials[at_bob.line] = dial
        with at_bob.board.monitor:
            at_bob.board.broke(at_bob.line, ConnectionResetError("it was killed"))
        for asked in (moved.child.handle.wait, later.tolist, later.child.handle.wait):
            error = failure(asked)
            assert isinstance(error, WorkerLost), error
            assert "'bob'" in str(error) and "nobody is there" in str(error)
        at_bob.close()
        error = failure(later.tolist)
        assert isinstance(error, WorkerClosed) and "'bob'" in str(error)
        at_carol.close()


@pytest.mark.parametrize("blocking", [False, True])
def test_a_destination_behind_a_socket_that_has_no_room_says_so(
    hook: sy.TorchHook, blocking: bool
) -> None:
    """It says that the object is missing before the other one says why."""
    with (
        sy.WebsocketServerWorker(hook, port=0, id="bob") as bob,
        sy.WebsocketServerWorker(hook, port=0, id="carol", peer_limits=PeerLimits(bytes=64)) as it,
    ):
        at_bob = sy.connect(str(bob.address), blocking=blocking)
        at_carol = sy.connect(str(it.address), blocking=blocking)
        promise = at_bob.promise()
        moved = torch.cat([promise] * 10).move(at_carol)
        later = moved + 1
        kept = keep(promise)
        for asked in (later.tolist, moved.tolist):
            error = failure(asked)
            assert isinstance(error, LimitExceeded) and "'carol'" in str(error), error
        del kept, promise, moved, later, asked
        at_bob.close()
        at_carol.close()


@every_shell
def test_who_gives_up_what_a_move_was_to_bring_is_told_that(worker: Any, other: Any) -> None:
    promise = worker.promise()
    moved = (promise + 1).move(other)
    later = moved + 1
    other.give_up(moved, "it is not needed")
    with pytest.raises(PromiseGivenUp, match="it is not needed"):
        later.tolist()


def test_failed_moves_are_not_remembered_for_ever(worker: Any, other: Any) -> None:
    promise = worker.promise()
    pointers = [promise.view(7).move(other) for _ in range(70)]
    kept = keep(promise)
    for pointer in pointers:
        failure(pointer.child.handle.wait)
    assert len(pointers[0].child.connection.replies.moves.by_id) == 64
    assert isinstance(failure(pointers[-1].tolist), RuntimeError)
    while failures := [one for one in (worker, other) if one.connection().replies.unseen]:
        for one in failures:
            failure(one.connection().synchronize)
    del kept


def test_a_leaf_of_which_no_view_is_taken_is_not_moved(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf = torch.ones(2, requires_grad=True).send(bob)
    loss = (leaf * 2).sum()

    def command(*about: Any, **more: Any) -> int:
        raise LimitExceeded("worker 'alice'", "MAX_OBJECTS", 1, 2)

    with monkeypatch.context() as patch:
        patch.setattr(type(bob.connection_to(alice).operations), "command", command)
        assert refusal(lambda: leaf.move(alice)).startswith("LimitExceeded")
    bob.collect()
    assert not inspect(alice).objects
    loss.backward()
    assert leaf.grad.copy().get().tolist() == [2, 2]
