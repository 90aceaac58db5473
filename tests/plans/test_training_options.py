"""Options of an optimizer are inputs of each call: schedules beside a plan, wherever it runs."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn, optim
from torch.optim import lr_scheduler

import syft as sy
from syft.plans.remote.pointer_plan import SENT_OPTIONS, PointerPlan, make_plan_pointer
from tests.plans.training import Tensor, batches, check_same, duplicates, mlp, plan_of, train_step

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
    pair, oracle = duplicates(mlp, make, **options)
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
            self.model, self.optimizer = duplicates(mlp, optim.Adam)[0]

        def step(self, x: Tensor, y: Tensor) -> Tensor:
            if x.sum() > 1e9:
                return x
            return train_step(self.model, self.optimizer, x, y)

    trainer, (model, optimizer) = Trainer(), duplicates(mlp, optim.Adam)[0]
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
    pair, oracle = duplicates(mlp, optim.SGD, lr=0.1)
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
    pair, _ = duplicates(mlp, optim.SGD, lr=0.1)
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

    pair, oracle = duplicates(mlp, Repeated)
    plan = plan_of(train_step, *pair)
    for number, (x, y) in enumerate(batches((4,), 3)):
        for each in (pair, oracle):
            each[1].param_groups[0].update(times=1 + number, lr=0.1 / (1 + number))
        assert torch.equal(plan(x, y), train_step(*oracle, x, y))
    pair[1].param_groups[0]["times"] = 2.0
    assert not plan.is_built


def test_a_change_inside_of_what_is_read_is_refused_by_name() -> None:
    pair, _ = duplicates(mlp, optim.AdamW)

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
    pair, _ = duplicates(mlp, optim.Adam, lr=0.1, weight_decay=0.1)
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
    pair, oracle = duplicates(mlp, optim.SGD, lr=0.1)
    plan, data = plan_of(train_step, *pair), list(batches((4,), 2))
    plan.build(*data[0])
    pair[1].param_groups[0]["lr"] = oracle[1].param_groups[0]["lr"] = 0.3
    sent = plan.send(bob)
    pair[1].param_groups[0]["lr"] = 0.5
    sent.garbage_collect_data = False
    SENT_OPTIONS.pop(sent.id_at_location)
    found = make_plan_pointer(
        sent.connection, sent.id_at_location, summary=(0, 0, 0, summary_of(sent))
    )
    assert dict(found.interface.options)["lr"] == 0.3
    x, y = data[0]
    assert torch.equal(found(x.send(bob), y.send(bob)).get(), train_step(*oracle, x, y))
    _check_same_there(found, oracle)
    back = found.get()
    assert torch.equal(back(*data[1]), train_step(*oracle, *data[1]))


def summary_of(pointer: PointerPlan) -> Any:
    """What a search tells of a plan."""
    found: Any = pointer.location.core.present(pointer.id_at_location)  # type: ignore[attr-defined]
    return found.summary()


# ------------------------------------------------------- what changes options inside the function

_BEFORE = {"last_epoch", "_step_count", "T_cur", "_last_lr", "num_bad_epochs"}
INSIDE: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda optimizer: lr_scheduler.StepLR(optimizer, 10),
    "ConstantLR": lambda optimizer: lr_scheduler.ConstantLR(optimizer, 0.5, 100),
    "LambdaLR": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda e: 0.5 ** (e // 9)),
    "CosineAnnealingWarmRestarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(
        optimizer, 9
    ),
    "ReduceLROnPlateau": lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer),
    "SequentialLR": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.ConstantLR(optimizer, 1.0), lr_scheduler.StepLR(optimizer, 9)],
        milestones=[20],
    ),
    "ChainedScheduler": lambda optimizer: lr_scheduler.ChainedScheduler(
        [lr_scheduler.StepLR(optimizer, 9)]
    ),
}


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("name", INSIDE)
def test_a_scheduler_that_steps_inside_is_refused(
    name: str, first: bool, hook: sy.TorchHook
) -> None:
    """Its step would be the same in each run; and the refusal leaves it as it was."""
    pair, _ = duplicates(mlp, optim.SGD, lr=0.1)
    scheduler = INSIDE[name](pair[1])
    rate = pair[1].param_groups[0]["lr"]
    before = {key: value for key, value in vars(scheduler).items() if key in _BEFORE}

    def step(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> Tensor:
        arguments = [0.5] if name == "ReduceLROnPlateau" else []
        if first:
            scheduler.step(*arguments)
        loss = train_step(model, optimizer, x, y)
        scheduler.step(*arguments)
        return loss

    with pytest.raises(sy.exceptions.CannotRecord, match=f"a step of {name}.*training_options.py"):
        plan_of(step, *pair).build(*next(batches((4,))))
    assert {key: vars(scheduler)[key] for key in before} == before
    assert pair[1].param_groups[0]["lr"] == rate


def test_a_scheduler_of_an_optimizer_that_only_the_function_leads_to_is_refused(
    hook: sy.TorchHook,
) -> None:
    pair, _ = duplicates(mlp, optim.SGD, lr=0.1)
    things = [*pair, lr_scheduler.StepLR(pair[1], 10)]

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = train_step(things[0], things[1], x, y)
        things[2].step()
        return loss

    with pytest.raises(sy.exceptions.CannotRecord, match="a step of StepLR"):
        sy.func2plan()(step).build(*next(batches((4,))))
    with pytest.raises(sy.exceptions.CannotRecord, match="a step of StepLR"):
        sy.func2plan()(lambda x: [things[2].step(), x + 1][1]).build(torch.ones(2))


@pytest.mark.parametrize(
    "make", [numpy.float64, float, torch.tensor], ids=lambda make: make.__name__
)
def test_an_argument_may_be_put_into_a_group(make: Any, bob: sy.VirtualWorker) -> None:
    pair, oracle = duplicates(mlp, optim.SGD, lr=0.5)

    def step(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor, rate: Any) -> Tensor:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    plan = sy.func2plan(state=pair)(lambda x, y, rate, state: step(*state.read(), x, y, rate))
    data = list(batches((4,), 3))
    plan.build(*data[0], make(0.1))
    pointer = plan.send(bob)
    for number, (x, y) in enumerate(data):
        rate = make(0.1 / (1 + number))
        expected = step(*oracle, x, y, rate)
        assert torch.equal(plan(x, y, rate), expected)
        there = rate.send(bob) if isinstance(rate, torch.Tensor) else rate
        assert torch.equal(pointer(x.send(bob), y.send(bob), there).get(), expected)


def test_a_scheduler_of_an_optimizer_that_the_function_makes_steps_inside(
    hook: sy.TorchHook,
) -> None:
    model = mlp()
    oracle = copy.deepcopy(model)

    def steps(model: nn.Module, x: Tensor, y: Tensor, rate: float) -> None:
        optimizer = optim.SGD(model.parameters(), lr=rate)
        scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
        for _ in range(3):
            train_step(model, optimizer, x, y)
            scheduler.step()

    plan = sy.func2plan()(lambda x, y, rate: steps(model, x, y, rate))
    for number, (x, y) in enumerate(batches((4,), 3)):
        plan(x, y, 0.1 / (1 + number))
        steps(oracle, x, y, 0.1 / (1 + number))
        for mine, expected in zip(model.parameters(), oracle.parameters(), strict=True):
            assert torch.equal(mine, expected)


@pytest.mark.parametrize("option", ["lr", "betas"])
def test_a_number_from_outside_that_is_put_into_a_group_is_refused(option: str) -> None:
    """As ``group["lr"] = rate(epoch)``: it would be the number of the recording for ever."""
    pair, _ = duplicates(mlp, optim.AdamW)
    epoch = [0]

    def step(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> Tensor:
        rate = 0.1 * 0.5 ** epoch[0]
        for group in optimizer.param_groups:
            group[option] = rate if option == "lr" else (rate, 0.9)
        return train_step(model, optimizer, x, y)

    before = pair[1].param_groups[0][option]
    with pytest.raises(sy.exceptions.CannotRecord, match=f"a change of {option!r} of .*AdamW"):
        plan_of(step, *pair).build(*next(batches((4,))))
    assert pair[1].param_groups[0][option] == before


def test_a_recording_leaves_no_number_of_its_own_in_a_group() -> None:
    """Nor in an optimizer that is found when it steps, nor under a key that was not there."""
    pair, oracle = duplicates(mlp, optim.Adam)
    things: list[Any] = [*pair]

    def step(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor, beta: float) -> Tensor:
        for group in optimizer.param_groups:
            group["betas"] = (beta, 0.99)
        loss = train_step(model, optimizer, x, y)
        optimizer.param_groups[0]["twice"] = beta * 2
        return loss

    plan = sy.func2plan()(lambda x, y, beta: step(*things, x, y, beta))
    for number, (x, y) in enumerate(batches((4,), 3)):
        beta = 0.9 / (1 + number)
        assert torch.equal(plan(x, y, beta), step(*oracle, x, y, beta))
        check_same(pair, oracle)
        assert type(pair[1].param_groups[0]["betas"][0]) is float
        assert "twice" not in pair[1].param_groups[0]


def test_what_replaces_a_number_in_the_function_does_not_stay() -> None:
    """Also where a recording fails, and the number was followed by a tensor of several."""
    weight = nn.Parameter(torch.ones(2))
    optimizer = optim.SGD([weight], lr=0.1)
    things = [optimizer]

    def step(x: Tensor) -> None:
        weight.grad = x
        things[0].step()
        things[0].param_groups[0]["lr"] = torch.ones(2)

    with pytest.raises(sy.exceptions.CannotRecord, match="a change of 'lr'"):
        sy.func2plan()(step).build(torch.ones(2))
    assert optimizer.param_groups[0]["lr"] == 0.1


# ------------------------------------------------------------- options that are not one number


def test_a_list_of_numbers_may_be_changed_in_place(bob: sy.VirtualWorker) -> None:
    pair, oracle = duplicates(mlp, optim.Adam)
    plan, data = plan_of(train_step, *pair), list(batches((4,), 4))
    plan.build(*data[0])
    pointer = plan.send(bob)
    for number, (x, y) in enumerate(data):
        for group in (pair[1].param_groups[0], oracle[1].param_groups[0]):
            group["betas"] = group["betas"] if number else list(group["betas"])
            group["betas"][0] *= 0.7
        expected = train_step(*oracle, x, y)
        assert torch.equal(plan(x, y), expected)
        assert torch.equal(pointer(x.send(bob), y.send(bob)).get(), expected)
        check_same(pair, oracle)
    again = plan_of(train_step, *pair)
    again.build(*data[0])
    pair[1].param_groups[0]["betas"][0] = None
    change = "betas of Adam .*another one"
    with pytest.raises(sy.exceptions.ProgramError, match=change):
        pointer(*[value.send(bob) for value in data[0]])
    pair[1].param_groups[0]["betas"][0] = 0.9


def test_a_list_that_the_function_changes_in_place_is_refused() -> None:
    pair, _ = duplicates(mlp, optim.Adam)
    pair[1].param_groups[0]["betas"] = betas = [0.9, 0.999]

    def step(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> Tensor:
        loss = train_step(model, optimizer, x, y)
        optimizer.param_groups[0]["betas"][0] *= 0.5
        return loss

    with pytest.raises(sy.exceptions.CannotRecord, match="a change of 'betas'"):
        plan_of(step, *pair).build(*next(batches((4,))))
    assert pair[1].param_groups[0]["betas"] is betas and betas == [0.9, 0.999]


def test_tensors_in_a_tuple_are_followed_here_and_refused_there(bob: sy.VirtualWorker) -> None:
    betas = (torch.tensor(0.9), torch.tensor(0.99))
    pair, oracle = duplicates(mlp, optim.Adam, lr=torch.tensor(0.1), betas=betas, foreach=False)
    plan, data = plan_of(train_step, *pair), list(batches((4,), 3))
    plan.build(*data[0])
    pointer = plan.send(bob)
    remote = [value.send(bob) for value in data[0]]
    assert torch.equal(pointer(*remote).get(), train_step(*copy.deepcopy(oracle), *data[0]))
    for x, y in data:
        assert torch.equal(plan(x, y), train_step(*oracle, x, y))
        for each in (pair, oracle):
            each[1].param_groups[0]["betas"][0].mul_(0.5)
    check_same(pair, oracle)
    with pytest.raises(sy.exceptions.ProgramError, match="betas.0 of Adam is another one now"):
        pointer(*remote)


class Rated(optim.Optimizer):
    """Keeps its rate, and counts its steps, as attributes."""

    def __init__(self, params: Any, every: int = 1) -> None:
        super().__init__(params, {"lr": 1.0})
        self.rate, self.every, self.steps = 0.1, every, 0
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["seen"] = torch.zeros(())

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        if self.every > 1:
            self.steps += 1
        if self.every == 1 or self.steps % self.every == 0:
            for parameter in self.param_groups[0]["params"]:
                parameter.sub_(parameter.grad, alpha=self.rate)


def _rated(every: int = 1) -> tuple[nn.Module, Rated]:
    """Alike each time: a copy of an optimizer has no attributes of its own."""
    torch.manual_seed(1)
    model = mlp()
    return model, Rated(model.parameters(), every)


def test_numbers_that_are_attributes_of_an_optimizer_are_expected(bob: sy.VirtualWorker) -> None:
    pair, oracle = _rated(), _rated()
    plan, data = plan_of(train_step, *pair), list(batches((4,), 3))
    plan.build(*data[0])
    pointer = plan.send(bob)
    lr_scheduler.StepLR(pair[1], 10)  # adds attributes of its own, which decide nothing
    assert plan.is_built
    remote = [value.send(bob) for value in data[0]]
    pointer(*remote)
    for number, (x, y) in enumerate(data):
        pair[1].rate = oracle[1].rate = 0.1 / (1 + number)
        assert torch.equal(plan(x, y), train_step(*oracle, x, y))
        check_same(pair, oracle)
    with pytest.raises(sy.exceptions.ProgramError, match="rate of Rated was 0.1 and is 0.03"):
        pointer(*remote)


def test_an_optimizer_that_counts_its_steps_in_an_attribute_is_refused() -> None:
    pair = _rated(every=5)
    with pytest.raises(sy.exceptions.CannotRecord, match="it keeps 'steps' as a Python number"):
        plan_of(train_step, *pair).build(*next(batches((4,))))
    assert pair[1].steps == 0


def test_an_optimizer_in_the_state_under_two_names_is_one(bob: sy.VirtualWorker) -> None:
    (model, optimizer), oracle = duplicates(mlp, optim.SGD, lr=0.1)

    @sy.func2plan(state=(model, optimizer, optimizer))
    def step(x: Tensor, y: Tensor, state: Any) -> Tensor:
        return train_step(*state.read()[:2], x, y)

    for number, (x, y) in enumerate(batches((4,), 3)):
        optimizer.param_groups[0]["lr"] = oracle[1].param_groups[0]["lr"] = 0.1 / (1 + number)
        assert torch.equal(step(x, y), train_step(*oracle, x, y))
        check_same((model, optimizer), oracle)


def test_an_optimizer_of_another_thread_is_left_alone() -> None:
    """It steps while a plan is recorded, and is none of the plan's."""
    pair, oracle = duplicates(mlp, optim.SGD, lr=0.1)
    weight = nn.Parameter(torch.ones(2))
    other, failed = optim.LBFGS([weight]), []

    def elsewhere() -> None:
        try:
            other.step(lambda: (weight * weight).sum())
        except sy.exceptions.CannotRecord as error:
            failed.append(error)

    def step(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> Tensor:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        return train_step(model, optimizer, x, y)

    plan, data = plan_of(step, *pair), next(batches((4,)))
    plan.build(*data)
    assert not failed
    assert torch.equal(plan(*data), train_step(*oracle, *data))
