"""What a worker asks another one for a user: that user's token opens the way, and nothing else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import ObjectNotReady, PermissionDenied, WorkerRefused
from syft.trust.tokens import TokenBook


@contextlib.contextmanager
def two_workers(hook: sy.TorchHook, at_bob: bool) -> Iterator[tuple[Any, Any, Any]]:
    """Clients of bob and alice, and the server bob.  They speak for ben, and for ann at alice; for
    ann at bob only if ``at_bob`` says so."""
    book = TokenBook(None)
    ann, ben = (book.make(user, time.time()) for user in ("ann", "ben"))
    with (
        sy.WebsocketServerWorker(hook, port=0, id="bob", tokens=book) as here,
        sy.WebsocketServerWorker(hook, port=0, id="alice", tokens=book) as there,
    ):
        bob = sy.connect(
            str(here.address), ben, tokens={"ann": ann} if at_bob else {}, blocking=True
        )
        alice = sy.connect(str(there.address), ben, tokens={"ann": ann})
        yield bob, alice, here
        bob.close()
        alice.close()


def test_a_worker_acts_at_another_one_for_a_user_whom_the_program_proves_there(
    hook: sy.TorchHook,
) -> None:
    me: Any = hook.local_worker
    with two_workers(hook, at_bob=True) as (bob, alice, here):
        me.user = "ann"
        x = torch.arange(3.0).send(alice)
        assert x.shape == (3,) and bob.line.users == {"ben"}
        moved = x.move(bob)  # alice asks for a ticket with which bob knows ann
        assert bob.line.users == {"ben", "ann"}
        (alices,) = [guest for guest in here.reception.guests.values() if guest.root is not None]
        assert alices.said_name == "alice" and alices.users == {"ben", "ann"}
        me.user = None
        with pytest.raises(PermissionDenied):
            moved.mul_(2)  # the program speaks for ben again
        me.user = "ann"
        assert moved.mul_(2).get().tolist() == [0, 2, 4]
        me.user = None


def test_nobody_acts_for_a_user_whom_the_program_cannot_prove(hook: sy.TorchHook) -> None:
    me: Any = hook.local_worker
    with two_workers(hook, at_bob=False) as (bob, alice, here):
        me.user = "ann"
        x = torch.arange(3.0).send(alice)
        assert x.shape == (3,)
        with pytest.raises(WorkerRefused, match="its session does not speak for this user"):
            x.move(bob)
        assert bob.line.users == {"ben"} and not here.core.store.objects
        assert x.get().tolist() == [0, 1, 2], "it has stayed"
        me.user = None


def test_a_worker_that_serves_nobody_has_no_rights_of_the_program(hook: sy.TorchHook) -> None:
    """What alice asks dan while she serves somebody without a user, she asks for nobody."""
    book = TokenBook(None)
    with sy.WebsocketServerWorker(hook, port=0, id="dan", tokens=book, anonymous=True) as server:
        server.hold(torch.ones(2).tag("#x").private_tensor(["ann"]))
        dan = sy.connect(str(server.address), book.make("ann", time.time()))
        alice = sy.VirtualWorker(hook, id="alice")
        (x,) = dan.search("#x")
        assert x.copy().get().tolist() == [1, 1], "the program speaks for ann"
        mine = alice.connection_to(dan).transport.channel
        inner = x.send(alice)
        plain = torch.zeros(2).send(dan).send(alice)
        with pytest.raises(PermissionDenied):
            inner.remote_get()
        assert alice.connection_to(dan).transport.channel is not mine
        assert (plain + 1).get().get().tolist() == [1, 1], "what is public may be used"
        del inner, plain, x
        dan.close()


def test_a_question_that_was_given_up_takes_nothing_when_its_answer_comes(
    server: sy.WebsocketServerWorker, dan: sy.WebsocketClientWorker
) -> None:
    """It was written and cannot be taken back, so the worker is told that nobody waits for it."""
    promise = dan.promise()
    with pytest.raises(ObjectNotReady):
        promise.get()
    kept = torch.ones(2).send(dan, id=promise.id_at_location)
    sy.synchronize()
    with server.owning():
        assert promise.id_at_location in server.core.store.objects, "it is still there"
    assert promise.get().tolist() == [1, 1]
    del kept
