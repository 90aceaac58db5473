"""Federated averaging (FedAvg): the mean of what several clients have trained.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017.
Two ways that reveal the mean alone are at hand here, because a single update tells about the data
it was trained on: masks that cancel in the sum, and additive shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import UnusableSetting
from syft.federated.client_updates import (
    Table,
    Tensor,
    check_alike,
    check_finite,
    listed_updates,
    made_like,
    table_of,
)
from syft.federated.running_mean import RunningMean, narrowed
from syft.hooks import bulk
from syft.hooks.whole_modules import one_message_each
from syft.status_line import counted
from syft.tensors.collective_call import sum_private

_FRACTION: Final = 24
"""Bits after the point of what is shared, as in :func:`syft.sum_private`."""


def federated_average(
    updates: Any,
    weights: Any = None,
    *,
    secure: bool = False,
    workers: Sequence[Any] | None = None,
    crypto_provider: Any = None,
    user: str | None = None,
    allow_dealing_party: bool = False,
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

    Raises :class:`~syft.exceptions.UnusableSetting` for no updates; updates that differ in names,
    shapes or dtypes; NaN or Inf in updates that count, with the names of all (with ``secure`` the
    worker that would add them refuses, by :class:`~syft.exceptions.UnsupportedOperation`, or with
    ``workers`` by :class:`~syft.exceptions.EncodingError` or
    :class:`~syft.exceptions.RemoteFailure`); weights that are negative, infinite,
    NaN, all 0, or not one for each update; and, with ``secure``, unless updates that count
    lie at two places or more, with masks at workers.

    >>> models = [torch.nn.Linear(2, 1, bias=False) for _ in range(2)]
    >>> for model, value in zip(models, (1.0, 4.0)):
    ...     _ = torch.nn.init.constant_(model.weight, value)
    >>> sy.federated_average(models, weights=[200, 100]).weight.data
    tensor([[2., 2.]])
    >>> updates = [torch.ones(2).send(bob), torch.zeros(2).send(alice)]
    >>> sy.federated_average(updates, secure=True)
    tensor([0.5000, 0.5000])
    """
    names, several = listed_updates(updates)
    shares = _shares_of(weights, updates, len(several))
    tables = [table_of(update) for update in several]
    if workers is not None or crypto_provider is not None:
        secure = True
    labels = [_label(name, table) for name, table in zip(names, tables, strict=True)]
    if not secure:
        tables = _fetched(tables, user)
    check_alike(names, tables)
    if not secure:  # else no update may be read here, and each worker checks what it adds
        named = zip(labels, tables, shares, strict=True)
        check_finite((label, table) for label, table, share in named if share)
    weighed = [pair for pair in zip(tables, shares, strict=True) if pair[1]]
    if secure:
        dealing = {
            "crypto_provider": crypto_provider,
            "allow_dealing_party": allow_dealing_party,
        }
        mean = _secure_mean(weighed, workers, dealing, user)
    else:
        mean = _mean(weighed)
    return made_like(several[0], mean)


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


def _mean(weighed: Sequence[tuple[Table, float]]) -> Table:
    """The mean of tables of this process."""
    mean = RunningMean()
    for table, share in counted(weighed, "federated_average", len(weighed)):
        mean.add(table, share)
    return mean.values()


# ------------------------------------------------------------------------- nobody sees one of them


def _secure_mean(
    weighed: list[tuple[Table, float]],
    workers: Sequence[Any] | None,
    dealing: Mapping[str, Any],
    user: str | None,
) -> Table:
    """The mean of tables of which none is fetched."""
    places: dict[Any, list[tuple[Table, float]]] = {}
    for table, share in weighed:
        places.setdefault(_place_of(table), []).append((table, share))
    if len(places) < 2:
        where = ", ".join("me" if place is None else str(place.id) for place in places)
        raise UnusableSetting("updates", "at two places or more, to be secure", f"all at {where}")
    parts = [_weighed(several) for several in places.values()]
    if workers is None:
        if None in places:
            raise UnusableSetting("updates", "at workers, to be secure", "one that is here")
        sums: list[Tensor] = list(sum_private(*parts))
        total = sums[0].get(user=user)
    else:
        total = _sum_of_shares(parts, workers, dealing, user)
    first = weighed[0][0]
    pieces = total.split([tensor.numel() for tensor in first.values()])
    return {
        key: narrowed(piece.view(tensor.shape), tensor.dtype)
        for (key, tensor), piece in zip(first.items(), pieces, strict=True)
    }


def _place_of(table: Table) -> Any:
    """The one worker that holds all of an update; None for this process."""
    found = [first_link(tensor).location for tensor in table.values()]
    if not found or any(place is not found[0] or isinstance(place, list) for place in found):
        raise UnusableSetting("updates", "tensors at one worker each", "one that is not")
    return found[0]


def _weighed(several: Sequence[tuple[Table, float]]) -> Tensor:
    """What one worker adds to the mean, as one vector of float64; one message makes it."""
    away = [x for table, _ in several for x in table.values() if type(x) is Wrapper]
    with one_message_each(away):
        vectors = [
            torch.cat([x.detach().double().flatten() for x in table.values()]) * share
            for table, share in several
        ]
        total = vectors[0]
        for vector in vectors[1:]:
            total = total + vector
        return total


def _sum_of_shares(
    parts: Sequence[Tensor], workers: Sequence[Any], dealing: Mapping[str, Any], user: str | None
) -> Tensor:
    """The sum of vectors that are split into shares where they are."""
    shared = [part.fix_precision(_FRACTION, 2).share(*workers, **dealing) for part in parts]
    total = shared[0]
    for other in shared[1:]:
        total = total + other
    return total.get(user=user).float_precision()
