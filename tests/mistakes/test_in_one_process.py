"""Mistakes again without a kernel: each is refused by a sentence that says what was given."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import syft as sy
from syft.exceptions import DataStaysPut, SyftError, UnsupportedOperation, UnusableSetting
from syft.hooks.ledger import Ledger
from syft.hooks.short_tracebacks import shorten_tracebacks

Mistake = Callable[[sy.VirtualWorker, sy.VirtualWorker, torch.Tensor], Any]

MISTAKES: dict[str, tuple[Mistake, type[SyftError], str]] = {
    "a function of numpy": (
        lambda alice, bob, x: np.concatenate([x, x]),
        DataStaysPut,
        "numpy",
    ),
    "a column by name": (lambda alice, bob, x: x["age"], UnsupportedOperation, "no columns"),
    "an array of numpy on the left": (
        lambda alice, bob, x: np.ones(2) * x,
        UnsupportedOperation,
        "an array of numpy: make a tensor of it",
    ),
    "a loader of a list": (
        lambda alice, bob, x: sy.FederatedDataLoader([1, 2]),
        UnusableSetting,
        "a FederatedDataset, got a list",
    ),
    "one worker in the place of a list": (
        lambda alice, bob, x: sy.BaseDataset(torch.ones(2), torch.ones(2)).federate("bob"),
        UnusableSetting,
        "a list of workers, got a str",
    ),
    "no optimizer": (
        lambda alice, bob, x: sy.Optims(["bob"], optim=torch.optim.Adam),
        UnusableSetting,
        "an optimizer, as torch.optim.Adam",
    ),
    "half a digit": (
        lambda alice, bob, x: torch.ones(1).fix_precision(precision_fractional=1.5),
        UnusableSetting,
        "a number of digits, got 1.5",
    ),
    "the truth of two workers": (
        lambda alice, bob, x: bool(sy.combine_pointers(torch.zeros(1).send(alice), x[:1])),
        UnsupportedOperation,
        "each worker has one of its own",
    ),
    "torch as the hook": (
        lambda alice, bob, x: sy.VirtualWorker(torch, id="carol"),
        UnusableSetting,
        "what sy.TorchHook.torch. gives, got a module",
    ),
    "a number as a worker": (
        lambda alice, bob, x: bob.add_worker(3),
        UnusableSetting,
        "a worker, got a int",
    ),
    "a tensor as a data set": (
        lambda alice, bob, x: bob.add_dataset(torch.ones(2), key="ages"),
        UnusableSetting,
        "a sy.BaseDataset",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_by_a_sentence(
    name: str, alice: sy.VirtualWorker, bob: sy.VirtualWorker
) -> None:
    make, error, words = MISTAKES[name]
    x = torch.ones(2).send(bob)
    with pytest.raises(error, match=words):
        make(alice, bob, x)


def test_numbers_and_shapes_of_numpy_are_taken(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    assert torch.equal((np.array(2.0) * x).get(), torch.full((2,), 2.0))
    assert np.shape(x) == (2,)


def test_a_warning_of_torchs_at_a_worker_names_the_line_of_the_user(bob: sy.VirtualWorker) -> None:
    x, y = torch.ones(2).send(bob), torch.ones(2, 1).send(bob)
    shown: list[Any] = []
    ledger = Ledger()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *given: shown.append(given)
        shorten_tracebacks(ledger)
        try:
            torch.nn.functional.mse_loss(x, y)
            warnings.warn("my own", stacklevel=1)
        finally:
            ledger.undo()
    assert [(str(given[0])[:20], given[2]) for given in shown] == [
        ("Using a target size ", __file__),
        ("my own", __file__),
    ]


def test_warnings_are_shown_by_keywords_too(hook: sy.TorchHook) -> None:
    """What shows warnings while torch is hooked takes what ``warnings.showwarning`` takes."""
    shown: list[Any] = []
    ledger = Ledger()
    with warnings.catch_warnings():
        warnings.showwarning = lambda *given: shown.append(given)
        shorten_tracebacks(ledger)
        try:
            about = {"category": UserWarning, "filename": "train.py", "lineno": 3}
            warnings.showwarning("my own", **about)
            warnings.showwarning("mine", line="x = 1", file=None, **about)
        finally:
            ledger.undo()
    assert shown == [
        ("my own", UserWarning, "train.py", 3, None, None),
        ("mine", UserWarning, "train.py", 3, None, "x = 1"),
    ]


def test_settings_of_shares_that_are_no_more_are_told(
    alice: sy.VirtualWorker, bob: sy.VirtualWorker, hook: sy.TorchHook
) -> None:
    with pytest.warns(UserWarning, match="leave out field= and dtype="):
        shared = torch.tensor([1]).share(alice, bob, crypto_provider=hook.local_worker, field=257)
    assert shared.get().tolist() == [1]
