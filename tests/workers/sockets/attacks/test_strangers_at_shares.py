"""Strangers on raw sockets while others compute on shares: nothing is told, changed or stopped."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.codes import CollectiveCode
from syft.crypto.programs.share_program import ShareCode
from syft.ids import new_execution, new_id
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.handlers.executions import MAX_SESSIONS
from syft.workers.wire import messages
from syft.workers.wire.messages import Abort, Exchange, Failure, Start, Value
from syft.workers.wire.references import Reference
from tests.workers.handlers.sharing_client import Client, wait
from tests.workers.handlers.test_share_strangers import HARMLESS, REQUESTS, SILENT
from tests.workers.handlers.test_sharing import S, X, Y, product_program, relu_program, step
from tests.workers.sockets.attacks.proxy import Proxy
from tests.workers.sockets.attacks.stranger import BINARY, Stranger, frame, syft_frame
from tests.crypto.ring_programs import program_of

NAMES = "alice", "bob", "dealer"


class Place:
    """Two parties and a provider that serve on sockets, and an honest client of theirs."""

    def __init__(self, hook: sy.TorchHook, stack: contextlib.ExitStack) -> None:
        self.servers = {
            name: stack.enter_context(sy.WebsocketServerWorker(hook, port=0, id=name))
            for name in NAMES
        }
        self.first = {name: self.stranger("alice", name=name) for name in ("bob", "dealer")}
        """Strangers who are there before anybody else, and take the names of parties."""
        for stranger in self.first.values():
            stack.callback(stranger.socket.close)
        self.workers = {
            name: sy.WebsocketClientWorker(hook, port=server.port, id=name)
            for name, server in self.servers.items()
        }
        for worker in self.workers.values():
            stack.callback(worker.close)
        alice, bob, dealer = self.workers.values()
        self.client = Client(hook.local_worker, [alice, bob], dealer)
        stack.callback(self.client.close)
        self.client.open()

    def stranger(self, at: str, **hello: Any) -> Stranger:
        stranger = Stranger(self.servers[at].port)
        assert stranger.greet(**hello)["kind"] == "welcome"
        return stranger

    def objects(self) -> list[dict[int, Any]]:
        found = []
        for server in self.servers.values():
            with server.board.monitor:
                found.append(dict(server.core.store.objects))
        return found

    def sessions(self, at: str) -> int:
        with self.servers[at].board.monitor:
            return len(self.servers[at].core.sessions)

    def goes_on(self, x: int) -> None:
        assert torch.equal(self.client.value(x), X)
        positive, _ = self.client.run(relu_program((5,)), [x])
        assert torch.equal(self.client.value(positive), X.clamp(min=0))


@pytest.fixture
def place(hook: sy.TorchHook) -> Iterator[Place]:
    with contextlib.ExitStack() as stack:
        yield Place(hook, stack)


def start(
    code: CollectiveCode, execution: int, rank: int, args: tuple[Any, ...], outs: tuple[int, ...]
) -> Start:
    packer = Packer()
    operands = tuple(pack(arg, packer) for arg in args)
    assert not packer.buffers
    return Start(1, int(code), execution, NAMES, rank, operands, outs)


def encoded(message: messages.Message) -> bytes:
    return frame(BINARY, syft_frame(messages.encode(message)))


@pytest.mark.parametrize("name", REQUESTS)
def test_no_request_over_a_socket_tells_or_changes_anything(place: Place, name: str) -> None:
    x, y = place.client.share(X, Y)
    _, masked = place.client.run(product_program((5,)), [x, y])
    before = place.objects()
    message, *_ = REQUESTS[name](x)
    for at in "alice", "dealer":
        with place.stranger(at, name="me", user="ann") as eve:
            ids = (x, masked, place.client.session) if at == "alice" else (place.client.session,)
            for id in ids:
                _, *fields = REQUESTS[name](id)
                if name in SILENT:
                    eve.send(encoded(message(1, *fields)))
                else:
                    reply = eve.ask(message(1, *fields))
                    harmless = name in HARMLESS and type(reply) is Value
                    assert harmless or type(reply) is Failure, reply
            assert eve.is_served()
    assert place.objects() == before
    place.goes_on(x)


@pytest.mark.parametrize("name", ["run", "reveal", "deal", "deal ahead", "split", "roll back"])
@pytest.mark.parametrize("at", NAMES)
def test_no_program_of_a_stranger_names_the_session_of_another(
    place: Place, at: str, name: str
) -> None:
    (x,) = place.client.share(X)
    here, rank = Reference(place.client.session), NAMES.index(at)
    reveals = program_of(1, (step(ShareCode.REVEAL, (S(0), rank), 1),), (1,))
    deals = ((0, 7, ((5,),)),)
    code, args, outs = {
        "run": (CollectiveCode.SHARES, (here, 99, relu_program((5,)), Reference(x)), 2),
        "reveal": (CollectiveCode.SHARES, (here, 99, reveals, Reference(x)), 1),
        "deal": (CollectiveCode.DEAL, (here, 99, deals), 0),
        "deal ahead": (CollectiveCode.DEAL_AHEAD, (here, 99, deals), 1),
        "split": (CollectiveCode.SPLIT, (here, rank, Reference(x)), 1),
        "roll back": (CollectiveCode.ROLL_BACK, (here,), 0),
    }[name]
    with place.stranger(at) as eve:
        ids = tuple(new_id() for _ in range(outs))
        assert type(eve.ask(start(code, new_execution(), rank, args, ids))) is Failure
        for id in ids:
            assert type(eve.ask(messages.Fetch(2, id))) is Failure
    place.goes_on(x)


def test_a_session_is_not_replaced_by_a_stranger(place: Place) -> None:
    (x,) = place.client.share(X)
    with place.stranger("alice", name="dealer") as eve:
        opening = start(
            CollectiveCode.OPEN_SESSION, new_execution(), 0, (), (place.client.session,)
        )
        for message in (opening, start(CollectiveCode.OPEN_SESSION, new_execution(), 0, (), (x,))):
            reply = eve.ask(message)
            while type(reply) is Abort:  # it may stand for the dealer, among its own workers
                reply = eve.ask(message)
            assert type(reply) is Failure
    place.goes_on(x)


def half_a_program(place: Place, x: int, execution: int) -> tuple[list[Any], list[Any], list[int]]:
    """Alice's part of a program under way, what starts the others' parts, and its results."""
    client, here = place.client, Reference(place.client.session)
    client.counter += 1
    outs = [new_id(), new_id()]
    args = (here, client.counter, relu_program((5,)), Reference(x))
    deals = (here, client.counter, ((0, int(ShareCode.POSITIVE), (0, (5,))),))
    first = client.start(
        CollectiveCode.SHARES, client.everybody, [args, None, None], [outs] * 3, execution
    )
    return first, [args, deals], outs


def rest_of_a_program(place: Place, later: list[Any], outs: list[int], execution: int) -> list[Any]:
    client, (args, deals) = place.client, later
    nothing: list[Any] = [()] * 3
    return [
        *client.start(
            CollectiveCode.DEAL, client.everybody, [None, None, deals], nothing, execution
        ),
        *client.start(
            CollectiveCode.SHARES, client.everybody, [None, args, None], [outs] * 3, execution
        ),
    ]


@pytest.mark.parametrize("when", ["before", "while", "before and gone"])
@pytest.mark.parametrize("name", ["bob", "dealer", "stranger", "first bob", "first dealer"])
def test_letters_and_failures_of_strangers_do_not_count(place: Place, name: str, when: str) -> None:
    """One knows the number of an execution, and calls itself as a party is called."""
    (x,) = place.client.share(X)
    execution = new_execution()
    known, _, other = name.partition(" ")
    with place.first[other] if other else place.stranger("alice", name=known) as eve:

        def attack() -> None:
            for rank in range(3):
                for number in range(4):
                    eve.send(encoded(Exchange(execution, number, rank, (5,))))
            eve.send(encoded(Abort(execution, 1, "bob is lost")))
            assert eve.is_served()

        if when != "while":
            attack()
        if when == "before and gone":
            eve.socket.close()
            time.sleep(0.2)
        first, later, outs = half_a_program(place, x, execution)
        if when == "while":
            place.client.caller.connection_to(place.workers["alice"]).flush()
            attack()
        wait([*first, *rest_of_a_program(place, later, outs, execution)])
        assert torch.equal(place.client.value(outs[0]), X.clamp(min=0))
    place.goes_on(x)


def test_floods_of_letters_and_failures_stop_nobody(place: Place) -> None:
    (x,) = place.client.share(X)
    stop = threading.Event()

    def flood(at: str) -> None:
        with place.stranger(at, name=f"eve at {at}") as eve, contextlib.suppress(OSError):
            eve.socket.settimeout(1)
            while not stop.wait(0.04):  # more than that is too much where lines are counted
                numbers = [random.getrandbits(62) for _ in range(25)]
                letters = [encoded(Exchange(one, 0, 1, (bytes(500),))) for one in numbers]
                eve.send(b"".join([*letters, *(encoded(Abort(n, 1, "x" * 200)) for n in numbers)]))

    threads = [threading.Thread(target=flood, args=(name,)) for name in NAMES]
    for thread in threads:
        thread.start()
    try:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            place.goes_on(x)
            for name in NAMES:
                assert place.sessions(name) <= MAX_SESSIONS
                assert len(place.servers[name].core.aborted) <= MAX_SESSIONS + 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    place.goes_on(x)


def test_who_deals_itself_may_be_called_as_others_are(hook: sy.TorchHook) -> None:
    with (
        sy.WebsocketServerWorker(hook, port=0, id="alice") as there,
        sy.WebsocketServerWorker(hook, port=0, id="bob") as here,
        Stranger(there.port) as eve,
        Stranger(here.port) as another,
    ):
        for stranger in (eve, another):
            assert stranger.greet(name="me")["name"] == "me"
        alice, bob = (sy.WebsocketClientWorker(hook, port=one.port) for one in (there, here))
        x = torch.tensor([1, -2, 3]).share(alice, bob)
        assert (x * x * x).relu().get().tolist() == [1, 0, 27]
        del x
        sy.synchronize()
        for worker in (alice, bob):
            worker.close()


def test_programs_survive_cut_lines_between_parties(hook: sy.TorchHook) -> None:
    """All reach alice through a proxy that cuts."""
    settings = {"heartbeat": 0.3, "lease": 30.0}
    with (
        sy.WebsocketServerWorker(hook, port=0, id="alice", **settings) as there,
        sy.WebsocketServerWorker(hook, port=0, id="bob", **settings) as here,
        sy.WebsocketServerWorker(hook, port=0, id="dealer", **settings) as deals,
        Proxy(there.port) as proxy,
    ):
        alice = sy.WebsocketClientWorker(hook, port=proxy.port, id="alice")
        bob, dealer = (
            sy.WebsocketClientWorker(hook, port=server.port, id=server.id)
            for server in (here, deals)
        )
        proxy.cuts = [random.randrange(3000, 7000) for _ in range(15)]
        x = torch.arange(-10, 10).share(alice, bob, crypto_provider=dealer)
        total = torch.zeros(20, dtype=torch.int64).share(alice, bob, crypto_provider=dealer)
        for turn in range(1, 26):
            total += x.relu() * x
            assert total.get().tolist() == [turn * max(n, 0) * n for n in range(-10, 10)]
        assert proxy.done >= 3, f"it was cut {proxy.done} times"
        del x, total
        sy.synchronize()
        for worker in (alice, bob, dealer):
            worker.close()
