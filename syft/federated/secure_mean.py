"""Averages of which no update is seen by itself: each worker weighs its own, and all are added up.

Masks that cancel in the sum, or additive shares, hide what each adds.  With a minimum the sum goes
on when workers leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import torch

from syft.chain.wrapper import Wrapper, first_link
from syft.crypto.seed_sharing import fewest
from syft.exceptions import (
    EncodingError,
    RemoteFailure,
    SyftError,
    TooFewClients,
    UnsupportedOperation,
    UnusableSetting,
    WorkerClosed,
)
from syft.federated.rules import (
    ClippedMean,
    Rule,
    clipped,
    flat_center,
    has_distance,
    unmoved,
)
from syft.federated.updates import Table, Tensor, as_before, fetched, reals
from syft.hooks.whole_modules import one_message_each
from syft.tensors.collective_call import sum_of_those_left, sum_private
from syft.tensors.fixed.fixed_link import decoded
from syft.tensors.pointer import PointerTensor

_FRACTION: Final = 24
"""Bits after the point of what is shared, as in :func:`syft.sum_private`."""

_LIMIT: Final = 2.0 ** (63 - _FRACTION)
"""What a sum must stay below in those units."""

_LEAST_SHARE: Final = 0.5
"""Of the weight that a sum was made for: with less of it left, rounding to the grid shows."""

_OF_NUMBERS: Final = EncodingError, RemoteFailure, UnsupportedOperation
"""What workers raise of numbers that have no place in a sum."""

_NOT_COME: Final = RemoteFailure("collective", "what it adds has not come")

Weighed = tuple[Table, float, str]
"""An update, its part of the mean, and what errors call it."""

Clip = tuple[float, Tensor]
"""How far a vector may be from another one."""


@dataclass(frozen=True, slots=True)
class LeftFromMean:
    """Why an update is not in a mean: the class of an error, whether its worker is gone, and the
    first line of the text.  An error itself would keep alive all that its lines used.

    >>> LeftFromMean.by(WorkerClosed("bob")).lost
    True
    """

    error: str
    lost: bool
    text: str

    @classmethod
    def by(cls, error: Exception) -> LeftFromMean:
        """What is kept of an error."""
        lost = isinstance(error, WorkerClosed)
        return cls(type(error).__name__, lost, str(error).partition("\n")[0])


@dataclass(frozen=True, slots=True)
class Secrecy:
    """How updates are added up without being seen, as for :func:`syft.federated_average`.

    ``left_out`` takes in which updates are not in the mean because their workers have left, by
    what errors call them.

    >>> Secrecy().minimum is None
    True
    """

    user: str | None = None
    minimum: int | None = None
    workers: Sequence[Any] | None = None
    dealing: Mapping[str, Any] = field(default_factory=dict)
    left_out: dict[str, LeftFromMean] = field(default_factory=dict)

    def reachable(self, tables: Sequence[Table], labels: Sequence[str]) -> list[int]:
        """The places in a list of those updates whose workers have not left.

        >>> updates = [{"x": torch.ones(1).send(place)} for place in (bob, alice)]
        >>> Secrecy(minimum=2).reachable(updates, ["bob", "alice"])
        [0, 1]
        """
        found = []
        for place, (table, label) in enumerate(zip(tables, labels, strict=True)):
            try:
                _ = [tensor.shape for tensor in table.values()]
                found.append(place)
            except WorkerClosed as error:
                self.left_out[label] = LeftFromMean.by(error)
        self.check(len(found))
        return found

    def check(self, count: int) -> None:
        """Raise :class:`~syft.exceptions.TooFewClients` if so many workers are too few."""
        needed = max(self.minimum or 2, fewest(count))
        if count < needed:
            gone = [f"{label} ({why.text})" for label, why in self.left_out.items()]
            raise TooFewClients("The secure sum", count, needed, tuple(gone))


def secure_by_rule(rule: Rule, weighed: list[Weighed], how: Secrecy) -> Table:
    """What becomes of tables of which none is fetched; each worker clips its own.

    >>> weighed = [({"x": torch.ones(1).send(place)}, 0.5, place.id) for place in (bob, alice)]
    >>> from syft.federated.rules import rule_of
    >>> secure_by_rule(rule_of("mean"), weighed, Secrecy())
    {'x': tensor([1.])}
    """
    if not rule.weighs:
        raise UnusableSetting("rule", "the mean or sy.ClippedMean, to be secure", repr(rule))
    if not isinstance(rule, ClippedMean):
        return _secure_mean(weighed, how, None)
    first = weighed[0][0]
    names = [key for key, x in first.items() if has_distance(x)]
    fixed = {key: unmoved(rule.center(), key) for key in first.keys() - set(names)}
    if not names:
        return fixed
    moving = [({key: table[key] for key in names}, *rest) for table, *rest in weighed]
    clip = rule.norm, flat_center(rule.checked(first), names)
    return {**_secure_mean(cast(list[Weighed], moving), how, clip), **fixed}


def _secure_mean(weighed: list[Weighed], how: Secrecy, clip: Clip | None) -> Table:
    """The mean of tables of which none is fetched."""
    places = _by_place(weighed, how.workers is None)
    # Forms without memory: later a worker may have left that would be asked for them.
    first = {
        key: torch.empty(x.shape, dtype=x.dtype, device="meta") for key, x in weighed[0][0].items()
    }
    sizes = [x.numel() * (1 + x.dtype.is_complex) for x in first.values()]
    if how.minimum is None:
        total = _total_of_all(places, sizes, how, clip)
    else:
        total = _Leaving(places, how, clip).mean()
    pieces = zip(first.items(), torch.split(total, sizes), strict=True)
    return {key: as_before(piece, tensor) for (key, tensor), piece in pieces}


def _total_of_all(
    places: list[list[Weighed]], sizes: Sequence[int], how: Secrecy, clip: Clip | None
) -> torch.Tensor:
    """The sum of what all places add; it needs all of them."""
    parts = [_weighed(several, _LIMIT / len(places) - 1, clip) for several in places]
    try:
        if how.workers is not None:
            return _sum_of_shares(parts, how.workers, how.dealing, how.user)
        sums: list[Tensor] = list(sum_private(*parts))
        return cast(torch.Tensor, sums[0].get(user=how.user))
    except SyftError as error:
        _settle(parts, error)
        if not isinstance(error, _OF_NUMBERS):
            raise
        names = [_name_of(several) for several in places]
        found = _faults(parts, dict(zip(places[0][0][0], sizes, strict=True)), names, how.user)
        if not found:
            raise
        wanted = f"finite, times their weights under 2^39 / {len(places)} places, to be secure"
        raise UnusableSetting("updates", wanted, f"others in {found}") from error


def _name_of(several: Sequence[Weighed]) -> str:
    """What errors call the updates of one place."""
    return " and ".join(label for _, _, label in several)


class _Leaving:
    """A mean of those places that stay until it is there.

    If the first of them leaves, which adds up, the others begin anew, with new masks; and so do
    those that stay if most of the weight has left: what they add was too small for the grid.
    """

    def __init__(self, places: list[list[Weighed]], how: Secrecy, clip: Clip | None) -> None:
        self._all, self._how, self._clip = places, how, clip
        self._weights = [sum(weight for _, weight, _ in several) for several in places]
        self._left: dict[int, Tensor] = {}
        """What each place adds that has not left, by its number."""

    def mean(self) -> torch.Tensor:
        """The mean of those that stay."""
        weight = self._weigh(range(len(self._all)))
        while True:
            self._how.check(len(self._left))
            found = self._sum(list(self._left))
            if found is None:
                continue
            total, there = found
            self._how.check(len(there))
            share = sum(self._weights[number] for number in there) / weight
            if share >= _LEAST_SHARE:
                return total / share
            weight = self._weigh(there)

    def _weigh(self, numbers: Sequence[int]) -> float:
        """Have places weigh what they add, as parts of all their weight, which this returns."""
        most, weight = _LIMIT / len(self._all) - 1, sum(self._weights[one] for one in numbers)
        for number in numbers:
            several = [(table, own / weight, label) for table, own, label in self._all[number]]
            try:
                self._left[number] = _weighed(several, most, self._clip)
            except WorkerClosed as error:
                self._drop(number, error)
        return weight

    def _sum(self, numbers: Sequence[int]) -> tuple[torch.Tensor, list[int]] | None:
        """The sum and who is in it; None if it is to be asked for again without those who left."""
        minimum = max(cast(int, self._how.minimum), fewest(len(numbers)))
        started = sum_of_those_left(list(self._left.values()), minimum)
        rows = dict(zip(numbers, started, strict=True))
        del started
        ended = ((number, _error_of(row)) for number, row in rows.items())
        errors = {number: error for number, error in ended if error is not None}
        read = self._read(rows, errors)
        if read is None:
            try:
                self._drop_causes(rows, errors)
            finally:  # the lines of what is raised would keep it alive, and the pointers with it
                rows.clear()
                errors.clear()
            return None
        total, there = read
        counted = [n for n, flag in zip(numbers, there.tolist(), strict=True) if flag]
        for other in set(numbers) - set(counted):
            self._drop(other, errors.get(other, _NOT_COME))
        return total, counted

    def _read(
        self, rows: Mapping[int, Any], errors: dict[int, Exception]
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The sum and who is in it, of the first party that has it and is still there."""
        for number in [number for number in rows if number not in errors]:
            try:
                total, there = (one.get(user=self._how.user) for one in rows[number])
                return total, there
            except WorkerClosed as error:
                errors[number] = error.with_traceback(None)
        return None

    def _drop_causes(
        self, rows: Mapping[int, Sequence[Wrapper] | WorkerClosed], errors: Mapping[int, Exception]
    ) -> None:
        """Drop those that have left, or have failed by themselves; raise if that is nobody, or all
        of them."""
        causes = [
            number
            for number, error in errors.items()
            if _has_left(rows[number]) or not isinstance(error, RemoteFailure)
        ]
        if len(causes) in (0, len(errors)):
            raise next(iter(errors.values()))
        for number in causes:
            self._drop(number, errors[number])

    def _drop(self, number: int, error: Exception) -> None:
        self._left.pop(number, None)
        for _, _, label in self._all[number]:
            self._how.left_out[label] = LeftFromMean.by(error)


def _error_of(row: Sequence[Wrapper] | WorkerClosed) -> Exception | None:
    """Why a party has no sum, once it has ended there; None if it has one.

    It is without its traceback, whose frames would keep alive all that is used here.
    """
    if isinstance(row, WorkerClosed):
        return row.with_traceback(None)
    try:
        error = cast(PointerTensor, row[0].child).handle.exception()
    except SyftError as raised:
        error = raised
    return None if error is None else error.with_traceback(None)


def _has_left(row: Sequence[Wrapper] | WorkerClosed) -> bool:
    if isinstance(row, WorkerClosed):
        return True
    return cast(PointerTensor, row[0].child).connection.transport.closed


def _by_place(weighed: list[Weighed], elsewhere: bool) -> list[list[Weighed]]:
    """The updates of each place, two or more; with ``elsewhere`` none of them is here."""
    places: dict[Any, list[Weighed]] = {}
    for update in weighed:
        places.setdefault(_place_of(update[0]), []).append(update)
    if len(places) < 2:
        where = ", ".join("me" if place is None else str(place.id) for place in places)
        raise UnusableSetting("updates", "at two places or more, to be secure", f"all at {where}")
    if elsewhere and None in places:
        raise UnusableSetting("updates", "at workers, to be secure", "one that is here")
    return list(places.values())


def _place_of(table: Table) -> Any:
    """The one worker that holds all of an update; None for this process."""
    found = [first_link(tensor).location for tensor in table.values()]
    if not found or any(place is not found[0] or isinstance(place, list) for place in found):
        raise UnusableSetting("updates", "tensors at one worker each", "one that is not")
    return found[0]


def _weighed(several: Sequence[Weighed], most: float, clip: Clip | None) -> Tensor:
    """What one worker adds to the mean, as one vector of float64; one message makes it.

    Numbers from ``most`` on are infinite in it, which every grid refuses: the sum of all workers
    would wrap around, and an error would show a number that the grid does not have.
    """
    away = [x for table, _, _ in several for x in table.values() if type(x) is Wrapper]
    with one_message_each(away):
        flat = _flat_updates(several, clip)
        vectors = [vector * share for vector, (_, share, _) in zip(flat, several, strict=True)]
        total = vectors[0]
        for vector in vectors[1:]:
            total = total + vector
        return total / (total.abs() < most)


def _flat_updates(several: Sequence[Weighed], clip: Clip | None) -> list[Tensor]:
    """The updates of one worker as vectors where they are, clipped there."""
    flat = [torch.cat([reals(x).double().flatten() for x in t.values()]) for t, _, _ in several]
    if clip is None:
        return flat
    norm, center = clip
    place = _place_of(several[0][0])
    if place is not None and isinstance(center, torch.Tensor):
        center = cast(Tensor, center).send(place)
    return [clipped(vector, center, norm) for vector in flat]


def _sum_of_shares(
    parts: Sequence[Tensor], workers: Sequence[Any], dealing: Mapping[str, Any], user: str | None
) -> torch.Tensor:
    """The sum of vectors that are split into shares where they are."""
    shared = [part.fix_precision(_FRACTION, 2).share(*workers, **dealing) for part in parts]
    total = shared[0]
    for other in shared[1:]:
        total = total + other
    fixed: Any = first_link(total.get(user=user))
    return decoded(fixed, torch.float64)


def _settle(parts: Iterable[Tensor], error: SyftError) -> None:
    """Note in an error what else failed at the workers: else it is raised at the next question."""
    for part in parts:
        if type(part) is Wrapper:
            connection = cast(PointerTensor, part.child).connection
            try:
                connection.synchronize()
            except SyftError as other:
                error.add_note(f"And at {connection.location.id}: {other}")


def _faults(
    parts: Sequence[Tensor], sizes: Mapping[str, int], names: Sequence[str], user: str | None
) -> str:
    """The tensors with numbers that have no place in the sum, and whose they are.

    The workers tell ``user``, who may read the updates; what others may not read stays unnamed.
    """
    with one_message_each(part for part in parts if type(part) is Wrapper):
        flags = [_unfit(part, sizes) for part in parts]
    try:
        found = fetched(flags, user)
    except SyftError:
        return ""
    keys = [", ".join(repr(key) for key in sizes if table[key]) for table in found]
    return "; ".join(f"{k} of update {name}" for k, name in zip(keys, names, strict=True) if k)


def _unfit(part: Tensor, sizes: Mapping[str, int]) -> Table:
    """Which tensors have numbers without a place in the sum, as flags where the vector is."""
    pieces = zip(sizes, part.split([*sizes.values()]), strict=True)
    return {key: ~piece.isfinite().all() for key, piece in pieces}
