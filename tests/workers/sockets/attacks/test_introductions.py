"""A worker asks a program for tickets to others: it gets those that it was told to deal with.

Whoever has a ticket acts with the rights of the program that gave it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import UnknownWorker
from syft.serde.frame import Frame
from syft.workers.sockets.line_messages import Introduction
from syft.workers.sockets.named_workers import named_workers
from syft.workers.wire.messages import Put, Value, encode

NAMES = ("bob", "alice", "carol", "dave")


@pytest.fixture
def servers(hook: sy.TorchHook) -> Iterator[dict[str, sy.WebsocketServerWorker]]:
    """Workers that serve, by their names."""
    servers = {name: sy.WebsocketServerWorker(hook, port=0, id=name) for name in NAMES}
    for server in servers.values():
        server.__enter__()
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture
def workers(
    hook: sy.TorchHook, servers: dict[str, sy.WebsocketServerWorker]
) -> Iterator[dict[str, sy.WebsocketClientWorker]]:
    """The same, as a program sees them."""
    workers = {
        name: sy.WebsocketClientWorker(hook, port=server.port) for name, server in servers.items()
    }
    yield workers
    for worker in workers.values():
        worker.close()


def asked(
    server: sy.WebsocketServerWorker, name: str, user: str | None = None, to: str | None = None
) -> Introduction:
    """What a worker is told that asks for another one while nobody has asked it for anything."""
    with server.owning():
        (guest,) = [one for one in server.reception.guests.values() if one.root is None]
        return server.introduction(guest, name, user, to)


def test_nobody_is_introduced_unasked(servers: Any, workers: Any) -> None:
    x = torch.ones(2).send(workers["alice"])
    told = asked(servers["bob"], "alice")
    assert told.unknown and told.ticket is None and told.address is None and told.others == []
    assert asked(servers["bob"], "nobody") == Introduction(
        told.number + 1, "nobody", unknown=True
    ), "which other workers the program has is none of its business either"
    assert x.get().tolist() == [1, 1]


def test_those_are_introduced_who_have_to_do_with_each_other(servers: Any, workers: Any) -> None:
    x = torch.ones(2).send(workers["bob"]).move(workers["alice"])
    assert x.get().tolist() == [1, 1]
    for one, other in (("bob", "alice"), ("alice", "bob")):
        told = asked(servers[one], other)
        assert told.ticket and told.address == str(servers[other].address) and not told.unknown
        assert asked(servers[one], "carol").others == [other]
    assert asked(servers["carol"], "alice").unknown


def test_a_ticket_is_for_no_user_who_did_not_ask(servers: Any, workers: Any) -> None:
    torch.ones(2).send(workers["bob"]).move(workers["alice"]).get()
    workers["alice"].tokens = {"ann": "her token"}
    assert asked(servers["bob"], "alice", user="ann").unknown


def test_a_pointer_that_is_handed_on_may_be_used(servers: Any, workers: Any) -> None:
    """The program names dave to bob alone; bob has a pointer to alice, and says so."""
    bob, alice, dave = workers["bob"], workers["alice"], workers["dave"]
    outer = torch.ones(2).send(alice).send(bob)
    assert asked(servers["dave"], "alice").unknown
    outer = outer.move(dave)
    assert (outer + 1).get().get().tolist() == [2, 2]
    assert asked(servers["dave"], "alice").ticket
    assert asked(servers["carol"], "alice").unknown


def test_a_pointer_that_is_fetched_may_be_used(servers: Any, workers: Any) -> None:
    """Carol fetches from dave a pointer that leads to alice."""
    carol, alice, dave = workers["carol"], workers["alice"], workers["dave"]
    chain = torch.ones(2).send(alice).send(dave).send(carol)
    assert asked(servers["carol"], "alice").unknown
    chain.remote_get()
    assert (chain + 1).get().get().tolist() == [2, 2]
    assert asked(servers["carol"], "alice").ticket


def test_nobody_vouches_for_those_it_does_not_know(servers: Any, workers: Any) -> None:
    torch.ones(2).send(workers["bob"]).move(workers["dave"]).get()
    assert asked(servers["bob"], "alice", to="dave").unknown
    assert asked(servers["dave"], "alice").unknown
    torch.ones(2).send(workers["bob"]).move(workers["alice"]).get()
    assert asked(servers["bob"], "alice", to="carol").unknown
    assert asked(servers["carol"], "alice").unknown


def test_a_worker_of_another_name_is_another_worker(
    hook: sy.TorchHook, servers: Any, workers: Any
) -> None:
    torch.ones(2).send(workers["bob"]).move(workers["alice"]).get()
    workers["alice"].close()
    workers["alice"] = sy.WebsocketClientWorker(hook, port=servers["carol"].port, id="alice")
    assert asked(servers["bob"], "alice").unknown


def test_workers_of_the_program_are_introduced_when_they_call(
    hook: sy.TorchHook, servers: Any, workers: Any
) -> None:
    here = sy.VirtualWorker(hook, id="here")
    assert asked(servers["alice"], "here").unknown
    x = torch.ones(2, requires_grad=True).send(here)
    moved = (x * 1).move(workers["alice"], requires_grad=True)
    (moved * 3).sum().backward()
    assert x.grad.get().tolist() == [3, 3]
    assert not asked(servers["alice"], "here").unknown
    del x, moved
    end = time.monotonic() + 10
    while here._objects and time.monotonic() < end:
        time.sleep(0.01)  # alice drops what leads here in her own time


def test_a_refused_introduction_is_an_unknown_worker(
    servers: Any, workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(2).send(workers["bob"])
    monkeypatch.setattr(workers["bob"], "vouch", None)
    with pytest.raises(UnknownWorker, match="alice"):
        x.move(workers["alice"]).get()
    assert x.location is workers["bob"]


@pytest.mark.parametrize("kept", [[1, 5, "alice", True, 0], [17, {"a": [1, 5, "alice", False, 1]}]])
def test_pointers_are_found_at_any_depth(kept: Any) -> None:
    assert named_workers(Frame(encode(Put(7, 5, kept)), [])) == {"alice"}
    assert named_workers(Frame(encode(Value(7, [16, kept, 5])), [])) == {"alice"}
    assert named_workers(Frame(encode(Put(7, 5, [1, 5, "alice"])), [])) == set()
