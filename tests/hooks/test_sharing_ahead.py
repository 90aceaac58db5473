"""What a run costs is what it sends; what was dealt ahead is not asked for again."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.exceptions import (
    LimitExceeded,
    ProviderLost,
    SessionEnded,
    StockFull,
    UnsupportedOperation,
    UnusableSetting,
)
from syft.tensors.shared import session_recording
from syft.tensors.shared.sessions import sessions_of
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.wire import messages
from syft.workers.wire.messages import Exchange

STEP = 2.0**-16


@pytest.fixture
def carol(hook: sy.TorchHook) -> sy.VirtualWorker:
    return sy.VirtualWorker(hook, id="carol")


@pytest.fixture
def dan(hook: sy.TorchHook) -> sy.VirtualWorker:
    return sy.VirtualWorker(hook, id="dan")


@pytest.fixture(params=[2, 3])
def parties(request: pytest.FixtureRequest, alice: Any, bob: Any, dan: Any) -> list[Any]:
    return [alice, bob, dan][: request.param]


@pytest.fixture
def share(parties: list[Any], carol: sy.VirtualWorker) -> Callable[..., Any]:
    def shared(x: Any) -> Any:
        if isinstance(x, nn.Module) or x.is_floating_point():
            x = x.fix_precision()
        return x.share(*parties, crypto_provider=carol)

    return shared


@pytest.fixture
def letters(hook: sy.TorchHook) -> Iterator[Counter[tuple[str, str]]]:
    """The bytes of tensors in the letters from each worker to each other one."""
    sizes: Counter[tuple[str, str]] = Counter()

    def observe(sender: str, receiver: str, frame: Any) -> None:
        if type(messages.decode(frame.header)) is Exchange:
            sizes[sender, receiver] += frame.nbytes - len(frame.header)

    observers = hook.local_worker.network.observers
    observers.append(observe)
    yield sizes
    observers.remove(observe)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 4)
    )


MODELS = {"mlp": (mlp, (4, 20)), "cnn": (cnn, (2, 1, 8, 8))}


def sent(sizes: Counter[tuple[str, str]], parties: list[Any]) -> int:
    """The bytes that the busiest party has sent."""
    return max(
        sum(size for (name, _), size in sizes.items() if name == party.id) for party in parties
    )


def dealt(sizes: Counter[tuple[str, str]]) -> int:
    return sum(size for (name, _), size in sizes.items() if name == "carol")


# -------------------------------------------------------------------------------------------- cost


@pytest.mark.parametrize("kind", MODELS)
def test_the_cost_is_what_a_run_sends(kind, share, parties, letters):
    make, shape = MODELS[kind]
    model, plain = share(make()), torch.randn(shape)
    first = sy.cost(model, share(plain))
    assert not letters.total()
    model(share(plain)).get()
    assert sent(letters, parties) == first.sent + first.once and dealt(letters) == first.dealt
    letters.clear()
    x = share(plain)
    found = sy.cost(model, x)
    assert not letters.total() and found.once == 0 < first.once
    assert found == replace(first, once=0)
    model(x).get()
    assert (sent(letters, parties), dealt(letters)) == (found.sent, found.dealt)


def test_a_step_of_training_costs_what_it_sends(share, parties, letters):
    model = share(nn.Linear(5, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    data, target = share(torch.randn(3, 5)), share(torch.randn(3, 2))

    def step(x, y):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    before = model.weight.detach().clone().get().float_precision()
    letters.clear()
    found = sy.cost(step, data, target)
    assert not letters.total()
    assert torch.equal(model.weight.detach().clone().get().float_precision(), before)
    letters.clear()
    step(data, target).get()
    assert sent(letters, parties) == found.sent and dealt(letters) == found.dealt
    assert not torch.equal(model.weight.detach().clone().get().float_precision(), before)


def test_the_cost_of_a_long_function_is_that_of_all_its_programs(
    share, letters, parties, monkeypatch
):
    monkeypatch.setattr(session_recording, "MOST_INSTRUCTIONS", 8)
    model, x = share(mlp()), share(torch.randn(2, 20))
    found = sy.cost(model, x)
    assert found.programs > 1
    model(x).get()
    assert sent(letters, parties) == found.sent + found.once and dealt(letters) == found.dealt


def test_what_is_computed_for_a_cost_is_dropped(share, alice, bob):
    x = share(torch.tensor([1.0, 2.0]))
    x.get()
    before = len(alice.core.store.objects), len(bob.core.store.objects)
    kept = []
    sy.cost(lambda x: kept.append(x * x), x)
    for use in (lambda y: y.get(), lambda y: (y + 1).get()):
        with pytest.raises(UnsupportedOperation, match="compute it again"):
            use(kept[-1])
    kept.clear()
    assert (x * x).get().float_precision().tolist() == [1.0, 4.0]
    x.get()  # which carries what is to be dropped
    after = len(alice.core.store.objects), len(bob.core.store.objects)
    assert after == (before[0] + 1, before[1] + 1)  # x as it was opened


def test_values_have_no_cost(share):
    x = share(torch.tensor([1.0, 2.0]))
    with pytest.raises(UnsupportedOperation, match="get\\(\\) it afterwards"):
        sy.cost(lambda x: (x * x).get(), x)
    assert (x * x).get().float_precision().tolist() == [1.0, 4.0]


def test_a_function_that_fails_leaves_everything_as_it_was(share, letters):
    x = share(torch.tensor([1.0, 2.0]))
    kept = []

    def fails(x):
        kept.append(x * x)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        sy.cost(fails, x)
    with pytest.raises(UnsupportedOperation, match="compute it again"):
        kept[0].get()
    assert not letters.total()
    assert (x * x).get().float_precision().tolist() == [1.0, 4.0]


def test_what_goes_while_a_cost_is_found_is_dropped_at_the_parties(share, alice):
    held = [share(torch.ones(3)), share(torch.ones(2))]
    for one in held:
        one.get()
    before = len(alice.core.store.objects)
    sy.cost(lambda x: held.pop(0) if len(held) > 1 else x, held[1])
    held[0].get()
    assert len(alice.core.store.objects) == before - 1


# ------------------------------------------------------------------------------------------- stock


@pytest.mark.parametrize("kind", MODELS)
def test_prepared_runs_ask_the_provider_for_nothing(kind, share, carol, letters):
    make, shape = MODELS[kind]
    model = make()
    plain = copy.deepcopy(model)
    share(model)
    level = sy.prepare(model, share(torch.randn(shape)), n=3)
    cost = sy.cost(model, share(torch.randn(shape)))
    assert level == sy.StockLevel(3, 3 * cost.dealt) == sy.stock() and cost.once == 0
    asked = carol.stats.messages_in
    for left in (2, 1, 0):
        x = torch.randn(shape)
        out = model(share(x)).get().float_precision()
        assert (out - plain(x)).abs().max() < 64 * STEP
        assert sy.stock() == sy.StockLevel(left, left * cost.dealt)
    assert carol.stats.messages_in == asked
    letters.clear()
    model(share(torch.randn(shape))).get()
    assert carol.stats.messages_in == asked + 1 and dealt(letters) == cost.dealt


def test_the_provider_may_be_gone(share, carol):
    x = share(torch.tensor([-1.0, 2.0]))
    sy.prepare(torch.relu, x, n=2)
    carol.close()
    for _ in range(2):
        assert torch.relu(x).get().float_precision().tolist() == [0.0, 2.0]
    with pytest.raises(ProviderLost):
        torch.relu(x).get()
    assert x.get().float_precision().tolist() == [-1.0, 2.0]


def test_other_programs_run_in_between(share):
    x = share(torch.tensor([-1.0, 2.0]))
    sy.prepare(torch.relu, x, n=2)
    assert (x * x).get().float_precision().tolist() == [1.0, 4.0]
    assert torch.relu(x).get().float_precision().tolist() == [0.0, 2.0]
    assert (x * 2 * x).get().float_precision().tolist() == [2.0, 8.0]
    sy.prepare(torch.abs, x, n=1)
    assert sy.stock().runs == 2
    assert x.abs().get().float_precision().tolist() == [1.0, 2.0]
    assert torch.relu(x).get().float_precision().tolist() == [0.0, 2.0]
    assert sy.stock() == sy.StockLevel(0, 0)


def test_steps_of_training_are_prepared(share, carol):
    torch.manual_seed(5)
    model = nn.Linear(5, 2)
    plain = copy.deepcopy(model)
    share(model)

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    shared = torch.optim.SGD(model.parameters(), lr=0.125)
    open = torch.optim.SGD(plain.parameters(), lr=0.125)
    data, target = torch.randn(3, 5), torch.randn(3, 2)
    sy.prepare(lambda x, y: step(model, shared, x, y), share(data), share(target), n=3)
    asked = carol.stats.messages_in
    for _ in range(3):
        loss = step(model, shared, share(data), share(target)).get().float_precision()
        assert (loss - step(plain, open, data, target)).abs() < 500 * STEP
    assert carol.stats.messages_in == asked and sy.stock().runs == 0


@pytest.mark.parametrize("ask", [sy.cost, lambda *given: sy.prepare(*given, n=1)])
@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.125, momentum=0.5),
        lambda parameters: torch.optim.Adam(parameters, lr=0.125),
    ],
)
@pytest.mark.parametrize("steps_before", [0, 1])
def test_asking_leaves_no_traces_in_a_training(share, make, ask, steps_before):
    model = nn.Linear(3, 2)
    plain = copy.deepcopy(model)
    share(model)
    data, target = torch.randn(4, 3), torch.randn(4, 2)
    secrets = share(data).requires_grad_(), share(target)
    optimizers = make(model.parameters()), make(plain.parameters())

    def step(x, y, model=model, optimizer=optimizers[0]):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    def both():
        step(*secrets).get()
        step(data, target, plain, optimizers[1])

    for _ in range(steps_before):
        both()
    secrets[0].grad = None
    ask(step, *secrets)
    assert [len(one.state) for one in optimizers] == [2 * steps_before] * 2
    assert secrets[0].grad is None and model.weight.grad is None
    for _ in range(2):
        both()
    for got, want in zip(model.get().float_precision().parameters(), plain.parameters()):
        assert (got - want).abs().max() < 500 * STEP


def test_gradients_from_before_stay_when_a_step_is_asked_for(share):
    """Of a parameter that the step does not reach."""
    weight, other = (share(torch.ones(2)).requires_grad_() for _ in range(2))
    optimizer = torch.optim.SGD([weight, other], lr=0.5)
    (other * 3).sum().backward()

    def step():
        weight.sum().backward()
        optimizer.step()

    sy.cost(step)
    assert weight.grad is None
    assert other.grad.get().float_precision().tolist() == [3.0, 3.0]


def test_runs_of_several_programs_are_prepared(share, carol, monkeypatch):
    monkeypatch.setattr(session_recording, "MOST_INSTRUCTIONS", 8)
    model = mlp()
    plain = copy.deepcopy(model)
    share(model)
    x = torch.randn(2, 20)
    assert sy.prepare(lambda x: model(x).sum() * x, share(x), n=2).runs == 2
    asked = carol.stats.messages_in
    for _ in range(2):
        y = share(x)
        out = (model(y).sum() * y).get().float_precision()  # y is opened once, in the first one
        assert (out - plain(x).sum() * x).abs().max() < 1000 * STEP
    assert carol.stats.messages_in == asked and sy.stock().runs == 0


def test_a_run_that_goes_on_from_another_cannot_be_prepared(share):
    x = share(torch.tensor([1.0, 2.0]))
    made: list[Any] = []

    def run(x):
        if made:
            return made.pop() * x
        made.append(x + 1)
        return made[0] * x

    with pytest.raises(UnsupportedOperation, match="dealing ahead"):
        sy.prepare(run, x, n=2)
    assert sy.stock() == sy.StockLevel(0, 0)


def test_too_much_is_not_dealt_ahead(share):
    x = share(torch.ones(100))
    one = sy.cost(torch.relu, x).dealt
    with pytest.raises(StockFull, match=f"takes {2 * one:,} bytes, and most_bytes is"):
        sy.prepare(torch.relu, x, n=2, most_bytes=2 * one - 1)
    assert sy.prepare(torch.relu, x, n=1, most_bytes=2 * one - 1).runs == 1
    with pytest.raises(StockFull):
        sy.prepare(torch.relu, x, n=1, most_bytes=2 * one - 1)
    for n in (0, 2.0):
        with pytest.raises(UnusableSetting):
            sy.prepare(torch.relu, x, n=n)


def test_the_last_party_says_what_it_keeps(hook, alice, carol):
    dave = sy.VirtualWorker(hook, id="dave", peer_limits=PeerLimits(bytes=1 << 20))
    x = torch.ones(1000).fix_precision().share(alice, dave, crypto_provider=carol)
    one = sy.cost(torch.relu, x).dealt
    with pytest.raises(LimitExceeded):
        sy.prepare(torch.relu, x, n=2 * (1 << 20) // one)
    level = sy.stock()
    assert level.nbytes == level.runs * one > 0  # what was dealt before stays
    for _ in range(level.runs + 1):
        assert torch.relu(x).get().float_precision().sum() == 1000
    assert sy.stock() == sy.StockLevel(0, 0)


def test_the_session_shows_its_stock(hook, share, parties):
    x = share(torch.ones(3))
    sy.prepare(torch.relu, x, n=2)
    (session,) = sessions_of(hook.local_worker)
    names = ", ".join(party.id for party in parties)
    assert repr(session) == (
        f"<SessionClient {names}; carol deals; 2 runs ahead, {session.stock.nbytes} bytes>"
    )
    assert str(sy.StockLevel(1, 5)) == "1 run dealt ahead, 5 bytes"


def test_the_stock_goes_with_its_session(share, alice, carol):
    x = share(torch.ones(3))
    sy.prepare(torch.relu, x, n=2)
    assert len(alice.core.store.objects) > 2
    del x
    torch.ones(1).send(alice).get()
    assert not alice.core.store.objects


def test_a_failed_session_gives_its_stock_up(share, alice, bob):
    x = share(torch.ones(3))
    sy.prepare(torch.relu, x, n=2)
    bob.clear_objects()
    with pytest.raises(SessionEnded):
        torch.relu(x).get()
    torch.ones(1).send(alice).get()
    assert not [one for one in alice.core.store.objects.values() if "Material" in repr(one)]


def test_functions_of_plain_tensors_cost_nothing(share):
    share(torch.ones(3))
    assert sy.cost(F.relu, torch.ones(2)).programs == 0
    assert sy.prepare(F.relu, torch.ones(2), n=3) == sy.StockLevel(0, 0)


# ------------------------------------------------------------------------------------------- trace


def test_a_trace_tells_what_programs_cost(share, parties, letters):
    model, x = share(mlp()), torch.randn(4, 20)
    cost = sy.cost(model, share(x))
    with sy.trace() as trace:
        model(share(x)).get()
    (one,) = trace.programs
    assert (one.instructions, one.rounds, one.sent, one.dealt, one.ahead) == (
        cost.instructions + 2,
        cost.rounds,
        cost.sent + cost.once,
        cost.dealt,
        False,
    )
    operations = {operation.name: operation for operation in one.operations}
    assert (operations["MASK"].count, operations["PRODUCT"].count) == (4, 2)
    assert sum(operation.sent for operation in one.operations) == one.sent
    assert sum(operation.dealt for operation in one.operations) == one.dealt
    assert any("add" in name for name in operations)
    assert [line.what for line in trace if line.sender == "me"][0] == "Start DEAL"
    assert f"program 1: {one.instructions} instructions, {one.rounds} rounds" in repr(trace)
    assert "1 x POSITIVE" in repr(trace) and "2 x PRODUCT: 0 sent, " in trace._repr_html_()


def test_a_trace_tells_what_was_dealt_ahead_and_counts_what_is_revealed_once(
    share, parties, letters
):
    x = share(torch.randn(64))
    cost = sy.cost(torch.relu, x)
    sy.prepare(torch.relu, x, n=1)
    with sy.trace() as trace:
        torch.relu(x).get()
        torch.relu(x).reveal(to=parties[0])
    ahead, online = trace.programs
    assert ahead.ahead and not online.ahead
    assert "dealt ahead" in str(ahead)
    assert (ahead.sent, ahead.rounds) == (cost.sent, cost.rounds)
    assert (online.sent, online.rounds) == (cost.sent, cost.rounds + 1)
    assert online.sent == cost.sent
