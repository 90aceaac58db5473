"""Protocols at workers of every shell: in this process, in child processes, behind sockets."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.exceptions import ProtocolError

pytestmark = pytest.mark.every_shell


def test_the_example(hook, alice, bob):
    @sy.protocol(first=sy.RoleWorker(), second=sy.RoleWorker())
    def foo(x, y):
        return (x.send(first) - 1).move(second).abs() + y  # noqa: F821

    foo.build(torch.ones(2), torch.ones(2))
    deployed = foo.deploy(first=alice, second=bob)
    y = torch.tensor([5.0, 6.0])
    result = deployed.run(torch.tensor([-1.0, 3.0]), y)
    assert result.location is bob and result.get().tolist() == [7, 8]
    execution = deployed.start(x=torch.zeros(2))
    deployed.submit(execution, y=y)
    assert execution.wait().outputs["second"].get().tolist() == [6, 7]
    deployed.start().cancel("not wanted")


def test_split_learning(hook, alice, bob):
    torch.manual_seed(0)
    first, second = nn.Linear(4, 3), nn.Linear(3, 1)
    plain = copy.deepcopy((first, second))
    roles = [
        sy.RoleWorker(state=(net, torch.optim.SGD(net.parameters(), lr=0.1)))
        for net in (first, second)
    ]

    @sy.protocol(owner=roles[0], labels=roles[1])
    def step(x, y):
        (net1, opt1), (net2, opt2) = owner.state.read(), labels.state.read()  # noqa: F821
        opt1.zero_grad()
        opt2.zero_grad()
        hidden = torch.relu(net1(x.send(owner))).move(labels)  # noqa: F821
        loss = F.mse_loss(net2(hidden), y.send(labels))  # noqa: F821
        loss.backward()
        opt1.step()
        opt2.step()
        return loss.detach().get()

    x, y = torch.randn(8, 4), torch.randn(8, 1)
    step.build(x, y)
    deployed = step.deploy(owner=alice, labels=bob)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in plain]
    for _ in range(5):
        for each in optimizers:
            each.zero_grad()
        loss = F.mse_loss(plain[1](torch.relu(plain[0](x))), y)
        loss.backward()
        for each in optimizers:
            each.step()
        torch.testing.assert_close(deployed.run(x, y), loss.detach())


def test_recorded_calls(hook, alice, bob):
    x, a = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]).send(alice)
    with sy.record_protocol(first=alice, second=bob, x=x, a=a) as p:
        y = (x - 3).send(alice) * a
        z = (y.abs().move(bob) / len(x)).max(0)
        p.returns(y, z[0], z[1].get())
    assert (y.get().tolist(), z[0].get(), z[1].get()) == ([-6, -4], 3, 0)
    other = p.deploy(first=bob, second=alice).run(
        torch.tensor([1.0, 5.0]), torch.tensor([1.0, 2.0])
    )
    assert [each.location if hasattr(each, "child") else None for each in other] == [
        bob,
        alice,
        None,
    ]
    assert (other[0].get().tolist(), other[1].get(), other[2]) == ([-2, 4], 2, 1)
    with pytest.raises(ProtocolError, match="reads values"):
        with sy.record_protocol(first=alice, x=x):
            x.send(alice).sum().item()
