"""Federated averaging (FedAvg): the mean of what several clients have trained.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017.
A single update tells about the data it was trained on.  :mod:`syft.federated.secure_mean` has two
ways that reveal the mean alone.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import UnusableSetting, WorkerClosed
from syft.federated.rules import ClippedMean, NamedRule, Rule, rule_of
from syft.federated.secure_mean import Secrecy, Weighed, secure_by_rule
from syft.federated.updates import (
    Table,
    alike,
    fetched,
    listed_updates,
    made_like,
    table_of,
)
from syft.status_line import counted
from syft.tensors.fixed.fixed_link import is_fixed


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
    minimum: int | None = None,
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

    ``minimum``, with ``secure``, has the sum go on when workers leave: the mean is that of those
    that stay, at least so many and more than half of all, and a warning names the others.  What
    they have added is in no sum, or in the sum alone.

    Raises :class:`~syft.exceptions.TooFewClients` if fewer stay; and
    :class:`~syft.exceptions.UnusableSetting` for no updates; updates in fixed precision or
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
    secure = secure or workers is not None or crypto_provider is not None
    dealing = {"crypto_provider": crypto_provider, "allow_dealing_party": allow_dealing_party}
    how = Secrecy(user, minimum, workers, dealing)
    if minimum is not None:
        _check_minimum(minimum, secure and workers is None and crypto_provider is None)
    mean = average_of(updates, weights, rule_of(rule), how if secure else None, user)
    if how.left_out:
        gone = [f"{label} ({why.error})" for label, why in how.left_out.items()]
        warnings.warn(f"Not in the average: {', '.join(gone)}", stacklevel=2)
    return mean


federated_avg = federated_average


def average_of(
    updates: Any,
    weights: Any,
    rule: Rule,
    how: Secrecy | None,
    user: str | None,
    called: Sequence[str] = (),
) -> Any:
    """What becomes of updates by a rule; with ``how`` none is fetched.  Errors call them so.

    >>> average_of([torch.ones(1), torch.zeros(1)], [3, 1], rule_of("mean"), None, None)
    tensor([0.7500])
    """
    parts = _parts_of(updates, weights, rule, called)
    leaving = how is not None and how.minimum is not None
    if leaving:
        parts = _reachable(parts, cast(Secrecy, how))
    tables = [part.table for part in parts]
    tables = alike([part.name for part in parts], fetched(tables, user) if how is None else tables)
    weighed = [(table, part.share, part.label) for table, part in zip(tables, parts, strict=True)]
    weighed = [one for one in weighed if one[1]]
    mean = _by_rule(rule, weighed) if how is None else secure_by_rule(rule, weighed, how)
    return _made_like_one(parts, {key: mean[key] for key in tables[0]}, leaving)


@dataclass(frozen=True, slots=True)
class _UpdatePart:
    """An update, its table, its part of the mean, its name, and what errors call it."""

    update: Any
    table: Table
    share: float
    name: str
    label: str


def _parts_of(updates: Any, weights: Any, rule: Rule, called: Sequence[str]) -> list[_UpdatePart]:
    """All updates, of which none is encoded."""
    names, several = listed_updates(updates)
    names = list(called) or names
    if weights is not None and not rule.weighs:
        raise UnusableSetting("weights", f"none: {rule} counts all the same", "some")
    shares = _shares_of(weights, updates, len(several))
    tables, labels = _checked_tables(names, several)
    return list(map(_UpdatePart, several, tables, shares, names, labels))


def _reachable(parts: Sequence[_UpdatePart], how: Secrecy) -> list[_UpdatePart]:
    """The updates whose workers have not left."""
    there = how.reachable([part.table for part in parts], [part.label for part in parts])
    return [parts[at] for at in there]


def _made_like_one(parts: Sequence[_UpdatePart], values: Table, leaving: bool) -> Any:
    """An update of the kind of the first one; of a module, the rest is fetched from its worker, so
    with ``leaving`` of the first whose worker is there."""
    for part in parts[:-1] if leaving else ():
        with contextlib.suppress(WorkerClosed):
            return made_like(part.update, values)
    return made_like(parts[-1 if leaving else 0].update, values)


def _check_minimum(minimum: Any, masked: bool) -> None:
    if not masked:
        raise UnusableSetting("minimum", "left out, but with secure=True and masks", repr(minimum))
    if not isinstance(minimum, int) or isinstance(minimum, bool) or minimum < 2:
        raise UnusableSetting("minimum", "a whole number from 2", repr(minimum))


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


def _by_rule(rule: Rule, weighed: Sequence[Weighed]) -> Table:
    """What becomes of tables of this process."""
    if isinstance(rule, ClippedMean):
        rule.checked(weighed[0][0])
    mean = rule.begin(1)
    for table, share, label in counted(weighed, "federated_average", len(weighed)):
        mean.add(table, share, label)
    return mean.values()
