"""Where native torch differs from itself on operands laid out as they arrive at a worker.

``python -m tests.torch_suite.self_agreement`` prints each operator and dtype of torch's database
for which it does on this processor, and by how many units in the last place.  These are the cases
that ``agreement.py`` measures with units instead of bits; the list is another one on each kind of
processor.  ``--threads 2`` gives torch more threads, ``--every-dtype`` leaves out no dtype, and
``--turned`` turns the memory of every matrix round as well, which no message does: it shows that
differences are found.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput

from syft.ops.nested import leaves, replace
from tests.torch_suite.agreement import (
    Raised,
    as_leaf,
    back_propagate,
    check_equal,
    gradients,
    outcome,
    units_off,
)
from tests.torch_suite.cases import OP_CASES, ROUNDED, UNDEFINED, Case
from tests.torch_suite.layouts import as_it_arrives, each_once

Change = Callable[[torch.Tensor], torch.Tensor]


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy as it arrives, but with the last dimension of a matrix first in memory."""
    copied = as_it_arrives(tensor)
    if tensor.layout is not torch.strided or tensor.dim() < 2 or tensor.is_quantized:
        return copied
    moved = copied.detach().movedim(-1, 0).contiguous().movedim(0, -1)
    return moved.requires_grad_(tensor.requires_grad)


def every_case() -> list[Case]:
    """Every operator at every dtype that it supports."""
    return [Case(op, dtype) for op in op_db for dtype in sorted(op.dtypes, key=str)]


def differences(case: Case, backward: bool, change: Change, most: int | None) -> Iterator[float]:
    """By how many units torch is off, for each sample on which it differs from itself."""
    run = run_backward if backward else run_forward
    for sample in case.samples("cpu", requires_grad=backward, most=most):
        operands = replace((sample.input, sample.args, sample.kwargs), as_leaf)
        anew = each_once(operands, change)
        off = worst(run(case, sample, operands), run(case, sample, anew))
        if off:
            yield off


def run_forward(case: Case, sample: SampleInput, operands: Any) -> Any:
    """What an operator returns."""
    return outcome(partial(case.op, operands[0], *operands[1], **operands[2]))


def run_backward(case: Case, sample: SampleInput, operands: Any) -> Any:
    """The gradients of the operands."""
    done = outcome(partial(back_propagate, case, sample, operands))
    return done if isinstance(done, Raised) else gradients(operands)


def worst(want: Any, got: Any) -> float:
    """The largest difference between the tensors of two results, in units in the last place."""
    try:
        check_equal(want, got)
    except AssertionError:
        pairs = zip(leaves(want), leaves(got), strict=False)
        return max(units_off(mine, theirs) for mine, theirs in pairs)
    return 0.0


def main() -> None:
    """Go through the database and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every-dtype", action="store_true", help="three samples of each")
    parser.add_argument("--turned", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    warnings.simplefilter("ignore")
    cases, most = (every_case(), 3) if given.every_dtype else (OP_CASES, None)
    change = turned if given.turned else as_it_arrives
    print(f"{torch.backends.cpu.get_cpu_capability()}, {given.threads} thread(s)")
    for case in cases:
        if case.op.name in UNDEFINED | ROUNDED:
            continue
        for backward in (False, True):
            if not backward or case.dtype in case.op.supported_backward_dtypes("cpu"):
                found = list(differences(case, backward, change, most))
                if found:
                    way = "backward" if backward else "forward"
                    print(f"{case.name} {way}: {len(found)} samples, {max(found):.2g} units")


if __name__ == "__main__":
    main()
