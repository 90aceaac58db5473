"""What a client's update is made of: a table of tensors by name, whatever holds them.

A module, a state_dict, a list of tensors and a single tensor are averaged alike.  Each is read as
such a table, and from the averaged table another one of the same kind is made.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from syft.chain.wrapper import Wrapper
from syft.exceptions import UnusableSetting
from syft.federated.running_mean import narrowed
from syft.hooks import bulk
from syft.hooks.module_methods import tensors_of
from syft.hooks.whole_modules import one_message_each
from syft.ops.nested import leaves

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any
Table = dict[Any, Tensor]


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


def reals(x: Tensor) -> Tensor:
    """The numbers of a tensor, and of a complex one their two parts."""
    return torch.view_as_real(x.detach().resolve_conj()) if x.dtype.is_complex else x.detach()


def as_before(piece: torch.Tensor, tensor: Tensor) -> torch.Tensor:
    """Averaged numbers in the shape and dtype of an update's tensor."""
    if tensor.dtype.is_complex:
        piece = torch.complex(piece[::2].contiguous(), piece[1::2].contiguous())
    return narrowed(piece.view(tensor.shape), tensor.dtype)


def fetched(tables: list[Table], user: str | None) -> list[Table]:
    """The tables with the values of what lies at workers; gradients are not asked for."""
    away = [tensor for table in tables for tensor in table.values() if type(tensor) is Wrapper]
    with one_message_each(away):
        bare = [tensor.detach() for tensor in away]
    found = iter(bulk.get_all(bare, user))
    return [
        {key: next(found) if type(tensor) is Wrapper else tensor for key, tensor in table.items()}
        for table in tables
    ]
