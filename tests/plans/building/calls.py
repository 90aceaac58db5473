"""Functions with arguments of every structure, and the interfaces made from calls of them."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch

from syft.plans.building.interface import Interface, interface_of, signature_of

X, Y = torch.ones(2), torch.zeros(3)
Pair = namedtuple("Pair", "left right")


def interface(function: Any, *args: Any, **kwargs: Any) -> Interface:
    return interface_of("f", signature_of(function), args, kwargs)


def two(x: Any, y: Any = 2.0, *, flag: bool = True) -> Any:
    return x, y, flag


def many(x: Any, *rest: Any, scale: float = 1.0, **more: Any) -> Any:
    return x, rest, scale, more


CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (two, (X,), {}),
    (two, (X, 3.5), {}),
    (two, (), {"y": 1.5, "x": X}),
    (two, ([X, (Y, None)],), {"flag": False}),
    (two, ({"a": X, "b": {"c": [1, 2.0]}},), {}),
    (two, (Pair(X, 3),), {}),
    (two, (slice(X, None, 2),), {}),
    (two, ("text", None), {}),
    (many, (X, Y, 3), {"scale": 0.5, "other": Y}),
    (many, (X,), {}),
    (lambda: (), (), {}),
]
