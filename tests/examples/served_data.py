"""A worker behind a socket with data that clients in other languages look for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

import syft as sy

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32),
    *(torch.uint64, torch.complex64, torch.complex128),
)

TENSORS: dict[str, torch.Tensor] = {
    **{f"#{str(dtype)[6:]}": torch.tensor([0, 1, 3, 100]).to(dtype) for dtype in DTYPES},
    "#negative": torch.tensor([-1.5, 2.25, float("inf")]),
    "#bytes": torch.tensor([-128, -1, 127], dtype=torch.int8),
    "#scalar": torch.tensor(7),
    "#empty": torch.zeros(3, 0, 2),
    "#matrix": torch.arange(12.0).reshape(3, 4),
    "#transposed": torch.arange(12.0).reshape(4, 3).t(),
    "#expanded": torch.arange(3).expand(2, 3),
    "#zeros": torch.zeros(5000),
    "#repeated": torch.arange(40_000) % 1000,
    "#noise": torch.rand(20_000, generator=torch.Generator().manual_seed(3)),
}
"""What the worker holds, by tag.  Some of it travels compressed, some in several reads."""


@contextmanager
def serving(hook: sy.TorchHook, **settings: Any) -> Iterator[sy.WebsocketServerWorker]:
    """A worker ``bob`` that holds :data:`TENSORS`."""
    settings = {"port": 0, "id": "bob", **settings}
    with sy.WebsocketServerWorker(hook, **settings) as server:
        held: list[Any] = [
            tensor.clone(memory_format=torch.preserve_format) for tensor in TENSORS.values()
        ]
        for tag, tensor in zip(TENSORS, held, strict=True):
            tensor.tag("#data", tag).describe(f"data for {tag}")
        server.hold(*held)
        secret: Any = torch.tensor([42.0]).tag("#secret")
        server.hold(secret.private_tensor(allowed_users=("ann",)))
        yield server


@sy.func2plan()
def mean(x: Any) -> Any:
    """The means of the columns."""
    return x.mean(0)


@sy.func2plan()
def extremes(x: Any, y: Any) -> Any:
    """Two tensors and a number."""
    return x.amin(0), y.amax(), x.shape[0]


def put_plans(hook: sy.TorchHook, server: sy.WebsocketServerWorker) -> Any:
    """A client that has put plans at the worker, and keeps them there until it is closed."""
    client = sy.WebsocketClientWorker(hook, port=server.port, id="bob")
    mean.build(torch.ones(3, 4))
    extremes.build(torch.ones(3, 4), torch.ones(3))
    client.plans = [
        plan.send(client).tag(tag)  # type: ignore[attr-defined]
        for plan, tag in ((mean, "#mean"), (extremes, "#extremes"))
    ]
    return client
