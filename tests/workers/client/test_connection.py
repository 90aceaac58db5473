"""Requests and replies: errors rise at the line that asked, and nothing is left on the way."""

from __future__ import annotations

import time
import gc
import math
import weakref
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch

import syft as sy
from syft import c_extension
from syft.codes import TypeCode
from syft.exceptions import (
    MalformedMessage,
    ObjectNotFound,
    ObjectNotReady,
    PermissionDenied,
    RemoteFailure,
    WorkerClosed,
)
from syft.ids import new_id
from syft.ops.returns import ONE_TENSOR
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.serde.errors import pack_error
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.client.connection import Connection
from syft.workers.core.store import TOMBSTONES
from syft.workers.handlers import commands
from syft.workers.wire import messages
from syft.workers.wire.definitions import Group, InputKind
from syft.workers.wire.messages import (
    Allow,
    Annotate,
    Command,
    Convert,
    Describe,
    Done,
    Duplicate,
    Failure,
    Fetch,
    FetchAll,
    Forgotten,
    GiveUp,
    Gradients,
    Holds,
    Message,
    Move,
    Parked,
    Promise,
    Put,
    PutAll,
    Relay,
    Reply,
    Run,
    Search,
    Skipped,
    Value,
)
from syft.workers.wire.references import REF
from tests.chain.refusal import line_here, notes_of, refusal
from tests.shells.child import make_worker
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell


# ------------------------------------------------------------------------------- which error, where


@pytest.mark.parametrize(
    "act, kind, text",
    [
        (lambda x: x.matmul(x.expand(2, 3)).shape, RuntimeError, "mat1 and mat2|size mismatch|mul"),
        (lambda x: x[5].shape, IndexError, "out of bounds"),
        (lambda x: torch.linalg.inv(x.expand(3, 3)).shape, torch.linalg.LinAlgError, "singular"),
        (lambda x: x.sum(dim="no").shape, (TypeError, RuntimeError), "sum"),
        (lambda x: x.view(2, 2).shape, RuntimeError, "shape"),
        (lambda x: int(x), (ValueError, RuntimeError, TypeError), "converted|scalar"),
        (lambda x: x.softmax(dim=9).shape, IndexError, "Dimension out of range"),
    ],
)
def test_an_error_is_of_the_class_it_was(
    worker: sy.VirtualWorker, act: Any, kind: type[Exception], text: str
) -> None:
    x = torch.ones(3).send(worker)
    with pytest.raises(kind, match=text):
        act(x)
    assert x.get().tolist() == [1, 1, 1]


def test_an_error_carries_the_remote_traceback_and_the_line_that_asked(
    bob: sy.VirtualWorker,
) -> None:
    x = torch.ones(3).send(bob)
    notes = notes_of(lambda: x.view(5), RuntimeError)
    assert f"Raised on worker 'bob', asked for at {__file__}:{line_here() - 1}." in notes
    if isinstance(bob, sy.WebsocketClientWorker):
        assert "Traceback on worker 'bob':\nin the log of its owner, under reference " in notes
        assert "commands.py" not in notes, "the owner's files are not told"
        return
    assert "Traceback on worker 'bob':\nTraceback (most recent call last):" in notes
    assert "commands.py" in notes and "shape '[5]' is invalid" in notes


def test_an_error_names_the_line_that_issued_it_and_not_the_line_that_waits(
    hook: sy.TorchHook,
) -> None:
    dan = make_worker(hook, id="dan", pipelined=True)
    x = torch.ones(3).send(dan)
    issuers: list[tuple[str, Callable[[], Any]]] = [
        ("synchronize", lambda: sy.synchronize()),
        ("get", lambda: wrong.get()),
        ("a value", lambda: x.tolist()),
        ("a shape", lambda: right.shape),
        ("wait", lambda: wrong.child.handle.wait()),
        ("result", lambda: wrong.child.handle.result()),
    ]
    for name, wait in issuers:
        wrong = x.view(5)
        line = line_here() - 1
        right = x + 1
        notes = notes_of(wait, RuntimeError)
        assert f"asked for at {__file__}:{line}." in notes, name
        assert right.get().tolist() == [2, 2, 2]
        with pytest.raises(ObjectNotFound, match="should have made it failed"):
            wrong.get()
    assert x.get().tolist() == [1, 1, 1]


def test_a_module_of_torch_is_not_the_line(hook: sy.TorchHook) -> None:
    dan = make_worker(hook, id="dan", pipelined=True)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2)).send(dan)
    data = torch.ones(1, 5).send(dan)
    model(data)
    line = line_here() - 1
    notes = notes_of(sy.synchronize, RuntimeError)
    assert f"asked for at {__file__}:{line}." in notes


def test_a_parked_operation_that_fails_names_its_line(bob: sy.VirtualWorker) -> None:
    promise = bob.promise()
    wrong = promise.view(7)
    line = line_here() - 1
    kept = torch.ones(2).send(bob, id=promise.id_at_location)
    notes = notes_of(lambda: wrong.get(), RuntimeError)
    assert f"asked for at {__file__}:{line}." in notes
    del kept


def test_the_first_error_is_raised_and_those_that_follow_from_it_are_not(
    hook: sy.TorchHook,
) -> None:
    dan = make_worker(hook, id="dan", pipelined=True)
    x = torch.ones(3).send(dan)
    value = ((x.view(5) + 1) * 2).sum()
    with pytest.raises(RuntimeError, match="shape"):
        value.item()
    sy.synchronize()
    y = torch.ones(2).send(dan)
    y.view(5)
    y.view(6)
    with pytest.raises(RuntimeError, match=r"shape '\[5\]'"):
        sy.synchronize()
    sy.synchronize()


def test_an_error_of_before_is_raised_before_anything_is_stored(hook: sy.TorchHook) -> None:
    dan = make_worker(hook, id="dan", pipelined=True)
    bob = make_worker(hook, id="bob")
    x = torch.ones(3).send(dan)
    y = torch.ones(2).send(bob)
    for request in (lambda: torch.ones(1).send(bob), lambda: y.copy(), lambda: y.move(dan)):
        promise = bob.promise()
        broken = promise.view(7)
        kept = torch.ones(2).send(bob, id=promise.id_at_location)
        with pytest.raises(RuntimeError, match="shape"):
            request()
        del promise, broken, kept
    assert len(inspect(bob)) == 1
    x.view(7)
    temporary = x + 1
    del temporary  # its id is garbage that the next, refused request must not lose
    with pytest.raises(RuntimeError, match="shape"):
        x.sum().tolist()
    assert len(inspect(dan)) == 1


def test_what_failed_fails_each_time_one_asks(hook: sy.TorchHook) -> None:
    dan = make_worker(hook, id="dan", pipelined=True)
    wrong = torch.ones(3).send(dan).view(5)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="shape"):
            wrong.child.handle.wait()
    sy.synchronize()


def test_an_error_keeps_nothing_alive(worker: sy.VirtualWorker) -> None:
    class Token:
        pass

    def fail() -> weakref.ref[Token]:
        token = Token()
        x = torch.ones(3).send(worker)
        try:
            x.view(5).get()
        except RuntimeError:
            pass
        return weakref.ref(token)

    assert not gc.isenabled()
    assert fail()() is None
    assert not inspect(worker).objects


def test_a_store_is_as_it_was_after_an_error(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2, 2).send(worker)
    before = {id: value.clone() for id, value in inspect(worker).objects.items()}
    for act in (
        lambda: x.matmul(torch.ones(3, 3).send(worker)).get(),
        lambda: x.add_(torch.ones(5).send(worker)),
        lambda: torch.cat([x, torch.ones(1).send(worker)]).get(),
    ):
        with pytest.raises(RuntimeError):
            act()
            sy.synchronize()
    after = inspect(worker).objects
    assert list(after) == list(before)
    assert all(torch.equal(after[id], before[id]) for id in before)
    assert x.get().tolist() == [[1, 1], [1, 1]]


# ---------------------------------------------------------------------------------- what removed it


def test_an_object_that_is_gone_says_what_removed_it(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    first = torch.ones(2).send(worker)
    first.get()
    with pytest.raises(ObjectNotFound, match="me fetched it with get()"):
        first.get()
    with pytest.raises(ObjectNotFound, match="me fetched it with get()"):
        (first + 1).get()
    second = torch.ones(2).send(worker)
    moved = second.move(alice)
    with pytest.raises(ObjectNotFound, match="me moved it to alice"):
        second.get()
    third = torch.ones(2).send(worker)
    worker.clear_objects()
    with pytest.raises(ObjectNotFound, match="worker worker was cleared with clear_objects"):
        third.get()
    fourth = torch.ones(2).send(worker)
    (found,) = worker.search(str(fourth.id_at_location))
    del fourth
    with pytest.raises(ObjectNotFound, match="me dropped its last pointer to it"):
        found.get()
    assert moved.get().tolist() == [1, 1]


@pytest.mark.virtual_only("counts what the worker remembers of objects that are gone")
def test_tombstones_do_not_grow_with_the_number_of_pointers(bob: sy.VirtualWorker) -> None:
    x = torch.ones(1).send(bob)
    for _ in range(TOMBSTONES + 100):
        x.add(1)
    assert len(bob.core.store._gone) <= TOMBSTONES
    assert len(inspect(bob)) == 1


# ------------------------------------------------------------------------------------------ replies


def test_a_reply_that_cannot_be_read_is_an_error_of_who_waits(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    dan = sy.VirtualWorker(hook, id="dan", pipelined=True)
    x = torch.ones(2).send(dan)
    sy.synchronize()
    answer = commands._reply
    for broken in (Failure(0, "no error"), Value(0, (99,)), Value(0, (0, "id"))):

        def reply(call: Any, command: Any, *_: Any, broken: Any = broken) -> Any:
            if type(broken) is Value:
                return call.tell(broken.value, lambda guard: True)
            return Failure(command.seq, broken.error)

        monkeypatch.setattr(commands, "_reply", reply)
        with pytest.raises(MalformedMessage):
            x.tolist()
        monkeypatch.setattr(commands, "_reply", answer)
        assert x.tolist() == [1, 1], "the line goes on"


def answer(worker: sy.VirtualWorker, *replies: Reply) -> None:
    """Have a worker send replies to its one caller, though it was asked nothing."""
    (peer,) = worker.callers
    for reply in replies:
        worker.core.answer(peer, reply)
    worker.network.carry(worker.core.outgoing(), worker)


@pytest.mark.virtual_only("has the worker send replies that nobody asked for")
def test_replies_nobody_waits_for_are_ignored(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(worker)
    sy.synchronize()
    late = 10**6
    failure = Failure(late, pack_error(KeyError(1), Packer()))
    answer(worker, Done(late), Value(late, 5), Parked(late), Skipped(late), failure, Forgotten())
    assert x.get().tolist() == [1, 1]
    connection = x.child.connection
    assert (
        not connection.replies.pending
        and not connection.replies.unseen
        and not connection.transport.replies
    )


@pytest.mark.virtual_only("replaces a function in the worker's process")
def test_a_class_without_a_number_comes_as_a_remote_failure(
    bob: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd(Exception):
        pass

    def fail(*args: Any) -> Any:
        raise Odd("strange")

    x = torch.ones(2).send(bob)
    c_extension.use(False)  # until this test ends
    monkeypatch.setattr(commands, "present", fail)
    with pytest.raises(RemoteFailure, match="Odd: strange"):
        x + 1
    monkeypatch.undo()
    assert x.get().tolist() == [1, 1]


def test_nothing_is_left_pending(worker: sy.VirtualWorker) -> None:
    connection = worker.network.local.connection_to(worker)
    x = torch.ones(2).send(worker)
    y = (x + 1) * 2
    with pytest.raises(RuntimeError):
        x.view(7).get()
    with pytest.raises(ObjectNotReady):
        (worker.promise() + x).get()
    assert y.get().tolist() == [4, 4] and x.get().tolist() == [1, 1]
    sy.synchronize()
    assert not inspect(worker).objects
    assert (
        not connection.replies.pending
        and not connection.replies.unseen
        and not connection.garbage.ids
    )


# ----------------------------------------------------------------------------------- closed workers


def test_a_closed_worker_says_so(worker: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(worker)
    sy.synchronize()
    inner = torch.ones(2).send(alice).send(worker)
    worker.close()
    for act in (
        lambda: x + 1,
        lambda: x.get(),
        lambda: x.shape,
        lambda: x.copy(),
        lambda: torch.ones(2).send(worker),
        lambda: x.tag("#a"),
        lambda: worker.torch.zeros(2),
        lambda: worker.search("#a"),
        lambda: x.move(alice),
        lambda: inner.get(),
    ):
        with pytest.raises(WorkerClosed, match="Worker 'worker' is closed"):
            act()
    end = time.monotonic() + 10  # another process says so in its own time
    while inspect(alice).objects and time.monotonic() < end:
        time.sleep(0.01)
    assert not inspect(alice).objects, "what a closed worker pointed to is freed"
    assert inspect(worker).objects == {}
    assert repr(worker) == f"<{type(worker).__name__} id:worker #objects:0>"
    worker.close()
    again = sy.VirtualWorker(sy.hook, id="worker")
    assert torch.ones(1).send(again).get().tolist() == [1]
    with pytest.raises(WorkerClosed):
        x + 1


# -------------------------------------------------------------------------------------------- modes


def test_modes_hold_at_the_other_worker(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2, requires_grad=True).send(worker)
    assert (x * 2).requires_grad
    with torch.no_grad():
        assert not (x * 2).requires_grad
    with torch.inference_mode():
        inferred = x * 2
    assert inferred.is_inference() and not inferred.requires_grad
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x.view(1, 2) @ x.view(2, 1)).dtype is torch.bfloat16
        with torch.autocast("cpu", enabled=False):
            assert (x.view(1, 2) @ x.view(2, 1)).dtype is torch.float32
    assert (x.view(1, 2) @ x.view(2, 1)).dtype is torch.float32


def test_a_custom_function_on_a_pointer_is_refused(worker: sy.VirtualWorker) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    x = torch.ones(2, requires_grad=True).send(worker)
    with pytest.raises(sy.exceptions.UnsupportedOperation, match="autograd.Function"):
        Double.apply(x)
    gc.collect()  # a class is always in a cycle
    assert x.get().tolist() == [1, 1]


def test_a_queued_command_runs_in_the_modes_of_its_own_line(hook: sy.TorchHook) -> None:
    dan = make_worker(hook, id="dan", pipelined=True)
    x = torch.ones(2, 2, requires_grad=True).send(dan)
    product = x @ x
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        sy.synchronize()
    result = product.get()
    assert result.dtype is torch.float32 and not result.is_inference()
    with torch.no_grad():
        frozen = x @ x
    assert not frozen.requires_grad


def test_a_worker_that_waits_for_itself_is_served_by_itself(hook: sy.TorchHook) -> None:
    dan = sy.VirtualWorker(hook, id="dan", pipelined=True)
    eve = sy.VirtualWorker(hook, id="eve", pipelined=True)
    pointer = torch.ones(2).send(dan).send(eve).send(dan)
    assert pointer.tolist() == [1, 1]
    pointer.remote_get()
    pointer.remote_get()
    assert not dan.connection_to(dan).replies.pending
    assert pointer.get().tolist() == [1, 1]


def test_what_was_sent_is_not_what_it_becomes(worker: sy.VirtualWorker) -> None:
    local = torch.ones(2)
    remote = local.send(worker)
    local += 5
    assert remote.get().tolist() == [1, 1]
    target = torch.zeros(2).send(worker)
    target.copy_(local)
    local += 5
    assert target.copy().get().tolist() == [6, 6]
    fetched = target.get()
    assert fetched.tolist() == [6, 6]


def test_a_private_tensor_does_not_travel_inside_a_command(worker: sy.VirtualWorker) -> None:
    private = torch.ones(2).private_tensor(["ann"])
    target = torch.zeros(2).send(worker)
    with pytest.raises(sy.exceptions.LocationMismatch):
        target.copy_(private)
    with pytest.raises(sy.exceptions.LocationMismatch):
        target + torch.tensor(1.0).private_tensor(["ann"])
    with pytest.raises(PermissionDenied):
        private.send(worker)
    assert target.get().tolist() == [0, 0]


# ---------------------------------------------------------- requests that the other end cannot read


def test_a_request_that_cannot_be_read_says_so(
    hook: sy.TorchHook, worker: sy.VirtualWorker
) -> None:
    x = torch.ones(2).send(worker)
    connection = x.child.connection
    for _ in range(2):
        with pytest.raises(MalformedMessage, match=r"\$\[2\]: expected `int`, got `str`") as caught:
            connection.ask(Describe, "abc")
        assert f"Raised on worker 'worker', asked for at {__file__}" in caught.value.__notes__[0]
        del caught
        assert connection.replies.pending == {} and connection.replies.unseen == []
    assert x.tags == set()


@pytest.mark.parametrize("observed", [False, True])
def test_a_command_that_cannot_be_read_says_so(worker: sy.VirtualWorker, observed: bool) -> None:
    x = torch.ones(2).send(worker)
    connection = x.child.connection
    if observed:
        worker.network.observers.append(lambda sender, receiver, frame: None)
    for answered in (True, False):
        with pytest.raises(MalformedMessage, match="expected `int`, got `str`"):
            connection.operations.command("abc", (), None, 0, [], None if answered else ONE_TENSOR)
            assert worker.pipelined and not answered
            sy.synchronize()  # nobody waited for it until here
        assert connection.replies.pending == {} and connection.replies.unseen == []
    assert x.tags == set()


@pytest.mark.virtual_only("has the worker send replies that nobody asked for")
def test_a_late_failure_without_a_request_is_raised_once(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(worker)
    promise = worker.promise()
    sy.synchronize()
    stray = Failure(-1, pack_error(ValueError("stray"), Packer()))
    for question in (lambda: x.tags, lambda: promise.shape, sy.synchronize):
        answer(worker, stray)
        assert refusal(question) == "ValueError: stray"
        assert x.tags == set()
    assert refusal(lambda: promise.shape).startswith("ObjectNotReady: Worker 'worker' still waits")
    assert (x + 1).get().tolist() == [2, 2]


# ------------------------------------------------------------------------ questions after a failure


def asked(kind: type[Message], id: int) -> tuple[Any, ...]:
    """The fields of a question of a kind about an object."""
    fields: dict[type[Message], tuple[Any, ...]] = {
        Put: (new_id(), pack(torch.empty(0, device="meta"), Packer())),
        Fetch: (id,),
        PutAll: (new_id(), (int(TypeCode.BUNDLE), None, (), ())),
        FetchAll: ((id,),),
        Move: (id, "alice"),
        Duplicate: (id, new_id()),
        Allow: (id, ("bea",), new_id()),
        Search: ((),),
        Annotate: (id, ("#a",)),
        Describe: (id,),
        Promise: ((new_id(),),),
        Relay: (id, "alice"),
        Convert: (id, 1, (int(TypeCode.TUPLE),), new_id()),
        Holds: (id, b""),
        GiveUp: (id, "the sensor broke"),
        Gradients: ((id,), new_id()),
    }
    return fields[kind]


def question(connection: Connection, kind: type[Message], id: int) -> None:
    """Ask a question of a kind about an object."""
    if kind is Command:
        connection.operations.command(
            BY_NAME["torch.Tensor.max"], ((REF, id), 0), None, new_id(), [], None
        )
    elif kind is Run:
        action = Action(BY_NAME["torch.Tensor.neg_"], (Slot(0),), {}, None)
        group = Group((InputKind.REFERENCE,), Program(1, (action,), ()))
        connection.operations.run("neg", lambda: group, [id], 0, answered=True)
    else:
        connection.ask(kind, *asked(kind, id))


KINDS = [kind for kind in get_args(messages.Request) if "failures" in kind.__struct_fields__]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_question_after_a_failure_is_not_made(
    hook: sy.TorchHook, alice: sy.VirtualWorker, kind: type[Message]
) -> None:
    dan = sy.VirtualWorker(hook, id="dan", pipelined=True)
    x, dead = torch.ones(3).send(dan), torch.zeros(1).send(dan)
    sy.synchronize()
    before = {id: value.tolist() for id, value in dan.core.store.objects.items()}
    connection, dropped = x.child.connection, dead.id_at_location
    x.view(7)
    line = line_here() - 1
    del dead
    with hook.record() as log:
        notes = notes_of(lambda: question(connection, kind, x.id_at_location), RuntimeError)
    assert f"asked for at {__file__}:{line}." in notes, "the earlier error is raised"
    received = [type(entry.message) for entry in log if entry.receiver == "dan"]
    assert received == [Command, kind], "the question was made before the error was known"
    assert [type(e.message) for e in log if e.sender == "dan"] == [Failure, Skipped]
    assert {id: value.tolist() for id, value in dan.core.store.objects.items()} == before
    assert not dan.core.store.promised and dan.core.store.open(x.id_at_location).__dict__ == {}
    assert not connection.replies.pending and not connection.replies.unseen
    assert dropped in connection.garbage.ids, "its drop will go along with the next request"
    assert x.tags == set() and dropped not in dan.core.store.objects
    assert not inspect(alice).objects
    if kind is Run:
        question(connection, kind, x.id_at_location)  # it is defined once more
        assert x.tolist() == [-1, -1, -1]
    del log


def test_what_asked_before_the_failure_is_answered(hook: sy.TorchHook) -> None:
    dan = make_worker(hook, id="dan", pipelined=True)
    x = torch.ones(3).send(dan)
    assert x.tolist() == [1, 1, 1]
    x.view(7)
    y = x + 1  # nobody waits for it, so it is made
    assert "shape '[7]'" in refusal(lambda: x.tolist())
    assert y.get().tolist() == [2, 2, 2] and x.get().tolist() == [1, 1, 1]


# ----------------------------------------------------------------- callers of one and the same name


@pytest.fixture
def stranger(worker: sy.VirtualWorker) -> Connection:
    """The connection to ``worker`` of somebody in another network who calls himself ``me``, too."""
    other = sy.VirtualWorker(None, id="me")
    other.add_worker(worker)
    return other.connection_to(worker)


@pytest.mark.virtual_only("between processes the shell tells callers apart by their names only")
def test_callers_of_one_name_do_not_meet(worker: sy.VirtualWorker, stranger: Connection) -> None:
    mine = torch.ones(2).send(worker)
    theirs = stranger.put(torch.zeros(2), None)
    action = Action(BY_NAME["torch.exp"], (Slot(0),), {}, Slot(1))
    exponential = Group((InputKind.REFERENCE,), Program(1, (action,), (Slot(1),)))
    first, _ = stranger.operations.run("exp", lambda: exponential, [theirs])
    with worker.group():
        doubled = mine * 2  # has the same number
    again, _ = stranger.operations.run("exp", lambda: exponential, [first])
    assert doubled.get().tolist() == [2, 2]
    assert stranger.ask(Fetch, again)[0].item() == pytest.approx(math.e)
    with pytest.raises(ObjectNotFound):
        stranger.ask(Fetch, 404)
    assert mine.tags == set(), "the failure of another caller is not ours"
    for id in (theirs, first):
        stranger.ask(Fetch, id)
