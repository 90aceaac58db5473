"""A provider that is lost: what the parties hold is there, and what needs dealing says so."""

from __future__ import annotations

import gc

import pytest
import torch

import syft as sy
from syft.exceptions import (
    LocationMismatch,
    ProviderLost,
    SessionEnded,
    SharedOperationFailed,
    WorkerClosed,
)
from syft.tensors.shared import session_recording
from syft.tensors.shared.shared_values import shared_cell
from syft.workers.handlers import dealing_parts, share_runs
from syft.workers.handlers.party_programs import Round

X, Y = torch.tensor([1, -2, 3]), torch.tensor([5, 6, 7])
LOST = r"the provider carol is lost: get\(\) what is there, and share it again with another one"


class Workers:
    """Two parties and a provider; ``silent`` makes it deal nothing."""

    def __init__(self, hook, pipelined, monkeypatch):
        self.hook, self.silent, self.letters = hook, False, dealing_parts._letters
        self.alice, self.bob, self.carol = (
            sy.VirtualWorker(hook, id=name, pipelined=pipelined)
            for name in ("alice", "bob", "carol")
        )
        monkeypatch.setattr(dealing_parts, "_letters", self._dealt)

    def _dealt(self, *args):
        if self.silent:
            yield Round({}, frozenset([(0, 1000)]))
        yield from self.letters(*args)

    def share(self, x):
        return x.share(self.alice, self.bob, crypto_provider=self.carol)


@pytest.fixture(params=[False, True], ids=["immediate", "queued"])
def workers(hook, request, monkeypatch):
    return Workers(hook, request.param, monkeypatch)


def test_values_are_fetched_and_added_up(workers):
    x, y = workers.share(X), workers.share(Y)
    product = x * y
    product.get()
    workers.carol.close()
    assert x.get().tolist() == X.tolist() and product.get().tolist() == (X * Y).tolist()
    assert (product + x * 2 - 1)[1:].sum().get() == (X * Y + X * 2 - 1)[1:].sum()
    x += y
    assert x.get().tolist() == (X + Y).tolist()
    assert x.reveal(to=workers.bob).get().tolist() == (X + Y).tolist()


def test_what_needs_dealing_says_so_and_spoils_nothing(workers):
    x = workers.share(X)
    x.get()
    fresh = workers.share(Y)  # comes with the program that cannot run
    x += 0
    workers.carol.close()
    y = x * fresh
    for _ in range(2):
        with pytest.raises(ProviderLost, match=LOST):
            (x > 0).get()
    with pytest.raises(SharedOperationFailed, match=LOST):
        y.get()
    with pytest.raises(SharedOperationFailed, match=LOST):
        y + 1
    assert fresh.get().tolist() == Y.tolist() and x.get().tolist() == X.tolist()
    again = x.get().share(workers.alice, workers.bob)
    assert (again * again).get().tolist() == [1, 4, 9]
    session = shared_cell(x).session
    assert session.ended is None
    del y
    gc.collect()


def test_a_long_list_says_so_where_it_is_sent(workers, monkeypatch):
    monkeypatch.setattr(session_recording, "MOST_INSTRUCTIONS", 3)
    x = workers.share(X)
    x.get()
    workers.carol.close()
    y = x
    with pytest.raises(ProviderLost, match=LOST):
        for _ in range(5):
            y = y * x
    with pytest.raises(SharedOperationFailed, match=LOST):
        y.get()
    assert x.get().tolist() == X.tolist()


@pytest.mark.parametrize("closes", [True, False], ids=["says so", "is only gone"])
def test_a_program_under_way_is_undone(workers, closes):
    x, y = workers.share(X), workers.share(Y)
    x.get()
    y.get()
    session = shared_cell(x).session
    workers.silent = True
    x *= y
    x += 1
    z = x > 0
    session.flush()
    for worker in (workers.alice, workers.bob, workers.carol):
        worker.connection().flush()
    workers.hook.local_worker.network.run()
    if not closes:
        workers.carol.core.sessions.clear()  # so that it tells nobody
    workers.carol.close()
    workers.hook.local_worker.network.lose("carol", "its process has ended")
    with pytest.raises(ProviderLost, match=LOST):
        z.get()
    assert x.get().tolist() == X.tolist() and (x + y).get().tolist() == (X + Y).tolist()
    with pytest.raises(SharedOperationFailed, match=LOST):
        z.get()
    with pytest.raises(ProviderLost, match=LOST):
        (x * y).get()
    for worker in (workers.alice, workers.bob):
        assert not worker.core.sessions


def test_what_was_dealt_before_is_used(workers):
    x = workers.share(X)
    sy.prepare(torch.relu, x, n=2)
    workers.carol.close()
    for _ in range(2):
        assert torch.relu(x).get().tolist() == [1, 0, 3]
    for call in (lambda: torch.relu(x).get(), lambda: sy.prepare(torch.relu, x, n=1)):
        with pytest.raises(ProviderLost, match=LOST):
            call()
    assert x.get().tolist() == X.tolist()


def test_one_that_is_there_again_deals_for_what_is_shared_then(workers):
    x = workers.share(X)
    (x * x).get()
    workers.carol.close()
    with pytest.raises(ProviderLost, match=LOST):
        (x * x).get()
    workers.carol = sy.VirtualWorker(workers.hook, id="carol")
    again = workers.share(x.get())
    assert (again * again).get().tolist() == (X * X).tolist()
    assert sy.cost(torch.add, x, x).programs == 1  # the earlier session is known still
    with pytest.raises(LocationMismatch, match="get.. one and share it so"):
        x + again
    with pytest.raises(ProviderLost, match=LOST):
        (x * x).get()


def bob_is_full(monkeypatch):
    """Have bob fail where results are stored; returns what ends that."""
    stored = share_runs._stored

    def failing(here, *rest):
        if here.worker == "bob":
            raise MemoryError("bob is full")
        return stored(here, *rest)

    monkeypatch.setattr(share_runs, "_stored", failing)
    return lambda: monkeypatch.setattr(share_runs, "_stored", stored)


def test_another_failure_is_told_as_it_is(workers, monkeypatch):
    x = workers.share(X)
    x.get()
    workers.carol.close()
    make_room = bob_is_full(monkeypatch)
    with pytest.raises(SharedOperationFailed, match="bob is full"):
        (x + x).get()
    make_room()
    assert (x + x).get().tolist() == (2 * X).tolist()


def test_a_failure_after_dealing_is_undone_without_the_provider(workers, monkeypatch):
    """It cannot say whether the session goes on there: nobody needs it."""
    x = workers.share(X)
    x.get()
    make_room = bob_is_full(monkeypatch)
    x += 1
    y = x > 0
    shared_cell(x).session.flush()
    for worker in (workers.alice, workers.bob, workers.carol):
        worker.connection().flush()
    workers.hook.local_worker.network.run()
    workers.carol.close()
    with pytest.raises(SharedOperationFailed, match="bob is full"):
        y.get()
    make_room()
    assert x.get().tolist() == X.tolist()


def test_a_party_is_not_done_without(workers):
    x = workers.share(X)
    x.get()
    workers.carol.close()
    workers.alice.close()
    with pytest.raises((SessionEnded, WorkerClosed), match="alice"):
        sy.prepare(torch.relu, x, n=1)
    with pytest.raises((SessionEnded, WorkerClosed), match="alice"):
        (x + x).get()


def test_nor_is_one_that_deals(hook):
    alice, bob = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob"))
    x = X.share(alice, bob, crypto_provider=alice, allow_dealing_party=True)
    x.get()
    alice.close()
    with pytest.raises(WorkerClosed, match="alice"):
        sy.prepare(torch.relu, x, n=1)
    with pytest.raises(SessionEnded, match="alice"):
        (x * x).get()
