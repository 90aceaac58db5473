"""Where a worker connects because a caller says that another worker is there: nowhere, unless its
owner has listed it; and whoever asked is told the same whatever the reason."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import UnusableSetting, WorkerLost
from syft.workers.sockets.address import Address
from syft.workers.sockets.dial_rules import NOT_CONNECTED, DialRules
from syft.workers.sockets.introducing import IntroducedWorker, connect
from syft.workers.sockets.line_messages import Introduction


@pytest.mark.parametrize(
    ("listed", "inside", "outside"),
    [
        ("alice.example:8777", ["wss://alice.example:8777", "wss://ALICE.example.:8777"],
         ["wss://alice.example:8778", "wss://alice.example.org:8777", "wss://xalice.example:8777"]),
        ("wss://alice.example:8777", ["wss://alice.example:8777"], ["wss://10.0.0.1:8777"]),
        ("10.0.0.0/24", ["wss://10.0.0.255:1", "wss://[::ffff:10.0.0.3]:443"],
         ["wss://10.0.1.0:1", "wss://167772161:443", "wss://0x0a000001:443", "wss://10.1:443"]),
        ("10.0.0.0/24:8777", ["wss://10.0.0.9:8777"], ["wss://10.0.0.9:22"]),
        ("[2001:db8::]/32:8777", ["wss://[2001:db8::5]:8777"], ["wss://[2001:db9::5]:8777"]),
        ("127.0.0.0/8", ["ws://127.0.0.1:5", "ws://localhost:5"],
         ["ws://0.0.0.0:5", "ws://[::1]:5", "unix:///127.0.0.1"]),
        ("/run/syft/", ["unix:///run/syft/a.sock"],
         ["unix:///run/syft.sock", "unix:///run/syft/../docker.sock"]),
        ("unix:///run/a.sock", ["unix:///run/a.sock"], ["unix:///run/a.socket"]),
    ],
)  # fmt: skip
def test_what_is_listed(listed: str, inside: list[str], outside: list[str]) -> None:
    rules = DialRules([listed])
    assert all(rules.allow(Address.parse(text)) for text in inside)
    assert not any(rules.allow(Address.parse(text)) for text in outside)
    assert not any(DialRules().allow(Address.parse(text)) for text in inside + outside)


@pytest.mark.parametrize(
    "text", ["", "alice", "alice:0", "alice:99999", "10.0.0.0/33", "10.0.0.1/24", "10.0.0.0/8:0",
             "10.0.0.0/8:x", "/run/../etc/", "http://alice:80", 5]
)  # fmt: skip
def test_what_cannot_be_listed(text: Any) -> None:
    with pytest.raises(UnusableSetting, match="--dial must be HOST:PORT"):
        DialRules([text])


def test_what_is_listed_as_a_destination_is_dialled(hook: sy.TorchHook, tmp_path: Path) -> None:
    known = {"alice": "ws://127.0.0.1:8777", "dan": "sha256:" + "0" * 64}
    with sy.WebsocketServerWorker(hook, port=0, id="bob", destinations=known, dial=()) as bob:
        assert bob.dial_rules.allow(Address.parse("ws://127.0.0.1:8777"))
        assert not bob.dial_rules.allow(Address.parse("ws://127.0.0.1:8778"))


class Listener:
    """Something on the owner's network, which counts who comes."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port, self.came = self.socket.getsockname()[1], 0
        self.thread = threading.Thread(target=self.count, daemon=True)
        self.thread.start()

    def count(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self.socket.accept()
                self.came += 1
                one.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    one = Listener()
    yield one
    one.socket.shutdown(socket.SHUT_RDWR)
    one.socket.close()


def told_of(hook: sy.TorchHook, address: str, fingerprint: str | None, dial: Any) -> str:
    """What a caller is told who says that a worker is at an address, and carries no tunnel."""
    with sy.WebsocketServerWorker(hook, port=0, id="bob", dial=dial, heartbeat=0.2) as server:
        bob = sy.connect(str(server.address), id="bob as seen")
        (guest,) = server.reception.guests.values()
        said = Introduction(1, "alice", address, fingerprint, "a ticket")
        with server.owning(), pytest.raises(WorkerLost) as lost:
            connect(server, guest, "alice", said)
        bob.close()
    return str(lost.value)


def test_what_is_not_listed_is_not_dialled(hook: sy.TorchHook, listener: Listener) -> None:
    address = f"ws://127.0.0.1:{listener.port}"
    told = told_of(hook, address, None, dial=())
    assert NOT_CONNECTED in told and listener.came == 0
    assert told_of(hook, address, None, dial=["127.0.0.0/8"]) == told
    assert listener.came == 1, "the control"


def test_all_reasons_are_told_alike(hook: sy.TorchHook, listener: Listener) -> None:
    """Nobody there, somebody else there, a silent one, another certificate, no ticket."""
    silent = socket.create_server(("127.0.0.1", 0))
    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as other:
        pin = "sha256:" + "1" * 64
        told = {
            told_of(hook, address, fingerprint, dial)
            for address, fingerprint, dial in [
                (f"ws://127.0.0.1:{port}", None, ["127.0.0.0/8"]),
                (f"ws://127.0.0.1:{listener.port}", None, ["127.0.0.0/8"]),
                (f"wss://127.0.0.1:{listener.port}", pin, ["127.0.0.0/8"]),
                (f"ws://127.0.0.1:{silent.getsockname()[1]}", None, ["127.0.0.0/8"]),
                (str(other.address), None, ["127.0.0.0/8"]),
                (str(other.address), None, ()),
                ("wss://10.255.255.1:443", None, ()),
                ("wss://no.such.host.example:443", None, ["no.such.host.example:443"]),
                ("unix:///no/such/socket", None, ["/"]),
            ]
        }
    silent.close()
    assert len(told) == 1, told
    assert not re.search(r"refused|timed out|certificate|ticket|errno", told.pop().lower())


@pytest.mark.parametrize("dial", [(), ("127.0.0.0/8",)])
def test_three_workers_move_whether_listed_or_not(hook: sy.TorchHook, dial: Any) -> None:
    """Where one may not dial another, they speak through the program that introduces them."""
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(sy.WebsocketServerWorker(hook, port=0, id=name, dial=dial))
            for name in ("ada", "bea", "cleo")
        ]
        ada, bea, cleo = (sy.connect(str(one.address)) for one in servers)
        x = torch.arange(3.0).send(ada).move(bea).move(cleo).move(ada)
        totals = sy.sum_private(x, torch.ones(3).send(bea), torch.ones(3).send(cleo))
        assert [total.get().tolist() for total in totals] == [[2, 3, 4]] * 3
        introduced = [
            worker
            for server in servers
            for guest in server.reception.guests.values()
            for worker in guest.introduced.values()
            if isinstance(worker, IntroducedWorker)
        ]
        assert introduced
        tunnelled = [str(one.known_by).startswith("sha256:") for one in introduced]
        assert tunnelled == [not dial] * len(introduced)
        del x, totals
        for worker in (ada, bea, cleo):
            worker.close()
