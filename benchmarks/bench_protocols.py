"""What a protocol costs: deployed and run, beside plans and moves by hand, at each kind of worker.

By hand, the caller sends a plan to each worker beforehand, calls it, and moves what it returns on
to the next worker.  A run of the protocol is one message to each role instead.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

import syft as sy
from benchmarks.memory import resident
from benchmarks.recording import Amount, Ratio
from benchmarks.server_process import ServerProcess

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any
Places = Callable[[str, Sequence[str]], list[Any]]

HOPS = ("first", "second", "third")


@pytest.fixture
def places(hook: sy.TorchHook) -> Iterator[Places]:
    """Workers of a kind by their names: ``places(kind, names)``."""
    servers: list[ServerProcess] = []
    clients: list[Any] = []

    def places(kind: str, names: Sequence[str]) -> list[Any]:
        if kind in ("immediate", "queued"):
            return [sy.VirtualWorker(hook, id=name, pipelined=kind == "queued") for name in names]
        servers.extend(ServerProcess(name, kind) for name in names)
        clients.extend(server.client() for server in servers[-len(names) :])
        return clients[-len(names) :]

    yield places
    for client in clients:
        client.close()
    for server in servers:
        server.close()


def three_hops() -> sy.Protocol:
    """A protocol of three roles, each of which computes and sends on."""

    @sy.protocol(**{name: sy.RoleWorker() for name in HOPS})
    def hops(x: Tensor, first: Any, second: Any, third: Any) -> Tensor:
        y = (x.send(first) * 2 + 1).abs()
        z = (y.move(second) * 3 - 1).relu()
        return (z.move(third) + 2).sqrt()

    hops.build(torch.ones(4))
    return hops


def by_hand(workers: Sequence[Any]) -> Callable[[Tensor], Tensor]:
    """The same with a plan at each worker, and moves."""
    functions = (
        lambda x: (x * 2 + 1).abs(),
        lambda y: (y * 3 - 1).relu(),
        lambda z: (z + 2).sqrt(),
    )
    plans = [sy.func2plan(args_shape=[(4,)])(function) for function in functions]
    there = [plan.send(worker) for plan, worker in zip(plans, workers, strict=True)]

    def run(x: Tensor) -> Tensor:
        value = there[0](x.send(workers[0]))
        for plan, worker in zip(there[1:], workers[1:], strict=True):
            value = plan(value.move(worker))
        return value.get()

    return run


@pytest.mark.parametrize(
    ("kind", "at_most"), [("immediate", 0.9), ("queued", 0.6), ("tcp", 0.6), ("unix", 0.6)]
)
def bench_three_hops(ratio: Ratio, places: Places, kind: str, at_most: float) -> None:
    """A run whose result is fetched, against the same by hand."""
    workers = places(kind, HOPS)
    there: dict[str, Any] = dict(zip(HOPS, workers, strict=True))
    deployed = three_hops().deploy(**there)
    hand, x = by_hand(workers), torch.ones(4)
    assert torch.equal(deployed.run(x).get(), hand(x))
    ratio(
        f"three hops as a protocol / by hand, {kind}",
        subject=lambda: deployed.run(x).get(),
        floor=lambda: hand(x),
        at_most=at_most,
        earlier="-",
        seconds=4,
    )


class Waiting:
    """A deployment with so many executions that wait for their second input."""

    def __init__(self, hook: sy.TorchHook, count: int) -> None:
        self.count = count
        state = torch.nn.Linear(4, 1)

        @sy.protocol(alice=sy.RoleWorker(state=(state,)), bob=sy.RoleWorker())
        def writing(x: Tensor, y: Tensor, alice: Any, bob: Any) -> Tensor:
            (net,) = alice.state.read()
            total = net(x.send(alice)).add_(1)
            return total.move(bob) + y.send(bob)

        writing.build(torch.ones(4), torch.ones(1))
        self.alice = sy.VirtualWorker(hook, id=f"alice-{count}")
        self.bob = sy.VirtualWorker(hook, id=f"bob-{count}")
        self.deployed = writing.deploy(alice=self.alice, bob=self.bob)
        self.parked = [self.deployed.start(x=torch.ones(4)) for _ in range(count)]

    def start(self) -> None:
        """Start one more, and end it."""
        self.deployed.start(x=torch.ones(4)).cancel()

    def whole(self) -> None:
        """Run one from beginning to end beside those that wait."""
        self.deployed.run(torch.ones(4), torch.ones(1))


def bench_start_beside_waiting(ratio: Ratio, hook: sy.TorchHook) -> None:
    """An execution beside a thousand that miss an input, against one beside none."""
    many, none = Waiting(hook, 1000), Waiting(hook, 0)
    ratio(
        "an execution beside 1,000 that wait / beside none",
        subject=many.whole,
        floor=none.whole,
        at_most=1.3,
        earlier="-",
        seconds=4,
    )
    for execution in many.parked:
        execution.cancel()


def all_to_all(count: int) -> sy.Protocol:
    """A protocol in which each role sends a value to every other one."""
    roles = [sy.RoleWorker(f"role{place}") for place in range(count)]

    @sy.protocol(**{str(role.name): role for role in roles})
    def everybody(x: Tensor) -> list[Tensor]:
        values = [x.send(role) + place for place, role in enumerate(roles)]
        totals = []
        for place, role in enumerate(roles):
            total = values[place]
            for other, value in enumerate(values):
                if other != place:
                    total = total + value.move(role)
            totals.append(total)
        return totals

    return everybody


def bench_fifty_roles(amount: Amount, hook: sy.TorchHook) -> None:
    """Fifty roles with 2,450 sends: recorded, deployed, run the first time and again."""
    x = torch.ones(2)
    workers: dict[str, Any] = {
        f"role{place}": sy.VirtualWorker(hook, id=f"w{place}", pipelined=False)
        for place in range(50)
    }
    everybody = all_to_all(50)
    began = time.perf_counter()
    everybody.build(x)
    recorded = time.perf_counter()
    deployed = everybody.deploy(**workers)
    stored = time.perf_counter()
    first = deployed.run(x)
    ran = time.perf_counter()
    assert first[0].get().tolist() == [1225 + 50.0] * 2
    again = []
    for _ in range(5):
        start = time.perf_counter()
        deployed.run(x)
        again.append(time.perf_counter() - start)
    amount("50 roles, 2,450 sends: record", recorded - began, at_most=1, earlier="-", unit="s")
    amount("50 roles, 2,450 sends: deploy", stored - recorded, at_most=0.2, earlier="-", unit="s")
    amount("50 roles, 2,450 sends: first run", ran - stored, at_most=1, earlier="-", unit="s")
    amount("50 roles, 2,450 sends: run", sorted(again)[2], at_most=0.25, earlier="-", unit="s")


def split_learning(features: int) -> tuple[sy.Protocol, list[torch.nn.Sequential]]:
    """A training step over two owners, each with a network of two layers and its optimizer."""
    nets = [
        torch.nn.Sequential(
            torch.nn.Linear(features, features), torch.nn.ReLU(), torch.nn.Linear(features, out)
        )
        for out in (features, 1)
    ]
    states = [(net, torch.optim.SGD(net.parameters(), lr=0.01)) for net in nets]

    @sy.protocol(one=sy.RoleWorker(state=states[0]), two=sy.RoleWorker(state=states[1]))
    def step(x: Tensor, y: Tensor, one: Any, two: Any) -> Tensor:
        (net1, opt1), (net2, opt2) = one.state.read(), two.state.read()
        opt1.zero_grad()
        opt2.zero_grad()
        hidden: Tensor = torch.relu(net1(x.send(one)))
        loss = ((net2(hidden.move(two)) - y.send(two)) ** 2).mean()
        loss.backward()
        opt1.step()
        opt2.step()
        return loss.detach()

    return step, nets


@pytest.mark.parametrize("features", [64, 256])
def bench_split_learning(ratio: Ratio, hook: sy.TorchHook, features: int) -> None:
    """A step of split learning against the same step here, with the same two networks."""
    x, y = torch.randn(64, features), torch.randn(64, 1)
    step, nets = split_learning(features)
    step.build(x, y)
    workers: dict[str, Any] = {name: sy.VirtualWorker(hook, id=name) for name in ("one", "two")}
    deployed = step.deploy(**workers)
    parameters = [parameter for net in nets for parameter in net.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01)

    def local() -> Tensor:
        optimizer.zero_grad()
        loss = ((nets[1](torch.relu(nets[0](x))) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    assert torch.allclose(deployed.run(x, y).get(), local())
    ratio(
        f"a step of split learning / here, 64 rows of {features}",
        subject=lambda: deployed.run(x, y),
        floor=local,
        at_most=2,
        earlier="-",
        seconds=4,
    )


def bench_what_executions_leave(amount: Amount, hook: sy.TorchHook) -> None:
    """Ten thousand executions that have ended: what is left at the workers, and in memory."""
    workers = [sy.VirtualWorker(hook, id=name) for name in HOPS]
    there: dict[str, Any] = dict(zip(HOPS, workers, strict=True))
    deployed = three_hops().deploy(**there)
    x = torch.ones(4)
    for _ in range(1000):
        deployed.run(x).get()
    gc.collect()
    before, objects = resident(), sum(worker.objects_count() for worker in workers)
    for _ in range(10_000):
        deployed.run(x).get()
    gc.collect()
    grown = max(0, resident() - before) / 2**20
    left = sum(worker.objects_count() for worker in workers) - objects
    amount("10,000 executions: memory left", grown, at_most=5, earlier="-", unit="MB")
    amount("10,000 executions: objects left", left, at_most=0, earlier="-")
