"""Workers whose operations are held back until somebody wants a value: all is as without."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from syft.exceptions import ObjectNotFound, PermissionDenied, UnsupportedOperation, WorkerClosed
from syft.workers.wire.messages import Drop, Run
from tests.shells.child import make_worker
from tests.shells.owner import inspect
from tests.workers.client.test_group import run_steps

pytestmark = pytest.mark.every_shell

Tensor = Any  # type checkers cannot know of the methods that the hook adds

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01),
}


@pytest.fixture(params=["immediate", "queued"])
def lazy(request: pytest.FixtureRequest, hook: sy.TorchHook) -> Any:
    """A lazy worker of each kind."""
    worker = make_worker(hook, "worker", pipelined=request.param == "queued")
    worker.is_lazy = True
    assert worker.connection().groups.always is not None
    return worker


class Pair:
    """A model here and the same one at a worker, each with its optimizer and its batch."""

    def __init__(self, worker: Any, make: Callable[[], nn.Module], optimizer: str) -> None:
        self.worker = worker
        torch.manual_seed(0)
        self.here, self.there = make(), make()
        self.there.load_state_dict(self.here.state_dict())
        self.x, self.y = torch.randn(5, 3), torch.randint(3, (5,))
        self.p, self.q = self.x.send(worker), self.y.send(worker)  # type: ignore[attr-defined]
        self.there.send(worker)  # type: ignore[operator]
        self.ours = OPTIMIZERS[optimizer](self.here.parameters())
        self.theirs = OPTIMIZERS[optimizer](self.there.parameters())

    def batch(self, number: int, rows: int = 5) -> None:
        """Another batch."""
        drawn = torch.Generator().manual_seed(number)
        self.x = torch.randn(rows, 3, generator=drawn)
        self.y = torch.randint(3, (rows,), generator=drawn)
        self.p, self.q = self.x.send(self.worker), self.y.send(self.worker)

    def each(self, run: Callable[..., Any]) -> tuple[Any, Any]:
        """What a function of a model, its optimizer and a batch gives here and there."""
        return run(self.here, self.ours, self.x, self.y), run(
            self.there, self.theirs, self.p, self.q
        )

    def check(self) -> None:
        """Whether all parameters are equal, to the last bit."""
        for mine, theirs in zip(self.here.parameters(), self.there.parameters(), strict=True):
            there: Any = theirs.detach()
            assert torch.equal(mine.detach(), there.copy().get())


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss


def _step_and_keep(pair: Pair, losses: list[Tensor]) -> None:
    losses.extend(pair.each(step))


def messages(hook: sy.TorchHook, run: Callable[[], object]) -> list[type]:
    """What is sent to the worker by a function and all that it holds back, besides ids of pointers
    that have died."""
    with hook.record() as log:
        run()
        sy.synchronize()
    return [type(entry.message) for entry in log.to("worker") if type(entry.message) is not Drop]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_is_one_message(hook: sy.TorchHook, lazy: Any, optimizer: str) -> None:
    pair = Pair(lazy, mlp, optimizer)
    sy.synchronize()
    for number in range(5):
        losses: list[Tensor] = []
        sent = messages(hook, partial(_step_and_keep, pair, losses))
        assert number == 0 or sent == [Run]
        mine, theirs = losses
        assert torch.equal(mine.detach(), theirs.detach().get())
        losses.clear()
        del mine, theirs
    pair.check()


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_from_the_third_step_on_it_has_less_than_a_hundred_bytes(
    hook: sy.TorchHook, lazy: Any, optimizer: str
) -> None:
    pair = Pair(lazy, mlp, optimizer)
    sy.synchronize()
    for number in range(5):
        with hook.record() as log:
            step(pair.there, pair.theirs, pair.p, pair.q)
            sy.synchronize()
        if number > 1:
            (entry,) = [entry for entry in log.to("worker") if type(entry.message) is not Drop]
            assert entry.nbytes <= 100
            del entry
        del log


@pytest.mark.parametrize("seed", range(6))
def test_any_program_computes_what_torch_computes(lazy: Any, seed: int) -> None:
    random.seed(seed)
    steps = [random.randrange(12) for _ in range(random.randrange(1, 12))]
    for _ in range(3):
        x, y, f = torch.randn(3), torch.randn(3), random.random()
        held = run_steps(steps, x.send(lazy), y.send(lazy), f)  # type: ignore[attr-defined]
        for there, here in zip(held, run_steps(steps, x, y, f), strict=True):
            assert torch.equal(there.copy().get(), here)
        del held, there


WHAT = ["plain", "ask", "midst", "batch", "last", "lr", "other", "freeze", "thaw", "skip", "twice"]
KEEP = ["loss", "hidden", "gradient"]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("seed", range(2))
def test_a_loop_that_does_what_it_likes_trains_as_here(
    lazy: Any, optimizer: str, seed: int
) -> None:
    draw = random.Random(seed)
    pair = Pair(lazy, mlp, optimizer)
    kept: list[tuple[Tensor, Tensor]] = []
    for number in range(30):
        what = draw.choice(WHAT) if number > 3 else "plain"
        keep = draw.choice(KEEP) if number > 3 and not draw.randrange(3) else None
        if what in ("batch", "last"):
            pair.batch(number, 2 if what == "last" else 5)
        kept.append(pair.each(partial(_wild, what, keep)))
    for mine, theirs in kept:
        _compare(mine, theirs)
    del mine, theirs
    kept.clear()
    pair.check()


def _wild(what: str, keep: str | None, model: Any, optimizer: Any, x: Tensor, y: Tensor) -> Any:
    """A step with something unusual in it; returns what is kept of it."""
    found: Any = None
    if what == "lr":
        optimizer.param_groups[0]["lr"] *= 0.5
    if what in ("freeze", "thaw"):
        model[0].requires_grad_(what == "thaw")
    optimizer.zero_grad(set_to_none=what != "other")
    hidden = model[1](model[0](x))
    out = model[2](hidden.detach() if what == "skip" else hidden)
    loss = F.cross_entropy(out, y)
    if what == "midst" and loss.item() > 1.0:
        loss = loss * 0.5
    if what == "other":
        loss = loss + model[0].weight.abs().mean()
    loss.backward(retain_graph=what == "twice")
    if what == "twice":
        (loss * 0.1).backward()
    if keep == "gradient":
        found = [p.grad if p.grad is None else p.grad.clone() for p in model.parameters()]
    optimizer.step()
    if what == "ask":
        assert loss.item() > 0
    return {"loss": loss, "hidden": hidden, "gradient": found}.get(keep or "")


def _compare(mine: Any, theirs: Any) -> None:
    if isinstance(mine, list):
        for one, other in zip(mine, theirs, strict=True):
            _compare(one, other)
    elif mine is None:
        assert theirs is None
    else:
        assert torch.equal(mine.detach(), theirs.detach().get())


def test_what_is_left_unused_has_no_gradient(lazy: Any) -> None:
    """Which parameters a step uses follows from a number that goes to and fro."""
    pair = Pair(lazy, lambda: nn.ModuleList([nn.Linear(3, 3) for _ in range(2)]), "SGD")
    for use in (0, 1, 0, 1, 1, 0, 0):

        def run(model: Any, optimizer: Any, x: Tensor, y: Tensor, use: int = use) -> list[bool]:
            optimizer.zero_grad()
            F.cross_entropy(model[use](x), y).backward()
            optimizer.step()
            return [p.grad is None for p in model.parameters()]

        mine, theirs = pair.each(run)
        assert mine == theirs
    pair.check()


def test_a_graph_that_goes_on_from_the_step_before(lazy: Any) -> None:
    """The gradient of the first layer follows from what an input of the step was made of."""
    pair = Pair(lazy, mlp, "SGD")
    for graph in (True, False, True, True, False):

        def run(
            model: Any, optimizer: Any, x: Tensor, y: Tensor, graph: bool = graph
        ) -> list[bool]:
            optimizer.zero_grad()
            hidden = model[0](x)
            if not graph:
                hidden = hidden.detach()
            assert hidden.shape == (5, 4)
            hidden.sum().item()  # what is held goes
            F.cross_entropy(model[2](hidden), y).backward()
            optimizer.step()
            return [p.grad is None for p in model.parameters()]

        mine, theirs = pair.each(run)
        assert mine == theirs
    pair.check()


def test_a_scope_holds_back_too(hook: sy.TorchHook, worker: Any) -> None:
    pair = Pair(worker, mlp, "Adam")
    sy.synchronize()
    for number in range(4):

        def run() -> None:
            with worker.lazy():
                step(pair.there, pair.theirs, pair.p, pair.q)

        sent = messages(hook, run)
        assert number == 0 or sent == [Run]
        step(pair.here, pair.ours, pair.x, pair.y)
    pair.check()


def test_an_exception_takes_nothing_back(worker: Any) -> None:
    x: Tensor = torch.ones(2).send(worker)
    with pytest.raises(ZeroDivisionError), worker.lazy():
        x.add_(1)
        y = x * 3
        1 / 0
    assert (x + y).get().tolist() == [8, 8]


def test_an_exception_in_a_group_of_a_lazy_worker_takes_nothing_back(lazy: Any) -> None:
    x: Tensor = torch.ones(2).send(lazy)
    with pytest.raises(ZeroDivisionError), lazy.group():
        x.add_(1)
        1 / 0
    assert x.get().tolist() == [2, 2]


def test_values_are_as_they_were_when_they_were_given(lazy: Any) -> None:
    x, added = torch.ones(2), torch.tensor(1.0)
    there: Tensor = x.send(lazy)  # type: ignore[attr-defined]
    held = there + added
    x.fill_(7)
    added.fill_(7)
    assert held.get().tolist() == [2, 2] and there.get().tolist() == [1, 1]


def test_another_thread_sees_what_was_done_before(lazy: Any) -> None:
    x: Tensor = torch.zeros(2).send(lazy)
    seen: list[Any] = []

    def other() -> None:
        for _ in range(5):
            x.mul_(2)
        seen.append((x + 0).get().tolist())
        x.add_(1)

    x.add_(1)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [[32, 32]]
    assert x.get().tolist() == [33, 33]


def test_another_user_sees_what_was_done_before(lazy: Any) -> None:
    x: Tensor = torch.zeros(2).tag("#x").send(lazy)  # type: ignore[attr-defined]
    ann = lazy.as_user("ann")
    (found,) = ann.search("#x")
    y: Tensor = found + 1
    x.add_(5)
    assert (found + 0).get().tolist() == [5, 5]
    x.add_(1)
    z = found * 2
    x.add_(1)
    assert z.get().tolist() == [12, 12] and y.get().tolist() == [1, 1]
    assert x.get().tolist() == [7, 7]


def test_private_values_are_as_private_as_without(lazy: Any) -> None:
    secret: Tensor = torch.ones(2).private_tensor(["ann"]).send(lazy, user="ann")  # type: ignore
    open_: Tensor = torch.ones(2).send(lazy)
    mine, public = secret * 2, open_ * 3
    assert public.get().tolist() == [3, 3]
    with pytest.raises(PermissionDenied):
        mine.get()
    assert mine.get(user="ann").tolist() == [2, 2]
    both = secret + open_
    assert (open_ + 1).get().tolist() == [2, 2]
    with pytest.raises(PermissionDenied):
        both.get()


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_training_on_private_data(lazy: Any, optimizer: str) -> None:
    pair = Pair(lazy, mlp, optimizer)
    pair.p = pair.x.private_tensor(["ann"]).send(lazy, user="ann")  # type: ignore[attr-defined]
    for _ in range(4):
        pair.each(step)
    for mine, theirs in zip(pair.here.parameters(), pair.there.parameters(), strict=True):
        there: Any = theirs.detach()
        assert torch.equal(mine.detach(), there.get(user="ann"))


def test_what_waits_for_a_promise_holds_nothing_else_back(lazy: Any) -> None:
    x: Tensor = torch.ones(2).send(lazy)
    before = x * 2
    promise = lazy.promise()
    waits = promise + 1
    other = x * 3
    assert other.get().tolist() == [3, 3] and before.get().tolist() == [2, 2]
    more = waits * 2
    assert (x * 5).get().tolist() == [5, 5]
    torch.ones(2).send(lazy, id=promise.child.id_at_location)  # type: ignore[attr-defined]
    assert more.get().tolist() == [4, 4]
    del waits


def test_an_error_names_its_line_and_takes_along_what_depends_on_it(lazy: Any) -> None:
    x, y = torch.ones(2).send(lazy), torch.ones(3).send(lazy)  # type: ignore[attr-defined]
    good = x * 2
    bad = x + y  # the line
    follows, other = bad * 2, good * 2
    with pytest.raises(RuntimeError) as caught:
        sy.synchronize()
    with open(__file__, encoding="utf-8") as file:
        number = next(n for n, line in enumerate(file, 1) if line.endswith("# the line\n"))
    assert f"{__file__}:{number}" in "\n".join(caught.value.__notes__)
    assert other.get().tolist() == [4, 4]
    with pytest.raises((ObjectNotFound, RuntimeError)):
        follows.get()
    del caught


def test_what_dies_before_it_is_sent_is_not_stored(lazy: Any) -> None:
    x: Tensor = torch.ones(2).send(lazy)
    y = ((x + 1) * 2).exp()
    del x
    assert torch.allclose(y.get(), torch.full((2,), 4.0).exp())
    assert len(inspect(lazy)) == 0


def test_so_many_operations_are_not_held(lazy: Any) -> None:
    x: Tensor = torch.zeros(2).send(lazy)
    for _ in range(5000):
        x.add_(1)
        assert lazy.connection().groups.always.count <= 2048
    assert x.get().tolist() == [5000, 5000]


def test_a_lot_of_data_is_not_held(lazy: Any) -> None:
    x: Tensor = torch.zeros(1 << 20).send(lazy)
    connection = lazy.connection()
    for number in range(40):
        x.copy_(torch.full((1 << 20,), float(number)))
    assert connection.groups.always.count < 20
    assert x.get()[0] == 39


def test_looking_at_the_worker_sends_what_is_held(lazy: Any) -> None:
    x: Tensor = torch.ones(2).send(lazy)
    y = x + 1
    assert len(inspect(lazy)) == 2
    del y


def test_a_handle_waits_for_what_is_held(lazy: Any) -> None:
    x: Tensor = torch.ones(2).send(lazy)
    y = x + 1
    assert not y.child.handle.done()
    y.child.handle.wait()
    assert y.child.handle.done()
    x.add_(1)
    assert not x.child.handle.done()
    x.child.handle.wait()
    assert x.child.handle.succeeded()


def test_a_move_and_another_worker_see_what_was_done(
    hook: sy.TorchHook, lazy: Any, alice: Any
) -> None:
    x: Tensor = torch.ones(2).send(lazy)
    x.add_(1)
    moved = x.move(alice)
    assert moved.get().tolist() == [2, 2]
    y: Tensor = torch.ones(2).send(lazy)
    y.add_(1)
    chain = y.send(alice)  # alice may use it at any time from now on
    assert lazy.connection().groups.always is None
    z = chain + 1
    assert z.get().get().tolist() == [3, 3]
    assert chain.get().get().tolist() == [2, 2]


def test_nothing_is_held_while_torch_traces(lazy: Any) -> None:
    x: Tensor = torch.ones(2).send(lazy)
    with pytest.raises(UnsupportedOperation):
        torch.jit.trace(lambda y: (x + 1) * y, torch.ones(2), check_trace=False)


def test_withdrawing_takes_along_what_is_held(hook: sy.TorchHook) -> None:
    dan = sy.VirtualWorker(hook, id="dan", pipelined=True, lazy=True)
    x: Tensor = torch.ones(2).send(dan)
    sy.synchronize()
    y = x + 1
    assert dan.cancel() == 1
    with pytest.raises(ObjectNotFound):
        y.get()
    del y


@pytest.fixture
def server(hook: sy.TorchHook) -> Iterator[sy.WebsocketServerWorker]:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        yield server


def test_an_idle_program_sends_what_is_held(hook: sy.TorchHook, server: Any) -> None:
    dan = sy.connect(str(server.address), lazy=True)
    assert sy.connect(str(server.address), lazy=True) is dan
    x: Tensor = torch.zeros(2).send(dan)
    sy.synchronize()
    with hook.record() as log:
        x.add_(1)
        assert not log.to("dan")
        end = time.monotonic() + 30
        while not log.to("dan") and time.monotonic() < end:
            time.sleep(0.01)
        assert [type(entry.message) for entry in log.to("dan")] == [Run]
    assert x.get().tolist() == [1, 1]
    del log
    dan.close()


def test_closing_sends_what_is_held(hook: sy.TorchHook, server: Any) -> None:
    dan = sy.connect(str(server.address), lazy=True)
    kept: Tensor = torch.zeros(2).tag("#kept").send(dan, allow_writes="all")  # type: ignore
    kept.child.gc = False
    kept.add_(3)
    dan.close()
    with pytest.raises(WorkerClosed):
        kept.get()
    again = sy.connect(str(server.address))
    again.close()


def test_a_loader_of_federated_data_is_lazy(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    data: Any = sy.BaseDataset(torch.arange(12.0).view(6, 2), torch.arange(6))
    federated = data.federate((bob, alice))
    found = []
    with hook.record() as log:
        for x, _ in sy.FederatedDataLoader(federated, batch_size=3, lazy=True):
            before = len(log)
            twice = x * 2
            twice.add_(1)
            assert len(log) == before
            found.append(twice)
    assert [each.get().tolist() for each in found] == [
        [[1, 3], [5, 7], [9, 11]],
        [[13, 15], [17, 19], [21, 23]],
    ]
    del log, x, _, twice
