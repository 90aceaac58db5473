"""An optimizer for each worker."""

from __future__ import annotations

import pytest
import torch
from torch import nn, optim

import syft as sy
from syft.exceptions import UnknownWorker


def test_each_worker_has_averages_of_its_own(hook: sy.TorchHook) -> None:
    bob, alice = (sy.VirtualWorker(hook, id=name) for name in ("bob", "alice"))
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    twin = nn.Linear(2, 1)
    twin.load_state_dict(model.state_dict())
    adam = optim.Adam([{"params": [model.weight], "lr": 0.1}, {"params": [model.bias]}], lr=0.2)
    optims = sy.Optims([bob, "alice"], optim=adam)
    both = {
        n: optim.Adam([{"params": [twin.weight], "lr": 0.1}, {"params": [twin.bias]}], lr=0.2)
        for n in ("bob", "alice")
    }
    x = torch.randn(4, 2)
    for step in range(4):
        worker = (bob, alice, alice, bob)[step]
        model.send(worker)
        mine = optims.get_optim(worker)
        mine.zero_grad()
        model(x.send(worker)).square().sum().backward()
        mine.step()
        model.get()
        both[worker.id].zero_grad()
        twin(x).square().sum().backward()
        both[worker.id].step()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert optims.count() == 2 and optims.get_optim("bob").param_groups[0]["lr"] == 0.1
    with pytest.raises(UnknownWorker, match="nobody"):
        optims.get_optim("nobody")
