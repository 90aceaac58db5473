"""What a connection makes of the replies that come, or do not come, over its transport.

The worker at the other end is played by the test: it says whatever the test has put down for it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import syft as sy
from syft.exceptions import (
    MalformedMessage,
    ObjectNotFound,
    ObjectNotReady,
    RemoteFailure,
    RequestWithdrawn,
    WorkerClosed,
)
from syft.ops.returns import ONE_TENSOR
from syft.ops.table import BY_NAME
from syft.program.program import Program, Slot
from syft.serde.errors import pack_error
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.workers.client.connection import Connection
from syft.workers.client.monitor import Monitor
from syft.workers.client.pending import STORED, Pending
from syft.workers.client.transport import Transport
from syft.workers.core.peer import Peer, Session
from syft.workers.wire.definitions import Group, InputKind
from syft.workers.wire.messages import (
    Cancel,
    Command,
    Describe,
    Done,
    Drop,
    Failure,
    Fetch,
    Forgotten,
    Message,
    NotBegun,
    Parked,
    Put,
    Run,
    Skipped,
    Value,
    decode,
    encode,
)

NEG = BY_NAME["torch.Tensor.neg"]


def frame(said: Message | bytes) -> Frame:
    return Frame(said if isinstance(said, bytes) else encode(said), [])


def failed(seq: int, error: Exception) -> Failure:
    return Failure(seq, pack_error(error, Packer()))


class Played(Transport):
    """A line at whose other end the test speaks: each step forward brings what it says next.

    ``kind`` is "call" (the worker answers within the call), "line" (it answers at once, some time
    later) or "queued".
    """

    def __init__(self, kind: str) -> None:
        super().__init__(Monitor())
        self.kind = kind
        self.queued = kind == "queued"
        if kind == "call":
            self.exchange = self.answer  # type: ignore[method-assign, assignment]
        self.sent: list[Message] = []
        self.coming: list[Frame] = []
        self.beside: list[Frame] = []
        """What comes before the reply to the next call, and is not what the call returns."""
        self.users: list[str | None] = []
        self.is_unread = False
        """Whether the other end has not read what it was sent last."""
        self.is_cut = False

    def say(self, *said: Message | bytes) -> None:
        """Have these come as the next replies, one by one."""
        self.coming += map(frame, said)

    @property
    def closed(self) -> bool:
        return self.is_cut

    def speak_for(self, user: str | None) -> None:
        self.users.append(user)

    def answer(self, frame: Frame) -> Frame:
        self.deliver(frame)
        self.replies.extend(self.beside)
        self.beside.clear()
        return self.coming.pop(0)

    def deliver(self, frame: Frame) -> None:
        if self.is_cut:
            raise WorkerClosed("far")
        self.sent.append(cast(Message, decode(frame.header)))

    def advance(self, *args: Any, **named: Any) -> bool:
        if not self.coming:
            return False
        self.replies.append(self.coming.pop(0))
        return True

    def collect(self) -> None:
        """Nothing comes by itself."""

    def withdraw(self, frame: Frame) -> bool:
        return self.is_unread

    def close(self) -> None:
        self.is_cut = True


@pytest.fixture(params=["call", "line", "queued"])
def connection(request: pytest.FixtureRequest, me: sy.VirtualWorker) -> Connection:
    """A connection from the local worker to one that the test plays."""
    location = SimpleNamespace(id="far", closed=False)
    connection = Connection(me, location, Played(request.param), me.connection_to)
    connection.garbage.append = connection.garbage.ids.append
    return connection


def played(connection: Connection) -> Played:
    assert isinstance(connection.transport, Played)
    return connection.transport


def tell(connection: Connection, answered: bool = False) -> Any:
    """A command; the first one has the number 1."""
    return connection.operations.command(
        NEG, ((0, 5),), None, 77, [], None if answered else ONE_TENSOR
    )


def fields_of(request: Any) -> tuple[int | None, tuple[int, ...]]:
    """How many failures a request says were seen, and what it drops."""
    return request.failures, request.drop


def at_rest(connection: Connection) -> bool:
    """Whether nothing is under way or unseen."""
    return not (
        connection.replies.pending or connection.replies.unseen or connection.transport.replies
    )


# --------------------------------------------------------------------------------- what is no reply


@pytest.mark.parametrize(
    "said, path, expected",
    [
        (b"", "$", "a MessagePack message"),
        (b"\xc1", "$", "a MessagePack message"),
        (b"\x92\x20\xa1x", "$[1]", "`int`"),
        (b"\x92\x63\x01", "$[0]", "Invalid value 99"),
        (encode(Drop(1, ())), "$[0]", "a reply"),
        (encode(Cancel(1, 1)), "$[0]", "a reply"),
        (b"\x93\x21\x01" + b"\x91" * 100_000 + b"\xc0", "$", "max_depth"),
    ],
    ids=["nothing", "no message", "wrong field", "no number", "drop", "cancel", "deep"],
)
def test_what_is_no_reply_is_an_error_of_who_waits(
    connection: Connection, said: bytes, path: str, expected: str
) -> None:
    played(connection).say(said, Value(2, 7))
    with pytest.raises((MalformedMessage, sy.exceptions.LimitExceeded)) as caught:
        connection.ask(Describe, 5)
    assert caught.value.path == path and expected in str(caught.value)
    del caught
    assert connection.ask(Describe, 5) == 7, "the line goes on"
    played(connection).say(said)
    with pytest.raises((MalformedMessage, sy.exceptions.LimitExceeded)) as caught:
        connection.operations.command(NEG, ((0, 5),), None, 6, [])
        connection.ask(Describe, 5)
    assert caught.value.path == path and expected in str(caught.value)
    del caught


def test_a_value_that_cannot_be_unpacked_is_an_error_of_who_waits(connection: Connection) -> None:
    played(connection).say(Value(1, (99,)), Value(2, 7))
    with pytest.raises(MalformedMessage, match="type code"):
        connection.ask(Describe, 5)
    assert connection.ask(Describe, 5) == 7 and at_rest(connection)


# ------------------------------------------------------------------------------------- skipped ones


@pytest.mark.parametrize("question", ["command", "ask", "run"])
def test_a_skipped_question_raises_the_earlier_error(connection: Connection, question: str) -> None:
    transport = played(connection)
    transport.say(Parked(1))
    pending = tell(connection)
    assert type(pending) is Pending
    late = failed(1, RemoteFailure("wrong", "first"))
    if transport.kind == "call":  # what comes late comes beside the reply to the call
        transport.beside.append(frame(late))
        transport.say(Skipped(2))
    else:
        transport.say(late, Skipped(2))
    connection.garbage.append(99)
    same = Group((InputKind.REFERENCE,), Program(1, (), (Slot(0),)))
    ask: dict[str, Callable[[], Any]] = {
        "command": lambda: tell(connection, answered=True),
        "ask": lambda: connection.ask(Fetch, 5),
        "run": lambda: connection.operations.run("same", lambda: same, [5], answered=True),
    }
    with pytest.raises(RemoteFailure, match="first"):
        ask[question]()
    assert connection.garbage.ids == [99], "it was to be dropped by a request that was not made"
    assert fields_of(transport.sent[1]) == (0, (99,))
    assert at_rest(connection) and connection.replies.calls.find("same") is None
    transport.say(Value(3, 7))
    assert connection.ask(Describe, 5) == 7
    assert fields_of(transport.sent[2]) == (1, (99,)) and connection.garbage.ids == []


def test_a_question_is_skipped_for_a_reason(connection: Connection) -> None:
    played(connection).say(Skipped(1), Value(2, 7))
    connection.garbage.append(99)
    with pytest.raises(MalformedMessage) as caught:
        connection.ask(Describe, 5)
    assert caught.value.got == "a skipped request, and no failure before it"
    del caught
    assert connection.garbage.ids == [99] and connection.ask(Describe, 5) == 7


@pytest.mark.parametrize("question", ["command", "ask", "run"])
def test_what_was_skipped_for_a_failure_raised_before_is_made_again(
    connection: Connection, question: str
) -> None:
    """A failure that follows from one already raised comes late: there is nothing more to raise."""
    transport = played(connection)
    transport.say(Parked(1), Parked(2))
    made = connection.operations.command(NEG, ((0, 5),), None, 77, [], ONE_TENSOR)
    connection.operations.command(NEG, ((0, 77),), None, 78, [], ONE_TENSOR)
    transport.replies.append(frame(failed(1, RemoteFailure("wrong", "first"))))
    connection.replies.read()
    with pytest.raises(RemoteFailure, match="first"):
        connection.replies.take(made)
    del made
    late = failed(2, ObjectNotFound(77, "far", "it was never there"))
    if transport.kind == "call":
        transport.beside.append(frame(late))
        transport.say(Skipped(3), Value(4, 7))
    else:
        transport.say(late, Skipped(3), Value(4, 7))
    connection.garbage.append(99)
    same = Group((InputKind.REFERENCE,), Program(1, (), (Slot(0),)))
    ask: dict[str, Callable[[], Any]] = {
        "command": lambda: tell(connection, answered=True),
        "ask": lambda: connection.ask(Fetch, 5),
        "run": lambda: connection.operations.run("same", lambda: same, [5], answered=True)[1],
    }
    assert ask[question]() == 7
    *_, skipped, again = transport.sent
    assert fields_of(skipped) == (1, (99,)) and fields_of(again) == (2, (99,))
    assert type(again) is type(skipped) and connection.garbage.ids == [] and at_rest(connection)


def test_a_worker_that_skips_for_ever_is_not_asked_for_ever(connection: Connection) -> None:
    transport = played(connection)
    for seq in range(1, 200):
        strange = failed(10_000, RemoteFailure("wrong", "of no request"))
        if transport.kind == "call":
            transport.beside.append(frame(strange))
            transport.say(Skipped(seq))
        else:
            transport.say(strange, Skipped(seq))
    with pytest.raises(MalformedMessage, match="a skipped request"):
        connection.ask(Describe, 5)
    assert 1 <= len(transport.sent) < 100
    transport.coming.clear()


def test_what_is_only_told_is_made_in_any_case(connection: Connection) -> None:
    transport = played(connection)
    transport.say(Done(1), Done(2))
    tell(connection)
    tell(connection, answered=True)
    assert [request.failures for request in transport.sent] == [None, 0]


def test_failures_are_counted_once_each(connection: Connection) -> None:
    transport = played(connection)
    for count in range(3):
        transport.say(failed(count + 1, RemoteFailure("wrong", str(count))))
        with pytest.raises(RemoteFailure, match=str(count)):
            connection.ask(Describe, 5)
        assert transport.sent[-1].failures == count


# ----------------------------------------------------------------------------------- waiting for it


def test_replies_to_earlier_requests_may_come_first(connection: Connection) -> None:
    played(connection).say(Parked(1), Forgotten(), Done(1), Parked(2), Value(2, 7))
    pending = tell(connection)
    assert not pending.settled
    assert connection.ask(Describe, 5) == 7
    assert pending.settled and at_rest(connection)


def test_what_is_told_waits_no_longer_than_until_it_is_parked(connection: Connection) -> None:
    transport = played(connection)
    transport.say(Parked(1), Done(1))
    pending = tell(connection)
    assert not pending.settled and (pending.parked or transport.queued)
    assert transport.withdraw_all() == 0, "a worker of this process begins at once what it gets"
    connection.synchronize()
    assert pending.parked and not pending.settled and len(transport.coming) == 1
    connection.replies.wait(pending)
    assert pending.settled and at_rest(connection)


def test_who_synchronizes_waits_for_nothing_that_cannot_come(connection: Connection) -> None:
    transport = played(connection)
    if transport.kind == "call":
        transport.say(Parked(1))
    pending = tell(connection)
    connection.synchronize()
    assert not pending.settled
    transport.replies.append(frame(Done(1)))
    connection.synchronize()
    assert pending.settled and at_rest(connection)


def test_numbers_that_were_forgotten_are_defined_again(connection: Connection) -> None:
    """The news may have come without anybody having read it."""
    transport = played(connection)
    same = Group((InputKind.REFERENCE,), Program(1, (), (Slot(0),)))
    defined = []
    for number, forgotten in enumerate((False, False, True, False), 1):
        if forgotten:
            transport.replies.append(frame(Forgotten()))
        transport.say(Done(number))
        first, result = connection.operations.run("same", lambda: same, [5], answered=True)
        assert result is STORED
        sent = transport.sent[-1]
        assert type(sent) is Run and (sent.out, sent.number) == (first, 0)
        defined.append(sent.define is not None)
    assert defined == [True, False, True, False] and at_rest(connection)


def test_what_the_other_end_could_not_read_raises_what_it_says(connection: Connection) -> None:
    """It knows no number of such a request, and sends nothing else for it."""
    played(connection).say(failed(-1, ValueError("unreadable")), Value(2, 7))
    with pytest.raises(ValueError, match="unreadable"):
        connection.ask(Describe, 5)
    assert connection.ask(Describe, 5) == 7 and at_rest(connection)
    assert [type(request) for request in played(connection).sent] == [Describe, Describe]


def test_a_command_that_is_done_is_done(connection: Connection) -> None:
    played(connection).say(Done(1))
    result = tell(connection)
    assert result is STORED or played(connection).queued
    connection.synchronize()
    assert at_rest(connection)


@pytest.mark.parametrize(
    "connection, unread",
    [("call", False), ("line", False), ("line", True), ("queued", False), ("queued", True)],
    indirect=["connection"],
)
def test_who_stops_waiting_takes_the_request_back(connection: Connection, unread: bool) -> None:
    transport = played(connection)
    transport.is_unread = unread
    if not unread:
        transport.say(Parked(1))
    connection.garbage.append(99)
    with pytest.raises(ObjectNotReady):
        connection.ask(Fetch, 5)
    assert transport.sent[1:] == ([] if unread else [Cancel(2, 1)])
    assert connection.replies.pending == {}
    assert connection.garbage.ids == (
        [99] if unread else []
    ), "if it was not read, nor was its drop"
    transport.say(*(() if unread else (Done(2),)), Value(2 if unread else 3, 7))
    assert connection.ask(Describe, 5) == 7 and at_rest(connection)


@pytest.mark.parametrize("reply", [Value(1, 5), Done(1), Skipped(1), Parked(1)])
def test_a_reply_that_comes_too_late_is_nobodys(connection: Connection, reply: Message) -> None:
    played(connection).say(Parked(1))
    with pytest.raises(ObjectNotReady):
        connection.ask(Fetch, 5)
    played(connection).say(reply, Done(2), Value(3, 7))
    assert connection.ask(Describe, 5) == 7 and at_rest(connection)


def test_a_failure_that_comes_too_late_counts_as_seen(connection: Connection) -> None:
    transport = played(connection)
    transport.say(Parked(1))
    with pytest.raises(ObjectNotReady):
        connection.ask(Fetch, 5)
    transport.replies.extend(map(frame, (failed(1, RemoteFailure("wrong", "late")), Done(2))))
    transport.say(Value(3, 7))
    assert connection.ask(Describe, 5) == 7 and at_rest(connection)
    assert transport.sent[-1].failures == 1


def test_a_line_that_is_cut_says_so(connection: Connection) -> None:
    transport = played(connection)
    transport.say(Parked(1))
    pending = tell(connection)
    transport.close()
    for request in (
        lambda: connection.ask(Describe, 5),
        lambda: connection.requests.tell(Drop(9, ())),
        lambda: connection.put(torch.ones(1), None),
    ):
        with pytest.raises(WorkerClosed, match="Worker 'far' is closed"):
            request()
    assert [type(request) for request in transport.sent] == [Command] and not pending.settled


# ------------------------------------------------------------------------------------- what is sent


def test_a_put_waits_unless_the_worker_is_queued(connection: Connection) -> None:
    transport = played(connection)
    transport.say(Done(1))
    id = connection.put(torch.empty(0, device="meta"), None)
    (sent,) = transport.sent
    assert type(sent) is Put and sent.id == id
    assert sent.failures == (None if transport.queued else 0)
    assert len(transport.coming) == int(transport.queued)


def test_requests_are_made_for_the_user_of_the_moment(
    connection: Connection, me: sy.VirtualWorker
) -> None:
    transport = played(connection)
    before = len(transport.users)
    for number, user in enumerate((None, None, "ann", "ann", None), 1):
        me.user = user
        transport.say(Value(number, 7))
        connection.ask(Describe, 5)
    assert transport.users[before:] == ["ann", None]
    me.user = "bea"
    connection.requests.tell(Drop(9, ()))
    assert transport.users[before:] == ["ann", None, "bea"], "also where no reply matters"


def test_what_was_not_begun_is_said_to_be_withdrawn(connection: Connection) -> None:
    played(connection).say(NotBegun(1))
    with pytest.raises(RequestWithdrawn):
        connection.ask(Fetch, 5)
    played(connection).say(Value(2, 7))
    assert connection.ask(Describe, 5) == 7 and at_rest(connection)


class Least(Transport):
    """All that a transport has to be, over a worker of this process."""

    closed = False

    def __init__(self, worker: sy.VirtualWorker) -> None:
        super().__init__(Monitor())
        self.worker, self.peer = worker, Peer("me", None, Session())
        self.waiting: list[Frame] = []

    def deliver(self, frame: Frame) -> None:
        self.waiting.append(frame)

    def advance(self, parked: bool = True, block: bool = True, most: int = 1) -> bool:
        if not self.waiting:
            return False
        sent = self.worker.core.receive(self.waiting.pop(0), self.peer)
        self.replies.extend(frame for _, frame in sent)
        return True


def test_a_transport_is_two_methods_and_whether_it_is_closed(
    me: sy.VirtualWorker, bob: sy.VirtualWorker
) -> None:
    transport = Least(bob)
    connection = Connection(
        me, SimpleNamespace(id="bob", closed=False), transport, me.connection_to
    )
    id = connection.put(torch.tensor([1.0, 2.0]), None)
    assert connection.ask(Fetch, id, user=None).tolist() == [1.0, 2.0]
    connection.owner.user = "ann"
    with pytest.raises(ObjectNotFound):
        connection.ask(Fetch, id, user=None)
    connection.owner.user = None
    transport.collect()
    assert connection.requests.cancel() == 0 and not transport.withdraw(Frame(b"", []))
    transport.close()
