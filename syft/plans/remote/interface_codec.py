"""How an interface travels: as plain values, checked on arrival.

Anybody may read the interface of a stored plan (a search shows it), whatever the plan computes
with.  So it must hold no data that a guard would have to protect, and its names must be safe to
show and to write into source code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch

from syft.exceptions import MalformedMessage
from syft.plans.building.input_properties import expect_fixed
from syft.plans.building.interface import Interface
from syft.plans.building.template import FLOAT, INT, KINDS, kind_of
from syft.program.program import Slot, slots_in
from syft.serde.expect import expect_type
from syft.serde.torch_types import NUMBERED_KINDS

Parameter = inspect.Parameter
_PARAMETER_KINDS: Final = {
    int(kind): kind
    for kind in (
        Parameter.POSITIONAL_ONLY,
        Parameter.POSITIONAL_OR_KEYWORD,
        Parameter.VAR_POSITIONAL,
        Parameter.KEYWORD_ONLY,
        Parameter.VAR_KEYWORD,
    )
}
_CONSTANTS: Final = frozenset(
    (int, float, bool, complex, str, bytes, bytearray, type(None), type(Ellipsis), type, range)
    + (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme, torch.Size)
    + (torch.finfo, torch.iinfo, torch.Generator, *NUMBERED_KINDS)
)
_CONTAINERS: Final[dict[type, Callable[[Any], Iterable[Any]]]] = {
    dict: lambda value: (*value, *value.values()),
    slice: lambda value: (value.start, value.stop, value.step),
    tuple: iter,
    list: iter,
    set: iter,
    frozenset: iter,
}
_NOT_IN_NAMES: Final = frozenset("'\"`\\")


def pack_interface(interface: Interface) -> tuple[Any, ...]:
    """An interface as plain values.  A default that is a tensor stays here and becomes None.

    >>> from syft.plans.building.interface import interface_of, signature_of
    >>> interface = interface_of("f", signature_of(lambda x, lr=0.1: x), (torch.ones(2),), {})
    >>> pack_interface(interface)[:2]
    ('f', (('x', 1), ('lr', 1, 0.1)))
    """
    return (
        interface.name,
        tuple(map(_pack_parameter, interface.signature.parameters.values())),
        interface.template,
        interface.kinds,
        interface.outputs,
        interface.results,
        interface.state,
        interface.parameters,
        interface.modes,
        interface.fixed,
        interface.options,
    )


def _pack_parameter(parameter: Parameter) -> tuple[Any, ...]:
    fields = parameter.name, int(parameter.kind)
    if parameter.default is Parameter.empty:
        return fields
    default = parameter.default
    return (*fields, None if isinstance(default, torch.Tensor) else default)


def unpack_interface(fields: Any) -> Interface:
    """The interface in the fields that :func:`pack_interface` made.

    Raises :class:`~syft.exceptions.MalformedMessage`.

    >>> from syft.plans.building.interface import interface_of, signature_of
    >>> interface = interface_of("f", signature_of(lambda x, lr=0.1: x), (torch.ones(2),), {})
    >>> unpack_interface(pack_interface(interface)) == interface
    True
    """
    if not isinstance(fields, tuple) or len(fields) != 11:
        raise MalformedMessage("$.interface", "11 fields", "something else")
    name, parameters, template, kinds, outputs, results, state, marks, modes, fixed, options = (
        fields
    )
    expect_type(name, str, "a name", ".interface.name")
    expect_type(template, dict, "a map", ".interface.template")
    _expect_all(kinds, str, ".interface.kinds")
    _expect_all(results, str, ".interface.results")
    _expect_all(state, str, ".interface.state")
    _expect_all(marks, bool, ".interface.parameters")
    _expect_all(modes, bool, ".interface.modes")
    interface = Interface(
        name,
        _unpack_signature(parameters),
        template,
        tuple(map(_unpack_kind, kinds)),
        outputs,
        tuple(map(_unpack_kind, results)),
        state,
        marks,
        modes,
        expect_fixed(fixed, len(kinds), ".interface.fixed"),
        options,
    )
    _check_names(interface)
    _check_options(options)
    _check_constants(interface)
    _check_slots(interface)
    return interface


def _unpack_kind(name: str) -> str:
    for kind in KINDS:
        if name == kind:
            return kind  # this very string: kinds are compared by identity
    raise MalformedMessage("$.interface.kinds", "tensor, int or float", "another text")


def _unpack_signature(parameters: Any) -> inspect.Signature:
    expect_type(parameters, tuple, "a tuple", ".interface.signature")
    try:
        return inspect.Signature([_unpack_parameter(*fields) for fields in parameters])
    except (TypeError, ValueError, KeyError) as error:
        # inspect checks which parameters may follow one another.
        raise MalformedMessage("$.interface.signature", "parameters", str(error)) from None


def _unpack_parameter(name: Any, kind: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, _PARAMETER_KINDS[kind], default=default)


# ----------------------------------------------------------------------------------------- checks


def _expect_all(values: Any, kind: type, where: str) -> None:
    for index, value in enumerate(expect_type(values, tuple, "a tuple", where)):
        expect_type(value, kind, f"a {kind.__name__}", f"{where}[{index}]")


def _check_names(interface: Interface) -> None:
    expect_name(interface.name, ".interface.name")
    state = interface.state
    for name in state:
        expect_name(name, ".interface.state")
    if len(state) != len(interface.parameters) or len(set(state)) != len(state):
        raise MalformedMessage("$.interface.state", "a name for each state tensor", "others")
    if list(interface.template) != list(interface.signature.parameters):
        raise MalformedMessage("$.interface.template", "every parameter", "other names")


def _check_options(options: Any) -> None:
    """Expect a number for each name, which stands there once."""
    where = ".interface.options"
    for index, pair in enumerate(expect_type(options, tuple, "a tuple", where)):
        if not isinstance(pair, tuple) or [*map(kind_of, pair)][1:] not in ([INT], [FLOAT]):
            raise MalformedMessage(f"${where}[{index}]", "a name and a number", "something else")
        expect_name(expect_type(pair[0], str, "a name", where), where)
    if len(dict(options)) != len(options):
        raise MalformedMessage(f"${where}", "a name for each option", "others")


def _check_constants(interface: Interface) -> None:
    expect_constant(interface.template, ".interface.template", Slot)
    expect_constant(interface.outputs, ".interface.outputs", Slot)
    for parameter in interface.signature.parameters.values():
        if parameter.default is not Parameter.empty:
            expect_constant(parameter.default, ".interface.signature")


def _check_slots(interface: Interface) -> None:
    """Expect the slots of the inputs in order, and those of the results."""
    for what, pattern, kinds, name in (
        ("input", interface.template, interface.kinds, "template"),
        ("result", interface.outputs, interface.results, "outputs"),
    ):
        if [slot.index for slot in slots_in(pattern)] != list(range(len(kinds))):
            raise MalformedMessage(f"$.interface.{name}", f"each {what} once", "other slots")


def expect_constant(value: Any, where: str, *also: type) -> None:
    """Raise :class:`~syft.exceptions.MalformedMessage` for a value that could hold data.

    Allowed are plain values (numbers, texts, dtypes and the like), values of the classes in
    ``also``, and containers of these.

    >>> expect_constant({"x": (1, [None])}, ".x")
    >>> expect_constant([torch.ones(1)], ".x")
    Traceback (most recent call last):
    ...
    syft.exceptions.MalformedMessage: Malformed message at $.x: expected plain values, got a \
Tensor.
    """
    if type(value) in _CONSTANTS or type(value) in also:
        return
    for kind, parts in _CONTAINERS.items():
        if isinstance(value, kind):
            for part in parts(value):
                expect_constant(part, where, *also)
            return
    expected = " and ".join(["plain values", *(f"{kind.__name__}s" for kind in also)])
    raise MalformedMessage(f"${where}", expected, f"a {type(value).__name__}")


def expect_name(text: str, where: str) -> None:
    """Raise :class:`~syft.exceptions.MalformedMessage` for a text with quotes, backslashes or
    control characters.

    >>> expect_name("layers.0.weight", ".x")
    >>> expect_name("x\\n", ".x")
    Traceback (most recent call last):
    ...
    syft.exceptions.MalformedMessage: Malformed message at $.x: expected a name without quotes, \
backslashes and control characters, got a text with some.
    """
    if not text.isprintable() or not _NOT_IN_NAMES.isdisjoint(text):
        expected = "a name without quotes, backslashes and control characters"
        raise MalformedMessage(f"${where}", expected, "a text with some")
