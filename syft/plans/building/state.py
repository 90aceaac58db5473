"""The state of a plan: the tensors beside its arguments, and where each of them lives.

A plan made here does not hold its state: the model and the optimizer of the user do.  So what a
plan keeps is *places*: a container and a key (``module._parameters["weight"]``), read at each call.
A tensor that was replaced by one of the same shape, dtype and device is used; any other is refused.
Whether it requires grad decides what was recorded: that is watched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter, getitem, is_
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from syft.exceptions import StateMismatch, WrongArguments
from syft.plans.building.optimizers import StateTensor, state_of
from syft.serde.expect import describe

Entry = torch.Tensor | nn.Module | Optimizer

_SHARED = ("_parameters", "_buffers")


class State:
    """The state elements of a plan, as its function gets them.

    >>> bias, model = State((torch.ones(1), nn.Linear(2, 1))).read()
    >>> bias
    tensor([1.])
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: dict[str, Entry] = {str(index): entry for index, entry in enumerate(entries)}

    def read(self) -> tuple[Any, ...]:
        """The elements, in the order in which they were given.

        >>> State((torch.ones(1),)).read()
        (tensor([1.]),)
        """
        return tuple(self.entries.values())

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor in the elements: of a module its parameters and buffers.

        >>> len(State((torch.ones(1), nn.Linear(2, 1))).tensors())
        3
        """
        return [place.container[place.key] for place in places_of(self.sources())]

    def sources(self) -> list[Source]:
        """The elements with a name for each.

        >>> [name for name, *_ in State((torch.ones(1),)).sources()]
        ['state.0']
        """
        return [(f"state.{key}", entry, self.entries, key) for key, entry in self.entries.items()]


Source = tuple[str, Entry, dict[str, Any], str]
"""Something that holds state: its name, itself, and where it is itself to be found."""


def check_entries(plan: str, entries: Any) -> tuple[Entry, ...]:
    """The ``state=`` of a plan; raises WrongArguments for what cannot be state.

    >>> len(check_entries("f", [torch.ones(1)]))
    1
    """
    kinds = (torch.Tensor, nn.Module, Optimizer)
    expected = "a tuple of tensors, modules and optimizers as state"
    if isinstance(entries, kinds):
        got = f"one {type(entries).__name__}: write state=(it,)"
        raise WrongArguments(plan, expected, got)
    if not isinstance(entries, (tuple, list)):
        raise WrongArguments(plan, expected, describe(entries))
    for entry in entries:
        if not isinstance(entry, kinds):
            raise WrongArguments(plan, expected, f"{describe(entry)} in it")
    return tuple(entries)


# -------------------------------------------------------------------------------------- places


def places_of(sources: Sequence[Source]) -> list[StateTensor]:
    """Where the tensors of all sources live, each tensor once, under names that differ.

    The names of an only module's tensors are those of ``module.state_dict()``; those of several
    modules begin with the name of the source, and those of an optimizer with ``optimizer``.

    >>> model = nn.Linear(2, 1)
    >>> [place.name for place in places_of([("model", model, {}, "")])]
    ['weight', 'bias']
    """
    modules = sum(isinstance(source[1], nn.Module) for source in sources)
    optimizers = sum(isinstance(source[1], Optimizer) for source in sources)
    found: dict[int, StateTensor] = {}
    names: set[str] = set()
    for name, entry, container, key in sources:
        if isinstance(entry, nn.Module):
            places = _places_of_module(entry, f"{name}." if modules > 1 else "")
        elif isinstance(entry, Optimizer):
            prefix = f"{name}." if optimizers > 1 else "optimizer."
            places = _places_of_optimizer(entry, prefix)
        else:
            places = iter([StateTensor(name, container, key)])
        for place in places:
            tensor = place.container[place.key]
            if id(tensor) not in found:
                found[id(tensor)] = place._replace(name=_unused(place.name, names))
    return list(found.values())


def _unused(name: str, names: set[str]) -> str:
    unused, count = name, 1
    while unused in names:
        count += 1
        unused = f"{name}_{count}"
    names.add(unused)
    return unused


def _places_of_module(module: nn.Module, prefix: str) -> Iterator[StateTensor]:
    """Parameters, buffers, and tensors that are plain attributes."""
    parts = list(module.named_modules())
    for table in _SHARED:
        for path, part in parts:
            yield from _tensors_in(f"{prefix}{path}." if path else prefix, getattr(part, table))
    for path, part in parts:
        yield from _tensors_in(f"{prefix}{path}." if path else prefix, vars(part))


def _tensors_in(prefix: str, container: dict[str, Any]) -> Iterator[StateTensor]:
    for key, value in list(container.items()):
        if isinstance(value, torch.Tensor):
            yield StateTensor(prefix + key, container, key)


def _places_of_optimizer(optimizer: Optimizer, prefix: str) -> Iterator[StateTensor]:
    for place in state_of(optimizer):
        yield place._replace(name=prefix + place.name)


# ------------------------------------------------------------------------------ reading at a call


class Cells:
    """The state tensors of a built plan: read from where they live, and checked, at every call.

    ``watches_grad`` says that whether they require grad must stay as it is.

    >>> model = nn.Linear(2, 1)
    >>> cells = Cells("f", places_of([("model", model, {}, "")]))
    >>> cells.read()[1] is model.bias
    True
    >>> model.bias = nn.Parameter(torch.ones(5)); cells.read()
    Traceback (most recent call last):
    ...
    syft.exceptions.StateMismatch: Plan 'f': state 'bias' was recorded as float32 (1,) and is now \
float32 (5,). Put a tensor of the same shape and dtype there, or build the plan again.
    """

    __slots__ = (
        "plan",
        "places",
        "_containers",
        "_keys",
        "_seen",
        "_recorded",
        "_watched",
        "_watched_keys",
        "_marks",
        "_watches_grad",
    )

    def __init__(self, plan: str, places: Sequence[StateTensor], watches_grad: bool = True) -> None:
        self.plan = plan
        self._watches_grad = watches_grad
        self.places = list(places)
        self._containers: list[Any] = [place.container for place in places]
        self._keys = [place.key for place in places]
        self._seen: list[torch.Tensor] = list(map(getitem, self._containers, self._keys))
        self._recorded = [_described(tensor) for tensor in self._seen]
        watched = [place for place in self.places if not place.is_optimizers]
        self._watched: list[Any] = [place.container for place in watched]
        self._watched_keys = [place.key for place in watched]
        self._marks = [place.container[place.key].requires_grad for place in watched]

    @property
    def names(self) -> list[str]:
        """The names of the tensors, in order."""
        return [place.name for place in self.places]

    def read(self) -> list[torch.Tensor]:
        """The tensors as they are now; raises :class:`~syft.exceptions.StateMismatch`."""
        try:
            tensors = list(map(getitem, self._containers, self._keys))
        except (KeyError, IndexError):
            tensors = [self._find(place) for place in self.places]
        if not all(map(is_, tensors, self._seen)):
            for place, tensor, recorded in zip(self.places, tensors, self._recorded, strict=True):
                now = _described(tensor)
                if now != recorded:
                    raise StateMismatch(self.plan, place.name, recorded, now)
            self._seen = tensors
        return tensors

    def holds(self) -> bool:
        """Whether each tensor is there, and requires grad if it did.

        A tensor that is no longer here, or of another kind, is what :meth:`read` refuses.

        >>> model = nn.Linear(2, 1)
        >>> cells = Cells("f", places_of([("model", model, {}, "")]))
        >>> cells.holds(), model.requires_grad_(False) and cells.holds()
        (True, False)
        """
        try:
            tensors = list(map(getitem, self._watched, self._watched_keys))
        except KeyError:
            return False
        if _HERE.issuperset(map(type, tensors)):
            return not self._watches_grad or list(map(_REQUIRES_GRAD, tensors)) == self._marks
        return not any(map(self._is_another, tensors, self._marks))

    def change(self) -> str | None:
        """What :meth:`holds` has found, in words.

        >>> Cells("f", []).change()
        """
        watched = [place for place in self.places if not place.is_optimizers]
        for place, mark in zip(watched, self._marks, strict=True):
            tensor = self._find(place)
            if tensor is None:
                return f"state {place.name!r} is gone"
            if self._is_another(tensor, mark):
                return f"requires_grad of {place.name!r} was {mark} and is {not mark} now"
        return None

    def _is_another(self, tensor: Any, mark: bool) -> bool:
        """Whether a state tensor is none, or does not require grad as it did."""
        if tensor is None or not self._watches_grad:
            return tensor is None
        return type(tensor) in _HERE and tensor.requires_grad is not mark

    def _find(self, place: StateTensor) -> Any:
        try:
            return place.container[place.key]
        except (KeyError, IndexError):
            return None

    def changed(
        self, change: Callable[[StateTensor], StateTensor], watches_grad: bool = True
    ) -> Cells:
        """The same cells at other places."""
        return Cells(self.plan, [change(place) for place in self.places], watches_grad)


def _described(tensor: Any) -> str:
    """What must not change about a state tensor."""
    if not isinstance(tensor, torch.Tensor):
        return f"a {type(tensor).__name__}"
    if type(tensor) not in _HERE:
        return f"a {type(tensor).__name__}"
    dtype = str(tensor.dtype).removeprefix("torch.")
    device = "" if tensor.device.type == "cpu" else f" on {tensor.device}"
    return f"{dtype} {tuple(tensor.shape)}{device}"


_REQUIRES_GRAD = attrgetter("requires_grad")
_HERE = frozenset((torch.Tensor, nn.Parameter, nn.Buffer))
