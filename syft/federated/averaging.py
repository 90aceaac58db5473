"""Federated averaging (FedAvg): the mean of what several clients have trained.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017.
Two ways that reveal the mean alone are at hand here, because a single update tells about the data
it was trained on: masks that cancel in the sum, and additive shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import torch

from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import (
    EncodingError,
    RemoteFailure,
    SyftError,
    UnsupportedOperation,
    UnusableSetting,
)
from syft.federated.rules import (
    ClippedMean,
    NamedRule,
    Rule,
    clipped,
    flat_center,
    has_distance,
    rule_of,
    unmoved,
)
from syft.federated.updates import (
    Table,
    Tensor,
    alike,
    as_before,
    listed_updates,
    made_like,
    reals,
    table_of,
)
from syft.hooks import bulk
from syft.hooks.whole_modules import one_message_each
from syft.status_line import counted
from syft.tensors.collective_call import sum_private
from syft.tensors.fixed.fixed_link import decoded, is_fixed
from syft.tensors.pointer import PointerTensor

_FRACTION: Final = 24
"""Bits after the point of what is shared, as in :func:`syft.sum_private`."""

_LIMIT: Final = 2.0 ** (63 - _FRACTION)
"""What a sum must stay below in those units."""

_OF_NUMBERS: Final = EncodingError, RemoteFailure, UnsupportedOperation
"""What workers raise of numbers that have no place in a sum."""

Weighed = tuple[Table, float, str]
"""An update, its part of the mean, and what errors call it."""

Clip = tuple[float, Tensor]
"""How far a vector may be from another one."""


def federated_average(
    updates: Any,
    weights: Any = None,
    *,
    secure: bool = False,
    workers: Sequence[Any] | None = None,
    crypto_provider: Any = None,
    user: str | None = None,
    allow_dealing_party: bool = False,
    rule: Rule | NamedRule = "mean",
) -> Any:
    """The weighted mean of modules, state_dicts, lists of tensors, or tensors.

    ``updates`` is a list of them, or a mapping from clients to them; ``weights`` likewise, mostly
    the number of samples of each client (by default all count the same).  The mean is of the kind
    of the first update, new, in this process and without gradients; of a module, parameters and
    persistent buffers are averaged.  Integers are averaged and rounded.  An update of weight 0 is
    left out.  ``federated_avg`` is the name of earlier versions.

    Updates may be pointers: their values are fetched on behalf of ``user``, in one message from
    each worker, and stay there.  With ``secure`` no single update is fetched: each worker weighs
    its own, and :func:`syft.sum_private` adds them up behind masks that cancel.  With ``workers``
    besides they are split into shares among those workers, who add their shares;
    ``crypto_provider`` is another worker, or one of them with ``allow_dealing_party``, as for
    ``x.share``.  Either way numbers are rounded to
    multiples of 2^-24, once for each worker.  The mean itself tells what it tells: of two updates,
    each client can work out the other.

    ``rule`` says how updates become one, where some of them may be bad: ``"median"``,
    :class:`syft.TrimmedMean` or :class:`syft.ClippedMean`.  The first two compare updates, so they
    are not secure, and take no weights: a bad client would choose a large one.

    Raises :class:`~syft.exceptions.UnusableSetting` for no updates; updates in fixed precision or
    of shares; updates that differ in names, shapes or dtypes; containers and arrays in updates,
    which would not be averaged; modules that cannot hold the mean, because they compute their
    ``state_dict`` or tie what others do not; NaN in updates that count, infinities that not all of
    them have in the same places, and integers from 2^53 on that not all have in common, with the
    names of all; with ``secure`` NaN, Inf and numbers whose sum may leave the grid, which the
    workers refuse (where ``user`` may not read them, by another error without the names of
    tensors); weights that are negative, infinite, NaN, all 0, or not one for each update; and, with
    ``secure``, unless updates that count lie at two places or more, with masks at workers.

    >>> models = [torch.nn.Linear(2, 1, bias=False) for _ in range(2)]
    >>> for model, value in zip(models, (1.0, 4.0)):
    ...     _ = torch.nn.init.constant_(model.weight, value)
    >>> sy.federated_average(models, weights=[200, 100]).weight.data
    tensor([[2., 2.]])
    >>> updates = [torch.ones(2).send(bob), torch.zeros(2).send(alice)]
    >>> sy.federated_average(updates, secure=True)
    tensor([0.5000, 0.5000])
    """
    rule = rule_of(rule)
    secure = secure or workers is not None or crypto_provider is not None
    names, several = listed_updates(updates)
    if weights is not None and not rule.weighs:
        raise UnusableSetting("weights", f"none: {rule} counts all the same", "some")
    shares = _shares_of(weights, updates, len(several))
    tables, labels = _checked_tables(names, several)
    tables = alike(names, tables if secure else _fetched(tables, user))
    weighed = [update for update in zip(tables, shares, labels, strict=True) if update[1]]
    if secure:
        dealing = {"crypto_provider": crypto_provider, "allow_dealing_party": allow_dealing_party}
        mean = _secure_by_rule(rule, weighed, workers, dealing, user)
    else:
        mean = _by_rule(rule, weighed)
    return made_like(several[0], {key: mean[key] for key in tables[0]})


federated_avg = federated_average


def _shares_of(weights: Any, updates: Any, count: int) -> list[float]:
    """The weights as parts of one."""
    if weights is None:
        return [1 / count] * count
    numbers = [float(weight) for weight in _in_order(weights, updates)]
    if len(numbers) != count:
        raise UnusableSetting("weights", f"one for each update: {count}", str(len(numbers)))
    for number in numbers:
        if not math.isfinite(number) or number < 0:
            raise UnusableSetting("weights", "finite numbers from 0", str(number))
    total = sum(numbers)
    if not total or not math.isfinite(total):
        raise UnusableSetting("weights", "of a finite sum over 0", str(total))
    return [number / total for number in numbers]


def _in_order(weights: Any, updates: Any) -> Iterable[Any]:
    """The weights in the order of the updates."""
    if not isinstance(weights, Mapping):
        return weights  # type: ignore[no-any-return]
    if not isinstance(updates, Mapping) or weights.keys() != updates.keys():
        raise UnusableSetting("weights", "by the names of the updates", str(list(weights)))
    return [weights[name] for name in updates]


def _label(name: str, table: Table) -> str:
    """What errors call an update: its name, and the workers that hold it unless that is theirs."""
    places = [first_link(tensor).location for tensor in table.values() if type(tensor) is Wrapper]
    ids = dict.fromkeys(str(place.id) for place in places if hasattr(place, "id"))
    where = ", ".join(id for id in ids if id != name)
    return f"{name} at {where}" if where else name


def _checked_tables(names: Sequence[str], several: Sequence[Any]) -> tuple[list[Table], list[str]]:
    """The tables of updates, of which none is encoded, and what errors call each."""
    tables = [table_of(update) for update in several]
    for name, table in zip(names, tables, strict=True):
        _refuse_encoded(name, table)
    return tables, [_label(name, table) for name, table in zip(names, tables, strict=True)]


def _refuse_encoded(name: str, table: Table) -> None:
    """Raise for tensors here in fixed precision or of shares: nothing of them can be fetched."""
    for key, tensor in table.items():
        shared = first_link(tensor).shared_cell() is not None
        if shared or is_fixed(tensor):
            wanted = "plain tensors or pointers (decode them first: float_precision(), decrypt())"
            kind = "shares" if shared else "fixed precision"
            raise UnusableSetting("updates", wanted, f"{kind} in {key!r} of update {name}")


def _fetched(tables: list[Table], user: str | None) -> list[Table]:
    """The tables with the values of what lies at workers; gradients are not asked for."""
    away = [tensor for table in tables for tensor in table.values() if type(tensor) is Wrapper]
    with one_message_each(away):
        bare = [tensor.detach() for tensor in away]
    found = iter(bulk.get_all(bare, user))
    return [
        {key: next(found) if type(tensor) is Wrapper else tensor for key, tensor in table.items()}
        for table in tables
    ]


def _by_rule(rule: Rule, weighed: Sequence[Weighed]) -> Table:
    """What becomes of tables of this process."""
    if isinstance(rule, ClippedMean):
        rule.checked(weighed[0][0])
    mean = rule.begin(1)
    for table, share, label in counted(weighed, "federated_average", len(weighed)):
        mean.add(table, share, label)
    return mean.values()


# ------------------------------------------------------------------------- nobody sees one of them


def _secure_by_rule(
    rule: Rule,
    weighed: list[Weighed],
    workers: Sequence[Any] | None,
    dealing: Mapping[str, Any],
    user: str | None,
) -> Table:
    """The mean of tables of which none is fetched; each worker clips its own."""
    if not rule.weighs:
        raise UnusableSetting("rule", "the mean or sy.ClippedMean, to be secure", repr(rule))
    if not isinstance(rule, ClippedMean):
        return _secure_mean(weighed, workers, dealing, user, None)
    first = weighed[0][0]
    names = [key for key, x in first.items() if has_distance(x)]
    fixed = {key: unmoved(rule.center(), key) for key in first.keys() - set(names)}
    if not names:
        return fixed
    moving = [({key: table[key] for key in names}, *rest) for table, *rest in weighed]
    clip = rule.norm, flat_center(rule.checked(first), names)
    return {**_secure_mean(cast(list[Weighed], moving), workers, dealing, user, clip), **fixed}


def _secure_mean(
    weighed: list[Weighed],
    workers: Sequence[Any] | None,
    dealing: Mapping[str, Any],
    user: str | None,
    clip: Clip | None,
) -> Table:
    """The mean of tables of which none is fetched."""
    places = _by_place(weighed, workers is None)
    parts = [_weighed(several, _LIMIT / len(places) - 1, clip) for several in places]
    first = weighed[0][0]
    sizes = [x.numel() * (1 + x.dtype.is_complex) for x in first.values()]
    try:
        if workers is None:
            sums: list[Tensor] = list(sum_private(*parts))
            total = sums[0].get(user=user)
        else:
            total = _sum_of_shares(parts, workers, dealing, user)
    except SyftError as error:
        _settle(parts, error)
        if not isinstance(error, _OF_NUMBERS):
            raise
        names = [" and ".join(label for _, _, label in several) for several in places]
        found = _faults(parts, dict(zip(first, sizes, strict=True)), names, user)
        if not found:
            raise
        wanted = f"finite, times their weights under 2^39 / {len(places)} places, to be secure"
        raise UnusableSetting("updates", wanted, f"others in {found}") from error
    pieces = zip(first.items(), total.split(sizes), strict=True)
    return {key: as_before(piece, tensor) for (key, tensor), piece in pieces}


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
        found = _fetched(flags, user)
    except SyftError:
        return ""
    keys = [", ".join(repr(key) for key in sizes if table[key]) for table in found]
    return "; ".join(f"{k} of update {name}" for k, name in zip(keys, names, strict=True) if k)


def _unfit(part: Tensor, sizes: Mapping[str, int]) -> Table:
    """Which tensors have numbers without a place in the sum, as flags where the vector is."""
    pieces = zip(sizes, part.split([*sizes.values()]), strict=True)
    return {key: ~piece.isfinite().all() for key, piece in pieces}
