"""What it costs to work on tensors in another process, beside what the network itself costs.

Each floor is measured in the same run, in turns with its subject: as many bytes over a plain socket
to a process of its own (:mod:`benchmarks.raw_sockets`), or the same training steps here.  The other
processes have one torch thread each.
"""

from __future__ import annotations

import gc
import os
import resource
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import syft as sy
from benchmarks.bench_plans import plan_of
from benchmarks.interleaved import Action
from benchmarks.memory import FORTY_MEGABYTES
from benchmarks.raw_sockets import RawProcess
from benchmarks.recording import Amount, Ratio
from benchmarks.server_process import HEARTBEAT, ServerProcess
from benchmarks.training import Training, mlp
from syft.workers.sockets.address import Address
from syft.workers.sockets.dialling import Target

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any
Start = Callable[..., ServerProcess]

BYTES = 4 * FORTY_MEGABYTES


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a worker in a process of its own: ``start(id, kind)``."""
    started: list[ServerProcess] = []

    def start(id: str, kind: str = "tcp") -> ServerProcess:
        started.append(ServerProcess(id, kind))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def raw() -> Iterator[RawProcess]:
    """The floor's other end."""
    process = RawProcess()
    yield process
    process.close()


@pytest.fixture(params=["placed by the scheduler", "all on one core"])
def placement(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where this process runs, and those that are started meanwhile (Linux).

    A message that wakes a process on another core takes four times as long as one that does so on
    the same, and which it is, the scheduler decides anew every few seconds: that is how users have
    it.  On one core the floor is fastest, and a process finds its caches full of another's.
    """
    cores = os.sched_getaffinity(0)
    if request.param == "all on one core":
        os.sched_setaffinity(0, {max(cores)})
    yield request.param
    os.sched_setaffinity(0, cores)


def carried(worker: sy.WebsocketClientWorker) -> tuple[int, int]:
    """The bytes that the kernel has sent to a worker over TCP and received from it (Linux).

    These are all: of the frames, of what is said about the line, and of the opening handshake.
    """
    assert worker.line.websocket is not None
    sock = worker.line.websocket.stream.socket
    sent, received = struct.unpack_from(
        "<QQ", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 120
    )
    return sent, received


def bytes_of(
    action: Action, worker: sy.WebsocketClientWorker, calls: int = 1000
) -> tuple[int, int]:
    """How many bytes one call of an action sends to a worker and receives from it."""
    for _ in range(100):
        action()
    sent, received = carried(worker)
    for _ in range(calls):
        action()
    sent_now, received_now = carried(worker)
    return round((sent_now - sent) / calls), round((received_now - received) / calls)


# --------------------------------------------------------------------------------- one operation


@pytest.mark.parametrize(
    ("kind", "at_most", "earlier"), [("tcp", 4.0, "19-22"), ("unix", 3.5, "-")]
)
def bench_answered_operation(
    placement: str,
    ratio: Ratio,
    hook: sy.TorchHook,
    start: Start,
    raw: RawProcess,
    kind: str,
    at_most: float,
    earlier: str,
) -> None:
    """A command and its answer, with nearly no work in it, against as many bytes each way."""
    x: Tensor = torch.tensor([1.0, 2.0])
    counted = start("counted").client(blocking=True)
    pointer = x.send(counted)
    request, reply = bytes_of(lambda: pointer + pointer, counted)
    bob = start("bob", kind).client(blocking=True)
    pointer = x.send(bob)
    ratio(
        f"ptr + ptr, answered / a round trip of as many bytes, {kind}, {placement}",
        subject=lambda: pointer + pointer,
        floor=raw.line(request, reply, unix=kind == "unix").round_trip,
        at_most=at_most,
        earlier=earlier,
        seconds=6,
    )
    counted.close()
    bob.close()


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def bench_pipelined_operations(amount: Amount, hook: sy.TorchHook, start: Start, kind: str) -> None:
    """Commands that nobody waits for one by one; the last result is fetched, and right."""
    bob = start("bob", kind).client()
    x: Tensor = torch.tensor([1.0, 2.0])
    pointer, count, taken = x.send(bob), 4000, []
    gc.disable()
    for _ in range(15):
        began = time.perf_counter()
        total = pointer
        for _ in range(count):
            total = total + pointer
        assert torch.equal(total.get(), x * (count + 1))
        taken.append((time.perf_counter() - began) / count)
    gc.enable()
    name = f"ptr + ptr, pipelined, {kind}: the time of one (25 us are 40,000 a second)"
    amount(name, 1e6 * statistics.median(taken), at_most=25, earlier="-", unit="us")
    bob.close()


# --------------------------------------------------------------------------------------- 40 MB


def bench_push(ratio: Ratio, hook: sy.TorchHook, start: Start, raw: RawProcess) -> None:
    """40 MB to a worker, which says that it has them: 1.43 is a throughput of 0.7."""
    bob = start("bob").client(blocking=True)
    x: Tensor = torch.randn(FORTY_MEGABYTES)
    held: list[Tensor] = []

    def push() -> None:
        held[:] = [x.send(bob)]

    ratio(
        "40 MB to a worker / over a plain socket",
        subject=push,
        floor=raw.line(BYTES, 1).round_trip,
        at_most=1.43,
        earlier="50",
        seconds=6,
    )
    bob.close()


def bench_pull(ratio: Ratio, hook: sy.TorchHook, start: Start, raw: RawProcess) -> None:
    """40 MB from a worker: 1.11 is a throughput of 0.9."""
    bob = start("bob").client()
    x: Tensor = torch.randn(FORTY_MEGABYTES)
    pointer = x.send(bob)
    ratio(
        "40 MB from a worker / over a plain socket",
        subject=lambda: sy.get_all([pointer], keep=True),
        floor=raw.line(1, BYTES).round_trip,
        at_most=1.11,
        earlier="50",
        seconds=6,
    )
    bob.close()


def bench_between_servers(
    ratio: Ratio, amount: Amount, hook: sy.TorchHook, start: Start, raw: RawProcess
) -> None:
    """40 MB from one worker to another one, back and forth: they do not pass this process."""
    workers = [start(name).client(blocking=True) for name in ("alice", "bob")]
    x: Tensor = torch.randn(FORTY_MEGABYTES)
    held: list[Tensor] = [x.send(workers[0])]

    def move() -> None:
        here = workers.index(held[0].location)
        held[:] = [held[0].move(workers[1 - here])]

    ratio(
        "40 MB from server to server / over a plain socket",
        subject=move,
        floor=raw.line(BYTES, 1).round_trip,
        at_most=1.43,
        earlier="-",
        seconds=6,
    )
    before = sum(sum(carried(worker)) for worker in workers)
    move()
    passed = sum(sum(carried(worker)) for worker in workers) - before
    name = "bytes through the client meanwhile"
    amount(name, passed, at_most=1000, earlier="40,000,000", unit="B")
    assert torch.equal(held.pop().get(), x)
    for worker in workers:
        worker.close()


# ------------------------------------------------------------------------------------- training


STEPS = 1000


@pytest.mark.parametrize("blocking", [False, True], ids=["pipelined", "blocking"])
def bench_training_plan(
    ratio: Ratio, hook: sy.TorchHook, start: Start, one_thread: None, blocking: bool
) -> None:
    """A thousand steps, one message each."""
    bob = start("bob").client(blocking=blocking)
    here, training = Training(mlp()), Training(mlp())
    there = plan_of(training).send(bob)
    x, y = training.x.send(bob), training.y.send(bob)

    def remote() -> None:
        for _ in range(STEPS):
            there(x, y)
        sy.synchronize()

    def local() -> None:
        for _ in range(STEPS):
            here.step()

    name = f"1,000 steps of a training-step plan, {'blocking' if blocking else 'pipelined'} / local"
    ratio(name, subject=remote, floor=local, at_most=1.1, earlier="-", seconds=12)
    bob.close()


def bench_training_on_pointers(
    ratio: Ratio, hook: sy.TorchHook, start: Start, one_thread: None
) -> None:
    """The same step operation by operation."""
    bob = start("bob").client()
    here, there = Training(mlp()), Training(mlp(), worker=bob)  # type: ignore[arg-type]

    def remote() -> None:
        for _ in range(20):
            there.step()
        sy.synchronize()

    def local() -> None:
        for _ in range(20):
            here.step()

    ratio(
        "a training step on pointers, pipelined / local",
        subject=remote,
        floor=local,
        at_most=2.0,
        earlier="8",
        seconds=8,
    )
    bob.close()


# --------------------------------------------------------------------------------- federated rounds


BATCHES = 10


def local_update(x: Tensor, y: Tensor, *parameters: Tensor) -> list[Tensor]:
    """What a client does in a round: ten steps of gradient descent, from the common parameters."""
    own = [parameter.detach().requires_grad_() for parameter in parameters]
    for batch in range(BATCHES):
        hidden = F.relu(F.linear(x[batch], own[0], own[1]))
        loss = F.cross_entropy(F.linear(hidden, own[2], own[3]), y[batch])
        gradients = torch.autograd.grad(loss, own)
        own = [
            (parameter - 0.01 * gradient).detach().requires_grad_()
            for parameter, gradient in zip(own, gradients, strict=True)
        ]
    return [parameter.detach() for parameter in own]


def averages(updates: list[list[Tensor]]) -> list[Tensor]:
    """The mean of each parameter over the clients."""
    return [torch.stack(versions).mean(0) for versions in zip(*updates, strict=True)]


@pytest.mark.parametrize("clients", [2, 10, 100])
def bench_federated_round(
    ratio: Ratio, hook: sy.TorchHook, start: Start, one_thread: None, clients: int
) -> None:
    """Each client trains where its data is, and the parameters come home and are averaged."""
    torch.manual_seed(0)
    model, _, _ = mlp()
    parameters: list[Tensor] = [one.detach() for one in model.parameters()]
    data: list[tuple[Tensor, Tensor]] = [
        (torch.randn(BATCHES, 64, 784), torch.randint(10, (BATCHES, 64))) for _ in range(clients)
    ]
    plan = sy.func2plan()(local_update)
    plan.build(*data[0], *parameters)
    workers = [start(name).client() for name in ("alice", "bob")]
    there = [plan.send(worker) for worker in workers]  # type: ignore[arg-type]
    sites = [number % 2 for number in range(clients)]
    pointers = [
        (x.send(workers[site]), y.send(workers[site]))
        for site, (x, y) in zip(sites, data, strict=True)
    ]

    def federated() -> list[Tensor]:
        common = [sy.send_all(parameters, worker) for worker in workers]
        updates = [
            there[site](x, y, *common[site]) for site, (x, y) in zip(sites, pointers, strict=True)
        ]
        home = iter(sy.get_all([one for update in updates for one in update]))
        return averages([[next(home) for _ in parameters] for _ in updates])

    def plain() -> list[Tensor]:
        return averages([local_update(x, y, *parameters) for x, y in data])

    assert all(map(torch.allclose, federated(), plain()))
    ratio(
        f"a federated round of {clients} clients on 2 processes / a plain loop",
        subject=federated,
        floor=plain,
        at_most=1.3,
        earlier="-",
        seconds=6,
    )
    for worker in workers:
        worker.close()


# ------------------------------------------------------------------------------- idle connections


CONNECTIONS = 1000


@pytest.mark.parametrize(("kind", "at_most"), [("tcp", 10), ("tls", 60)])
def bench_idle_connections(amount: Amount, start: Start, kind: str, at_most: float) -> None:
    """What the server's process grows by, connection after connection."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit, min(most, 2 * CONNECTIONS)), most))
    server = start("bob", kind)
    target = Target(Address.parse(server.address), "me", server.fingerprint, heartbeat=HEARTBEAT)
    idle = [target.dial(None, 10)[0] for _ in range(20)]  # what the first ones need for good
    before = server.resident()
    idle += [target.dial(None, 10)[0] for _ in range(CONNECTIONS)]
    grown = server.resident() - before
    for websocket in idle:
        websocket.stream.close()
    name = f"{CONNECTIONS:,} idle connections, {'TLS' if kind == 'tls' else 'plain'}: memory"
    amount(name, grown / 1e6, at_most=at_most, earlier="-", unit="MB")
