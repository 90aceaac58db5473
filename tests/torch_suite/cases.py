"""PyTorch's own operator cases: each operator of its database at a few dtypes.

``op_db`` lists every operator with generators of inputs.  A case is one operator and one dtype; it
agrees if every sample agrees: the value (or the class of the exception), its dtype and shape, and
what was written to the inputs.  Nobody here wrote the inputs, so nobody here could avoid the hard
ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
DTYPES = (torch.float32, torch.int64, torch.complex64)

# These return memory that nobody wrote: only their shape and dtype are defined.
UNDEFINED = frozenset(
    ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
)

# Native torch does not repeat itself on these: LAPACK leaves rounding to the workspace it is given.
ROUNDED = frozenset(("linalg.lstsq",))

SEED = 7


def seed(number: int = SEED) -> None:
    """Seed every generator there is.

    ``torch.manual_seed`` takes a millisecond, most of it to note down for backends that are not
    here from which line it was called.
    """
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(number)


@dataclass(frozen=True)
class Case:
    """One operator of ``op_db`` at one dtype."""

    op: OpInfo
    dtype: torch.dtype

    @property
    def name(self) -> str:
        """``add-float32``."""
        return f"{self.op.formatted_name}-{str(self.dtype).removeprefix('torch.')}"

    def samples(
        self,
        device: str,
        requires_grad: bool = False,
        most: int | None = None,
        number: int = SEED,
    ) -> list[SampleInput]:
        """The inputs torch's own tests use (the first ``most`` of them).

        They are equal at each call with the same ``number``, which seeds them.  Each has keyword
        arguments of its own: some generators of torch hand out one dictionary again and again, and
        what one test writes to that is in the samples of all tests that follow.
        """
        seed(number)
        random.seed(number)
        np.random.seed(number)
        # Not op.sample_inputs, which adds a millisecond of seeding to each sample, and searches
        # the stack for a test case of torch's own.
        made = self.op.sample_inputs_func(self.op, device, self.dtype, requires_grad)
        samples = list(islice(made, most))
        for sample in samples:
            sample.kwargs = dict(sample.kwargs)
        return samples


def _dtypes(op: OpInfo) -> Iterator[torch.dtype]:
    """The dtypes an operator is tried at: of the three, or else the first that it supports."""
    found = [dtype for dtype in DTYPES if dtype in op.dtypes]
    yield from found or sorted(op.dtypes, key=str)[:1] or [torch.float32]


OP_CASES = tuple(Case(op, dtype) for op in op_db for dtype in _dtypes(op))
GRADIENT_CASES = tuple(
    case
    for case in OP_CASES
    if case.op.supports_autograd and case.dtype in case.op.supported_backward_dtypes("cpu")
)
