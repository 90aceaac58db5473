"""Threads that use one session: each operation is recorded whole, or not yet."""

from __future__ import annotations

import threading

import pytest
import torch

import syft as sy
from syft.tensors.shared.sessions import session_among
from syft.tensors.shared.shared_values import get_shared, share_values
from tests.tensors.shared.local_parties import local_session

X = torch.tensor([[1, -2], [3, 4]])

OPERATIONS = {
    "what each share goes through": lambda x: x + x,
    "a product": lambda x: x @ x,
    "a product with a public factor": lambda x: x @ X,
    "a comparison": lambda x: (x > 0) * 1,
    "a positive part": lambda x: x.relu(),
    "public integers": lambda x: torch.cat([x, X]),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_another_thread_cannot_send_an_operation_half_recorded(name, monkeypatch):
    function = OPERATIONS[name]
    session = local_session()
    shared = share_values(X, session)
    interruptions = []

    def interrupted(record):
        def run(*args):
            thread = threading.Thread(target=session.flush)
            thread.start()
            thread.join(0.05)
            interruptions.append(thread)
            return record(*args)

        return run

    with monkeypatch.context() as patch:
        patch.setattr(session, "record", interrupted(session.record))
        result = function(shared)
    for thread in interruptions:
        thread.join()
    assert interruptions
    assert torch.equal(get_shared([result])[0], function(X))


def test_threads_that_compute_and_fetch_at_once():
    session = local_session()
    weight = share_values(X, session)
    found = {}

    def work(seed):
        own = torch.full((3, 2), seed)
        for _ in range(5):
            (found[seed],) = get_shared([(share_values(own, session) @ weight).relu() + own])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        own = torch.full((3, 2), seed)
        assert torch.equal(found[seed], (own @ X).relu() + own)


def test_the_stock_is_counted_before_or_after_a_rehearsal(hook, alice, bob):
    """In one there is none, and nobody who could be asked."""
    shared = X.share(alice, bob)
    sy.prepare(torch.relu, shared, n=1)
    counted = []
    thread = threading.Thread(target=lambda: counted.append(sy.stock().runs))

    def interrupted(x):
        if not thread.ident:
            thread.start()
            thread.join(0.05)
        return x.relu()

    sy.cost(interrupted, shared)
    thread.join()
    assert counted == [1]


def test_threads_open_one_session(hook, alice, bob):
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(session_among(hook.local_worker, (alice, bob)))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(map(id, found))) == 1
