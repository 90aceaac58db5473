"""Honest programs on private data run, or are refused with a reason; what they come to is right.

The caller may not read the data.  An admitted user reads the results, which are those of torch.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import PermissionDenied
from syft.ops.forms import FORMS
from syft.ops.table import flags_of, name_of
from syft.workers.execution.moved_memory import NoHoldings
from syft.workers.execution.private_commands import run_guarded
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import protect
from tests.privacy.honest_programs import PROGRAMS, Data

_NO_BOUND = "a private size without a public bound"
_READS = "an operation that reads its value"
_WAYS = (
    r"^torch\.[\w.]+ of private argument (\w|, )+, an? .*; or be admitted, .* or ask the owner\.$"
)
"""What each refusal says: the operation, the argument, and what to do."""

REFUSED: dict[str, str] = {
    "regression_by_lbfgs": _READS,
    "packed_sequences": _NO_BOUND,
}
"""The programs that are refused, and what the error says of it.  The list may only shrink."""


def _values() -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(3)
    x = torch.randn(24, 4, generator=g)
    holes = x.clone()
    holes[::5, 1] = float("nan")
    return {
        "x": x,
        "y": torch.randint(3, (24,), generator=g),
        "target": x @ torch.tensor([1.0, -1.0, 0.5, 2.0]) + 0.1,
        "mask": torch.arange(24) % 3 != 0,
        "holes": holes,
        "images": torch.randn(24, 1, 8, 8, generator=g),
        "words": torch.randint(10, (24, 5), generator=g),
    }


def _read(value: Any, user: str | None) -> Any:
    if isinstance(value, (list, tuple)):
        return [_read(item, user) for item in value]
    return value if user is None else value.copy().get(user=user)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_honest_program_runs_or_is_refused(name: str, hook: sy.TorchHook) -> None:
    torch.manual_seed(5)
    wanted = _read(PROGRAMS[name](Data(**_values(), there=lambda value: value)), None)
    bob = sy.VirtualWorker(hook, id="bob")
    torch.manual_seed(5)
    private: dict[str, Any] = {
        key: value.private_tensor(["ann"]).send(bob, user="ann") for key, value in _values().items()
    }
    data = Data(**private, there=lambda value: value.send(bob))
    refused = ""
    try:
        result = PROGRAMS[name](data)
    except PermissionDenied as error:
        refused = str(error)
    assert bool(refused) == (name in REFUSED) and REFUSED.get(name, "") in refused, refused
    if refused:
        assert re.search(_WAYS, refused)
        assert name != "regression_by_lbfgs" or "torch.optim.LBFGS" in refused
        return
    with pytest.raises(PermissionDenied):
        _read(result, "eve")
    got = _read(result, "ann")
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_the_bar() -> None:
    assert len(PROGRAMS) == 75 and REFUSED.keys() <= PROGRAMS.keys()
    assert len(PROGRAMS) - len(REFUSED) >= 73


_CALLS: dict[str, tuple[Any, ...]] = {
    "bincount": (torch.ones(3, dtype=torch.int64),),
    "cov": (torch.ones(2, 2),),
    "corrcoef": (torch.ones(2, 2, 2),),
    "histogram": (torch.ones(3, requires_grad=True), 3),
    "histogramdd": (torch.ones(3, 2, requires_grad=True), 3),
    "lstsq": (torch.ones(2, 2, 2), torch.ones(2, 2, 2)),
}
_WORSE: dict[str, dict[str, Any]] = {
    "cov": {"fweights": torch.tensor([1.0, 2.0])},
    "lstsq": {"driver": "gelsd"},
}
"""Calls of what has a form for which it has none."""
_FOR_SHAPES = {"corrcoef": "two or fewer dimensions", "cov": "to have integral dtype"}
"""What only fails for shapes and dtypes, which everybody is told."""


@pytest.mark.parametrize("function", FORMS)
def test_a_refusal_says_what_a_form_needs(function: Any) -> None:
    name = name_of(function).rpartition(".")[2]
    args, kwargs = list(_CALLS[name]), _WORSE.get(name, {})
    guard = Guard(frozenset({"ann"}))
    args[0] = args[0].detach().requires_grad_(args[0].requires_grad)
    protect(args[0], guard)
    with pytest.raises(Exception) as caught:
        run_guarded(function, args, kwargs, flags_of(function), guard, NoHoldings(), "bob", "eve")
    if name in _FOR_SHAPES:
        assert type(caught.value) is RuntimeError and _FOR_SHAPES[name] in str(caught.value)
        return
    assert isinstance(caught.value, PermissionDenied) and re.search(_WAYS, str(caught.value))
    assert f"It needs {FORMS[function].needs}" in str(caught.value)
