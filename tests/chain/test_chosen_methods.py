"""The names of approximations that earlier versions had, on every kind of tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.chain.chosen_methods import KNOWN
from tests.chain.refusal import refusal

X = torch.tensor([0.5, 1.25])
NAMES = [(function, name) for function, names in KNOWN.items() for name in (*names, None)]


def kinds(hook: sy.TorchHook) -> dict[str, tuple[torch.Tensor, Callable[[Any], torch.Tensor]]]:
    """A tensor of each kind, and what decodes the results."""
    bob, alice, carol = (sy.VirtualWorker(hook, id=id) for id in ("bob", "alice", "carol"))
    fixed = X.fix_precision()
    return {
        "fixed": (fixed, lambda y: y.float_prec()),
        "shared": (fixed.share(bob, alice, crypto_provider=carol), lambda y: y.get().float_prec()),
        "pointer": (X.send(bob), lambda y: y.get()),
        "pointer to fixed": (X.send(bob).fix_precision(), lambda y: y.get().float_prec()),
        "logged": (sy.LoggingTensor().on(X.clone()), lambda y: y.child.child),
    }


@pytest.mark.parametrize(("function", "name"), NAMES)
def test_known_names_mean_the_one_way(hook: sy.TorchHook, function: str, name: str | None) -> None:
    expected = getattr(torch, function)(X)
    settings = {} if name is None else {"method": name}
    for kind, (x, decoded) in kinds(hook).items():
        result = decoded(getattr(x, function)(**settings))
        assert torch.allclose(result, expected, atol=1e-4), kind


@pytest.mark.parametrize("function", KNOWN)
def test_unknown_names_are_refused_with_the_list(hook: sy.TorchHook, function: str) -> None:
    for x, _ in kinds(hook).values():
        assert refusal(lambda x=x: getattr(x, function)(method="guess")) == (
            f"UnusableSetting: method= of {function} must be one of {', '.join(KNOWN[function])} "
            "(all of which mean the same), or left out, got 'guess'."
        )
