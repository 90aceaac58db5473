"""A weighted mean of tables of tensors that come one after the other, or many at once.

Only the sums are kept, and the first table, so the mean of a thousand models takes the memory of
three.  What has no mean is noted when it is added, with the client's name: of NaN in a sum nobody
could say whose it was.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from syft.exceptions import UnusableSetting
from syft.federated.stacked_memory import order_of, restored

LARGE: Final = 2**53
"""Below it float64, in which integers are added up, has all of them."""

_MOST_NAMED: Final = 20
"""Clients that an error names: there may be thousands."""

_NOT_FINITE: Final = "NaN or Inf"
_NOT_EXACT: Final = "integers from 2^53 on"
_WANTED: Final = {
    _NOT_FINITE: "finite, or infinite where all of them are",
    _NOT_EXACT: "alike, or of integers under 2^53",
}
"""What has no mean, and what would have one."""


@dataclass(slots=True)
class _Entry:
    """The sum of the tensors of one name, and what is known of them.

    ``same`` is the first of them, as long as all are equal to it.  ``infinities`` are those of the
    first, None if it has none; ``scattered`` says that another one has not the same.  The lists
    name the clients of NaN, of infinity, and of integers that float64 does not have.
    """

    total: torch.Tensor
    dtype: torch.dtype
    weight: float = 0.0
    begun: bool = False
    same: torch.Tensor | None = None
    infinities: torch.Tensor | None = None
    scattered: bool = False
    nan: list[str] = field(default_factory=list)
    infinite: list[str] = field(default_factory=list)
    large: list[str] = field(default_factory=list)

    def note(self, wide: torch.Tensor, client: str) -> None:
        """Note what may have no mean in the numbers of a client, before they are added."""
        if not (self.dtype.is_floating_point or self.dtype.is_complex):
            if bool((wide.abs() >= LARGE).any()):
                self.large.append(client)
        elif _is_finite(wide):
            self.scattered = self.scattered or self.infinities is not None
        elif bool(wide.isnan().any()):
            self.nan.append(client)
        else:
            self.infinite.append(client)
            self._note_infinities(torch.where(wide.isinf(), wide, 0.0))
        self.begun = True

    def _note_infinities(self, found: torch.Tensor) -> None:
        """Note infinities, with zeros between, and whether they are those of the first client."""
        if not self.begun:
            self.infinities = found
        same = self.infinities is not None and torch.equal(self.infinities, found)
        # A sum of complex ones would be NaN.
        self.scattered = self.scattered or not same or found.is_complex()

    def faults(self) -> list[tuple[str, str]]:
        """The clients whose numbers have no mean, and why."""
        if self.nan or self.same is not None:
            return [(client, _NOT_FINITE) for client in self.nan]
        found = [(client, _NOT_FINITE) for client in self.infinite if self.scattered]
        return found + [(client, _NOT_EXACT) for client in self.large]

    def mean(self) -> torch.Tensor:
        """What all tensors are, or their mean."""
        if self.same is not None:
            return self.same.clone()
        mean = self.total / self.weight
        if mean.is_floating_point() and self.infinities is None:
            limits = torch.finfo(mean.dtype)  # rounding leads beyond them
            mean.clamp_(limits.min, limits.max)
        return narrowed(mean, self.dtype)


class RunningMean:
    """The mean of what is added, by name, in the dtype and on the device of what came first.

    ``weight`` is the sum of all weights that will be added, or more, and ``kind`` is what errors
    call the clients.  Numbers narrower than float32 are added up in float32, integers in float64;
    the mean of integers is rounded.  Tensors that are all equal are their own mean, whatever they
    hold but NaN; infinities have a mean where all tensors hold the same ones.

    >>> mean = RunningMean(3)
    >>> mean.add({"x": torch.tensor([1.0])}, 1, "bob")
    >>> mean.add({"x": torch.tensor([4.0])}, 2, "alice")
    >>> mean.values()
    {'x': tensor([3.])}
    """

    def __init__(self, weight: float, kind: str = "update") -> None:
        # Sums of numbers near the largest would overflow; a power of two rounds none of them.
        self._scale = 2.0 ** math.frexp(weight)[1]
        self._kind = kind
        self._entries: dict[str, _Entry] = {}

    def add(self, table: Mapping[str, Any], weight: float, client: str) -> None:
        """Add the table of a client; what is no tensor in it is passed over."""
        for name, tensor in table.items():
            if isinstance(tensor, torch.Tensor):
                bare = tensor.detach()
                bare = bare if bare.layout is torch.strided else bare.to_dense()
                entry = self._entry(name, bare.shape, bare)
                wide = bare.to(entry.total.device, entry.total.dtype)
                if not entry.begun:
                    entry.same = bare
                elif entry.same is not None and not torch.equal(entry.same, bare.to(wide.device)):
                    entry.same = None
                entry.note(wide, client)
                entry.total.add_(wide, alpha=weight / self._scale)
                entry.weight += weight / self._scale

    def add_stacked(
        self, table: Mapping[str, torch.Tensor], weights: Sequence[float], clients: Sequence[object]
    ) -> None:
        """Add as many tables as there are weights, stacked along the first dimension.

        >>> mean = RunningMean(3)
        >>> mean.add_stacked({"x": torch.tensor([[1.0], [4.0]])}, [1, 2], ["bob", "alice"])
        >>> mean.values()
        {'x': tensor([3.])}
        """
        for name, stacked in table.items():
            bare = stacked.detach()
            entry = self._entry(name, bare.shape[1:], bare)
            rows = bare.to(entry.total.dtype)
            simple = entry.dtype.is_floating_point and entry.infinities is None
            if not (simple and _is_finite(rows)):
                for row, client in zip(rows, clients, strict=True):
                    entry.note(row, str(client))
            entry.begun, entry.same = True, None
            shares = [weight / self._scale for weight in weights]
            factors = torch.tensor(shares, dtype=rows.dtype, device=rows.device)
            order = order_of(bare)
            added = torch.tensordot(factors, rows.permute(order), dims=1).unsqueeze(0)
            entry.total.add_(restored(added, order).squeeze(0))
            entry.weight += sum(shares)

    def values(self) -> dict[str, torch.Tensor]:
        """The mean of what was added.

        Raises :class:`~syft.exceptions.UnusableSetting`, which names clients and tensors, for NaN,
        for infinities that not all clients have in the same places, and for integers from 2^53
        on that not all have in common.

        >>> mean = RunningMean(2)
        >>> mean.add({"x": torch.tensor([1.0])}, 1, "bob")
        >>> mean.add({"x": torch.tensor([torch.inf])}, 1, "alice")
        >>> mean.values()
        Traceback (most recent call last):
        syft.exceptions.UnusableSetting: updates must be finite, or infinite where all of them \
are, got NaN or Inf in 'x' of update alice.
        """
        faults: dict[str, dict[str, list[str]]] = {why: {} for why in _WANTED}
        for name, entry in self._entries.items():
            for client, why in entry.faults():
                faults[why].setdefault(client, []).append(repr(name))
        for why, found in faults.items():
            if found:
                raise UnusableSetting(f"{self._kind}s", _WANTED[why], self._named(why, found))
        return {name: entry.mean() for name, entry in self._entries.items()}

    def _named(self, why: str, found: Mapping[str, Sequence[str]]) -> str:
        """What has no mean, in which tensors of which clients."""
        named = [f"{', '.join(keys)} of {self._kind} {client}" for client, keys in found.items()]
        more = [f"{len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
        return f"{why} in {'; '.join(named[:_MOST_NAMED] + more)}"

    def _entry(self, name: str, shape: torch.Size, like: torch.Tensor) -> _Entry:
        """The entry of a name, to which something is about to be added."""
        if name not in self._entries:
            dtype = wide_enough(like.dtype)
            total = torch.zeros(shape, dtype=dtype, device=like.device)
            self._entries[name] = _Entry(total, like.dtype)
        return self._entries[name]


def _is_finite(wide: torch.Tensor) -> bool:
    """Whether all numbers are finite: a finite sum says so, and reads them once."""
    return cmath.isfinite(wide.sum().item()) or bool(wide.isfinite().all())


def wide_enough(dtype: torch.dtype) -> torch.dtype:
    """The dtype to add up numbers of another one in.

    >>> wide_enough(torch.float16), wide_enough(torch.float64), wide_enough(torch.int64)
    (torch.float32, torch.float64, torch.float64)
    """
    if dtype.is_floating_point or dtype.is_complex:
        return torch.promote_types(dtype, torch.float32)
    return torch.float64


def narrowed(mean: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mean in the dtype of what it is the mean of.

    >>> narrowed(torch.tensor(1.75), torch.int64)
    tensor(2)
    """
    if dtype.is_floating_point or dtype.is_complex:
        return mean.to(dtype)
    return mean.round().to(dtype)
