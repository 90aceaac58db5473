"""A caller's name is what it says, so it must not make it somebody else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import syft as sy
from syft.trust import tickets
from syft.trust.tickets import Ticket
from syft.trust.tokens import TokenBook
from syft.workers.sockets import guests
from syft.trust.tickets import ticket_key
from syft.workers.sockets.sparse_log import STRANGERS
from syft.workers.sockets.websocket import WebSocket
from syft.workers.wire.messages import (
    Annotate,
    Drop,
    Duplicate,
    Failure,
    Fetch,
    Promise,
    Value,
)
from tests.workers.sockets.attacks.stranger import Stranger

pytestmark = pytest.mark.usefixtures("hook")


@contextlib.contextmanager
def serving(book: TokenBook | None = None, **settings: Any) -> Iterator[sy.WebsocketServerWorker]:
    """A worker that holds one public tensor, and may be changed by ann or by a worker alice."""
    settings.setdefault("anonymous", True)
    tensor = torch.zeros(2)
    with sy.WebsocketServerWorker(
        port=0, id="bob", tokens=book, heartbeat=0.2, **settings
    ) as worker:
        with worker.board.monitor:
            worker.hold(tensor, allow_writes=["ann", "alice"])
        yield worker


def held_id(worker: sy.WebsocketServerWorker) -> int:
    with worker.board.monitor:
        return next(iter(worker.core.store.objects))


def kind_of(stranger: Stranger, message: Any, channel: int = 0) -> str:
    return type(stranger.ask(message, channel)).__name__


@pytest.fixture
def book() -> TokenBook:
    return TokenBook()


def test_a_caller_without_a_token_is_not_called_as_a_user_is(book: TokenBook) -> None:
    book.make("ann", time.time())
    with serving(book) as worker, Stranger(worker.port) as eve:
        assert eve.greet(name="ann")["name"] == "ann"
        assert kind_of(eve, Annotate(1, held_id(worker), ("#mine",))) == "Failure"


def test_a_user_called_as_another_one_cannot_keep_its_promises(book: TokenBook) -> None:
    tokens = {name: book.make(name, time.time()) for name in ("ann", "eve")}
    with serving(book) as worker, Stranger(worker.port) as eve, Stranger(worker.port) as ann:
        assert eve.greet(name="ann", token=tokens["eve"])["name"] == "ann"
        assert ann.greet(name="ann", token=tokens["ann"])["name"] == "ann-2"
        assert kind_of(ann, Promise(1, (500,), "ann")) == "Done"
        id = held_id(worker)
        assert type(eve.ask(Annotate(1, id, ("#mine",)))) is Failure
        assert kind_of(eve, Duplicate(2, id, 500)) == "Done", "that it is taken is not told her"
        assert kind_of(ann, Duplicate(2, id, 500)) == "Done", "and it was not kept by hers"


def test_who_came_before_the_user_had_a_token_has_to_leave(book: TokenBook) -> None:
    with serving(book) as worker:
        with Stranger(worker.port) as eve, Stranger(worker.port) as ann:
            assert eve.greet(name="ann")["name"] == "ann"
            token = book.make("ann", time.time())
            assert ann.greet(name="laptop", token=token)["user"] == "ann"
            assert eve.closing_code() == 1008
            assert kind_of(ann, Annotate(1, held_id(worker), ("#mine",))) == "Done"
        with Stranger(worker.port) as eve, Stranger(worker.port) as bea:
            assert eve.greet(name="bea")["name"] == "bea"
            token = book.make("bea", time.time())
            bea.greet(name="laptop")
            bea.tell({"kind": "open", "channel": 8, "source": "x", "target": "bob", "token": token})
            assert kind_of(bea, Drop(1, (1,)), 8) == "Done"
            assert eve.closing_code() == 1008


def test_two_callers_never_have_one_name() -> None:
    """Neither as they call themselves, nor as they call the workers for which they speak."""
    with serving() as worker, Stranger(worker.port) as one, Stranger(worker.port) as other:
        assert one.greet(name="me")["name"] == "me"
        assert other.greet(name="me")["name"] == "me-2"
        for stranger in (one, other):
            stranger.tell({"kind": "open", "channel": 8, "source": "w", "target": "bob"})
            assert stranger.is_served()
        with Stranger(worker.port) as third:
            assert third.greet(name="w")["name"] == "w-3"
        names = [peer.name for guest in worker.reception.guests.values() for peer in guest.peers]
        assert len(names) == len(set(names))


def test_nobody_is_called_as_the_worker_is() -> None:
    with serving() as worker, Stranger(worker.port) as eve:
        assert eve.greet(name="bob")["name"] == "bob-2"
        assert kind_of(eve, Annotate(1, held_id(worker), ("#mine",))) == "Failure"


def test_what_is_not_a_callers_cannot_be_changed_or_taken(book: TokenBook) -> None:
    """A stranger that knows an id reads what is public, and changes nothing."""
    with serving(book) as worker, Stranger(worker.port) as me, Stranger(worker.port) as eve:
        me.greet(name="me")
        eve.greet(name="me")
        id = held_id(worker)
        assert kind_of(me, Duplicate(1, id, 900)) == "Done"
        assert kind_of(eve, Drop(1, (900, id))) == "Done"
        assert type(eve.ask(Fetch(2, 900))) is Value
        assert kind_of(eve, Annotate(3, 900, ("#mine",))) == "Failure"
        assert type(me.ask(Fetch(2, 900, keep=True))) is Value
        assert kind_of(me, Annotate(3, 900, ("#mine",))) == "Done"
        with worker.board.monitor:
            assert set(worker.core.store.objects) == {id, 900}


# --------------------------------------------------------------------------- secrets and tickets


def test_a_line_is_gone_on_with_by_whoever_knows_its_secret() -> None:
    with serving() as worker, Stranger(worker.port) as me:
        mine = me.greet(name="me")
        guesses = ["", "x", mine["secret"][:-1], mine["secret"] + "a", mine["secret"].swapcase()]
        for secret in guesses:
            with Stranger(worker.port) as eve:
                resume = {"line": mine["line"], "secret": secret, "received": 0}
                answer = eve.greet(resume=resume)
                assert (answer["kind"], answer["code"]) == ("refused", "unknown line")
        for received in (-1, 5):
            with Stranger(worker.port) as eve:
                resume = {"line": mine["line"], "secret": mine["secret"], "received": received}
                assert eve.greet(resume=resume)["kind"] == "refused"
        assert me.is_served()
        with Stranger(worker.port) as again:
            resume = {"line": mine["line"], "secret": mine["secret"], "received": 0}
            assert again.greet(resume=resume)["name"] == "me"
            assert not me.is_served()


def test_tickets_open_one_door_once(book: TokenBook) -> None:
    token = book.make("ann", time.time())
    other = book.make("bea", time.time())
    with serving(book) as worker, Stranger(worker.port) as me, Stranger(worker.port) as bea:
        mine = me.greet(name="me", token=token)
        bea.greet(name="me", token=other)
        key, soon = ticket_key(mine["secret"]), time.time() + 60

        def shown(text: str) -> dict[str, Any]:
            with Stranger(worker.port) as alice:
                return alice.greet(name="ann", ticket=text)

        good = tickets.mint(key, Ticket(mine["line"], "alice", "ann", soon))
        assert shown(good)["user"] == "ann"
        wrong = {
            "used before": good,
            "changed": good[:-2] + ("AA" if good[-2:] != "AA" else "BB"),
            "another session's key": tickets.mint(
                ticket_key(bea.welcome["secret"]), Ticket(mine["line"], "alice", "ann", soon)
            ),
            "another user": tickets.mint(key, Ticket(mine["line"], "alice", "bea", soon)),
            "no session": tickets.mint(key, Ticket("nobody", "alice", "ann", soon)),
            "expired": tickets.mint(key, Ticket(mine["line"], "alice", "ann", time.time() - 1)),
            "not signed": good.split(".")[0] + ".",
        }
        for why, text in wrong.items():
            assert shown(text)["kind"] == "refused", why
        assert me.is_served() and bea.is_served()


def test_a_ticket_of_one_line_opens_no_channel_of_another(book: TokenBook) -> None:
    with serving(book) as worker, Stranger(worker.port) as me, Stranger(worker.port) as eve:
        mine = me.greet(name="me", token=book.make("ann", time.time()))
        eve.greet(name="eve")
        ticket = Ticket(mine["line"], "bob", "ann", time.time() + 60)
        text = tickets.mint(ticket_key(mine["secret"]), ticket)
        eve.tell({"kind": "open", "channel": 8, "source": "x", "target": "bob", "ticket": text})
        reply = eve.ask(Annotate(1, held_id(worker), ("#mine",)), 8)
        assert type(reply) is Failure
        with worker.board.monitor:
            assert not worker.core.store.objects[held_id(worker)].__dict__.get("tags")


def test_ten_thousand_wrong_tokens_lock_their_address_out(book: TokenBook) -> None:
    """Not the others, and not those who are in."""
    token = book.make("ann", time.time())
    with serving(book) as worker, Stranger(worker.port) as ann:
        ann.greet(token=token)
        codes: dict[str, int] = {}
        for index in range(200):
            with Stranger(worker.port) as eve:
                code = eve.greet(token=f"syft_{index:016x}_{'A' * 43}")["code"]
                codes[code] = codes.get(code, 0) + 1
            assert index % 20 or ann.is_served()  # which is a sign of life of hers, too
        assert codes == {"token": 10, "locked": 190}
        with Stranger(worker.port) as late:
            assert late.greet(token=token)["code"] == "locked"
        now = time.monotonic()
        for index in range(10_000):  # as the worker counts them, without the sockets
            worker.reception.lockout.failed("203.0.113.9", now + index * 0.006)
        assert worker.reception.lockout.is_locked("203.0.113.9", now + 60)
        assert not worker.reception.lockout.is_locked("203.0.113.10", now + 60)
        assert ann.is_served()


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_lock_does_not_run_by_the_wall_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    def clocks(wall: float, steady: float) -> None:
        """Put the clocks that let callers in on, by so many seconds."""
        shifted = SimpleNamespace(
            time=lambda: time.time() + wall, monotonic=lambda: time.monotonic() + steady
        )
        monkeypatch.setattr(guests, "time", shifted)

    book = TokenBook(tmp_path / "tokens.json")
    token = book.make("ann", time.time())
    with serving(book) as worker:
        wrong = token[:-4] + "0000"
        for _ in range(10):
            with Stranger(worker.port) as stranger:
                assert stranger.greet(token=wrong)["code"] == "token"
        clocks(3600.0 * hours, 0.0)
        with Stranger(worker.port) as locked:
            assert locked.greet(token=token)["code"] == "locked", "whatever the wall clock says"
        clocks(0.0, 61.0)
        with Stranger(worker.port) as later:
            assert later.greet(token=token)["kind"] == "welcome", "a minute has passed"


def test_a_book_that_others_may_read_lets_nobody_in(tmp_path: Path) -> None:
    book = TokenBook(tmp_path / "tokens.json")
    token = book.make("ann", time.time())
    with serving(book) as worker, Stranger(worker.port) as before:
        assert before.greet(token=token)["kind"] == "welcome"
        (tmp_path / "tokens.json").chmod(0o644)
        for fields in ({"token": token}, {}):
            with Stranger(worker.port) as stranger:
                assert stranger.greet(**fields)["code"] == "token"
        assert before.is_served(), "the worker goes on"
        (tmp_path / "tokens.json").chmod(0o600)
        with Stranger(worker.port) as after:
            assert after.greet(token=token)["kind"] == "welcome"


# ------------------------------------------------------------------------------------ who is gone


def test_those_who_may_come_back_are_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syft.workers.sockets.guests._MOST_ABSENT", 3)
    with serving() as worker:
        for _ in range(6):
            with Stranger(worker.port) as stranger:
                stranger.greet()
                assert kind_of(stranger, Drop(1, (1,))) == "Done"
        until = time.monotonic() + 20
        while len(worker.reception.guests) > 3 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(worker.reception.guests) == 3


def test_who_has_asked_nothing_is_forgotten_at_once() -> None:
    with serving() as worker:
        for _ in range(6):
            with Stranger(worker.port) as stranger:
                stranger.greet()
        until = time.monotonic() + 20
        while worker.reception.guests and time.monotonic() < until:
            time.sleep(0.05)
        assert not worker.reception.guests


# ------------------------------------------------------------------------- faults of the worker


@pytest.mark.parametrize("where", ["greet", "take", "serve", "receive"])
def test_a_fault_of_the_worker_ends_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    STRANGERS._next = 0.0
    with serving() as worker, Stranger(worker.port) as other:
        other.greet()

        def fail(*args: object) -> bool:
            monkeypatch.undo()
            raise ArithmeticError("a fault")

        places: dict[str, Any] = {"greet": worker.reception, "receive": None}
        with Stranger(worker.port) as stranger:
            if where != "greet":
                stranger.greet()
            if where == "receive":
                monkeypatch.setattr(WebSocket, "receive", fail)
            else:
                monkeypatch.setattr(places.get(where, worker.board), where, fail)
            if where == "greet":
                stranger.tell({"kind": "hello", "protocol": 3, "ops": 0, "name": "x"})
            else:
                stranger.tell({"kind": "settle", "number": 1})
            assert stranger.closing_code() == (1008 if where == "greet" else 1011)
        assert other.is_served()
        assert kind_of(other, Drop(1, (1,))) == "Done"
    assert "a fault of this worker: ArithmeticError('a fault')" in caplog.text
