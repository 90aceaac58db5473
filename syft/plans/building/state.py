"""The state of a plan: the tensors besides its arguments, and where each of them lives.

A plan made here does not hold its state: the user's model and optimizer do.  So a plan keeps
*places*, each a container and a key (``module._parameters["weight"]``), and reads them at each
call.  A tensor that was replaced by one of the same shape, dtype and device is used; any other is
refused.  Whether a tensor requires grad has decided what was recorded, so a change of that makes a
plan unbuilt.

An iterator that knows how many items it gives: what ``parameters()`` of a plan returns.

Torch's is a generator.  Programs for earlier versions ask for its length, and those for torch call
``next`` on it, so that a list would not do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter, getitem, is_
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from syft.exceptions import StateMismatch, WrongArguments
from syft.plans.building.optimizers import StateTensor, state_of
from syft.serde.expect import describe

Item = TypeVar("Item")


class Counted(Iterator[Item], Generic[Item]):
    """Gives its items once, in order; its length is the number of all of them.

    >>> items = Counted("ab")
    >>> next(items), len(items), list(items)
    ('a', 2, ['b'])
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = list(items)
        self._rest = iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __next__(self) -> Item:
        return next(self._rest)


Entry = torch.Tensor | nn.Module | Optimizer


class Source(NamedTuple):
    """Something that has state, with its name; a tensor is found at ``container[key]``."""

    name: str
    entry: Entry
    container: dict[str, Any]
    key: str

    @classmethod
    def of(cls, name: str, entry: nn.Module | Optimizer) -> Source:
        """A module or an optimizer, whose tensors are found in itself.

        >>> Source.of("relu", nn.ReLU()).name
        'relu'
        """
        return cls(name, entry, {}, "")


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
        return [place.tensor for place in places_of(self.sources())]

    def sources(self) -> list[Source]:
        """The elements with a name for each.

        >>> [source.name for source in State((torch.ones(1),)).sources()]
        ['state.0']
        """
        return [
            Source(f"state.{key}", entry, self.entries, key) for key, entry in self.entries.items()
        ]


def check_entries(plan: str, entries: Any) -> tuple[Entry, ...]:
    """The ``state=`` of a plan; raises WrongArguments for what cannot be state.

    >>> len(check_entries("f", [torch.ones(1)]))
    1
    """
    kinds = tuple(_PLACES_OF)
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
    """Where the tensors of all sources live, each tensor once, under different names.

    If there is one module, its tensors have the names of ``module.state_dict()``; with several, the
    names begin with that of the source.  The names of an only optimizer's tensors begin with
    ``optimizer``.

    >>> model = nn.Linear(2, 1)
    >>> [place.name for place in places_of([Source.of("model", model)])]
    ['weight', 'bias']
    """
    kinds = [_kind_of(source.entry) for source in sources]
    count = Counter(kinds)
    found: dict[int, StateTensor] = {}
    names: set[str] = set()
    for source, kind in zip(sources, kinds, strict=True):
        places_in, prefix = _PLACES_OF[kind]
        for place in places_in(source, prefix if count[kind] == 1 else f"{source.name}."):
            tensor = place.tensor
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


def _places_in_module(source: Source, prefix: str) -> Iterator[StateTensor]:
    """Parameters, buffers, and tensors that are ordinary attributes."""
    module: Any = source.entry
    parts = [
        (f"{prefix}{path}." if path else prefix, part) for path, part in module.named_modules()
    ]
    for table in ("_parameters", "_buffers"):
        for path, part in parts:
            yield from _places_in_dict(path, getattr(part, table))
    for path, part in parts:
        yield from _places_in_dict(path, vars(part))


def _places_in_dict(prefix: str, container: dict[str, Any]) -> Iterator[StateTensor]:
    for key, value in list(container.items()):
        if isinstance(value, torch.Tensor):
            yield StateTensor(prefix + key, container, key)


def _places_in_optimizer(source: Source, prefix: str) -> Iterator[StateTensor]:
    optimizer: Any = source.entry
    for place in state_of(optimizer):
        yield place._replace(name=prefix + place.name)


def _place_of_tensor(source: Source, prefix: str) -> Iterator[StateTensor]:
    yield StateTensor(source.name, source.container, source.key)


_PLACES_OF: dict[type, tuple[Callable[[Source, str], Iterator[StateTensor]], str]] = {
    torch.Tensor: (_place_of_tensor, ""),
    nn.Module: (_places_in_module, ""),
    Optimizer: (_places_in_optimizer, "optimizer."),
}
"""For each kind of entry: where its tensors live, and the prefix of their names if it is the only
entry of its kind."""


def _kind_of(entry: Entry) -> type:
    return next(kind for kind in _PLACES_OF if isinstance(entry, kind))


# ------------------------------------------------------------------------------ reading at a call


class BoundState:
    """The state tensors of a built plan: read from where they live, and checked, at every call.

    ``grad_matters`` says that whether they require grad must stay as it is.

    >>> model = nn.Linear(2, 1)
    >>> state = BoundState("f", places_of([Source.of("model", model)]))
    >>> state.read()[1] is model.bias
    True
    >>> model.bias = nn.Parameter(torch.ones(5)); state.read()
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
        "_last",
        "_recorded",
        "_grad_matters",
        "_grad_containers",
        "_grad_keys",
        "_required_grad",
    )

    def __init__(self, plan: str, places: Sequence[StateTensor], grad_matters: bool = True) -> None:
        self.plan = plan
        self.places = list(places)
        self._containers: list[Any] = [place.container for place in places]
        self._keys = [place.key for place in places]
        self._last: list[torch.Tensor] = list(map(getitem, self._containers, self._keys))
        self._recorded = [_described(tensor) for tensor in self._last]
        self._grad_matters = grad_matters
        trainable = self._trainable()
        self._grad_containers: list[Any] = [place.container for place in trainable]
        self._grad_keys = [place.key for place in trainable]
        self._required_grad = [place.tensor.requires_grad for place in trainable]

    def _trainable(self) -> list[StateTensor]:
        return [place for place in self.places if not place.is_optimizers]

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
        if not all(map(is_, tensors, self._last)):
            for place, tensor, recorded in zip(self.places, tensors, self._recorded, strict=True):
                now = _described(tensor)
                if now != recorded:
                    raise StateMismatch(self.plan, place.name, recorded, now)
            self._last = tensors
        return tensors

    def holds(self) -> bool:
        """Whether each tensor is there, and requires grad if it did.

        A tensor that is no longer here, or of another kind, is refused by :meth:`read` instead.

        >>> model = nn.Linear(2, 1)
        >>> state = BoundState("f", places_of([Source.of("model", model)]))
        >>> state.holds(), model.requires_grad_(False) and state.holds()
        (True, False)
        """
        try:
            tensors = list(map(getitem, self._grad_containers, self._grad_keys))
        except KeyError:
            return False
        if _LOCAL_CLASSES.issuperset(map(type, tensors)):
            return not self._grad_matters or (
                list(map(_REQUIRES_GRAD, tensors)) == self._required_grad
            )
        return not any(map(self._differs, tensors, self._required_grad))

    def change(self) -> str | None:
        """What makes :meth:`holds` false, in words; None if it is true.

        >>> BoundState("f", []).change()
        """
        for place, required in zip(self._trainable(), self._required_grad, strict=True):
            tensor = self._find(place)
            if tensor is None:
                return f"state {place.name!r} is gone"
            if self._differs(tensor, required):
                return f"requires_grad of {place.name!r} was {required} and is {not required} now"
        return None

    def _differs(self, tensor: Any, required_grad: bool) -> bool:
        """Whether a state tensor is gone, or does not require grad as it did."""
        if tensor is None or not self._grad_matters:
            return tensor is None
        return type(tensor) in _LOCAL_CLASSES and tensor.requires_grad is not required_grad

    def _find(self, place: StateTensor) -> Any:
        try:
            return place.tensor
        except (KeyError, IndexError):
            return None

    def moved(
        self, change: Callable[[StateTensor], StateTensor], grad_matters: bool = True
    ) -> BoundState:
        """The same state with every place changed by ``change``."""
        return BoundState(self.plan, [change(place) for place in self.places], grad_matters)


def _described(tensor: Any) -> str:
    """What must not change about a state tensor, in words."""
    if type(tensor) not in _LOCAL_CLASSES:
        return f"a {type(tensor).__name__}"
    dtype = str(tensor.dtype).removeprefix("torch.")
    device = "" if tensor.device.type == "cpu" else f" on {tensor.device}"
    return f"{dtype} {tuple(tensor.shape)}{device}"


_REQUIRES_GRAD = attrgetter("requires_grad")
_LOCAL_CLASSES = frozenset((torch.Tensor, nn.Parameter, nn.Buffer))
"""The classes of tensors whose values are in this process."""
