"""Operations that wait run in an order that cannot be told from the order given.

The oracle is plain torch: a random program of pure, view and in-place operations is run in order
on local tensors, and on a worker to which some of its inputs are only promised; the promises are
kept in random order, and every value must come out the same.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import random
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import syft as sy
from syft.exceptions import ObjectIdTaken, ObjectNotFound, ObjectNotReady
from syft.serde.frame import Frame
from syft.workers.core.access import Access
from syft.workers.core.dataflow import Dataflow
from syft.workers.core.peer import Peer
from syft.workers.core.store_view import StoreView
from syft.workers.core.state_machine import WorkerCore
from syft.workers.core.store import ObjectStore
from syft.workers.wire.messages import (
    Cancel,
    Cancelled,
    Done,
    Drop,
    Failure,
    Fetch,
    Parked,
    Promise,
    Put,
    decode,
    encode,
)
from tests.shells.owner import inspect
from tests.workers.core.peers import ME, ask, command, error_in, lonely, put, ref, sent, value_in

PURE = ("add", "mul", "sub", "maximum")
IN_PLACE = ("add_", "mul_", "sub_", "copy_")
VIEWS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x.view(4),
    lambda x: x.view(2, 2).t()[0].expand(4),
    lambda x: x[0].expand(4),
    lambda x: x.detach(),
    lambda x: x.data,
    lambda x: x[2:].repeat(2),
]

Step = tuple[str, int, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["pure", "in place", "view", "drop", "slice", "group"]),
        st.integers(0, 50),
        st.integers(0, 50),
        st.integers(0, 50),
    ),
    min_size=1,
    max_size=14,
)


def run(
    program: list[Step],
    inputs: list[torch.Tensor],
    group: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
) -> list[torch.Tensor | None]:
    """Run a program on whatever its inputs are, pointers or plain tensors.

    Steps from one ``group`` to the next travel as one message.
    """
    values: list[torch.Tensor | None] = list(inputs)
    starts = [0, *(at for at, step in enumerate(program) if step[0] == "group"), len(program)]
    for number, (start, end) in enumerate(itertools.pairwise(starts)):
        with group() if number else contextlib.nullcontext():
            run_steps(program[start:end], inputs, values)
    return values


def run_steps(
    program: list[Step], inputs: list[torch.Tensor], values: list[torch.Tensor | None]
) -> None:
    """Run some steps, and add what they make to the values."""
    for kind, which, first, second in program:
        live = [index for index, value in enumerate(values) if value is not None]
        if not live:
            break
        one, other = values[live[first % len(live)]], values[live[second % len(live)]]
        assert one is not None and other is not None
        if kind == "pure":
            values.append(getattr(one, PURE[which % len(PURE)])(other))
        elif kind == "in place":
            getattr(one, IN_PLACE[which % len(IN_PLACE)])(other)
        elif kind == "view":
            values.append(VIEWS[which % len(VIEWS)](one))
        elif kind == "slice":
            one[which % 3 : 4] = 7
        elif kind == "drop" and live[first % len(live)] >= len(inputs):
            values[live[first % len(live)]] = None


def expected(program: list[Step], inputs: list[torch.Tensor]) -> list[Any]:
    """What each value is after the program; the name of an exception if it cannot run."""
    try:
        values = run(program, [tensor.clone() for tensor in inputs])
    except RuntimeError:  # such as writing to an expanded tensor: then there is nothing to compare
        return []
    return [None if value is None else value.tolist() for value in values]


def tensors(count: int) -> list[torch.Tensor]:
    return [torch.arange(4.0) + 10 * index for index in range(count)]


@pytest.mark.parametrize("queued", [False, True], ids=["immediate", "queued"])
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(program=steps, promised=st.sets(st.integers(0, 2)), order=st.randoms(use_true_random=False))
def test_any_program_gives_what_it_gives_in_order(
    queued: bool, program: list[Step], promised: set[int], order: Any
) -> None:
    gc.disable()
    plain = tensors(3)
    wanted = expected(program, plain)
    if not wanted:
        return
    hook = sy.TorchHook(torch)
    try:
        bob = sy.VirtualWorker(hook, id="bob", pipelined=queued)
        inputs = [
            bob.promise() if index in promised else tensor.send(bob)
            for index, tensor in enumerate(plain)
        ]
        values = run(program, inputs, bob.group)
        late = [index for index in promised]
        order.shuffle(late)
        for index in late:
            inputs[index] = plain[index].send(bob, id=inputs[index].id_at_location)
        got = [None if value is None else value.copy().get().tolist() for value in values]
        assert got == wanted
        del values, inputs
        assert not inspect(bob).objects and not inspect(bob).active
    finally:
        hook.close()


# ------------------------------------------------------------------------------ one thing at a time


@pytest.fixture
def core() -> WorkerCore:
    """A worker that holds 1 and 2, and expects 8 and 9."""
    core = lonely()
    put(core, 1, torch.tensor([1.0, 1.0]))
    put(core, 2, torch.tensor([2.0, 2.0]))
    ask(core, Promise(1, (8, 9)))
    return core


def park(core: WorkerCore, message: Any, peer: Peer = ME) -> None:
    """Send a message that must wait."""
    ((to, reply),) = sent(core, message, peer=peer)
    assert to is peer and type(reply) is Parked and reply.seq == message.seq
    assert reply.ids and core.store.promised.issuperset(reply.ids)


def keep(core: WorkerCore, id: int, value: float) -> list[Any]:
    """Keep a promise; returns the replies to what could run then, by their numbers."""
    operand = (32, 0, (2,), None, 0)
    buffer = torch.full((2,), value).view(torch.uint8)
    letters = core.receive(Frame(encode(Put(100, id, operand)), [buffer]), ME)
    return [decode(frame.header) for _, frame in letters]


def test_an_operation_runs_when_its_last_input_comes(core: WorkerCore) -> None:
    park(core, command("torch.Tensor.add", ref(8), ref(9), out=10, seq=3))
    park(core, command("torch.Tensor.mul", ref(10), ref(2), out=11, seq=4))
    assert len(core.dataflow) == 2
    assert keep(core, 8, 5.0) == [Done(100)]
    assert keep(core, 9, 6.0) == [Done(3), Done(4), Done(100)]
    assert value_in(core, Fetch(1, 11)).tolist() == [22, 22]
    assert not core.dataflow.active and len(core.dataflow) == 0


def test_what_becomes_ready_at_once_runs_in_the_order_given(core: WorkerCore) -> None:
    for seq in range(20):
        park(core, command("torch.Tensor.add", ref(8), ref(1), out=10 + seq, seq=seq))
    assert [reply.seq for reply in keep(core, 8, 5.0)] == [*range(20), 100]


def test_a_fetch_may_wait(core: WorkerCore) -> None:
    park(core, Fetch(7, 8))
    replies = keep(core, 8, 5.0)
    assert [reply.seq for reply in replies] == [7, 100]
    assert 8 not in core.store.objects


def test_a_reader_waits_for_a_writer_before_it_and_a_writer_for_readers(core: WorkerCore) -> None:
    park(core, command("torch.Tensor.add_", ref(1), ref(8), seq=3))
    park(core, command("torch.Tensor.mul", ref(1), ref(2), out=10, seq=4))
    park(core, command("torch.Tensor.add_", ref(1), 100.0, seq=5))
    assert ask(core, command("torch.Tensor.mul", ref(2), ref(2), out=11, seq=6)) == Done(6)
    assert keep(core, 8, 5.0) == [Done(3), Done(4), Done(5), Done(100)]
    assert value_in(core, Fetch(1, 10)).tolist() == [12, 12]
    assert value_in(core, Fetch(1, 1)).tolist() == [106, 106]


def test_views_that_do_not_exist_yet_are_aliases(core: WorkerCore) -> None:
    park(core, command("torch.Tensor.view", ref(8), 2, out=10, seq=3))
    park(core, command("torch.Tensor.add_", ref(10), ref(9), seq=4))
    park(core, command("torch.Tensor.mul", ref(8), 1, out=11, seq=5))
    assert keep(core, 8, 5.0) == [Done(3), Done(100)]
    assert keep(core, 9, 1.0) == [Done(4), Done(5), Done(100)]
    assert value_in(core, Fetch(1, 11)).tolist() == [6, 6]


def test_an_alias_found_only_when_a_promise_was_kept(core: WorkerCore) -> None:
    """10 is a view of 8; 12, made after 8 came, is another; a write to 12 is a write to 10."""
    park(core, command("torch.Tensor.view", ref(8), 2, out=10, seq=3))
    park(core, command("torch.Tensor.add", ref(10), ref(9), out=11, seq=4))
    assert keep(core, 8, 5.0) == [Done(3), Done(100)]
    assert ask(core, command("torch.Tensor.view", ref(8), 2, 1, out=12, seq=5)) == Done(5)
    park(core, command("torch.Tensor.mul_", ref(12), 0, seq=6))
    assert keep(core, 9, 1.0) == [Done(4), Done(6), Done(100)]
    assert value_in(core, Fetch(1, 11)).tolist() == [6, 6]
    assert value_in(core, Fetch(1, 8)).tolist() == [0, 0]


def test_a_backward_pass_is_ordered_against_what_it_touches(bob: sy.VirtualWorker) -> None:
    weight = torch.ones(2, requires_grad=True).send(bob)
    other = torch.zeros(2).send(bob)
    promise = bob.promise()
    (weight * 3).backward(promise)
    with pytest.raises(ObjectNotReady):
        weight.grad
    total = other + 1
    total.add_(1)
    assert total.tolist() == [2, 2], "nothing of it is in the graph"
    kept = torch.ones(2).send(bob, id=promise.id_at_location)
    assert weight.grad.get().tolist() == [3, 3]
    assert total.get().tolist() == [2, 2]
    waiting = bob.promise()
    other.add_(waiting)
    (weight * 2).sum().backward()
    assert weight.grad.get().tolist() == [5, 5]
    loss = (weight * other).sum()
    loss.backward()
    with pytest.raises(ObjectNotReady):
        weight.grad
    again = torch.ones(2).send(bob, id=waiting.id_at_location)
    assert weight.grad.get().tolist() == [6, 6]
    del kept, again


# ----------------------------------------------------------------------------- failing and dropping


def test_what_depends_on_a_failure_fails_and_names_it(core: WorkerCore) -> None:
    park(core, command("torch.Tensor.view", ref(8), 7, out=10, seq=3))
    park(core, command("torch.Tensor.add", ref(10), ref(9), out=11, seq=4))
    first, kept = keep(core, 8, 5.0)
    assert type(first) is Failure and first.seq == 3 and kept == Done(100)
    second, kept = keep(core, 9, 5.0)
    error = error_in(second)
    assert second.seq == 4 and isinstance(error, ObjectNotFound)
    assert (error.id, error.reason) == (10, "the operation that should have made it failed")
    error = error_in(ask(core, Fetch(5, 11)))
    assert error.reason == "the operation that should have made it failed"
    assert not core.dataflow.active
    assert sorted(core.store.objects) == [1, 2, 8, 9]


def test_a_promise_kept_by_an_operation_releases_what_waits(core: WorkerCore) -> None:
    park(core, command("torch.Tensor.add", ref(8), ref(1), out=10, seq=3))
    letters = core.receive(
        Frame(encode(command("torch.Tensor.add", ref(1), ref(2), out=8, seq=4)), []), ME
    )
    assert [decode(frame.header) for _, frame in letters] == [Done(3), Done(4)]
    assert value_in(core, Fetch(1, 10)).tolist() == [4, 4]


@pytest.mark.parametrize("name, args", [("torch.Tensor.view", (7,)), ("torch.Tensor.nope", ())])
def test_a_promise_that_an_operation_could_not_keep_fails_what_waits(
    core: WorkerCore, name: str, args: Any
) -> None:
    park(core, command("torch.Tensor.add", ref(8), ref(1), out=10, seq=3))
    breaking = command("torch.Tensor.view", ref(1), *args, out=8, seq=4)
    if name == "torch.Tensor.nope":
        breaking = command("torch.Tensor.view", ref(404), 1, out=8, seq=4)
    replies = [decode(frame.header) for _, frame in core.receive(Frame(encode(breaking), []), ME)]
    assert [(type(reply), reply.seq) for reply in replies] == [(Failure, 3), (Failure, 4)]
    assert not core.dataflow.tasks


def test_the_result_of_a_parked_operation_is_its_own(core: WorkerCore) -> None:
    park(core, command("torch.Tensor.add", ref(8), ref(1), out=10, seq=3))
    for out in (10, 1):
        error = error_in(ask(core, command("torch.Tensor.add", ref(9), ref(1), out=out)))
        assert isinstance(error, ObjectIdTaken)
    assert keep(core, 8, 5.0) == [Done(3), Done(100)]
    assert value_in(core, Fetch(1, 10)).tolist() == [6, 6]


def test_inputs_that_are_dropped_stay_for_what_is_parked(core: WorkerCore) -> None:
    park(core, command("torch.Tensor.add", ref(8), ref(1), out=10, seq=3))
    ask(core, Drop(4, (1, 8)))
    assert 1 not in core.store.objects
    assert keep(core, 8, 5.0) == [Done(3), Done(100)]
    assert 8 not in core.store.objects, "it was dropped before it came"
    assert core.store.why_missing(8) == "its last pointer was dropped before it came"
    assert value_in(core, Fetch(1, 10)).tolist() == [6, 6]


def test_a_result_that_is_dropped_before_it_is_made_is_not_made(core: WorkerCore) -> None:
    kept = weakref.ref(core.store.objects[1])
    park(core, command("torch.Tensor.add", ref(8), ref(1), out=10, seq=3))
    park(core, command("torch.Tensor.add", ref(10), ref(9), out=11, seq=4))
    letters = core.receive(Frame(encode(Drop(5, (10, 8))), []), ME)
    assert [decode(frame.header) for _, frame in letters] == [Done(5)], "11 still needs both"
    letters = core.receive(
        Frame(
            encode(
                Drop(6, (11, 1)),
            ),
            [],
        ),
        ME,
    )
    assert [decode(frame.header) for _, frame in letters] == [
        Cancelled(4),
        Cancelled(3),
        Done(6),
    ]
    assert kept() is None and not core.dataflow.tasks
    assert core.store.promised == {9}, "8 was dropped, and nothing needs it any more"


def test_dropping_a_reader_lets_the_writer_behind_it_run(core: WorkerCore) -> None:
    park(core, command("torch.Tensor.add", ref(1), ref(8), out=10, seq=3))
    park(core, command("torch.Tensor.add_", ref(1), ref(2), seq=4))
    letters = core.receive(Frame(encode(Drop(5, (10,))), []), ME)
    assert [decode(frame.header) for _, frame in letters] == [Cancelled(3), Done(4), Done(5)]
    assert value_in(core, Fetch(1, 1)).tolist() == [3, 3]
    assert core.store.promised == {8, 9}


def test_what_writes_runs_though_nobody_wants_its_result(core: WorkerCore) -> None:
    park(core, command("torch.Tensor.add_", ref(1), ref(8), out=10, seq=3))
    ask(core, Drop(5, (10,)))
    assert len(core.dataflow) == 1
    assert [reply.seq for reply in keep(core, 8, 5.0)] == [3, 100]
    assert 10 not in core.store.objects


def test_a_promise_that_is_never_kept_leaves_nothing(worker: sy.VirtualWorker) -> None:
    promise = worker.promise()
    waits = (promise + 1) * 2
    with pytest.raises(ObjectNotReady, match="still waits for a promised input"):
        waits.get()
    with pytest.raises(ObjectNotReady):
        waits.child.handle.wait()
    with pytest.raises(ObjectNotReady):
        promise.tags
    duplicate = promise.copy()
    assert not duplicate.child.handle.done()
    assert not waits.child.handle.done()
    del promise, waits, duplicate
    assert not inspect(worker).objects
    assert not worker.core.dataflow.active and not worker.core.dataflow._unwanted
    connection = worker.network.local.connection_to(worker)
    connection.replies.read()
    assert not connection.replies.pending


def test_parking_many_operations_takes_time_in_proportion(bob: sy.VirtualWorker) -> None:
    """Each of 3000 used to remember all those before it: minutes, and gigabytes."""
    promise = bob.promise()
    value = promise
    for _ in range(3000):
        value = value + 1
    kept = torch.zeros(1).send(bob, id=promise.id_at_location)
    assert value.get().tolist() == [3000]
    del kept


def test_what_is_remembered_of_a_parked_operation_grows_with_its_ids_alone() -> None:
    """And not with each result linked to each input; a result is still a view of any input."""
    core = lonely()
    dataflow = core.dataflow
    inputs, outs = range(100, 300), tuple(range(1000, 1200))
    core.store.promise(7)
    ran: list[str] = []
    assert dataflow.admit(lambda held: ran.append("views"), [7, *inputs], outs)
    remembered = [*dataflow._board._usages, *dataflow._footprints._results]
    keys = sum(map(len, dataflow._footprints._results.values()))
    assert len(remembered) + keys <= 4 * (1 + len(inputs) + len(outs))
    core.store.objects[100] = torch.ones(2)
    write = Access(writes=(outs[-1],))
    assert dataflow.admit(lambda held: ran.append("write"), [outs[-1]], (), write)
    assert dataflow.admit(lambda held: ran.append("read"), [100], ())  # it may alias
    core.store.put(7, torch.ones(2))
    for out in outs:
        core.store.objects[out] = torch.ones(1)
    dataflow.settle((7,))
    assert ran == ["views", "write", "read"]


# ------------------------------------------------------------------------------------- taking back

PRIME = 1_000_003
KINDS = ("make", "two", "view", "write", "write", "hidden", "cancel", "cancel", "drop", "keep")
RESULTS = {"make": 1, "view": 1, "two": 2, "write": 0, "hidden": 0}


def computed(kind: str, factor: int, one: Any, other: Any, hidden: Any) -> list[torch.Tensor]:
    """What one operation makes; what comes out of two of them depends on their order."""
    if kind == "view":
        return [one.view(4)]
    if kind == "write":
        one.copy_((one * factor + other) % PRIME)
        return []
    if kind == "hidden":  # object 1, whatever else it names
        hidden.copy_((hidden * factor + one) % PRIME)
        return []
    made = (one * factor + other + 1) % PRIME
    return [made] if kind == "make" else [made, one.view(4)]


class Ordered:
    """Operations at a bare core, some of them parked and some taken back; and the same in order."""

    def __init__(self) -> None:
        self.core = lonely()
        self.started = {id: torch.arange(4) + 10 * id for id in (1, 2, 8, 9)}
        for id in (1, 2):
            self.core.hold(id, self.started[id].clone())
        self.hidden = self.core.store.objects[1]
        self.core.store.promise(8)
        self.core.store.promise(9)
        self.missing = [8, 9]
        self.usable = [1, 2, 8, 9]
        self.made: list[int] = []
        self.asked: list[tuple[int, str, tuple[int, int], tuple[int, ...]]] = []
        self.replies: dict[int, str] = {}
        self.dropped: set[int] = set()
        self.taken_back: set[int] = set()
        self.seq = 100

    def read(self) -> None:
        """Take in the replies to what was parked."""
        for to, frame in self.core.outgoing():
            assert to is ME
            self.note(decode(frame.header))

    def note(self, reply: Any) -> None:
        """Take in one reply; each operation gets one besides ``Parked``."""
        if type(reply) is Parked:
            return
        assert reply.seq not in self.replies and reply.seq not in self.taken_back
        self.replies[reply.seq] = type(reply).__name__

    def start(self, kind: str, first: int, second: int) -> None:
        """Ask for an operation, as a handler does it."""
        self.seq = seq = self.seq + 1
        inputs: tuple[int, ...] = (
            self.usable[first % len(self.usable)],
            self.usable[second % len(self.usable)],
        )
        outs = tuple(10 * seq + index for index in range(RESULTS[kind]))
        self.asked.append((seq, kind, inputs, outs))

        def act(held: Any) -> Any:
            one, other = map(StoreView(self.core, held).resolve, inputs)
            results = computed(kind, seq, one, other, self.hidden)
            for out, value in zip(outs, results, strict=True):
                self.core.store.put(out, value)
            return Done(seq)

        written = {"write": inputs[:1], "hidden": (1,)}.get(kind, ())
        try:
            access = Access(writes=written)
            reply = self.core.when_ready(seq, ME, act, (*inputs, *written), outs, access)
        except ObjectNotFound as error:
            self.core.fail_results(outs)
            reply = self.core.failure(seq, error)
        self.note(reply)
        self.usable += outs
        self.made += outs

    def cancel(self, which: int) -> None:
        """Take any operation back; of another connection nobody listens to that."""
        if not self.asked:
            return
        seq = self.asked[which % len(self.asked)][0]
        parked = len(self.core.dataflow)
        assert ask(self.core, Cancel(1, seq), peer=Peer("me")) == Done(1)
        assert len(self.core.dataflow) == parked
        replies = [reply for _, reply in sent(self.core, Cancel(1, seq))]
        assert replies.pop() == Done(1)
        if seq not in self.replies:
            self.taken_back.add(seq)
        for reply in replies:
            self.note(reply)

    def drop(self, which: int) -> None:
        """Drop a result, to which nobody refers any more."""
        if self.made:
            id = self.made.pop(which % len(self.made))
            self.usable.remove(id)
            self.dropped.add(id)
            for _, reply in sent(self.core, Drop(1, (id,))):
                if reply != Done(1):
                    self.note(reply)

    def keep(self, which: int) -> None:
        """Keep one of the promises."""
        if self.missing:
            id = self.missing.pop(which % len(self.missing))
            self.core.hold(id, self.started[id].clone())

    def check(self) -> None:
        """Everything is as if what was taken back had never been asked for."""
        assert not self.core.dataflow.active and not self.core.dataflow._board._usages
        values = {id: tensor.clone() for id, tensor in self.started.items()}
        hidden = values[1]
        for seq, kind, inputs, outs in self.asked:
            if seq in self.taken_back:
                assert seq not in self.replies
                continue
            there = all(id in values for id in inputs)
            if there:
                one, other = (values[id] for id in inputs)
                values.update(zip(outs, computed(kind, seq, one, other, hidden), strict=True))
            if not self.dropped & {*outs}:  # or it may never have run, and says so
                assert self.replies[seq] == ("Done" if there else "Failure")
        expected = {id: value.tolist() for id, value in values.items() if id not in self.dropped}
        assert {id: value.tolist() for id, value in self.core.store.objects.items()} == expected


@pytest.mark.parametrize("seed", range(8))
def test_what_is_taken_back_might_never_have_been_asked_for(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(80):
        ordered = Ordered()
        for _ in range(draw.randrange(4, 20)):
            kind = draw.choice(KINDS)
            if kind in ("cancel", "drop"):
                getattr(ordered, kind)(draw.randrange(20))
            elif kind == "keep":
                if draw.random() < 0.2:
                    ordered.keep(draw.randrange(2))
            else:
                ordered.start(kind, draw.randrange(5), draw.randrange(5))
            ordered.read()
        while ordered.missing:
            ordered.keep(0)
            ordered.read()
        ordered.check()


@pytest.fixture
def ran() -> list[str]:
    """The names of the operations that have run."""
    return []


@pytest.fixture
def admit(ran: list[str]) -> Any:
    """Have a dataflow take an operation in; its name is that of its request."""

    def admit(dataflow: Dataflow, name: str, *inputs: int, **fields: Any) -> bool:
        outs = fields.pop("outs", ())
        task = dataflow.admit(
            lambda held: ran.append(name), inputs, outs, Access(**fields), request=name
        )
        return task is not None

    return admit


@pytest.fixture
def dataflow() -> Dataflow:
    """One that knows 1 and 2, and expects 8 and 9."""
    store = ObjectStore("bob")
    for id in (1, 2):
        store.put(id, torch.ones(2))
    for id in (8, 9):
        store.promise(id)
    return Dataflow(store)


def arrive(dataflow: Dataflow, id: int) -> None:
    """Keep a promise."""
    dataflow._store.put(id, torch.ones(2))
    dataflow.settle((id,))


def test_what_waits_for_a_writer_taken_back_waits_for_those_before_it(
    dataflow: Dataflow, admit: Any, ran: list[str]
) -> None:
    assert admit(dataflow, "first", 1, 8, writes=(1, 8))
    assert admit(dataflow, "second", 1, 9, writes=(1, 9))
    assert admit(dataflow, "reader", 1)
    assert dataflow.cancel("second") == () and ran == []
    assert admit(dataflow, "later", 1), "a new operation waits for the first one, too"
    arrive(dataflow, 9)
    assert ran == []
    arrive(dataflow, 8)
    assert ran == ["first", "reader", "later"] and not dataflow.active


def test_a_writer_no_longer_waits_for_a_reader_that_was_taken_back(
    dataflow: Dataflow, admit: Any, ran: list[str]
) -> None:
    assert admit(dataflow, "reader", 1, 8, outs=(10, 11))
    assert admit(dataflow, "writer", 1, writes=(1,))
    assert admit(dataflow, "another reader", 1)
    assert dataflow.cancel("reader") == (10, 11)
    assert ran == ["writer", "another reader"] and not dataflow.tasks


def test_taking_back_nothing_changes_nothing(
    dataflow: Dataflow, admit: Any, ran: list[str]
) -> None:
    assert admit(dataflow, "reader", 8)
    assert dataflow.cancel("unknown") == () and len(dataflow) == 1
    arrive(dataflow, 8)
    assert ran == ["reader"]
    assert dataflow.cancel("reader") == ()


def test_one_may_be_taken_back_while_another_runs(
    dataflow: Dataflow, admit: Any, ran: list[str]
) -> None:
    """A handler that asks other workers lets them work meanwhile, and they may ask this one."""

    def run(held: Any) -> None:
        assert admit(dataflow, "second", 8, writes=(8,))
        assert admit(dataflow, "third", 8)
        assert dataflow.cancel("second") == ()
        ran.append("first")

    assert dataflow.admit(run, [8], (), Access(writes=(8,)))
    arrive(dataflow, 8)
    assert ran == ["first", "third"]
    assert not dataflow.tasks and not dataflow._board._usages


def test_a_promise_that_only_a_request_taken_back_needed_is_forgotten(core: WorkerCore) -> None:
    ask(core, Promise(1, (7,)))
    park(core, command("torch.Tensor.neg", ref(7), out=10, seq=2))
    park(core, Fetch(3, 10))
    assert sent(core, Drop(4, (7, 10))) == [(ME, Done(4))], "the fetch still needs both"
    assert core.store.promised == {7, 8, 9, 10}
    letters = sent(core, Cancel(5, 3))
    assert letters[-1] == (ME, Done(5)) and core.store.promised == {8, 9}
    assert not core.dataflow.tasks and not core.dataflow._unwanted


def test_what_was_asked_and_not_waited_for_leaves_nothing(worker: sy.VirtualWorker) -> None:
    promise = worker.promise()
    later = promise + 1
    worker.collect()
    parked = len(worker.core.dataflow)
    questions = (
        lambda: later.get(),
        lambda: later.tolist(),
        lambda: later.dim(),
        lambda: later.move("me"),
    )
    for question in questions:
        with pytest.raises(ObjectNotReady):
            question()
        worker.collect()
        assert len(worker.core.dataflow) == parked == 1
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    assert later.get().tolist() == [2, 2]
    del kept
