"""``worker.cancel()``: what was asked and has not begun is withdrawn, and everything says so."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from syft.exceptions import ObjectNotFound, ObjectNotReady, RequestWithdrawn, WorkerClosed
from syft.serde.frame import Frame
from syft.workers.core.peer import Peer, Session
from syft.workers.core.store import TAKEN_BACK
from syft.workers.handlers.withdrawing import may_be_withdrawn, withdraw
from syft.workers.wire import messages
from syft.workers.wire.messages import Drop, Exchange, Failure, NotBegun, Put, Run, Start, encode
from tests.shells.child import make_worker


@pytest.fixture
def dan(hook: sy.TorchHook) -> sy.VirtualWorker:
    return make_worker(hook, "dan", pipelined=True)


def test_what_has_not_begun_is_not_begun(dan: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(dan)
    sy.synchronize()
    y = x + 1
    z = y * 2
    x.add_(1)
    assert dan.cancel() == 3
    assert dan.cancel() == 0, "there is nothing left"
    error = y.child.handle.exception()
    assert type(error) is RequestWithdrawn and error.name == "dan"
    assert any("test_cancelling.py" in note for note in error.__notes__), "the line that asked"
    for made in (y, z, y + 1):
        with pytest.raises(ObjectNotFound, match=TAKEN_BACK):
            made.get()
    sy.synchronize()
    assert x.get().tolist() == [1, 1], "nobody added to it"


def test_the_next_question_raises_nothing(dan: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(dan)
    sy.synchronize()
    made = [x + 1 for _ in range(100)]
    assert dan.cancel() == 100
    assert x.sum().item() == 2
    assert not any(one.child.handle.succeeded() for one in made)
    assert (x + 1).get().tolist() == [2, 2]


def test_tensors_that_were_not_sent(dan: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(dan)
    several, _ = dan.connection().put_all([torch.zeros(2)] * 100)
    assert dan.cancel() == 2
    with pytest.raises(ObjectNotFound, match=TAKEN_BACK):
        x.get()
    with pytest.raises(ObjectNotFound, match=TAKEN_BACK):
        dan.connection().pointer(several[99]).get()


def test_dropped_objects_are_dropped(dan: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(dan)
    sy.synchronize()
    kept = torch.zeros(2).send(dan)
    sy.synchronize()
    del x
    y = kept + 1  # takes the id of x along
    assert dan.cancel() == 1
    sy.synchronize()
    assert len(dan.core.store.objects) == 1
    del y


def test_a_fetch_is_made_again(dan: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2).send(dan)
    sy.synchronize()

    def interrupted(*args: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(dan.connection().transport), "advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            x.get()
    assert dan.cancel() == 1
    assert x.get().tolist() == [1, 1], "it is asked for anew"


def test_groups_and_plans_are_defined_again(dan: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(dan)

    def doubled(factor: float) -> torch.Tensor:
        with dan.group():
            y = x * factor
            z = y + 1
        return z

    assert doubled(2.0).get().tolist() == [3, 3]
    lost = doubled(5.0)  # by its number; the input has changed
    assert dan.cancel() == 1
    assert doubled(5.0).get().tolist() == [6, 6], "the worker does not take 2.0 for known"
    with pytest.raises(ObjectNotFound, match=TAKEN_BACK):
        lost.get()


def test_another_caller_gets_its_result(dan: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(dan)
    sy.synchronize()
    theirs = alice.connection_to("dan").put(torch.zeros(2), None)
    y = x + 1
    assert dan.cancel() == 1
    sy.synchronize()
    assert dan.core.store.objects[theirs].tolist() == [0, 0]
    alice.connection_to("dan").requests.tell(Drop(0, (theirs,)))
    dan.work()
    del y


@pytest.mark.every_shell
def test_what_waits_for_a_promise(bob: sy.VirtualWorker) -> None:
    promise = bob.promise()
    y = promise + 1
    z = y * 2
    assert bob.cancel() == 2
    assert bob.cancel() == 0
    assert type(z.child.handle.exception()) is RequestWithdrawn
    for made in (y, z):
        with pytest.raises(ObjectNotFound, match=TAKEN_BACK):
            made.get()
    torch.ones(2).send(bob, id=promise.child.id_at_location).child.garbage_collect_data = False
    assert promise.get().tolist() == [1, 1], "the promise itself goes on"


def test_what_another_caller_has_waiting_fails_too(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    promise = bob.promise()
    y = promise + 1
    shared = alice.connection_to("bob").pointer(y.child.id_at_location, garbage_collect_data=False)
    theirs = shared * 2  # waits at bob for what was asked by another
    assert bob.cancel() == 1
    error = theirs.child.handle.exception()
    assert isinstance(error, ObjectNotFound) and error.reason == TAKEN_BACK
    with pytest.raises(ObjectNotFound, match=TAKEN_BACK):
        theirs.get()
    bob.give_up(promise, "enough")


@pytest.mark.every_shell
def test_a_parked_fetch(bob: sy.VirtualWorker) -> None:
    promise = bob.promise()
    handle = promise.get(wait=False)
    asked = promise.child.handle
    sy.synchronize()
    assert bob.cancel() == 1, "to ask about a promise is no operation"
    with pytest.raises(RequestWithdrawn):
        handle.result()
    assert not asked.done()
    bob.give_up(promise, "enough")


def test_a_promise_that_waits_for_nobody(bob: sy.VirtualWorker) -> None:
    x = bob.promise()
    y = x + 1
    assert bob.cancel() == 1
    with pytest.raises(ObjectNotReady):
        x.get()
    bob.give_up(x, "enough")
    del y


def test_a_closed_worker(bob: sy.VirtualWorker) -> None:
    assert bob.cancel() == 0
    bob.close()
    with pytest.raises(WorkerClosed):
        bob.cancel()


# ------------------------------------------------------------------------ at the worker itself


PEER = Peer("me", None, Session(), True)


def _framed(message: messages.Message) -> Frame:
    return Frame(encode(message), [])


def test_what_others_rely_on_is_kept() -> None:
    assert not may_be_withdrawn(_framed(Exchange(1, 0, 0, ())))
    assert not may_be_withdrawn(_framed(NotBegun(1)))
    assert may_be_withdrawn(_framed(Run(1, 0, [], 5, 8)))


def test_ids_beyond_the_range_are_not_marked(bob: sy.VirtualWorker) -> None:
    reply = withdraw(bob.core, _framed(Put(7, 2**63, None)), PEER)
    assert messages.decode(reply.header) == NotBegun(7)
    assert bob.core.store.why_missing(2**63) is None


def test_a_list_without_end_is_refused(bob: sy.VirtualWorker) -> None:
    run = Run(7, 0, [], 5, 8, ((0, 2**62),))
    reply = messages.decode(withdraw(bob.core, _framed(run), PEER).header)
    assert type(reply) is Failure and reply.seq == 7


def test_the_results_of_a_number(bob: sy.VirtualWorker) -> None:
    withdraw(bob.core, _framed(Run(7, 0, [], 5, 3 << 3)), PEER)
    assert [bob.core.store.why_missing(id) for id in (5, 7, 8)] == [TAKEN_BACK, TAKEN_BACK, None]


def test_what_somebody_promised_is_not_taken_back(bob: sy.VirtualWorker) -> None:
    promise = bob.promise(sender="eve")
    stranger = Peer("mallory", None, Session(), False)
    withdraw(bob.core, _framed(Put(7, promise.child.id_at_location, None)), stranger)
    assert promise.child.id_at_location in bob.core.store.promised
    bob.give_up(promise, "enough")


def test_a_stranger_drops_nothing_by_withdrawing(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    stranger = Peer("mallory", None, Session(), False)
    run = Run(7, 0, [], 5, 8, (x.child.id_at_location,))
    withdraw(bob.core, _framed(run), stranger)
    assert x.get().tolist() == [1, 1]


def test_the_other_parties_of_a_collective_operation_do_not_wait(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    start = Start(7, 1, 99, ("bob", "alice"), 0, (), (5,))
    reply = withdraw(bob.core, _framed(start), PEER)
    assert messages.decode(reply.header) == NotBegun(7)
    ((to, frame),) = bob.core.outgoing()
    assert to == "alice" and messages.decode(frame.header).execution == 99
    withdraw(bob.core, _framed(start), PEER)
    assert not bob.core.outgoing(), "they have been told"
    assert bob.core.store.why_missing(5) == TAKEN_BACK


def test_one_request_is_taken_out_of_an_inbox(dan: sy.VirtualWorker) -> None:
    transport = dan.connection().transport
    first, second = (_framed(Drop(seq, ())) for seq in (1, 2))
    transport.deliver(first)
    transport.deliver(second)
    assert transport.withdraw(first) and [letter[0] for letter in dan.inbox] == [second]
    assert not transport.withdraw(first), "it is not there any more"
    assert transport.withdraw(second) and not dan.inbox
