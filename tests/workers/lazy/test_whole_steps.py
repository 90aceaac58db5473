"""Steps of optimizers that are held as one call: the same bits as torch's, whatever comes
between."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_pre_hook

import syft as sy
from syft.hooks.whole_steps import KnownStep
from tests.workers.lazy.test_lazy_pointers import Pair, Tensor, mlp

KINDS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.1),
    "nesterov": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True),
    "decay": lambda params: torch.optim.SGD(params, lr=0.1, weight_decay=0.01, maximize=True),
    "Adam": lambda params: torch.optim.Adam(params, lr=0.01),
    "amsgrad": lambda params: torch.optim.Adam(params, lr=0.01, amsgrad=True, weight_decay=0.1),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.01),
    "loop": lambda params: torch.optim.Adam(params, lr=0.01, foreach=False),
}
WHOLE = [kind for kind in KINDS if kind != "loop"]
"""Those whose repeated steps are one call."""


@pytest.fixture(params=["immediate", "queued"])
def lazy(request: pytest.FixtureRequest, hook: sy.TorchHook) -> Any:
    return sy.VirtualWorker(hook, id="worker", lazy=True, pipelined=request.param == "queued")


class Counter:
    """How often the code of torch's optimizers runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for kind, name in ((torch.optim.SGD, "sgd"), (torch.optim.Adam, "adam")):
            module = sys.modules[kind.__module__]
            monkeypatch.setattr(module, name, self._counted(getattr(module, name)))

    def _counted(self, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return function(*args, **kwargs)

        return call

    def during(self, run: Callable[[], object]) -> int:
        """How often it runs while a function does."""
        before = self.count
        run()
        return self.count - before


class Known:
    """How many steps were one call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.whole, hold_again = 0, KnownStep.hold_again

        def counted(step: KnownStep, optimizer: torch.optim.Optimizer) -> bool:
            held = hold_again(step, optimizer)
            self.whole += held
            return held

        monkeypatch.setattr(KnownStep, "hold_again", counted)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    return Known(monkeypatch)


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    return Counter(monkeypatch)


def pair_of(worker: Any, kind: str, make: Callable[[], nn.Module] = mlp) -> Pair:
    pair = Pair(worker, make, "SGD")
    pair.ours = KINDS[kind](pair.here.parameters())
    pair.theirs = KINDS[kind](pair.there.parameters())
    return pair


def train(model: Any, optimizer: Any, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


@pytest.mark.parametrize("kind", WHOLE)
def test_repeated_steps_are_one_call(lazy: Any, counter: Counter, kind: str) -> None:
    pair = pair_of(lazy, kind)
    for _ in range(3):
        pair.each(train)
    for _ in range(4):  # the step here is torch's
        assert counter.during(lambda: pair.each(train)) == 1
    pair.check()
    for mine, theirs in zip(pair.ours.state.values(), pair.theirs.state.values(), strict=True):
        assert mine.keys() == theirs.keys()
        assert mine.get("step") == theirs.get("step")


def test_a_loop_over_the_parameters_runs_in_full(lazy: Any, counter: Counter) -> None:
    pair = pair_of(lazy, "loop")
    for _ in range(5):
        assert counter.during(lambda: pair.each(train)) == 2
    pair.check()


# ------------------------------------------------------------------- what may come between steps


def change_rate(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] *= 0.5


def integer_rate(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] = 1


def other_decay(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["weight_decay"] = 0.05


def to_the_other_side(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["maximize"] = not optimizer.param_groups[0]["maximize"]


def forget_state(model: Any, optimizer: Any) -> None:
    optimizer.state.clear()


def forget_some_state(model: Any, optimizer: Any) -> None:
    optimizer.state.pop(next(model.parameters()), None)


def more_steps(model: Any, optimizer: Any) -> None:
    for state in optimizer.state.values():
        if "step" in state:
            state["step"] += 5


def more_steps_of_one(model: Any, optimizer: Any) -> None:
    for state in list(optimizer.state.values())[:1]:
        if "step" in state:
            state["step"] += 1


def load_state(model: Any, optimizer: Any) -> None:
    state = optimizer.state_dict()
    state["param_groups"][0]["lr"] = 0.02
    optimizer.load_state_dict(state)


def write_state(model: Any, optimizer: Any) -> None:
    with torch.no_grad():
        for state in optimizer.state.values():
            for name in ("exp_avg", "momentum_buffer"):
                if state.get(name) is not None:
                    state[name].mul_(0.5)


def write_parameter(model: Any, optimizer: Any) -> None:
    with torch.no_grad():
        model[0].weight.mul_(0.9)


def set_data(model: Any, optimizer: Any) -> None:
    model[0].weight.data = model[0].weight.data * 0.9


def freeze(model: Any, optimizer: Any) -> None:
    model[0].weight.requires_grad_(False)


def thaw(model: Any, optimizer: Any) -> None:
    model[0].weight.requires_grad_(True)


def other_group(model: Any, optimizer: Any) -> None:
    """The last parameter in a group of its own."""
    if len(optimizer.param_groups) == 1:
        last = optimizer.param_groups[0]["params"].pop()
        optimizer.add_param_group({"params": [last], "lr": 0.03})


def step_twice(model: Any, optimizer: Any) -> None:
    optimizer.step()


BETWEEN = [
    change_rate,
    integer_rate,
    other_decay,
    to_the_other_side,
    forget_state,
    forget_some_state,
    more_steps,
    more_steps_of_one,
    load_state,
    write_state,
    write_parameter,
    set_data,
    freeze,
    thaw,
    other_group,
    step_twice,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_whatever_comes_between_the_bits_are_those_of_torch(
    lazy: Any, known: Known, kind: str, seed: int
) -> None:
    draw, pair = random.Random(f"{kind} {seed}"), pair_of(lazy, kind)
    for number in range(30):
        if number > 2 and not draw.randrange(5):
            between = draw.choice(BETWEEN)
            between(pair.here, pair.ours)
            between(pair.there, pair.theirs)
        if not draw.randrange(5):
            pair.batch(number, draw.choice((2, 5)))
        within = draw.choice(WITHIN) if not draw.randrange(3) else None
        pair.each(partial(_step_with, within))
    pair.check()
    assert known.whole == 0 or kind != "loop"


def clip(model: Any) -> None:
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)


def scale_gradients(model: Any) -> None:
    with torch.no_grad():
        for one in model.parameters():
            if one.grad is not None:
                one.grad.mul_(0.5)


def replace_gradient(model: Any) -> None:
    weight = model[2].weight
    weight.grad = torch.ones_like(weight) * 0.1


def drop_gradient(model: Any) -> None:
    model[2].weight.grad = None


def ask(model: Any) -> None:
    assert model[2].weight.sum().item() == model[2].weight.sum().item()


WITHIN: list[Any] = [clip, scale_gradients, replace_gradient, drop_gradient, ask]


def _step_with(within: Any, model: Any, optimizer: Any, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    if within is not None:
        within(model)
    optimizer.step()


# --------------------------------------------------------------------------- who else has a part


def test_hooks_are_called_at_every_step(lazy: Any) -> None:
    pair, seen = pair_of(lazy, "Adam"), []
    for _ in range(4):
        pair.each(train)
    pair.theirs.register_step_pre_hook(lambda *given: seen.append("before"))
    handle = pair.theirs.register_step_post_hook(lambda *given: seen.append("after"))
    for _ in range(3):
        pair.each(train)
    assert seen == ["before", "after"] * 3
    handle.remove()
    pair.each(train)
    assert len(seen) == 7
    pair.check()


def test_a_global_hook_is_called_at_every_step(lazy: Any) -> None:
    pair, seen = pair_of(lazy, "SGD"), []
    for _ in range(4):
        pair.each(train)
    handle = register_optimizer_step_pre_hook(lambda *given: seen.append(given[0]))
    try:
        for _ in range(2):
            pair.each(train)
    finally:
        handle.remove()
    assert len(seen) == 4
    pair.check()


def test_schedulers_count_their_steps(lazy: Any) -> None:
    pair = pair_of(lazy, "Adam")
    schedulers = [torch.optim.lr_scheduler.StepLR(one, 3, 0.5) for one in (pair.ours, pair.theirs)]
    for _ in range(10):
        pair.each(train)
        for scheduler in schedulers:
            scheduler.step()
    assert schedulers[0].get_last_lr() == schedulers[1].get_last_lr()
    pair.check()


class Doubled(torch.optim.SGD):
    """Takes every step twice."""

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        super().step()
        return super().step()


def test_a_class_of_your_own_runs_in_full(lazy: Any, counter: Counter) -> None:
    pair = Pair(lazy, mlp, "SGD")
    pair.ours = Doubled(pair.here.parameters(), lr=0.1)
    pair.theirs = Doubled(pair.there.parameters(), lr=0.1)
    for _ in range(4):
        assert counter.during(lambda: pair.each(train)) == 4
    pair.check()


def test_closures_run(lazy: Any) -> None:
    pair = pair_of(lazy, "momentum")

    def closed(model: Any, optimizer: Any, x: Tensor, y: Tensor) -> None:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimizer.step(closure)

    for _ in range(3):
        pair.each(train)
        pair.each(closed)
    pair.check()


def test_two_optimizers_of_one_model(lazy: Any) -> None:
    pair = pair_of(lazy, "Adam")
    others = KINDS["SGD"](pair.here.parameters()), KINDS["SGD"](pair.there.parameters())
    for _ in range(5):
        pair.each(train)
        train(pair.here, others[0], pair.x, pair.y)
        train(pair.there, others[1], pair.p, pair.q)
    pair.check()


def test_a_copy_of_an_optimizer_has_a_memory_of_its_own(lazy: Any) -> None:
    pair = pair_of(lazy, "momentum")
    for _ in range(4):
        pair.each(train)
    pair.here, pair.ours = copy.deepcopy((pair.here, pair.ours))
    pair.there, pair.theirs = copy.deepcopy((pair.there, pair.theirs))
    for _ in range(3):
        pair.each(train)
    pair.check()


def test_a_step_that_fails_names_its_line(lazy: Any) -> None:
    pair = pair_of(lazy, "SGD")
    for _ in range(4):
        pair.each(train)
    sy.synchronize()
    lazy.core.store.take(pair.theirs.param_groups[0]["params"][3].id_at_location, "a test")
    with pytest.raises(Exception) as caught:
        train(pair.there, pair.theirs, pair.p, pair.q)
        sy.synchronize()
    assert __file__ in "\n".join(caught.value.__notes__)
    del caught


def test_no_pointer_is_kept_by_what_is_known(lazy: Any) -> None:
    pair = pair_of(lazy, "Adam")
    for _ in range(5):
        pair.each(train)
    del pair.there, pair.p, pair.q
    pair.theirs.param_groups.clear()
    pair.theirs.state.clear()
    assert lazy.objects_count() == 0
