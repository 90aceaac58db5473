"""Options of an optimizer are inputs of each call: schedules beside a plan, wherever it runs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.optim import lr_scheduler

import syft as sy
from syft.plans.remote.pointer_plan import SENT_OPTIONS, PointerPlan, make_plan_pointer
from tests.plans.training import Tensor, batches, check_same, mlp, plan_of, train_step, twins

Change = Callable[[optim.Optimizer], Callable[[int, float], None]]
"""Makes what changes the options of an optimizer after each step, given its number and loss."""


def _scheduled(make: Callable[..., Any], **options: Any) -> Change:
    def change(optimizer: Any) -> Callable[[int, float], None]:
        optimizer._opt_called = True  # torch looks for that, and a plan calls no step()
        scheduler = make(optimizer, **options)
        return lambda number, loss: scheduler.step()

    return change


def _on_a_plateau(optimizer: Any) -> Callable[[int, float], None]:
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.5)
    return lambda number, loss: scheduler.step(loss)


def _by_hand(optimizer: Any) -> Callable[[int, float], None]:
    def change(number: int, loss: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = 0.1 / (2 + number)
            group["weight_decay"] = 0.01 * (1 + number)
            for key in {"momentum", "alpha", "dampening", "lr_decay"}.intersection(group):
                group[key] *= 0.9
            if "betas" in group:
                group["betas"] = tuple(beta * 0.9 for beta in group["betas"])

    return change


SCHEDULES: dict[str, Change] = {
    "StepLR": _scheduled(lr_scheduler.StepLR, step_size=2, gamma=0.5),
    "CosineAnnealingLR": _scheduled(lr_scheduler.CosineAnnealingLR, T_max=4),
    "CosineAnnealingWarmRestarts": _scheduled(lr_scheduler.CosineAnnealingWarmRestarts, T_0=2),
    "LambdaLR": _scheduled(lr_scheduler.LambdaLR, lr_lambda=lambda epoch: 0.8**epoch),
    "ReduceLROnPlateau": _on_a_plateau,
    "by hand": _by_hand,
}
CYCLES: dict[str, Change] = {
    "OneCycleLR": _scheduled(lr_scheduler.OneCycleLR, max_lr=0.2, total_steps=12),
    "CyclicLR": _scheduled(lr_scheduler.CyclicLR, base_lr=0.01, max_lr=0.1, step_size_up=3),
}
"""They change the momentum, or the first beta, too."""
OPTIMIZERS: dict[str, tuple[Callable[..., optim.Optimizer], dict[str, Any]]] = {
    "SGD": (optim.SGD, {"lr": 1, "weight_decay": 0.01}),
    "SGD with momentum": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "Nesterov": (
        optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True, "foreach": True},
    ),
    "Adam": (optim.Adam, {"weight_decay": 0.01}),
    "Adam in lists": (optim.Adam, {"weight_decay": 0.01, "foreach": True, "amsgrad": True}),
    "Adam fused": (optim.Adam, {"weight_decay": 0.01, "fused": True}),
    "AdamW": (optim.AdamW, {}),
    "NAdam": (optim.NAdam, {"weight_decay": 0.01}),
    "RMSprop": (optim.RMSprop, {"momentum": 0.5, "weight_decay": 0.01, "centered": True}),
    "Adagrad": (optim.Adagrad, {"lr_decay": 0.1, "weight_decay": 0.01}),
}
CASES = [
    *[(name, schedule) for name in ("SGD with momentum", "Adam") for schedule in SCHEDULES],
    *[(name, schedule) for name in ("Nesterov", "AdamW") for schedule in CYCLES],
    *[(name, "by hand") for name in OPTIMIZERS if name not in ("SGD with momentum", "Adam")],
]


def _check_same_there(pointer: Any, oracle: tuple[Any, Any]) -> None:
    """The parameters there are those of plain PyTorch, bit for bit."""
    there = pointer.state_dict()
    for name, tensor in oracle[0].state_dict().items():
        assert torch.equal(there[name].detach().clone().get(), tensor), name


def _check_followed(optimizer: str, schedule: str, place: sy.VirtualWorker, steps: int = 6) -> None:
    """Steps of a plan here and at a worker, and of plain PyTorch, under equal schedules."""
    make, options = OPTIMIZERS[optimizer]
    pair, oracle = twins(mlp, make, **options)
    plan = plan_of(train_step, *pair)
    data = list(batches((4,), steps))
    plan.build(*data[0])
    recorded = plan._record.built
    pointer = plan.send(place)
    changes = [{**SCHEDULES, **CYCLES}[schedule](each[1]) for each in (pair, oracle)]
    for number, (x, y) in enumerate(data):
        expected = train_step(*oracle, x, y)
        assert torch.equal(plan(x, y), expected)
        check_same(pair, oracle)
        assert torch.equal(pointer(x.send(place), y.send(place)).get(), expected)
        _check_same_there(pointer, oracle)
        for change in changes:
            change(number, float(expected))
    assert plan._record.built is recorded, "it was recorded once"


@pytest.mark.parametrize("optimizer, schedule", CASES)
def test_a_schedule_is_followed_here_and_at_a_worker(
    optimizer: str, schedule: str, bob: sy.VirtualWorker
) -> None:
    _check_followed(optimizer, schedule, bob)


@pytest.mark.every_shell
def test_a_schedule_is_followed_wherever_the_worker_is(worker: sy.VirtualWorker) -> None:
    _check_followed("SGD with momentum", "CyclicLR", worker, steps=3)
    _check_followed("AdamW", "OneCycleLR", worker, steps=3)


def test_an_optimizer_that_only_the_function_leads_to_is_followed(bob: sy.VirtualWorker) -> None:
    """It is found when it steps, and the function is recorded once more, with one warning."""

    class Trainer:
        def __init__(self) -> None:
            self.model, self.optimizer = twins(mlp, optim.Adam)[0]

        def step(self, x: Tensor, y: Tensor) -> Tensor:
            if x.sum() > 1e9:
                return x
            return train_step(self.model, self.optimizer, x, y)

    trainer, (model, optimizer) = Trainer(), twins(mlp, optim.Adam)[0]
    plan = sy.func2plan()(lambda x, y: trainer.step(x, y))
    data = list(batches((4,), 4))
    with pytest.warns(sy.exceptions.FrozenPath) as warned:
        plan.build(*data[0])
    assert len(warned) == 1
    pointer = plan.send(bob)
    for number, (x, y) in enumerate(data):
        for each in (trainer.optimizer, optimizer):
            each.param_groups[0]["lr"] = 0.1 / (1 + number)
        expected = train_step(model, optimizer, x, y)
        assert torch.equal(plan(x, y), expected)
        assert torch.equal(pointer(x.send(bob), y.send(bob)).get(), expected)


def test_an_optimizer_that_the_function_makes_is_none_of_outside() -> None:
    model = mlp()
    oracle = copy.deepcopy(model)

    def step(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return train_step(model, optim.SGD(model.parameters(), lr=0.1), x, y)

    plan = sy.func2plan()(lambda x, y: step(model, x, y))
    for x, y in batches((4,), 3):
        assert torch.equal(plan(x, y), step(oracle, x, y))


@pytest.mark.parametrize("place", ["here", "there"])
def test_the_rate_is_one_for_all_that_read_it(place: str, bob: sy.VirtualWorker) -> None:
    """The function may read a group itself, also where the optimizer takes no step."""
    weight = nn.Parameter(torch.ones(2))
    optimizer = optim.SGD([weight], lr=0.5)

    @sy.func2plan(state=(optimizer,))
    def scaled(x: Tensor, state: Any) -> Tensor:
        (optimizer,) = state.read()
        return x * optimizer.param_groups[0]["lr"]

    scaled.build(torch.ones(2))
    call = scaled if place == "here" else scaled.send(bob)
    for rate in (0.5, 0.25, -0.0, 3):
        optimizer.param_groups[0]["lr"] = rate
        x = torch.ones(2) if place == "here" else torch.ones(2).send(bob)
        result = call(x) if place == "here" else call(x).get()
        assert torch.equal(result, torch.full((2,), float(rate)))
        assert torch.equal(result.signbit(), torch.full((2,), float(rate)).signbit())
    assert torch.equal(scaled.to_fx()(torch.ones(2)), torch.full((2,), 3.0))


def test_a_plan_around_a_plan_that_trains_follows_too(bob: sy.VirtualWorker) -> None:
    pair, oracle = twins(mlp, optim.SGD, lr=0.1)
    inner, data = plan_of(train_step, *pair), list(batches((4,), 4))
    inner.build(*data[0])
    outer = sy.func2plan()(lambda x, y: inner(x, y) * 2)
    outer.build(*data[0])
    pointer = outer.send(bob)
    for number, (x, y) in enumerate(data):
        for each in (pair, oracle):
            each[1].param_groups[0]["lr"] = 0.1 / (1 + number)
        expected = train_step(*oracle, x, y) * 2
        assert torch.equal(pointer(x.send(bob), y.send(bob)).get(), expected)
        assert torch.equal(outer(x, y), expected)


def test_a_recording_that_goes_on_shows_its_numbers_to_nobody(bob: sy.VirtualWorker) -> None:
    """As a thread would see them that calls a plan of the same optimizer meanwhile."""
    pair, _ = twins(mlp, optim.SGD, lr=0.1)
    plan, data = plan_of(train_step, *pair), next(batches((4,)))
    plan.build(*data)
    known, seen = plan._record.built.assumptions, []

    def looking(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> Tensor:
        seen.append((known.holds(), known.options.numbers))
        return train_step(model, optimizer, x, y)

    plan_of(looking, *pair).build(*data)
    assert len(seen) >= 2 and {holds for holds, _ in seen} == {False}
    assert len({numbers for _, numbers in seen}) == 1 and known.holds()


def test_an_int_that_is_no_rate_stays_one() -> None:
    """An optimizer counts by it: another count is another recording."""

    class Repeated(optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 0.1, "times": 2})
            for parameter in self.param_groups[0]["params"]:
                self.state[parameter]["seen"] = torch.zeros(())

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    for _ in range(group["times"]):
                        parameter.sub_(parameter.grad, alpha=group["lr"])

    pair, oracle = twins(mlp, Repeated)
    plan = plan_of(train_step, *pair)
    for number, (x, y) in enumerate(batches((4,), 3)):
        for each in (pair, oracle):
            each[1].param_groups[0].update(times=1 + number, lr=0.1 / (1 + number))
        assert torch.equal(plan(x, y), train_step(*oracle, x, y))
    pair[1].param_groups[0]["times"] = 2.0
    assert not plan.is_built


def test_a_change_inside_of_what_is_read_is_refused_by_name() -> None:
    pair, _ = twins(mlp, optim.AdamW)

    def step(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> Tensor:
        loss = train_step(model, optimizer, x, y)
        optimizer.param_groups[0]["betas"] = (0.5, 0.9)
        return loss

    with pytest.raises(
        sy.exceptions.CannotRecord, match="a change of 'betas' of torch.optim.AdamW"
    ):
        plan_of(step, *pair).build(*next(batches((4,))))
    assert pair[1].param_groups[0]["betas"] == (0.9, 0.999)


def test_a_call_whose_options_are_as_they_were_repeats_no_number(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    pair, _ = twins(mlp, optim.Adam, lr=0.1, weight_decay=0.1)
    plan, data = plan_of(train_step, *pair), next(batches((4,)))
    plan.build(*data)
    pointer, remote = plan.send(bob), [value.send(bob) for value in data]
    pointer(*remote)
    sizes = []
    for rate in (0.1, 0.2):
        pair[1].param_groups[0]["lr"] = rate
        with hook.record() as log:
            pointer(*remote)
        sizes.append(log.to("bob")[0].nbytes)
    assert sizes[1] - sizes[0] == 8, "a float has nine bytes, and what stays the same has one"


def test_another_process_goes_on_with_the_options_that_were_sent(
    bob: sy.VirtualWorker,
) -> None:
    """What a search there finds tells it the numbers; so it is for a plan that it fetches."""
    pair, oracle = twins(mlp, optim.SGD, lr=0.1)
    plan, data = plan_of(train_step, *pair), list(batches((4,), 2))
    plan.build(*data[0])
    pair[1].param_groups[0]["lr"] = oracle[1].param_groups[0]["lr"] = 0.3
    sent = plan.send(bob)
    pair[1].param_groups[0]["lr"] = 0.5
    sent.garbage_collect_data = False
    SENT_OPTIONS.pop(sent.id_at_location)
    found = make_plan_pointer(sent.connection, sent.id_at_location, card=(0, 0, 0, card_of(sent)))
    assert dict(found.interface.options)["lr"] == 0.3
    x, y = data[0]
    assert torch.equal(found(x.send(bob), y.send(bob)).get(), train_step(*oracle, x, y))
    _check_same_there(found, oracle)
    back = found.get()
    assert torch.equal(back(*data[1]), train_step(*oracle, *data[1]))


def card_of(pointer: PointerPlan) -> Any:
    """What a search tells of a plan."""
    found: Any = pointer.location.core.present(pointer.id_at_location)  # type: ignore[attr-defined]
    return found.card()
