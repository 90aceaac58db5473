"""Backward passes over several roles, at workers: each gives what plain torch gives."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from tests.protocols.test_deployment import nothing_left

RoleWorker = sy.RoleWorker


@pytest.fixture(params=[False, True], ids=["immediate", "queued"])
def pair(request, hook):
    made = [sy.VirtualWorker(hook, id=name, pipelined=request.param) for name in ("bob", "carol")]
    yield made
    nothing_left(*made)
    for worker in made:
        worker.close()
    hook.local_worker.collect()


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("where", ["local", "carol"])
def test_gradients_may_be_cleared_at_the_end(pair, where):
    torch.manual_seed(0)
    first, second = nn.Linear(4, 3), nn.Linear(3, 1)
    plain1, plain2 = copy.deepcopy((first, second))
    bob = RoleWorker(state=(first, sgd(first)))
    other = RoleWorker(where, state=(second, sgd(second)))

    @sy.protocol(bob=bob, **{where: other})
    def step(x, y):
        (net1, opt1), (net2, opt2) = bob.state.read(), other.state.read()
        hidden = torch.relu(net1(x.send(bob))).move(other)
        loss = F.mse_loss(net2(hidden), y.send(other))
        loss.backward()
        for each in (opt1, opt2):
            each.step()
            each.zero_grad()
        return loss.detach()

    x, y = torch.randn(8, 4), torch.randn(8, 1)
    step.build(x, y)
    deployed = step.deploy(bob=pair[0], **({} if where == "local" else {where: pair[1]}))
    optimizers = sgd(plain1), sgd(plain2)
    for _ in range(3):
        expected = F.mse_loss(plain2(torch.relu(plain1(x))), y)
        expected.backward()
        for each in optimizers:
            each.step()
            each.zero_grad()
        found = deployed.run(x, y)
        torch.testing.assert_close(found if where == "local" else found.get(), expected.detach())


def test_a_pass_between_two_sends_of_a_value(pair):
    weight = torch.tensor([2.0, 3.0], requires_grad=True)

    @sy.protocol(bob=RoleWorker(state=(weight,)), carol=RoleWorker())
    def twice(x):
        (w,) = bob.state.read()  # noqa: F821
        w.grad = None
        value = w * x.send(bob)  # noqa: F821
        for factor in (1, 10):
            (value.move(carol) * factor).sum().backward(retain_graph=True)  # noqa: F821
        found = w.grad.clone()
        w.grad = None
        return found

    x = torch.tensor([1.0, 4.0])
    twice.build(x)
    deployed = twice.deploy(bob=pair[0], carol=pair[1])
    for _ in range(2):
        assert deployed.run(x).get().tolist() == [11.0, 44.0]
