"""``TrainConfig`` and ``fit``: the same as a loop of torch's own, wherever the data is."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from syft.exceptions import CannotRecord, PermissionDenied, PlansNotAllowed, UnusableSetting
from syft.federated.fitting import FitProgress
from tests.conftest import DEVICES
from tests.federated.trained_models import (
    MODELS,
    Images,
    made,
    nll,
    orders_of,
    plain_loop,
    same_state,
)
from tests.shells.child import make_worker
from tests.shells.owner import inspect, seed

# torch.jit.trace says of each size check inside torch's own modules that it took one path.
pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)


Offer = Callable[..., None]


@pytest.fixture
def offer(hook: sy.TorchHook) -> Iterator[Offer]:
    """Has the owner of a worker offer a data set; in the end nothing else may be there."""
    offered: dict[Any, set[str]] = {}

    def add(worker: Any, data: torch.Tensor, targets: torch.Tensor, key: str = "digits") -> None:
        worker.add_dataset(sy.BaseDataset(data, targets), key=key)
        offered.setdefault(worker, set()).add(key)

    yield add
    for worker, keys in offered.items():
        held = inspect(worker).objects
        worker.clear_objects()
        left = len(held) - 2 * len(keys)
        assert not left, f"{left} objects left behind at {worker.id}"


def config_for(model: nn.Module, **settings: Any) -> sy.TrainConfig:
    """A configuration that trains as ``SGD`` does."""
    known: dict[str, Any] = {"batch_size": 4, "epochs": 3, "seed": 5, "loss_fn": nll}
    known["optimizer_args"] = {"lr": 0.05, "momentum": 0.9}
    return sy.TrainConfig(model=model, **{**known, **settings})


def scripted(model: nn.Module) -> Any:
    return torch.jit.script(model)


def traced(model: nn.Module, data: torch.Tensor) -> Any:
    before = copy.deepcopy(model.state_dict())
    script = torch.jit.trace(model, data[:2], check_trace=False)  # type: ignore[no-untyped-call]
    model.load_state_dict(before)  # to trace a batch norm is to use it
    return script


# ------------------------------------------------------------------- the same as torch's own loop


@pytest.mark.every_shell
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_is_the_loop_here(name: str, bob: Any, offer: Offer) -> None:
    model, data, targets = made(name)
    offer(bob, data, targets)
    config = config_for(model).send(bob)
    orders = orders_of(bob, len(data))
    seed(bob, 3)
    loss = bob.fit(dataset_key="digits")
    torch.manual_seed(3)
    trained, losses = plain_loop(model, data, targets, orders, 4, SGD)
    assert loss.item() == pytest.approx(losses[-1][-1], rel=1e-5)
    means = [sum(four) * 4 + three[0] * 3 for four, three in ((e[:2], e[2:]) for e in losses)]
    assert [each.item() * 11 for each in config.losses] == pytest.approx(means, rel=1e-5)
    back = config.model_ptr.get()
    assert type(back) is type(model) and same_state(back, trained)
    assert not same_state(back, model), "nothing was learned"


@pytest.mark.parametrize("way", ["traced", "scripted"])
@pytest.mark.parametrize("name", MODELS)
def test_a_script_trains_as_its_module(name: str, way: str, bob: Any, offer: Offer) -> None:
    model, data, targets = made(name)
    script = traced(model, data) if way == "traced" else scripted(model)
    loss_fn = torch.jit.script(nll)
    offer(bob, data, targets)
    config = config_for(script, loss_fn=loss_fn).send(bob)
    orders = orders_of(bob, len(data))
    torch.manual_seed(3)
    loss = bob.fit(dataset_key="digits")
    torch.manual_seed(3)
    trained, losses = plain_loop(model, data, targets, orders, 4, SGD)
    assert loss.item() == pytest.approx(losses[-1][-1], rel=1e-5)
    back = config.model_ptr.get().obj
    assert isinstance(back, torch.jit.ScriptModule) and same_state(back, trained)
    assert not same_state(script, trained), "what was given is not changed"


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta"])
def test_optimizers_by_their_names(optimizer: str, bob: Any, offer: Offer) -> None:
    model, data, targets = made("layers")
    offer(bob, data, targets)
    config = sy.TrainConfig(
        model, nll, 4, 2, optimizer=optimizer, optimizer_args={"lr": 0.02}, seed=1
    ).send(bob)
    make = partial(getattr(torch.optim, optimizer), lr=0.02)
    trained, _ = plain_loop(model, data, targets, orders_of(bob, 11), 4, make)
    bob.fit("digits")
    assert same_state(config.model_ptr.get(), trained)


@pytest.mark.parametrize("data_device", DEVICES)
@pytest.mark.parametrize("model_device", DEVICES)
def test_batches_come_to_the_device_of_the_model(
    model_device: str, data_device: str, bob: Any, offer: Offer
) -> None:
    model, data, targets = made("images")
    offer(bob, data.to(data_device), targets.to(data_device))
    config = config_for(model.to(model_device)).send(bob)
    bob.fit("digits")
    result = bob.evaluate("digits", return_histograms=True)
    assert result["histogram_target"].device.type == torch.device(model_device).type
    assert config.model_ptr.get().conv.weight.device.type == torch.device(model_device).type


@pytest.mark.every_shell
def test_another_fit_goes_on(bob: Any, offer: Offer) -> None:
    model, data, targets = made("layers")
    offer(bob, data, targets)
    config = config_for(model, shuffle=False, epochs=1).send(bob)
    for _ in range(2):
        bob.fit("digits")
    order = [torch.arange(11)] * 2
    trained, losses = plain_loop(model, data, targets, order, 4, SGD)
    assert same_state(config.model_ptr.get(), trained), "momentum is kept"
    assert len(config.losses) == 2


def test_a_configuration_sent_again_begins_anew(bob: Any, offer: Offer) -> None:
    model, data, targets = made("layers")
    offer(bob, data, targets)
    config = config_for(model).send(bob)
    first = bob.fit("digits")
    assert config.send(bob).losses == []
    assert bob.fit("digits").item() == first.item()
    assert len([one for one in inspect(bob).objects.values() if "Plan" in repr(one)]) == 1


def test_another_configuration_trains_with_its_own_rate(bob: Any, offer: Offer) -> None:
    """No plan of an earlier configuration is used; and one that was made keeps its settings."""
    model, data, targets = made("layers")
    offer(bob, data, targets)
    for rate in (0.05, 0.01):
        config = config_for(model, optimizer_args={"lr": rate}).send(bob)
        orders = orders_of(bob, len(data))
        bob.fit(dataset_key="digits")
        make = partial(torch.optim.SGD, lr=rate)
        assert same_state(
            config.model_ptr.get(), plain_loop(model, data, targets, orders, 4, make)[0]
        )
        for name in ("optimizer_args", "epochs", "model"):
            with pytest.raises(AttributeError, match=f"keeps its '{name}': make another"):
                setattr(config, name, 2)
        del config


def test_the_model_is_taken_as_it_is_when_it_is_sent(bob: Any, offer: Offer) -> None:
    model, data, targets = made("layers")
    offer(bob, data, targets)
    config = config_for(model, shuffle=False).send(bob)
    trained, _ = plain_loop(model, data, targets, [torch.arange(11)] * 3, 4, SGD)
    with torch.no_grad():
        model[0].weight.zero_()
    assert config.model_ptr.get()[0].weight.any()
    bob.fit("digits")
    assert same_state(config.model_ptr.get(), trained)


def test_the_class_and_the_mode_come_back(bob: Any, offer: Offer) -> None:
    model, data, targets = made("images")
    offer(bob, data, targets)
    model.eval().drop.train()
    config = config_for(model).send(bob)
    torch.manual_seed(3)
    bob.fit("digits")
    back = config.model_ptr.get()
    assert type(back) is Images and not back.training and back.drop.training
    assert back.norm.num_batches_tracked.item() == 9, "it is trained in training mode"
    assert model.norm.num_batches_tracked.item() == 0


@pytest.mark.parametrize("most, losses", [(4, 2), (3, 1), (-1, 3), (0, 3)])
def test_max_nr_batches_counts_the_steps_of_all_epochs(
    most: int, losses: int, bob: Any, offer: Offer
) -> None:
    model, data, targets = made("layers")
    offer(bob, data, targets)
    config = config_for(model, max_nr_batches=most, shuffle=False).send(bob)
    steps: list[FitProgress] = []
    bob.fit("digits", on_progress=steps.append)
    assert len(steps) == (most if most > 0 else 9)
    assert len(config.losses) == losses


def test_shuffle_follows_the_seed_or_torchs_generator(bob: Any, offer: Offer) -> None:
    model, data, targets = made("layers")
    offer(bob, data, targets)
    results = []
    for settings in ({"seed": 1}, {"seed": 1}, {"seed": 2}, {"seed": None}, {"seed": None}):
        config = config_for(model, **settings).send(bob)
        torch.manual_seed(9)
        results.append(bob.fit("digits").item())
        again = bob.fit("digits")
    assert results[0] == results[1] != results[2]
    assert results[3] == results[4] and results[3] not in results[:3]
    assert again.item() != results[4] and len(config.losses) == 6


# ----------------------------------------------------------------------------------- how it travels


def test_a_step_is_one_small_message_and_the_plan_travels_once(
    bob: sy.VirtualWorker, hook: sy.TorchHook, offer: Offer
) -> None:
    model, data, targets = made("layers", rows=200)
    offer(bob, data, targets)
    config = config_for(model, epochs=1).send(bob)
    bob.fit("digits")
    with sy.trace() as trace:
        bob.fit("digits")
    requests = [each for each in trace if each.receiver == "bob"]
    assert len(requests) <= 50 + 12
    assert sorted(each.nbytes for each in requests)[25] <= 60
    assert sum(each.nbytes for each in requests) < 200 * 8 + 62 * 61
    del config


def test_no_more_than_some_steps_are_under_way(hook: sy.TorchHook, offer: Offer) -> None:
    bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
    model, data, targets = made("layers", rows=300)
    offer(bob, data, targets)
    config = config_for(model, epochs=1).send(bob)
    waiting: list[int] = []
    bob.fit("digits", on_progress=lambda _: waiting.append(len(bob.inbox)))
    assert 20 < max(waiting) <= 40
    now = config.model_ptr.get()(data)
    assert bob.evaluate("digits")["loss"].item() == pytest.approx(nll(targets, now).item(), 1e-5)
    assert bob.evaluate("digits")["nr_predictions"] == 300
    del config


def test_a_virtual_worker_is_seen_at_work(bob: Any, offer: Offer) -> None:
    """It computes in the thread that shows how far it is, so that is told after each step."""
    model, data, targets = made("layers", rows=40)
    offer(bob, data, targets)
    config = config_for(model, epochs=2, batch_size=2).send(bob)
    bob.fit("digits")
    before = bob.stats.messages_in
    asked: list[int] = []
    bob.fit("digits", on_progress=lambda progress: asked.append(bob.stats.messages_in))
    assert len(asked) == 40
    steps = [later - one for one, later in zip([before, *asked], asked, strict=False)]
    assert all(steps), "some steps were told of when others had been asked for"
    del config


# --------------------------------------------------------------------------------------- async_fit


@pytest.mark.every_shell
def test_workers_train_at_the_same_time(
    hook: sy.TorchHook, bob: Any, alice: Any, offer: Offer
) -> None:
    model, data, targets = made("layers", rows=60)
    expected, configs, seen = [], [], []
    for worker in (bob, alice):
        offer(worker, data, targets)
        configs.append(config_for(model, epochs=2, seed=len(configs)).send(worker))
        orders = orders_of(worker, 60)
        expected.append(plain_loop(model, data, targets, orders, 4, SGD))

    async def train() -> list[Any]:
        fits = [
            worker.async_fit(dataset_key="digits", return_ids=[0], on_progress=seen.append)
            for worker in (bob, alice)
        ]
        return await asyncio.gather(*fits)

    losses = asyncio.run(train())
    for loss, config, (trained, known) in zip(losses, configs, expected, strict=True):
        assert loss.item() == pytest.approx(known[-1][-1], rel=1e-5)
        assert same_state(config.model_ptr.get(), trained)
    names = [each.worker for each in seen]
    changes = sum(one != other for one, other in zip(names, names[1:], strict=False))
    assert changes > 5, "one after the other"


def test_a_failure_in_one_of_several_is_raised(bob: Any, alice: Any, offer: Offer) -> None:
    model, data, targets = made("layers", rows=60)
    offer(bob, data, targets)
    offer(alice, data, targets + 7, key="digits")
    configs = [config_for(model).send(worker) for worker in (bob, alice)]

    async def train() -> list[Any]:
        fits = [worker.async_fit("digits") for worker in (bob, alice)]
        return await asyncio.gather(*fits, return_exceptions=True)

    good, bad = asyncio.run(train())
    assert good.shape == torch.Size([]) and isinstance(bad, IndexError)
    assert "alice" in "".join(bad.__notes__)
    del configs


@pytest.mark.parametrize("pipelined", [False, True])
def test_workers_are_measured_at_the_same_time(
    pipelined: bool, hook: sy.TorchHook, offer: Offer
) -> None:
    workers: list[Any] = [sy.VirtualWorker(hook, id=n, pipelined=pipelined) for n in ("b", "a")]
    model, data, targets = made("images", rows=400)
    configs = []
    for worker in workers:
        offer(worker, data, targets)
        configs.append(config_for(model).send(worker))
    turns: list[str] = []

    async def measure(worker: Any) -> Any:
        result = await worker.async_evaluate("digits", return_histograms=True, nr_bins=2)
        turns.append("end")
        return result

    async def all_at_once() -> list[Any]:
        tasks = [asyncio.create_task(measure(worker)) for worker in workers]
        while not turns:
            turns.extend(worker.id for worker in workers if worker.stats.messages_in > 10)
            await asyncio.sleep(0)
        return await asyncio.gather(*tasks)

    found = asyncio.run(all_at_once())
    assert turns[:2] == ["b", "a"], "one after the other"
    for worker, result in zip(workers, found, strict=True):
        expected = worker.evaluate("digits", return_histograms=True, nr_bins=2)
        assert result.keys() == expected.keys() and len(result) == 5
        assert result["loss"].item() == pytest.approx(expected["loss"].item(), rel=1e-6)
        for key in result.keys() - {"loss"}:
            assert torch.equal(torch.as_tensor(result[key]), torch.as_tensor(expected[key]))
    del configs


def test_a_failure_of_one_of_several_measurements_is_raised(
    bob: Any, alice: Any, offer: Offer
) -> None:
    model, data, targets = made("layers", rows=60)
    offer(bob, data, targets)
    offer(alice, data, targets + 7, key="digits")
    configs = [config_for(model).send(worker) for worker in (bob, alice)]

    async def measure() -> list[Any]:
        calls = [worker.async_evaluate("digits") for worker in (bob, alice)]
        return await asyncio.gather(*calls, return_exceptions=True)

    good, bad = asyncio.run(measure())
    assert good["nr_predictions"] == 60 and isinstance(bad, IndexError)
    del configs


# ------------------------------------------------------------------------------------ private data


@pytest.mark.every_shell
def test_losses_of_private_data_stay_private(hook: sy.TorchHook, bob: Any, offer: Offer) -> None:
    model, data, targets = made("layers")
    offer(bob, data.private_tensor(["ann"]), targets)
    config = config_for(model, shuffle=False).send(bob)
    seen: list[FitProgress] = []
    loss = bob.fit("digits", on_progress=seen.append)
    assert loss.location is bob and all(each.loss is None for each in seen)
    for value in (loss, *config.losses):
        with pytest.raises(PermissionDenied):
            value.get()
    with pytest.raises(PermissionDenied):
        config.model_ptr.get()
    with pytest.raises(PermissionDenied):
        bob.evaluate("digits")
    trained, losses = plain_loop(model, data, targets, [torch.arange(11)] * 3, 4, SGD)
    assert same_state(config.model_ptr.get(user="ann"), trained)
    assert loss.get(user="ann").item() == pytest.approx(losses[-1][-1], rel=1e-5)
    assert bob.evaluate("digits", user="ann")["nr_predictions"] == 11
    assert bob.fit("digits", user="ann").location is None


# ---------------------------------------------------------------------------------------- evaluate


@pytest.mark.every_shell
@pytest.mark.parametrize("when", ["before", "after"])
def test_evaluate_measures_the_model_as_trained_so_far(when: str, bob: Any, offer: Offer) -> None:
    model, data, targets = made("images", rows=30)
    offer(bob, data, targets)
    other, labels = torch.randn(13, 1, 8, 8), torch.randint(3, (13,))
    offer(bob, other, labels, key="test")
    config = config_for(model).send(bob)
    if when == "after":
        bob.fit("digits")
    result = bob.evaluate(dataset_key="test", return_histograms=True, nr_bins=2)
    now = config.model_ptr.get().eval()
    pred = now(other)
    assert result["loss"].item() == pytest.approx(nll(labels, pred).item(), rel=1e-5)
    assert result["nr_predictions"] == 13
    assert result["nr_correct_predictions"] == (pred.argmax(1) == labels).sum().item()
    assert torch.equal(result["histogram_target"], labels.bincount(minlength=3)[:2])
    assert torch.equal(result["histogram_predictions"], pred.argmax(1).bincount(minlength=3)[:2])
    assert len(bob.evaluate("test", return_histograms=True)["histogram_target"]) == 3


def test_evaluate_gives_what_was_asked_for(bob: Any, offer: Offer) -> None:
    torch.manual_seed(0)
    offer(bob, torch.randn(5, 2), torch.randn(5, 1))
    config = sy.TrainConfig(model=nn.Linear(2, 1), loss_fn=nn.MSELoss()).send(bob)
    assert set(bob.evaluate("digits")) == {"loss", "nr_predictions"}
    assert bob.evaluate("digits", return_loss=False, return_raw_accuracy=False) == {}
    with pytest.raises(UnusableSetting, match="return_histograms"):
        bob.evaluate("digits", return_histograms=True)
    del config


def test_evaluate_of_a_script(bob: Any, offer: Offer) -> None:
    model, data, targets = made("images", rows=30)
    offer(bob, data, targets)
    config = config_for(scripted(model)).send(bob)
    bob.fit("digits")
    pred = config.model_ptr.get().eval()(data)
    assert bob.evaluate("digits")["loss"].item() == pytest.approx(nll(targets, pred).item(), 1e-5)


# ------------------------------------------------------------------------------------------ losses


@pytest.mark.parametrize(
    "loss_fn",
    [
        nll,
        lambda pred, target: F.nll_loss(pred, target),
        lambda found, labels: F.nll_loss(found, labels),
        F.nll_loss,
        nn.NLLLoss(),
        torch.jit.script(nn.NLLLoss()),
    ],
)
def test_a_loss_gets_prediction_and_target_by_name_or_in_torchs_order(
    loss_fn: Any, bob: Any, offer: Offer
) -> None:
    model, data, targets = made("layers")
    offer(bob, data, targets)
    config = config_for(model, loss_fn=loss_fn, shuffle=False).send(bob)
    _, losses = plain_loop(model, data, targets, [torch.arange(11)] * 3, 4, SGD)
    assert bob.fit("digits").item() == pytest.approx(losses[-1][-1], rel=1e-5)
    del config


# ------------------------------------------------------------------------------------------ errors


def test_nothing_was_sent_or_it_is_gone(bob: Any, offer: Offer) -> None:
    model, data, targets = made("layers")
    offer(bob, data, targets)
    with pytest.raises(UnusableSetting, match=r"sent to bob before \(config.send\), and kept"):
        bob.fit("digits")
    config = config_for(model).send(bob)
    bob.fit("digits")
    del config
    with pytest.raises(UnusableSetting, match="a TrainConfig must be sent"):
        bob.fit("digits")
    assert not any("Plan" in repr(each) for each in inspect(bob).objects.values())


@pytest.mark.every_shell
def test_a_key_that_is_not_there_names_those_that_are(bob: Any, offer: Offer) -> None:
    model, data, targets = made("layers")
    config = config_for(model).send(bob)
    with pytest.raises(UnusableSetting, match="there are none: see add_dataset"):
        bob.fit("digits")
    offer(bob, data, targets)
    offer(bob, data, targets, key="other")
    with pytest.raises(
        UnusableSetting, match=r"one of those at bob \('digits', 'other'\), got 'x'"
    ):
        bob.fit("x")
    del config


def test_data_of_ones_own_with_these_tags(bob: Any) -> None:
    model, data, targets = made("layers")
    config = config_for(model).send(bob)
    x, y = data.tag("#mine", "#data").send(bob), targets.tag("#mine", "#target").send(bob)
    bob.fit("mine")
    twice = data.send(bob).tag("#mine", "#data")
    with pytest.raises(UnusableSetting, match="2 and 1 of them with 'mine'"):
        bob.fit("mine")
    del x, y, twice, config


def test_no_samples(bob: Any, offer: Offer) -> None:
    model, data, targets = made("layers")
    offer(bob, data[:0], targets[:0])
    config = config_for(model).send(bob)
    for call in (bob.fit, bob.evaluate):
        with pytest.raises(UnusableSetting, match="one sample or more"):
            call("digits")
    del config


def test_an_optimizer_that_torch_has_not() -> None:
    with pytest.raises(UnusableSetting, match=r"torch.optim \(ASGD, .*SGD.*\), got 'Optimizer'"):
        sy.TrainConfig(nn.Linear(2, 1), nn.MSELoss(), optimizer="Optimizer")
    with pytest.raises(TypeError, match="rate"):
        sy.TrainConfig(nn.Linear(2, 1), nn.MSELoss(), optimizer_args={"rate": 1})
    for wrong in ({"batch_size": 0}, {"epochs": 0}):
        with pytest.raises(UnusableSetting, match="1 or more"):
            sy.TrainConfig(nn.Linear(2, 1), nn.MSELoss(), **wrong)


def test_a_model_at_a_worker_and_nobody_to_send_to(bob: Any) -> None:
    model = nn.Linear(2, 1).send(bob)
    with pytest.raises(UnusableSetting, match="get\\(\\) it first"):
        sy.TrainConfig(model, nn.MSELoss())
    with pytest.raises(UnusableSetting, match="locations"):
        sy.TrainConfig(nn.Linear(2, 1), nn.MSELoss()).send()


class ByNumpy(nn.Module):
    """A model that leaves torch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.from_numpy(x.numpy() * 2))


def test_a_model_that_no_plan_can_keep_is_refused_with_its_line(bob: Any, offer: Offer) -> None:
    _, data, targets = made("layers")
    offer(bob, data, targets)
    config = config_for(ByNumpy()).send(bob)
    with pytest.raises(CannotRecord, match=r"test_train_config.py:\d+"):
        bob.fit("digits")
    del config


def test_an_owner_who_allows_no_plans(hook: sy.TorchHook, offer: Offer) -> None:
    bob = sy.VirtualWorker(hook, id="bob", allow_plans=False)
    model, data, targets = made("layers")
    offer(bob, data, targets)
    config = config_for(model).send(bob)
    with pytest.raises(PlansNotAllowed):
        bob.fit("digits")
    del config


def test_workers_by_name(hook: sy.TorchHook, offer: Offer) -> None:
    bob, alice = make_worker(hook, "bob"), make_worker(hook, "alice")
    model, data, targets = made("layers")
    config = config_for(model, shuffle=False).send("bob", alice)
    for worker in (bob, alice):
        offer(worker, data, targets)
        worker.fit("digits")
    assert list(config.model_ptrs) == ["bob", "alice"]
    assert config.model_ptr.location is alice
    average = sy.federated_average([each.get() for each in config.model_ptrs.values()])
    assert same_state(average, config.model_ptr.get())
