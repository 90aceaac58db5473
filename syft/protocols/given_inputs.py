"""What is given to an execution of a protocol: the inputs among arguments, each checked.

A protocol is recorded with some arguments, and its executions have others: what was recorded is
right for those that are like the first.  Each input is checked when it is given, early or late.

An input that is no pointer is copied to the worker that takes it.  What the function does to the
tensor itself, which a pointer keeps, would be lost there; so it is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from inspect import Parameter
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.exceptions import WrongArguments
from syft.ops.table import ADDING_GRADIENTS
from syft.plans.building.input_properties import check_fixed
from syft.plans.building.template import match_some, plain_number
from syft.program.program import Slot, slots_in
from syft.protocols.promised import as_vector
from syft.protocols.role_building import BuiltProtocol, is_pointer
from syft.workers.handlers.accesses import effects_of

_IN_PLACE: Final = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD


class GivenInputs:
    """Finds and checks the inputs of executions of a protocol that has been built.

    >>> @sy.protocol(carol=sy.RoleWorker())
    ... def foo(x, factor=2.0):
    ...     return x.send(carol) * factor
    >>> _ = foo.build(torch.ones(2))
    >>> inputs = GivenInputs("foo", foo._record.built)
    >>> inputs.all_in((), {"x": torch.zeros(2)}), inputs.some_in((), {}, later=["x"])
    ({'x': tensor([0., 0.]), 'factor': 2.0}, {'factor': 2.0})
    """

    def __init__(self, name: str, built: BuiltProtocol) -> None:
        self.name, self._built = name, built
        interface = self._interface = built.plan.blueprint.interface
        self.names = interface.input_names()
        parameters = interface.signature.parameters.values()
        self._are_inputs = [one.name for one in parameters] == list(self.names) and all(
            type(interface.template[one.name]) is Slot and one.kind in _IN_PLACE
            for one in parameters
        )
        """Whether each argument is an input, which may be given by its place."""
        effects = effects_of(built.plan.blueprint.program)
        self._written = {name for at, name in enumerate(self.names) if at in effects.writes}
        self._adds_gradients = not effects.ops.isdisjoint(ADDING_GRADIENTS)

    def all_in(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by name, with defaults; raises WrongArguments unless all are there."""
        found = self.some_in(args, kwargs)
        missing = [name for name in self.names if name not in found]
        if missing:
            expected = f"{', '.join(self.names)} (start() takes some of them later)"
            raise WrongArguments(self.name, expected, f"no {', '.join(missing)}")
        return found

    def some_in(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], later: Collection[str] = ()
    ) -> dict[str, Any]:
        """The inputs that are there, by name; those that come ``later`` do not get their defaults.

        Raises :class:`~syft.exceptions.WrongArguments`.
        """
        if self._are_inputs and not kwargs and len(args) == len(self.names):
            inputs = dict(zip(self.names, args, strict=True))
        else:
            inputs = self._matched(args, kwargs, later)
        return {name: self.checked(name, inputs[name]) for name in self.names if name in inputs}

    def _matched(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], later: Collection[str]
    ) -> dict[str, Any]:
        """The inputs among arguments, some of which may have several, or none."""
        interface = self._interface
        own = (set(self.names) & kwargs.keys()) - interface.signature.parameters.keys()
        arguments = self._bound(args, {name: kwargs[name] for name in kwargs if name not in own})
        defaults = self._defaults({*own, *later})
        given = {name: self._as_promised(name, arguments[name]) for name in arguments}
        found = match_some(self.name, interface.template, interface.kinds, defaults | given)
        inputs = {self.names[at]: value for at, value in found.items()}
        return inputs | {name: kwargs[name] for name in own}

    def _defaults(self, without: Collection[str]) -> dict[str, Any]:
        """The defaults of the parameters in which none of some inputs is."""
        return {
            name: parameter.default
            for name, parameter in self._interface.signature.parameters.items()
            if parameter.default is not Parameter.empty
            and not any(each in without for each in self._names_in(name))
        }

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that there are, by parameters."""
        signature = self._interface.signature
        try:
            return dict(signature.bind_partial(*args, **kwargs).arguments)
        except TypeError as error:
            count = len(args) + len(kwargs)
            got = f"{count} argument{'s' * (count != 1)} ({error})"
            raise WrongArguments(self.name, str(signature), got) from None

    def _names_in(self, parameter: str) -> list[str]:
        """The names of the inputs in an argument."""
        return [self.names[slot.index] for slot in slots_in(self._interface.template[parameter])]

    def _as_promised(self, name: str, value: Any) -> Any:
        """The vector of the parameters of a module, where a model was promised."""
        return as_vector(value) if name in self._built.models else value

    def checked(self, name: str, value: Any) -> Any:
        """An input, as it is sent.

        Raises :class:`~syft.exceptions.WrongArguments` for one of another kind, with other
        properties of those by which the function decided, and for one that the function writes to.
        """
        at, interface = self.names.index(name), self._interface
        given = {name: self._as_promised(name, value)}
        (value,) = match_some(self.name, {name: Slot(at)}, interface.kinds, given).values()
        if type(value) is Wrapper and len(value.child.remote_links()) != 1:
            expected = f"a plain tensor for {name}, or a pointer to one worker"
            raise WrongArguments(self.name, expected, f"a {type(value.child).__name__}")
        for fixed, recorded in interface.fixed:
            check_fixed(self.name, ((fixed, recorded[at : at + 1]),), [value], [name])
        if not isinstance(value, torch.Tensor):
            return plain_number(value)
        self._check_gradient(name, value, self._built.requires_grad[at])
        if name in self._written and not is_pointer(value):
            self._refuse_write(name, "writes to it", f"{name} = {name}.clone()")
        return value

    def _check_gradient(self, name: str, value: torch.Tensor, required: bool) -> None:
        """Raise for an input whose gradient is another than it was, or would be lost."""
        if not self._adds_gradients:
            return
        if value.requires_grad is not required:
            was = f"requires_grad={required} for {name}, as it was built, since gradients depend"
            expected = f"{was} on it (build it again for another)"
            raise WrongArguments(self.name, expected, f"requires_grad={value.requires_grad}")
        if required and not is_pointer(value):
            instead = f"{name} = {name}.detach().clone().requires_grad_()"
            self._refuse_write(name, "may give it a gradient", instead)

    def _refuse_write(self, name: str, what: str, instead: str) -> None:
        expected = f"a pointer for {name}, since it {what} (or begin with `{instead}`)"
        raise WrongArguments(self.name, expected, "a tensor of which a copy is sent")
