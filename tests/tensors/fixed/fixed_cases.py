"""PyTorch's own operator samples, run in fixed precision and in float64, and how far the two
differ.

The reference gets the numbers that the grid holds (encoded and decoded), in float64; so what is
measured is what the operation adds, in steps of the grid.  Operations that draw random numbers are
compared with float32, because a seed gives other numbers in float64.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

from syft.ops.nested import leaves, replace
from syft.tensors.fixed.grid import decode, encode, make_grid
from syft.tensors.fixed.fixed_link import is_fixed
from syft.tensors.fixed.precision import fix_precision

GRID = make_grid(2, 16)
SAMPLES = 5
GRADIENT_SAMPLES = 3

OPS = {
    op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""): op
    for op in op_db
    if torch.float32 in op.supported_dtypes("cpu") and not op.name.startswith("jiterator")  # CUDA
}


@dataclass
class Outcome:
    """What came of the samples of one operation."""

    compared: int = 0
    steps: float = 0.0
    problems: list[str] = field(default_factory=list)


def to_fixed(value: Any) -> Any:
    """The operand in fixed precision, if it is a float tensor."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return fix_precision(value.detach())
    return value


def to_reference(dtype: torch.dtype) -> Callable[[Any], Any]:
    """The same numbers, as the grid holds them, in ``dtype``."""

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return decode(encode(value.detach(), GRID), GRID, dtype)
        return dtype if value is torch.float32 else value

    return convert


def is_dense_float(value: Any) -> bool:
    """Whether a result is compared by value."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def samples(
    op: Any, count: int = SAMPLES, requires_grad: bool = False
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The first samples of an operation that have a float tensor the grid can hold."""
    torch.manual_seed(0)
    found = 0
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad):
        args = (sample.input, *sample.args)
        floats = [v for v in leaves((args, sample.kwargs)) if is_dense_float(v)]
        if floats and all(v.layout is torch.strided and v.isfinite().all() for v in floats):
            yield args, sample.kwargs
            found += 1
            if found == count:
                return


def compare(
    name: str,
    dtype: torch.dtype = torch.float64,
    around: Any = None,
    count: int = SAMPLES,
) -> Outcome:
    """Run the samples of an operation both ways; ``around`` is a context for the fixed run."""
    op = OPS[name]
    outcome = Outcome()
    convert = to_reference(dtype)
    for args, kwargs in samples(op):
        torch.manual_seed(1)
        try:
            expected = list(leaves(op.op(*replace(args, convert), **replace(kwargs, convert))))
        except RuntimeError:  # torch has it in float32 only
            continue
        if not all(v.layout is torch.strided and v.isfinite().all() for v in _tensors(expected)):
            continue
        given = replace(args, to_fixed), replace(kwargs, to_fixed)
        torch.manual_seed(1)
        with around() if around is not None else contextlib.nullcontext():
            got = list(leaves(op.op(*given[0], **given[1])))
        for one, other in zip(got, expected, strict=True):
            difference(one, other, outcome)
        outcome.compared += 1
    return outcome


def _tensors(values: list[Any]) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


def difference(got: Any, expected: Any, outcome: Outcome) -> None:
    """Note by how many steps a result is off, or what is wrong with its kind."""
    if not isinstance(expected, torch.Tensor):
        close = isinstance(expected, float) and math.isclose(got, expected, abs_tol=2**-15)
        if got != expected and not close:
            outcome.problems.append(f"{got} for {expected}")
    elif got.shape != expected.shape:
        outcome.problems.append(f"{got.shape} for {expected.shape}")
    elif not expected.is_floating_point():
        if is_fixed(got) or not torch.equal(got, expected):
            outcome.problems.append("another integer or boolean result")
    elif not is_fixed(got):
        outcome.problems.append("a float result that is not fixed")
    else:
        off = decode(got.child.child, got.child.grid, torch.float64) - expected.double()
        slack = 1e-12 * expected.double().abs()
        if off.numel():
            outcome.steps = max(outcome.steps, (off.abs() - slack).max().item() * GRID.scale)


def compare_gradients(name: str) -> Outcome:
    """Differentiate the samples of an operation both ways, from the same random gradient."""
    op = OPS[name]
    outcome = Outcome()
    for args, kwargs in samples(op, GRADIENT_SAMPLES, requires_grad=True):
        expected = _gradients(op, replace(args, _leaf_float64), replace(kwargs, _leaf_float64))
        if expected is None or not all(g is None or g.isfinite().all() for g in expected):
            continue
        got = _gradients(op, replace(args, _leaf_fixed), replace(kwargs, _leaf_fixed))
        for one, other in zip(got or [], expected, strict=True):
            if other is None:
                continue
            difference(to_fixed(one), other, outcome)  # autograd makes zeros of its own
        outcome.compared += 1
    return outcome


def _leaf_float64(value: Any) -> Any:
    if is_dense_float(value):
        return decode(encode(value.detach(), GRID), GRID, torch.float64).requires_grad_(
            value.requires_grad
        )
    return torch.float64 if value is torch.float32 else value


def _leaf_fixed(value: Any) -> Any:
    return to_fixed(value).requires_grad_(value.requires_grad) if is_dense_float(value) else value


def _gradients(op: Any, args: Any, kwargs: Any) -> list[Any] | None:
    """The gradients of the operands for random gradients of the results, the same at each call."""
    torch.manual_seed(1)
    results = [r for r in leaves(op.op(*args, **kwargs)) if is_dense_float(r) and r.requires_grad]
    if not results or not all(r.isfinite().all() for r in results):
        return None
    generator = torch.Generator().manual_seed(2)
    gradients = []
    for result in results:
        random = torch.randn(result.shape, generator=generator)
        held = decode(encode(random, GRID), GRID, torch.float64)
        gradients.append(fix_precision(held) if is_fixed(result) else held)
    torch.autograd.backward(results, gradients)
    return [v.grad for v in leaves((args, kwargs)) if is_dense_float(v)]
