"""``@sy.protocol(alice=RoleWorker())``: what several parties do together, recorded once.

A protocol is recorded as a plan is, by the same recorder, and its program is then cut into one per
role (:mod:`syft.protocols.cutting`).  It has three forms: a function, a class with a ``forward``
and modules that were sent to roles, and a chain of plans.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from syft.exceptions import FrozenPath, ProtocolError
from syft.plans.building.build import BuiltPlan, Recipe, build
from syft.plans.building.interface import signature_of
from syft.plans.building.state import Source, places_of
from syft.plans.building.template import TENSOR
from syft.protocols.role_worker import LOCAL, RoleRecording, RoleWorker, bound_names
from syft.protocols.cutting import Cut, split

ROLE: str = "_role"
"""The attribute of a module that was sent to a role."""


@dataclass(frozen=True, slots=True)
class BuiltProtocol:
    """A protocol that has been recorded: what a plan of all roles is, and its cut into roles."""

    plan: BuiltPlan
    cut: Cut
    roles: tuple[RoleWorker, ...]

    @property
    def names(self) -> list[str]:
        """The names of the roles, by rank."""
        return [role.name for role in self.cut.roles]


class Recorded:
    """The function of a protocol with its roles: how a plan is recorded from it.

    ``functions`` are those in which roles are named; ``sources`` is state of no role.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        roles: dict[str, RoleWorker],
        functions: Sequence[Callable[..., Any]],
        module: nn.Module | None = None,
    ) -> None:
        self.name, self.function, self.functions, self.module = name, function, functions, module
        self.roles = {LOCAL: roles.get(LOCAL) or RoleWorker(LOCAL), **roles}
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
        roles = list(self.roles.values())
        recording = RoleRecording(roles)
        body: Any = self.functions[0]
        names = [name for name in self.roles if name in inspect.signature(self.function).parameters]
        given = {name: self.roles[name] for name in names}

        def function(*args: Any, **kwargs: Any) -> Any:
            return recording.recorded(partial(self.function, **given), args, kwargs)

        sources = [
            each._replace(name=f"{role.name}.{each.key}")
            for role in roles
            for each in role.state.sources()
        ]
        if self.module is not None:
            sources.append(Source.of(self.name, self.module))
        pins = self._pins()
        recipe = Recipe(self.name, function, body, signature_of(self.function, names), sources)
        with bound_names(self.functions, self.roles), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            built, result = build(recipe, args, kwargs)
        _refuse_frozen(seen)
        interface = built.blueprint.interface
        numbers = [at for at, kind in enumerate(interface.kinds) if kind is not TENSOR]
        inputs = built.blueprint.program.inputs
        cut = split(
            built.blueprint.program,
            recording.names,
            [None] * inputs,
            [*numbers, *range(len(interface.kinds), inputs)],
            [pins.get(id(place.tensor)) for place in built.state.places],
        )
        return BuiltProtocol(built, cut, tuple(roles)), result

    def _pins(self) -> dict[int, int]:
        """The ranks of the roles that have state, by the identities of its tensors."""
        pins: dict[int, int] = {}
        for rank, role in enumerate(self.roles.values()):
            for place in places_of(role.state.sources()):
                self._pin(pins, place.tensor, rank)
        for part in self.module.modules() if self.module is not None else ():
            role = vars(part).get(ROLE) or self.roles[LOCAL]
            rank = list(self.roles.values()).index(role)
            for table in (part._parameters, part._buffers):
                for tensor in filter(None.__ne__, table.values()):
                    self._pin(pins, tensor, rank)
        return pins

    def _pin(self, pins: dict[int, int], tensor: Any, rank: int) -> None:
        known = pins.setdefault(id(tensor), rank)
        if known != rank:
            one, other = (list(self.roles)[each] for each in sorted((known, rank)))
            raise ProtocolError(
                f"a tensor is state of {one} and of {other} in the protocol {self.name!r}",
                "give each role tensors of its own, such as copies",
            )


def _refuse_frozen(seen: Sequence[warnings.WarningMessage]) -> None:
    """Raise for a path that the recording froze, and pass other warnings on."""
    for each in seen:
        if issubclass(each.category, FrozenPath):
            raise ProtocolError(
                str(each.message).partition(", and a plan keeps")[0],
                "the roles would keep the path that is taken now: sy.cond and sy.while_loop, "
                "inside one role, keep all",
            )
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def send_to_role(module: nn.Module, role: RoleWorker) -> nn.Module:
    """Have a module, and all in it, lie with a role; returns the module.

    >>> send_to_role(nn.Linear(2, 1), RoleWorker("alice"))
    Linear(in_features=2, out_features=1, bias=True)
    """
    for part in module.modules():
        vars(part)[ROLE] = role
    return module
