"""What a plan takes and what it gives: how the arguments of a call become the inputs of a program.

A function takes arguments, by position or by keyword, nested as it likes; a program takes a flat
list of tensors and numbers.  The *template* of a plan says, for each parameter, which inputs stand
where.  Everything else among the arguments (a bool, a string, None) has decided what was recorded,
so a call with another value is refused: its path was never recorded.

The same description, as plain data, is what a pointer to the plan knows of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from syft.exceptions import MalformedMessage, WrongArguments
from syft.plans.building.input_properties import Fixed, expect_fixed
from syft.plans.building.constants import expect_name, expect_plain
from syft.program.program import fill_slots as fill
from syft.program.program import Slot, slots_in
from syft.ops.nested import replace
from syft.serde.expect import expect_type

Parameter = inspect.Parameter
_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)

_ANYTHING = inspect.Signature(
    [Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)]
)

TENSOR, INT, FLOAT = "tensor", "int", "float"
_SHOWN = {TENSOR: "a tensor", INT: "an int", FLOAT: "a float"}
KINDS = tuple(_SHOWN)


def kind_of(value: Any) -> str | None:
    """The kind of input a value is; None for a value that is no input but part of the path.

    >>> kind_of(torch.ones(2)), kind_of(0.1), kind_of(True)
    ('tensor', 'float', None)
    """
    if isinstance(value, torch.Tensor):
        return TENSOR
    if isinstance(value, float):
        return FLOAT
    return INT if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class Interface:
    """How a plan is called: its parameters, its inputs, its results and its state.

    ``template`` holds for each parameter the argument it was built with, with a slot in place of
    each input; ``kinds`` are the kinds of these inputs.  ``outputs`` is what a call returns, with
    ``Slot(i)`` in place of result ``i``; ``results`` are the kinds of those.  ``state`` names the
    state, and ``parameters`` says which of it counts as parameters.  ``modes`` are those of its
    modules (training or not), and ``fixed`` what its inputs must have.

    >>> taken = interface_of("f", inspect.signature(lambda x, lr=0.1: x), (torch.ones(2),), {})
    >>> taken.bind((torch.zeros(2),), {})
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
    is_plain: bool = field(init=False, repr=False, compare=False)
    """Whether each parameter is one input, by position."""

    def __post_init__(self) -> None:
        parameters = self.signature.parameters.values()
        in_a_row = list(self.template.values()) == [Slot(i) for i in range(len(parameters))]
        by_position = all(parameter.kind in _BY_POSITION for parameter in parameters)
        object.__setattr__(self, "is_plain", in_a_row and by_position)

    # ------------------------------------------------------------------------------------ calls

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The inputs of the program in the arguments of a call.

        Raises :class:`~syft.exceptions.WrongArguments`.

        >>> taken = interface_of("f", plain_signature(lambda x, lr=0.1: x), (torch.ones(2),), {})
        >>> taken.bind((), {"x": torch.zeros(1), "lr": 2.0})
        [tensor([0.]), 2.0]
        """
        arguments = bound(self.name, self.signature, args, kwargs)
        found: dict[int, Any] = {}
        for name, pattern in self.template.items():
            self._match(name, pattern, arguments[name], found)
        return [found[index] for index in range(len(self.kinds))]

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether positional arguments are the inputs as they are: the common call, found fast.

        >>> taken = interface_of("f", plain_signature(lambda x, lr=0.1: x), (torch.ones(2),), {})
        >>> taken.fits((torch.zeros(1), 2.0)), taken.fits((torch.zeros(1),))
        (True, False)
        """
        if len(args) != len(self.kinds) or not self.is_plain:
            return False
        for arg, kind in zip(args, self.kinds):
            if kind_of(arg) is not kind:
                return False
        return True

    def arguments(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments for the function, with ``inputs`` in their places.

        >>> taken = interface_of("f", plain_signature(lambda x, lr=0.1: x), (torch.ones(2),), {})
        >>> taken.arguments([torch.zeros(1), 2.0])
        ((tensor([0.]), 2.0), {})
        """
        filled = inspect.BoundArguments(
            self.signature, fill(self.template, dict(enumerate(inputs)))
        )
        return filled.args, filled.kwargs

    def filled(self, results: Sequence[Any]) -> Any:
        """What a call returns, given its results in a row.

        >>> returns = {"loss": Slot(0), "text": "done"}
        >>> Interface("f", inspect.Signature(), {}, (), returns).filled([0.5])
        {'loss': 0.5, 'text': 'done'}
        """
        return fill(self.outputs, dict(enumerate(results)))

    def input_names(self) -> list[str]:
        """A name for each input: the parameter's, with a number where it holds several.

        >>> taken = interface_of("f", plain_signature(lambda x, lr=0.1: x), (torch.ones(2),), {})
        >>> taken.input_names()
        ['x', 'lr']
        """
        names: list[str] = []
        for name, pattern in self.template.items():
            count = len(list(slots_in(pattern)))
            names += [name] if type(pattern) is Slot else [f"{name}_{i}" for i in range(count)]
        return names

    def _match(self, path: str, pattern: Any, value: Any, found: dict[int, Any]) -> None:
        """Put the inputs inside one argument where the template has their slots."""
        if type(pattern) is Slot:
            kind = self.kinds[pattern.index]
            given = kind_of(value)
            if given is not kind and not (kind is FLOAT and given is INT):
                raise WrongArguments(
                    self.name, f"{_SHOWN[kind]} for {path}", f"{_described(value)}"
                )
            found[pattern.index] = value
            return
        items = _items(pattern, value)
        if items is not None:
            for piece, part, item in items:
                self._match(path + piece, part, item, found)
        elif isinstance(pattern, (list, tuple, dict, slice)):
            raise WrongArguments(self.name, f"{_described(pattern)} for {path}", _described(value))
        elif not _is_same(pattern, value):
            expected = f"{path}={pattern!r}, as it was built (build it again for another value)"
            raise WrongArguments(self.name, expected, f"{path}={_valued(value)}")

    # ------------------------------------------------------------------------------------- wire

    def fields(self) -> tuple[Any, ...]:
        """Everything as plain values, for the wire: a default that is a tensor stays here.

        >>> taken = interface_of("f", plain_signature(lambda x, lr=0.1: x), (torch.ones(2),), {})
        >>> taken.fields()[:2]
        ('f', (('x', 1), ('lr', 1, 0.1)))
        """
        parameters = tuple(
            (parameter.name, int(parameter.kind))
            + (() if parameter.default is Parameter.empty else (_sent(parameter.default),))
            for parameter in self.signature.parameters.values()
        )
        rest = (self.outputs, self.results, self.state, self.parameters, self.modes, self.fixed)
        return (self.name, parameters, self.template, self.kinds, *rest)

    @classmethod
    def of_fields(cls, fields: Any) -> Interface:
        """The interface in what :meth:`fields` gave, after it has travelled.

        Raises :class:`~syft.exceptions.MalformedMessage`.

        >>> taken = interface_of("f", plain_signature(lambda x, lr=0.1: x), (torch.ones(2),), {})
        >>> Interface.of_fields(taken.fields()) == taken
        True
        """
        if not isinstance(fields, tuple) or len(fields) != 10:
            raise MalformedMessage("$.interface", "10 fields", "something else")
        name, parameters, template, kinds, outputs, results, state, marks, modes, fixed = fields
        expect_type(name, str, "a name", ".interface.name")
        expect_type(template, dict, "a map", ".interface.template")
        _expect_all(kinds, str, ".interface.kinds")
        _expect_all(results, str, ".interface.results")
        _expect_all(state, str, ".interface.state")
        _expect_all(marks, bool, ".interface.parameters")
        _expect_all(modes, bool, ".interface.modes")
        made = cls(
            name,
            _signature(parameters),
            template,
            tuple(map(_kind, kinds)),
            outputs,
            tuple(map(_kind, results)),
            state,
            marks,
            modes,
            expect_fixed(fixed, len(kinds), ".interface.fixed"),
        )
        made._check()
        return made

    def _check(self) -> None:
        for text, where in ((self.name, "name"), *((name, "state") for name in self.state)):
            expect_name(text, f".interface.{where}")
        expect_plain(self.template, ".interface.template", Slot)
        expect_plain(self.outputs, ".interface.outputs", Slot)
        for parameter in self.signature.parameters.values():
            if parameter.default is not Parameter.empty:
                expect_plain(parameter.default, ".interface.signature")
        slots = [slot.index for slot in slots_in(self.template)]
        if slots != list(range(len(self.kinds))):
            raise MalformedMessage("$.interface.template", "each input once", "other slots")
        if [slot.index for slot in slots_in(self.outputs)] != list(range(len(self.results))):
            raise MalformedMessage("$.interface.outputs", "each result once", "other slots")
        if list(self.template) != list(self.signature.parameters):
            raise MalformedMessage("$.interface.template", "every parameter", "other names")
        if len(self.state) != len(self.parameters) or len(set(self.state)) != len(self.state):
            raise MalformedMessage("$.interface.state", "a name for each state tensor", "others")


def interface_of(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Interface:
    """The interface of a function, from the arguments it is built with.

    >>> interface_of("f", inspect.signature(lambda x, n: x), (torch.ones(2),), {"n": 3}).template
    {'x': Slot(0), 'n': Slot(1)}
    """
    kinds: list[str] = []

    def slot(leaf: Any) -> Any:
        kind = kind_of(leaf)
        if kind is None:
            return leaf
        kinds.append(kind)
        return Slot(len(kinds) - 1)

    template = replace(bound(name, signature, args, kwargs), slot)
    return Interface(name, signature, template, tuple(kinds))


def plain_signature(function: Callable[..., Any], without: Sequence[str] = ()) -> inspect.Signature:
    """A function's parameters and defaults, and nothing else of it.

    A function of torch's that does not tell its parameters takes anything.

    >>> plain_signature(lambda x, *, lr=0.1: x), plain_signature(torch.abs)
    (<Signature (x, *, lr=0.1)>, <Signature (*args, **kwargs)>)
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return _ANYTHING
    return inspect.Signature(
        [
            parameter.replace(annotation=Parameter.empty)
            for parameter in parameters
            if parameter.name not in without
        ]
    )


def bound(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The argument of each parameter, defaults too; raises WrongArguments.

    >>> bound("f", inspect.signature(lambda x, lr=0.1: x), (1,), {})
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


def _items(pattern: Any, value: Any) -> Iterator[tuple[str, Any, Any]] | None:
    """The parts of two containers of one form, with the path to each; None if they differ."""
    for kind in (tuple, list):
        if isinstance(pattern, kind):
            if not isinstance(value, kind) or len(value) != len(pattern):
                return None
            pairs = enumerate(zip(pattern, value, strict=True))
            return ((f"[{index}]", part, item) for index, (part, item) in pairs)
    if isinstance(pattern, dict):
        if not isinstance(value, dict) or set(value) != set(pattern):
            return None
        return ((f"[{key!r}]", part, value[key]) for key, part in pattern.items())
    if isinstance(pattern, slice) and isinstance(value, slice):
        ends = ("start", "stop", "step")
        return ((f".{end}", getattr(pattern, end), getattr(value, end)) for end in ends)
    return None


def _is_same(pattern: Any, value: Any) -> bool:
    return pattern is value or (
        type(pattern) is type(value)
        and not isinstance(value, torch.Tensor)
        and bool(pattern == value)
    )


def _described(value: Any) -> str:
    """What an argument is, in the words of an error text: never its value."""
    if isinstance(value, dict):
        return f"a dict with {', '.join(map(repr, value)) or 'no keys'}"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    kind = kind_of(value)
    return _SHOWN[kind] if kind else _valued(value) if value is None else _typed(value)


def _valued(value: Any) -> str:
    """A plain value itself; of anything else its kind."""
    return repr(value) if isinstance(value, (bool, str, type(None))) else _described(value)


def _typed(value: Any) -> str:
    return f"a {type(value).__name__}"


# -------------------------------------------------------------------------- what arrives is checked


def _expect_all(values: Any, kind: type, where: str) -> None:
    for index, value in enumerate(expect_type(values, tuple, "a tuple", where)):
        expect_type(value, kind, f"a {kind.__name__}", f"{where}[{index}]")


def _sent(default: Any) -> Any:
    return None if isinstance(default, torch.Tensor) else default


def _kind(name: str) -> str:
    for kind in _SHOWN:
        if name == kind:
            return kind  # this very object: kinds are compared by identity
    raise MalformedMessage("$.interface.kinds", "tensor, int or float", "another text")


def _signature(parameters: Any) -> inspect.Signature:
    expect_type(parameters, tuple, "a tuple", ".interface.signature")
    try:
        return inspect.Signature([_parameter(*fields) for fields in parameters])
    except (TypeError, ValueError, KeyError) as error:
        # inspect knows best which parameters go together.
        raise MalformedMessage("$.interface.signature", "parameters", str(error)) from None


def _parameter(name: Any, kind: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, _PARAMETER_KINDS[kind], default=default)


_PARAMETER_KINDS = {
    int(kind): kind
    for kind in (
        Parameter.POSITIONAL_ONLY,
        Parameter.POSITIONAL_OR_KEYWORD,
        Parameter.VAR_POSITIONAL,
        Parameter.KEYWORD_ONLY,
        Parameter.VAR_KEYWORD,
    )
}
