"""Searching many workers, some of which cannot be reached."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import UnusableSetting, WorkerClosed, WorkerLost, WorkerTimeout
from syft.workers.wire.messages import Search
from tests.shells.child import make_worker


@pytest.mark.every_shell
def test_what_carries_all_words_is_found_at_each(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    carol = make_worker(hook, "carol")
    one, two = torch.ones(2).tag("#mnist", "#data"), torch.zeros(2).tag("#mnist", "#data")
    bob.hold(one, two, torch.ones(3).tag("#mnist"))
    carol.hold(torch.ones(4).tag("#mnist", "#data"))
    grid = sy.PrivateGridNetwork(alice, bob, carol)
    found = grid.search("#mnist", "#data")
    shapes = {name: [tuple(pointer.shape) for pointer in some] for name, some in found.items()}
    assert shapes == {"bob": [(2,), (2,)], "carol": [(4,)]}
    assert all(pointer.location.id == name for name, some in found.items() for pointer in some)
    assert grid.search("#cifar") == {} and grid.unreachable == {}
    del found
    for worker in (bob, carol):
        worker.clear_objects()


def test_all_are_asked_before_one_is_waited_for(hook: sy.TorchHook) -> None:
    workers: list[Any] = [sy.VirtualWorker(hook, id=id, pipelined=True) for id in "abc"]
    with hook.record() as log:
        grid = sy.PrivateGridNetwork(*workers)
        grid.search("#mnist")
    order = [(entry.sender, type(entry.message) is Search) for entry in log]
    assert [asked for sender, asked in order if sender == "me"] == [True] * 3


def test_a_worker_that_is_closed_is_left_out_and_named(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    alice.hold(torch.ones(2).tag("#mnist"))
    grid = sy.PrivateGridNetwork(bob, alice)
    bob.close()
    with pytest.warns(UserWarning, match="Left out of the search: Worker 'bob' is closed") as told:
        found = grid.search("#mnist")
    assert told[0].filename == __file__
    assert list(found) == ["alice"]
    assert list(grid.unreachable) == ["bob"] and type(grid.unreachable["bob"]) is WorkerClosed
    grid.workers.remove(bob)
    assert list(grid.search("#mnist")) == ["alice"] and grid.unreachable == {}
    del found
    alice.clear_objects()


def test_a_worker_behind_a_socket_that_was_stopped_is_left_out(
    hook: sy.TorchHook, alice: sy.VirtualWorker
) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        server.hold(torch.zeros(3).tag("#mnist"))
        dan = sy.connect(str(server.address))
        grid = sy.PrivateGridNetwork(alice, dan)
        assert [tuple(found.shape) for found in grid.search("#mnist")["dan"]] == [(3,)]
    with dan.within(30), pytest.warns(UserWarning, match="Left out of the search: .*'dan'"):
        assert grid.search("#mnist") == {}
    assert type(grid.unreachable["dan"]) is WorkerLost
    dan.close()


def test_a_worker_that_does_not_answer_is_left_out(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*request: Any) -> Any:
        def answer() -> Any:
            raise WorkerTimeout("bob", 5.0, "it is busy")

        return answer

    silent = SimpleNamespace(ask_later=late)
    connection = sy.VirtualWorker.connection
    monkeypatch.setattr(
        sy.VirtualWorker, "connection", lambda one: silent if one is bob else connection(one)
    )
    with pytest.warns(UserWarning, match="Left out of the search: .*bob"):
        assert sy.PrivateGridNetwork(bob, alice).search("#mnist") == {}


def test_other_errors_are_raised_when_all_have_answered(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = sy.PrivateGridNetwork(alice, bob)
    monkeypatch.setattr(sy.VirtualWorker, "connection", wrong_for(alice))
    with pytest.raises(ValueError, match="wrong at alice"):
        grid.search("#mnist")


def wrong_for(wrong: sy.VirtualWorker) -> Any:
    connection = sy.VirtualWorker.connection

    def connected(worker: sy.VirtualWorker) -> Any:
        if worker is wrong:
            raise ValueError(f"wrong at {worker.id}")
        return connection(worker)

    return connected


def test_it_holds_workers(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    assert repr(sy.PrivateGridNetwork(bob, alice)) == "<PrivateGridNetwork of bob, alice>"
    assert repr(sy.PrivateGridNetwork()) == "<PrivateGridNetwork of nobody>"
    with pytest.raises(UnusableSetting, match="workers must be workers, got a str"):
        sy.PrivateGridNetwork("bob")
