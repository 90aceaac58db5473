"""A caller that waits is told for how long, and of others no more than that they are served."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import syft as sy
from syft.exceptions import PermissionDenied, TokenMissing, WorkerTimeout
from syft.serde.frame import Frame
from syft.trust.tokens import TokenBook
from syft.version import software
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.sockets.serving import described


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An operation, ``torch.cos``, has begun when this is set, and ends with the test."""
    begun, may_end = threading.Event(), threading.Event()
    respond = WorkerCore.respond

    def wait(core: WorkerCore, frame: Frame, peer: Peer) -> Frame | None:
        if described(frame) == "torch.Tensor.cos":
            begun.set()
            may_end.wait(20)
        return respond(core, frame, peer)

    monkeypatch.setattr(WorkerCore, "respond", wait)
    begun.end = may_end.set  # type: ignore[attr-defined]
    yield begun
    may_end.set()


@pytest.mark.parametrize(
    "who, told",
    [
        ("ann", r"it runs torch\.Tensor\.cos for user 'ann' since"),
        ("ben", r"it runs another caller's request since"),
        (None, r"it runs another caller's request since"),
    ],
)
def test_of_other_users_nothing_is_told(
    hook: sy.TorchHook, tmp_path: Path, slow: threading.Event, who: str | None, told: str
) -> None:
    book = TokenBook(tmp_path / "tokens.json")
    tokens = {user: book.make(user, time.time()) for user in ("ann", "ben")}
    with sy.WebsocketServerWorker(hook, port=0, id="dan", tokens=book, anonymous=True) as server:
        ann = sy.connect(str(server.address), id="first", token=tokens["ann"])
        token = None if who is None else tokens[who]
        other = sy.connect(str(server.address), id="second", token=token)
        y = torch.zeros(2).send(ann).cos()
        ann.connection().flush()
        assert slow.wait(20)
        with other.within(3.0), pytest.raises(WorkerTimeout, match=told):
            other.list_objects_remote()
        slow.end()  # type: ignore[attr-defined]
        assert y.get().tolist() == [1, 1]
        other.close()
        ann.close()


def test_two_callers_for_nobody_are_not_one(hook: sy.TorchHook, slow: threading.Event) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        first = sy.connect(str(server.address), id="first")
        second = sy.connect(str(server.address), id="second")
        y = torch.zeros(2).send(first).cos()
        first.connection().flush()
        assert slow.wait(20)
        with second.within(3.0), pytest.raises(WorkerTimeout, match="another caller's request"):
            second.list_objects_remote()
        slow.end()  # type: ignore[attr-defined]
        assert y.get().tolist() == [1, 1]
        second.close()
        first.close()


def test_a_user_without_a_token_is_named(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        dan = sy.connect(str(server.address))
        x = torch.ones(2).send(dan)
        with pytest.raises(TokenMissing, match=r"'dan'.* user 'ann'.* tokens=\{'ann': ") as caught:
            x.get(user="ann")
        assert isinstance(caught.value, PermissionDenied)
        assert (caught.value.worker, caught.value.user) == ("dan", "ann")
        assert x.get().tolist() == [1, 1]
        dan.close()


def test_each_end_says_what_it_runs(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        dan = sy.connect(str(server.address))
        assert (
            dan.welcome.software
            == software()
            == f"syft {sy.__version__}, torch {torch.__version__}"
        )
        dan.close()
