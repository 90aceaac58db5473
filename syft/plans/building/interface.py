"""How a plan is called: its parameters, its inputs, its results and its state.

An :class:`Interface` turns the arguments of a call into the inputs of a program, and the results of
the program into what the call returns.  A :class:`Blueprint` is an interface with its program: a
plan without its state.  Both are frozen and hold no data, so one blueprint serves the plan here,
its copies, and every pointer to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Final

import torch

from syft.exceptions import WrongArguments
from syft.notebook_html import counted
from syft.plans.building.input_properties import Fixed
from syft.plans.building.out_argument import TENSORS_ONLY
from syft.plans.building.template import FLOAT, TENSOR, kind_of, match, template_of
from syft.program.program import Program, Slot, slots_in
from syft.program.program import fill_slots

Parameter = inspect.Parameter
_BY_POSITION: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_ANY_ARGUMENTS: Final = inspect.Signature(
    [Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)]
)


@dataclass(frozen=True, slots=True)
class Interface:
    """How a plan is called: its parameters, its inputs, its results and its state.

    ``template`` holds for each parameter the argument it was built with, with a slot in place of
    each input; ``kinds`` are the kinds of these inputs.  ``outputs`` is what a call returns, with
    ``Slot(i)`` in place of result ``i``; ``results`` are the kinds of the results.  ``state`` names
    the state tensors, and ``parameters`` says which of them count as parameters.  ``modes`` are
    the modes of its modules (training or not), and ``fixed`` the properties that its inputs must
    have.  ``options`` are the names of further inputs, which are options of optimizers, with the
    number that each is where the optimizer is not known.

    >>> interface = interface_of("f", signature_of(lambda x, lr=0.1: x), (torch.ones(2),), {})
    >>> interface.bind((torch.zeros(2),), {})
    [tensor([0., 0.]), 0.1]
    """

    name: str
    signature: inspect.Signature
    template: dict[str, Any]
    kinds: tuple[str, ...]
    outputs: Any = None
    results: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    parameters: tuple[bool, ...] = ()
    modes: tuple[bool, ...] = ()
    fixed: Fixed = ()
    options: tuple[tuple[str, int | float], ...] = field(default=(), compare=False)
    is_flat: bool = field(init=False, repr=False, compare=False)
    """Whether each parameter is one input, and may be given by position."""

    def __post_init__(self) -> None:
        parameters = self.signature.parameters.values()
        in_order = list(self.template.values()) == [Slot(i) for i in range(len(parameters))]
        by_position = all(parameter.kind in _BY_POSITION for parameter in parameters)
        object.__setattr__(self, "is_flat", in_order and by_position)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The inputs of the program in the arguments of a call.

        Raises :class:`~syft.exceptions.WrongArguments`.

        >>> interface = interface_of("f", signature_of(lambda x, lr=0.1: x), (torch.ones(2),), {})
        >>> interface.bind((), {"x": torch.zeros(1), "lr": 2.0})
        [tensor([0.]), 2.0]
        """
        arguments = bound_arguments(self.name, self.signature, args, kwargs)
        return match(self.name, self.template, self.kinds, arguments)

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether positional arguments already are the inputs, so that :meth:`bind` can be skipped.

        >>> interface = interface_of("f", signature_of(lambda x, lr=0.1: x), (torch.ones(2),), {})
        >>> interface.fits((torch.zeros(1), 2.0)), interface.fits((torch.zeros(1),))
        (True, False)
        """
        if len(args) != len(self.kinds) or not self.is_flat:
            return False
        return all(kind_of(arg) is kind for arg, kind in zip(args, self.kinds, strict=True))

    def arguments(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments for the function, with ``inputs`` in their places.

        >>> interface = interface_of("f", signature_of(lambda x, lr=0.1: x), (torch.ones(2),), {})
        >>> interface.arguments([torch.zeros(1), 2.0])
        ((tensor([0.]), 2.0), {})
        """
        filled = inspect.BoundArguments(
            self.signature, fill_slots(self.template, dict(enumerate(inputs)))
        )
        return filled.args, filled.kwargs

    def like_recorded(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call as they are recorded: an int that stands for a float is one.

        >>> interface = interface_of("f", signature_of(lambda x: x), (0.5,), {})
        >>> interface.like_recorded((2,), {})
        ((2.0,), {})
        """
        inputs = zip(self.bind(args, kwargs), self.kinds, strict=True)
        return self.arguments([float(each) if kind is FLOAT else each for each, kind in inputs])

    def state_shown(self) -> str:
        """How many tensors the state consists of, for notebooks.

        >>> interface_of("f", signature_of(lambda x: x), (torch.ones(2),), {}).state_shown()
        'no state'
        """
        return f"state: {counted(len(self.state), 'tensor')}" if self.state else "no state"

    def takes(self, name: str) -> bool:
        """Whether a keyword of this name is an argument of the function.

        >>> signature = signature_of(lambda x, **named: x)
        >>> interface = interface_of("f", signature, (torch.ones(2),), {"out": 3})
        >>> interface.takes("x"), interface.takes("out"), interface.takes("y")
        (True, True, False)
        """
        parameter = self.signature.parameters.get(name)
        if parameter is not None:
            return parameter.kind in _BY_NAME
        return any(
            name in self.template[parameter.name]
            for parameter in self.signature.parameters.values()
            if parameter.kind is Parameter.VAR_KEYWORD
        )

    def targets(self, out: Any) -> list[Any]:
        """The tensors to which the results of a call with ``out=`` are written, in order.

        Raises :class:`~syft.exceptions.WrongArguments`.

        >>> pair = Interface("f", inspect.Signature(), {}, (), (Slot(0), Slot(1)), (TENSOR,) * 2)
        >>> pair.targets((torch.zeros(1), torch.ones(1)))
        [tensor([0.]), tensor([1.])]
        """
        if set(self.results) != {TENSOR}:
            kinds = ", ".join(self.results) or "nothing"
            raise WrongArguments(self.name, TENSORS_ONLY, f"it for {kinds}")
        return match(self.name, {"out": self.outputs}, self.results, {"out": out})

    def nested_results(self, results: Sequence[Any]) -> Any:
        """What a call returns, given the flat results of the program.

        >>> returns = {"loss": Slot(0), "text": "done"}
        >>> Interface("f", inspect.Signature(), {}, (), returns).nested_results([0.5])
        {'loss': 0.5, 'text': 'done'}
        """
        return fill_slots(self.outputs, dict(enumerate(results)))

    def input_names(self) -> list[str]:
        """A name for each input: that of its parameter, with a number where it holds several.

        >>> interface = interface_of("f", signature_of(lambda x, lr=0.1: x), (torch.ones(2),), {})
        >>> interface.input_names()
        ['x', 'lr']
        """
        names: list[str] = []
        for name, pattern in self.template.items():
            count = len(list(slots_in(pattern)))
            names += [name] if type(pattern) is Slot else [f"{name}_{i}" for i in range(count)]
        return names


def interface_of(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Interface:
    """The interface of a function, from the arguments it is built with.

    >>> interface_of("f", inspect.signature(lambda x, n: x), (torch.ones(2),), {"n": 3}).template
    {'x': Slot(0), 'n': Slot(1)}
    """
    template, kinds = template_of(bound_arguments(name, signature, args, kwargs))
    return Interface(name, signature, template, kinds)


def signature_of(function: Callable[..., Any], without: Sequence[str] = ()) -> inspect.Signature:
    """A function's parameters and defaults, without annotations.

    A parameter whose default is a Python module (``torch=torch``) is no argument of a plan: the
    function has its default for it, and what follows is given by name.  A function of torch's that
    does not tell its parameters takes anything.

    >>> signature_of(lambda x, *, lr=0.1: x), signature_of(torch.abs)
    (<Signature (x, *, lr=0.1)>, <Signature (*args, **kwargs)>)
    >>> signature_of(lambda x, torch=torch, lr=0.1: torch.abs(x))
    <Signature (x, *, lr=0.1)>
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return _ANY_ARGUMENTS
    left: list[Parameter] = []
    by_name_only = False
    names = {Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
    if any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters):
        names = {Parameter.KEYWORD_ONLY}  # what follows could not be given by name
    for parameter in parameters:
        if isinstance(parameter.default, ModuleType) and parameter.kind in names:
            by_name_only = True
        elif parameter.name not in without:
            in_order = parameter.kind is Parameter.POSITIONAL_OR_KEYWORD
            kind = Parameter.KEYWORD_ONLY if by_name_only and in_order else parameter.kind
            left.append(parameter.replace(annotation=Parameter.empty, kind=kind))
    return inspect.Signature(left)


def bound_arguments(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The argument of each parameter, with defaults; raises WrongArguments.

    >>> bound_arguments("f", inspect.signature(lambda x, lr=0.1: x), (1,), {})
    {'x': 1, 'lr': 0.1}
    """
    try:
        arguments = signature.bind(*args, **kwargs)
    except TypeError as error:
        count = len(args) + len(kwargs)
        got = f"{count} argument{'s' * (count != 1)} ({error})"
        raise WrongArguments(name, str(signature), got) from None
    arguments.apply_defaults()
    return arguments.arguments


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A plan without its state: its interface and its program.

    The outputs of ``program`` are its results in one flat tuple; ``interface.outputs`` says how a
    call returns them.
    """

    interface: Interface
    program: Program

    def nested(self) -> Program:
        """The program as it was recorded: it returns what the function returns."""
        results = dict(enumerate(self.program.outputs))
        return replace(self.program, outputs=fill_slots(self.interface.outputs, results))

    def with_constants(self, constants: tuple[torch.Tensor, ...]) -> Blueprint:
        """The same blueprint with other constants; itself if there are none.

        >>> blueprint = Blueprint(Interface("f", inspect.Signature(), {}, ()), Program(0, (), ()))
        >>> blueprint.with_constants(()) is blueprint
        True
        """
        if not constants:
            return self
        return replace(self, program=replace(self.program, constants=constants))


def with_flat_outputs(program: Program) -> Program:
    """The same program with its results in one flat tuple.

    >>> with_flat_outputs(Program(2, (), {"a": Slot(1), "b": [Slot(0), None]})).outputs
    (Slot(1), Slot(0))
    """
    return replace(program, outputs=tuple(slots_in(program.outputs)))
