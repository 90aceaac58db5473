"""Rules by which the updates of several clients become one: the mean, and what a bad client cannot
pull away.

One client that sends any numbers moves a mean anywhere.  A median and a trimmed mean leave the
numbers at the ends of each coordinate out (Yin et al., "Byzantine-Robust Distributed Learning:
Towards Optimal Statistical Rates", 2018).  Clipping bounds how far each update may be from where
the clients began (Sun et al., "Can You Really Backdoor Federated Learning?", 2019).  Clipping is
done to each update by itself, so it goes with secure sums; the others compare updates.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any, Literal, Protocol, cast

import torch

from syft.chain.wrapper import Wrapper
from syft.exceptions import UnusableSetting
from syft.federated.running_mean import RunningMean, narrowed, wide_enough
from syft.federated.updates import Table, Tensor, alike, as_before, reals, table_of


class Aggregate(Protocol):
    """What updates are given to one after the other, or many at once."""

    def add(self, table: Mapping[str, Any], weight: float, client: str) -> None:
        """Add the table of a client."""

    def add_stacked(
        self, table: Mapping[str, torch.Tensor], weights: Sequence[float], clients: Sequence[object]
    ) -> None:
        """Add as many tables as there are weights, stacked along the first dimension."""

    def values(self) -> dict[str, torch.Tensor]:
        """What has become of all."""


class Rule(ABC):
    """A rule by which updates become one."""

    @abstractmethod
    def begin(self, weight: float, kind: str = "update") -> Aggregate:
        """What takes updates of that sum of weights, or less; ``kind`` is what errors call one.

        >>> mean = RULES["mean"].begin(2)
        >>> mean.add({"x": torch.ones(1)}, 1, "bob")
        >>> mean.add({"x": torch.zeros(1)}, 1, "alice")
        >>> mean.values()
        {'x': tensor([0.5000])}
        """

    @property
    @abstractmethod
    def weighs(self) -> bool:
        """Whether weights count.  Where they do not, a client gains nothing by large ones."""


@dataclass(frozen=True)
class Mean(Rule):
    """The weighted mean."""

    def begin(self, weight: float, kind: str = "update") -> Aggregate:
        """A running mean: no update is kept."""
        return RunningMean(weight, kind)

    @property
    def weighs(self) -> bool:
        """Weights count."""
        return True


class OrderRule(Rule):
    """A rule that sorts the numbers of each coordinate, and averages those in the middle."""

    @abstractmethod
    def cut(self, count: int) -> int:
        """How many of ``count`` numbers are left out at either end."""

    def begin(self, weight: float, kind: str = "update") -> Aggregate:
        """What keeps all updates until they are sorted."""
        return _KeptUpdates(self, weight, kind)

    @property
    def weighs(self) -> bool:
        """All clients count the same."""
        return False


@dataclass(frozen=True)
class Median(OrderRule):
    """The number in the middle of each coordinate, or the mean of two."""

    def cut(self, count: int) -> int:
        """All but one or two.

        >>> Median().cut(5), Median().cut(4)
        (2, 1)
        """
        return (count - 1) // 2


@dataclass(frozen=True)
class TrimmedMean(OrderRule):
    """The mean of each coordinate without the smallest and the largest numbers.

    ``fraction`` of the updates is left out at either end, rounded up: as long as no more than that
    many clients are bad, the result stays between numbers of good ones.

    Raises :class:`~syft.exceptions.UnusableSetting` for a fraction that is not between 0 and 0.5;
    and, when updates are averaged, if it leaves none.

    >>> updates = [torch.tensor([value]) for value in (1.0, 2.0, 3.0, 1e9)]
    >>> sy.federated_average(updates, rule=sy.TrimmedMean(0.25))
    tensor([2.5000])
    """

    fraction: float

    def __post_init__(self) -> None:
        number = isinstance(self.fraction, Real) and not isinstance(self.fraction, bool)
        if not (number and 0 < self.fraction < 0.5):
            raise UnusableSetting("fraction", "between 0 and 0.5", repr(self.fraction))

    def cut(self, count: int) -> int:
        """The fraction of them, rounded up.

        >>> TrimmedMean(0.1).cut(30), TrimmedMean(0.1).cut(5)
        (3, 1)
        """
        cut = math.ceil(Fraction(repr(float(self.fraction))) * count)
        if 2 * cut >= count:
            wanted = f"under half of {count} updates: {cut} at either end leave none"
            raise UnusableSetting("fraction", wanted, repr(self.fraction))
        return cut


@dataclass(frozen=True)
class ClippedMean(Rule):
    """The weighted mean of updates, each moved to within ``norm`` of ``around``.

    ``around`` is the model that the clients were given: a module, a table or a list of tensors, or
    a tensor, in this process.  Without it updates are what clients have changed, as gradients are.
    The norm is the Euclidean one of all floating-point and complex numbers of an update.  Integers,
    as BatchNorm's count of batches, have no such distance: they stay as they are in ``around``.

    Of a client whose part of the weights is p, the mean moves by ``norm`` times p at most.

    Raises :class:`~syft.exceptions.UnusableSetting` for a norm that is not finite and over 0, and,
    when updates are averaged, for integers without ``around``.

    >>> updates = [torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1e9])]
    >>> sy.federated_average(updates, rule=sy.ClippedMean(2.0))
    tensor([0.0000, 1.5000])
    """

    norm: float
    around: Any = None

    def __post_init__(self) -> None:
        number = isinstance(self.norm, Real) and not isinstance(self.norm, bool)
        if not (number and 0 < self.norm < math.inf):
            raise UnusableSetting("norm", "a finite number over 0", repr(self.norm))
        for tensor in (self.center() or {}).values():
            if type(tensor) is Wrapper:
                raise UnusableSetting("around", "in this process", "pointers")

    def begin(self, weight: float, kind: str = "update") -> Aggregate:
        """A running mean of clipped updates."""
        return _ClippedUpdates(self, RunningMean(weight, kind), kind)

    @property
    def weighs(self) -> bool:
        """Weights count."""
        return True

    def center(self) -> Table | None:
        """What updates are clipped around, by name.

        >>> ClippedMean(1.0, [torch.ones(1)]).center()
        {'0': tensor([1.])}
        """
        return None if self.around is None else table_of(self.around)

    def checked(self, first: Table) -> Table | None:
        """The center, if it is like an update; None if there is none."""
        center = self.center()
        return center if center is None else alike(["0", "around"], [first, center])[1]


NamedRule = Literal["mean", "median"]

RULES: Mapping[str, Rule] = {"mean": Mean(), "median": Median()}
"""Rules that need no numbers of their own."""


def rule_of(rule: Rule | NamedRule) -> Rule:
    """A rule by its name, or as it is.

    >>> rule_of("median")
    Median()
    """
    if isinstance(rule, Rule):
        return rule
    if not isinstance(rule, str) or rule not in RULES:
        known = " or ".join(map(repr, RULES))
        wanted = f"{known}, sy.TrimmedMean(fraction) or sy.ClippedMean(norm)"
        raise UnusableSetting("rule", wanted, repr(rule))
    return RULES[rule]


# ----------------------------------------------------------------------------------- order


class _KeptUpdates:
    """All that was added, by name, until it is sorted; the mean beside it finds what is no number.

    Tensors that are all equal are what they are, as in a mean.
    """

    def __init__(self, rule: OrderRule, weight: float, kind: str) -> None:
        self._rule, self._kind = rule, kind
        self._mean = RunningMean(weight, kind)
        self._kept: dict[str, list[torch.Tensor]] = {}

    def add(self, table: Mapping[str, Any], weight: float, client: str) -> None:
        """Keep the table of a client."""
        self._mean.add(table, weight, client)
        for name, tensor in table.items():
            if isinstance(tensor, torch.Tensor):
                bare = tensor.detach()
                bare = bare if bare.layout is torch.strided else bare.to_dense()
                self._keep(name, bare.unsqueeze(0))

    def add_stacked(
        self, table: Mapping[str, torch.Tensor], weights: Sequence[float], clients: Sequence[object]
    ) -> None:
        """Keep copies of tables: the stacks are written to again."""
        self._mean.add_stacked(table, weights, clients)
        for name, stacked in table.items():
            self._keep(name, stacked.detach().clone())

    def _keep(self, name: str, rows: torch.Tensor) -> None:
        if rows.dtype.is_complex:
            wanted = "of real numbers, which have an order"
            raise UnusableSetting(f"{self._kind}s", wanted, f"complex ones in {name!r}")
        self._kept.setdefault(name, []).append(rows)

    def values(self) -> dict[str, torch.Tensor]:
        """The mean of the numbers in the middle, for each coordinate."""
        means = self._mean.values()
        return {name: self._middle(rows, means[name]) for name, rows in self._kept.items()}

    def _middle(self, kept: Sequence[torch.Tensor], mean: torch.Tensor) -> torch.Tensor:
        device, dtype = mean.device, wide_enough(mean.dtype)
        rows = torch.cat([part.to(device, dtype) for part in kept])
        cut = self._rule.cut(len(rows))
        if bool((rows == rows[0]).all()):
            return kept[0][0].clone()
        left = rows.sort(dim=0).values[cut : len(rows) - cut]
        if len(left) == 1:
            return narrowed(left[0], mean.dtype)
        half = 2.0 ** math.frexp(len(left))[1]  # a power of two: the sum of large numbers is finite
        found = (left / half).sum(0) * (half / len(left))
        # Rounding must not lead beyond the numbers of which it is the mean.
        return narrowed(found.clamp(left[0], left[-1]), mean.dtype)


# -------------------------------------------------------------------------------- clipping


def clipped(x: Tensor, center: Tensor | float, norm: float) -> Tensor:
    """Vectors, along the last dimension, each moved to within ``norm`` of ``center``.

    What is no number stays where it is.  These are operations of torch: a worker can do them.

    >>> clipped(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 0.0, 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    apart = (x - center).masked_fill(x == center, 0.0)
    finite = apart.isfinite()
    apart = apart.masked_fill(~finite, 0.0)
    largest = apart.abs().amax(-1, keepdim=True)
    scale = largest + (largest == 0)  # squares of large numbers would be infinite
    length = torch.linalg.vector_norm(apart / scale, dim=-1, keepdim=True) * scale
    return torch.where(finite & (length > norm), center + apart * (norm / length), x)


def has_distance(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor count in a norm; integers do not.

    >>> has_distance(torch.ones(1)), has_distance(torch.arange(1))
    (True, False)
    """
    return bool(tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def flat_center(
    center: Table | None, names: Sequence[str], device: torch.device | str = "cpu"
) -> torch.Tensor | float:
    """The numbers of a center under these names, as one vector of float64.

    >>> flat_center({"x": torch.ones(1), "n": torch.zeros(1)}, ["x"])
    tensor([1.], dtype=torch.float64)
    """
    if center is None:
        return 0.0
    return torch.cat([_flat(center[name]) for name in names]).to(device)


def _flat(tensor: torch.Tensor, rows: int = 0) -> torch.Tensor:
    """The numbers of a tensor as a vector of float64, or of each of so many rows."""
    dense = tensor.detach() if tensor.layout is torch.strided else tensor.detach().to_dense()
    numbers = cast(torch.Tensor, reals(dense)).double()
    return numbers.reshape(rows, -1) if rows else numbers.flatten()


def _length(tensor: torch.Tensor) -> int:
    """How many real numbers a tensor has."""
    return tensor.numel() * (1 + tensor.dtype.is_complex)


class _ClippedUpdates:
    """A running mean of updates that are clipped when they are added."""

    def __init__(self, rule: ClippedMean, mean: RunningMean, kind: str) -> None:
        self._rule, self._mean, self._kind = rule, mean, kind
        self._center = rule.center()
        self._unmoved: dict[str, torch.Tensor] = {}

    def add(self, table: Mapping[str, Any], weight: float, client: str) -> None:
        """Add the table of a client, clipped."""
        tensors = {key: x for key, x in table.items() if isinstance(x, torch.Tensor)}
        self._mean.add(self._clipped(tensors, 0), weight, client)

    def add_stacked(
        self, table: Mapping[str, torch.Tensor], weights: Sequence[float], clients: Sequence[object]
    ) -> None:
        """Add tables, each clipped by itself."""
        self._mean.add_stacked(self._clipped(table, len(weights)), weights, clients)

    def _clipped(self, table: Mapping[str, torch.Tensor], rows: int) -> dict[str, torch.Tensor]:
        """The tensors that have a distance, clipped; those of so many clients if ``rows``."""
        counted = {name: x for name, x in table.items() if has_distance(x)}
        for name in table.keys() - counted.keys():
            self._unmoved[name] = unmoved(self._center, name, self._kind)
        if not counted:
            return {}
        flat = torch.cat([_flat(x, rows) for x in counted.values()], -1)
        center = flat_center(self._center, list(counted), flat.device)
        moved = clipped(flat, center, self._rule.norm) if flat.shape[-1] else flat
        sizes = [_length(x[0] if rows else x) for x in counted.values()]
        pieces = zip(counted.items(), moved.split(sizes, -1), strict=True)
        return {name: as_before(piece.reshape(-1), x) for (name, x), piece in pieces}

    def values(self) -> dict[str, torch.Tensor]:
        """The mean, and the integers of the center."""
        return {**self._mean.values(), **self._unmoved}


def unmoved(center: Table | None, name: str, kind: str = "update") -> torch.Tensor:
    """The integers of a center, which no update moves."""
    if center is None:
        wanted = "of numbers with a norm, or ClippedMean(norm, around=...) says what integers are"
        raise UnusableSetting(f"{kind}s", wanted, f"integers in {name!r}")
    return cast(torch.Tensor, center[name]).detach().clone()
