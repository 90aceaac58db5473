"""``out=``: the results of a call of a plan, written into tensors that are there.

It means what it means for a function of torch.  A result is copied into its target, which it must
fit in shape; an empty target is resized; nothing with a graph is written.  Unlike torch, a target
that is not empty is never resized.  The results are computed first, so a plan may use its targets.

A plan here and a plan at a worker write alike.  They differ in how a single operation runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from syft.exceptions import ProgramError, WrongArguments
from syft.ops.table import BY_NAME, FUNCTIONS
from syft.workers.labels.walk import innermost, memory_of

COPY: Final = BY_NAME["torch.Tensor.copy_"]
CLONE: Final = BY_NAME["torch.Tensor.clone"]
RESIZE: Final = BY_NAME["torch.Tensor.resize_as_"]

TENSORS_ONLY: Final = "out= for tensors only"


def run_here(op: int, *args: torch.Tensor) -> Any:
    """Run one of the operations of :func:`write_results` in this process.

    >>> run_here(CLONE, torch.ones(2))
    tensor([1., 1.])
    """
    function: Any = FUNCTIONS[op]
    return function(*args)


def check_writable(plan: str, results: Sequence[Any], targets: Sequence[torch.Tensor]) -> None:
    """Check that the results are tensors, and that no graph would be lost.

    Raises :class:`~syft.exceptions.WrongArguments`, :class:`~syft.exceptions.ProgramError`.

    >>> check_writable("double", [torch.ones(2)], [torch.zeros(2)])
    """
    for index, (result, target) in enumerate(zip(results, targets, strict=True)):
        if not isinstance(result, torch.Tensor):
            raise WrongArguments(plan, TENSORS_ONLY, f"it for {type(result).__name__}")
        if torch.is_grad_enabled() and (result.requires_grad or target.requires_grad):
            raise ProgramError(
                f"Plan {plan!r}: what is written with out= has no graph, and result {index} or its "
                "target requires grad. Call the plan under torch.no_grad(), or without out="
            )


def check_fits(plan: str, index: int, result: torch.Tensor, target: torch.Tensor) -> None:
    """Check that a result can be written into its target: shape and dtype.

    Raises :class:`~syft.exceptions.WrongArguments`.

    >>> check_fits("double", 0, torch.ones(2), torch.zeros(3))
    Traceback (most recent call last):
    ...
    syft.exceptions.WrongArguments: Plan 'double' takes float32 (2,) as out for result 0, and got \
float32 (3,).
    """
    fits = result.shape == target.shape or not target.numel()
    if not (fits and torch.can_cast(result.dtype, target.dtype)):
        expected = f"{_shape_and_dtype(result)} as out for result {index}"
        raise WrongArguments(plan, expected, _shape_and_dtype(target))


def write_results(
    results: Sequence[torch.Tensor],
    targets: Sequence[torch.Tensor],
    run: Callable[..., Any] = run_here,
) -> None:
    """Copy results into their targets, one of which may share memory with another result.

    ``run`` runs an operation, given by number, on tensors.

    >>> x, y = torch.zeros(2), torch.ones(2)
    >>> write_results([y, x], [x, y]); x, y
    (tensor([1., 1.]), tensor([0., 0.]))
    """
    kept = [
        result if result is target or not _may_overlap(result, targets) else run(CLONE, result)
        for result, target in zip(results, targets, strict=True)
    ]
    for result, target in zip(kept, targets, strict=True):
        if not target.numel():  # be the result empty or not, which its shape may keep private
            run(RESIZE, target, result)
        run(COPY, target, result)


def _may_overlap(result: torch.Tensor, targets: Sequence[torch.Tensor]) -> bool:
    """Whether a result may share memory with a target; of memory elsewhere nothing is known."""
    if innermost(result) is None:
        return True
    return not memory_of(result).isdisjoint(set().union(*map(memory_of, targets)))


def _shape_and_dtype(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
