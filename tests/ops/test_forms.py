"""The form of an operation is what its results are like: the operation itself is the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from syft.ops.evaluate import evaluate
from syft.ops.forms import FORMS, _counted
from syft.ops.nested import leaves
from syft.ops.outcome import ANY

pytestmark = pytest.mark.filterwarnings("ignore")

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
BY_VALUES = ("gelsd", "gelss")
"""Drivers of which the values say whether there are residuals."""
LABELS = torch.tensor([0, 2, 1, 2])


def _calls() -> Iterator[Call]:
    for kind in (torch.uint8, torch.int32, torch.int64):
        yield torch.bincount, (LABELS.to(kind),), {"minlength": 3}
    for kind in (torch.float32, torch.float64, torch.float16, torch.int32):
        yield torch.Tensor.bincount, (LABELS, torch.arange(4).to(kind), 5), {}
    for shape in ((), (5,), (1, 5), (3, 5), (3, 0), (0, 3), (3, 1)):
        for kind in (torch.float32, torch.float64, torch.complex64, torch.int64):
            x = torch.arange(torch.Size(shape).numel()).reshape(shape).to(kind)
            yield torch.corrcoef, (x,), {}
            for correction in (0, 1, 9):
                x = x.clone().requires_grad_(kind.is_floating_point)
                yield torch.cov, (x,), {"correction": correction}
                yield from _weighted(x, correction)
    for kind in (torch.float32, torch.float64):
        yield from _histograms(kind)
        yield from _least_squares(kind)


def _histograms(kind: torch.dtype) -> Iterator[Call]:
    x = torch.linspace(-3, 3, 12, dtype=kind).view(3, 4)
    yield torch.histogram, (x, 5), {"density": True}
    yield torch.histogram, (x, 5), {"range": (-1.0, 2.0), "weight": x.abs()}
    yield torch.Tensor.histogram, (x, torch.linspace(-2, 2, 4, dtype=kind)), {}
    points = torch.rand(2, 6, 2, dtype=kind)
    edges = [torch.linspace(0, 1, count, dtype=kind) for count in (4, 3)]
    for bins in (3, [2, 5], (2, 5), edges):
        yield torch.histogramdd, (points, bins), {"density": True}
        yield torch.histogramdd, (points, bins), {"weight": torch.rand(2, 6, dtype=kind)}


def _least_squares(kind: torch.dtype) -> Iterator[Call]:
    for rows, columns in ((5, 2), (2, 5), (3, 3)):
        for driver in (None, "gelsy", "gels", *BY_VALUES):
            for batch in ((),) if driver in BY_VALUES else ((), (2,), (2, 1)):
                a = torch.randn(*batch, rows, columns, dtype=kind, requires_grad=True)
                b = torch.randn(*batch, rows, 2, dtype=kind)
                yield torch.linalg.lstsq, (a, b), {"driver": driver}
                b = torch.randn(*batch, rows, dtype=kind, requires_grad=True)
                yield torch.linalg.lstsq, (a.detach(), b), {"driver": driver}


def _weighted(x: torch.Tensor, correction: int) -> Iterator[Call]:
    """Covariances of weighted columns, of which torch takes some."""
    if x.ndim == 0 or min(x.shape[-1], x.numel()) < 2 or correction > 1:  # too few are left
        return
    counts = torch.arange(1, x.shape[-1] + 1)
    each = torch.linspace(0.5, 1, x.shape[-1])
    for weights in (
        {"fweights": counts},
        {"aweights": each},
        {"aweights": each.double().requires_grad_()},
        {"fweights": counts.int(), "aweights": each.requires_grad_()},
    ):
        yield torch.cov, (x,), {"correction": correction, **weights}


def _is_size(real: int, told: int) -> bool:
    return told in (ANY, real)


@pytest.mark.parametrize("function", FORMS)
def test_a_form_is_what_the_results_are_like(function: Any) -> None:
    calls = [call for call in _calls() if FORMS[call[0]] == FORMS[function]]
    assert calls
    for _, args, kwargs in calls:
        form = FORMS[function]
        outcome = evaluate(form.predicted, args, kwargs)
        found = [*leaves((form.run or function)(*args, **kwargs))]
        expected = [*leaves(outcome.result)]
        by_values = kwargs.get("driver") in BY_VALUES and args[0].shape == (5, 2)
        runs = "RESIZES" if by_values else "RUNS"
        assert outcome.verdict.name == runs and not outcome.writes, (args, kwargs)
        looks = [(it.dtype, it.requires_grad) for it in found]
        assert [(it.dtype, it.requires_grad) for it in expected] == looks, (args, kwargs)
        for real, told in zip(found, expected, strict=True):
            assert len(real.shape) == len(told.shape), (args, kwargs)
            assert all(map(_is_size, real.shape, told.shape)), (args, kwargs)
            assert runs == "RESIZES" or told.shape == real.shape
        assert all(not made.shares for made in expected)
        operands = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        for made, real in zip(expected, found, strict=True):
            reached = [place for place, one in enumerate(operands) if one.requires_grad]
            assert list(made.reaches) == (reached if real.requires_grad else [])


def test_counts_are_those_of_torch_with_a_gradient_for_the_weights() -> None:
    weights = torch.arange(4.0, requires_grad=True)
    counts = _counted(LABELS, weights, 4)
    assert torch.equal(counts, torch.bincount(LABELS, weights.detach(), 4))
    assert torch.equal(_counted(LABELS, None, 4), torch.bincount(LABELS, None, 4))
    (counts * torch.arange(4.0)).sum().backward()
    assert weights.grad is not None and weights.grad.tolist() == [0, 2, 1, 2]
    for bad in (torch.tensor([-1]), torch.tensor([4])):
        with pytest.raises(IndexError, match="from 0 to minlength - 1, which is 3"):
            _counted(bad, None, 4)


@pytest.mark.parametrize(
    "call",
    [
        (torch.bincount, (LABELS,), {}),
        (torch.bincount, (LABELS.view(2, 2),), {"minlength": 3}),
        (torch.bincount, (LABELS.float(),), {"minlength": 3}),
        (torch.bincount, (LABELS, torch.ones(3)), {"minlength": 3}),
        (torch.cov, (torch.ones(2, 2),), {"fweights": torch.tensor([1.0, 2.0])}),
        (torch.cov, (torch.ones(2, 2),), {"aweights": torch.ones(3)}),
        (torch.histogramdd, (torch.ones(3, 2), [2]), {}),
        (torch.histogramdd, (torch.ones(3, 2), [2, 0]), {}),
        (torch.histogramdd, (torch.ones(3, 2), [torch.ones(3), 2]), {}),
        (torch.histogramdd, (torch.ones(3, 2, requires_grad=True), 2), {}),
        (torch.histogram, (torch.ones(2), 0), {}),
        (torch.histogram, (torch.ones(2, requires_grad=True), 2), {}),
        (torch.histogram, (torch.ones(2), torch.ones(1)), {}),
        (torch.linalg.lstsq, (torch.ones(2, 3, 2), torch.ones(2, 3, 1)), {"driver": "gelsd"}),
        (torch.linalg.lstsq, (torch.ones(3, 2), torch.ones(2, 1)), {}),
    ],
)
def test_there_is_no_form_where_values_decide(call: Call) -> None:
    function, args, kwargs = call
    assert not evaluate(FORMS[function].predicted, args, kwargs).is_complete
