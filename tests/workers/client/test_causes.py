"""Which error is raised where one failed request follows from another: the cause."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.codes import CollectiveCode
from syft.exceptions import ObjectNotFound
from syft.serde.errors import pack_error
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.tensors.collective_call import run_collective
from syft.workers.client.connection import Connection
from syft.workers.client.pending import Pending
from syft.workers.wire.messages import Failure, encode
from tests.chain.refusal import line_here, notes_of


@pytest.fixture
def connection(hook: sy.TorchHook) -> Connection:
    """A connection to a queued worker."""
    dan = sy.VirtualWorker(hook, id="dan", pipelined=True)
    found: Connection = hook.local_worker.connection_to(dan)
    return found


def receive(connection: Connection, seq: int, error: Exception) -> None:
    """Have a reply come that says that a request failed."""
    failure = Failure(seq, pack_error(error, Packer()))
    connection.transport.replies.append(Frame(encode(failure), []))
    connection.replies.read()


# ------------------------------------------------------------------------------- replies by hand


ORDERS = list(itertools.permutations(range(5)))

FAILURES: list[tuple[int, Exception]] = [
    (101, ObjectNotFound(106, "dan", "it is promised")),
    (102, ObjectNotFound(101, "dan", "should have made it failed")),
    (103, IndexError("something else")),
    (104, ObjectNotFound(102, "dan", "should have made it failed")),
    (106, ValueError("the cause")),
]
"""What each request was to make, and how it failed.  The last one was to keep a promise; the first,
second and fourth failed because it did, and the third failed by itself."""


def fail(connection: Connection, order: tuple[int, ...]) -> list[Pending]:
    """Make requests that fail, with the replies in that order."""
    places = [(compile("", f"line {index}", "exec"), 0) for index in range(len(FAILURES))]
    requests = [
        Pending(place, made=(made,)) for place, (made, _) in zip(places, FAILURES, strict=True)
    ]
    connection.replies.pending.update(enumerate(requests, 1001))
    for index in order:
        receive(connection, 1001 + index, FAILURES[index][1])
    return requests


@pytest.mark.parametrize("order", ORDERS)
def test_in_whatever_order_failures_come_the_cause_is_raised(
    connection: Connection, order: tuple[int, ...]
) -> None:
    fail(connection, order)
    with pytest.raises(ValueError, match="^the cause") as caught:
        connection.replies.raise_unseen()
    assert "line 4" in caught.value.__notes__[0]
    connection.replies.raise_unseen()
    del caught


@pytest.mark.parametrize("order", ORDERS)
def test_who_waits_for_what_follows_is_told_the_cause(
    connection: Connection, order: tuple[int, ...]
) -> None:
    requests = fail(connection, order)
    for index in (3, 0, 3, 4, 1):
        with pytest.raises(ValueError, match="^the cause"):
            connection.replies.take(requests[index])
    with pytest.raises(IndexError):  # nobody has seen this one
        connection.replies.raise_unseen()
    connection.replies.raise_unseen()


def test_failures_that_seem_to_follow_from_each_other_are_raised(connection: Connection) -> None:
    for seq, (made, missing) in enumerate([(5, 6), (6, 5), (7, 7)], 1001):
        connection.replies.pending[seq] = Pending(made=(made,))
        receive(connection, seq, ObjectNotFound(missing, "dan"))
    with pytest.raises(ObjectNotFound):
        connection.replies.raise_unseen()
    connection.replies.raise_unseen()


def test_a_failure_that_cannot_be_read_is_raised_in_its_turn(connection: Connection) -> None:
    connection.replies.pending[1001] = Pending(made=(5,))
    connection.transport.replies.append(Frame(encode(Failure(1001, ["no", "error"])), []))
    connection.replies.pending[1002] = request = Pending()
    receive(connection, 1002, ObjectNotFound(5, "dan"))
    with pytest.raises(sy.exceptions.WireError):
        connection.replies.take(request)


# --------------------------------------------------------------------------------- by a worker


FAILING: dict[str, Callable[[Any, Any], Any]] = {
    "a command": lambda x, plan: x.view(5),
    "a call of a plan": lambda x, plan: plan(x),
    "a private command": lambda x, plan: (
        x * torch.ones(3).private_tensor(["ann"]).send(x.location, user="ann")
    ),
}


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.parametrize("steps", [1, 3])
def test_what_waits_for_a_parked_failure_is_not_raised_instead_of_it(
    worker: sy.VirtualWorker, kind: str, steps: int
) -> None:
    plan = sy.func2plan(args_shape=[(5,)])(lambda x: x.view(5)).send(worker)
    promise = worker.promise()
    wrong = value = FAILING[kind](promise, plan)
    for _ in range(steps):
        value = value + 1
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    assert f"asked for at {__file__}:" in notes_of(value.get, RuntimeError)
    with pytest.raises(ObjectNotFound, match="should have made it failed"):
        value.get()
    del wrong, kept


def test_a_handle_of_what_follows_tells_the_cause(worker: sy.VirtualWorker) -> None:
    promise = worker.promise()
    value = (promise.view(7) + 1) * 2
    line = line_here() - 1
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    for _ in range(2):
        notes = notes_of(value.child.handle.wait, RuntimeError)
        assert f"asked for at {__file__}:{line}." in notes
    sy.synchronize()  # all of it was seen
    del kept


def test_what_follows_from_a_collective_operation_tells_its_failure(hook: sy.TorchHook) -> None:
    places = [sy.VirtualWorker(hook, id=name, pipelined=True) for name in ("dan", "eve")]
    inputs = [[torch.ones(size).send(place)] for size, place in zip((2, 3), places)]
    total = run_collective(CollectiveCode.SUM, inputs)[0][0]
    value = total + 1
    own = notes_of(total.child.handle.wait, Exception)
    assert own.partition(", asked for")[2] and "dan" in own
    assert notes_of(value.child.handle.wait, Exception) == own
    del inputs
