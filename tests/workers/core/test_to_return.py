"""Gradients that came for other workers leave when the request that brought them is done."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import syft as sy
from syft.workers.labels.crossings import Follower
from tests.chain.refusal import refusal


def test_torch_may_bring_a_gradient_on_a_thread_of_a_device(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the thread that serves the backward pass waits for it, inside the monitor."""
    here, threads = Follower.__call__, []

    def on_another_thread(hook: Follower, gradient: torch.Tensor) -> None:
        thread = threading.Thread(target=here, args=(hook, gradient), daemon=True)
        thread.start()
        thread.join(20)
        threads.append(thread.is_alive())

    monkeypatch.setattr(Follower, "__call__", on_another_thread)
    a = torch.tensor([1.0, 2.0], requires_grad=True).send(bob)
    b = (a * 2).move(alice, requires_grad=True)
    (b * b).sum().backward()
    assert a.grad.get().tolist() == [8, 16]
    assert threads == [False]


def test_what_came_before_a_pass_failed_is_sent(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    """As torch leaves the gradients that came before in their leaves."""
    a = torch.tensor([1.0, 2.0], requires_grad=True).send(bob)
    b = (a * 2).move(alice, requires_grad=True)
    with pytest.raises(RuntimeError), alice.group():
        (b * b).sum().backward()
        torch.linalg.cholesky(b.detach().reshape(1, 2).T @ b.detach().reshape(1, 2) - 100)
    assert a.grad.get().tolist() == [8, 16]
    assert alice.core.to_return == []


def test_a_gradient_that_is_refused_is_told(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(2, requires_grad=True).send(bob)
    moved = (x * 2).move(alice)

    def put(*about: Any, **more: Any) -> int:
        raise sy.exceptions.LimitExceeded("worker 'bob'", "MAX_OBJECTS", 1, 2)

    monkeypatch.setattr(type(alice.connection_to(bob)), "put", put)
    assert refusal(lambda: (moved * 3).sum().backward()).startswith("LimitExceeded")
    monkeypatch.undo()
    (moved * 3).sum().backward()
    assert x.grad.tolist() == [6, 6]


@pytest.mark.parametrize("raises", [False, True])
def test_a_gradient_that_is_refused_keeps_none_of_the_others(
    bob: sy.VirtualWorker, raises: bool
) -> None:
    sent: list[str] = []

    def refuses() -> None:
        raise ValueError("refused")

    bob.core.to_return = [refuses, lambda: sent.append("alice")]
    if raises:
        with pytest.raises(ValueError, match="refused"):
            bob.core._return_gradients()
    else:
        bob.core._return_gradients(raises=False)
    assert sent == ["alice"] and bob.core.to_return == []
