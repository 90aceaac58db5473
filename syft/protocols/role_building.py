"""How a protocol is recorded: its function with its roles, by the recorder of plans.

Its program is then cut into one per role (:mod:`syft.protocols.cutting`).
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from syft.chain.wrapper import Wrapper
from syft.exceptions import FrozenPath, ProgramError, ProtocolError
from syft.plans.building.build import BuiltPlan, Recipe, build
from syft.plans.building.interface import signature_of
from syft.plans.building.reads import Surroundings
from syft.plans.building.state import Source, places_of
from syft.plans.building.template import TENSOR
from syft.protocols.role_worker import LOCAL, ROLE, RoleRecording, RoleWorker, bound_names
from syft.protocols.cutting import Cut, split

ACTORS: Final = "actors"
"""The parameter of ``deploy`` that no role can be called."""


@dataclass(frozen=True, slots=True)
class BuiltProtocol:
    """A protocol that has been recorded: what a plan of all roles is, and its cut into roles.

    ``requires_grad`` says of each input whether it did when the protocol was built, and ``models``
    are the names of those that may be given as modules.
    """

    plan: BuiltPlan
    cut: Cut
    roles: tuple[RoleWorker, ...]
    requires_grad: tuple[bool, ...]
    models: frozenset[str]

    @property
    def names(self) -> list[str]:
        """The names of the roles, by rank."""
        return [role.name for role in self.cut.roles]


@contextlib.contextmanager
def speaking_of_protocols() -> Iterator[None]:
    """A context in which errors of what plans are made of speak of a protocol.

    >>> from syft.exceptions import WrongArguments
    >>> with speaking_of_protocols():
    ...     raise WrongArguments("foo", "a tensor for x", "an int")
    Traceback (most recent call last):
    ...
    syft.exceptions.WrongArguments: Protocol 'foo' takes a tensor for x, and got an int.
    """
    try:
        yield
    except ProgramError as error:
        error.recorded = "protocol"
        raise


class _RoleRecipe(Recipe):
    """What a plan of all roles is recorded from; the names of roles are bound for that time."""

    __slots__ = ()

    def reads(self) -> Surroundings:
        """What the body reads, without the roles."""
        found = Recipe.reads(self)
        found.facts = [fact for fact in found.facts if not isinstance(fact.value, RoleWorker)]
        return found


class Recorded:
    """The function of a protocol with its roles: how a plan is recorded from it.

    ``functions`` are those in which roles are named; ``module`` has state; ``places`` says which
    role has an input, where that is known; ``models`` are the inputs that may be given as modules.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        roles: dict[str, RoleWorker],
        functions: Sequence[Callable[..., Any]],
        module: nn.Module | None = None,
        places: Mapping[str, str] | None = None,
        models: Iterable[str] = (),
    ) -> None:
        self.name, self.function, self.functions, self.module = name, function, functions, module
        self.places, self.models = places or {}, frozenset(models)
        self.roles = {LOCAL: roles.get(LOCAL) or RoleWorker(LOCAL), **roles}
        if ACTORS in roles:
            instead = f"deploy({ACTORS}=...) says from whom inputs come: give it another name"
            raise ProtocolError(f"a role called {ACTORS!r} in the protocol {name!r}", instead)
        for key, role in self.roles.items():
            if role.name not in (None, key):
                raise ProtocolError(
                    f"RoleWorker({role.name!r}) is called {key!r} in the protocol {name!r}",
                    "give each role one name",
                )
            role.name = key

    def build(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[BuiltProtocol, Any]:
        """Record the function on arguments; returns what was built, and what it returned.

        Raises :class:`~syft.exceptions.ProtocolError`, :class:`~syft.exceptions.CannotRecord`.
        """
        recording = RoleRecording(self.roles.values())
        pins = self._pins()
        with bound_names(self.functions, self.roles), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with speaking_of_protocols():
                built, result = build(self._recipe(recording), args, kwargs)
        _refuse_frozen(seen)
        interface = built.blueprint.interface
        if {*interface.results} - {TENSOR}:
            instead = "make a tensor of it at the role that has it: x.new_full((), number)"
            raise ProtocolError(f"{self.name!r} returns a number that it computes", instead)
        inputs = range(built.blueprint.program.inputs)
        options = inputs[len(interface.kinds) :]
        cut = split(
            built.blueprint.program,
            recording.names,
            [*map(self._rank, interface.input_names()), *[None] * len(options)],
            [*_numbers(interface.kinds), *options],
            [pins.get(id(place.tensor)) for place in built.state.places],
        )
        required = tuple(
            getattr(each, "requires_grad", False) for each in interface.bind(args, kwargs)
        )
        return BuiltProtocol(built, cut, tuple(recording.roles), required, self.models), result

    def _recipe(self, recording: RoleRecording) -> Recipe:
        """What a plan of all roles is recorded from."""
        body: Any = self.functions[0] if self.functions else self.function
        names = [name for name in self.roles if name in inspect.signature(self.function).parameters]
        given = {name: self.roles[name] for name in names}
        signature = signature_of(self.function, names)

        def function(*args: Any, **kwargs: Any) -> Any:
            if names:  # which may stand before the arguments
                taken = dict(zip(signature.parameters, args, strict=False))
                return recording.recorded(self.function, (), {**taken, **kwargs, **given})
            return recording.recorded(self.function, args, kwargs)

        sources = [
            each._replace(name=f"{role.name}.{each.key}")
            for role in recording.roles
            for each in role.state.sources()
        ]
        if self.module is not None:
            sources.append(Source.of(self.name, self.module))
        return _RoleRecipe(self.name, function, body, signature, sources)

    def _rank(self, name: str) -> int | None:
        """The rank of the role that has an input, if that is known."""
        role = self.places.get(name)
        return None if role is None else list(self.roles).index(role)

    def _pins(self) -> dict[int, int]:
        """The ranks of the roles that have state, by the identities of its tensors."""
        pins: dict[int, int] = {}
        for rank, role in enumerate(self.roles.values()):
            for place in places_of(role.state.sources()):
                self._pin(pins, place.tensor, rank)
        for part in self.module.modules() if self.module is not None else ():
            role = vars(part).get(ROLE) or self.roles[LOCAL]
            rank = list(self.roles.values()).index(role)
            for table in (part._parameters, part._buffers):  # an absent one is None
                for tensor in table.values():
                    self._pin(pins, tensor, rank)
        return pins

    def _pin(self, pins: dict[int, int], tensor: Any, rank: int) -> None:
        known = pins.setdefault(id(tensor), rank)
        if known != rank and tensor is not None:
            one, other = (list(self.roles)[each] for each in sorted((known, rank)))
            raise ProtocolError(
                f"a tensor is state of {one} and of {other} in the protocol {self.name!r}",
                "give each role tensors of its own, such as copies",
            )


def _numbers(kinds: Sequence[str]) -> list[int]:
    """The inputs that are numbers."""
    return [at for at, kind in enumerate(kinds) if kind is not TENSOR]


def _refuse_frozen(seen: Sequence[warnings.WarningMessage]) -> None:
    """Raise for a path that the recording froze, and pass other warnings on."""
    for each in seen:
        if issubclass(each.category, FrozenPath):
            decided = str(each.message).partition(", and a plan keeps")[0]
            raise ProtocolError(
                f"{decided}, and each role would keep what is decided now",
                "sy.cond and sy.while_loop inside one role keep both paths; let a number stay a "
                "tensor",
            )
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def is_pointer(value: Any) -> bool:
    """Whether a value is at another worker.

    >>> is_pointer(torch.ones(2)), is_pointer(torch.ones(2).send(bob))
    (False, True)
    """
    return type(value) is Wrapper and bool(value.child.remote_links())


def stand_in(value: Any) -> Any:
    """For a pointer, a tensor like that it points to; anything else as it is.

    >>> stand_in(torch.ones(2).send(bob)), stand_in(3)
    (tensor([0., 0.]), 3)
    """
    if not is_pointer(value):
        return value
    return torch.zeros(value.shape, dtype=value.dtype).requires_grad_(value.requires_grad)
