"""Callers who say that they come back: what they claim is compared, and can be any text."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace

import pytest

import syft as sy
from examples.clients.minimal_client import Client, Refused
from syft.serde.limits import Limits
from syft.workers.sockets import guests
from syft.workers.sockets.guests import NotWelcome
from syft.workers.sockets.line import Line
from syft.workers.sockets.line_messages import Resume


@pytest.mark.parametrize("secret", ["", "x" * 43, "é" * 43, "\0", "\U0001f600"])
@pytest.mark.parametrize("knows_the_line", [False, True])
def test_a_wrong_secret_is_refused(
    hook: sy.TorchHook,
    secret: str,
    knows_the_line: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(guests, "STRANGERS", logging.getLogger("of this test"))  # it skips none
    with sy.WebsocketServerWorker(hook, port=0, id="bob") as bob:
        with Client(str(bob.address)) as client:
            line = client.welcome["line"] if knows_the_line else "x"
            resume = {"line": line, "secret": secret, "received": 0}
            greet = Client._greet
            with monkeypatch.context() as patch:
                patch.setattr(Client, "_greet", lambda self, _: greet(self, {"resume": resume}))
                with pytest.raises(Refused) as refusal:
                    Client(str(bob.address))
            assert refusal.value.code == "unknown line"
            assert client.search("#nothing") == [], "the worker serves on, and the line is whole"
    warned = [one for one in caplog.records if "refused a caller" in one.getMessage()]
    assert bool(warned) == knows_the_line, "who comes back late is no warning to the owner"


def test_a_line_that_was_ended_is_not_gone_on_with(hook: sy.TorchHook) -> None:
    """What its caller has at the worker is freed a moment later."""
    with sy.WebsocketServerWorker(hook, port=0, id="bob") as bob:
        at_bob = sy.WebsocketClientWorker(hook, port=bob.port)
        with bob.owning():
            (guest,) = bob.reception.guests.values()
            guest.line.end("a rule was broken")
            with pytest.raises(NotWelcome, match="a rule was broken") as refusal:
                bob.reception._known(Resume(guest.line.id, guest.line.secret, 0))
            assert refusal.value.code == "unknown line"
        at_bob.close()


def test_a_lease_begins_when_the_connection_breaks() -> None:
    """Whoever waits counts from the last sign of life, and waits a heartbeat at least; the lease of
    what a caller has made does not."""
    for silent, wait in ((0.5, 5.5), (100.0, 2.0)):
        line = Line("bob", Limits(), odd=True)
        line.heartbeat = 2.0
        now = time.monotonic()
        heard = SimpleNamespace(heard=now - silent, abandon=lambda: None, put=print)
        line.attach(heard, 0)  # type: ignore[arg-type]
        assert not line.is_awaited
        line.detach()
        assert line.broken_since is not None and 0 <= line.broken_since - now < 1
        assert line.is_awaited and 0 <= line.awaited_until - now - wait < 1
        line.awaited_until = now
        assert not line.is_awaited
