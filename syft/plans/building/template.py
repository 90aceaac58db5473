"""The template of a plan: the arguments it was built with, with a slot in place of each input.

A function takes arguments that may be nested; a program takes a flat list of tensors and numbers,
its inputs.  :func:`template_of` makes the template when a plan is built, and :func:`match` finds
the inputs in the arguments of a later call.  Everything else among the arguments (a bool, a string,
None) has decided what was recorded, so a call with another value is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch

from syft.exceptions import WrongArguments
from syft.ops.nested import replace
from syft.program.program import Slot
from syft.program.recording.symbolic import is_symbolic

TENSOR, INT, FLOAT = "tensor", "int", "float"
_KIND_TEXTS: Final = {TENSOR: "a tensor", INT: "an int", FLOAT: "a float"}
KINDS: Final = tuple(_KIND_TEXTS)
"""The kinds of inputs.  They are compared by identity, so use these very strings."""


def kind_of(value: Any) -> str | None:
    """The kind of input a value is; None for a value that is not an input.

    >>> kind_of(torch.ones(2)), kind_of(0.1), kind_of(True)
    ('tensor', 'float', None)
    """
    if isinstance(value, torch.Tensor):
        return TENSOR
    if isinstance(value, float):
        return FLOAT
    return INT if isinstance(value, int) and not isinstance(value, bool) else None


def plain_number(value: Any) -> Any:
    """A number of a class of its own, such as numpy's, as the plain one that is traced and sent.

    >>> import numpy
    >>> type(plain_number(numpy.float64(0.5))).__name__, plain_number(None)
    ('float', None)
    """
    if isinstance(value, (int, float)) and not is_symbolic(value):
        return float(value) if kind_of(value) is FLOAT else int(value)
    return value


def template_of(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The template of arguments by name, and the kinds of the inputs in it.

    >>> template_of({"x": [torch.ones(2)], "n": 3, "mode": "sum"})
    ({'x': [Slot(0)], 'n': Slot(1), 'mode': 'sum'}, ('tensor', 'int'))
    """
    kinds: list[str] = []

    def slot(leaf: Any) -> Any:
        kind = kind_of(leaf)
        if kind is None:
            return leaf
        kinds.append(kind)
        return Slot(len(kinds) - 1)

    return replace(dict(arguments), slot), tuple(kinds)


def match(
    plan: str, template: Mapping[str, Any], kinds: Sequence[str], arguments: Mapping[str, Any]
) -> list[Any]:
    """The inputs in the arguments of a call.

    Raises :class:`~syft.exceptions.WrongArguments` for arguments that differ from the template in
    anything but their inputs; an int may stand for a float.

    >>> template, kinds = template_of({"x": [torch.ones(2)], "mode": "sum"})
    >>> match("f", template, kinds, {"x": [torch.zeros(1)], "mode": "sum"})
    [tensor([0.])]
    """
    found = match_some(plan, template, kinds, {name: arguments[name] for name in template})
    return [found[index] for index in range(len(kinds))]


def match_some(
    plan: str, template: Mapping[str, Any], kinds: Sequence[str], arguments: Mapping[str, Any]
) -> dict[int, Any]:
    """The inputs, by number, in some of the arguments of a call; otherwise as :func:`match`.

    >>> template, kinds = template_of({"x": torch.ones(2), "n": 3})
    >>> match_some("f", template, kinds, {"n": 5})
    {1: 5}
    """
    found: dict[int, Any] = {}
    matching = _Matching(plan, kinds, found)
    for name, argument in arguments.items():
        matching.match(name, template[name], argument)
    return found


class _Matching(NamedTuple):
    """One match: the inputs that were found so far, by the index of their slot."""

    plan: str
    kinds: Sequence[str]
    found: dict[int, Any]

    def match(self, path: str, pattern: Any, value: Any) -> None:
        """Match one argument, or one part of it."""
        if type(pattern) is Slot:
            self._match_input(path, pattern, value)
            return
        container = _container_of(pattern)
        if container is not None:
            self._match_parts(container, path, pattern, value)
        elif not _is_same(pattern, value):
            expected = f"{path}={pattern!r}, as it was built (build it again for another value)"
            raise WrongArguments(self.plan, expected, f"{path}={_shown(value)}")

    def _match_input(self, path: str, slot: Slot, value: Any) -> None:
        expected, given = self.kinds[slot.index], kind_of(value)
        if given is not expected and not (expected is FLOAT and given is INT):
            raise WrongArguments(
                self.plan, f"{_KIND_TEXTS[expected]} for {path}", _described(value)
            )
        self.found[slot.index] = value

    def _match_parts(self, container: _Container, path: str, pattern: Any, value: Any) -> None:
        expected = container.parts(pattern)
        given = container.parts(value) if isinstance(value, container.kind) else None
        if given is None or expected.keys() != given.keys():
            raise WrongArguments(self.plan, f"{_described(pattern)} for {path}", _described(value))
        for key, part in expected.items():
            self.match(path + container.step.format(key), part, given[key])


class _Container(NamedTuple):
    """How to look into a kind of container: its parts by key, and a step of a path to one."""

    kind: type
    parts: Callable[[Any], Mapping[Any, Any]]
    step: str


def _parts_of_slice(value: slice) -> dict[str, Any]:
    return {"start": value.start, "stop": value.stop, "step": value.step}


_CONTAINERS: Final = (
    _Container(tuple, lambda value: dict(enumerate(value)), "[{}]"),
    _Container(list, lambda value: dict(enumerate(value)), "[{}]"),
    _Container(dict, lambda value: value, "[{!r}]"),
    _Container(slice, _parts_of_slice, ".{}"),
)


def _container_of(value: Any) -> _Container | None:
    for container in _CONTAINERS:
        if isinstance(value, container.kind):
            return container
    return None


def _is_same(pattern: Any, value: Any) -> bool:
    return pattern is value or (
        type(pattern) is type(value)
        and not isinstance(value, torch.Tensor)
        and bool(pattern == value)
    )


def _described(value: Any) -> str:
    """The kind of an argument, in the words of an error text: never its value."""
    if isinstance(value, dict):
        return f"a dict with {', '.join(map(repr, value)) or 'no keys'}"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    if value is None:
        return "None"
    kind = kind_of(value)
    return _KIND_TEXTS[kind] if kind else f"a {type(value).__name__}"


def _shown(value: Any) -> str:
    """A bool, a string or None itself; of anything else its kind."""
    return repr(value) if isinstance(value, (bool, str)) else _described(value)
