"""Images of many clients in another layout, compared with torch's own way."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import vmap
from torch.nn import functional as F

import syft as sy
from syft.federated.stacked_clients import FastImages

SETTINGS: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": (2, 3), "stride": (1, 2), "padding": (1, 0)},
    {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2},
    {"kernel_size": 2, "stride": 2, "ceil_mode": True},
]


def images(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Images of three clients, with many equal numbers."""
    torch.manual_seed(0)
    return torch.randint(-2, 3, (3, 2, 4, 9, 7)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: " ".join(settings))
@pytest.mark.parametrize("clients", [0, 2, None])
def test_a_pool_is_the_same_to_the_bit(
    dtype: torch.dtype, settings: dict[str, Any], clients: int | None
) -> None:
    """Of equal numbers the same one gets the gradient, whichever dimension the clients are."""

    def pool(x: torch.Tensor) -> Any:
        return F.max_pool2d(x, **settings)

    x = images(dtype)
    x = x[0] if clients is None else x.movedim(0, clients)
    there, here = x.clone().requires_grad_(), x.clone().requires_grad_()
    run = pool if clients is None else vmap(pool, in_dims=clients, out_dims=clients)
    expected = run(there)
    with FastImages():
        found = run(here)
    weights = torch.randn_like(expected)
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    assert torch.equal(found, expected) and torch.equal(here.grad, there.grad)  # type: ignore


@pytest.mark.parametrize("relu", [F.relu, torch.relu, torch.Tensor.relu], ids=["F", "torch", "x"])
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: " ".join(settings))
def test_a_pool_of_a_relu_is_the_same_to_the_bit(settings: dict[str, Any], relu: Any) -> None:
    """Zeros are where no number is positive, and they have no gradient."""

    def pool(x: torch.Tensor) -> Any:
        return F.max_pool2d(relu(x), **settings)

    check_same(pool, images() - 1)
    check_same(pool, images()[:, 0])


def check_same(run: Any, x: torch.Tensor) -> None:
    """A function of a client's images, and its gradient, are the same to the bit."""
    there, here = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected = vmap(run)(there)
    with FastImages():
        found = vmap(run)(here)
    weights = torch.randn_like(expected)
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    assert torch.equal(found, expected) and torch.equal(here.grad, there.grad)  # type: ignore


@pytest.mark.parametrize(
    "between",
    [
        lambda before, after: F.relu(before + 1),
        lambda before, after: before.add_(3) * 0 + after,
        lambda before, after: F.max_pool2d(input=after, kernel_size=1),
        lambda before, after: before.sub_(1).relu_(),
    ],
    ids=["another", "changed", "by name", "in place"],
)
def test_a_relu_counts_only_right_before_the_pool(between: Any) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        before = x * 1
        return F.max_pool2d(between(before, F.relu(before)), 2)

    check_same(run, images())


def test_a_relu_that_was_changed_or_is_of_something_else_does_not_count() -> None:
    x = images()[0]
    with FastImages():
        changed = F.relu(x)
        changed.mul_(-1)
        assert torch.equal(F.max_pool2d(changed, 2), F.max_pool2d(-x.relu(), 2))
        F.relu(x)
        assert torch.equal(F.max_pool2d(changed, 2), F.max_pool2d(-x.relu(), 2))


def test_what_went_into_a_relu_is_not_changed() -> None:
    x = images()[0]
    with FastImages():
        after = F.relu(x)
        found = F.max_pool2d(after, 2)
    assert torch.equal(x, images()[0]) and torch.equal(after, x.relu())
    assert torch.equal(found, F.max_pool2d(x.relu(), 2))
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_what_is_no_number_is_passed_on() -> None:
    x = images()
    x[0, 0, 0, 0, 1] = math.nan
    with FastImages():
        found = vmap(lambda image: torch.max_pool2d(image, 2))(x)
    assert torch.equal(found.isnan(), F.max_pool2d(x.flatten(0, 1), 2).view_as(found).isnan())


def test_a_view_may_be_taken_of_any_layout() -> None:
    with FastImages():
        pooled = F.max_pool2d(images()[0], 2)
        found = vmap(lambda x: F.max_pool2d(x, 2).view(2, -1))(images())
        assert pooled.view(torch.int32).dtype is torch.int32
        assert torch.equal(pooled.view((2, -1)), F.max_pool2d(images()[0], 2).flatten(1))
    assert pooled.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found, F.max_pool2d(images().flatten(0, 1), 2).reshape(3, 2, -1))


def test_what_is_no_batch_of_images_is_torchs_own() -> None:
    x = images()[0]
    with FastImages():
        assert torch.equal(F.max_pool2d(x[0], 2), F.max_pool2d(x, 2)[0])
        assert F.max_pool2d(x.bfloat16(), 2).dtype is torch.bfloat16
        values, places = F.max_pool2d(x, 2, return_indices=True)
        assert torch.equal(F.max_pool2d(F.relu(x[0]), 2), F.max_pool2d(x.relu(), 2)[0])
        assert F.conv2d(x[0], torch.ones(1, 4, 3, 3)).shape == (1, 7, 5)
        assert F.conv2d(x, torch.ones(1, 4, 3, 3), padding="same").shape == x[:, :1].shape
    assert torch.equal(values, F.max_pool2d(x, 2)) and places.dtype is torch.int64


CONVOLUTIONS: list[dict[str, Any]] = [
    {},
    {"stride": 2, "padding": (1, 0)},
    {"dilation": (1, 2), "groups": 2},
]


@pytest.mark.parametrize("dims", [(0, 0, 0), (2, 1, None), (None, 0, 0), (1, None, None)], ids=str)
@pytest.mark.parametrize("settings", CONVOLUTIONS, ids=lambda settings: " ".join(settings) or "-")
@pytest.mark.parametrize("biased", [True, False])
def test_a_convolution_is_that_of_each_client(
    dims: tuple[int | None, ...], settings: dict[str, Any], biased: bool
) -> None:
    """The weights of some layers may be the same for all clients, as may their images."""
    torch.manual_seed(0)
    groups = settings.get("groups", 1)
    shapes = (2, 4, 9, 7), (6, 4 // groups, 3, 2), (6,)
    parts = [
        (
            torch.randn(*shape, dtype=torch.float64)
            if dim is None
            else torch.randn(3, *shape, dtype=torch.float64).movedim(0, dim)
        )
        for shape, dim in zip(shapes, dims, strict=True)
    ]
    here, there = ([part.clone().requires_grad_() for part in parts] for _ in range(2))

    def run(x: Any, weight: Any, bias: Any) -> Any:
        return F.conv2d(x, weight, bias if biased else None, **settings)

    with FastImages():
        found = vmap(run, in_dims=dims)(*here)
    own = [
        [part if dim is None else part.select(dim, client) for part, dim in zip(there, dims)]
        for client in range(3)
    ]
    expected = torch.stack([run(*parts) for parts in own])
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()  # type: ignore[no-untyped-call]
    for mine, other in zip(here[: 2 + biased], there, strict=False):
        torch.testing.assert_close(mine.grad, other.grad)


def test_no_gradient_is_found_that_nobody_asks_for() -> None:
    x, weight = images(torch.float64), torch.ones(3, 2, 4, 3, 3, dtype=torch.float64)
    weight.requires_grad_()
    with FastImages():
        found = vmap(F.conv2d)(x, weight)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is None and weight.grad is not None
    merged = found.movedim(0, 1).flatten(1, 2)
    assert merged.is_contiguous(memory_format=torch.channels_last)


class Viewing(nn.Module):
    """A model that asks for the usual layout of a convolution."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 2, 3, dtype=dtype), nn.Linear(72, 3, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.first(x).view(len(x), -1).relu())
        return out


class Striding(Viewing):
    """A model that works in the usual layout of a convolution alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.first(x)
        assert out.stride(-1) == 1
        return self.last(out.flatten(1).relu())  # type: ignore[no-any-return]


def pooling(dtype: torch.dtype) -> nn.Module:
    """Two layers of convolution and pooling."""
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    more = [nn.Conv2d(4, 3, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)]
    return nn.Sequential(*layers, *more).to(dtype)


@pytest.mark.parametrize("dtype, most", [(torch.float32, 1e-4), (torch.float64, 1e-10)])
@pytest.mark.parametrize("make, fast", [(Striding, False), (Viewing, True), (pooling, True)])
def test_clients_together_are_as_clients_one_by_one(
    make: Any, fast: bool, dtype: torch.dtype, most: float
) -> None:
    torch.manual_seed(0)
    data = [(torch.randn(6, 1, 8, 8, dtype=dtype), torch.arange(6) % 3) for _ in range(5)]
    results: list[list[torch.Tensor]] = []
    for at_once in (None, None, 1):
        torch.manual_seed(1)
        model, sgd = make(dtype), lambda own: torch.optim.SGD(own, lr=0.1, momentum=0.9)
        clients = sy.SimulatedClients(
            model, data, F.cross_entropy, sgd, batch_size=2, clients_at_once=at_once
        )
        for _ in range(3):
            clients.round()
        assert at_once or (clients.obstacle == "" and clients._fast is fast)
        results.append([parameter.detach() for parameter in model.parameters()])
    for first, again, alone in zip(*results, strict=True):
        assert torch.equal(first, again)
        torch.testing.assert_close(first, alone, rtol=most, atol=most)


def test_images_are_convolved_for_as_many_clients_as_fit() -> None:
    def most(side: int, clients: int, model: nn.Module, batch_size: int = 10) -> int:
        data = [(torch.zeros(10, 1, side, side), torch.zeros(10).long()) for _ in range(clients)]
        sgd: Any = torch.optim.SGD
        made = sy.SimulatedClients(model, data, F.cross_entropy, sgd, batch_size=batch_size)
        return made._size_of_chunk(0)

    assert most(8, 2, nn.Conv2d(1, 8, 3)) == 128
    assert most(28, 2, nn.Conv2d(1, 8, 3)) == 41
    assert most(28, 2, nn.Sequential(nn.Conv2d(1, 32, 3), nn.Conv2d(32, 1, 3))) == 10
    assert most(256, 2, nn.Conv2d(1, 8, 3)) == 4
    assert most(28, 2, nn.Conv2d(1, 8, 3), batch_size=1000) == 41  # of ten samples
    assert most(28, 2, nn.Linear(28, 1)) == 128
