"""Training by plans where the data is: one message a step, and the numbers of plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import optim
from torch.nn import functional as F

import syft as sy
from syft.exceptions import PermissionDenied
from tests.plans.training import MODELS, Tensor, batches, duplicates, mlp, plan_of, train_step
from tests.shells.child import make_worker
from tests.shells.owner import seed

pytestmark = pytest.mark.every_shell

OPTIMIZERS: list[tuple[Callable[..., optim.Optimizer], dict[str, Any]]] = [
    (optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (optim.Adam, {}),
    (optim.AdamW, {"fused": True}),
    (optim.RMSprop, {"foreach": True}),
]
IDS = ["momentum", "Adam", "AdamW, fused", "RMSprop, foreach"]


def built(pair: tuple[Any, Any], shape: tuple[int, ...] = (4,)) -> sy.Plan:
    plan = plan_of(train_step, *pair)
    plan.build(*next(batches(shape)))
    return plan


def messages_to(log: Any, worker: sy.VirtualWorker) -> list[str]:
    return [type(entry.message).__name__ for entry in log.to(worker.id)]


@pytest.mark.parametrize("kind, options", OPTIMIZERS, ids=IDS)
@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm", "transformer"])
def test_a_remote_step_is_the_local_step(
    name: str, kind: Callable[..., optim.Optimizer], options: Any, worker: sy.VirtualWorker
) -> None:
    make, shape = MODELS[name]
    pair, oracle = duplicates(make, kind, **options)
    there = built(pair, shape).send(worker)
    losses, expected = [], []
    for x, y in batches(shape):
        losses.append(there(x.send(worker), y.send(worker)))
        expected.append(train_step(*oracle, x, y))
    assert [float(loss.get()) for loss in losses] == [float(loss) for loss in expected]
    trained = there.get()
    for name, value in oracle[0].state_dict().items():
        assert torch.equal(trained.state_dict()[find(trained, name)], value), name


def find(plan: sy.Plan, name: str) -> str:
    """The name that a state tensor of the model has in the plan."""
    (found,) = [key for key in plan.state_dict() if key == name or key.endswith("." + name)]
    return found


def test_dropout_is_seeded_and_fresh_there_too(worker: sy.VirtualWorker) -> None:
    pair, oracle = duplicates(MODELS["dropout"][0], optim.SGD, lr=0.1)
    there = built(pair).send(worker)
    ((x, y),) = batches((4,), 1)
    x_there, y_there = x.send(worker), y.send(worker)
    for number in range(5):
        seed(worker, number)
        got = float(there(x_there, y_there).get())
        torch.manual_seed(number)
        assert got == float(train_step(*oracle, x, y))


def test_every_step_is_one_small_message(bob: sy.VirtualWorker, hook: sy.TorchHook) -> None:
    pair, _ = duplicates(MODELS["transformer"][0], optim.Adam)
    data = [(x.send(bob), y.send(bob)) for x, y in batches((5, 8), 4)]
    plan = built(pair, (5, 8))
    with hook.record() as log:
        there = plan.send(bob)
    assert len(log.to("bob")) == 1
    there(*data[0])
    for x, y in data[1:]:
        with hook.record() as log:
            loss = there(x, y)
        (message,) = log.to("bob")
        assert message.nbytes <= 120
        assert not message.buffers
        (answer,) = log.to("me")
        assert answer.nbytes <= 60
        loss.get()


def test_with_a_learning_rate_a_step_stays_one_small_message(
    bob: sy.VirtualWorker, hook: sy.TorchHook
) -> None:
    pair, oracle = duplicates(mlp, optim.SGD, lr=0.1, momentum=0.9)

    def step(model: Any, optimizer: Any, x: Tensor, y: Tensor, lr: float) -> Tensor:
        optimizer.param_groups[0]["lr"] = lr
        return train_step(model, optimizer, x, y)

    @sy.func2plan(state=pair)
    def training(x: Tensor, y: Tensor, lr: float, state: Any) -> Tensor:
        return step(*state.read(), x, y, lr)

    training.build(*next(batches((4,))), lr=0.1)
    there = training.send(bob)
    for number, (x, y) in enumerate(batches((4,))):
        lr = 0.1 * 0.9**number
        x_there, y_there = x.send(bob), y.send(bob)
        with hook.record() as log:
            loss = there(x_there, y_there, lr=lr)
        assert len(log.to("bob")) == 1
        assert number == 0 or log.to("bob")[0].nbytes <= 120
        assert float(loss.get()) == float(step(*oracle, x, y, lr))


def test_the_last_batch_is_smaller(bob: sy.VirtualWorker) -> None:
    pair, oracle = duplicates(MODELS["cnn"][0], optim.Adam)
    shape = MODELS["cnn"][1]
    there = built(pair, shape).send(bob)
    for x, y in [*batches(shape, 2), *batches(shape, 1, size=3), *batches(shape, 1, size=11)]:
        got = there(x.send(bob), y.send(bob)).get()
        assert torch.equal(got, train_step(*oracle, x, y))


# ----------------------------------------------------------------------------- where the state goes


def test_what_is_sent_is_a_copy(bob: sy.VirtualWorker) -> None:
    pair, oracle = duplicates(mlp, optim.Adam)
    there = built(pair).send(bob)
    ((x, y),) = batches((4,), 1)
    there(x.send(bob), y.send(bob)).get()
    for name, value in pair[0].state_dict().items():
        assert torch.equal(value, oracle[0].state_dict()[name])


def test_the_trained_plan_comes_back_and_goes_on_here(bob: sy.VirtualWorker) -> None:
    pair, oracle = duplicates(mlp, optim.Adam)
    there = built(pair).send(bob)
    data = list(batches((4,), 6))
    for x, y in data[:3]:
        there(x.send(bob), y.send(bob)).get()
        train_step(*oracle, x, y)
    trained = there.get()
    assert bob.objects_count() == 0
    for x, y in data[3:]:
        assert torch.equal(trained(x, y), train_step(*oracle, x, y))
    state = trained.state_dict()
    pair[0].load_state_dict({name: state[find(trained, name)] for name in pair[0].state_dict()})
    for name, value in oracle[0].state_dict().items():
        assert torch.equal(pair[0].state_dict()[name], value)


def test_the_parameters_may_stay(bob: sy.VirtualWorker) -> None:
    """The trained model is used there, and only what it says of other data comes home."""
    pair, oracle = duplicates(mlp, optim.Adam)
    there = built(pair).send(bob)
    for x, y in batches((4,), 3):
        there(x.send(bob), y.send(bob)).get()
        train_step(*oracle, x, y)
    parameters = [pointer for pointer in there.parameters()]
    assert all(pointer.location is bob for pointer in parameters)
    first = parameters[0].detach().clone().get()
    assert torch.equal(first, next(oracle[0].parameters()).detach())
    del parameters, there
    assert torch.equal(next(pair[0].parameters()), next(built(pair).parameters()))


def test_the_same_plan_trains_at_two_places(alice: sy.VirtualWorker, bob: sy.VirtualWorker) -> None:
    pair, oracle = duplicates(mlp, optim.Adam)
    _, other = duplicates(mlp, optim.Adam)
    plan = built(pair)
    at_alice, at_bob = plan.send(alice), plan.send(bob)
    for x, y in batches((4,), 3, seed=1):
        assert torch.equal(at_alice(x.send(alice), y.send(alice)).get(), train_step(*oracle, x, y))
    for x, y in batches((4,), 3, seed=2):
        assert torch.equal(at_bob(x.send(bob), y.send(bob)).get(), train_step(*other, x, y))


def test_two_queued_devices_train_at_the_same_time_and_are_averaged(hook: sy.TorchHook) -> None:
    devices = [make_worker(hook, id=name, pipelined=True) for name in ("first", "second")]
    model, optimizer = pair = duplicates(mlp, optim.SGD, lr=0.1, momentum=0.9)[0]
    oracles = [duplicates(mlp, optim.SGD, lr=0.1, momentum=0.9)[1] for _ in devices]
    plan = built(pair)
    pointers = [plan.send(device) for device in devices]
    data = [list(batches((4,), seed=seed)) for seed in (1, 2)]
    losses: list[list[Tensor]] = [[], []]
    for step in range(20):
        for number, (device, pointer) in enumerate(zip(devices, pointers, strict=True)):
            x, y = data[number][step]
            losses[number].append(pointer(x.send(device), y.send(device)))
    for number, oracle in enumerate(oracles):
        expected = [float(train_step(*oracle, x, y)) for x, y in data[number]]
        assert [float(loss.get()) for loss in losses[number]] == expected
    trained = [pointer.get() for pointer in pointers]
    means = {
        name: torch.stack([one.state_dict()[find(one, name)] for one in trained]).mean(0)
        for name in model.state_dict()
    }
    model.load_state_dict(means)
    for name, value in model.state_dict().items():
        both = [oracle[0].state_dict()[name] for oracle in oracles]
        assert torch.equal(value, torch.stack(both).mean(0))


# ------------------------------------------------------------------------------------- private data


@pytest.mark.parametrize("kind, options", OPTIMIZERS, ids=IDS)
def test_what_private_data_has_trained_is_private(
    kind: Callable[..., optim.Optimizer], options: Any, bob: sy.VirtualWorker
) -> None:
    pair, oracle = duplicates(mlp, kind, **options)
    there = built(pair).send(bob)
    ((x, y),) = batches((4,), 1)
    secret = x.clone().private_tensor(allowed_users=["ann"]).send(bob, user="ann")
    labels = y.send(bob)
    losses = [there(secret, labels) for _ in range(3)]
    weights = [weight * 1 for weight in there.parameters()]
    for private in [*losses, *weights, there]:
        for user in (None, "bea"):
            assert refuses(private, user)
    expected = [float(train_step(*oracle, x, y)) for _ in losses]
    assert [float(loss.get(user="ann")) for loss in losses] == expected
    del weights, private
    trained = there.get(user="ann")
    for name, value in oracle[0].state_dict().items():
        assert torch.equal(trained.state_dict()[find(trained, name)], value)


def refuses(pointer: Any, user: str | None) -> bool:
    try:
        pointer.get(user=user)
    except PermissionDenied:
        return True
    return False


def test_before_private_data_was_seen_nothing_is_private(bob: sy.VirtualWorker) -> None:
    pair, oracle = duplicates(mlp, optim.Adam)
    there = built(pair).send(bob)
    ((x, y),) = batches((4,), 1)
    assert torch.equal(there(x.send(bob), y.send(bob)).get(), train_step(*oracle, x, y))
    there.get()


def test_the_gradients_stay_there(bob: sy.VirtualWorker, hook: sy.TorchHook) -> None:
    """What comes home is the state: no gradient, from which single examples could be read."""
    pair, oracle = duplicates(mlp, optim.SGD, lr=0.1)
    there = built(pair).send(bob)
    ((x, y),) = batches((4,), 1)
    there(x.send(bob), y.send(bob)).get()
    with hook.record() as log:
        trained = there.get()
    train_step(*oracle, x, y)
    gradients = [parameter.grad for parameter in oracle[0].parameters()]
    travelled = [tensor for entry in log for tensor in entry.buffers]
    assert travelled
    for tensor in travelled:
        for gradient in gradients:
            floats = tensor.view(torch.float32) if tensor.nbytes % 4 == 0 else tensor
            assert not contains(floats.flatten(), gradient.flatten())
    assert all(parameter.grad is None for parameter in trained.parameters())


def contains(values: Tensor, part: Tensor) -> bool:
    """Whether a row of numbers lies somewhere in another."""
    if values.dtype != part.dtype or len(values) < len(part):
        return False
    return bool((values.unfold(0, len(part), 1) == part).all(1).any())


def test_an_evaluating_plan_follows(bob: sy.VirtualWorker) -> None:
    """A trained model's plan and a plan that only looks at it share the user's parameters here."""
    (model, optimizer), oracle = duplicates(mlp, optim.Adam)

    @sy.func2plan(state=(model,))
    def evaluate(x: Tensor, y: Tensor, state: Any) -> Tensor:
        (net,) = state.read()
        with torch.no_grad():
            return F.cross_entropy(net(x), y)

    evaluate.build(*next(batches((4,))))
    training = built((model, optimizer))
    for x, y in batches((4,), 3):
        training(x, y)
        train_step(*oracle, x, y)
        with torch.no_grad():
            assert torch.equal(evaluate(x, y), F.cross_entropy(oracle[0](x), y))
