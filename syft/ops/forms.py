"""What the results of an operation are like, for those that torch cannot tell without values.

A *form* computes something of the same shapes, dtypes and graph as the operation does, from
operations that can be evaluated (:mod:`syft.ops.evaluate`).  Where an operation is a composition of
such operations, that is its form.  A form raises for arguments with which the shapes or the graph
of the results follow from values; ``needs`` says in words what it wants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from syft.ops.engines import device_of

Function = Callable[..., Any]
_RESULTS: Final[Any] = torch.return_types


@dataclass(frozen=True, slots=True)
class Form:
    """A row of the table: what an operation is evaluated as, what is run (None: the operation), and
    what its arguments need."""

    predicted: Function
    run: Function | None
    needs: str


def _need(*conditions: bool) -> None:
    if not all(conditions):
        raise ValueError("these arguments have no form")


def _bincount(
    input: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    """As many counts as ``minlength`` says, all of which torch adds in this order, too."""
    _need(input.ndim == 1, minlength > 0, not input.is_floating_point(), not input.is_complex())
    _need(input.dtype is not torch.bool, weights is None or weights.shape == input.shape)
    kind = torch.int64
    if weights is not None:
        kind = torch.float32 if weights.dtype is torch.float32 else torch.float64
    each = torch.ones_like(input, dtype=kind) if weights is None else weights.to(kind)
    return each.new_zeros(minlength).scatter_add(0, input.long(), each)


def _counted(
    input: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    """The same after a look at the values, which on a GPU would end the process."""
    most = minlength - 1
    if input.numel() and not 0 <= int(input.min()) <= int(input.max()) <= most:
        raise IndexError(f"bincount: expected values from 0 to minlength - 1, which is {most}")
    return _bincount(input, weights, minlength)


def _cov(
    input: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    rows = input.view(1, -1) if input.ndim < 2 else input
    if fweights is None and aweights is None:
        away = rows - (rows.sum(1) / rows.shape[1])[:, None]
        return ((away @ away.mH) / max(rows.shape[1] - correction, 0)).squeeze()
    weights = _weights(rows, fweights, aweights)
    total = weights.sum()
    away = rows - ((rows * weights).sum(1) / total)[:, None]
    lost = 1 if aweights is None else (weights * aweights).sum() / total
    found: torch.Tensor = (away @ (away * weights).mH) / (total - correction * lost)
    return found.squeeze()


def _weights(rows: torch.Tensor, counts: torch.Tensor | None, other: torch.Tensor | None) -> Any:
    """The weights of columns, of which torch takes two kinds."""
    for given in filter(torch.is_tensor, (counts, other)):
        _need(given.shape == rows.shape[1:], given.numel() > 0)
    if counts is None:
        return other
    _need(counts.dtype is not torch.bool, not (counts.is_floating_point() or counts.is_complex()))
    return counts if other is None else counts * other


def _corrcoef(input: torch.Tensor) -> torch.Tensor:
    found = _cov(input)
    return found / found if found.ndim == 0 else found / found.diag()[:, None]


def _histogram(
    input: torch.Tensor,
    bins: Any,
    *,
    range: Any = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> Any:
    """Results without a graph: torch has no derivative, and its graph would fail in backward."""
    _need(input.is_floating_point(), weight is None or weight.shape == input.shape)
    given = [one for one in (input, bins, weight) if isinstance(one, torch.Tensor)]
    _need(not (torch.is_grad_enabled() and any(one.requires_grad for one in given)))
    _need(bins.ndim == 1 if isinstance(bins, torch.Tensor) else isinstance(bins, int))
    count = bins.numel() - 1 if isinstance(bins, torch.Tensor) else bins
    _need(count > 0)
    return _RESULTS.histogram((input.new_empty(count), input.new_empty(count + 1)))


def _histogramdd(
    input: torch.Tensor,
    bins: Any,
    range: Any = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> Any:
    """The same of points, with bins for each of their coordinates."""
    _need(input.is_floating_point(), input.ndim > 1)
    _need(weight is None or weight.shape == input.shape[:-1], not torch.is_tensor(range))
    _need(isinstance(bins, (int, list, tuple)))
    each = [bins] * input.shape[-1] if isinstance(bins, int) else [*bins]
    _need(0 < len(each) == input.shape[-1])
    given = filter(torch.is_tensor, (input, weight, *each))
    _need(not (torch.is_grad_enabled() and any(one.requires_grad for one in given)))
    counts = _counts_of_bins(input, each)
    _need(min(counts) > 0)
    made = tuple([input.new_empty(count + 1) for count in counts])
    return _RESULTS.histogramdd((input.new_empty(counts), made))


def _counts_of_bins(input: torch.Tensor, each: list[Any]) -> list[int]:
    """How many bins there are for each coordinate, by numbers, or by edges."""
    if all(type(one) is int for one in each):
        return each
    _need(all(torch.is_tensor(one) and one.ndim == 1 and one.dtype is input.dtype for one in each))
    return [one.numel() - 1 for one in each]


def _lstsq(
    A: torch.Tensor, B: torch.Tensor, rcond: float | None = None, *, driver: str | None = None
) -> Any:
    """The drivers by singular values give residuals only where the rank, which they find, is full:
    of one matrix, whether there are any is a size that follows from values."""
    driver = driver or ("gelsy" if device_of(A).type in ("cpu", "meta") else "gels")
    vector = B.ndim == 1 or B.shape == A.shape[:-1]
    right = B[..., None] if vector else B
    _need(driver in _DRIVERS, A.ndim > 1, A.shape[:-1] == right.shape[:-1])
    by_values = driver in _BY_VALUES
    _need(A.ndim == 2 or not by_values)
    solution = torch.linalg.pinv(A) @ right
    none = solution.abs().flatten()[:0]
    rank = (0,) if driver == "gels" else A.shape[:-2]
    found = none.new_empty(min(A.shape[-2:])) if by_values else none
    about = torch.zeros(rank, dtype=torch.int64, device=A.device), found.detach()
    residuals = _residuals(solution.abs().sum(-2), A, driver)
    solution = solution.squeeze(-1) if vector else solution
    return _RESULTS.linalg_lstsq((solution, none if residuals is None else residuals, *about))


def _residuals(each: torch.Tensor, A: torch.Tensor, driver: str) -> torch.Tensor | None:
    """The residuals that a driver gives; None for none."""
    if driver == "gelsy" or A.shape[-2] <= A.shape[-1]:
        return None
    return each[each > 0] if driver in _BY_VALUES else each


_BY_VALUES: Final = ("gelsd", "gelss")
_DRIVERS: Final = ("gels", "gelsy", *_BY_VALUES)

FORMS: Final[dict[Function, Form]] = {
    function: Form(predicted, run, needs)
    for functions, predicted, run, needs in (
        (
            (torch.bincount, torch.Tensor.bincount),
            *(_bincount, _counted),
            "minlength= more than all values, and integers of one dimension",
        ),
        (
            (torch.cov, torch.Tensor.cov),
            *(_cov, None),
            "fweights= of integers and aweights= of floats, one for each column",
        ),
        ((torch.corrcoef, torch.Tensor.corrcoef), _corrcoef, None, "two dimensions at most"),
        (
            (torch.histogram, torch.Tensor.histogram),
            *(_histogram, None),
            "bins= as a number or a tensor of edges, and x.detach()",
        ),
        (
            (torch.histogramdd,),
            *(_histogramdd, None),
            "bins= as numbers or tensors of edges, one for each column, and x.detach()",
        ),
        (
            (torch.linalg.lstsq,),
            *(_lstsq, None),
            "driver='gelsy' (or 'gels', of full rank) for a batch, and operands of one batch",
        ),
    )
    for function in functions
}
"""Of the operations that torch cannot tell without values, those that have a form."""
