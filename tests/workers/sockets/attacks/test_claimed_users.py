"""A user's name in a message proves nothing: whoever speaks for a user has shown a token."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import PermissionDenied
from syft.serde.frame import Frame
from syft.trust.tokens import TokenBook
from syft.workers.wire import messages
from syft.workers.wire.messages import Fetch, FetchAll, Move, Relay
from tests.workers.sockets.attacks.victim import Victim, honest_client

SECRET = [3.0, 5.0, 7.0]


@pytest.fixture
def book(tmp_path: Path) -> TokenBook:
    return TokenBook(tmp_path / "tokens.json")


@pytest.fixture
def victim(book: TokenBook) -> Iterator[Victim]:
    """A worker that holds a tensor which ann may read, and lets anybody in."""
    held = {"values": SECRET, "users": ["ann"], "tags": ["#secret"]}
    with Victim(hold=[held], tokens=str(book._path), anonymous=True) as victim:
        yield victim


def liar(me: sy.VirtualWorker, client: Any) -> Any:
    """A connection that names users without a proof, as somebody else's client may."""
    connection = me.connection_to(client)
    connection.transport.prove = lambda user: None
    return connection


def test_a_name_in_a_message_is_no_credential(
    hook: sy.TorchHook, me: sy.VirtualWorker, victim: Victim, book: TokenBook
) -> None:
    evil = sy.VirtualWorker(hook, "evil")
    with honest_client(victim, token=book.make("eve", time.time()), blocking=True) as bob:
        (found,) = bob.search("#secret")
        id = found.child.id_at_location
        results = [found + 1, found + 2]
        first, second = (result.child.id_at_location for result in results)
        connection = liar(me, bob)
        requests: list[tuple[Any, ...]] = [
            (Fetch, id),
            (Fetch, id, 0, True),
            (FetchAll, (id,)),
            (Relay, first, "evil"),
            (Move, second, "me"),
        ]
        for kind, *fields in requests:
            for user in ("ann", "eve", None):
                with pytest.raises(PermissionDenied):
                    connection.ask(kind, *fields, user=user)
        with pytest.raises(PermissionDenied):
            connection.ask(Fetch, id, 0, True, user="ann", guarded=True)
        assert evil.objects_count() == 0
        del found, results


def test_whoever_shows_a_token_may_name_its_user(
    hook: sy.TorchHook, victim: Victim, book: TokenBook
) -> None:
    tokens = {"ann": book.make("ann", time.time())}
    with honest_client(victim, tokens=tokens) as bob:
        (found,) = bob.search("#secret")
        with pytest.raises(PermissionDenied):
            found.copy().get()
        with pytest.raises(PermissionDenied):
            found.copy().get(user="eve")
        assert torch.equal(found.copy().get(user="ann"), torch.tensor(SECRET))
        del found


def test_what_serves_may_not_name_a_user_to_its_client(
    hook: sy.TorchHook, me: sy.VirtualWorker, victim: Victim, book: TokenBook
) -> None:
    """A worker that asks its client for something is nobody there, whatever was proved to it."""
    with honest_client(victim, tokens={"bea": book.make("bea", time.time())}) as bob:
        names = ["ann", "bea"]
        me.hold(*(torch.tensor(SECRET).private_tensor([name]) for name in names))
        me.connection_to(bob).transport.prove("bea")
        peer = bob.line.channels[0].peer

        def asked(id: int, user: str) -> Any:
            request = Fetch(1, id, 0, True, user)
            reply = me.core.respond(Frame(messages.encode(request), []), peer)
            assert reply is not None
            return type(messages.decode(reply.header))

        for id, name in zip(me.list_objects(), names, strict=True):
            assert asked(id, name) is messages.Failure
        me.clear_objects()
