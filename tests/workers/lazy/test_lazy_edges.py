"""What seldom happens to lazy workers: full memories, other users, steps that are not kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.workers.client import batch, known_gradients, open_groups
from syft.workers.client.group import as_before


def trained(worker: Any, kind: Any, steps: int, change: Any = None, **options: Any) -> list[Any]:
    """The parameters of a model after some steps, here or at a worker."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x: Any = torch.randn(5, 3)
    if worker is not None:
        model, x = model.send(worker), x.send(worker)
    optimizer = kind(model.parameters(), **options)
    for step in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        if change is not None:
            change(step, optimizer)
        optimizer.step()
    found = [one.detach() for one in model.parameters()]
    return found if worker is None else [one.get() for one in found]


def same(mine: list[Any], theirs: list[Any]) -> bool:
    return all(map(torch.equal, mine, theirs))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_full_memories_forget_and_compute_the_same(
    kind: Any, hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_gradients, "_MOST_ANSWERS", 0)
    monkeypatch.setattr(known_gradients, "_MOST_PLAIN", 1)
    monkeypatch.setattr(batch, "_MOST_REPEATED", 1)
    dan = sy.VirtualWorker(hook, id="dan", lazy=True)
    sent = [torch.ones(size).send(dan) for size in (2, 3)]  # type: ignore[attr-defined]
    assert [one.shape[0] for one in sent] == [2, 3]
    assert same(trained(dan, kind, 7, lr=0.1), trained(None, kind, 7, lr=0.1))


def long_ago(step: int, optimizer: Any) -> None:
    """Adam that has taken very many steps."""
    if step == 2:
        for state in optimizer.state.values():
            state["step"].fill_(2.0**24)


def odd_counts(step: int, optimizer: Any) -> None:
    """Parameters that have taken different numbers of steps."""
    if step == 2:
        next(iter(optimizer.state.values()))["step"].add_(3)


@pytest.mark.parametrize("change", [long_ago, odd_counts])
def test_counts_that_are_not_followed_are_torchs(change: Any, hook: sy.TorchHook) -> None:
    dan = sy.VirtualWorker(hook, id="dan", lazy=True)
    mine = trained(dan, torch.optim.Adam, 6, change, lr=0.01)
    assert same(mine, trained(None, torch.optim.Adam, 6, change, lr=0.01))


def test_a_step_in_inference_mode_is_torchs(hook: sy.TorchHook) -> None:
    dan = sy.VirtualWorker(hook, id="dan", lazy=True)
    model: Any = nn.Linear(2, 1).send(dan)  # type: ignore[operator]
    before = model.weight.detach().clone().get()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.ones(1, 2).send(dan)).sum().backward()  # type: ignore[attr-defined]
    with torch.inference_mode():
        optimizer.step()
    assert torch.equal(model.weight.detach().get(), before - 0.5)


def test_what_is_held_is_sent_for_whom_it_was_asked(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    connection: Any = hook.local_worker.connection_to(bob)
    before = connection.owner.user
    with as_before(connection, "ann"):
        assert connection.owner.user == "ann"
    assert connection.owner.user == before


def test_the_end_of_the_process_sends_what_is_held(hook: sy.TorchHook) -> None:
    dan = sy.VirtualWorker(hook, id="dan", lazy=True)
    x: Any = torch.zeros(2).send(dan)  # type: ignore[attr-defined]
    with hook.record() as log:
        x.add_(1)
        assert not log.to("dan")
        open_groups._send_at_exit()
        assert len(log.to("dan")) == 1
