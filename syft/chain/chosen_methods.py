"""Functions of which earlier versions had several approximations, chosen by ``method=``.

There is one for each function now, off by less than two steps of the grid
(:mod:`syft.tensors.fixed.approximations`), so every name that was known means that one.  Torch's
own methods take no keywords, and would refuse with a text about C.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from syft.exceptions import UnusableSetting

KNOWN: Final[dict[str, tuple[str, ...]]] = {
    "reciprocal": ("NR", "log", "division"),
    "sigmoid": ("exp", "maclaurin", "chebyshev"),
    "tanh": ("chebyshev", "sigmoid"),
}
"""The names that earlier versions had for each function."""


class ChosenMethods:
    """The methods of a tensor behind a chain that take ``method=``, and do without it.

    >>> hook = sy.TorchHook(torch)
    >>> torch.tensor([0.5]).fix_precision().sigmoid(method="exp").float_precision()
    tensor([0.6225])
    >>> torch.tensor([0.5]).fix_precision().sigmoid(method="tailor")
    Traceback (most recent call last):
    ...
    syft.exceptions.UnusableSetting: method= of sigmoid must be one of exp, maclaurin, chebyshev ...
    """

    __slots__ = ()

    def reciprocal(self, method: str | None = None) -> Any:
        """One over each element; ``method`` is one of the names of earlier versions."""
        _check("reciprocal", method)
        return torch.Tensor.reciprocal(self)  # type: ignore[arg-type]

    def sigmoid(self, method: str | None = None) -> Any:
        """The logistic function; ``method`` is one of the names of earlier versions."""
        _check("sigmoid", method)
        return torch.Tensor.sigmoid(self)  # type: ignore[arg-type]

    def tanh(self, method: str | None = None) -> Any:
        """The hyperbolic tangent; ``method`` is one of the names of earlier versions."""
        _check("tanh", method)
        return torch.Tensor.tanh(self)  # type: ignore[arg-type]


def _check(function: str, method: str | None) -> None:
    """Raise :class:`~syft.exceptions.UnusableSetting` for a name that no version had."""
    if method is not None and method not in KNOWN[function]:
        expected = f"one of {', '.join(KNOWN[function])} (all of which mean the same), or left out"
        raise UnusableSetting(f"method= of {function}", expected, repr(method))
