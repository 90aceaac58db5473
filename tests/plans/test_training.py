"""A whole training step as one plan computes what plain PyTorch computes, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim

import syft as sy
from tests.plans.training import (
    MODELS,
    Tensor,
    batches,
    check_same,
    check_training,
    duplicates,
    mlp,
    plan_of,
    tensors_of,
    train_step,
)

OPTIMIZERS: list[tuple[str, Callable[..., optim.Optimizer], dict[str, Any]]] = [
    ("SGD", optim.SGD, {"lr": 0.1}),
    ("SGD, decay", optim.SGD, {"lr": 0.1, "weight_decay": 0.01, "maximize": True}),
    ("momentum", optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    ("momentum, foreach", optim.SGD, {"lr": 0.1, "momentum": 0.9, "foreach": True}),
    ("momentum, fused", optim.SGD, {"lr": 0.1, "momentum": 0.9, "fused": True}),
    ("nesterov", optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", optim.Adam, {}),
    ("Adam, amsgrad", optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    ("Adam, foreach", optim.Adam, {"foreach": True}),
    ("Adam, foreach, amsgrad", optim.Adam, {"foreach": True, "amsgrad": True}),
    ("Adam, fused", optim.Adam, {"fused": True}),
    ("Adam, fused, amsgrad", optim.Adam, {"fused": True, "amsgrad": True}),
    ("Adam, tensor lr", optim.Adam, {"lr": torch.tensor(0.01)}),
    ("AdamW", optim.AdamW, {"lr": 0.01}),
    ("AdamW, foreach", optim.AdamW, {"lr": 0.01, "foreach": True}),
    ("AdamW, fused", optim.AdamW, {"lr": 0.01, "fused": True}),
    ("RMSprop", optim.RMSprop, {}),
    ("RMSprop, centered", optim.RMSprop, {"momentum": 0.5, "centered": True}),
    ("RMSprop, foreach", optim.RMSprop, {"momentum": 0.5, "foreach": True}),
    ("Adagrad", optim.Adagrad, {"lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    ("Adagrad, foreach", optim.Adagrad, {"foreach": True, "lr_decay": 0.1}),
    ("Adagrad, fused", optim.Adagrad, {"fused": True, "lr_decay": 0.1}),
    ("Adadelta", optim.Adadelta, {"weight_decay": 0.1}),
    ("Adadelta, foreach", optim.Adadelta, {"foreach": True}),
    ("Adamax", optim.Adamax, {}),
    ("Adamax, foreach", optim.Adamax, {"foreach": True}),
    ("NAdam", optim.NAdam, {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("NAdam, foreach", optim.NAdam, {"foreach": True}),
    ("Rprop", optim.Rprop, {}),
    ("Rprop, foreach", optim.Rprop, {"foreach": True}),
    ("Muon", optim.Muon, {}),
]


@pytest.mark.parametrize(
    "kind, options", [case[1:] for case in OPTIMIZERS], ids=[case[0] for case in OPTIMIZERS]
)
def test_every_optimizer(kind: Callable[..., optim.Optimizer], options: dict[str, Any]) -> None:
    pair, oracle = duplicates(lambda: mlp(bias=kind is not optim.Muon), kind, **options)
    check_training(train_step, pair, oracle, batches((4,)))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "kind, options",
    [(optim.SGD, {"lr": 0.1, "momentum": 0.9}), (optim.AdamW, {"lr": 0.01})],
    ids=["SGD", "AdamW"],
)
def test_every_model(name: str, kind: Callable[..., optim.Optimizer], options: Any) -> None:
    make, shape = MODELS[name]
    pair, oracle = duplicates(make, kind, **options)
    check_training(train_step, pair, oracle, batches(shape))


class Words(nn.Module):
    """Word vectors, and a classifier that may share its weights with them."""

    def __init__(self, sparse: bool = False, tied: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6, sparse=sparse)
        self.head = nn.Linear(6, 11, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.words(x).mean(dim=1))


@pytest.mark.parametrize("options", [{}, {"tied": True}, {"sparse": True}], ids=str)
def test_word_vectors(options: dict[str, bool]) -> None:
    pair, oracle = duplicates(lambda: Words(**options), optim.SGD, lr=0.1)
    dice = torch.Generator().manual_seed(0)
    data = [
        (
            torch.randint(11, (4, 3), generator=dice),
            torch.randint(11, (4,), generator=dice),
        )
        for _ in range(6)
    ]
    check_training(train_step, pair, oracle, data)


def test_a_layer_that_counts_in_python_is_noticed() -> None:
    """With momentum=None, batch norm divides by how many batches there were."""
    pair, _ = duplicates(
        lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=None)), optim.SGD, lr=0.1
    )
    with pytest.warns(sy.exceptions.FrozenPath, match=r"training.py:\d+: torch.Tensor.__float__"):
        plan_of(train_step, *pair).build(*next(batches((4,))))


# -------------------------------------------------------------- other inputs than it was built with


def test_the_last_batch_is_smaller() -> None:
    for name in ("mlp", "cnn", "lstm", "transformer"):
        make, shape = MODELS[name]
        pair, oracle = duplicates(make, optim.Adam)
        data = [*batches(shape, 3), *batches(shape, 1, size=3), *batches(shape, 1, size=11)]
        check_training(train_step, pair, oracle, data)


def test_the_learning_rate_is_an_argument() -> None:
    def step(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor, lr: float) -> Tensor:
        for group in optimizer.param_groups:
            group["lr"] = lr
        return train_step(model, optimizer, x, y)

    for kind, options in [
        (optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (optim.Adam, {"foreach": True}),
        (optim.AdamW, {"fused": True}),
        (optim.NAdam, {}),
        (optim.Adagrad, {"lr_decay": 0.1}),
    ]:
        pair, oracle = duplicates(mlp, kind, **options)
        before = pair[1].param_groups[0]["lr"]

        @sy.func2plan(state=pair)
        def training(x: Tensor, y: Tensor, lr: float, state: Any) -> Tensor:
            return step(*state.read(), x, y, lr)

        for number, (x, y) in enumerate(batches((4,))):
            lr = 0.1 * 0.8**number
            assert torch.equal(training(x, y, lr=lr), step(*oracle, x, y, lr))
        check_same(pair, oracle)
        assert pair[1].param_groups[0]["lr"] == before
        assert type(pair[1].param_groups[0]["lr"]) is type(before)


def test_a_learning_rate_in_a_tensor_is_state() -> None:
    rates = [torch.tensor(0.1), torch.tensor(0.1)]
    pair, oracle = duplicates(mlp, optim.SGD, lr=rates[0], momentum=0.9)
    plan = plan_of(train_step, *pair)
    for number, (x, y) in enumerate(batches((4,), 5)):
        for _, optimizer in (pair, oracle):
            optimizer.param_groups[0]["lr"].fill_(0.1 / (1 + number))
        assert torch.equal(plan(x, y), train_step(*oracle, x, y))
    check_same(pair, oracle)


# --------------------------------------------------------------------------------------- randomness


def test_without_a_seed_every_step_drops_others() -> None:
    pair, _ = duplicates(MODELS["dropout"][0], optim.SGD, lr=0.0)
    plan = plan_of(train_step, *pair)
    ((x, y),) = batches((4,), 1)
    assert len({float(plan(x, y)) for _ in range(10)}) > 5


def test_building_takes_no_random_numbers() -> None:
    pair, _ = duplicates(MODELS["dropout"][0], optim.SGD, lr=0.1)
    plan = plan_of(train_step, *pair)
    ((x, y),) = batches((4,), 1)
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    plan.build(x, y)
    assert torch.equal(torch.rand(4), expected)


# ----------------------------------------------------------------------------- what building leaves


@pytest.mark.parametrize("name", MODELS)
def test_building_changes_nothing(name: str) -> None:
    make, shape = MODELS[name]
    pair, oracle = duplicates(make, optim.Adam)
    for model, optimizer in (pair, oracle):
        for x, y in batches(shape, 2):
            torch.manual_seed(0)
            train_step(model, optimizer, x, y)
    before = [parameter.grad for parameter in pair[0].parameters()]
    values = [grad.clone() for grad in before]
    cells = list(tensors_of(*pair).values())
    plan = plan_of(train_step, *pair)
    plan.build(*next(batches(shape)))
    check_same(pair, oracle)
    assert all(a is b for a, b in zip(cells, tensors_of(*pair).values(), strict=True)) or all(
        a.data_ptr() == b.data_ptr() for a, b in zip(cells, tensors_of(*pair).values(), strict=True)
    )
    after = [parameter.grad for parameter in pair[0].parameters()]
    assert all(new is old for new, old in zip(after, before, strict=True))
    assert all(map(torch.equal, after, values))


def test_before_the_first_step_building_leaves_only_empty_state() -> None:
    pair, oracle = duplicates(mlp, optim.Adam)
    plan_of(train_step, *pair).build(*next(batches((4,))))
    assert all(parameter.grad is None for parameter in pair[0].parameters())
    assert all(not value.any() for key, value in tensors_of(*pair).items() if key[2:] in STATE)
    for name, value in pair[0].state_dict().items():
        assert torch.equal(value, oracle[0].state_dict()[name])
    for x, y in batches((4,), 3):  # and training goes on without the plan
        assert torch.equal(train_step(*pair, x, y), train_step(*oracle, x, y))
    check_same(pair, oracle)


STATE = {"step", "exp_avg", "exp_avg_sq"}


def test_plan_and_plain_steps_take_turns() -> None:
    pair, oracle = duplicates(mlp, optim.Adam)
    plan = plan_of(train_step, *pair)
    for number, (x, y) in enumerate(batches((4,))):
        expected = train_step(*oracle, x, y)
        got = plan(x, y) if number % 2 else train_step(*pair, x, y)
        assert torch.equal(got, expected)
    check_same(pair, oracle)


@pytest.mark.parametrize(
    "kind, options",
    [(optim.SGD, {"lr": 0.1, "momentum": 0.9}), (optim.Adam, {})],
    ids=["SGD", "Adam"],
)
def test_a_closure_needs_no_state(kind: Callable[..., optim.Optimizer], options: Any) -> None:
    """Model and optimizer are found where the function uses them."""
    pair, oracle = duplicates(MODELS["cnn"][0], kind, **options)

    @sy.func2plan()
    def training(x: Tensor, y: Tensor) -> Tensor:
        return train_step(*pair, x, y)

    for x, y in batches(MODELS["cnn"][1]):
        assert torch.equal(training(x, y), train_step(*oracle, x, y))
    check_same(pair, oracle)


def test_a_built_plan_does_not_call_the_function_again() -> None:
    calls = []

    def step(*arguments: Any) -> Tensor:
        calls.append(1)
        return train_step(*arguments)

    pair, _ = duplicates(mlp, optim.Adam)
    plan = plan_of(step, *pair)
    ((x, y),) = batches((4,), 1)
    plan.build(x, y)
    calls.clear()
    plan(x, y)
    assert not calls
