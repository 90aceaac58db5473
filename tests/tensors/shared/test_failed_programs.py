"""Operations on shared tensors that fail at a party: what was there before is as it was."""

from __future__ import annotations

import collections
import functools
import gc

import pytest
import torch

import syft as sy
from syft.crypto import dealing
from syft.exceptions import ObjectNotReady, SessionEnded, SharedOperationFailed, WorkerLost
from syft.tensors.shared import session_recording
from syft.tensors.shared.shared_values import shared_cell
from syft.workers.client.replies import Replies
from syft.workers.handlers import share_runs


class Failing:
    """Workers among which tensors are shared; bob fails in programs while ``on``."""

    def __init__(self, hook, pipelined, monkeypatch):
        names = "alice", "bob", "carol"
        self.workers = [sy.VirtualWorker(hook, id=name, pipelined=pipelined) for name in names]
        self.on, self.stored = False, share_runs._stored
        monkeypatch.setattr(share_runs, "_stored", self)

    def __call__(self, here, *rest):
        if self.on and here.worker == "bob":
            raise MemoryError("bob is full")
        return self.stored(here, *rest)

    def share(self, x):
        alice, bob, carol = self.workers
        return x.share(alice, bob, crypto_provider=carol)

    def fails(self, use):
        self.on = True
        with pytest.raises(SharedOperationFailed, match="MemoryError: bob is full"):
            use()
        self.on = False

    def objects(self):
        kinds = collections.Counter()
        for worker in self.workers:
            torch.ones(1).send(worker).get()
            kinds.update(str(one).split()[0] for one in worker.core.store.objects.values())
        return kinds


@pytest.fixture(params=[False, True], ids=["immediate", "queued"])
def failing(hook, request, monkeypatch):
    return Failing(hook, request.param, monkeypatch)


X, Y = torch.tensor([1, -2, 3]), torch.tensor([5, 6, 7])


def test_what_was_written_in_place_is_put_back(failing):
    x, y = failing.share(X), failing.share(Y)
    x += 10
    assert x.get().tolist() == [11, 8, 13]
    row = x[:2]
    row.mul_(y[0])
    x.copy_(x * y)
    z = x.relu()
    failing.fails(z.get)
    assert x.get().tolist() == [11, 8, 13] and y.get().tolist() == [5, 6, 7]
    for lost in (z, row):
        with pytest.raises(SharedOperationFailed, match="bob is full"):
            lost.get()
    x.copy_(x * y)
    assert x.get().tolist() == [55, 48, 91]
    del z, row, lost
    gc.collect()
    kinds = failing.objects()
    assert kinds["<SharingSession"] == 3 and kinds["<Share"] == 4, kinds


def test_what_was_overwritten_is_not_kept_for_long(failing):
    x = failing.share(X)
    for _ in range(5):
        x += 1
        x.get()
    assert failing.objects()["<Overwritten,"] == 0


def test_what_was_sent_after_a_failure_is_undone_too(failing, monkeypatch):
    monkeypatch.setattr(session_recording, "MOST_INSTRUCTIONS", 3)
    x, w = failing.share(X), failing.share(Y)
    assert x.get().tolist() == X.tolist()

    def many():
        for _ in range(10):
            x.add_(1)
            w.mul_(2)
        x.get()

    failing.fails(many)
    assert x.get().tolist() == X.tolist()
    assert (x + w).get().tolist() == (X + Y).tolist()


def test_what_was_shared_with_a_program_that_fails_is_sent_again(failing):
    x = failing.share(torch.tensor([0.5, -2.0]).fix_precision())
    module = torch.nn.Linear(2, 1)
    want = module(torch.tensor([0.5, -2.0])).detach()
    failing.workers[0].connection().flush()
    shared = module.fix_precision().share(*failing.workers[:2], crypto_provider=failing.workers[2])
    failing.fails(lambda: shared(x).get())
    assert (shared(x).decrypt() - want).abs().max() < 0.001
    shared.get()
    assert x.decrypt().tolist() == [0.5, -2.0]


def test_no_mask_serves_twice_where_a_program_fails_and_is_tried_again(failing, monkeypatch):
    """All that the parties draw, by the key and the name of the stream."""
    drawn = collections.Counter()
    made = dealing.PartyDealer.__init__

    def noted(self, cipher, name, *rest):
        drawn[id(cipher), name] += 1
        made(self, cipher, name, *rest)

    monkeypatch.setattr(dealing.PartyDealer, "__init__", noted)
    x, y = failing.share(X), failing.share(Y)
    for _ in range(3):
        failing.fails(lambda: (x * y).relu().get())
        assert (x * y).relu().get().tolist() == [5, 0, 21]
    sy.prepare(torch.relu, x, n=2)
    failing.fails(lambda: torch.relu(x).get())
    assert torch.relu(x).get().tolist() == [1, 0, 3]
    counters = {name.counter for _, name in drawn}
    assert set(drawn.values()) == {1} and len(drawn) > 30 and len(counters) == 8


def test_whatever_is_asked_first_tells_of_the_failure(failing):
    x = failing.share(X)
    x.get()
    session = shared_cell(x).session
    remote = Y.send(failing.workers[0])

    def failed(asked):
        y = x.relu()
        session.flush()
        for worker in failing.workers:
            worker.connection().flush()
        asked()
        (y + x).get()

    for asked in (
        lambda: remote.share(*failing.workers[:2], crypto_provider=failing.workers[2]),
        lambda: sy.prepare(torch.relu, x, n=1),
        sy.synchronize,
    ):
        failing.fails(functools.partial(failed, asked))
        assert x.get().tolist() == X.tolist() and session.ended is None


def test_it_ends_where_the_provider_says_that_it_has(failing, monkeypatch):
    """Its randomness was used, as far as it knows: that is no failure that can be tried again."""
    x = failing.share(X)
    x.get()
    session = shared_cell(x).session
    failing.workers[2].core.store.objects[session.lines._session].counter = 100
    with pytest.raises(SessionEnded, match="MaterialUsed"):
        x.relu().get()


def test_it_ends_where_a_party_is_gone(failing):
    x = failing.share(X)
    x.get()
    failing.on = True
    y = x.relu()
    shared_cell(x).session.flush()
    failing.workers[0].close()
    with pytest.raises((SessionEnded, WorkerLost)):
        y.get()
    with pytest.raises(SessionEnded):
        x + 1


def test_it_ends_where_a_party_cannot_go_on(failing, monkeypatch):
    x = failing.share(X)
    x.get()

    def broken(here, *_):
        if here.worker == "bob":
            here.end("MalformedMessage: somebody lied")
        raise ValueError("what follows from it")

    monkeypatch.setattr(share_runs, "_stored", broken)
    with pytest.raises(SessionEnded, match="ValueError: what follows from it"):
        x.relu().get()
    with pytest.raises(SessionEnded):
        x + 1


def test_what_is_under_way_is_asked_for_again(failing, monkeypatch):
    """A worker may say that nothing can bring an answer, before it knows who is gone."""
    x = failing.share(X)
    x.get()
    wait, left = Replies.wait_settled, [3]

    def impatient(line, pending):
        if left[0]:
            left[0] -= 1
            raise ObjectNotReady("alice")
        wait(line, pending)

    monkeypatch.setattr(Replies, "wait_settled", impatient)
    failing.fails(lambda: x.relu().get())
    assert x.get().tolist() == X.tolist() and not left[0]
    left[0] = 1000
    failing.on = True
    with pytest.raises(SessionEnded, match="bob is full"):
        x.relu().get()


def test_a_refusal_that_comes_before_its_reason(failing, monkeypatch):
    """One party has heard of a failure before the client has."""
    x = failing.share(X)
    x.get()
    session = shared_cell(x).session

    def refused(*_):
        raise SharedOperationFailed(("alice", "bob"), "party carol failed: MemoryError")

    with monkeypatch.context() as patch:
        patch.setattr(session.lines, "fetch", refused)
        with pytest.raises(SharedOperationFailed, match="carol failed"):
            x.get()
    assert x.get().tolist() == X.tolist()


def test_what_is_overwritten_goes_with_its_session(failing):
    x = failing.share(X)
    x.get()
    x += 1
    shared_cell(x).session.flush()
    del x
    gc.collect()
    for _ in range(2):
        kinds = failing.objects()
    assert not kinds["<Overwritten,"] and not kinds["<SharingSession"]
