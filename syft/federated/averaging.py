"""Federated averaging (FedAvg): the mean of what several clients have trained.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017.
Two ways that reveal the mean alone are at hand here, because a single update tells about the data
it was trained on: masks that cancel in the sum, and additive shares.

What a client's update is made of: a table of tensors by name, whatever holds them.

A module, a state_dict, a list of tensors and a single tensor are averaged alike.  Each is read as
such a table, and from the averaged table another one of the same kind is made.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import torch
from torch import nn

from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import (
    EncodingError,
    RemoteFailure,
    SyftError,
    UnsupportedOperation,
    UnusableSetting,
)
from syft.federated.running_mean import RunningMean, narrowed
from syft.hooks import bulk
from syft.hooks.module_methods import tensors_of
from syft.hooks.whole_modules import one_message_each
from syft.ops.nested import leaves
from syft.status_line import counted
from syft.tensors.collective_call import sum_private
from syft.tensors.fixed.fixed_link import decoded, is_fixed
from syft.tensors.pointer import PointerTensor

_FRACTION: Final = 24
"""Bits after the point of what is shared, as in :func:`syft.sum_private`."""

_LIMIT: Final = 2.0 ** (63 - _FRACTION)
"""What a sum must stay below in those units."""

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any
Table = dict[Any, Tensor]

Weighed = tuple[Table, float, str]
"""An update, its part of the mean, and what errors call it."""


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
    names, several = listed_updates(updates)
    shares = _shares_of(weights, updates, len(several))
    tables = [table_of(update) for update in several]
    for name, table in zip(names, tables, strict=True):
        _refuse_encoded(name, table)
    if workers is not None or crypto_provider is not None:
        secure = True
    labels = [_label(name, table) for name, table in zip(names, tables, strict=True)]
    if not secure:
        tables = _fetched(tables, user)
    tables = alike(names, tables)
    weighed = [update for update in zip(tables, shares, labels, strict=True) if update[1]]
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


def _mean(weighed: Sequence[Weighed]) -> Table:
    """The mean of tables of this process."""
    mean = RunningMean(1)
    for table, share, label in counted(weighed, "federated_average", len(weighed)):
        mean.add(table, share, label)
    return mean.values()


# ------------------------------------------------------------------------- nobody sees one of them


def _secure_mean(
    weighed: list[Weighed],
    workers: Sequence[Any] | None,
    dealing: Mapping[str, Any],
    user: str | None,
) -> Table:
    """The mean of tables of which none is fetched."""
    places = _by_place(weighed, workers is None)
    parts = [_weighed(several, _LIMIT / len(places) - 1) for several in places]
    first = weighed[0][0]
    sizes = [x.numel() * (1 + x.dtype.is_complex) for x in first.values()]
    try:
        if workers is None:
            sums: list[Tensor] = list(sum_private(*parts))
            total = sums[0].get(user=user)
        else:
            total = _sum_of_shares(parts, workers, dealing, user)
    except (EncodingError, RemoteFailure, UnsupportedOperation) as error:
        _settle(parts, error)
        names = [" and ".join(label for _, _, label in several) for several in places]
        found = _faults(parts, dict(zip(first, sizes, strict=True)), names, user)
        if not found:
            raise
        wanted = f"finite, times their weights under 2^39 / {len(places)} places, to be secure"
        raise UnusableSetting("updates", wanted, f"others in {found}") from error
    pieces = zip(first.items(), total.split(sizes), strict=True)
    return {key: _as_before(piece, tensor) for (key, tensor), piece in pieces}


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


def _weighed(several: Sequence[Weighed], most: float) -> Tensor:
    """What one worker adds to the mean, as one vector of float64; one message makes it.

    Numbers from ``most`` on are infinite in it, which every grid refuses: the sum of all workers
    would wrap around, and an error would show a number that the grid does not have.
    """
    away = [x for table, _, _ in several for x in table.values() if type(x) is Wrapper]
    with one_message_each(away):
        vectors = [
            torch.cat([_reals(x).double().flatten() for x in table.values()]) * share
            for table, share, _ in several
        ]
        total = vectors[0]
        for vector in vectors[1:]:
            total = total + vector
        return total / (total.abs() < most)


def _reals(x: Tensor) -> Tensor:
    """The numbers of a tensor, and of a complex one their two parts."""
    return torch.view_as_real(x.detach().resolve_conj()) if x.dtype.is_complex else x.detach()


def _as_before(piece: torch.Tensor, tensor: Tensor) -> torch.Tensor:
    """Averaged numbers in the shape and dtype of an update's tensor."""
    if tensor.dtype.is_complex:
        piece = torch.complex(piece[::2].contiguous(), piece[1::2].contiguous())
    return narrowed(piece.view(tensor.shape), tensor.dtype)


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


def listed_updates(updates: Any) -> tuple[list[str], list[Any]]:
    """The updates one by one, with what they are called in errors: a mapping's keys, or numbers.

    Raises :class:`~syft.exceptions.UnusableSetting` for no updates, and for what is one itself.

    >>> listed_updates({"bob": [torch.ones(1)], "alice": [torch.ones(1)]})[0]
    ['bob', 'alice']
    """
    single = isinstance(updates, nn.Module | torch.Tensor)
    if isinstance(updates, Mapping):
        names, several = [str(name) for name in updates], list(updates.values())
        single = any(isinstance(value, torch.Tensor) for value in several)
    elif not single:
        several = list(updates)
        names = [str(number) for number in range(len(several))]
    if single:
        raise UnusableSetting("updates", "a list of updates", f"one {type(updates).__name__}")
    if not several:
        raise UnusableSetting("updates", "one or more", "none")
    return names, several


def table_of(update: Any) -> Table:
    """The tensors of an update by name: parameters and persistent buffers, if it is a module.

    Raises :class:`~syft.exceptions.UnusableSetting` for a mapping or a list of other things: what
    is nested in it, or an array, would not be averaged.

    >>> list(table_of(torch.nn.Linear(2, 1))), list(table_of([torch.ones(1)]))
    (['weight', 'bias'], ['0'])
    """
    if isinstance(update, torch.Tensor):
        return {"": update}
    if isinstance(update, nn.Module):
        return _tensors_in(update.state_dict(keep_vars=True))
    is_mapping = isinstance(update, Mapping)
    items = dict(update) if is_mapping else {str(key): one for key, one in enumerate(update)}
    table = _tensors_in(items)
    _check_whole(items, table, is_mapping)
    return table


def _check_whole(items: Mapping[Any, Any], table: Table, may_have_others: bool) -> None:
    """Raise if a mapping or a list of updates has tensors that its table lacks, or none."""
    for key in (key for key in items if key not in table):
        if not (may_have_others and table) or _tensors_in(dict(enumerate(leaves(items[key])))):
            got = f"{key!r} of {type(items[key]).__name__}"
            raise UnusableSetting("updates", "modules, or tables or lists of tensors", got)


def _tensors_in(items: Mapping[Any, Any]) -> Table:
    return {key: value for key, value in items.items() if isinstance(value, torch.Tensor)}


def alike(names: Sequence[str], tables: Sequence[Table]) -> list[Table]:
    """The tables in the order of the first.

    Raises :class:`~syft.exceptions.UnusableSetting` unless all have the same names, and under each
    of them tensors of one shape and dtype.

    >>> alike(["bob", "alice"], [{"w": torch.ones(2)}, {"w": torch.ones(3)}])
    Traceback (most recent call last):
    syft.exceptions.UnusableSetting: updates must be alike: 'w' of shape (2,) and \
torch.float32, got (3,) and torch.float32 in update alice.
    """
    first = tables[0]
    expected = {key: (tuple(tensor.shape), tensor.dtype) for key, tensor in first.items()}
    for name, table in zip(names, tables, strict=True):
        if table.keys() != first.keys():
            missing = ", ".join(sorted(map(repr, table.keys() ^ first.keys())))
            where = f"{missing} in only one of updates {names[0]} and {name}"
            raise UnusableSetting("updates", "alike: tensors of the same names", where)
        for key, tensor in table.items():
            shape, dtype = expected[key]
            if (tuple(tensor.shape), tensor.dtype) != (shape, dtype):
                wanted = f"alike: {key!r} of shape {shape} and {dtype}"
                got = f"{tuple(tensor.shape)} and {tensor.dtype} in update {name}"
                raise UnusableSetting("updates", wanted, got)
    return [{key: table[key] for key in first} for table in tables]


def made_like(update: Any, values: Table) -> Any:
    """An update of the same kind with other values; what is no tensor in it stays as it is.

    A module is copied, and all of the copy is in this process.  Raises
    :class:`~syft.exceptions.UnusableSetting` unless its ``state_dict`` has those values.

    >>> made_like([torch.ones(1)], {"0": torch.zeros(1)})
    [tensor([0.])]
    """
    if isinstance(update, torch.Tensor):
        return values[""]
    if isinstance(update, nn.Module):
        return _checked(_module_like(update, values), values)
    if isinstance(update, Mapping):
        made: Any = copy.copy(update)  # a state_dict has attributes besides its items
        made.update(values)
        return made
    return list(values.values())


def _module_like(module: nn.Module, values: Table) -> nn.Module:
    """A deep copy in which the new values stand where the old tensors stood."""
    if isinstance(module, torch.jit.ScriptModule):  # is copied in C++, which exchanges nothing
        script: Any = copy.deepcopy(module)
        script.load_state_dict({**script.state_dict(), **values})
        return script  # type: ignore[no-any-return]
    places: dict[int, Any] = {}
    state = module.state_dict(keep_vars=True)  # all at once: no two of its tensors have one id
    for name, old in state.items():
        if name in values:
            value = values[name]
            if isinstance(old, nn.Parameter):
                value = nn.Parameter(value, requires_grad=old.requires_grad)
            places[id(old)] = value
    rest = [tensor for tensor in tensors_of(module) if id(tensor) not in places]
    away = [tensor for tensor in rest if type(tensor) is Wrapper]
    places.update(zip(map(id, away), bulk.get_all(away, keep=True), strict=True))
    return copy.deepcopy(module, places)


def _checked(module: nn.Module, values: Table) -> nn.Module:
    """The module, if its ``state_dict`` has the values."""
    found = module.state_dict()
    wrong = [repr(name) for name in values if not torch.equal(found[name], values[name])]
    if wrong:
        wanted = "state_dicts, where modules compute theirs or share what others do not"
        got = f"modules that cannot hold a mean of {', '.join(wrong)}"
        raise UnusableSetting("updates", wanted, got)
    return module
