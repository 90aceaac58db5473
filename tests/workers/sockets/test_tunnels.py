"""Two servers that cannot reach each other: their caller passes on what they say, and sees nothing
of it."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import UnknownWorker, WorkerLost
from syft.trust.certificates import own_certificate
from syft.workers.sockets.introducing import TunnelTo
from syft.workers.sockets.line_messages import Introduction
from tests.workers.sockets.attacks.proxy import Proxy
from tests.workers.sockets.out_of_reach import (  # noqa: F401
    comes_true,
    move_something,
    out_of_reach,
)

pytestmark = pytest.mark.usefixtures("out_of_reach")


@contextlib.contextmanager
def apart(hook: sy.TorchHook, **settings: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Clients of bob and alice, and the two servers."""
    with (
        sy.WebsocketServerWorker(hook, port=0, id="alice", **settings) as there,
        sy.WebsocketServerWorker(hook, port=0, id="bob", **settings) as here,
    ):
        bob, alice = sy.connect(str(here.address)), sy.connect(str(there.address))
        yield bob, alice, here, there
        bob.close()
        alice.close()


def move(x: torch.Tensor, to: Any, moved: list[torch.Tensor]) -> None:
    moved.append(x.move(to))


def test_what_works_between_two_servers_works_through_a_tunnel(hook: sy.TorchHook) -> None:
    weight = torch.randn(30, 30)
    with apart(hook) as (bob, alice, here, there):
        move_something(bob, alice)
        inner = torch.zeros(3).send(alice)
        through = inner.remote_send(bob)  # a pointer at bob to what is at alice
        assert (through + 5).get().get().tolist() == [5, 5, 5]
        leaf = weight.clone().requires_grad_()
        (leaf * 3).pow(2).sum().backward()
        x = weight.clone().requires_grad_().send(bob)
        y = (x * 3).move(alice, requires_grad=True)
        y.pow(2).sum().backward()
        torch.testing.assert_close(x.grad.get(), leaf.grad)
        totals = sy.sum_private(torch.tensor([1, 2]).send(bob), torch.tensor([10, 20]).send(alice))
        assert [total.get().tolist() for total in totals] == [[11, 22]] * 2
        back = torch.ones(3).send(alice).move(bob)
        assert (back * 7).get().tolist() == [7, 7, 7]
        assert bob.board.relays.passed_on > 10_000
        del inner, through, x, y, totals, back
        sy.synchronize()


def test_forty_megabytes_go_through_and_others_are_served(hook: sy.TorchHook) -> None:
    large = torch.arange(10_000_000, dtype=torch.float32)
    with apart(hook) as (bob, alice, here, there):
        other = sy.connect(str(here.address), id="bob for another")
        x = large.send(bob)
        moved: list[torch.Tensor] = []
        moving = threading.Thread(target=move, args=(x, alice, moved))
        moving.start()
        for _ in range(5):
            assert (torch.ones(2).send(other) + 1).get().tolist() == [2, 2]
        moving.join()
        assert torch.equal(moved[0].get(), large)
        assert bob.board.relays.passed_on > large.nbytes
        del x, moved[:]
        other.close()
        sy.synchronize()


def test_encrypted_workers(hook: sy.TorchHook, tmp_path: Path) -> None:
    """The certificate inside the tunnel is the one that the client has pinned."""
    made = own_certificate(tmp_path / "alice")
    own = {"cert_path": made.cert_path, "key_path": made.key_path}
    with (
        sy.WebsocketServerWorker(hook, port=0, id="alice", **own) as there,
        sy.WebsocketServerWorker(hook, port=0, id="bob") as here,
    ):
        bob = sy.connect(str(here.address))
        alice = sy.connect(str(there.address), fingerprint=made.fingerprint)
        move_something(bob, alice)
        (guest,) = here.reception.guests.values()
        assert guest.introduced["alice"].known_by == made.fingerprint
        with here.owning():
            assert guest.introduced["alice"].proof(None)[1] is not None, "another ticket"
        bob.close()
        alice.close()


def test_a_unix_socket_that_is_elsewhere(hook: sy.TorchHook, tmp_path: Path) -> None:
    with (
        sy.WebsocketServerWorker(hook, unix=tmp_path / "alice.sock", id="alice") as there,
        sy.WebsocketServerWorker(hook, port=0, id="bob") as here,
    ):
        bob, alice = sy.connect(str(here.address)), sy.connect(str(there.address))
        for guest in here.reception.guests.values():
            guest.host = "10.0.0.7"  # the path is one of the caller's machine
        move_something(bob, alice)
        bob.close()
        alice.close()


def test_the_program_says_once_that_it_passes_on(
    hook: sy.TorchHook, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "syft.client")
    with apart(hook) as (bob, alice, here, there):
        with sy.trace() as trace, hook.record() as log:
            move_something(bob, alice)
        for line in list(here.board.lines):
            if here.board.redialler.knows(line):
                with contextlib.suppress(OSError):  # its own thread may have closed it meanwhile
                    line.websocket.stream.socket.shutdown(2)  # another tunnel is made
        move_something(bob, alice)
        sealed = [(line.sender, line.receiver) for line in trace if line.what.startswith("sealed")]
        assert ("bob", "alice") in sealed and ("alice", "bob") in sealed
        assert "sealed" in repr(trace) and len(log) == len(trace) - len(sealed)
    said = [record.getMessage() for record in caplog.records if record.name == "syft.client"]
    assert [text for text in said if "passes" in text] == [
        "worker bob cannot reach worker alice: what they send each other passes this program, "
        "sealed between the two"
    ]


@pytest.mark.parametrize("run", range(2))
def test_tunnels_survive_cuts_of_the_lines_that_carry_them(hook: sy.TorchHook, run: int) -> None:
    with (
        sy.WebsocketServerWorker(hook, port=0, id="alice", heartbeat=0.5) as there,
        sy.WebsocketServerWorker(hook, port=0, id="bob", heartbeat=0.5) as here,
        Proxy(here.port) as to_bob,
        Proxy(there.port) as to_alice,
    ):
        to_bob.cuts = [random.randrange(3000, 9000) for _ in range(6)]
        to_alice.cuts = [random.randrange(3000, 9000) for _ in range(6)]
        bob = sy.WebsocketClientWorker(hook, port=to_bob.port)
        alice = sy.WebsocketClientWorker(hook, port=to_alice.port)
        total = torch.zeros(3).send(alice)
        counted = torch.zeros(3).send(alice)
        through = counted.remote_send(bob)
        for _ in range(40):
            through.add_(1)
            total += torch.ones(3).send(bob).move(alice)
        assert total.get().tolist() == [40.0] * 3
        assert through.remote_get().get().tolist() == [40.0] * 3
        assert to_bob.done + to_alice.done >= 2
        del total, counted, through
        sy.synchronize()
        bob.close()
        alice.close()


def test_a_tunnel_that_breaks_is_a_connection_that_breaks(hook: sy.TorchHook) -> None:
    with apart(hook) as (bob, alice, here, there):
        total = torch.zeros(2).send(alice)
        total += torch.ones(2).send(bob).move(alice)
        line = next(line for line in here.board.lines if here.board.redialler.knows(line))
        for board in (here.board, there.board, here.board):
            with board.monitor, board.io:
                for end in list(board.tunnels._ends.values()):
                    board.tunnels.close(end, "it broke")
                board.wake()
            total += torch.ones(2).send(bob).move(alice)
        assert total.get().tolist() == [4, 4]
        assert line in here.board.lines, "it is the same line"
        assert comes_true(lambda: len(here.board.tunnels) == len(there.board.tunnels) == 1)
        assert comes_true(lambda: len(bob.board.relays) == 1)
        del total


def test_a_program_that_leaves_closes_its_tunnels(hook: sy.TorchHook) -> None:
    with apart(hook) as (bob, alice, here, there):
        move_something(bob, alice)
        assert len(here.board.tunnels) == len(there.board.tunnels) == 1
        alice.close()
        assert comes_true(lambda: len(there.board.tunnels) == 0)
        assert comes_true(lambda: len(bob.board.relays) == 0)
        assert comes_true(lambda: len(here.board.tunnels) == 0)
        x = torch.ones(2).send(bob)
        assert (x + 1).get().tolist() == [2, 2]
        del x


def test_a_worker_that_is_gone_behind_a_tunnel_is_lost(hook: sy.TorchHook) -> None:
    with apart(hook, heartbeat=0.2) as (bob, alice, here, there):
        x = torch.ones(2).send(bob).move(alice)
        assert x.get().tolist() == [1, 1]
        there.close()
        y = torch.ones(2).send(bob)
        with pytest.raises((WorkerLost, UnknownWorker)):
            y.move(alice).get()
        assert (y + 1).get().tolist() == [2, 2]
        del x, y


def test_a_program_that_does_not_pass_on(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep_to_itself(server: Any, *args: Any) -> Introduction:
        told = introduction(server, *args)
        told.relays = False
        return told

    introduction = sy.WebsocketServerWorker.introduction
    monkeypatch.setattr(sy.WebsocketServerWorker, "introduction", keep_to_itself)
    with apart(hook) as (bob, alice, here, there):
        x = torch.ones(2).send(bob)
        with pytest.raises(WorkerLost, match="has no connection to it"):
            x.move(alice)
        assert (x + 1).get().tolist() == [2, 2]
        del x


def test_a_tunnel_between_workers_that_are_not_introduced(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    with apart(hook) as (bob, alice, here, there):
        bob.board.relays.leads_to = lambda line, name: None
        x = torch.ones(2).send(bob)
        with pytest.raises(WorkerLost) as lost:
            x.move(alice)
        text = "--dial`); through its caller: there is no tunnel: this program does not introduce"
        assert text in str(lost.value)
        del x


def test_nobody_answers_about_a_tunnel(hook: sy.TorchHook) -> None:
    with apart(hook) as (bob, alice, here, there):
        (guest,) = here.reception.guests.values()
        bob.board.relays.said = lambda line, control: None
        tunnel = TunnelTo(here.board, guest.line, "alice")
        with pytest.raises(ConnectionAbortedError, match="nobody answered"):
            tunnel.dial(0.05)
        guest.line.ended, before = "it is over", guest.line.ended
        with pytest.raises(ConnectionAbortedError, match="it is over"):
            tunnel.dial(5)
        guest.line.ended = before


def test_a_slow_worker_holds_its_sender_back(hook: sy.TorchHook) -> None:
    """While alice does not read, neither bob nor the client keeps more than a tunnel's room."""
    with apart(hook, heartbeat=60.0) as (bob, alice, here, there):
        move_something(bob, alice)
        x = torch.zeros(5_000_000).send(bob)
        sy.synchronize()
        before = bob.board.relays.passed_on
        moved: list[torch.Tensor] = []
        moving = threading.Thread(target=move, args=(x, alice, moved))
        with there.board.io:  # she neither reads nor writes
            moving.start()
            time.sleep(0.5)
            assert 0 < bob.board.relays.passed_on - before <= 1 << 20
            (line,) = [line for line in bob.board.lines if line.name == "alice"]
            assert line.websocket.queued <= 3 << 20
        moving.join()
        assert moved[0].get().sum() == 0
        del x, moved[:]
        sy.synchronize()
