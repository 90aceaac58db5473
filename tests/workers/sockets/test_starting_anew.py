"""A worker that is started anew, a line that was given up, and machines whose clocks differ."""

from __future__ import annotations

import logging
import signal
import time
from pathlib import Path

import pytest
import torch

import syft as sy
from syft.exceptions import WorkerLost
from syft.trust.tokens import TokenBook
from syft.workers.sockets import guests, steady_clock
from tests.node.started import StartedWorker


def test_after_a_restart_connect_returns_a_worker_that_lives(
    hook: sy.TorchHook, tmp_path: Path
) -> None:
    with StartedWorker(tmp_path) as first:
        before = sy.connect(first.address)
        x = torch.ones(2).send(before)
        first.stop(signal.SIGKILL)
        with pytest.raises(ConnectionRefusedError, match="bob"):
            sy.connect(first.address)
        port = first.address.rpartition(":")[2]
    with StartedWorker(tmp_path, "--port", port) as second:
        after = sy.connect(second.address)
        assert after is not before and (torch.ones(2).send(after) + 1).get().tolist() == [2, 2]
        assert sy.connect(second.address) is after
        with pytest.raises(sy.exceptions.SyftError):
            x.get()
        after.close()


def test_a_program_that_waits_is_told_that_the_worker_has_started_anew(
    hook: sy.TorchHook, tmp_path: Path
) -> None:
    with StartedWorker(tmp_path) as first:
        bob = sy.connect(first.address)
        x = torch.ones(2).send(bob)
        first.stop(signal.SIGKILL)
        port = first.address.rpartition(":")[2]
    with StartedWorker(tmp_path, "--port", port):
        with pytest.raises(WorkerLost, match="the worker has started anew"):
            x.get()
        bob.close()


def test_a_program_is_told_that_its_line_was_given_up(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan", lease=0.1) as server:
        dan = sy.connect(str(server.address))
        x = torch.ones(2).send(dan)
        (guest,) = server.reception.guests.values()
        with server.owning():
            server.board.drop(guest.line, "a test")
            guest.line.broken_since = time.monotonic() - 1
            server.reception.look(time.monotonic())
        with pytest.raises(WorkerLost, match="the worker has given the line up"):
            x.get()
        dan.close()


def test_a_token_may_say_how_long_its_holder_may_be_gone(hook: sy.TorchHook) -> None:
    book = TokenBook(None)
    token = book.make("ann", time.time(), lease=3600)
    with sy.WebsocketServerWorker(hook, port=0, id="dan", lease=0.1, tokens=book) as server:
        dan = sy.connect(str(server.address), token)
        assert dan.welcome.lease == 3600
        x = torch.ones(2).send(dan)
        (guest,) = server.reception.guests.values()
        with server.owning():
            server.board.drop(guest.line, "a test")
            guest.line.broken_since = time.monotonic() - 3000
            server.reception.look(time.monotonic())
        assert x.get().tolist() == [1, 1]
        dan.close()
    with pytest.raises(sy.exceptions.UnusableSetting, match="30 days"):
        book.make("ann", time.time(), lease=0)


@pytest.mark.parametrize("seconds", [-7 * 86_400, -90, 90, 7 * 86_400])
def test_a_ticket_holds_whatever_the_clocks_show(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Two workers whose clocks are ahead of that of the program which introduces them."""
    monkeypatch.setattr(guests, "steady_time", lambda: steady_clock.steady_time() + seconds)
    with (
        sy.WebsocketServerWorker(hook, port=0, id="dan") as one,
        sy.WebsocketServerWorker(hook, port=0, id="eve") as two,
    ):
        dan, eve = sy.connect(str(one.address)), sy.connect(str(two.address))
        assert (torch.ones(2).send(dan).move(eve) + 1).get().tolist() == [2, 2]
        dan.close()
        eve.close()


def test_a_ticket_of_another_time_is_refused(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The clock counts: a minute after the greeting passes while no ticket is used."""
    caplog.set_level(logging.INFO)
    with (
        sy.WebsocketServerWorker(hook, port=0, id="dan") as one,
        sy.WebsocketServerWorker(hook, port=0, id="eve", heartbeat=0.1) as two,
    ):
        dan, eve = sy.connect(str(one.address)), sy.connect(str(two.address))
        x = torch.ones(2).send(dan)
        later = guests.TICKET_SECONDS + 1
        monkeypatch.setattr(guests, "steady_time", lambda: steady_clock.steady_time() + later)
        with pytest.raises(sy.exceptions.SyftError, match="has no connection to it"):
            x.move(eve).get()
        assert "expired" in caplog.text, "its owner is told why"
        dan.close()
        eve.close()
