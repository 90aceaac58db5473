"""Which promises a request waits for: named in the reply, through whatever else waits."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from syft.exceptions import LimitExceeded, ObjectNotFound, ObjectNotReady, PromiseGivenUp
from syft.serde.errors import unpack_error
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack
from syft.workers.core import open_promises
from syft.workers.core.listeners import MOST_LISTENERS
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.core.task import Task
from syft.workers.wire.messages import (
    MOST_NAMED,
    Await,
    Cancel,
    Done,
    Drop,
    Failure,
    Fetch,
    FetchAll,
    GiveUp,
    Parked,
    Promise,
    Put,
    Value,
    decode,
)
from tests.workers.core.peers import error_in as error_in_failure
from tests.workers.core.peers import ME, ask, command, lonely, put, ref, sent

PROMISED = range(500, 512)


@pytest.fixture
def core() -> WorkerCore:
    """A worker that holds 1 and 2, and expects a dozen objects."""
    core = lonely()
    put(core, 1, torch.tensor([1.0, 1.0]))
    put(core, 2, torch.tensor([2.0, 2.0]))
    ask(core, Promise(1, tuple(PROMISED)))
    return core


def add(core: WorkerCore, out: int, *inputs: int) -> Any:
    """Have the worker add up objects; the reply."""
    return ask(core, command("torch.stack", [ref(id) for id in inputs], out=out, seq=out))


def keep(core: WorkerCore, id: int) -> list[Any]:
    """Keep a promise; everything that the worker says then."""
    packer = Packer()
    value = pack(torch.ones(2), packer)
    return [reply for _, reply in sent(core, Put(900 + id, id, value), *packer.buffers)]


def at_the_bottom(core: WorkerCore, request: int) -> set[int]:
    """The promises that a parked request waits for, by a walk over everything that is parked."""
    (first,) = (task for task in core.dataflow.tasks if task.request == (ME.session, request))
    makers = {out: task for task in core.dataflow.tasks for out in task.outs}
    found: set[int] = set()
    stack: list[Task] = [first]
    seen: set[Task] = set()
    while stack:
        task = stack.pop()
        if task not in seen:
            seen.add(task)
            found |= {id for id in task.missing if id not in makers}
            stack += [*task.blockers, *(makers[id] for id in task.missing if id in makers)]
    return found


def test_the_reply_names_the_promises_below_what_waits(core: WorkerCore) -> None:
    assert ask(core, command("torch.Tensor.neg", ref(500), out=10, seq=3)) == Parked(3, (500,))
    assert ask(core, command("torch.Tensor.neg", ref(10), out=11, seq=4)) == Parked(4, (500,))
    both = command("torch.Tensor.add", ref(11), ref(501), out=12, seq=5)
    assert ask(core, both) == Parked(5, (500, 501))
    assert ask(core, Fetch(6, 12)) == Parked(6, (500, 501))
    assert Done(5) not in keep(core, 500)
    assert ask(core, Fetch(7, 12, keep=True)) == Parked(7, (501,)), "500 has come"
    assert {type(reply) for reply in keep(core, 501)} >= {Done, Value}


def test_what_waits_for_its_turn_names_what_it_waits_for(core: WorkerCore) -> None:
    reads = command("torch.Tensor.add", ref(1), ref(500), out=10, seq=3)
    assert ask(core, reads) == Parked(3, (500,))
    writes = command("torch.Tensor.mul_", ref(1), 2, seq=4)
    assert ask(core, writes) == Parked(4, (500,)), "the first one reads 1"
    assert ask(core, Fetch(5, 1)) == Parked(5, (500,))
    told = [reply for _, reply in sent(core, Cancel(6, 3))]
    assert [reply.seq for reply in told] == [4, 5, 6] and not core.dataflow.tasks


def test_only_so_many_are_named(core: WorkerCore) -> None:
    assert add(core, 10, *PROMISED[:MOST_NAMED]) == Parked(10, tuple(PROMISED[:MOST_NAMED]))
    reply = add(core, 11, *PROMISED)
    assert len(set(reply.ids)) == MOST_NAMED and reply.more
    assert set(reply.ids) <= set(PROMISED)
    for id in PROMISED[:-1]:
        keep(core, id)
    assert add(core, 12, 11) == Parked(12, (PROMISED[-1],)), "11 had more than it could remember"
    keep(core, PROMISED[-1])
    assert not core.dataflow.active


def test_against_a_walk_over_everything_that_waits() -> None:
    drawn = random.Random(7)
    for turn in range(30):
        core = lonely()
        put(core, 1, torch.ones(2))
        promised = list(PROMISED)
        ask(core, Promise(1, tuple(promised)))
        known = [1, *promised]
        for out in range(10, 60):
            if drawn.random() < 0.15 and promised:
                keep(core, promised.pop(drawn.randrange(len(promised))))
            inputs = drawn.choices(known[-12:] + [1], k=drawn.choice((1, 1, 2, 3)))
            if drawn.random() < 0.2:
                reply = ask(core, command("torch.Tensor.mul_", ref(inputs[0]), 2, seq=out))
            else:
                reply = add(core, out, *inputs)
                known.append(out)
            if type(reply) is not Parked:
                continue
            bottom = at_the_bottom(core, out)
            assert reply.more == (len(bottom) > MOST_NAMED), turn
            assert len(reply.ids) == min(len(bottom), MOST_NAMED) and set(reply.ids) <= bottom
        for id in promised:
            keep(core, id)
        assert not core.dataflow.active


def test_a_chain_is_walked_once_for_each_promise_that_is_kept(
    core: WorkerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    class Counted(open_promises._Step):
        """A step that is counted."""

        def __init__(self, task: Task, makers: Mapping[int, Task]) -> None:
            steps.append(task.number)
            super().__init__(task, makers)

    monkeypatch.setattr(open_promises, "_Step", Counted)
    add(core, 1000, *PROMISED)
    for out in range(1001, 1101):
        ask(core, command("torch.Tensor.neg", ref(out - 1), out=out, seq=out))
    for kept, later in ((500, 2000), (501, 3000)):
        keep(core, kept)
        steps.clear()
        assert len(ask(core, Await(later, 1100)).ids) == MOST_NAMED
        assert len(steps) == 102, "the question, and every operation of the chain"
        for seq, id in enumerate((1100, 1100, 1050, 1001, 1000), later + 1):
            steps.clear()
            waits = command("torch.Tensor.neg", ref(id), out=seq, seq=seq)
            assert len(ask(core, waits).ids) == MOST_NAMED
            assert not steps
            assert at_the_bottom(core, seq) == set(PROMISED) - set(range(500, kept + 1))
    for id in PROMISED[2:]:
        keep(core, id)
    assert not core.dataflow.active


def test_nothing_incomplete_is_remembered_of_what_waits_for_itself(core: WorkerCore) -> None:
    """10 waits for all the promises; what shall keep the last one of them waits for 10."""
    add(core, 10, *PROMISED)
    last = PROMISED[-1]
    ask(core, command("torch.Tensor.neg", ref(10), out=last, seq=3))
    for id in PROMISED[:4]:
        keep(core, id)
    still_open = tuple(PROMISED[4:-1])
    for seq, id in ((4, 10), (5, last), (6, 10), (7, last)):
        assert ask(core, Await(seq, id)) == Parked(seq, still_open)
    core.dataflow.clear()


def test_what_must_be_there_at_once_names_what_it_would_wait_for(core: WorkerCore) -> None:
    ask(core, command("torch.Tensor.add", ref(500), ref(501), out=10, seq=3))
    for serving, ids in ((ME, (500, 501)), (Peer("ann"), ()), (None, ())):
        core.serving = serving
        with pytest.raises(ObjectNotReady) as caught:
            core.present(10)
        assert caught.value.ids == ids and caught.value.more == (not ids)
    assert core.present(1).tolist() == [1, 1]


def test_promises_are_named_to_those_who_made_them_alone(core: WorkerCore) -> None:
    """Whoever knows the id of a promise can keep it."""
    ann = Peer("ann")
    ask(core, Promise(1, (600,)), peer=ann)
    both = command("torch.Tensor.add", ref(500), ref(600), out=10, seq=3)
    assert ask(core, both) == Parked(3, (500,), True)
    assert ask(core, Fetch(4, 10), peer=ann) == Parked(4, (600,), True)
    assert ask(core, Await(5, 10), peer=ann) == Parked(5, (600,), True)
    assert ask(core, Fetch(6, 10), peer=Peer("eve")) == Parked(6, (), True)
    assert ask(core, Await(7, 10), peer=Peer("ann")) == Parked(7, (), True), "a name is nothing"
    assert ask(core, Fetch(8, 10), peer=Peer("ann", "user", ann.session)).ids == (600,)
    core.dataflow.clear()


# ------------------------------------------------------------------------ what became of a promise


def error_in(reply: Any) -> Exception:
    """The error that the answer to an ``Await`` carries."""
    assert type(reply) is Value, reply
    return unpack_error(reply.value, Unpacker([]))[0]


def test_who_awaits_a_promise_is_told_when_it_is_kept(core: WorkerCore) -> None:
    ann = Peer("ann")
    assert ask(core, Await(3, 500)) == Parked(3, (500,))
    assert ask(core, Await(4, 500), peer=ann) == Parked(4, (), True), "it is not hers"
    packer = Packer()
    value = pack(torch.ones(2), packer)
    told = sent(core, Put(5, 500, value), *packer.buffers)
    assert told == [(ME, Done(3)), (ann, Done(4)), (ME, Done(5))]
    assert ask(core, Await(6, 500)) == Done(6) and not core.store.listeners


def test_a_result_that_is_promised_can_be_awaited(core: WorkerCore) -> None:
    ask(core, command("torch.Tensor.neg", ref(500), out=10, seq=3))
    assert ask(core, Await(4, 10)) == Parked(4, (500,))
    assert keep(core, 500) == [Done(4), Done(3), Done(1400)]
    ask(core, command("torch.Tensor.view", ref(501), 7, out=11, seq=5))
    assert ask(core, Await(6, 11)) == Parked(6, (501,))
    failure, awaited, _ = sorted(keep(core, 501), key=lambda reply: reply.seq)
    assert "should have made it failed" in str(error_in(awaited)) and failure.seq == 5


def test_who_awaits_a_promise_is_told_why_it_will_not_be_kept(core: WorkerCore) -> None:
    for seq, id in enumerate(PROMISED[:4], 3):
        assert ask(core, Await(seq, id)) == Parked(seq, (id,))
    (_, given_up), (_, done) = sent(core, GiveUp(9, 500, "the sensor broke"))
    assert str(error_in(given_up)) == str(PromiseGivenUp(500, "bob", "the sensor broke"))
    assert done == Done(9) and ME.session.failures == 0, "it is an answer, and no failure"
    (_, dropped), _ = sent(core, Drop(10, (501,)))
    assert type(error_in(dropped)) is ObjectNotFound and "dropped" in str(error_in(dropped))
    core.clear("ann cleared the worker")
    told = [decode(frame.header) for _, frame in core.outgoing()]
    assert [type(error_in(reply)) for reply in told] == [ObjectNotFound] * 2
    assert "ann cleared the worker" in str(error_in(told[0]))
    assert not core.store.listeners and not core.store.promised


def test_what_is_not_promised_can_be_asked_about_too(core: WorkerCore) -> None:
    assert ask(core, Await(3, 1)) == Done(3)
    assert type(error_in(ask(core, Await(4, 404)))) is ObjectNotFound
    ask(core, GiveUp(5, 500, "the sensor broke"))
    assert type(error_in(ask(core, Await(6, 500)))) is PromiseGivenUp
    ask(core, Drop(7, (501,)))
    assert "dropped" in str(error_in(ask(core, Await(8, 501)))), "it never came"


@pytest.mark.parametrize("taken", [Fetch(7, 500), FetchAll(7, (500,)), Drop(7, (500,))])
@pytest.mark.parametrize("waiting", [False, True])
def test_a_promise_that_was_kept_stays_so_when_its_object_is_gone(
    core: WorkerCore, taken: Any, waiting: bool
) -> None:
    ask(core, Await(3, 500))
    assert keep(core, 500)[0] == Done(3)
    if not waiting:
        for id in PROMISED[1:]:
            keep(core, id)
    ask(core, taken)
    assert 500 not in core.store.objects and ask(core, Await(8, 500)) == Done(8)
    ask(core, Promise(9, (500,)))
    ask(core, GiveUp(10, 500, "the sensor broke"))
    assert type(error_in(ask(core, Await(11, 500)))) is PromiseGivenUp, "that was another one"


def test_what_is_cleared_away_is_not_what_was_promised(core: WorkerCore) -> None:
    keep(core, 500)
    core.clear("ann cleared the worker")
    core.outgoing()
    for id in (500, 501, 1):
        assert "ann cleared" in str(error_in(ask(core, Await(3, id))))


def test_who_no_longer_waits_for_a_promise_is_not_told(core: WorkerCore) -> None:
    ann = Peer("ann")
    for seq in (3, 4):
        assert ask(core, Await(seq, 500)) == Parked(seq, (500,))
    assert ask(core, Await(3, 500), peer=ann) == Parked(3, (), True)
    assert ask(core, Cancel(5, 3)) == Done(5) and len(core.store.listeners) == 2
    assert ask(core, Cancel(6, 99)) == Done(6) and len(core.store.listeners) == 2
    packer = Packer()
    value = pack(torch.ones(2), packer)
    told = sent(core, Put(7, 500, value), *packer.buffers)
    assert told == [(ME, Done(4)), (ann, Done(3)), (ME, Done(7))]
    ask(core, Await(8, 501))
    ask(core, Cancel(9, 8))
    assert not core.store.listeners and 501 in core.store.promised


def test_a_connection_asks_about_a_promise_a_few_times_only(core: WorkerCore) -> None:
    """14 bytes each kept 744 at the worker, without any limit."""
    for seq in range(MOST_LISTENERS):
        assert type(ask(core, Await(seq, 500))) is Parked
    error = error_in_failure(ask(core, Await(50, 500)))
    assert type(error) is LimitExceeded and error.got == MOST_LISTENERS + 1
    assert type(ask(core, Await(51, 501))) is Parked, "about another one it may"
    assert type(ask(core, Await(50, 500), peer=Peer("ann"))) is Parked, "and so may others"
    ask(core, Cancel(52, 0))
    assert type(ask(core, Await(1, 501))) is Parked, "a number that is used again is the new one"
    assert type(ask(core, Await(53, 500))) is Parked
    told: list[Any] = keep(core, 500)
    awaited = [*range(2, MOST_LISTENERS), 53, 50, 1400]
    assert [(type(reply), reply.seq) for reply in told] == [(Done, seq) for seq in awaited]
    assert len(core.store.listeners) == 2 and len(keep(core, 501)) == 3
    assert not core.store.listeners


def _taken(core: WorkerCore) -> None:
    put(core, 601, torch.ones(1))


def _given_up(core: WorkerCore) -> None:
    ask(core, Promise(1, (601,)))
    ask(core, GiveUp(2, 601, "the sensor broke"))


def _too_many(core: WorkerCore) -> None:
    core.store.charges.limits = replace(core.store.charges.limits, promises=len(PROMISED) + 1)


@pytest.mark.parametrize("obstacle", [_taken, _given_up, _too_many])
@pytest.mark.parametrize("ids", [(600, 601), (601, 600)])
def test_ids_are_promised_together_or_not_at_all(
    core: WorkerCore, obstacle: Any, ids: tuple[int, int]
) -> None:
    obstacle(core)
    before = set(core.store.promised), ME.session.account.promises
    assert isinstance(ask(core, Promise(3, ids)), Failure)
    assert (set(core.store.promised), ME.session.account.promises) == before
    assert 600 not in core.store.promisers and 600 not in core.store.senders
