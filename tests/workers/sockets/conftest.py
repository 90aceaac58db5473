"""A worker that serves in this process, and the same as a program sees it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import syft as sy


@pytest.fixture
def server(hook: sy.TorchHook) -> Iterator[sy.WebsocketServerWorker]:
    """A worker behind a socket, which allows plans."""
    with sy.WebsocketServerWorker(hook, port=0, id="dan", allow_plans=True) as server:
        yield server


@pytest.fixture
def dan(hook: sy.TorchHook, server: sy.WebsocketServerWorker) -> Iterator[sy.WebsocketClientWorker]:
    """A connection to it."""
    worker = sy.connect(str(server.address))
    yield worker
    worker.close()


@pytest.fixture(autouse=True)
def this_machine_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers here may connect to all of this machine, as their owner would have to say:
    these tests are about the lines between them.  `test_where_they_dial.py` is about the rules."""
    told = sy.WebsocketServerWorker.__init__.__kwdefaults__
    monkeypatch.setitem(told, "dial", ("127.0.0.0/8", "::1/128", "/"))
