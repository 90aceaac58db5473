"""Where tensors are made that hold nobody's data: in the forward pass of a module that was sent,
and in ``with sy.at(bob):``.

A mode sees them being made, and costs each other call in the forward pass some time.  So a look at
the code of a module, when it is sent, says whether it may make any.  The look is generous: whatever
calls functions that are not torch's may.  A module whose forward pass is left as it is makes none,
or is told by a :class:`~syft.exceptions.LocationMismatch` what to do.

The small tensors that are plain attributes of the module go along, too, also in its lists, tuples
and dictionaries.  Others stay, and so does what is private.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import torch
from torch import nn

from syft.chain.wrapper import Wrapper
from syft.ops.control import RECORDING
from syft.tensors.constant import MAKERS, WENT, ConstantTensor, MakingConstants
from syft.workers.client.operands import MOST_BYTES
from syft.workers.client.transport import Location as Worker
from syft.workers.labels.memory_labels import full_guard_of

_MAKING: Final = {maker.__name__ for maker in MAKERS if maker is not None} | {
    "rsample",
    "sample",
    "distributions",
}
_CONTAINERS: Final = frozenset((list, tuple, dict))
_DEEPEST: Final = 8
_MOST_ITEMS: Final = 1000
"""How deep tensors in containers are looked for, and in which."""
_KNOWN: Final = frozenset(("torch", "builtins", "math"))
_FORWARD: Final = "forward"
_INSIDE: ContextVar[bool] = ContextVar("inside the forward pass of a sent module", default=False)


@contextlib.contextmanager
def at(worker: Worker) -> Iterator[Worker]:
    """A context in which ``torch.zeros(3)``, and what else is made of nothing but numbers, is made
    at a worker: the value of each is drawn or computed here, and sent.

    >>> with sy.at(bob):
    ...     x = torch.arange(3)
    >>> x, (x + 1).get()
    ((Wrapper)>[PointerTensor | me:... -> bob:...], tensor([1, 2, 3]))
    """

    def sent(tensor: Any) -> torch.Tensor:
        remote: torch.Tensor = tensor.send(worker)
        return remote

    with MakingConstants(sent, sent):
        yield worker


def _going_along(tensor: torch.Tensor) -> torch.Tensor:
    return ConstantTensor().on(tensor)


class SentForward:
    """The forward pass of a module that was sent: what it makes goes to where it is used.

    It stands in the place of the method, and not around the call of the module, since it has to end
    with an interrupt, too, of which torch tells no hook.
    """

    __slots__ = ("_module",)

    def __init__(self, module: nn.Module) -> None:
        self._module = weakref.ref(module)

    @property
    def module(self) -> nn.Module:
        """The module, which has this in the place of its method."""
        module = self._module()
        if module is None:
            raise ReferenceError("this forward pass has outlived its module")
        return module

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(type(self.module).forward.__get__(self.module))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self.module
        forward: Any = type(module).forward
        if _INSIDE.get() or RECORDING.get() is not None:
            return forward(module, *args, **kwargs)
        token = _INSIDE.set(True)
        try:
            with MakingConstants(_going_along, self._to_its_worker):
                return forward(module, *args, **kwargs)
        finally:
            _INSIDE.reset(token)

    def _to_its_worker(self, tensor: Any) -> torch.Tensor:
        """A tensor that is made here, where the module is."""
        for part in (*self.module.parameters(), *self.module.buffers()):
            if type(part) is Wrapper and part.child.at_function_level:
                remote: torch.Tensor = tensor.send(part.child.location)
                return remote
        return _going_along(tensor)

    def __deepcopy__(self, memo: dict[int, Any]) -> SentForward:
        return SentForward(memo[id(self.module)])


def follow(module: nn.Module) -> None:
    """Have what the forward pass of a module and its parts makes go to where it is used, and their
    small plain attributes, until :func:`unfollow`.

    >>> model = nn.Linear(2, 1); follow(model); "forward" in vars(model)
    False
    """
    for part in module.modules():
        kind: Any = type(part)
        held = (value for value in vars(part).values() if callable(value))
        makes = makes_tensors(kind) or not all(map(_is_known, held))
        if makes and _FORWARD not in vars(part):
            part.__dict__[_FORWARD] = SentForward(part)
        _change_attributes(part, _sent_along)


def _change_attributes(part: nn.Module, change: Callable[[Any], Any]) -> None:
    for name, value in vars(part).items():
        if name[0] != "_":
            part.__dict__[name] = _changed(value, change, _DEEPEST)


def _changed(value: Any, change: Callable[[Any], Any], depth: int) -> Any:
    """A value with what is in it changed: lists and dictionaries in place, tuples anew."""
    kind = type(value)
    if kind not in _CONTAINERS or not depth or len(value) > _MOST_ITEMS:
        return change(value)
    if kind is tuple:
        items = [_changed(item, change, depth - 1) for item in value]
        return value if all(map(operator.is_, items, value)) else tuple(items)
    for key, item in list(value.items() if kind is dict else enumerate(value)):
        changed = _changed(item, change, depth - 1)
        if changed is not item:
            value[key] = changed
    return value


def _sent_along(value: Any) -> Any:
    """A constant for a plain attribute of a module that is small, and nobody's secret."""
    if type(value) is not torch.Tensor or value.layout is not torch.strided:
        return value
    private = value.requires_grad or full_guard_of(value) is not None
    return value if private or value.nbytes > MOST_BYTES else _going_along(value)


def _back(value: Any) -> Any:
    link: Any = value.child if type(value) is Wrapper else None
    return link.tensor if type(link) is ConstantTensor else value


def gone(part: nn.Module) -> list[Wrapper]:
    """What a module has as plain attributes that went to a worker.

    >>> gone(nn.Linear(2, 1))
    []
    """
    found: list[Wrapper] = []

    def look(value: Any) -> Any:
        if type(value) is Wrapper and WENT in vars(value):
            found.append(value)
        return value

    _change_attributes(part, look)
    return found


def unfollow(module: nn.Module) -> None:
    """Give a module and its parts their own forward passes again, and constants that these have as
    plain tensors."""
    for part in module.modules():
        if type(vars(part).get(_FORWARD)) is SentForward:
            del part.__dict__[_FORWARD]
        _change_attributes(part, _back)


@cache
def makes_tensors(kind: Any) -> bool:
    """Whether the methods of a module may make tensors, as far as a look at their code tells.

    >>> class Noisy(nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x) + torch.randn(1)
    >>> makes_tensors(Noisy), makes_tensors(nn.Linear), makes_tensors(nn.LSTM)
    (True, False, False)
    """
    for base in kind.__mro__:
        if _root(base.__module__) in _KNOWN:
            continue
        for name, value in vars(base).items():
            method = getattr(value, "__func__", getattr(value, "fget", value))
            if name != "__init__" and isinstance(method, FunctionType):
                if _may_make(method.__code__, method.__globals__):
                    return True
    return False


def _may_make(code: CodeType, names: dict[str, Any]) -> bool:
    if set(code.co_freevars) - {"__class__"} or not _MAKING.isdisjoint(code.co_names):
        return True
    if not all(_is_known(names.get(name)) for name in code.co_names):
        return True
    return any(_may_make(part, names) for part in code.co_consts if type(part) is CodeType)


def _is_known(value: Any) -> bool:
    """Whether a global is a number, or a module, class or function that makes no tensors by itself
    but under the names that are looked for."""
    if value is None or isinstance(value, (int, float, str, bool)):
        return True
    where = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return _root(where) in _KNOWN and not str(where).startswith("torch.distributions")


def _root(name: str | None) -> str:
    return str(name).partition(".")[0]
