"""Who may ask what of a private tensor: every request × its owner, a user who may read it, another
user, and a caller without a token."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import torch

import syft as sy
from syft.codes import ConversionCode, MessageCode
from syft.ids import digest, new_id
from syft.ops.table import BY_NAME
from syft.serde.frame import Frame, decode_header, from_bytes, to_parts
from syft.trust.tokens import TokenBook
from syft.workers.core.unseen_ids import numbers_in
from syft.workers.wire import messages
from syft.workers.wire.references import REF
from tests.workers.sockets.attacks.stranger import BINARY, Stranger, frame, syft_frame
from tests.workers.sockets.line_records import is_served

WHO = ("ann", "bea", "eve", "nobody")
"""The owner, a user who may read it, another user, and a caller without a token."""

SECRET = torch.tensor([3.0, 5.0])


class Scene:
    """A worker with a private tensor of ann that bea may read, and a caller of each kind."""

    def __init__(self, server: sy.WebsocketServerWorker, book: TokenBook) -> None:
        self.server = server
        self.callers = {name: Stranger(server.port) for name in WHO}
        for name, caller in self.callers.items():
            token = {} if name == "nobody" else {"token": book.make(name, time.time())}
            assert caller.greet(name=f"{name} calls", **token)["kind"] == "welcome"
        self.seq = 0
        self.x = self.promise = 0

    def prepare(self, code: MessageCode) -> None:
        """A new private tensor, a leaf but where contents are compared, and a promise, of ann's."""
        self.x, self.promise = new_id(), new_id()
        value = SECRET.clone().requires_grad_(code is not MessageCode.HOLDS)
        assert self.send("ann", self.put(self.x, value, ("ann", "bea"))) == "Done"
        self.seq += 1
        assert self.ask("ann", messages.Promise(self.seq, (self.promise,))) == "Done"

    def put(self, id: int, value: torch.Tensor, users: tuple[str, ...] | None = None) -> bytes:
        parsed = from_bytes(sy.serde.serialize(value))
        self.seq += 1
        head = messages.Put(self.seq, id, tuple(decode_header(parsed.header)), users)
        parts = to_parts(Frame(messages.encode(head), parsed.buffers), False)
        return b"".join(map(bytes, parts))

    def send(self, who: str, data: bytes) -> str:
        self.callers[who].send(frame(BINARY, data))
        while True:
            opcode, data = self.callers[who].read()
            reply = messages.decode(from_bytes(data).header) if is_served(opcode, data) else None
            if reply is not None and not isinstance(reply, messages.Stale):
                return self.outcome(reply)

    def ask(self, who: str, message: Any) -> str:
        return self.outcome(self.callers[who].ask(message))

    def outcome(self, reply: Any) -> str:
        if isinstance(reply, messages.Failure):
            return sy.codes.ErrorCode(reply.error[1]).name
        if isinstance(reply, messages.Value) and isinstance(reply.value, bool):
            return str(reply.value)
        return type(reply).__name__

    def holds(self, id: int) -> bool:
        with self.server.board.monitor:
            return id in self.server.core.store.objects


@pytest.fixture
def scene(hook: sy.TorchHook) -> Iterator[Scene]:
    book = TokenBook()
    with sy.WebsocketServerWorker(hook, port=0, id="bob", tokens=book, anonymous=True) as server:
        scene = Scene(server, book)
        yield scene
        for caller in scene.callers.values():
            caller.socket.close()


def _command(name: str, out: bool) -> Callable[[Scene, int], Any]:
    def make(scene: Scene, seq: int) -> Any:
        args = ((REF, scene.x), 2.0)
        return messages.Command(seq, BY_NAME[name], args, new_id() if out else 0, 8 if out else 1)

    return make


DENIED = "PERMISSION_DENIED"
ALL_DONE = ("Done",) * 4

M = messages
REQUESTS: dict[MessageCode, Callable[[Scene, int], Any]] = {
    MessageCode.COMMAND: _command("torch.Tensor.add", True),
    MessageCode.FETCH: lambda scene, seq: M.Fetch(seq, scene.x, keep=True),
    MessageCode.DROP: lambda scene, seq: M.Drop(seq, (scene.x,)),
    MessageCode.MOVE: lambda scene, seq: M.Move(seq, scene.x, "elsewhere"),
    MessageCode.DUPLICATE: lambda scene, seq: M.Duplicate(seq, scene.x, new_id()),
    MessageCode.SEARCH: lambda scene, seq: M.Search(seq, ("#x",)),
    MessageCode.ANNOTATE: lambda scene, seq: M.Annotate(seq, scene.x, ("#x",)),
    MessageCode.DESCRIBE: lambda scene, seq: M.Describe(seq, scene.x),
    MessageCode.PROMISE: lambda scene, seq: M.Promise(seq, (new_id(),)),
    MessageCode.START: lambda scene, seq: M.Start(
        seq, 1, new_id(), ("bob", "elsewhere", "there"), 0, ((REF, scene.x),), (new_id(),)
    ),
    MessageCode.RELAY: lambda scene, seq: M.Relay(seq, scene.x, "elsewhere"),
    MessageCode.CONVERT: lambda scene, seq: M.Convert(
        seq, scene.x, int(ConversionCode.FIX_PRECISION), (2, 10, 3), new_id()
    ),
    MessageCode.RUN: lambda scene, seq: M.Run(seq, 1, [], new_id(), 8),
    MessageCode.HOLDS: lambda scene, seq: M.Holds(seq, scene.x, digest(SECRET)),
    MessageCode.CANCEL: lambda scene, seq: M.Cancel(seq, 12345),
    MessageCode.FETCH_ALL: lambda scene, seq: M.FetchAll(seq, (scene.x,), True),
    MessageCode.GIVE_UP: lambda scene, seq: M.GiveUp(seq, scene.promise, "no"),
    MessageCode.AWAIT: lambda scene, seq: M.Await(seq, scene.x),
    MessageCode.GRADIENTS: lambda scene, seq: M.Gradients(seq, (scene.x,), new_id()),
    MessageCode.CLEAR_GRADIENTS: lambda scene, seq: M.ClearGradients(seq, (scene.x,)),
    MessageCode.ALLOW: lambda scene, seq: M.Allow(seq, scene.x, ("zoe",), new_id()),
}
"""A request of each kind that has a reply; PUT and PUT_ALL have tests of their own."""

GONE = "OBJECT_NOT_FOUND"
READERS = ("Value", "Value", GONE, GONE)
ALL_VALUE = ("Value",) * 4
NOWHERE = "UNKNOWN_WORKER"
OWNER_ALONE = ("Done", DENIED, GONE, GONE)

EXPECTED: dict[MessageCode, tuple[str, ...]] = {
    MessageCode.COMMAND: ("Done", "Done", GONE, GONE),  # the result is as private as the input
    MessageCode.FETCH: READERS,
    MessageCode.DROP: ALL_DONE,  # what is another's stays
    MessageCode.MOVE: (NOWHERE, DENIED, GONE, GONE),
    MessageCode.DUPLICATE: ("Done", "Done", GONE, GONE),
    MessageCode.SEARCH: ALL_VALUE,
    MessageCode.ANNOTATE: OWNER_ALONE,
    MessageCode.DESCRIBE: READERS,
    MessageCode.PROMISE: ALL_DONE,
    MessageCode.START: (NOWHERE,) * 4,  # before what is named is looked for
    MessageCode.RELAY: (NOWHERE, DENIED, GONE, GONE),
    MessageCode.CONVERT: ("Done", "Done", GONE, GONE),
    MessageCode.RUN: ("PROGRAM_ERROR",) * 4,  # a number of nobody
    MessageCode.HOLDS: ("True", "True", "False", "False"),
    MessageCode.CANCEL: ALL_DONE,
    MessageCode.FETCH_ALL: READERS,
    MessageCode.GIVE_UP: ("Done", GONE, GONE, GONE),  # bea was not told of the promise
    MessageCode.AWAIT: ("Done", "Done", "Value", "Value"),  # an error that is an answer
    MessageCode.GRADIENTS: READERS,  # there are none; their values would be private
    MessageCode.CLEAR_GRADIENTS: OWNER_ALONE,
    MessageCode.ALLOW: OWNER_ALONE,
}
"""What each caller is answered; an error by its code."""

SILENT = {MessageCode.EXCHANGE, MessageCode.ABORT, MessageCode.SHARE}
"""Requests without a reply."""
OTHERS = {MessageCode.PUT, MessageCode.PUT_ALL}


def test_every_request_has_a_row() -> None:
    requests = {code for code in MessageCode if code < MessageCode.DONE}
    assert set(EXPECTED) == set(REQUESTS)
    assert requests == set(REQUESTS) | SILENT | OTHERS


@pytest.mark.parametrize("code", REQUESTS)
def test_who_may_ask_what(scene: Scene, code: MessageCode) -> None:
    outcomes = []
    for who in WHO:
        scene.prepare(code)
        scene.seq += 1
        outcomes.append(scene.ask(who, REQUESTS[code](scene, scene.seq)))
        owners = who == "ann" and code in {MessageCode.DROP, MessageCode.FETCH}
        assert scene.holds(scene.x) or owners, "what is the owner's stays"
    assert tuple(outcomes) == EXPECTED[code]


@pytest.mark.parametrize("who", WHO)
def test_who_may_put_what(scene: Scene, who: str) -> None:
    """Anybody may store, and nobody in the place of what is there, or was promised by others."""
    scene.prepare(MessageCode.PUT)
    assert scene.send(who, scene.put(new_id(), SECRET)) == "Done"
    at_x = scene.send(who, scene.put(scene.x, SECRET))
    assert at_x == ("OBJECT_ID_TAKEN" if who in ("ann", "bea") else "Done")
    assert scene.send(who, scene.put(scene.promise, SECRET)) == "Done"
    server = scene.server
    with server.board.monitor:
        kept = scene.promise not in server.core.store.promised
        whose = server.core.owners.of(scene.x)
    assert kept is (who == "ann"), "others have stored it elsewhere"
    assert whose is not None and whose.owner == "ann"


@pytest.mark.parametrize("who", WHO[1:])
def test_requests_without_a_reply_change_nothing(scene: Scene, who: str) -> None:
    scene.prepare(MessageCode.SHARE)
    caller = scene.callers[who]
    for message in (M.Share(scene.x, (who, f"{who} calls")), M.Abort(1, 0, "no")):
        caller.send(frame(BINARY, syft_frame(messages.encode(message))))
    assert scene.ask(who, M.Exchange(2, 0, 0, ((0, 5),))) == "MALFORMED_MESSAGE"
    scene.seq += 1
    assert scene.ask(who, M.Annotate(scene.seq, scene.x, ("#mine",))) in (DENIED, GONE)
    assert scene.holds(scene.x)


@pytest.mark.parametrize("who", WHO[1:])
def test_writing_to_what_is_anothers(scene: Scene, who: str) -> None:
    scene.prepare(MessageCode.HOLDS)  # no leaf, so that torch would write to it
    scene.seq += 1
    written = scene.ask(who, _command("torch.Tensor.add_", False)(scene, scene.seq))
    assert written == (DENIED if who == "bea" else GONE)
    scene.seq += 1
    assert scene.ask("ann", M.Holds(scene.seq, scene.x, digest(SECRET))) == "True"


@pytest.mark.parametrize("who", ("eve", "nobody"))
@pytest.mark.parametrize("code", REQUESTS)
def test_what_is_anothers_is_answered_as_what_was_never_there(
    scene: Scene, code: MessageCode, who: str
) -> None:
    """Every request, on the object of another user and on an id of nothing: the answers differ in
    the ids that they name, and in nothing else."""
    scene.prepare(code)
    told = []
    for there in (True, False):
        if not there:
            scene.x, scene.promise = new_id(), new_id()
        scene.seq += 1
        message = REQUESTS[code](scene, scene.seq)
        reply = scene.callers[who].ask(message)
        text = str(msgspec.structs.replace(reply, seq=0))
        for number in sorted(map(abs, numbers_in(message)), reverse=True):
            text = text.replace(str(number), "ID") if number > 1000 else text
        told.append(re.sub("'<?[0-9a-f]{16,}'?", "ID", text))
    assert told[0] == told[1]
    # the control: bea may know of it, and is told so
    if EXPECTED[code][1] != EXPECTED[code][2]:
        assert EXPECTED[code][1] != GONE or code is MessageCode.GIVE_UP
