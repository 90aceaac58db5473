"""What a function reads besides its arguments: found in its code, and followed to what that names.

A recording keeps the numbers, modules and tensors that the function found in its closure, in the
module around it and in objects.  Each of these is a place with a value, so a later call compares
what stands there.  Followed are names, and from functions, methods, objects, classes and containers
of the user's own what their code names in turn; an attribute counts if its name occurs in any code
that was followed.

Not followed: libraries, what only a local variable leads to, and items of containers with more than
:data:`MOST_ITEMS` of them.
"""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from syft.program.recording.environment.source_line import is_library_file
from syft.program.recording.symbolic import is_symbolic

MOST_ITEMS: Final = 1000
"""Items of one container that are compared at every call."""


class Fact(NamedTuple):
    """``container[key]`` was ``value``; it belongs to ``owner``: a class, or a function.

    The container is a dict, or what else :func:`value_at` takes.  The owner itself is not kept: a
    plan that is a module would hold itself.
    """

    owner: str
    container: Any
    key: Any
    value: Any


LENGTH: Final = "the number of items"
"""The key of the length of a dict."""


def value_at(container: Any, key: Any) -> Any:
    """What stands in a dict, a cell, a list, or at an attribute; None if nothing does.

    >>> value_at({"a": 1}, "a"), value_at([1, 2], "items"), value_at(int, "nothing")
    (1, (1, 2), None)
    """
    kind = type(container)
    if key is LENGTH:
        return len(container)
    if kind is types.CellType:
        try:
            return container.cell_contents
        except ValueError:
            return None
    if isinstance(container, dict):
        return container.get(key)
    if isinstance(container, list):
        return tuple(container)
    if isinstance(container, type):
        return vars(container).get(key)
    return getattr(container, key, None)


_ATOMS = (int, float, complex, str, bool, bytes, type(None), torch.dtype, torch.device)
CODE = (type, types.FunctionType, types.BuiltinFunctionType)
"""Attributes that a forward calls (``self.activation``): compared by identity."""


def is_constant(value: Any) -> bool:
    """Whether a value is immutable and can be compared, or is a function or class.

    >>> is_constant((1, "a")), is_constant([1])
    (True, False)
    """
    if isinstance(value, tuple):
        return all(map(is_constant, value))
    return type(value) in _ATOMS or isinstance(value, CODE)


class _NamesInCode(NamedTuple):
    """The names in the code of a function and of the functions in it."""

    shared: tuple[str, ...]
    """Of the module around it."""
    others: frozenset[str]
    """Of attributes."""
    texts: frozenset[str]


@functools.lru_cache(1024)
def _names_in(code: types.CodeType) -> _NamesInCode:
    shared: dict[str, None] = {}
    others: set[str] = set()
    texts: set[str] = set()
    for each in _codes_in(code):
        for instruction in dis.get_instructions(each):
            name = instruction.opname
            if name in ("LOAD_GLOBAL", "LOAD_NAME"):
                shared[instruction.argval] = None
            elif name.startswith(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")):
                others.add(instruction.argval)
        texts.update(text for text in each.co_consts if type(text) is str and text.isidentifier())
    return _NamesInCode(tuple(shared), frozenset(others), frozenset(texts))


def _places_in(function: types.FunctionType) -> list[Fact]:
    """The places that the code of a function names: cells, and the module around it."""
    owner, code, around = f"{function.__name__}()", function.__code__, function.__globals__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    found = [Fact(owner, cell, key, value_at(cell, key)) for key, cell in cells]
    shared = [key for key in _names_in(code).shared if key in around]
    found += [Fact(owner, around, key, around[key]) for key in shared]
    return [fact for fact in found if fact.key != "__class__"]


def _has_state(value: Any) -> bool:
    return isinstance(value, (nn.Module, Optimizer))


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _codes_in(part)


@functools.cache
def _is_users(file: str) -> bool:
    return not is_library_file(file) and "-packages" not in file


def _is_users_module(module: Any) -> bool:
    """Whether a module of Python is the user's own; one without a file may be a notebook."""
    file = getattr(module, "__file__", None)
    return _is_users(file) if file else getattr(module, "__name__", "") == "__main__"


def _is_users_class(kind: type) -> bool:
    codes = [getattr(part, "__code__", None) for part in vars(kind).values()]
    files = {code.co_filename for code in codes if code is not None} - {"<string>"}
    return any(map(_is_users, files)) or (not files and _is_users_module(inspect.getmodule(kind)))


class Surroundings:
    """What a function reads, and what it was ``given``: modules, optimizers, a plan class.

    ``direct`` are the modules and optimizers that the function itself names, and ``found`` those
    that it reaches by way of other functions and objects.

    >>> model, factor = nn.Linear(2, 1), 3
    >>> reads = Surroundings(lambda x: model(x) * factor)
    >>> list(reads.direct), [(fact.key, fact.value) for fact in reads.facts if fact.key == "factor"]
    (['model'], [('factor', 3)])
    """

    def __init__(self, function: Any, given: Sequence[Any] = ()) -> None:
        self.facts: list[Fact] = []
        self.names: set[str] = set()
        """The attributes that occur in the code, and the texts, by which one may be asked for."""
        self.texts: set[str] = set()
        self.direct: dict[str, nn.Module | Optimizer] = {}
        self.found: dict[str, nn.Module | Optimizer] = {}
        self.schedulers: list[LRScheduler] = []
        self._places: set[tuple[int, Any]] = set()
        self._seen: dict[int, Any] = {}
        self._instances: list[Any] = []
        body = inspect.unwrap(getattr(function, "__func__", function))
        if isinstance(body, types.FunctionType):
            named = _places_in(body)
            self.direct = {fact.key: fact.value for fact in named if _has_state(fact.value)}
            self._code(body)
        for each in (function, *given):
            self._follow("", each)
        self._follow_attributes()
        self._keep_apart(given)

    def _follow_attributes(self) -> None:
        """Read the attributes of what was found, until that leads to nothing new."""
        known = 0
        while known != (known := len(self._places) + len(self.names) + len(self._instances)):
            for each in list(self._instances):
                self._attributes(each)

    def _keep_apart(self, given: Sequence[Any]) -> None:
        """Leave out what is seen to with the modules and optimizers that are known."""
        named: list[Any] = [*given, *self.direct.values()]
        models = [each for each in named if isinstance(each, nn.Module)]
        named += itertools.chain.from_iterable(map(nn.Module.modules, models))
        known = {id(each) for each in named}
        self.found = {key: each for key, each in self.found.items() if id(each) not in known}
        optimizers = [each for each in self._seen.values() if isinstance(each, Optimizer)]
        groups = {id(group) for each in optimizers for group in each.param_groups}
        self.facts = [fact for fact in self.facts if id(fact.container) not in groups]

    def _read(self, owner: str, container: Any, key: Any, value: Any) -> None:
        """Note a place that is read, and follow what stands there."""
        place = id(container), key
        if place in self._places or (
            isinstance(value, types.ModuleType)
            and not _is_users_module(value)
            or is_symbolic(value)
        ):
            return
        self._places.add(place)
        self.facts.append(Fact(owner, container, key, value))
        self._follow(str(key), value)

    def _follow(self, name: str, value: Any) -> None:
        if id(value) in self._seen or isinstance(value, torch.Tensor) or type(value) in _ATOMS:
            return
        self._seen[id(value)] = value
        if _has_state(value):
            self.found[_unused(name, self.found)] = value
        for kind, follow in _FOLLOW.items():
            if isinstance(value, kind):
                follow(self, name, value)
                return
        self._object(name, value)

    def _function(self, name: str, function: types.FunctionType) -> None:
        if _is_users(function.__code__.co_filename):
            self._code(function)

    def _code(self, function: types.FunctionType) -> None:
        """Read what the code of a function names."""
        names = _names_in(function.__code__)
        self.names |= names.others | names.texts
        self.texts |= names.texts
        for fact in _places_in(function):
            self._read(*fact)

    def _method(self, name: str, method: types.MethodType) -> None:
        self._follow(name, method.__self__)
        self._follow(name, method.__func__)

    def _partial(self, name: str, call: partial[Any]) -> None:
        for part in (call.func, *call.args, *call.keywords.values()):
            self._follow(name, part)

    def _descriptor(self, name: str, found: Any) -> None:
        for key in ("fget", "func", "__func__"):
            self._follow(name, getattr(found, key, None))

    def _dict(self, name: str, items: dict[Any, Any]) -> None:
        self.facts.append(Fact(name, items, LENGTH, len(items)))
        for key, value in list(items.items())[:MOST_ITEMS]:
            self._read(name, items, key, value)

    def _list(self, name: str, items: list[Any]) -> None:
        if len(items) <= MOST_ITEMS:
            self.facts.append(Fact(name, items, "items", tuple(items)))
        self._items(name, items)

    def _items(self, name: str, items: Any) -> None:
        for value in list(items)[:MOST_ITEMS]:
            self._follow(name, value)

    def _python_module(self, name: str, module: types.ModuleType) -> None:
        if _is_users_module(module):
            self._instances.append(module)

    def _class(self, name: str, kind: type) -> None:
        if _is_users_class(kind):
            self._instances.append(kind)
        for base in kind.__bases__:
            self._follow(name, base)

    def _object(self, name: str, value: Any) -> None:
        """An instance: of it and its class, what the code names."""
        self._class_of(name, value)
        own = getattr(value, "__dict__", None) or {}
        self._follow(name, own.get("__wrapped__"))
        if isinstance(value, LRScheduler):
            self.schedulers.append(value)
            for part in (value.optimizer, *getattr(value, "_schedulers", ())):
                self._follow("optimizer", part)
        if isinstance(value, nn.Module):
            for _, part in value.named_modules():
                self._class_of(type(part).__name__, part)

    def _class_of(self, name: str, value: Any) -> None:
        kinds = [kind for kind in type(value).__mro__ if _is_users_class(kind)]
        if kinds:
            self._instances.append(value)
            self._follow(name, type(value))

    def _attributes(self, value: Any) -> None:
        """Read the attributes of an object, class or module that occur in the code."""
        if isinstance(value, type):
            for key in filter(partial(self._is_called, value), dict(vars(value))):
                self._read(value.__name__, value, key, vars(value)[key])
            return
        owner = getattr(value, "__name__", type(value).__name__)
        own = getattr(value, "__dict__", {})
        known = next((_OBSERVED[kind] for kind in _OBSERVED if isinstance(value, kind)), _NONE)
        for key in sorted((self.names & own.keys()) - known):
            self._read(owner, own, key, own[key])
        for kind in type(value).__mro__:
            for key in self.names & {*vars(kind).get("__slots__", ())}:
                self._read(owner, value, key, getattr(value, key, None))

    def _is_called(self, kind: type, key: str) -> bool:
        """Whether an attribute of a class is named by code, or is one that libraries call."""
        if key in self.names or not callable(vars(kind)[key]):
            return key in self.names
        bases = itertools.filterfalse(_is_users_class, kind.__mro__)
        return key.startswith("__") or any(key in vars(base) for base in bases)


_NONE: Final[frozenset[str]] = frozenset()
_OBSERVED: Final[dict[type, frozenset[str]]] = {
    nn.Module: frozenset(vars(nn.Module())),
    Optimizer: frozenset(("defaults", "state", "param_groups")),
}
"""Attributes of which :mod:`syft.plans.building.assumptions` sees to the contents."""
_Follow = Callable[[Surroundings, str, Any], None]
_FOLLOW: Final[dict[Any, _Follow]] = {
    types.FunctionType: Surroundings._function,
    types.MethodType: Surroundings._method,
    partial: Surroundings._partial,
    (property, functools.cached_property, staticmethod, classmethod): Surroundings._descriptor,
    dict: Surroundings._dict,
    list: Surroundings._list,
    (tuple, set, frozenset): Surroundings._items,
    types.ModuleType: Surroundings._python_module,
    type: Surroundings._class,
}
"""How to follow a value of a class; of any other, its attributes."""


def _unused(name: str, names: Any) -> str:
    unused, count = name, 1
    while unused in names:
        count += 1
        unused = f"{name}_{count}"
    return unused
