"""Checks of values that torch's kernels do not make before they divide or loop.

Found by calling every operation with hostile operands in a process of its own
(``tests/torch_suite/hostile_calls.py``); all hold for torch 2.13 on CPU.  Each check raises what
torch raises for its like.  A chain whose data is at another worker is checked there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

import torch

from syft.ops.nested import EXACT_TENSOR_TYPES
from syft.torch_private import is_zero_tensor
from syft.workers.hardening.function_wrapper import FunctionWrapper
from syft.workers.labels.walk import innermost

Function = Callable[..., Any]
Given = dict[str, Any]
Check = Callable[[Given], None]


class CheckedFunction(FunctionWrapper):
    """A torch function that checks its operands first.

    >>> div = CheckedFunction(torch.div, ("input", "other"), divisor_checked)
    >>> div(torch.tensor([7]), 2, rounding_mode="trunc")
    tensor([3])
    """

    __slots__ = ("_names", "_check")

    def __init__(self, function: Function, names: Sequence[str], check: Check) -> None:
        super().__init__(function)
        self._names = names
        self._check = check

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(self._names, args, strict=False)), **kwargs}
        if "self" in given:
            given.setdefault(self._names[0], given["self"])
        self._check(given)
        return self.function(*args, **kwargs)


def tensor_of(given: Given, name: str) -> torch.Tensor | None:
    """The tensor of a name, if it is given and its data is here.

    >>> tensor_of({"input": 3}, "input") is None
    True
    """
    return innermost(given.get(name))


def values_of(value: Any) -> torch.Tensor | None:
    """The same of an operand if it has values, which those of a forecast do not: a private command
    is forecast as if its values were good, and checked when it runs.

    >>> values_of(torch.ones(2)), values_of(3)
    (tensor([1., 1.]), None)
    """
    inside = innermost(value)
    return inside if type(inside) in EXACT_TENSOR_TYPES else None


def memory_checked(given: Given) -> None:
    """Refuse to enlarge zeros that have no memory, or to share it: torch copies from address 0.

    The gradients of ``sgn`` are such zeros, and second ones of ``abs`` (torch 2.13).

    >>> memory_checked({"input": torch._efficientzerotensor(3)})
    Traceback (most recent call last):
    ...
    RuntimeError: ZeroTensors have no memory: use .clone() to have a tensor that has
    """
    operands = tensor_of(given, "input"), tensor_of(given, "source")
    if any(one is not None and is_zero_tensor(one) for one in operands):
        raise RuntimeError("ZeroTensors have no memory: use .clone() to have a tensor that has")


# ------------------------------------------------------------------------------------- integers


def divisor_checked(given: Given) -> None:
    """Refuse to divide the smallest integer by -1, which has no result (SIGFPE).

    >>> divisor_checked({"input": torch.tensor([-2**63]), "other": -1, "rounding_mode": "trunc"})
    Traceback (most recent call last):
    ...
    RuntimeError: integer overflow: the smallest integer divided by -1
    """
    if given.get("rounding_mode") != "trunc":
        return
    divided, divisor = _integers(given.get("input")), _integers(given.get("other"))
    if divided is None or divisor is None or not bool((divisor == -1).any()):
        return
    least = torch.iinfo(torch.result_type(divided, divisor)).min
    if bool(((divided == least) & (divisor == -1)).any()):
        raise RuntimeError("integer overflow: the smallest integer divided by -1")


def _integers(value: Any) -> torch.Tensor | None:
    """An operand as a tensor of integers; None if it is of other numbers, or not here."""
    if type(value) is int:
        return torch.tensor(value, device="cpu")
    inside = values_of(value)
    if inside is None or inside.layout is not torch.strided or inside.is_quantized:
        return None
    integer = not (inside.is_floating_point() or inside.is_complex())
    return inside.detach() if integer and inside.dtype is not torch.bool else None


def multiples_checked(given: Given) -> None:
    """Refuse the smallest int64 in a least common multiple (SIGFPE).

    >>> multiples_checked({"input": torch.tensor([-2**63]), "other": torch.tensor([3])})
    Traceback (most recent call last):
    ...
    RuntimeError: integer overflow: the smallest integer has no least common multiple
    """
    for name in ("input", "other"):
        numbers = _integers(given.get(name))
        if numbers is not None and bool((numbers == torch.iinfo(numbers.dtype).min).any()):
            raise RuntimeError(
                "integer overflow: the smallest integer has no least common multiple"
            )


def exponent_checked(given: Given) -> None:
    """Refuse the exponent that has no negative; torch would multiply for ever.

    >>> exponent_checked({"input": torch.eye(2), "n": -(2**63)})
    Traceback (most recent call last):
    ...
    RuntimeError: integer overflow: the exponent of a matrix is -2**63
    """
    if given.get("n") == -(2**63):
        raise RuntimeError("integer overflow: the exponent of a matrix is -2**63")


MOST_TERMS: Final = 1 << 16
"""The highest degree of a special polynomial; a kernel takes as many steps for each element."""


def degree_checked(given: Given) -> None:
    """Refuse polynomials of a degree over ``MOST_TERMS``.

    >>> degree_checked({"x": torch.ones(2), "n": 2**31})
    Traceback (most recent call last):
    ...
    RuntimeError: a polynomial of a degree over 65536
    """
    degree = given.get("n")
    inside = values_of(degree)
    highest = degree
    if inside is not None:
        highest = inside.max().item() if inside.numel() else 0
    if isinstance(highest, (int, float)) and highest > MOST_TERMS:
        raise RuntimeError(f"a polynomial of a degree over {MOST_TERMS}")


# ---------------------------------------------------------------------------- values that must be


def blocks_checked(given: Given) -> None:
    """Refuse pivots of which negative ones do not come in twos: each stands for half of a block,
    and LAPACK goes on to the other half, wherever that lies.

    >>> blocks_checked({"pivots": torch.tensor([1, -3, -3])})
    >>> blocks_checked({"pivots": torch.tensor([1, 2, -3])})
    Traceback (most recent call last):
    ...
    RuntimeError: ldl_solve: expected negative pivots in twos, as ldl_factor returns them
    """
    pivots = values_of(given.get("pivots"))
    if pivots is None or not pivots.ndim or not pivots.numel():
        return
    for row in pivots.reshape(-1, pivots.shape[-1]).tolist():
        if any(negative and len(list(run)) % 2 for negative, run in groupby(row, key=_is_negative)):
            raise RuntimeError(
                "ldl_solve: expected negative pivots in twos, as ldl_factor returns them"
            )


def _is_negative(number: float) -> bool:
    return number < 0


def finite_checked(given: Given, *names: str) -> None:
    """Refuse infinity and NaN where the kernel crashes or never ends.

    >>> finite_checked({"A": torch.tensor([[float("nan")]])}, "A")
    Traceback (most recent call last):
    ...
    RuntimeError: the input tensor A should not contain infs or NaNs.
    """
    for name in names:
        inside = values_of(given.get(name))
        if inside is not None and not bool(torch.isfinite(inside).all()):
            raise RuntimeError(f"the input tensor {name} should not contain infs or NaNs.")


def not_quantized(given: Given) -> None:
    """Refuse a quantized tensor, of which there is no negative view (torch 2.13: segfault).

    >>> not_quantized({"input": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)})
    Traceback (most recent call last):
    ...
    RuntimeError: a quantized tensor has no negative view
    """
    inside = innermost(given.get("input"))
    if inside is not None and inside.is_quantized:
        raise RuntimeError("a quantized tensor has no negative view")


def grid_checked(given: Given) -> None:
    """Refuse infinity and NaN as places of a grid that is clipped or reflected: the backward pass
    would read and write outside of memory (torch 2.13).  Refuse the number of an interpolation or a
    padding that there is not, too: ``grid_sampler_2d`` would write nothing to its result.

    >>> nan = torch.full((1, 1, 1, 2), float("nan"))
    >>> grid_checked({"grid": nan, "padding_mode": "zeros"})
    >>> grid_checked({"grid": nan, "padding_mode": "border"})
    Traceback (most recent call last):
    ...
    RuntimeError: the input tensor grid should not contain infs or NaNs.
    """
    numbers = [given.get(name) for name in ("mode", "interpolation_mode", "padding_mode")]
    if any(isinstance(number, int) and not 0 <= number <= 2 for number in numbers):
        raise RuntimeError("grid_sampler: expected an interpolation and a padding from 0 to 2")
    if given.get("padding_mode", 0) not in (0, "zeros"):
        finite_checked(given, "grid")


def qparams_checked(given: Given) -> None:
    """Refuse ``choose_qparams_optimized`` with anything but counts of elements and bins.

    >>> qparams_checked({"input": torch.ones(4), "numel": 4, "n_bins": -1})
    Traceback (most recent call last):
    ...
    RuntimeError: choose_qparams_optimized: expected the number of elements, 1 to 65536 bins, a \
ratio from 0 to 1 and 1 to 8 bits.
    """
    finite_checked(given, "input")
    inside = tensor_of(given, "input")
    fits = inside is None or given.get("numel") == inside.numel()
    bins, ratio, bits = given.get("n_bins", 0), given.get("ratio", 0), given.get("bit_width", 1)
    if not (fits and 0 < bins <= MOST_TERMS and 0 <= ratio <= 1 and 0 < bits <= 8):
        raise RuntimeError(
            "choose_qparams_optimized: expected the number of elements, 1 to 65536 bins, a ratio "
            "from 0 to 1 and 1 to 8 bits."
        )


_SCALES: Final = ("scale_factors", "scales", "scales_d", "scales_h", "scales_w")


def scales_checked(given: Given) -> None:
    """Refuse scales of an interpolation that do not belong to its sizes: they are used as offsets.

    >>> scales_checked({"input": torch.ones(1, 1, 4), "output_size": [4], "scales": 1e-300})
    Traceback (most recent call last):
    ...
    RuntimeError: interpolation: expected scales between 1e-06 and 1e+06
    """
    for name in _SCALES:
        scales = given.get(name)
        for scale in scales if isinstance(scales, (list, tuple)) else (scales,):
            if isinstance(scale, (int, float)) and not 1e-6 <= scale <= 1e6:
                raise RuntimeError("interpolation: expected scales between 1e-06 and 1e+06")
