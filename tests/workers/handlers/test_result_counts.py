"""A worker that makes other results than its caller was told: a clear error, and nothing stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.codes import CollectiveCode, TypeCode
from syft.exceptions import (
    LimitExceeded,
    MalformedMessage,
    ObjectNotFound,
    ProgramError,
    RemoteFailure,
    ResultMismatch,
)
from syft.ids import first_id
from syft.ops.returns import ONE_TENSOR, Returns
from syft.ops.table import BY_NAME
from syft.plans.remote.plan_call import PlanCall
from syft.program.program import Action, Program, Slot
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.tensors.collective_call import run_collective
from syft.workers.core.accepted_results import MOST_MARKED
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.handlers import party_programs
from syft.workers.handlers.programs import PreparedGroup
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import protect
from syft.workers.wire.definitions import Group, InputKind
from syft.workers.wire.messages import (
    COUNT_SHIFT,
    GRAD_MODE,
    IN_CONTAINER,
    Command,
    Done,
    Fetch,
    Parked,
    Promise,
    Put,
    Run,
)
from syft.workers.wire.references import REF
from tests.shells.child import make_worker
from tests.shells.owner import inspect
from tests.workers.core.peers import ask, command, error_in, lonely, put, ref, sent

X = torch.tensor([3.0, 1.0])
BOTH = Group(
    (InputKind.REFERENCE,),
    Program(
        1,
        (
            Action(BY_NAME["torch.neg"], (Slot(0),), {}, Slot(1)),
            Action(BY_NAME["torch.abs"], (Slot(0),), {}, Slot(2)),
        ),
        (Slot(1), Slot(2)),
    ),
)


@pytest.fixture(params=["immediate", "queued"])
def worker(hook: sy.TorchHook, request: pytest.FixtureRequest) -> Iterator[Any]:
    dan = make_worker(hook, "dan", request.param == "queued")
    yield dan
    dan.close()


@pytest.fixture
def core() -> WorkerCore:
    """A worker that holds 5."""
    core = lonely()
    put(core, 5, X.clone())
    return core


def run(seq: int, out: int, count: int, id: int = 5, define: bool = True) -> Run:
    """A run of the two operations by a caller that expects ``count`` results."""
    flags = GRAD_MODE | count << COUNT_SHIFT
    return Run(seq, 0, (id,), out, flags, (), pack(BOTH, Packer()) if define else None)


def keep(core: WorkerCore, id: int) -> list[Any]:
    packer = Packer()
    value = pack(torch.ones(2), packer)
    return [reply for _, reply in sent(core, Put(900, id, value), *packer.buffers)]


# ------------------------------------------------------------------------------------------- runs


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_run_with_another_number_of_results_is_refused(core: WorkerCore, count: int) -> None:
    for define in (True, False):
        error = error_in(ask(core, run(2, 70, count, define=define)))
        assert type(error) is ResultMismatch
        assert error.expected == f"{count} result{'s' * (count != 1)}" and error.got == "2 results"
        assert set(core.store.objects) == {5} and not core.dataflow.active
        for id in range(70, 70 + count):
            assert "should have made it failed" in str(error_in(ask(core, Fetch(3, id))))
        assert ask(core, run(4, 80, 2)) == Done(4)  # the definition is as good as it was
        for id in (80, 81):
            ask(core, Fetch(5, id))


def test_what_waits_for_a_result_that_is_not_made_fails(core: WorkerCore) -> None:
    """The caller drew three ids; operations on the last one came before the run did."""
    ask(core, Promise(1, (9, 72)))
    waits = command("torch.Tensor.neg", ref(72), out=90, seq=3)
    assert ask(core, waits) == Parked(3, (72,))
    told = [reply for _, reply in sent(core, run(4, 70, 3, id=9))]
    assert [reply.seq for reply in told] == [3, 4], "at once, though 9 is promised"
    assert type(error_in(told[0])) is ObjectNotFound and type(error_in(told[1])) is ResultMismatch
    assert core.store.promised == {9} and set(core.store.objects) == {5}


@pytest.mark.parametrize("made", [1, 3])
@pytest.mark.parametrize("parked", [False, True])
def test_what_makes_other_results_than_it_said_is_refused(
    core: WorkerCore, monkeypatch: pytest.MonkeyPatch, made: int, parked: bool
) -> None:
    monkeypatch.setattr(PreparedGroup, "perform", lambda *_: [torch.ones(2)] * made)
    if not parked:
        error = error_in(ask(core, run(2, 70, 2)))
    else:
        ask(core, Promise(1, (9,)))
        assert ask(core, run(2, 70, 2, id=9)) == Parked(2, (9,))
        failure = next(reply for reply in keep(core, 9) if reply.seq == 2)
        error = error_in(failure)
        core.store.take(9, "the test is over")
    assert type(error) is ResultMismatch and error.got == f"{made} result{'s' * (made != 1)}"
    assert set(core.store.objects) == {5} and not core.dataflow.active
    assert "should have made it failed" in str(error_in(ask(core, Fetch(3, 71))))


@pytest.mark.every_shell
@pytest.mark.parametrize("count", [1, 3])
def test_the_caller_of_a_run_has_the_error_and_no_objects(worker: Any, count: int) -> None:
    x = X.clone().send(worker)
    plan = sy.func2plan(args_shape=[(2,)])(lambda x: (x + 1, x * 2)).send(worker)
    connection = x.child.connection
    held = set(inspect(worker).objects)
    call = PlanCall(plan.id_at_location, (InputKind.REFERENCE,))
    for key, definition in (("group", BOTH), ("plan", call)):
        with pytest.raises(ResultMismatch, match="gives 2 results at worker 'dan' where its"):
            first, _ = connection.operations.run(
                key, lambda made=definition: made, [x.id_at_location], count
            )
            dangling = connection.pointer(first + count - 1)
            try:
                (dangling + 1).get()
            finally:
                del dangling
        connection.flush()
        sy.synchronize()
        assert set(inspect(worker).objects) == held
    first, _ = connection.operations.run("group", lambda: BOTH, [x.id_at_location], 2)
    assert [connection.pointer(first + at).get().tolist() for at in range(2)] == [[-3, -1], [3, 1]]


def test_a_collective_with_another_number_of_results_is_refused(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def three(party: Any, x: torch.Tensor) -> Any:
        yield party_programs.Round({}, frozenset())
        return x, x, x

    monkeypatch.setitem(party_programs.PROGRAMS, int(CollectiveCode.SUM), three)
    x, y = torch.ones(2).send(bob), torch.ones(2).send(alice)
    at_bob, at_alice = run_collective(CollectiveCode.SUM, [[x], [y]], results=2)
    wrong = ("the collective three", "2 tensors", "3 tensors")
    for (first, second), where in ((at_bob, "bob"), (at_alice, "alice")):
        told = repr(first.child.handle.exception())
        mismatch = repr(ResultMismatch(wrong[0], where, *wrong[1:]))
        of_bob = f"party bob failed: ResultMismatch: {ResultMismatch(wrong[0], 'bob', *wrong[1:])}"
        aborted = where == "alice" and told == repr(RemoteFailure("collective", of_bob))
        assert told == mismatch or aborted
        with pytest.raises(ObjectNotFound, match="collective operation that should have made it"):
            second.get()
    assert bob.list_objects() == [x.id_at_location] and not bob.core.dataflow.active


def test_a_run_that_nobody_can_count_marks_nothing(core: WorkerCore) -> None:
    """27 bytes wrote 65,536 tombstones, which displaced those of everybody."""
    ask(core, Promise(1, (9,)))
    ask(core, Fetch(2, 5))
    eve = Peer("eve")
    for seq, number in ((3, 5), (4, -1), (5, 2**40)):
        huge = Run(seq, number, [], 1, 2**62)
        assert type(error_in(ask(core, huge, peer=eve))) in (ProgramError, LimitExceeded)
    assert core.store.promised == {9}
    assert [core.store.has_gone(id) for id in (5, 1, 70)] == [True, False, False]


def test_a_known_number_marks_no_more_than_can_be_meant(core: WorkerCore) -> None:
    ask(core, run(2, 70, 2))
    for seq, count in ((3, 1 << 16), (4, 1 << 40)):
        assert type(error_in(ask(core, run(seq, 80, count, define=False)))) is ResultMismatch
    marked = [id for id in range(80, 80 + (1 << 16)) if core.store.has_gone(id)]
    assert marked == list(range(80, 80 + MOST_MARKED))
    for seq, first in ((5, -3), (6, 2**63 - 1), (7, 2**63)):
        assert type(error_in(ask(core, run(seq, first, 2, define=False)))) is MalformedMessage
        assert not core.store.has_gone(first)


# --------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("out", "count", "marked"),
    [
        (80, 1, 1),
        (80, 0, 1),
        (80, 3, 3),
        (80, 1 << 16, MOST_MARKED),
        (80, (1 << 16) + 1, 0),
        (80, 1 << 59, 0),
        (80, -1, 0),
        (2**63 - 1, 1, 1),
        (2**63 - 1, 2, 0),
        (2**63, 1, 0),
        (-5, 1, 0),
    ],
)
def test_a_command_marks_no_more_than_can_be_meant(
    core: WorkerCore, out: int, count: int, marked: int
) -> None:
    fails = Command(2, BY_NAME["torch.Tensor.neg"], (ref(404),), out, count << COUNT_SHIFT)
    error_in(ask(core, fails))
    gone = [id for id in range(out, out + (1 << 16) + 1) if core.store.has_gone(id)]
    assert gone == list(range(out, out + marked))


@pytest.mark.parametrize(
    ("op", "args", "contained", "expected", "got"),
    [
        ("torch.broadcast_tensors", (), False, "1 tensor", "a container of 1 tensor"),
        ("torch.Tensor.chunk", (1,), False, "1 tensor", "a container of 1 tensor"),
        ("torch.neg", (), True, "a container of 1 tensor", "1 tensor"),
        ("torch.Tensor.dim", (), False, "1 tensor", "0 tensors and other values"),
    ],
)
@pytest.mark.parametrize("private", [False, True])
def test_a_container_of_one_is_not_the_one(
    core: WorkerCore, op: str, args: Any, contained: bool, expected: str, got: str, private: bool
) -> None:
    if private:
        protect(core.store.objects[5], Guard(frozenset({"me"})))
        core.guard()
    told = 1 << COUNT_SHIFT | (IN_CONTAINER if contained else 0)
    me = Peer("me", "me")
    error = error_in(ask(core, Command(2, BY_NAME[op], (ref(5), *args), 70, told), peer=me))
    assert type(error) is ResultMismatch and (error.expected, error.got) == (expected, got)
    assert set(core.store.objects) == {5}


@pytest.mark.every_shell
def test_the_caller_says_whether_it_expects_a_container(hook: sy.TorchHook, worker: Any) -> None:
    x = X.clone().send(worker)
    with hook.record() as log:
        (alone,) = torch.broadcast_tensors(x)
        (double,) = torch._foreach_mul([x], 2.0)
        largest = x.max()
        assert torch.equal(alone.get(), X) and torch.equal(double.get(), X * 2)
        assert largest.get() == 3
    flags = [entry.message.flags & ~GRAD_MODE for entry in log if type(entry.message) is Command]
    one = 1 << COUNT_SHIFT
    assert flags == [one | IN_CONTAINER, one | IN_CONTAINER, one]
    with worker.group():
        (alone,) = torch.broadcast_tensors(x)
        more = alone + 1
    assert torch.equal(alone.get(), X) and torch.equal(more.get(), X + 1)


@pytest.mark.every_shell
def test_the_caller_of_a_command_has_the_error_and_no_objects(worker: Any) -> None:
    x = X.clone().send(worker)
    connection = x.child.connection
    for name, expected in (
        ("torch.broadcast_tensors", ONE_TENSOR),
        ("torch.neg", Returns(tuple, (True,))),
    ):
        args = ((REF, x.id_at_location),)
        out = first_id(1)
        with pytest.raises(ResultMismatch, match="container of 1 tensor"):
            connection.operations.command(BY_NAME[name], args, None, out, [], expected)
            sy.synchronize()
        assert set(inspect(worker).objects) == {x.id_at_location}


@pytest.mark.parametrize("waiting", [False, True])
@pytest.mark.parametrize(
    ("out", "flags", "path"),
    [
        (-5, 1 << COUNT_SHIFT, "$.out"),
        (2**63, 1 << COUNT_SHIFT, "$.out"),
        (2**63 + 5, 1 << COUNT_SHIFT | GRAD_MODE, "$.out"),
        (2**64 - 1, GRAD_MODE, "$.out"),
        (2**63 - 1, 2 << COUNT_SHIFT, "$.out"),
        (70, -8, "$.flags"),
        (70, -1, "$.flags"),
        (0, -1, "$.flags"),
    ],
)
def test_ids_and_flags_that_do_not_exist_are_refused(
    core: WorkerCore, out: int, flags: int, path: str, waiting: bool
) -> None:
    if waiting:
        ask(core, Promise(1, (9,)))
    for name in ("torch.Tensor.neg", "torch.Tensor.neg_"):
        error = error_in(ask(core, Command(2, BY_NAME[name], (ref(5),), out, flags)))
        assert type(error) is MalformedMessage and error.path == path
        assert set(core.store.objects) == {5} and not core.store.has_gone(out)
    assert torch.equal(core.store.open(5), X)


@pytest.mark.parametrize("waiting", [False, True])
def test_the_last_ids_are_ids(core: WorkerCore, waiting: bool) -> None:
    if waiting:
        ask(core, Promise(1, (9,)))
    two = 2 << COUNT_SHIFT | IN_CONTAINER
    for name, count, flags in (("neg", 1, 1 << COUNT_SHIFT), ("neg", 1, 0), ("unbind", 2, two)):
        last = Command(2, BY_NAME[f"torch.Tensor.{name}"], (ref(5),), 2**63 - count, flags)
        assert ask(core, last) == Done(2)
        assert set(core.store.objects) == {5, *range(2**63 - count, 2**63)}
        core.store.drop_all(range(2**63 - count, 2**63), "the test is over")


# ----------------------------------------------------------------------------- on private values


@pytest.mark.parametrize(("op", "args"), [("max", (7,)), ("split", ((5, 5), 0))])
def test_all_results_of_what_fails_on_private_values_have_failed(
    core: WorkerCore, op: str, args: Any
) -> None:
    protect(core.store.objects[5], Guard(frozenset({"ann"})))
    core.guard()
    two = 2 << COUNT_SHIFT | IN_CONTAINER
    given = tuple((int(TypeCode.TUPLE), *arg) if type(arg) is tuple else arg for arg in args)
    fails = Command(2, BY_NAME[f"torch.Tensor.{op}"], (ref(5), *given), 70, two)
    assert type(error_in(ask(core, fails))) in (IndexError, RuntimeError), "it follows from shapes"
    for id in (70, 71):
        error = error_in(ask(core, command("torch.Tensor.neg", ref(id), out=80, seq=3)))
        assert type(error) is ObjectNotFound and "should have made it failed" in str(error)


@pytest.mark.parametrize(("op", "args"), [("max", (7,)), ("split", ((5, 5), 0))])
def test_what_waits_for_the_second_result_of_what_fails_fails(
    core: WorkerCore, op: str, args: Any
) -> None:
    ask(core, Promise(1, (9,)))
    two = 2 << COUNT_SHIFT | IN_CONTAINER
    given = tuple((int(TypeCode.TUPLE), *arg) if type(arg) is tuple else arg for arg in args)
    fails = Command(2, BY_NAME[f"torch.Tensor.{op}"], (ref(9), *given), 70, two)
    assert ask(core, fails) == Parked(2, (9,))
    waits = command("torch.Tensor.add", ref(71), ref(5), out=80, seq=3)
    assert ask(core, waits) == Parked(3, (9,))
    packer = Packer()
    value = pack(torch.ones(2), packer)
    told: dict[int, Any] = {
        reply.seq: reply for _, reply in sent(core, Put(4, 9, value, ("ann",)), *packer.buffers)
    }
    assert sorted(told) == [2, 3, 4] and told[4] == Done(4)
    assert (
        type(error_in(told[2])) in (IndexError, RuntimeError)
        and type(error_in(told[3])) is ObjectNotFound
    )
    assert set(core.store.objects) == {5, 9} and not core.dataflow.active
