"""The line from one server to another is cut at random points, and goes on: nothing is lost, and
nothing done twice."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.codes import CollectiveCode
from syft.exceptions import (
    FingerprintMismatch,
    InsecureAddress,
    MalformedMessage,
    RemoteFailure,
    UnknownWorker,
    WorkerLost,
    WorkerRefused,
)
from syft.ids import new_execution, new_id
from syft.serde.limits import Limits
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.sockets.line import Line
from syft.workers.sockets.line_messages import Settle
from syft.workers.sockets.dialling import Redialler
from syft.workers.wire.references import Reference
from tests.workers.sockets.attacks.proxy import Proxy


@contextlib.contextmanager
def two_servers(
    hook: sy.TorchHook, **settings: Any
) -> Iterator[tuple[sy.WebsocketClientWorker, sy.WebsocketClientWorker, Proxy, Any, Any]]:
    """bob and alice, whom all reach through a proxy, with their clients and themselves."""
    settings = {"heartbeat": 0.3, "lease": 30.0, **settings}
    with (
        sy.WebsocketServerWorker(hook, port=0, id="alice", **settings) as there,
        sy.WebsocketServerWorker(hook, port=0, id="bob", **settings) as here,
        Proxy(there.port) as proxy,
    ):
        bob = sy.WebsocketClientWorker(hook, port=here.port)
        alice = sy.WebsocketClientWorker(hook, port=proxy.port)
        yield bob, alice, proxy, here, there
        for worker in (bob, alice):
            worker.close()


def the_line(server: sy.WebsocketServerWorker) -> Line:
    """The line that a server has made."""
    guests = server.reception.guests.values()
    (worker,) = [worker for guest in guests for worker in guest.introduced.values()]
    return worker.line


def comes_true(condition: Callable[[], Any], seconds: float = 20) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    return bool(condition())


def move(x: torch.Tensor, to: Any, moved: list[torch.Tensor]) -> None:
    moved.append(x.move(to))


def cut(line: Line) -> None:
    """Break the connection that carries a line, as a network does."""
    assert line.websocket is not None
    line.websocket.stream.socket.shutdown(2)


@pytest.mark.parametrize("run", range(2))
def test_moves_and_pointers_to_pointers_survive_cuts(hook: sy.TorchHook, run: int) -> None:
    with two_servers(hook) as (bob, alice, proxy, here, there):
        proxy.cuts = [random.randrange(2500, 30_000) for _ in range(15)]
        total = torch.zeros(3).send(alice)
        inner = torch.zeros(3).send(alice)
        counted = inner.remote_send(bob)  # a pointer at bob to what is at alice
        for index in range(60):
            counted.add_(1)
            total += torch.ones(3).send(bob).move(alice)
            if index % 20 == 9:
                large = torch.arange(20_000.0).send(bob).move(alice)
                assert torch.equal(large.get(), torch.arange(20_000.0))
        assert total.get().tolist() == [60.0] * 3
        assert counted.remote_get().get().tolist() == [60.0] * 3
        assert proxy.done >= 3, f"it was cut {proxy.done} times"
        assert len(there.reception.guests) == 2, "one line all the time"
        del total, inner, counted, large
        sy.synchronize()


def test_backward_passes_across_survive_cuts(hook: sy.TorchHook) -> None:
    weight = torch.randn(40, 40)
    with two_servers(hook) as (bob, alice, proxy, here, there):
        proxy.cuts = [random.randrange(2500, 60_000) for _ in range(15)]
        for _ in range(12):
            leaf = weight.clone().requires_grad_()
            (leaf * 3).pow(2).sum().backward()
            x = weight.clone().requires_grad_().send(bob)
            y = (x * 3).move(alice, requires_grad=True)
            y.pow(2).sum().backward()
            torch.testing.assert_close(x.grad.get(), leaf.grad)
            del x, y
        assert proxy.done >= 2, f"it was cut {proxy.done} times"
        sy.synchronize()


def test_collectives_survive_cuts(hook: sy.TorchHook) -> None:
    with two_servers(hook) as (bob, alice, proxy, here, there):
        proxy.cuts = [random.randrange(1800, 5000) for _ in range(15)]
        for turn in range(25):
            parts = [torch.full((20,), turn).send(bob), torch.full((20,), 2 * turn).send(alice)]
            results = sy.sum_private(*parts)
            for result in results:
                assert result.get().tolist() == [3 * turn] * 20
            del parts, results, result
        assert proxy.done >= 2, f"it was cut {proxy.done} times"
        sy.synchronize()


def test_others_are_served_while_a_line_is_made_again(hook: sy.TorchHook) -> None:
    with two_servers(hook, heartbeat=2.0) as (bob, alice, proxy, here, there):
        x = torch.ones(2).send(bob).move(alice)
        assert x.get().tolist() == [1, 1]
        redial = here.board.redialler
        line = the_line(here)
        gate = threading.Event()
        dial = redial._dials[line]

        def slowly(resume: Any, seconds: float) -> Any:
            gate.wait(20)
            return dial(resume, seconds)

        redial.keep(line, slowly)
        other = sy.WebsocketClientWorker(hook, port=here.port, id="bob for another")
        y = torch.ones(2).send(bob)
        cut(line)
        moved: list[torch.Tensor] = []
        moving = threading.Thread(target=move, args=(y, alice, moved))
        moving.start()
        assert comes_true(lambda: line.kept, 5), "a request waits"
        for _ in range(5):
            assert (torch.ones(2).send(other) + 1).get().tolist() == [2, 2]
        assert line.websocket is None and len(moved) == 0, "the line is still broken"
        gate.set()
        moving.join()
        assert (moved[0] + 1).get().tolist() == [2, 2]
        assert the_line(here) is line
        other.close()
        del x, y, moved
        sy.synchronize()


def test_what_alice_asks_bob_waits_for_him(hook: sy.TorchHook) -> None:
    """A line that one end dialled carries requests of both: she waits until he has come back."""
    with two_servers(hook, heartbeat=2.0) as (bob, alice, proxy, here, there):
        x = torch.ones(2).requires_grad_().send(bob)
        y = (x * 3).move(alice, requires_grad=True)
        assert y.copy().get().tolist() == [3, 3]
        cut(the_line(here))
        (y * 2).sum().backward()
        assert x.grad.get().tolist() == [6, 6]
        del x, y
        sy.synchronize()


def test_a_line_that_the_other_end_does_not_know_is_over(hook: sy.TorchHook) -> None:
    with two_servers(hook) as (bob, alice, proxy, here, there):
        x = torch.ones(2).send(bob).move(alice)
        assert x.get().tolist() == [1, 1]
        line = the_line(here)
        with there.owning():
            for guest in list(there.reception.guests.values()):
                if guest.root is not None:
                    del there.reception.guests[guest.line.id]
                    there.board.remove(guest.line, "it was forgotten")
        assert comes_true(lambda: line.ended is not None)
        assert line.ended is not None and "forgotten" in line.ended, line.ended
        again = torch.ones(2).send(bob).move(alice)
        assert (again + 1).get().tolist() == [2, 2], "another line is made"
        del x, again
        sy.synchronize()


def test_a_line_that_was_given_up_meanwhile_is_over(hook: sy.TorchHook) -> None:
    with two_servers(hook) as (bob, alice, proxy, here, there):
        x = torch.ones(2).send(bob).move(alice)
        assert x.get().tolist() == [1, 1]
        line = the_line(here)
        line.secret = "another one"
        cut(line)
        with pytest.raises(WorkerLost, match="has given the line up"):
            with here.owning():
                here.board.wait_until_arrived(_with_something_to_say(line))
        assert line not in here.board.lines and not here.board.redialler.knows(line)
        again = torch.ones(2).send(bob).move(alice)
        assert (again + 1).get().tolist() == [2, 2]
        del x, again
        sy.synchronize()


def _with_something_to_say(line: Line) -> Line:
    line.tell(Settle(10_000))
    return line


def test_a_line_on_which_a_rule_is_broken_is_over(hook: sy.TorchHook) -> None:
    with two_servers(hook) as (bob, alice, proxy, here, there):
        x = torch.ones(2).send(bob).move(alice)
        assert x.get().tolist() == [1, 1]
        line = the_line(here)
        with there.owning():
            (guest,) = [one for one in there.reception.guests.values() if one.root is not None]
            guest.line.websocket.put([b"noise"], 1)
            guest.line.flush()
        assert comes_true(lambda: line.ended is not None)
        assert line not in here.board.lines and not here.board.redialler.knows(line)
        del x


def test_a_program_expects_nobody_to_dial(hook: sy.TorchHook) -> None:
    with two_servers(hook) as (bob, alice, proxy, here, there):
        cut(bob.line)
        assert comes_true(lambda: bob.line.websocket is None)
        assert not bob.board.comes_back(bob.line) and not bob.board.settle([bob.line])


def test_a_server_that_is_gone_is_lost_at_once(hook: sy.TorchHook) -> None:
    with two_servers(hook, heartbeat=5.0) as (bob, alice, proxy, here, there):
        alice.close()
        direct = sy.WebsocketClientWorker(hook, port=there.port)
        x = torch.ones(2).send(bob).move(direct)
        assert x.get().tolist() == [1, 1]
        line = the_line(here)
        there.close()
        assert comes_true(lambda: line.ended is not None, 5), "and not after three heartbeats"
        y = torch.ones(2).send(bob)
        with pytest.raises((WorkerLost, UnknownWorker)):
            y.move(direct).get()
        del x, y
        direct.close()


def test_nobody_who_answers_is_waited_for_as_long_as_silence_is_borne(hook: sy.TorchHook) -> None:
    with two_servers(hook, heartbeat=0.1) as (bob, alice, proxy, here, there):
        x = torch.ones(2).send(bob).move(alice)
        assert x.get().tolist() == [1, 1]
        line = the_line(here)
        proxy.stalls.set()
        assert comes_true(lambda: line.ended is not None)
        proxy.stalls.clear()
        del x


def test_a_server_that_stops_ends_its_attempts(hook: sy.TorchHook) -> None:
    with two_servers(hook, heartbeat=1.0) as (bob, alice, proxy, here, there):
        x = torch.ones(2).send(bob).move(alice)
        assert x.get().tolist() == [1, 1]
        line = the_line(here)

        def fail(resume: Any, seconds: float) -> Any:
            raise ConnectionResetError("not now")

        here.board.redialler.keep(line, fail)
        cut(line)
        assert comes_true(lambda: here.board.redialler._threads)
        del x
    assert not here.board.redialler._threads


def test_a_letter_that_is_refused_is_told_over_the_line_it_came_by(hook: sy.TorchHook) -> None:
    """Nobody has asked Alice for anything yet: she knows Bob by what he calls himself."""
    with two_servers(hook, peer_limits=PeerLimits(letters=100)) as (bob, alice, proxy, here, there):
        x = torch.ones(2).send(bob)
        line, names, out = hook.local_worker.connection_to(bob), ("bob", "alice"), new_id()
        part = int(CollectiveCode.SUM), new_execution(), names, 0
        pending = line.start_part(*part, (Reference(x.child.id_at_location),), (out,))
        with bob.within(20), pytest.raises(RemoteFailure, match=r"alice failed: .*\.letters"):
            line.replies.wait(pending)
        assert not here.core.sessions and not there.core.sessions
        assert not any(there.board.comes_back(line) for line in there.board.lines), "she dials"
        line.garbage.append(out)
        del x
        sy.synchronize()


# ------------------------------------------------------------------------- the redialler by itself


class Ends:
    """What a redialler reports, and a connection that can be closed."""

    def __init__(self) -> None:
        self.given_up: list[str] = []
        self.resumed: list[int] = []
        self.closed = 0
        self.stream = self
        self.redialler = Redialler(lambda act: act(), self.resume, self.give_up)
        self.line = Line("alice", Limits(), odd=False)
        self.line.heartbeat = 0.05

    def resume(self, line: Line, websocket: Any, received: int) -> None:
        if received > 5:
            raise MalformedMessage("$.count", "at most 5", str(received))
        self.resumed.append(received)

    def give_up(self, line: Line, reason: str) -> None:
        self.given_up.append(reason)

    def close(self) -> None:
        self.closed += 1

    def run(self, dial: Any) -> None:
        self.redialler.keep(self.line, dial)
        self.redialler.start(self.line)
        comes_true(lambda: not self.redialler._threads)
        assert not self.redialler._threads

    def welcome(self, received: int) -> Any:
        self.received = received
        return self, self


@pytest.mark.parametrize(
    "error",
    [
        WorkerRefused("alice", "unknown line", "it is over"),
        ConnectionRefusedError(111, "Connection refused"),
        FileNotFoundError(2, "No such file or directory"),
        FingerprintMismatch("sha256:00", "sha256:11"),
        InsecureAddress("ws://example.org"),
        MalformedMessage("$", "a welcome", "noise"),
    ],
)
def test_some_errors_are_final(error: Exception) -> None:
    ends, tries = Ends(), []

    def dial(resume: Any, seconds: float) -> Any:
        tries.append(seconds)
        raise error

    ends.run(dial)
    assert len(tries) == 1 and len(ends.given_up) == 1 and not ends.resumed


def test_others_are_not() -> None:
    ends, tries = Ends(), []

    def dial(resume: Any, seconds: float) -> Any:
        tries.append(seconds)
        if len(tries) < 3:
            raise ConnectionResetError("not yet")
        return ends.welcome(4)

    ends.run(dial)
    assert ends.resumed == [4] and not ends.given_up and len(tries) == 3


def test_until_three_heartbeats_are_over() -> None:
    ends = Ends()

    def dial(resume: Any, seconds: float) -> Any:
        raise TimeoutError

    ends.run(dial)
    assert ends.given_up == ["it is gone (TimeoutError)"]


def test_an_end_that_has_received_too_much_is_given_up() -> None:
    ends = Ends()
    ends.run(lambda resume, seconds: ends.welcome(6))
    assert ends.closed == 1 and "at most 5" in ends.given_up[0]


def test_a_line_that_ended_meanwhile_is_not_resumed() -> None:
    for fails in (False, True):
        ends = Ends()

        def dial(resume: Any, seconds: float, ends: Ends = ends, fails: bool = fails) -> Any:
            ends.line.end("it was closed")
            if fails:
                raise ConnectionRefusedError
            return ends.welcome(0)

        ends.run(dial)
        assert not ends.resumed and not ends.given_up and ends.closed == (not fails)


def test_only_lines_that_this_end_made() -> None:
    ends = Ends()
    ends.redialler.start(ends.line)
    assert not ends.redialler._threads
    ends.redialler.keep(ends.line, lambda resume, seconds: ends.welcome(0))
    ends.redialler.forget(ends.line)
    ends.redialler.start(ends.line)
    assert not ends.redialler._threads and not ends.redialler.knows(ends.line)
