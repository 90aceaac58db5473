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
from syft.federated.stacked_images import ChannelsLast, FastImages

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

    def pool(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x, **settings)

    x = images(dtype)
    x = x[0] if clients is None else x.movedim(0, clients)
    there, here = x.clone().requires_grad_(), x.clone().requires_grad_()
    run = pool if clients is None else vmap(pool, in_dims=clients, out_dims=clients)
    expected = run(there)
    with FastImages():
        found = run(here)
    weights = torch.randn_like(expected)
    (expected * weights).sum().backward()  # type: ignore[no-untyped-call]
    (found * weights).sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(found, expected) and torch.equal(here.grad, there.grad)  # type: ignore


def test_what_is_no_number_is_passed_on() -> None:
    x = images()
    x[0, 0, 0, 0, 1] = math.nan
    with FastImages():
        found = vmap(lambda image: torch.max_pool2d(image, 2))(x)
    assert torch.equal(found.isnan(), F.max_pool2d(x.flatten(0, 1), 2).view_as(found).isnan())


def test_a_pool_has_the_usual_layout() -> None:
    with FastImages():
        assert F.max_pool2d(images()[0], 2).is_contiguous()
        found = vmap(lambda x: F.max_pool2d(x, 2).view(2, -1))(images())
    assert found.shape == (3, 2, 4 * 4 * 3)


def test_what_is_no_batch_of_images_is_torchs_own() -> None:
    x = images()[0]
    with FastImages():
        assert torch.equal(F.max_pool2d(x[0], 2), F.max_pool2d(x, 2)[0])
        assert F.max_pool2d(x.bfloat16(), 2).dtype is torch.bfloat16
        values, places = F.max_pool2d(x, 2, return_indices=True)
        assert F.conv2d(x[0], torch.ones(1, 4, 3, 3)).shape == (1, 7, 5)
    assert torch.equal(values, F.max_pool2d(x, 2)) and places.dtype is torch.int64


def test_channels_last_are_the_same_numbers() -> None:
    x = images().requires_grad_()
    found = vmap(ChannelsLast.apply)(x)
    assert torch.equal(found, x)
    merged = found.movedim(0, 1).flatten(1, 2)
    assert merged.is_contiguous(memory_format=torch.channels_last)
    (found * 3).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 3.0))  # type: ignore[arg-type]


class Viewing(nn.Module):
    """A model that needs the usual layout of a convolution."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 2, 3, dtype=dtype), nn.Linear(72, 3, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.first(x).view(len(x), -1).relu())
        return out


def pooling(dtype: torch.dtype) -> nn.Module:
    """Two layers of convolution and pooling."""
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    more = [nn.Conv2d(4, 3, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)]
    return nn.Sequential(*layers, *more).to(dtype)


@pytest.mark.parametrize("dtype, most", [(torch.float32, 1e-4), (torch.float64, 1e-10)])
@pytest.mark.parametrize("make, fast", [(Viewing, False), (pooling, True)])
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
    def most(side: int, clients: int, model: nn.Module) -> int:
        data = [(torch.zeros(10, 1, side, side), torch.zeros(10).long()) for _ in range(clients)]
        sgd: Any = torch.optim.SGD
        made = sy.SimulatedClients(model, data, F.cross_entropy, sgd, batch_size=10)
        return made._size_of_chunk(0)

    assert most(8, 2, nn.Conv2d(1, 1, 3)) == 128
    assert most(28, 2, nn.Conv2d(1, 1, 3)) == 10
    assert most(256, 2, nn.Conv2d(1, 1, 3)) == 10
    assert most(28, 2, nn.Linear(28, 1)) == 128
